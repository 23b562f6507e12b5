# SPDX-License-Identifier: Apache-2.0
"""gemmctl as users type it, with typical mistakes, against a real daemon."""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import time

import pytest

from conftest import (BUILD, DATA, GEMMCTL, GEMMD, PATIENCE, ROOT, RUNNER, SYNTHETIC, Daemon, RpcError,
                      Watched, gemm)

SIZE = ["--m", "256", "--n", "256", "--k", "256"]


def ctl(d, *args, code=0, env=None, **more):
    """Runs gemmctl and checks its exit status. Returns (stdout, stderr), where bad UTF-8 in stdout is replaced."""
    result = subprocess.run([GEMMCTL, *args], capture_output=True, timeout=60 * PATIENCE,
                            env={**d.env, "GEMMD_SOCKET": str(d.socket), **(env or {})}, **more)
    said = result.stderr.decode(errors="replace")
    assert result.returncode == code, (args, result.stdout, said)
    return result.stdout.decode(errors="replace"), said


@pytest.mark.parametrize("args", [
    ["tune", *SIZE, "--config", b"BLOCK_SIZE_M=\xff"],
    ["get", *SIZE, "--mode", b"\xff"],
    ["list", "--where", b"source=\xff"],
    ["list", "--sort", b"\xff"],
    ["evict", b"custom:x name=\xff"],
], ids=lambda args: args[0])
def test_what_is_no_text_is_not_left_out(daemon_of_module, args):
    """gemmctl refuses text that is not UTF-8: without its config or filter, it would tune or list everything."""
    _, said = ctl(daemon_of_module, *args, code=2)
    assert "is not UTF-8" in said


def test_configs_of_a_file_that_is_no_text(daemon_of_module, folder):
    (folder / "configs").write_bytes(b"BLOCK_SIZE_M=64\nBLOCK_SIZE_M=\xff\n")
    _, said = ctl(daemon_of_module, "tune", *SIZE, "--configs", str(folder / "configs"), code=2)
    assert "is not UTF-8" in said


@pytest.mark.parametrize("args,word", [
    (["get", *SIZE, "--layer", "down"], "--shapes"),
    (["get", *SIZE, "--model", "mixtral-8x7b"], "--shapes"),
    (["get", *SIZE, "--permutes", "none"], "--shapes"),
    (["tune", *SIZE, "--atol", "0"], "above 0"),
    (["check", *SIZE, "--config", "BLOCK_SIZE_M=64", "--atol", "1"], "--atol"),
    (["tune", *SIZE, "--wait", "cached"], "never tunes"),
    (["get", *SIZE, "--wait", "cached", "--again"], "leave one of them out"),
    (["bench", *SIZE, "--config", "BLOCK_SIZE_M=64", "--wait", "now"], "and waits for that"),
    (["bench", *SIZE, "--config", "BLOCK_SIZE_M=64", "--budget", "9"], "each of the given configs"),
    (["verify", "--exact", *SIZE, "--wait", "now"], "--budget and --wall-ms make it short"),
    (["verify", "--exact", *SIZE, "--deadline-ms", "9"], "--budget and --wall-ms make it short"),
    (["space", *SIZE, "--arch", "hopper"], "such as sm_80 or sm_90a"),
    (["precompile", "--arch", ""], "such as sm_80 or sm_90a"),
    (["--json", "status"], "options come behind the command: gemmctl COMMAND --json"),
    (["help", "nothing"], "nothing"),
])
def test_no_option_is_passed_over(daemon_of_module, args, word):
    assert word in ctl(daemon_of_module, *args, code=2)[1]


@pytest.mark.parametrize("args", [["status", "--socket", ""], ["restore", os.devnull, "--database", ""]])
def test_an_empty_path_is_not_the_default(daemon_of_module, args):
    assert f'{args[-2]} takes a path, not ""' in ctl(daemon_of_module, *args, code=2)[1]


def test_an_empty_path_is_no_file(daemon_of_module):
    assert 'cannot write "": No such file' in ctl(daemon_of_module, "metrics", "--textfile", "", code=1)[1]


@pytest.mark.parametrize("option", ["budget", "budget-ms", "wall-ms", "iters", "warmup"])
def test_bounds_of_options_are_the_daemons(daemon_of_module, option):
    with pytest.raises(RpcError) as e:
        daemon_of_module.call("get", problem=gemm(), wait="cached", **{option.replace("-", "_"): 1 << 62})
    most = re.search(r"takes 0\.\.(\d+)", e.value.message)[1]
    for value in ("-1", str(int(most) + 1)):
        assert f"a whole number from 0 to {most}, not" in ctl(daemon_of_module, "get", *SIZE, f"--{option}={value}", code=2)[1]
    ctl(daemon_of_module, "get", *SIZE, "--wait", "cached", f"--{option}={most}")


def test_bounds_of_a_layer_are_said(daemon_of_module):
    layer = "experts=%s,topk=2,hidden=64,inter=64"
    for value in ("0", "-1", str((1 << 30) + 1)):
        said = ctl(daemon_of_module, "get", "--moe", layer % value, "--tokens", "64", code=2)[1]
        assert f'experts takes a whole number from 1 to {1 << 30}, not "{value}"' in said
        said = ctl(daemon_of_module, "get", "--moe", layer % 8, "--tokens", value, code=2)[1]
        assert f'whole numbers from 1 to {1 << 30} as in 4096,16384; not "{value}"' in said


def test_what_is_said_twice_is_refused(daemon_of_module, folder):
    assert "says twice what experts is" in ctl(daemon_of_module, "get", "--tokens", "64", "--moe",
                                               "experts=8,topk=2,hidden=64,inter=64,experts=4", code=2)[1]
    (folder / "configs").write_text('[{"BLOCK_SIZE_M": 64, "BLOCK_SIZE_M": 128}]')
    assert "duplicate" in ctl(daemon_of_module, "check", *SIZE, "--configs", folder / "configs", code=2)[1]


def test_help_of_help(daemon_of_module):
    assert ctl(daemon_of_module, "help", "--help") == ctl(daemon_of_module, "help")


@pytest.mark.parametrize("args", [["help"], ["get", "--help"], ["help", "get"], ["get", "--usage"], ["--version"], ["status"],
                                  ["status", "--json"]], ids=" ".join)
def test_a_full_disk_is_said(daemon_of_module, args):
    with open("/dev/full", "wb") as full:
        said = subprocess.run([GEMMCTL, *args], stdout=full, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "GEMMD_SOCKET": str(daemon_of_module.socket)})
    assert said.returncode == 1 and said.stderr.count("No space left") == 1


def test_a_limit_of_file_sizes_is_said(daemon_of_module, folder):
    with open(folder / "status.json", "wb") as small:
        said = subprocess.run([GEMMCTL, "status", "--json"], stdout=small, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "GEMMD_SOCKET": str(daemon_of_module.socket)},
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY)))
    assert said.returncode == 1 and "File too large" in said.stderr, said


def test_a_closed_output_is_said(daemon_of_module):
    said = subprocess.run(["sh", "-c", f"exec {GEMMCTL} list --what events >&-"], text=True,
                          stderr=subprocess.PIPE,
                          env={**os.environ, "GEMMD_SOCKET": str(daemon_of_module.socket)})
    assert said.returncode == 1 and "cannot write the result" in said.stderr
    assert "malformed" not in daemon_of_module.text(), "nothing came by the socket instead"


@pytest.mark.parametrize("table,options,said", [
    ("mode,N,K,tokens,experts,topk\nforward,128,256,64,8,2\nforward,128,256,64,8\n", [], "line 3 has fewer columns"),
    ("mode,M,N,K,M\nforward,64,128,256,32\n", [], 'the column "M" twice'),
    ("mode,M,N,K\nforward,64,128,256\n", ["--model", "qwen"], 'no column "model"'),
    ("layer,mode,M,N,K\nup,forward,64,128,256\n", ["--tokens", "64"], 'no column "tokens"'),
    ("model,layer,mode,M,N,K\nMod\udce8le,up,forward,64,128,256\n", [], "line 2 is not UTF-8"),
    ("mode,M,N,K\nforward,64,128,256\n\0\0\nforward,32,128,256\n", [], "a zero byte"),
    ("mode,experts,tokens,topk,N,K\nforward,8,4611686018427387920,4,64,64\n", [], "are too many"),
])
def test_no_row_of_a_table_becomes_another(daemon_of_module, folder, table, options, said):
    (folder / "shapes.csv").write_text(table, errors="surrogateescape")
    assert said in ctl(daemon_of_module, "get", "--wait", "cached", "--shapes", folder / "shapes.csv", *options, code=2)[1]


def test_what_never_ends_is_not_read_to_its_end(daemon_of_module, folder):
    """`import` stops reading an endless file, a mistake in a shell, before the file fills the machine's memory."""
    at_most = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30))}
    if "sanitize" in os.environ.get("GEMMD_BUILD_KIND", ""):  # sanitizers reserve terabytes
        at_most = {}
    assert "zero byte at 0" in ctl(daemon_of_module, "import", "/dev/zero", code=1, **at_most)[1]
    with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as endless:
        said = ctl(daemon_of_module, "import", "-", code=1, stdin=endless.stdout, **at_most)[1]
        endless.kill()
    assert "larger than 512 MiB" in said
    (folder / "words").write_text("no JSON\n" * 4096)
    assert "words, line 1" in ctl(daemon_of_module, "import", folder / "words", code=1)[1]


def test_a_table_may_have_a_byte_order_mark(daemon_of_module, folder):
    (folder / "shapes.csv").write_text("\ufeffmodel,mode,M,N,K\nqwen,forward,64,128,256\nllama,forward,128,128,256\n")
    rows = daemon_of_module.ctl_json("get", "--wait", "cached", "--shapes", folder / "shapes.csv", "--model", "qwen")
    assert [r["name"] for r in rows] == ["qwen"]


@pytest.mark.parametrize("rows", ["5,,3", ",5,3", "5,3,", "[5,[0],3]", "5 0 3]", "[5,0,3"])
def test_an_empty_place_is_no_expert(daemon_of_module, folder, rows):
    (folder / "rows").write_text(rows)
    assert "0 for an expert without any" in ctl(daemon_of_module, "get", "--n", "128", "--k", "128", "--rows-per-expert",
                                                folder / "rows", code=2)[1]


@pytest.mark.parametrize("rows", ["5,0,3", "[5, 0,\n 3]\n", "5\n0\n3\n", " 5 0\t3"])
def test_rows_of_experts_are_read(daemon_of_module, folder, rows):
    (folder / "rows").write_text(rows)
    row, = daemon_of_module.ctl_json("get", "--wait", "cached", "--n", "128", "--k", "128", "--rows-per-expert", folder / "rows")
    assert (row["problem"]["experts"], row["problem"]["M"], row["problem"]["routing"]) == (3, 8, "rows:5,0,3")


def test_what_why_says_to_do_is_as_tight_as_what_was_asked(daemon_of_module):
    said, _ = ctl(daemon_of_module, "why", "--m", "48", "--n", "64", "--k", "64", "--atol", "0.0012345678")
    assert "--atol 0.0012345678 --rtol 0.01" in said


@pytest.mark.parametrize("args,said", [
    (["--m", "4", "--topk", "8", "--samples", "2"], "no multiple of topk 8"),
    (["--m", "8", "--topk", "8", "--samples", "2x"], "--samples takes"),
    (["--m", "8", "--topk", "8", "--samples", "0"], "--samples takes"),
])
def test_nothing_is_verified_of_no_tokens(daemon_of_module, args, said):
    assert said in ctl(daemon_of_module, "verify", "--exact", "--n", "128", "--k", "128", "--experts", "8", *args, code=2)[1]


@pytest.mark.parametrize("words,lacks,give", [([], "N and K", "--n and --k"), (["--n", "512"], "K", "--k"),
                                              (["--k", "256"], "N", "--n")], ids=str)
def test_a_file_of_aiters_whose_name_says_no_sizes_is_named(daemon_of_module, folder, words, lacks, give):
    """gemmctl names the file whose name lacks the sizes, also among several files: the first file's name has them."""
    source = DATA / "exchange" / "GEMM-A16W16-N=512-K=256.json"
    path = folder / "DEFAULT.json"
    path.write_bytes(source.read_bytes())
    said = ctl(daemon_of_module, "import", "--format", "aiter", "--dry-run", str(source), str(path), *words, code=2)[1]
    assert f"the name of {path} says no {lacks}: give {give}, or" in said
    ctl(daemon_of_module, "import", "--format", "aiter", "--dry-run", str(path), "--n", "512", "--k", "256")


OPTION = re.compile(r"^ {2,6}(?:-\S, )?--([a-z][a-z-]*)(?:=\S+, --([a-z-]+))?", re.M)


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")
def test_bash_offers_a_commands_own_options(daemon_of_module):
    commands = re.findall(r"^  (\w+) +\w", ctl(daemon_of_module, "help")[0], re.M)
    for command in set(commands) - {"help"}:
        text = ctl(daemon_of_module, command, "--help")[0]
        options = {o for pair in OPTION.findall(text) for o in pair if o} - {"usage"}
        words = subprocess.run(["bash", "-c", f"""source {ROOT}/completions/gemmctl.bash
            COMP_WORDS=(gemmctl {command} --) COMP_CWORD=2; _gemmctl; echo "${{COMPREPLY[@]}}" """],
                               capture_output=True, text=True, check=True).stdout.split()
        assert {w[2:] for w in words} == options, command


def test_the_version_among_several_daemons(daemon, folder):
    """gemmctl says that several daemons are possible, not that none is running."""
    d = daemon()
    (folder / "gemmd").mkdir(mode=0o700)
    for name in ("cpu.sock", "replay-other.sock"):
        os.symlink(d.socket, folder / "gemmd" / name)
    env = {"XDG_RUNTIME_DIR": str(folder), "GEMMD_SYSTEM": "0", "GEMMD_SOCKET": ""}
    out, said = ctl(d, "version", code=1, env=env)
    assert "not running" not in out and "several daemons" in said
    assert '"gemmd": null' in ctl(d, "version", "--json", code=1, env=env)[0]


def test_a_recorded_landscape_names_its_daemon(folder):
    """The landscape's problem lines need ops that the client must register before it reads them."""
    env = {**os.environ, "XDG_RUNTIME_DIR": str(folder), "GEMMD_SYSTEM": "0", "GEMMD_SOCKET": ""}
    result = subprocess.run([GEMMCTL, "status", "--device", f"replay:{DATA / 'cpu-small.jsonl'}"],
                            env=env, capture_output=True, text=True, timeout=60 * PATIENCE)
    assert result.returncode == 3 and "no gemmd answers for replay-" in result.stderr, result


def test_a_deadline_holds_for_a_daemon_that_hangs(folder):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(str(folder / "s"))
        silent.listen()
        began = time.monotonic()
        result = subprocess.run([GEMMCTL, "get", *SIZE, "--deadline-ms", "200", "--socket",
                                 str(folder / "s")], capture_output=True, text=True)
        took = time.monotonic() - began
    # The deadline of a command is at least a second; the message names the time that is left after connecting.
    said = re.search(r"did not answer `hello` within (\d+) ms", result.stderr)
    assert result.returncode == 3 and said and 0 < int(said[1]) <= 1000, result
    assert 1 <= took < 3 * PATIENCE


@pytest.mark.parametrize("words", [["stop"], ["get", *SIZE, "--deadline-ms", "1000"]], ids=lambda w: w[0])
def test_a_stopped_daemon_is_named_with_what_to_do(daemon, words):
    d = daemon()
    d.process.send_signal(signal.SIGSTOP)
    _, said = ctl(d, *words, code=3)
    assert f"(on {d.socket})" in said and f"`kill -CONT {d.process.pid}`" in said
    d.process.send_signal(signal.SIGCONT)
    assert d.status()["pid"] == d.process.pid


def test_a_daemon_that_stops_while_it_is_asked_is_named(daemon):
    """gemmctl notices that the daemon is silent, also without a deadline."""
    d = daemon()
    with subprocess.Popen([GEMMCTL, "tune", *SIZE, "--budget", "200", "--iters", "100"], text=True, stderr=subprocess.PIPE,
                          env={**d.env, "GEMMD_SOCKET": str(d.socket)}, stdout=subprocess.DEVNULL) as asks:
        while d.status()["runner"]["state"] != "busy":
            assert asks.poll() is None
        d.process.send_signal(signal.SIGSTOP)
        said = asks.communicate(timeout=60 * PATIENCE)[1]
    d.process.send_signal(signal.SIGCONT)
    assert asks.returncode == 3 and f"(on {d.socket})" in said and f"pid {d.process.pid}" in said


@pytest.mark.parametrize("device", ["cpu", "cpu:2", "cuda:0", "cuda:GPU-1", "replay-other", "bogus"])
def test_a_daemon_of_another_device_does_not_answer(daemon_of_module, device):
    """The socket in the environment belongs to another device than the typed device."""
    d = daemon_of_module
    pid = d.status()["pid"]
    for words in (["get", *SIZE, "--wait", "cached"], ["start"], ["stop"], ["version"], ["status", "--socket", d.socket]):
        out, said = ctl(d, *words, "--device", device, code=2)
        other = "--socket" if "--socket" in words else "unset GEMMD_SOCKET"
        assert out == "" and f"{d.socket} is of another device than {device}" in said and f"or {other} for" in said
    assert d.status()["pid"] == pid


def test_a_daemon_of_that_device_answers(daemon_of_module):
    d = daemon_of_module
    for device in (SYNTHETIC, d.status()["device"]["uuid"], "any"):
        assert "runs already" in ctl(d, "start", "--device", device)[0]
    ctl(d, "status", env={"GEMMD_DEVICE": "cpu"})  # the socket overrides this default


STUBS = BUILD / "tests" / "cuda_stub"


@pytest.mark.skipif(not (STUBS / "libstub_cuda.so").exists(), reason="built without cuda")
@pytest.mark.parametrize("unit", [False, True], ids=["by itself", "as a unit"])
def test_a_gpu_is_found_by_every_spelling_of_its_uuid(folder, unit):
    """A UUID may be in upper case or cut short, as in CUDA_VISIBLE_DEVICES. A unit's gemmd has the spelling of the
    unit's instance in its socket's name."""
    first = os.getpid()  # unique among concurrent test runs
    whole = f"MIG-{first.to_bytes(4, 'little').hex()}-0405-0607-0809-0a0b0c0d0e0f"
    short = whole[:9].upper()
    spellings = [whole, "cuda:" + whole.upper(), "cuda:" + short, whole[:12]]
    sockets = folder / "gemmd"
    env = {"GEMMD_LIBCUDA": str(STUBS / "libstub_cuda.so"), "GEMMD_NVRTC": str(STUBS / "libstub_nvrtc.so"),
           "GEMMD_LIBNVML": str(STUBS / "libstub_nvml.so"), "GEMMD_STUB_UUID": str(first), "GEMMD_SYSTEM": "0",
           "XDG_RUNTIME_DIR": str(folder), "XDG_STATE_HOME": str(folder), "XDG_CACHE_HOME": str(folder),
           "GEMMD_DAEMON": str(GEMMD), "GEMMD_RUNNER": str(RUNNER), "GEMMD_SOCKET": ""}
    if unit:
        d = Daemon(folder, f"cuda:{short}", env=env)
        sockets.mkdir(mode=0o700)
        d.socket = sockets / f"{short}.sock"
        d.start()
    else:
        d = Daemon(folder, "cuda", env=env)
        ctl(d, "start", "--device", f"cuda:{short}", env=env)
        d.socket = sockets / f"{whole}.sock"
    try:
        for spelling in spellings:
            status = json.loads(ctl(d, "status", "--json", "--device", spelling, env=env)[0])
            assert (status["device"]["uuid"], status["socket"]) == (whole, str(d.socket))
        ctl(d, "status", "--device", short, env={"GEMMD_SOCKET": str(d.socket)})
        other = "cuda:MIG-" + ("1" if short[4] == "0" else "0") + short[5:]
        said = ctl(d, "status", "--device", other, code=3, env=env)[1]
        assert "no gemmd answers" in said
    finally:
        ctl(d, "stop", "--socket", str(d.socket), env=env)
        if unit:
            assert d.process.wait(60 * PATIENCE) == 0


def test_a_daemon_of_other_threads_does_not_answer(daemon):
    """The CPU has one socket for any number of threads, but answers depend on the number."""
    d = daemon("cpu:1")
    for words in (["get", *SIZE, "--wait", "cached"], ["start"], ["stop"]):
        said = ctl(d, *words, "--device", "cpu:2", code=2)[1]
        assert f"{d.socket} has 1 of the CPU's threads, and cpu:2 is meant" in said
    for device in ("cpu:1", "cpu"):
        assert "runs already" in ctl(d, "start", "--device", device)[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_who_is_denied_is_told_by_the_commands_name(daemon, folder):
    """The error names the command, also for an import, and does not say that rows may have been imported."""
    d = daemon()
    folder.chmod(0o755)
    d.socket.chmod(0o666)
    (folder / "rows").write_text(json.dumps({"gemmd_export": 1, "rows": [{}]}))
    for words in (["stop"], ["quarantine", "--clear", "0" * 32], ["import", folder / "rows"]):
        result = subprocess.run([GEMMCTL, *words, "--socket", d.socket], env=d.env, user="nobody", group="nogroup",
                                extra_groups=[], capture_output=True, text=True, timeout=60 * PATIENCE)
        name = " ".join(words[:2]) if words[0] == "quarantine" else words[0]
        assert result.returncode == 1 and result.stdout == ""
        assert result.stderr == f"gemmctl: {name} is for root and the user that gemmd runs as; you are uid 65534\n"


def test_what_failed_of_given_configs_is_said(daemon_of_module, folder):
    """gemmctl prints failed configs beside the winner, but no failures of an earlier run."""
    d = daemon_of_module
    good, size = d.ctl_json("get", *SIZE, "--budget", "4")[0]["config"], ["--m", "256", "--n", "256", "--k", "512"]
    (folder / "configs").write_text(json.dumps([good, {**good, "BLOCK_SIZE_M": 77}]))
    for command in ("get", "tune", "get"):
        said = ctl(d, command, *size, "--configs", folder / "configs")[1]
        key = re.search(r"1 of the 2 given configs failed: `gemmctl trials --failed (\w+)` says why", said)[1]
        assert "BLOCK_SIZE_M=77: the portable kernel takes" in ctl(d, "trials", "--failed", "--wide", key)[0]
    (folder / "configs").write_text(json.dumps([good]))
    assert "failed" not in ctl(d, "get", *size, "--configs", folder / "configs")[1]


@pytest.mark.parametrize("command", ["trials", "export"])
def test_help_says_which_options_name_a_problem(daemon_of_module, command):
    text = ctl(daemon_of_module, command, "--help")[0]
    assert text.index("Which problems") < text.index("--mode") < text.index("Which rows:") < text.index("--where")
    assert "--wait" not in ctl(daemon_of_module, "bench", "--help")[0]


def headings(d, *args):
    return ctl(d, "list", *args)[0].splitlines()[0].split()


def test_rows_of_several_devices_can_be_told_apart(daemon, folder):
    """Lists name the device of each row, and what differs between GPUs of a name, such as the power limit."""
    hopper = (DATA / "synthetic-hopper.jsonl").read_text()
    (folder / "weak.jsonl").write_text(hopper.replace('"power_limit_w": 700', '"power_limit_w": 500'))
    for n, device in enumerate((SYNTHETIC, f"replay:{DATA}/synthetic-hopper.jsonl", f"replay:{folder}/weak.jsonl")):
        d = daemon(device)  # all in the same folder, with the same database
        ctl(d, "tune", "-q", *SIZE, "--budget", "2")
        rows = d.ctl_json("list")
        assert len(rows) == n + 1 and "device" not in rows[0]
        shown = ctl(d, "list")[0]
        assert headings(d)[:2] == (["KEY", "DEVICE"] if n else ["KEY", "MODE"])
        assert headings(d, "--where", f"class={d.status()['device']['class']}")[:2] == ["KEY", "MODE"]
        parts = [row["class"].split("/") for row in rows]  # the last is the power limit
        names = {f"{p[0]}/{p[-1]}" if n == 2 and "H200" in p[0] else p[0] for p in parts}
        assert n == 0 or len(names) == n + 1 and all(f" {name} " in shown for name in names)
        assert n != 1 or "/sm_" not in shown
        assert headings(d, "--what", "trials")[:2] == (["KEY", "DEVICE"] if n else ["KEY", "STATUS"])
        assert headings(d, "--what", "devices")[:2] == ["UUID", "NAME"]
        d.stop()


def test_a_field_is_no_column(daemon_of_module):
    d = daemon_of_module
    hint = "; fields of the problem are problem.M, problem.mode, ...; parameters of the config are config.BLOCK"
    assert hint in ctl(d, "list", "--where", "M=64", code=1)[1]
    said = ctl(d, "trials", "--where", "num_stages=3", code=1)[1]
    assert "; parameters of the config are config.BLOCK" in said and "problem.M" not in said
    said = ctl(d, "devices", "--where", "M=64", code=1)[1]
    assert "no column 'M'" in said and "config." not in said
    ctl(d, "list", "--where", "problem.M=64", "--where", "config.num_stages=3")


@pytest.mark.skipif(not (STUBS / "libstub_cuda.so").exists(), reason="built without cuda")
@pytest.mark.parametrize("gpu", [True, False])
def test_start_takes_the_gpu_if_there_is_one(folder, gpu):
    env = {"GEMMD_LIBCUDA": str(STUBS / "libstub_cuda.so") if gpu else "/nowhere/libcuda.so",
           "GEMMD_NVRTC": str(STUBS / "libstub_nvrtc.so"), "GEMMD_LIBNVML": str(STUBS / "libstub_nvml.so"),
           "GEMMD_STUB_UUID": str(os.getpid()), "GEMMD_SYSTEM": "0", "GEMMD_DEVICE": "", "GEMMD_SOCKET": "",
           "XDG_RUNTIME_DIR": str(folder), "XDG_STATE_HOME": str(folder), "XDG_CACHE_HOME": str(folder),
           "GEMMD_DAEMON": str(GEMMD), "GEMMD_RUNNER": str(RUNNER)}
    d = Daemon(folder, "cuda", env=env)
    for _ in range(2):
        status = json.loads(ctl(d, "start", "--json", env=env)[0])
        d.socket = status["socket"]
        assert status["device"]["kind"] == ("cuda" if gpu else "cpu")
    ctl(d, "stop", env={**env, "GEMMD_SOCKET": str(d.socket)})


@pytest.mark.parametrize("device, why", [
    ("cpu:abc", "1 to 1024 threads"), ("cpu:", "1 to 1024 threads"), ("cpu:0", "1 to 1024 threads"),
    ("cpu:1025", "1 to 1024 threads"), ("replay-other", "--device replay:<file>"), ("bogus", "unknown device"),
    ("replay:", "name a landscape")])
def test_devices_that_no_daemon_can_be_of(folder, device, why):
    env = {**os.environ, "GEMMD_SYSTEM": "0", "GEMMD_DAEMON": GEMMD, "XDG_RUNTIME_DIR": str(folder),
           "XDG_STATE_HOME": str(folder), "XDG_CACHE_HOME": str(folder)}
    env.pop("GEMMD_SOCKET", None)
    result = subprocess.run([GEMMCTL, "start", "--device", device], capture_output=True, text=True, env=env,
                            timeout=60 * PATIENCE)
    assert result.returncode == 2 and why in result.stderr, result.stderr
    assert not list(folder.glob("**/*.log"))  # no daemon was started


def test_what_help_says_of_devices_and_of_no_limit():
    def words(*args):
        return " ".join(subprocess.run([GEMMCTL, *args], capture_output=True, text=True).stdout.split())

    assert "replay:<file>, or replay-<name> of a running daemon" in words("start", "--help")
    assert "0: no limit" in words("precompile", "--help").split("--seconds")[1].split("--")[0]


def test_a_landscape_does_not_take_the_place_of_a_device(folder):
    os.mkfifo(folder / "pipe")
    result = subprocess.run([GEMMCTL, "landscape", *SIZE, "--device", "cpu", "--to", str(folder / "pipe")],
                            capture_output=True, text=True, timeout=60 * PATIENCE)
    assert result.returncode == 1 and "a device or a pipe, not a file" in result.stderr
    assert (folder / "pipe").is_fifo()


def test_a_key_without_an_answer_is_still_the_key(daemon):
    """A key whose trials all failed: `trials` lists only the trials of this key, and there is no answer to export."""
    d = daemon()
    custom = [{"op": "custom:fails", "n": n} for n in (1, 2)]
    with d.connect() as c:
        for problem in custom:
            c.call("acquire", problem=problem, configs=["A=1"], wait="now")
            c.call("record", problem=problem, trials=[{"config": "A=1", "status": "compile"}])
        with pytest.raises(RpcError, match="failed before") as e:
            c.call("acquire", problem=custom[0], configs=["A=1"], wait="now")
    key = re.search(r"gemmctl trials ([0-9a-f]{32})`", str(e.value))[1]
    for words in (["custom:fails n=1"], [key]):
        rows = json.loads(ctl(d, "trials", *words, "--json")[0])
        assert [r["key"] for r in rows] == [key] and rows[0]["status"] == "compile"
        assert "no row to export" in ctl(d, "export", *words, code=1)[1]
    assert len(json.loads(ctl(d, "trials", "--json")[0])) == 2
    assert f"key            {key}" in ctl(d, "show", key)[0]


def test_a_partial_answer_is_shown_as_one(daemon):
    d = daemon()
    d.call("tune", problem=gemm(), restrict={"num_stages": [3]}, budget=2)
    shown = ctl(d, "show", json.loads(ctl(d, "list", "--json")[0])[0]["key"])[0]
    assert re.search(r"^source +partial$", shown, re.M) and re.search(r"^config +\S", shown, re.M)
    assert "of a restricted search" in shown


def test_a_restriction_that_names_nothing_is_no_empty_space(daemon_of_module):
    for args, sentence in ((["FOO=64"], "FOO is no tunable here"), (["num_stages=abc"], "takes values such as")):
        assert sentence in ctl(daemon_of_module, "space", *SIZE, "--restrict", *args, code=1)[1]
        assert sentence in ctl(daemon_of_module, "space", *SIZE, "--arch", "sm_90a", "--restrict", *args, code=1)[1]


def test_of_many_it_is_said_which_one_failed(daemon_of_module):
    _, said = ctl(daemon_of_module, "get", "--m", "64", "--n", "64", "--k", "64,-1", "--wait", "cached", code=1)
    assert re.search(r"^\[2/2\] forward 64x64x-1: gemmctl: ", said, re.M), said


def test_a_landscape_into_a_folder_is_refused_before_it_is_measured(folder):
    result = subprocess.run([GEMMCTL, "landscape", *SIZE, "--device", "cpu", "--to", str(folder)],
                            env={**os.environ, "GEMMD_RUNNER": str(RUNNER)}, capture_output=True,
                            text=True, timeout=20 * PATIENCE)
    assert result.returncode == 1 and "is a folder" in result.stderr, result
    assert not folder.with_name(folder.name + ".part").exists()


@pytest.mark.skipif(not shutil.which("meson"), reason="no meson to install with")
def test_an_installed_gemmctl_finds_its_library_under_another_prefix_than_usr(folder):
    subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", folder, "--tags",
                    "runtime"], check=True, stdout=subprocess.DEVNULL, timeout=60 * PATIENCE)
    program, = folder.rglob("bin/gemmctl")
    if program == folder / "usr" / "bin" / "gemmctl":
        pytest.skip("built for /usr, where the loader looks by itself")
    env = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    result = subprocess.run([program, "help"], env=env, capture_output=True, text=True, timeout=60 * PATIENCE)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("what", ["events", "runs", "history", "trials"])
def test_top_of_a_list_in_the_order_of_time_is_its_newest_rows(daemon, what):
    d = daemon()
    for m in (64, 128, 256, 512):
        d.call("tune", problem=gemm(m=m), budget=2)
    d.stop()
    d.start()
    order = "generation" if what == "history" else "id"
    rows = [r[order] for r in json.loads(ctl(d, "list", "--what", what, "--json")[0])]
    top = [r[order] for r in json.loads(ctl(d, "list", "--what", what, "--top", "3", "--json")[0])]
    assert len(rows) > 3 or what == "runs"
    assert top == sorted(rows, reverse=True)[:3]
    again = json.loads(ctl(d, "list", "--what", what, "--top", "1", "--offset", "1", "--json")[0])
    assert [r[order] for r in again] == top[1:2]
    first = json.loads(ctl(d, "list", "--what", what, "--top", "1", "--sort", order, "--json")[0])
    assert first[0][order] == min(rows)


def test_ctrl_c_leaves_a_whole_line(daemon):
    d = daemon("cpu")
    tuning = Watched([GEMMCTL, "tune", *SIZE, "--budget", "500", "--socket", str(d.socket)], d.env)
    tuning.until(b"\033[K")
    tuning.interrupt()
    shown, code = tuning.end()
    assert code == -signal.SIGINT
    assert b"\r\033[K" in shown and shown.endswith(b"\r\n"), shown  # a terminal's newline


CLOSED = """mount -t tmpfs none /run && mkdir -m 0700 /run/gemmd &&
    exec setpriv --reuid=65534 --regid=65534 --clear-groups \\
    sh -c '"$0" start --device "$1" && "$0" version && "$0" stop' "$0" "$1"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, in a /run of its own")
def test_a_daemon_of_ones_own_beside_a_closed_one(folder):
    """A user outside the system's group can still start a gemmd."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("this machine does not let us mount")
    os.chown(folder, 65534, 65534)
    env = {**os.environ, **{f"XDG_{name}": str(folder) for name in
                            ("RUNTIME_DIR", "STATE_HOME", "CACHE_HOME")},
           "GEMMD_DAEMON": str(GEMMD), "GEMMD_RUNNER": str(RUNNER)}
    for name in ("GEMMD_SOCKET", "GEMMD_DEVICE", "GEMMD_SYSTEM"):
        env.pop(name, None)
    result = subprocess.run(["unshare", "-m", "sh", "-c", CLOSED, GEMMCTL, SYNTHETIC], env=env,
                            capture_output=True, text=True, timeout=60 * PATIENCE)
    assert result.returncode == 0, result
    assert "gemmd started" in result.stdout and "gemmd has stopped" in result.stdout
    assert "may not connect" not in result.stderr


REFUSED = """mount -t tmpfs none /run && mount -t tmpfs none /var/lib && "$0" start --device "$1" || exit 9
    as_user() { env -u GEMMD_SYSTEM setpriv --reuid=54322 --regid=0 --clear-groups "$@"; }
    as_user "$0" status --device replay-synthetic && as_user "$0" status && as_user "$0" status --all || exit 8
    "$0" stop && as_user "$0" status --device replay-synthetic
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, in a /run of its own")
@pytest.mark.parametrize("place", ["tmp", "shared"])
def test_nobody_can_keep_another_users_jobs_from_the_systems_daemon(folder, place):
    """Root makes the user's runtime directory, as any user can, and a third user listens there."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("this machine does not let us mount")
    folder.chmod(0o711)
    squat = pathlib.Path("/tmp/gemmd-54322") if place == "tmp" else folder / "gemmd"
    squat.mkdir()
    env = {**os.environ, "GEMMD_CACHE_DIR": str(folder / "cache"), "GEMMD_DAEMON": str(GEMMD), "GEMMD_SYSTEM": "1",
           "GEMMD_RUNNER": str(RUNNER), "XDG_RUNTIME_DIR": "" if place == "tmp" else str(folder)}
    for name in ("GEMMD_SOCKET", "GEMMD_DEVICE"):
        env.pop(name, None)
    try:
        with socket.socket(socket.AF_UNIX) as his:
            his.bind(str(squat / "replay-synthetic.sock"))
            (squat / "replay-synthetic.sock").chmod(0o666)
            os.chown(squat / "replay-synthetic.sock", 54323, -1)
            os.seteuid(54323)
            his.listen()
            os.seteuid(0)
            result = subprocess.run(["unshare", "-m", "sh", "-c", REFUSED, GEMMCTL, SYNTHETIC], env=env,
                                    capture_output=True, text=True, timeout=60 * PATIENCE)
    finally:
        shutil.rmtree(squat)
    assert result.returncode == 1, result
    assert result.stdout.count("/run/gemmd/replay-synthetic.sock") >= 3, result
    said = "/tmp/gemmd-54322 belongs to user 0" if place == "tmp" else "user 54323 listens on"
    assert said in result.stderr, result


@pytest.mark.skipif(os.geteuid() != 0, reason="makes another user's folder")
def test_a_start_beside_another_users_sockets_leaves_nothing(folder):
    """Root's log and lock would keep that user from starting gemmd."""
    sockets, state = folder / "gemmd", folder / "state"
    sockets.mkdir(0o700)
    os.chown(sockets, 65534, 65534)
    env = {**os.environ, "XDG_RUNTIME_DIR": str(folder), "XDG_STATE_HOME": str(state), "XDG_CACHE_HOME": str(state),
           "GEMMD_SYSTEM": "0", "GEMMD_DAEMON": str(GEMMD), "GEMMD_RUNNER": str(RUNNER)}
    for name in ("GEMMD_SOCKET", "GEMMD_DEVICE"):
        env.pop(name, None)
    result = subprocess.run([GEMMCTL, "start", "--device", "cpu"], env=env, capture_output=True, text=True,
                            timeout=60 * PATIENCE)
    assert result.returncode != 0 and "belongs to user 65534" in result.stderr, result
    assert not state.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_closed_landscape_is_not_said_to_be_missing(daemon, folder):
    """The error says that the user may not connect, because a daemon of the landscape's device exists."""
    d = daemon(f"replay:{DATA}/synthetic-hopper.jsonl")
    folder.chmod(0o755)
    d.socket.chmod(0o600)
    result = subprocess.run([GEMMCTL, "start", "--device", "replay-synthetic-hopper", "--socket", d.socket],
                            env=d.env, user="nobody", group="nogroup", extra_groups=[], capture_output=True,
                            text=True, timeout=60 * PATIENCE)
    assert result.returncode == 1 and "may not connect" in result.stderr, result.stderr


CLOCK_OF_PAUSES = """#include <time.h>
static long long ns = 1000000000;
int clock_gettime(clockid_t id, struct timespec *t)
{
    (void)id;
    *t = (struct timespec){ns / 1000000000, ns % 1000000000};
    return 0;
}
int nanosleep(const struct timespec *t, struct timespec *left)
{
    (void)left;
    ns += t->tv_sec * 1000000000LL + t->tv_nsec;
    return 0;
}
"""


@pytest.mark.skipif("sanitize" in os.environ.get("GEMMD_BUILD_KIND", ""), reason="preloads a library")
def test_start_where_one_is_busy(daemon, folder):
    """gemmctl waits half a minute for a free connection, by a fake clock that only the waits move."""
    d = daemon(options=["--max-connections", "1"])
    (folder / "clock.c").write_text(CLOCK_OF_PAUSES)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "clock.so", folder / "clock.c"], check=True)
    with d.connect() as held:
        held.call("status")
        said = ctl(d, "start", code=75, env={"LD_PRELOAD": str(folder / "clock.so")})[1]
    assert "1 connections" in said, said
