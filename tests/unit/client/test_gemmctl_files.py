# SPDX-License-Identifier: Apache-2.0
"""gemmctl: export, import and backup."""
import json
import os
import pathlib
import resource
import signal
import subprocess
import tempfile
import threading

import msgpack
import pytest

from fake_gemmd import (ANSWER, BEST, GEMMCTL, ROOT, Refusal, ctl, ctl_json, environment,
                        rows_of)


def test_export_and_import_are_lossless(fake, folder):
    fake.answers["list"] = rows_of(BEST)
    fake.answers["status"] = {"build": "b", "device": {"name": "d"}, "bucket_scheme": "sqrt2"}
    fake.answers["import"] = lambda params: {"imported": len(params["rows"]), "skipped": []}
    document = json.loads(ctl(fake, "export").stdout)
    assert document["rows"] == BEST and document["gemmd_export"] == 1
    ctl(fake, "export", "--output", folder / "e.json")
    result = ctl(fake, "import", folder / "e.json")
    assert "7 imported, 0 skipped" in result.stdout
    assert [r for p in fake.params_of("import") for r in p["rows"]] == BEST


def no_more_than(n):
    """Limits the child's files to n bytes: a write past the limit fails as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n, n))


def test_an_export_that_fails_leaves_the_one_before(fake, folder):
    fake.answers["list"] = rows_of(BEST * 20, page=256)
    fake.answers["status"] = {"build": "b", "device": {"name": "d"}, "bucket_scheme": "sqrt2"}
    path, link = folder / "out" / "e.json", folder / "link.json"
    path.parent.mkdir()
    ctl(fake, "export", "--to", path)
    path.chmod(0o600)
    link.symlink_to(path)
    before = path.read_text()
    result = subprocess.run([GEMMCTL, "export", "--to", path], capture_output=True, text=True,
                            env=environment(fake), restore_signals=False,
                            preexec_fn=lambda: no_more_than(4096))
    assert result.returncode == 1 and f"cannot write {path}: File too large" in result.stderr
    assert path.read_text() == before and list(path.parent.iterdir()) == [path]
    fake.answers["list"] = rows_of(BEST)
    ctl(fake, "export", "--to", link)
    assert link.is_symlink() and json.loads(path.read_text())["rows"] == BEST
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_link_to_what_does_not_exist_yet_stays_a_link(fake, folder):
    fake.answers["list"] = rows_of(BEST)
    fake.answers["status"] = {"build": "b"}
    link, target = folder / "link.json", folder / "e.json"
    link.symlink_to(target.name)
    ctl(fake, "export", "--to", link)
    assert link.is_symlink() and json.loads(target.read_text())["rows"] == BEST
    nowhere = folder / "nowhere.json"
    nowhere.symlink_to(folder / "no" / "e.json")
    result = ctl(fake, "export", "--to", nowhere, code=1)
    assert f"cannot write {nowhere}: No such file or directory" in result.stderr
    assert nowhere.is_symlink() and not nowhere.exists()


def test_an_export_into_a_pipe_does_not_take_its_place(fake, folder):
    fake.answers["list"] = rows_of(BEST)
    fake.answers["status"] = {"build": "b"}
    os.mkfifo(folder / "pipe")
    reader = subprocess.Popen(["cat", folder / "pipe"], stdout=subprocess.PIPE, text=True)
    ctl(fake, "export", "--to", folder / "pipe")
    assert json.loads(reader.communicate(timeout=30)[0])["rows"] == BEST
    assert (folder / "pipe").is_fifo()


@pytest.fixture
def shared_memory():
    """A folder under /dev, where the tests make regular files."""
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("nothing can be written to /dev/shm")
    with tempfile.TemporaryDirectory(prefix="gemmd-", dir="/dev/shm") as path:
        yield pathlib.Path(path)


def test_a_regular_file_under_dev_outlives_an_export_that_fails(fake, shared_memory):
    fake.answers["list"] = rows_of(BEST * 20, page=256)
    fake.answers["status"] = {"build": "b"}
    path = shared_memory / "e.json"
    path.write_text("before")
    result = subprocess.run([GEMMCTL, "export", "--to", path], capture_output=True, text=True,
                            env=environment(fake), restore_signals=False,
                            preexec_fn=lambda: no_more_than(4096))
    assert result.returncode == 1 and f"cannot write {path}: File too large" in result.stderr
    assert path.read_text() == "before" and list(shared_memory.iterdir()) == [path]


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/{}", "/proc/self/fd/{}"])
def test_what_is_open_already_is_written_where_it_is(fake, folder, name):
    """gemmctl writes into a file that is already open, and does not replace it: others with this file see the export."""
    fake.answers["list"] = rows_of(BEST)
    fake.answers["status"] = {"build": "b"}
    with open(folder / "e.json", "w+", encoding="utf-8") as f:
        subprocess.run([GEMMCTL, "export", "--to", name.format(f.fileno())], check=True, stdout=f,
                       pass_fds=[f.fileno()], env=environment(fake), stderr=subprocess.PIPE)
        assert json.load(f)["rows"] == BEST
    assert sorted(p.name for p in folder.iterdir() if p.is_file()) == ["e.json"]
    full = ctl(fake, "export", "--to", "/dev/full", code=1)
    assert "cannot write /dev/full: No space left on device" in full.stderr


@pytest.mark.parametrize("name", ["x" * 255, "\u00e4" * 127])
def test_an_export_to_the_longest_name(fake, folder, name):
    fake.answers["list"] = rows_of(BEST)
    fake.answers["status"] = {"build": "b"}
    (folder / "out").mkdir()
    path = folder / "out" / name
    for _ in range(2):
        ctl(fake, "export", "--to", path)
        assert json.loads(path.read_text())["rows"] == BEST and list(path.parent.iterdir()) == [path]


def test_a_large_import_goes_in_chunks(fake, folder):
    rows = [{**BEST[0], "generation": i, "stamp": "x" * 150} for i in range(500)]
    (folder / "e.json").write_text(json.dumps({"gemmd_export": 1, "rows": rows}))

    def take(params):
        return {"imported": len(params["rows"]) - 1,
                "skipped": [{"row": 0, "message": "the first of each chunk"}]}
    fake.answers["import"] = take
    result = ctl_json(fake, "import", folder / "e.json")
    sent = [p["rows"] for p in fake.params_of("import")]
    assert len(sent) > 3 and [r for chunk in sent for r in chunk] == rows
    first = [sum(len(c) for c in sent[:i]) for i in range(len(sent))]
    assert [s["row"] for s in result["skipped"]] == first
    assert result["imported"] == 500 - len(sent)


def row_of_size(n, **more):
    """A row of n bytes on the wire."""
    row = {**BEST[0], **more, "doubt": "x" * 1000}
    row["doubt"] += "x" * (n - len(msgpack.packb(row)))
    assert len(msgpack.packb(row)) == n
    return row


MOST = 65536 - 64  # bytes of a request that its rows may use


def test_a_row_too_large_for_a_request_is_skipped_alone(fake, folder):
    """A number has more bytes on the wire than in the file, a control character has fewer."""
    large = {**BEST[0], "doubt": "x" * 70000}
    numbers = {**BEST[0], "config": {"A": [1.0] * 8000}}
    small = {**BEST[0], "doubt": "\x01" * 20000}
    rows = [*BEST[:5], large, BEST[5], numbers, small, row_of_size(MOST), row_of_size(MOST + 1)]
    (folder / "e.json").write_text(json.dumps({"gemmd_export": 1, "rows": rows}))
    fake.answers["import"] = lambda params: {"imported": len(params["rows"]), "skipped": []}
    result = ctl_json(fake, "import", folder / "e.json")
    assert [s["row"] for s in result["skipped"]] == [5, 7, 10]
    assert result["imported"] == 8
    assert all("bytes, and gemmd takes" in s["message"] for s in result["skipped"])
    sent = [r for p in fake.params_of("import") for r in p["rows"]]
    assert sent == [r for r in rows[:-1] if r not in (large, numbers)]


def test_an_import_that_fails_half_way_says_how_far_it_came(fake, folder):
    rows = [row_of_size(20000, generation=i) for i in range(6)]
    rows.insert(1, {**BEST[0], "doubt": "x" * 70000})
    (folder / "e.json").write_text(json.dumps({"gemmd_export": 1, "rows": rows}))

    def take(params):
        if params["rows"][0]["generation"] > 2:
            raise Refusal("disk_full", "the disk is full")
        return {"imported": len(params["rows"]), "skipped": []}
    fake.answers["import"] = take
    said = ctl(fake, "import", folder / "e.json", code=1).stderr.splitlines()
    assert said[0] == "gemmctl: the disk is full"
    assert said[1] == ("before that, the first 4 of 7 rows were done: 3 imported, 1 skipped; of the "
                       "next 2 it is not known")
    assert said[2].startswith("row 1 skipped: ")


@pytest.mark.parametrize("text, sentence", [("{", "line 1"), ("{}", "not an export"),
                                            ('{"gemmd_export": 2, "rows": []}', "not an export")])
def test_bad_imports(fake, folder, text, sentence):
    (folder / "e.json").write_text(text)
    assert sentence in ctl(fake, "import", folder / "e.json", code=1).stderr
    assert "cannot read" in ctl(fake, "import", folder / "none.json", code=1).stderr


def test_backup_sends_a_whole_path(fake, folder):
    fake.answers["backup"] = lambda params: {"path": params["path"]}
    subprocess.run([GEMMCTL, "backup", "copy.db"], cwd=folder, check=True, env=environment(fake),
                   capture_output=True)
    assert fake.params_of("backup") == [{"path": str(folder.resolve() / "copy.db")}]


def test_a_layers_numbers_beside_a_file_of_aiters(fake):
    """The problem's sizes come from the layer's numbers (--tokens, --moe), not from the file's name."""
    path = ROOT / "tests" / "data" / "exchange" / "GEMM-A16W16-N=512-K=256.json"
    fake.answers["get"] = {**ANSWER, "tier": "default", "stamp": "src=1 target=portable compiler=x"}
    fake.answers["check"] = {"valid": True, "target": "portable"}
    made = ctl_json(fake, "import", "--format", "aiter", path, "--dry-run", "--tokens", 8, "--moe",
                    "experts=8,topk=2,hidden=256,inter=256")
    hint, = made["hints"]
    assert (hint["problem"]["M"], hint["problem"]["N"], hint["problem"]["K"]) == (16, 512, 256)
    assert hint["problem"]["permute_x"] and "another N or K" in made["unusable"][0]["why"]


TILE = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "num_warps": 4, "num_stages": 3,
        "GROUP_SIZE_M": 8}
PLAIN, BY_CHANCE = {}, {"routing": "zipf:1"}
EXCHANGE = ROOT / "tests" / "data" / "exchange"


def dense(i, m=64, **fields):
    """An answer that fits aiter's format, marked by its GROUP_SIZE_M."""
    problem = {"mode": "forward", "M": m, "N": 32, "K": 64, "experts": 1, "topk": 1, "dtype_in": "bf16",
               "dtype_out": "bf16", **fields}
    return {**BEST[0], "key": f"{i:032x}", "problem": problem, "config": {**TILE, "GROUP_SIZE_M": i}}


@pytest.mark.parametrize("rows, decides, why", [
    ([dict(m=64), dict(m=60)], 1, "a larger M"),
    ([dict(m=60), dict(m=64, dtype_in="fp16")], 2, "a larger M"),
    ([dict(dtype_in="fp16"), BY_CHANCE], 2, "bf16 beside fp16"),
    ([BY_CHANCE, dict(dtype_in="fp16")], 1, "bf16 beside fp16"),
    ([BY_CHANCE, PLAIN], 2, "uniform routing beside another"),
    ([PLAIN, BY_CHANCE], 1, "uniform routing beside another"),
    ([dict(routing="uniform"), BY_CHANCE], 1, "uniform routing beside another"),
    ([BY_CHANCE, dict(routing="rows:64")], 1, "an answer of the same M that is listed before"),
    ([PLAIN, dict(dtype_out="fp32")], 1, "an answer of the same M that is listed before")])
def test_which_of_two_answers_decides_a_class_of_aiters(fake, folder, rows, decides, why):
    fake.answers["list"] = rows_of([dense(i + 1, **row) for i, row in enumerate(rows)])
    fake.answers["status"] = {"build": "b", "device": {"arch": "sm_80", "class": "c"}}
    written = ctl_json(fake, "export", "--format", "aiter", "--to", folder / "out")
    path = next((folder / "out").rglob("*N=32*.json"))
    assert json.loads(path.read_text())["M_LEQ_64"]["GROUP_SIZE_M"] == decides
    skipped, = written["skipped"]
    assert skipped["why"] == f"{why} decides M_LEQ_64 of its file"
    assert skipped["what"].startswith(f"{3 - decides:032x}"[:8])


@pytest.fixture
def hints(fake):
    """Returns a function that imports a file as hints, and returns the rows that gemmctl sends."""
    fake.answers["get"] = {**ANSWER, "tier": "default", "stamp": "src=1 target=portable compiler=x"}
    fake.answers["check"] = {"valid": True, "target": "portable"}

    def made(name, path, **more):
        result = subprocess.run([GEMMCTL, "import", "--format", name, path, "--dry-run", "--m", "256", "--n",
                                 "512", "--k", "256", "--json"], capture_output=True, text=True, timeout=30,
                                env=environment(fake), **more)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)["hints"]
    return made


@pytest.mark.parametrize("name, file", [("unsloth", "unsloth-forward.csv"),
                                        ("aiter", "GEMM-A16W16-N=512-K=256.json")])
def test_a_foreign_file_may_come_through_a_pipe(hints, folder, name, file):
    wanted = hints(name, EXCHANGE / file)
    read, write = os.pipe()
    with os.fdopen(write, "wb") as f:
        f.write((EXCHANGE / file).read_bytes())  # less than a pipe holds
    with os.fdopen(read):
        assert hints(name, f"/dev/fd/{read}", pass_fds=[read]) == wanted
    os.mkfifo(folder / file)
    writer = threading.Thread(target=(folder / file).write_bytes, args=[(EXCHANGE / file).read_bytes()])
    writer.start()
    assert hints(name, folder / file) == wanted
    writer.join(30)
