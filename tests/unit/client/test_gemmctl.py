# SPDX-License-Identifier: Apache-2.0
"""gemmctl against a daemon that notes what it is asked and answers as the test says."""
import csv
import fcntl
import json
import os
import pathlib
import pty
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import termios
import threading
import time

import msgpack
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
GEMMCTL = os.environ["GEMMCTL"]

ANSWER = {"key": "0123456789abcdef0123456789abcdef", "tier": "exact", "source": "tuned",
          "family": "grouped_gemm", "config": {"BLOCK_SIZE_M": 64, "use": True}, "module": "",
          "time_us": 100.0, "spread": 0.01, "reference_us": 150.0, "tflops": 1.5, "gbps": 10.0,
          "floor_us": 80.0, "measured": 12, "generation": 3, "saved": True, "stamp": "s",
          "created_s": int(time.time()) - 300, "note": ""}


class Refusal(Exception):
    def __init__(self, name, message):
        super().__init__(message)
        self.name, self.message = name, message


class Fake:
    """Methods are entries of `answers`: a value, or a function of the params (and of `notify`)."""

    def __init__(self, folder):
        self.path = folder / "s.sock"
        self.asked = []
        self.answers = {"hello": {"version": 1, "build": "fake-build", "bucket_scheme": "sqrt2"},
                        "get": ANSWER, "tune": ANSWER}
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(self.path))
        self.listener.listen(64)
        self.thread = threading.Thread(target=self.accept)
        self.thread.start()

    def stop(self):
        self.listener.shutdown(socket.SHUT_RDWR)  # wakes the thread, which a close does not
        self.thread.join()
        self.listener.close()

    def accept(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(peer,), daemon=True).start()

    def serve(self, peer):
        unpacker = msgpack.Unpacker(raw=False)
        while data := peer.recv(65536):
            unpacker.feed(data)
            for _, ident, method, params in unpacker:
                peer.sendall(msgpack.packb(self.answer(peer, ident, method, params)))

    def answer(self, peer, ident, method, params):
        self.asked.append((method, params))

        def notify(**progress):
            peer.sendall(msgpack.packb([2, "progress", {"request": ident, **progress}]))

        try:
            if method not in self.answers:
                raise Refusal("unknown_method", f"there is no method {method}")
            value = self.answers[method]
            if callable(value):
                value = value(params, notify) if value.__code__.co_argcount == 2 else value(params)
            return [1, ident, None, value]
        except Refusal as e:
            return [1, ident, {"name": e.name, "message": e.message, "survives": True}, None]

    def params_of(self, method):
        return [p for m, p in self.asked if m == method]

    def problems(self, method="get"):
        return [p["problem"] for p in self.params_of(method)]


@pytest.fixture
def folder():
    path = pathlib.Path(tempfile.mkdtemp(prefix="gemmctl-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def fake(folder):
    f = Fake(folder)
    yield f
    f.stop()


def environment(fake, **more):
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("GEMMD_", "XDG_"))}
    return {**keep, **({"GEMMD_SOCKET": str(fake.path)} if fake else {}), **more}


def ctl(fake, *args, code=0, **env):
    result = subprocess.run([GEMMCTL, *map(str, args)], capture_output=True, text=True, timeout=60,
                            env=environment(fake, **env))
    assert result.returncode == code, (args, result.stdout, result.stderr)
    return result


def ctl_json(fake, *args, code=0):
    return json.loads(ctl(fake, *args, "--json", code=code).stdout)


# ---- which problems ---------------------------------------------------------------------------

def test_every_combination_of_lists(fake):
    rows = ctl_json(fake, "get", "--mode", "forward,dW", "--m", "16,32", "--n", 64, "--k", "128")
    assert fake.problems() == [
        {"op": "grouped_gemm", "mode": mode, "M": m, "N": 64, "K": 128}
        for mode in ("forward", "dW") for m in (16, 32)]
    assert [r["problem"]["M"] for r in rows] == [16, 32, 16, 32]


def test_all_problem_options(fake):
    ctl(fake, "get", "--op", "gemm", "--mode", "dW", "--tokens", "10,20", "--n", 8, "--k", 16,
        "--experts", 4, "--topk", 2, "--permute-y", "--accumulate", "--dtype", "fp16",
        "--out-dtype", "fp32", "--routing", "zipf:1.2")
    assert fake.problems()[1] == {
        "op": "gemm", "mode": "dW", "M": 40, "N": 8, "K": 16, "experts": 4, "topk": 2,
        "permute_y": True, "accumulate": True, "dtype_in": "fp16", "dtype_out": "fp32",
        "routing": "zipf:1.2"}


@pytest.mark.parametrize("words", [
    ["grouped_gemm mode=dX M=64 N=32 K=16 permute_x=true routing=uniform"],
    ["grouped_gemm", "mode=dX", "M=64,N=32", "K=16", "permute_x=True", "routing=\"uniform\""],
    ["mode=dX M=64 N=32 K=16 permute_x=true routing=uniform"]])
def test_a_problem_as_text(fake, words):
    ctl(fake, "get", *words)
    assert fake.problems() == [{"op": "grouped_gemm", "mode": "dX", "M": 64, "N": 32, "K": 16,
                                "permute_x": True, "routing": "uniform"}]


def test_text_keeps_types(fake):
    ctl(fake, "get", 'custom:sort n=-5 ratio=0.5 name="a b\\"c" empty="" number_like="12" big=1e3')
    assert fake.problems() == [{"op": "custom:sort", "n": -5, "ratio": 0.5, "name": 'a b"c',
                                "empty": "", "number_like": "12", "big": 1000.0}]


SHAPES = """model,layer,tokens,mode,experts,topk,M,N,K,floor_us,other
a,gate_up,512,forward,8,2,1024,64,32,1.0,
a,gate_up,512,dW,8,2,1024,64,32,1.0,x
a,down,512,forward,8,2,1024,32,64,1.0,
a,down,64,forward,8,2,128,32,64,1.0,
b,down,512,forward,8,2,1024,32,64,1.0,
"""


def test_shapes_file(fake, folder):
    (folder / "shapes.csv").write_text(SHAPES)
    rows = ctl_json(fake, "get", "--shapes", folder / "shapes.csv", "--model", "a", "--tokens", "512",
                    "--mode", "forward")
    size = {"op": "grouped_gemm", "mode": "forward", "experts": 8, "topk": 2, "M": 1024}
    assert fake.problems() == [{**size, "N": 64, "K": 32, "permute_x": True},
                               {**size, "N": 32, "K": 64, "permute_y": True}]
    assert [r["name"] for r in rows] == ["a gate_up", "a down"]
    fake.asked.clear()
    ctl(fake, "get", "--shapes", folder / "shapes.csv", "--layer", "down", "--permutes", "none",
        "--dtype", "fp16")
    assert len(fake.problems()) == 3
    assert all("permute_y" not in p and p["dtype_in"] == "fp16" for p in fake.problems())


MODELS = ROOT / "python" / "gemmd" / "models.csv"


def test_a_layer_from_its_four_numbers(fake):
    rows = ctl_json(fake, "get", "--moe", "experts=8,topk=2,hidden=64,inter=24", "--tokens", "16,32",
                    "--dtype", "fp16")
    both = {"op": "grouped_gemm", "experts": 8, "topk": 2, "dtype_in": "fp16"}
    assert fake.problems() == [
        {**both, "mode": mode, "M": m, **layer} for m in (32, 64)
        for layer in ({"N": 48, "K": 64, "permute_x": True}, {"N": 64, "K": 24, "permute_y": True})
        for mode in ("forward", "dX", "dW")]
    assert [r["name"] for r in rows[:4]] == ["moe gate_up"] * 3 + ["moe down"]
    fake.asked.clear()
    ctl(fake, "get", "--moe", "experts=8,topk=2,hidden=64,inter=24", "--tokens", "16", "--mode", "dW",
        "--layer", "down", "--permutes", "none")
    assert fake.problems() == [{"op": "grouped_gemm", "mode": "dW", "M": 32, "N": 64, "K": 24,
                                "experts": 8, "topk": 2}]


def test_known_models_are_lines_of_a_table(fake, folder):
    ctl(fake, "get", "--moe", "qwen3-30b-a3b", "--tokens", "4096", "--mode", "forward",
        GEMMD_MODELS=str(MODELS))
    assert [(p["M"], p["N"], p["K"], p["experts"]) for p in fake.problems()] == [
        (32768, 1536, 2048, 128), (32768, 2048, 768, 128)]
    mine = folder / "mine.csv"
    mine.write_text("model,experts,topk,hidden,inter\nmine,4,1,16,8\n")
    fake.asked.clear()
    ctl(fake, "get", "--moe", "mine", "--tokens", "2", "--mode", "dX", "--layer", "gate_up",
        GEMMD_MODELS=str(mine))
    assert [(p["M"], p["N"]) for p in fake.problems()] == [(2, 16)]
    for table, model, sentence in ((mine, "other", "no model"), ("/none.csv", "mine", "GEMMD_MODELS")):
        assert sentence in ctl(fake, "get", "--moe", model, "--tokens", "2", code=2,
                               GEMMD_MODELS=str(table)).stderr


def test_the_projects_own_shapes(fake):
    path = ROOT / "tests" / "data" / "shapes" / "moe.csv"
    ctl(fake, "tune", "--shapes", path, "--quiet")
    with path.open() as f:
        rows = list(csv.DictReader(f))
    assert [(p["mode"], p["M"], p["N"], p["K"], p["experts"]) for p in fake.problems("tune")] == [
        (r["mode"], int(r["M"]), int(r["N"]), int(r["K"]), int(r["experts"])) for r in rows]


@pytest.mark.parametrize("text, sentence", [
    ("", 'no column "mode"'),
    ("model,mode,M,N\n", 'no column "K"'),
    ("mode,M,N,K\nforward,1,x,3\n", 'line 2: N is "x"'),
    ("mode,M,N,K\nforward,1\n", "line 2 has fewer columns"),
    ("mode,M,N,K\n", "no row"),
])
def test_bad_shapes_files(fake, folder, text, sentence):
    (folder / "bad.csv").write_text(text)
    assert sentence in ctl(fake, "get", "--shapes", folder / "bad.csv", code=2).stderr


@pytest.mark.parametrize("args, sentence", [
    (["get"], "which problem?"),
    (["get", "--m", "1", "--n", "2"], "which problem?"),
    (["get", "--m", "1,x", "--n", "2", "--k", "3"], "--m takes whole numbers"),
    (["get", "--m", "1,,2", "--n", "2", "--k", "3"], "--m takes whole numbers"),
    (["get", "--m", "1", "--tokens", "1", "--n", "2", "--k", "3"], "--m and --tokens"),
    (["get", "grouped_gemm M=1", "--n", "2"], "one or the other"),
    (["get", "grouped_gemm", "M"], "NAME=VALUE"),
    (["get", "grouped_gemm", 'M="1'], "closing quote"),
    (["get", "--shapes", "/nonexistent", "--m", "1"], "cannot stand beside"),
    (["get", "--shapes", "/nonexistent"], "cannot read /nonexistent"),
    (["get", "--moe", "experts=8"], "topk is missing"),
    (["get", "--moe", "experts=8,topk=x"], "topk takes a whole number"),
    (["get", "--moe", "expert=8"], "known model's name"),
    (["get", "--moe", "experts=8,topk=2,hidden=64,inter=24"], "needs --tokens"),
    (["get", "--moe", "experts=8,topk=2,hidden=64,inter=24", "--k", "8"], "only --tokens"),
    (["get", "--moe", "experts=8,topk=2,hidden=64,inter=24", "--tokens", "8", "--mode", "up"],
     "leave nothing"),
    (["bench", "--m", "1", "--n", "2", "--k", "3"], "which config?"),
    (["pin", "--m", "1,2", "--n", "2", "--k", "3", "--config", "A=1"], "2 problems"),
    (["check", "--m", "1", "--n", "2", "--k", "3"], "which config?"),
    (["get", "--budget", "-1", "x"], "--budget takes"),
    (["get", "--wait", "forever", "x"], "--wait takes"),
    (["get", "--restrict", "A", "x"], "--restrict takes"),
    (["get", "--permutes", "some", "x"], "--permutes takes"),
    (["list", "--what", "dreams"], 'no list "dreams"'),
    (["list", "--top", "x"], "whole number"),
    (["list", "surplus"], "Too many arguments"),
    (["import"], "which file?"),
    (["frobnicate"], 'no command "frobnicate"'),
    (["get", "--frobnicate"], "unrecognized option"),
    ([], "no command"),
])
def test_wrong_usage_is_2(fake, args, sentence):
    result = ctl(fake, *args, code=2)
    assert sentence in result.stderr
    assert result.stderr.startswith("gemmctl")
    assert not fake.asked or fake.asked == [("hello", fake.asked[0][1])]


# ---- how to search ----------------------------------------------------------------------------

def test_search_options(fake, folder):
    (folder / "space.json").write_text('{"num_warps": [4, 8], "flatten": true}')
    ctl(fake, "tune", "--m", 1, "--n", 2, "--k", 3, "--budget", 5, "--budget-ms", 6, "--strategy",
        "random", "--iters", 7, "--warmup", 8, "--seed", 9, "--atol", 0.5, "--rtol", 0.25, "--wait",
        "now", "--restrict", "BLOCK_SIZE_M=64,128", "--restrict", "cache_modifier=.cg", "--space",
        folder / "space.json", "--deadline-ms", 5000)
    p, = fake.params_of("tune")
    assert 4000 < p.pop("deadline_ms") < 5000
    del p["problem"]
    assert p == {"wait": "now", "progress": True, "strategy": "random", "budget": 5, "budget_ms": 6,
                 "iters": 7, "warmup": 8, "atol": 0.5, "rtol": 0.25, "seed": 9,
                 "restrict": {"BLOCK_SIZE_M": [64, 128], "cache_modifier": [".cg"],
                              "num_warps": [4, 8], "flatten": True}}


def test_configs_from_options_and_files(fake, folder):
    (folder / "lines").write_text("# two\nA=1 B=true\n\n  A=2\r\n")
    (folder / "array").write_text('[{"A": 3}, "A=4"]')
    ctl(fake, "tune", "--m", 1, "--n", 2, "--k", 3, "--config", "A=0", "--configs", folder / "lines",
        "--configs", folder / "array")
    assert fake.params_of("tune")[0]["configs"] == ["A=0", "A=1 B=true", "A=2", {"A": 3}, "A=4"]


def test_bench_measures_each_config_by_itself(fake):
    rows = ctl_json(fake, "bench", "--m", 1, "--n", 2, "--k", 3, "--config", "A=1", "--config", "A=2")
    assert [p["configs"] for p in fake.params_of("tune")] == [["A=1"], ["A=2"]]
    assert len(rows) == 2


# ---- answers ----------------------------------------------------------------------------------

def test_get_as_json(fake):
    row, = ctl_json(fake, "get", "--m", 16, "--n", 32, "--k", 64)
    assert row["config"] == ANSWER["config"]
    assert row["problem"] == {"op": "grouped_gemm", "mode": "forward", "M": 16, "N": 32, "K": 64}
    for name in ("key", "tier", "source", "time_us", "tflops", "reference_us", "measured", "saved"):
        assert row[name] == ANSWER[name]
    assert row["percent_of_floor"] == pytest.approx(80)
    assert row["speedup"] == pytest.approx(1.5)
    assert 0 < row["round_trip_us"] < 5e6


def test_get_as_table(fake):
    out = ctl(fake, "get", "--m", 16, "--n", 32, "--k", 64, "--permute-x").stdout
    head, line = out.splitlines()
    assert head.split()[:8] == ["MODE", "M", "N", "K", "E", "TOPK", "FLAGS", "TIME"]
    for word in ("forward", "permute_x", "100.0", "80.0", "1.50x", "exact", "tuned", "5m",
                 "BLOCK_SIZE_M=64", "use=true"):
        assert word in line


def test_unknown_numbers(fake):
    fake.answers["get"] = {**ANSWER, "tier": "default", "source": "model", "time_us": None,
                           "tflops": None, "gbps": None, "reference_us": None, "note": "not yet"}
    row, = ctl_json(fake, "get", "--m", 16, "--n", 32, "--k", 64)
    assert row["time_us"] is None and row["speedup"] is None
    result = ctl(fake, "get", "--m", 16, "--n", 32, "--k", 64)
    assert "nan" not in result.stdout.lower()
    assert "not yet" in result.stderr


def test_one_failure_does_not_stop_the_rest(fake):
    def get(params):
        if params["problem"]["M"] == 32:
            raise Refusal("no_config", "nothing fits 32")
        return ANSWER
    fake.answers["get"] = get
    result = ctl(fake, "get", "--m", "16,32,48", "--n", 32, "--k", 64, "--json", code=1)
    rows = json.loads(result.stdout)
    assert [("error" in r) for r in rows] == [False, True, False]
    assert rows[1]["error"] == {"name": "no_config", "message": "nothing fits 32"}
    assert "gemmctl: nothing fits 32\n" in result.stderr


@pytest.mark.parametrize("name, code", [("busy", 75), ("invalid", 1), ("shutting_down", 3),
                                        ("denied", 1), ("deadline", 1)])
def test_exit_codes_of_errors(fake, name, code):
    def refuse(params):
        raise Refusal(name, "the reason")
    fake.answers["status"] = refuse
    assert ctl(fake, "status", code=code).stderr == "gemmctl: the reason\n"


def test_no_daemon_is_3_and_says_what_to_do(folder):
    result = ctl(None, "status", "--socket", folder / "none.sock", code=3)
    assert re.fullmatch(r"gemmctl: no gemmd answers on .*none.sock; start one with `gemmctl start "
                        r"--device cpu` .*\n", result.stderr)
    assert result.stdout == ""


# ---- progress ---------------------------------------------------------------------------------

def tune_with_progress(params, notify):
    for done in range(4):
        notify(phase="measure", done=done, total=4, failed=1, best_us=12.5, reference_us=25.0,
               elapsed_ms=1.0, eta_ms=3000.0, config="A=1")
        time.sleep(0.15)
    return ANSWER


def run_on_terminal(fake, *args, **env):
    leader, follower = pty.openpty()
    process = subprocess.Popen([GEMMCTL, *map(str, args)], stdout=subprocess.PIPE, stderr=follower,
                               env=environment(fake, **env))
    os.close(follower)
    seen = b""
    try:
        while chunk := os.read(leader, 4096):
            seen += chunk
    except OSError:
        pass  # the terminal has gone with its last user
    os.close(leader)
    process.communicate(timeout=30)
    return seen.decode()


def test_progress_on_a_terminal_is_one_line(fake):
    fake.answers["get"] = tune_with_progress
    seen = run_on_terminal(fake, "get", "--m", 16, "--n", 32, "--k", 64, TERM="xterm")
    assert "forward 16x32x64 measure 2/4, best 12.50 us (2.00x), 3 s left, 1 failed" in seen
    assert seen.count("\n") == 0 and "\r\x1b[K" in seen
    assert "\x1b[3" not in seen  # no colours


@pytest.mark.parametrize("args, term", [(["--quiet"], "xterm"), ([], "dumb")])
def test_no_redrawn_line(fake, args, term):
    fake.answers["get"] = tune_with_progress
    seen = run_on_terminal(fake, "get", "--m", 16, "--n", 32, "--k", 64, *args, TERM=term)
    assert "\x1b" not in seen


def test_a_tuning_has_no_round_trip(fake):
    fake.answers["get"] = tune_with_progress
    row, = ctl_json(fake, "get", "--m", 16, "--n", 32, "--k", 64)
    assert "round_trip_us" not in row and row["elapsed_ms"] > 500


# ---- spaces of others --------------------------------------------------------------------------

MODE_LOADS = {"forward": ("use_tma_load_w", "use_tma_load_x"),
              "dX": ("use_tma_load_dy", "use_tma_load_w"),
              "dW": ("use_tma_load_dy", "use_tma_load_x")}


def test_the_space_of_unsloth():
    spaces = ctl_json(None, "space", "--compat", "unsloth")
    assert [s["mode"] for s in spaces] == list(MODE_LOADS)
    for space in spaces:
        configs = space["configs"]
        assert (space["raw"], space["legal"], len(configs)) == (432, 216, 216)
        assert sum(space["dropped"].values()) == 216 and all(space["dropped"].values())
        assert space["dropped"].keys() == space["reasons"].keys()
        assert len({json.dumps(c, sort_keys=True) for c in configs}) == 216
        loads = MODE_LOADS[space["mode"]]
        for c in configs:
            assert not c["permute_x"] and not c["permute_y"] and not c["use_tma_store"]
            assert c[loads[0]] == c[loads[1]]
            assert {k for k in c if k.startswith("use_tma_load")} == set(loads)
        for name, values in (("BLOCK_SIZE_M", {64, 128}), ("BLOCK_SIZE_N", {64, 128, 256}),
                             ("BLOCK_SIZE_K", {64, 128, 256}), ("num_warps", {4, 8}),
                             ("num_stages", {3, 4, 5}), (loads[0], {True, False})):
            assert {c[name] for c in configs} == values


def test_the_space_of_unsloth_for_people():
    out = ctl(None, "space", "--compat", "unsloth", "--mode", "dW,forward").stdout
    assert out.count("432 configs, 216 of them legal") == 2
    assert "permute_x_excludes_permute_y" in out and "mode dX" not in out


@pytest.mark.parametrize("args, sentence", [
    (["--compat", "triton"], "takes unsloth"),
    (["--compat", "unsloth", "--mode", "sideways"], '"sideways"'),
    (["--compat", "unsloth", "--mode", "dX,"], "forward, dX, dW"),
    (["--compat", "unsloth", "--m", "64"], "only --mode"),
    (["--compat", "unsloth", "--arch", "sm_90a"], "only --mode"),
    (["--compat", "unsloth", "--restrict", "num_warps=4"], "only --mode")])
def test_wrong_spaces_of_others(args, sentence):
    assert sentence in ctl(None, "space", *args, code=2).stderr


# ---- other commands ---------------------------------------------------------------------------

def rows_of(table, page=2):
    """A `list` method over rows, in pages."""
    def answer(params):
        f = params["filter"]
        offset, limit = f.get("offset", 0), f.get("limit", 256)
        rows = table[offset:offset + min(page, limit)]
        end = offset + len(rows)
        return {"rows": rows, "total": len(table), "next": end if end < len(table) else None}
    return answer


BEST = [{"generation": i + 1, "key": f"{i:032x}", "op": "grouped_gemm", "family": "grouped_gemm",
         "problem": {"mode": "dX", "M": 16, "N": 32, "K": 64, "experts": 4, "topk": 2,
                     "dtype_in": "bf16", "dtype_out": "bf16", "permute_x": True},
         "class": "c", "source": "tuned", "config": {"A": i, "x": 0.1}, "module": "", "trial": i,
         "time_us": 100 / 3 + i, "spread": None, "reference_us": 2e-17, "flops": 1e12, "bytes": 1e6,
         "floor_us": 25.0, "atol": 0.01, "rtol": 0.01, "measured": 3, "stamp": "s", "uid": 0,
         "created_s": 1} for i in range(7)]


def test_list(fake):
    fake.answers["list"] = rows_of(BEST)
    assert [r["key"] for r in ctl_json(fake, "list")] == [r["key"] for r in BEST]
    assert len(fake.params_of("list")) == 4
    out = ctl(fake, "list").stdout
    assert "dX" in out and "permute_x" in out and "A=0" in out and len(out.splitlines()) == 8


def test_list_filters(fake):
    fake.answers["list"] = rows_of([])
    result = ctl(fake, "list", "--what", "history", "--where", "source=manual", "--where", "key=~ab",
                 "--where", "generation=5", "--where", "stamp=two words, and a comma", "--sort",
                 "tflops", "--top", 5, "--offset", 2)
    assert fake.params_of("list") == [{"what": "history", "filter": {
        "source": "manual", "key": "~ab", "generation": 5, "stamp": "two words, and a comma",
        "sort": "-tflops", "limit": 5, "offset": 2}}]
    assert result.stdout == "" and result.stderr == "no rows\n"
    ctl(fake, "list", "--sort", "time_us")
    ctl(fake, "list", "--sort", "-time_us")
    ctl(fake, "list", "--sort", "+speedup")
    assert [p["filter"]["sort"] for p in fake.params_of("list")[1:]] == ["time_us", "-time_us",
                                                                         "speedup"]


TRIALS = [
    {"id": 1, "key": "k1", "config": {"A": 1}, "stage": "measure", "status": "ok", "time_us": 50.0,
     "ratio": 0.5, "reason": "", "resource": ""},
    {"id": 2, "key": "k1", "config": {"A": 2}, "stage": "measure", "status": "resource",
     "time_us": None, "ratio": None, "reason": "", "resource": "shared_memory", "required": 300,
     "limit_value": 200},
    {"id": 3, "key": "k1", "config": {"A": 3}, "stage": "measure", "status": "aborted",
     "time_us": 500.0, "ratio": 5.0, "reason": "", "resource": ""},
    {"id": 4, "key": "k1", "config": {"A": 4}, "stage": "measure", "status": "crashed",
     "time_us": None, "ratio": None, "reason": "signal 11", "resource": ""},
]


def test_trials(fake):
    fake.answers["list"] = rows_of(TRIALS)
    fake.answers["show"] = {"best": {"key": "k1"}, "answer": {}, "trials": 4, "failed": 2}
    rows = ctl_json(fake, "trials", "--m", 16, "--n", 32, "--k", 64, "--sort", "speedup", "--top", 10)
    assert fake.params_of("show") == [{"problem": {"op": "grouped_gemm", "mode": "forward", "M": 16,
                                                   "N": 32, "K": 64}}]
    assert fake.params_of("list")[0]["filter"]["key"] == "k1"
    assert fake.params_of("list")[0]["filter"]["sort"] == "-speedup"
    assert rows[0]["baseline_us"] == pytest.approx(100) and rows[0]["speedup"] == pytest.approx(2)
    assert all(r["baseline"] == "analytic default" for r in rows)
    result = ctl(fake, "trials", "0123456789")
    out = result.stdout
    assert "baseline: the run's reference kernel" in result.stderr
    assert ctl(fake, "trials", "0123456789", "--quiet").stderr == ""
    assert fake.params_of("show")[1] == {"key": "0123456789"}
    assert "2.00x" in out and "signal 11" in out
    assert "shared_memory: 300 needed, the limit is 200" in out
    failed = ctl_json(fake, "trials", "--failed")
    assert [r["id"] for r in failed] == [2, 4]
    assert [r["id"] for r in ctl_json(fake, "trials", "--failed", "--top", 1)] == [2]


def test_show(fake):
    fake.answers["show"] = {"best": BEST[0], "problem": {"op": "grouped_gemm", **BEST[0]["problem"]},
                            "answer": ANSWER, "trials": 12, "failed": 3}
    out = ctl(fake, "show", "012345").stdout
    assert "grouped_gemm K=64 M=16 N=32" in out and "BLOCK_SIZE_M=64 use=true" in out
    assert ctl_json(fake, "show", "012345")["trials"] == 12


def test_pin_unpin_evict(fake):
    fake.answers["pin"] = fake.answers["unpin"] = {**ANSWER, "source": "manual"}
    fake.answers["evict"] = {"removed": 5}
    problem = {"op": "grouped_gemm", "mode": "forward", "M": 16, "N": 32, "K": 64}
    size = ["--m", 16, "--n", 32, "--k", 64]
    assert "manual" in ctl(fake, "pin", *size, "--config", "A=1 B=2", "--atol", 0.5).stdout
    assert fake.params_of("pin") == [{"problem": problem, "config": "A=1 B=2", "atol": 0.5}]
    ctl(fake, "unpin", *size)
    assert fake.params_of("unpin") == [{"problem": problem}]
    fake.answers["unpin"] = None
    assert "nothing is left" in ctl(fake, "unpin", "abcdef").stdout
    assert fake.params_of("unpin")[1] == {"key": "abcdef"}
    assert ctl(fake, "evict", "abcdef").stdout == "5 rows removed\n"
    fake.answers["promote"] = {**ANSWER, "source": "imported"}
    assert "imported" in ctl(fake, "promote", "custom:x n=1 user=1000").stdout
    assert fake.params_of("promote") == [{"problem": {"op": "custom:x", "n": 1, "user": 1000}}]


def test_quarantine(fake):
    fake.answers["list"] = rows_of([{"variant": "v1", "status": "hung", "deaths": 2, "config": {},
                                     "reason": "silent for 10 s", "created_s": 1, "key": "k"}])
    fake.answers["unquarantine"] = {"removed": 1}
    assert "silent for 10 s" in ctl(fake, "quarantine").stdout
    ctl(fake, "quarantine", "--clear", "v1")
    assert fake.params_of("unquarantine") == [{"variant": "v1"}]


def test_space_and_check(fake):
    fake.answers["space"] = {"raw": 432, "legal": 216, "dropped": {"rule_a": 200, "rule_b": 16},
                             "params": [{"name": "BLOCK_SIZE_M", "run_time": False,
                                         "values": [64, 128], "help": "rows"}]}
    out = ctl(fake, "space", "--m", 16, "--n", 32, "--k", 64, "--restrict", "A=1").stdout
    assert "432 configs, 216 of them legal" in out and "64,128" in out and "rule_b" in out
    assert fake.params_of("space")[0]["restrict"] == {"A": [1]}
    fake.answers["space"].update(
        target="hopper", device="H", searched=100, variants=27, settings=8,
        unpromising={"rule_c": 116}, reasons={"rule_a": "A=1 is too small",
                                              "rule_b": "B=2 is too large", "rule_c": "dull"},
        targets=[{"name": "hopper", "takes": True}, {"name": "portable", "takes": True},
                 {"name": "third", "takes": False, "why": "it is the third"}])
    out = ctl(fake, "space", "--m", 16, "--n", 32, "--k", 64, "--target", "hopper").stdout
    assert fake.params_of("space")[1]["target"] == "hopper"
    assert out.startswith("target hopper on H\n")
    assert "also here: portable (--target portable)\nnot third: it is the third\n" in out
    assert "432 configs, 216 of them legal, 100 worth a search: 27 variants to compile, " in out
    assert re.search(r"NOT LEGAL.*\nrule_a +200 A=1 is too small\nrule_b +16 B=2 is too large", out)
    assert re.search(r"NOT WORTH IT.*\nrule_c +116 dull", out)

    def check(params):
        if "3" in params["config"]:
            return {"valid": False, "rule": "r", "message": "3 does not divide", "resource": "",
                    "required": 0, "limit": 0}
        return {"valid": True}
    fake.answers["check"] = check
    size = ["--m", 16, "--n", 32, "--k", 64]
    assert ctl(fake, "check", *size, "--config", "A=2").stdout == "valid: A=2\n"
    result = ctl(fake, "check", *size, "--config", "A=2", "--config", "A=3", code=1)
    assert "not valid: A=3\n  3 does not divide\n" in result.stdout
    fake.answers["check"] = {"valid": True, "target": "portable"}
    out = ctl(fake, "check", *size, "--config", "A=2", "--target", "portable").stdout
    assert out == "valid for target portable: A=2\n"
    assert fake.params_of("check")[-1]["target"] == "portable"


def test_space_of_what_is_not_here(folder):
    size = ["--mode", "dX", "--m", 512, "--n", 1024, "--k", 1024, "--experts", 8]
    hopper = json.loads(ctl(None, "space", *size, "--arch", "sm_90a", "--json").stdout)
    assert hopper["target"] == "hopper" and hopper["device"] == "any sm_90a"
    assert hopper["raw"] == hopper["legal"] + sum(hopper["dropped"].values())
    small = json.loads(ctl(None, "space", *size, "--arch", "sm_90a", "--json", "--restrict",
                           "num_warps=12", "--restrict", "schedule=pingpong").stdout)
    assert small["dropped"]["restricted"] > 0 and small["legal"] < hopper["legal"]
    text = ctl(None, "space", *size, "--arch", "sm_80").stdout
    assert text.startswith("target portable on any sm_80\n") and "also here" not in text
    assert "--target portable" in ctl(None, "space", *size, "--arch", "sm_90a").stdout
    assert "target cpu on" in ctl(None, "space", *size, "--arch", "cpu").stdout
    wrong = ctl(None, "space", *size, "--arch", "sm_90", code=1).stderr
    assert wrong.startswith("gemmctl: unknown architecture") and "sm_90a" in wrong
    assert "it has: portable" in ctl(None, "space", *size, "--arch", "sm_80", "--target", "hopper",
                                     code=1).stderr


def test_the_target_is_asked_for_and_shown(fake):
    fake.answers["tune"] = {**ANSWER, "source": "partial",
                            "stamp": "src=1 abi=1 target=portable compiler=nvrtc 13.0"}
    size = ["--m", 16, "--n", 32, "--k", 64]
    result = ctl(fake, "tune", *size, "--target", "portable")
    assert fake.params_of("tune")[0]["target"] == "portable"
    assert "TARGET" in result.stdout and re.search(r"partial +portable", result.stdout)
    assert json.loads(ctl(fake, "tune", *size, "--json").stdout)[0]["target"] == "portable"
    assert "target" not in fake.params_of("tune")[1]
    fake.answers["list"] = rows_of([{**BEST[0], "stamp": "src=1 target=hopper compiler=x"}])
    assert "hopper" in ctl(fake, "list").stdout
    assert json.loads(ctl(fake, "list", "--json").stdout)[0]["target"] == "hopper"
    fake.answers["pin"] = ANSWER
    ctl(fake, "pin", *size, "--config", "A=1", "--target", "portable")
    assert fake.params_of("pin")[0]["target"] == "portable"


HOSTILE = "a\x1b[31mred\x07\x9b2Jz\x7f"
SHOWN = r"a\x1b[31mred\x07\xc2\x9b2Jz\x7f"


def test_no_text_of_others_steers_the_terminal(fake, folder):
    best = {**BEST[0], "op": "custom:x", "problem": {"field": HOSTILE}, "config": {"A": HOSTILE},
            "stamp": HOSTILE}
    fake.answers["show"] = {"best": best, "problem": {"op": "custom:x", "field": HOSTILE},
                            "answer": {**ANSWER, "note": HOSTILE}, "trials": 0, "failed": 0}
    fake.answers["list"] = rows_of([best])
    fake.answers["get"] = {**ANSWER, "note": HOSTILE, "config": {"A": HOSTILE}}
    fake.answers["status"] = {"build": HOSTILE, "device": {"name": HOSTILE}, "tuning": HOSTILE}
    fake.answers["check"] = {"valid": False, "message": HOSTILE}
    fake.answers["import"] = {"imported": 0, "skipped": [{"row": 0, "message": HOSTILE}]}
    (folder / "e.json").write_text(json.dumps({"gemmd_export": 1, "rows": [best]}))

    def refuse(params):
        raise Refusal("invalid", HOSTILE)
    fake.answers["evict"] = refuse
    size = ["--m", 16, "--n", 32, "--k", 64]
    for args, code in ((["show", "012345"], 0), (["list"], 0), (["get", *size], 0), (["status"], 0),
                       (["check", *size, "--config", "A=2"], 1), (["evict", "012345"], 1),
                       (["import", folder / "e.json"], 0)):
        result = ctl(fake, *args, code=code)
        for text in (result.stdout, result.stderr):
            assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text), (args, text)
        assert SHOWN in result.stdout + result.stderr, args
    assert ctl_json(fake, "show", "012345")["best"]["stamp"] == HOSTILE


@pytest.mark.parametrize("args", [["list"], ["status"], ["show", "012345"], ["get", "M=1 N=1 K=1"],
                                  ["list", "--json"], ["export"], ["evict", "012345"], ["version"]])
def test_a_result_that_cannot_be_written_is_a_failure(fake, args):
    fake.answers["list"] = rows_of(BEST)
    fake.answers["status"] = {"build": "b"}
    fake.answers["show"] = {"best": BEST[0], "problem": {}, "answer": ANSWER}
    fake.answers["evict"] = {"removed": 1}
    with open("/dev/full", "w", encoding="utf-8") as full:
        result = subprocess.run([GEMMCTL, *args], stdout=full, stderr=subprocess.PIPE, text=True,
                                env=environment(fake), timeout=60)
    assert result.returncode == 1 and "cannot write" in result.stderr
    assert result.stderr.count("gemmctl:") == 1


def test_custom_rows_can_be_told_apart(fake):
    fake.answers["list"] = rows_of([
        {**BEST[i], "op": "custom:sort", "family": "", "problem": {"n": i, "kind": "up"}}
        for i in range(2)])
    out = ctl(fake, "list").stdout
    assert "custom:sort" in out and "kind=up n=0" in out and "kind=up n=1" in out


def test_configs_are_whole_on_a_narrow_terminal(fake):
    config = {f"PARAMETER_{i}": i for i in range(12)}
    fake.answers["tune"] = {**ANSWER, "config": config}
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen([GEMMCTL, "tune", "--m", "16", "--n", "32", "--k", "64"],
                               stdout=follower, stderr=subprocess.DEVNULL, env=environment(fake))
    os.close(follower)
    seen = b""
    try:
        while chunk := os.read(leader, 4096):
            seen += chunk
    except OSError:
        pass
    os.close(leader)
    assert process.wait(timeout=30) == 0
    assert len(seen.splitlines()) == 2, seen
    assert " ".join(f"{k}={v}" for k, v in sorted(config.items())) in seen.decode()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_deadline_too_short_has_an_answer(fake):
    def late(params):
        time.sleep(0.3)
        return ANSWER
    fake.answers["get"] = fake.answers["tune"] = late
    size = ["--m", 16, "--n", 32, "--k", 64]
    row, = ctl_json(fake, "get", *size, "--deadline-ms", 1)
    assert (row["tier"], row["source"]) == ("default", "model") and row["config"]
    assert row["note"]
    ctl(fake, "tune", *size, "--deadline-ms", 1, code=1)


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


def test_status(fake):
    fake.answers["status"] = {
        "build": "b", "pid": 12, "uptime_s": 90061, "device": {"name": "H200", "class": "c"},
        "jobs": {"running": 0, "done": 3}, "runner": {"state": "none", "pid": None}, "job": None,
        "store": {"file_bytes": 123456, "unsaved": 0}, "errors": {"invalid": 2}, "tuning": "on"}
    out = ctl(fake, "status").stdout
    for words in ("1 d 01:01:01", "H200", "3 done", "120.6 KiB", "2 invalid"):
        assert words in out
    assert ctl_json(fake, "status")["pid"] == 12


def test_version(fake, folder):
    assert ctl_json(fake, "version") == {"gemmctl": "0.1.0", "gemmd": "fake-build"}
    out = ctl(None, "version", "--socket", folder / "none.sock").stdout
    assert out == "gemmctl 0.1.0\ngemmd not running\n"


# ---- start ------------------------------------------------------------------------------------

DAEMON = """#!/usr/bin/env python3
import os, socket, sys, time
sys.path[:0] = {path!r}
import msgpack
print("arguments:", sys.argv[1:], flush=True)
open({mark!r}, "a").write("x")
time.sleep(0.3)
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[sys.argv.index("--socket") + 1])
s.listen()
end = time.monotonic() + 10
while time.monotonic() < end:
    s.settimeout(end - time.monotonic())
    peer, _ = s.accept()
    u = msgpack.Unpacker()
    if os.fork() == 0:
        while data := peer.recv(4096):
            u.feed(data)
            for _, i, method, _ in u:
                peer.sendall(msgpack.packb([1, i, None, {{"version": 1, "pid": 5, "build": "b",
                    "device": {{"name": "d"}}, "socket": "s"}}]))
        os._exit(0)
    peer.close()
"""


def program(folder, text):
    path = folder / "gemmd-fake"
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_many_starts_start_one(folder):
    import sys
    path = program(folder, DAEMON.format(mark=str(folder / "mark"), path=sys.path))
    env = environment(None, GEMMD_DAEMON=str(path), XDG_STATE_HOME=str(folder), GEMMD_SYSTEM="0",
                      GEMMD_SOCKET=str(folder / "d.sock"))
    running = [subprocess.Popen([GEMMCTL, "start", "--device", "cpu"], env=env, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(6)]
    for p in running:
        out, err = p.communicate(timeout=30)
        assert p.returncode == 0, (out, err)
        assert "pid 5" in out
    assert (folder / "mark").read_text() == "x"
    log = (folder / "gemmd" / "d.log").read_text()
    assert f"['--device', 'cpu', '--socket', '{folder}/d.sock']" in log


def test_a_start_that_fails_says_why(folder):
    path = program(folder, "#!/bin/sh\necho first line\necho the database is on fire\nexit 1\n")
    env = dict(GEMMD_DAEMON=str(path), XDG_STATE_HOME=str(folder), GEMMD_SYSTEM="0",
               GEMMD_SOCKET=str(folder / "d.sock"))
    result = ctl(None, "start", code=3, **env)
    assert "gemmd ended at once: the database is on fire" in result.stderr
    assert "d.log" in result.stderr and result.stderr.count("\n") == 1
    env["GEMMD_DAEMON"] = str(folder / "nothing")
    assert "is not a program" in ctl(None, "start", code=3, **env).stderr
    env["GEMMD_DAEMON"] = ""
    env["PATH"] = "/nonexistent"
    assert "cannot start gemmd" in ctl(None, "start", code=3, **env).stderr


def test_start_when_one_runs(fake):
    fake.answers["status"] = {"pid": 7, "device": {"name": "d"}, "socket": "s"}
    assert ctl(fake, "start").stdout == "gemmd runs already, pid 7, for d on s\n"


# ---- documentation ----------------------------------------------------------------------------

def commands():
    text = ctl(None, "help").stdout
    return re.findall(r"^  (\w+) +\w", text, re.M)


def options_of(command):
    text = ctl(None, command, "--help").stdout
    return set(re.findall(r"(?<![\w-])--([a-z][a-z-]*)", text)) - {"help", "usage"}


def test_manual_and_completions_know_every_command_and_option():
    known = commands()
    assert len(known) == 27 and "get" in known and "help" in known
    manual = (ROOT / "docs" / "man" / "gemmctl.1.scd").read_text()
    documented = re.findall(r"^\*(\w+)\*", manual.split("# COMMANDS")[1].split("\n# ")[0], re.M)
    assert documented == known
    options = set().union(*(options_of(c) for c in known if c != "help"))
    assert len(options) > 40
    for option in options:
        assert f"--{option}" in manual, option
    for shell in ("gemmctl.bash", "_gemmctl", "gemmctl.fish"):
        text = (ROOT / "completions" / shell).read_text()
        for word in known:
            assert re.search(rf"\b{word}\b", text), (shell, word)
        for option in options:
            form = rf"-l {option}\b" if shell.endswith("fish") else rf"--{option}\b"
            assert re.search(form, text), (shell, option)


def test_the_daemons_manual_knows_every_option():
    gemmd = pathlib.Path(os.environ["GEMMD"])
    text = subprocess.run([gemmd, "--help"], capture_output=True, text=True, check=True).stdout
    options = set(re.findall(r"--([a-z][a-z-]*)", text)) - {"help", "usage"}
    manual = (ROOT / "docs" / "man" / "gemmd.8.scd").read_text()
    documented = set(re.findall(r"\*--([a-z][a-z-]*)\*", manual))
    assert options == documented


def test_help_of_each_command():
    for command in commands():
        if command != "help":
            text = ctl(None, command, "--help").stdout
            assert text.startswith(f"Usage: gemmctl {command}")
            assert text == ctl(None, "help", command).stdout


def test_bash_completion():
    if not shutil.which("bash"):
        pytest.skip("bash is not installed")
    script = f"""source {ROOT}/completions/gemmctl.bash
complete_line() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _gemmctl
    echo "${{COMPREPLY[@]}}"; }}
complete_line gemmctl qu
complete_line gemmctl get --wait n
complete_line gemmctl list --wh
complete_line gemmctl help tri
"""
    out = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
    assert out.splitlines() == ["quarantine", "now", "--what --where", "trials"]
