# SPDX-License-Identifier: Apache-2.0
"""Tables on terminals: what fits, and configs in the short notation, which every command reads back."""
import fcntl
import json
import os
import pathlib
import pty
import re
import shutil
import struct
import subprocess
import tempfile
import termios

import pytest
from conftest import BUILD, DATA, GEMMCTL, PATIENCE, Daemon

RECORDED = f"replay:{BUILD}/tests/data/landscapes/qwen3-30b-a3b-gate_up-4096-forward.jsonl"
HOPPER = f"replay:{DATA / 'synthetic-hopper.jsonl'}"
SMALL = ["--tokens", "64", "--n", "256", "--k", "256", "--experts", "4", "--topk", "2", "--permute-x"]
LARGE = ["--tokens", "4096", "--n", "1536", "--k", "2048", "--experts", "128", "--topk",
         "8", "--permute-x"]


def terminal(d, columns, *args, code=0):
    """The lines that gemmctl shows on a terminal of so many columns."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    env = {**d.env, "GEMMD_SOCKET": str(d.socket), "TERM": "xterm", "XDG_RUNTIME_DIR": str(d.folder), "GEMMD_SYSTEM": "0"}
    env.pop("COLUMNS", None)
    with subprocess.Popen([GEMMCTL, *map(str, args)], env=env, stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        data, more = b"", b"."
        while more:
            try:
                more = os.read(master, 65536)
            except OSError:  # gemmctl has closed the terminal
                more = b""
            data += more
        os.close(master)
    assert process.wait(60 * PATIENCE) == code, (args, data)
    return re.split(r"[\r\n]+", data.decode().replace("\x1b[K", ""))  # a drawn line begins with \r


def text_of(row):
    """The problem of a row as text."""
    fields = (f"{name}={json.dumps(v)}" for name, v in row["problem"].items())
    return " ".join([row["op"], *fields])


FP8 = "grouped_gemm mode=forward M=128 N=256 K=256 experts=4 topk=2 permute_x=true quant=fp8_block"
QUANTISE = "quantise mode=both M=4096 K=1024 experts=128"
DEVICES = {"cpu": ("cpu", SMALL), "H200": (RECORDED, LARGE), "all modes": (HOPPER, ["--mode", "forward,dX,dW", *LARGE])}


@pytest.fixture(scope="module", params=DEVICES)
def known(request, shared_cache):
    """A daemon with tuned rows, a failed config, and a row of a custom op with long values."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-"))
    device, sizes = DEVICES[request.param]
    d = Daemon(path, device, cache=shared_cache).start()
    d.ctl("tune", "-q", *sizes, "--budget", "3")
    good = d.ctl_json("list")[0]
    for problem in (FP8, QUANTISE) if device == "cpu" else ():
        d.ctl("tune", "-q", problem, "--budget", "2")
    (path / "configs").write_text(json.dumps([good["config"], {**good["config"], "BLOCK_SIZE_M": 77}]))
    d.ctl("tune", "-q", text_of(good), "--configs", path / "configs")
    d.call("put", problem={"op": "custom:sort", "n": 4096, "source": "x" * 64, "other": "a long value " * 8},
           config={f"PARAMETER_{i}": i for i in range(20)}, time_us=12.5)
    yield d, sizes
    assert d.stop() == 0, d.text()
    shutil.rmtree(path, ignore_errors=True)


def test_no_line_is_wider_than_the_terminal(known):
    d, sizes = known
    keys = [row["key"] for row in d.ctl_json("list", "--where", "op=grouped_gemm")]
    lists = "best history trials modules quarantine runs devices events jobs served portfolio fleet fleet_rows"
    more = [[command, problem] for problem in (FP8, QUANTISE) for command in ("get", "trials", "show")]
    more += [["tune", problem, "--budget", "2"] for problem in (FP8, QUANTISE)]
    more += [["why", problem] for problem in (FP8, "custom:unknown n=1")]
    commands = (more if d.device == "cpu" else []) + [["list", "--what", what] for what in lists.split()] + [
        ["get", *sizes], ["get", *sizes, "--wait", "cached"], ["tune", *sizes, "--budget", "2"], ["trials"],
        ["trials", keys[0]], ["trials", "--failed"], ["show", keys[0]], ["show", keys[-1]], ["jobs"], ["status", "--all"], ["status"]]
    for columns, some in ((100, commands), (80, commands[-2:] + commands[:4])):
        for command in some:
            wide = [line for line in terminal(d, columns, *command)
                    if len(line) > columns and not line[13:].startswith("gemmctl ")]  # a command is copied whole
            assert not wide, (columns, command, wide)
    assert any("77" in line for line in terminal(d, 100, "trials", "--failed"))


def test_a_failure_fits_the_terminal_and_keeps_its_command_whole(known):
    d, _ = known
    lines = terminal(d, 60, "lock", "custom:unknown n=1", code=1)
    assert len(lines) > 2 and max(map(len, lines)) <= 60, lines
    assert any("`gemmctl tune`" in line for line in lines), lines


def test_what_a_person_copies_is_whole(known):
    """Every config that a table of 100 columns shows reads back as the config in --json."""
    d, _ = known
    rows = [row for row in d.ctl_json("list") if row["op"] == "grouped_gemm"]
    assert rows
    for row in rows:
        head, line = terminal(d, 100, "list", "--where", f"key={row['key']}")[:2]
        short = line[head.index("CONFIG"):].strip()
        assert re.fullmatch(r"\d+x\d+(x\d+)?( [\w%]+)+", short), line
        problem = text_of(row)
        assert d.ctl("check", problem, "--config", short).stdout.startswith("valid for target")
        assert d.ctl_json("bench", "-q", problem, "--config", short)[0]["config"] == row["config"]
        shown = d.ctl("show", row["key"]).stdout
        assert re.search(rf"^config +{re.escape(short)}$", shown, re.M), shown
        pinned = d.ctl_json("pin", problem, "--config", short)
        assert (pinned["source"], pinned["config"]) == ("manual", row["config"])
        d.ctl("unpin", row["key"])


def test_all_columns_and_chosen_columns(known):
    d, sizes = known
    narrow, wide = d.ctl("list").stdout, d.ctl("list", "--wide").stdout
    assert max(map(len, narrow.splitlines())) <= 100 < max(map(len, wide.splitlines()))
    assert "PARAMETER_19=19" in wide and "..." in narrow and "..." not in wide
    chosen = d.ctl("list", "--columns", "key,TIME us,time_us,parameters").stdout
    assert chosen.splitlines()[0].split() == ["KEY", "TIME", "us", "TIME", "us", "PARAMETERS"]
    for command in (["list"], ["get", *sizes], ["show", "123456"], ["trials"], ["modules"]):
        for options, why in ((["--columns", "COLOUR"], 'there is no column "COLOUR" here: '),
                             (["--json", "--wide"], "--json has all fields")):
            refused = d.ctl(*command, *options, check=False)
            assert refused.returncode == 2 and why in refused.stderr
    assert "CONFIG, PARAMETERS" in d.ctl("list", "--columns", "COLOUR", check=False).stderr


def test_a_row_faster_than_the_known_peaks_shows_no_share_of_the_floor(known):
    d, _ = known
    d.call("import", rows=[{"op": "custom:peak", "problem": {"n": 1}, "config": {"A": 1}, "time_us": 5.0, "floor_us": 10.0}])
    chosen = ["--where", "op=custom:peak"]
    assert d.ctl("list", *chosen, "--columns", "%FLOOR").stdout.split() == ["%FLOOR", ">100"]
    assert d.ctl_json("list", *chosen)[0]["floor_percent"] == 200
    assert "faster than the known peaks of this device allow (10.00 us)" in d.ctl("why", "custom:peak n=1").stdout
    assert ">100" in d.ctl("show", "custom:peak n=1").stdout


def test_a_text_cannot_forge_a_row(known):
    """Line ends in texts of other users make no lines: a folded table has blanks, a whole table \\x0a."""
    d, _ = known
    problem, failed = {"op": "custom:forged", "n": 1}, {"config": {"A": "x\ny"}, "status": "crashed", "reason": "a\nb"}
    with d.connect() as c:
        c.call("acquire", problem=problem)
        c.call("record", problem=problem, trials=[failed])
    for options, shown in ([], "a b"), (["--wide"], r"a\x0ab"), (["--columns", "config,reason"], r"a\x0ab"):
        lines = d.ctl("trials", "--where", "status=crashed", *options).stdout.splitlines()
        assert len(lines) == 2 and r"x\x0ay" in lines[1] and shown in lines[1], lines


def test_a_mistake_in_the_notation_is_named(known):
    d, sizes = known
    one = sizes[2:] if "--mode" in sizes else sizes
    for command in ("check", "bench", "pin", "tune", "get"):
        refused = d.ctl(command, *one, "--config", "64x64 nonsense", check=False)
        assert refused.returncode == 2 and '"nonsense" is no word' in refused.stderr
    rows = {"gemmd_export": 1, "rows": [{"op": "grouped_gemm", "problem": {"M": 64}, "config": "64x64 nonsense"}]}
    (d.folder / "rows").write_text(json.dumps(rows))
    refused = d.ctl("import", d.folder / "rows", check=False)
    assert refused.returncode == 1 and refused.stderr.startswith("gemmctl: row 0: ")


def test_an_import_and_a_file_of_configs_have_short_notation(known):
    d, _ = known
    row = next(row for row in d.ctl_json("list") if row["op"] == "grouped_gemm")
    short = d.ctl("show", row["key"], "--columns", "config").stdout.split(maxsplit=1)[1].strip()
    (d.folder / "configs").write_text(f"# of a table\n{short}\n")
    tuned = d.ctl_json("tune", "-q", text_of(row), "--configs", d.folder / "configs")[0]
    assert tuned["config"] == row["config"]
    document = d.ctl_json("export", row["key"])
    document["rows"][0]["config"] = short
    d.ctl("evict", row["key"])
    (d.folder / "rows").write_text(json.dumps(document))
    assert "1 imported" in d.ctl("import", d.folder / "rows").stdout
    again = d.ctl_json("list", "--where", f"key={row['key']}")[0]
    assert (again["source"], again["config"]) == ("imported", row["config"])
