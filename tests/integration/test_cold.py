# SPDX-License-Identifier: Apache-2.0
"""A cold start on a GPU, with stubs of the CUDA libraries: the compiled variants, their order and
their number.

The stub of NVRTC appends a byte to a file for each compile. For tests whose kernels must compute,
the stub compiles them for the CPU (tests/cuda_stub/emulate.h).
"""
import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

from test_fleet import LONG, Fleet
from conftest import BUILD, PATIENCE, ROOT, RUNNER, Daemon, RpcError, eventually, gemm, runs

STUBS = BUILD / "tests" / "cuda_stub"
pytestmark = [
    pytest.mark.skipif(not (STUBS / "libstub_cuda.so").exists(), reason="built without cuda"),
    pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler"),
]
HELPERS = 2  # number of the device's own kernels: tools.cu and the reference


class Stubbed(Daemon):
    def __init__(self, folder, options, cache, env):
        self.tally = folder / "tally"
        super().__init__(folder, "cuda", options, cache=cache, env={
            "GEMMD_LIBCUDA": str(STUBS / "libstub_cuda.so"),
            "GEMMD_NVRTC": str(STUBS / "libstub_nvrtc.so"),
            "GEMMD_LIBNVML": str(STUBS / "libstub_nvml.so"),
            "GEMMD_LIBCUBLAS": "/nowhere/libcublas.so",
            "GEMMD_STUB_UUID": str(os.getpid()),  # unique among concurrent test runs
            "GEMMD_STUB_TALLY": str(self.tally), **env})

    def compiles(self):
        return self.tally.stat().st_size if self.tally.exists() else 0

    def runner(self, *args, stdin=None):
        """Runs gemmd-runner with this daemon's device and cache directory."""
        subprocess.run([str(RUNNER), "--device", "cuda", "--target", "portable", "--cache-dir",
                        str(self.cache), "--quiet", *args], input=stdin, text=True,
                       env=self.env, check=True, timeout=120 * PATIENCE)

    def tune(self, **problem):
        """Tunes with the analytic default only: compiles a single variant."""
        p = gemm(**problem)
        default = self.call("get", problem=p, wait="cached", target="portable")
        assert default["tier"] in ("default", "portfolio")
        return self.call("tune", problem=p, strategy="given", configs=[default["config"]],
                         target="portable")


def records_of(d):
    """Complete records: a writer's temporary file has a longer name, and may vanish at any time."""
    return [p for p in (d.cache / "records").glob("*") if not p.suffix]


def stages_of(record):
    """NUM_STAGES of a record's variant; None: a kernel of the device itself."""
    found = re.search(r"NUM_STAGES=(\d+)", record.read_text(errors="replace"))
    return found and int(found[1])


def variants_of(d):
    """The compiled variants of searches."""
    return {p.name for p in records_of(d) if stages_of(p)}


def problem_text(**fields):
    words = [f"{name}={str(value).lower() if isinstance(value, bool) else value}"
             for name, value in gemm(**fields).items() if name != "op"]
    return f"grouped_gemm {' '.join(words)}"


@pytest.fixture(scope="module")
def compiled():
    """A cache of compiled kernels, for tests that do not count compiles."""
    with tempfile.TemporaryDirectory(prefix="gemmd-stubbed-") as path:
        yield pathlib.Path(path)


@pytest.fixture(scope="module")
def images():
    """What the stub of NVRTC compiled for the CPU, for all tests: a compile counts also when its image is here."""
    with tempfile.TemporaryDirectory(prefix="gemmd-images-") as path:
        yield path


@pytest.fixture
def stubbed(folder, compiled, images):
    started = []

    def start(options=(), cache=compiled, computes=True, launcher=(), **env):
        if computes:
            env.update(GEMMD_STUB_EMULATE=str(ROOT), GEMMD_STUB_IMAGES=images)
        d = Stubbed(folder, options, cache, env)
        d.launcher = list(launcher)
        started.append(d)
        return d.start()
    yield start
    for d in started:
        d.stop()


def test_the_devices_own_kernels_are_compiled_once(stubbed):
    d = stubbed(cache=None)
    d.tune(M=96, N=64, K=64)
    assert d.compiles() == 1 + HELPERS
    records = {p.name for p in records_of(d)}
    assert len(records) == 1 + HELPERS
    d.stop()
    again = stubbed(cache=None)
    again.tune(M=4000, N=64, K=64)
    assert again.compiles() <= 2 + HELPERS, "a new runner finds the device's kernels in the cache"


def test_precompile_compiles_the_devices_own_kernels(stubbed):
    d = stubbed(cache=None)
    d.runner("--precompile", "--problems", "--each", "1", stdin=problem_text(M=96, N=64, K=64))
    assert d.compiles() == HELPERS + 1
    d.tune(M=96, N=64, K=64)
    assert d.compiles() == HELPERS + 1, "the analytic default comes first, and is known, too"


def test_precompile_asks_for_what_a_tuning_asks_for(stubbed):
    d = stubbed(cache=None)
    search = {"problem": gemm(M=128, N=64, K=64), "budget": 6, "target": "portable"}
    d.runner("--precompile", "--problems", "--each", "3", stdin=json.dumps(search))
    assert d.compiles() == HELPERS + 3, "the default and the first wave of ranked's proposals"
    warmed = variants_of(d)
    key = d.call("tune", **search)["key"]
    with d.connect() as c:
        tried = {t["variant"] for t in c.list("trials", key=key)}
    assert warmed < tried, "none was warmed for nothing, and it asks for others when it has measured those"


def test_what_a_search_begins_with_is_compiled_while_the_device_is_opened(stubbed, folder):
    gate = folder / "gate"
    d = stubbed(cache=None, GEMMD_STUB_GATE=str(gate))
    gate.touch()
    search = {"problem": gemm(M=128, N=64, K=64), "target": "portable"}
    with d.connect(timeout=200) as c:  # compilers have the lowest priority on a busy machine
        last = c.send("tune", **search)
        eventually(lambda: len(variants_of(d)) > 1)
        begun = variants_of(d)
        gate.unlink()
        key = c.wait(last)["key"]
        tried = {t["variant"] for t in c.list("trials", key=key)}
    assert begun < tried, "nothing was compiled that it did not ask for"


def test_openings_are_compiled_one_search_after_the_other(stubbed):
    d = stubbed(cache=None, computes=False, GEMMD_STUB_MS="20")  # slow compiles, so that file times differ
    searches = [{"problem": gemm(M=m, N=128, K=256), "target": "portable",
                 "restrict": {"num_stages": stages}} for m, stages in ((128, 2), (256, 3))]
    d.runner("--precompile", "--problems", "--openings", "--compile-threads", "1",
             stdin="\n".join(json.dumps(s) for s in searches))
    records = sorted(records_of(d), key=lambda p: p.stat().st_mtime_ns)
    order = [s for s in map(stages_of, records) if s in (2, 3)]
    assert order.count(2) >= 3 and order.count(3) >= 3
    # The first may be the analytic default, with any num_stages. Then come all of the first search, then the second's.
    assert order[order.index(2):] == sorted(order[order.index(2):])


def test_an_opening_is_what_a_search_begins_with(stubbed):
    d = stubbed(cache=None)
    search = {"problem": gemm(M=128, N=64, K=64), "target": "portable"}
    d.runner("--precompile", "--problems", "--openings", stdin=json.dumps(search))
    warmed = variants_of(d)
    key = d.call("tune", **search)["key"]
    with d.connect() as c:
        tried = {t["variant"] for t in c.list("trials", key=key)}
    assert len(warmed) > 3 and warmed < tried, "the rest is asked for when that has been measured"


def test_a_landscape_takes_them_from_the_cache_too(stubbed, folder):
    d = stubbed(cache=None)
    problem = problem_text(M=96, N=64, K=64)
    d.runner("--precompile", "--problems", "--each", "1", stdin=problem)
    before = d.compiles()
    d.runner("--landscape", str(folder / "one.jsonl"), "--variants", "1", "--settings", "1",
             "--seconds", "0", "--finals", "1", problem)
    assert d.compiles() == before, "--variants 1 is the reference"


def test_where_the_time_went_is_an_event(stubbed):
    d = stubbed(cache=None)
    key = d.tune(M=96, N=64, K=64)["key"]
    with d.connect() as c:
        (event,) = c.list("events", kind="tuned")
    assert event["text"].startswith(f"{key}: ")
    total, inside, phases = re.fullmatch(
        r"\w+: (\d+) ms, of these (\d+) in the runner: (.*)", event["text"]).groups()
    ms = {name: int(n) for name, n in (p.rsplit(" ", 1) for p in phases.split(", "))}
    # the helpers and the candidate compile at the same time: the runner waits for both
    assert ms["helpers"] > 0 and "time" in ms
    assert abs(sum(ms.values()) - int(inside)) <= len(ms) + 1
    assert int(inside) <= int(total) + 1


def ask_for_two(d, first, second):
    """The stub of NVRTC compiles the device's own kernels slowly, so the second job must wait. The
    wrong results of the stub's kernels show later. Returns the pid of the precompile process."""
    default = first.call("get", problem=gemm(M=96, N=64, K=64), wait="cached", target="portable")
    first.send("tune", problem=gemm(M=96, N=64, K=64), strategy="given", target="portable", configs=[default["config"]])
    second.send("tune", problem=gemm(M=128, N=128, K=256), target="portable", restrict={"num_stages": 2})
    return int(eventually(lambda: re.search(r"compiling ahead for 1 problems, process (\d+)", d.text()))[1])


def test_queued_problems_are_compiled_ahead(stubbed):
    d = stubbed(["--compile-ahead", "6", "--log-level", "info"], cache=None, computes=False,
                GEMMD_STUB_MS="300")
    with d.connect() as first, d.connect() as second:
        ask_for_two(d, first, second)
        eventually(lambda: len(records_of(d)) >= 1 + HELPERS + 6)
        others = [p for p in records_of(d) if stages_of(p) not in (None, 2)]
        assert len(others) <= 2, "the analytic defaults of both, which are measured in any case"


def test_candidates_of_the_fleet_are_compiled_before_anybody_asks(stubbed, folder):
    problem = gemm(M=128, N=128, K=128)
    d = stubbed()
    default = d.call("get", problem=problem, wait="cached")
    key = d.call("tune", problem=problem, strategy="given", configs=[default["config"]])["key"]
    d.stop()
    others = folder / "others.db"
    for file in folder.glob("cache.db*"):
        file.rename(folder / file.name.replace("cache", "others"))
    d = stubbed(cache=None)
    before = d.compiles()
    fleet = Fleet(d.database)
    fleet.do("join", LONG)
    fleet.do("offer", 1, "other-host", others, key, 1.0, "-")
    eventually(lambda: len(records_of(d)) == 1 + HELPERS)
    fleet.do("leave")
    fleet.end()
    assert d.call("status")["jobs"]["done"] == 0
    assert d.call("get", problem=problem)["source"] == "fleet"
    assert d.compiles() == before + 1 + HELPERS, "the confirmation compiles nothing"


def test_what_compiles_ahead_does_not_outlive_its_daemon(stubbed):
    d = stubbed(["--compile-ahead", "6", "--log-level", "info"], cache=None, computes=False, GEMMD_STUB_MS="60000")
    with d.connect() as first, d.connect() as second:
        ahead = ask_for_two(d, first, second)
        compilers = eventually(lambda: children(ahead))
        assert runs(ahead), "for a minute: so long a compile takes"
        d.kill()
        eventually(lambda: not any(map(runs, [ahead, *compilers])))


# test_set_aside.py has a device with recorded compile times; here the times are unknown at first.
def test_a_search_gives_way_by_what_compilers_took_so_far(stubbed):
    d = stubbed(cache=None, GEMMD_STUB_MS="400")
    with d.connect(timeout=200) as c:
        requests = [c.send("get", problem=gemm(M=m, N=64, K=64), budget=16, target="portable")
                    for m in (64, 128)]
        keys = [c.wait(r)["key"] for r in requests]
        aside = [e["text"] for e in c.list("events", kind="set_aside")]
        assert aside and {text[:32] for text in aside} <= set(keys)
        # any phase is right: on a busy machine a search may be interrupted before it has waited for compilers
        assert all(re.search(r"in the runner: [a-z]", text) for text in aside), aside
        for key in keys:
            configs = [repr(t["config"]) for t in c.list("trials", key=key, stage="measure")]
            assert len(configs) == len(set(configs)) > 8, "none is measured again"


def test_nothing_is_compiled_ahead_when_it_is_switched_off(stubbed):
    d = stubbed(["--compile-ahead", "0", "--log-level", "info"], cache=None)
    with d.connect() as first:
        for m in (96, 160):
            default = first.call("get", problem=gemm(M=m, N=64, K=64), wait="cached",
                                 target="portable")
            last = first.send("tune", problem=gemm(M=m, N=64, K=64), strategy="given",
                              target="portable", configs=[default["config"]])
        while first.read()[1] != last:
            pass
    assert "compiling ahead" not in d.text()


def test_trials_keep_the_conditions_they_were_measured_under(stubbed):
    d = stubbed(GEMMD_STUB_MHZ="1410", GEMMD_STUB_THROTTLE="4")
    answer = d.tune(M=96, N=64, K=64)
    assert answer["note"] == "" and d.status()["runner"]["disturbed"] == ""
    with d.connect() as c:
        (trial,) = c.list("trials", key=answer["key"])
    assert (trial["sm_mhz"], trial["temperature_c"], trial["power_w"], trial["throttle"]) == (
        1410, 61, 412, "power")


@pytest.mark.parametrize("env, words", [
    ({"GEMMD_STUB_BUSY": "87", "GEMMD_STUB_PROCESSES": "2"},
     "other processes (2) kept the GPU busy for 87 %"),
    ({"GEMMD_STUB_FREE_MIB": "900"}, "only 900 of 81920 MiB of the GPU's memory were free"),
    ({"GEMMD_STUB_THROTTLE": "0x40"}, "throttled (thermal) at 61 C and 1575 MHz"),
])
def test_a_disturbed_measurement_says_so(stubbed, env, words):
    d = stubbed(**env)
    answer = d.tune(M=96, N=64, K=64)
    assert words in answer["note"]
    assert words in d.status()["runner"]["disturbed"]
    with d.connect() as c:
        (best,) = c.list("best")
        (event,) = c.list("events", kind="disturbed")
    assert words in best["doubt"] and words in event["text"]


# ---- quiet ---------------------------------------------------------------------------------------

PLAIN = {"M": 96, "N": 64, "K": 64}


@pytest.fixture
def doubted(stubbed, folder):
    """A key of low confidence, on a GPU that another process uses while `processes` is above 0."""
    busy, processes = folder / "busy", folder / "processes"
    busy.write_text("87")
    processes.write_text("1")
    gate = folder / "gate"
    d = stubbed(["--remeasure-s", "1", "--linger-ms", "100", "--log-level", "info"], GEMMD_STUB_BUSY=str(busy),
                GEMMD_STUB_PROCESSES=str(processes), GEMMD_STUB_GATE=str(gate))
    d.gate, d.processes = gate, processes
    answer = d.call("get", problem=gemm(**PLAIN), budget=2)
    assert answer["source"] == "tuned" and answer["note"].startswith("confidence low: ")
    d.key = answer["key"]
    busy.write_text("0")  # the other process keeps its context, but only waits for data
    return d


def traces(d):
    with d.connect() as c:
        return [(what, c.list(what)) for what in ("trials", "best", "events")], d.compiles()


def test_a_key_is_not_measured_again_while_another_process_has_a_context_on_the_gpu(doubted):
    d = doubted
    for times in (1, 2, 3):
        d.tune(M=64, N=64, K=64)  # after this tuning the idle time begins again
        before, known = traces(d), d.text().count("is put off: ")
        eventually(lambda: d.text().count("is put off: ") > known, 300)  # the idle time doubles each time
        assert traces(d) == before
        jobs = d.status()["jobs"]
        assert (jobs["done"], jobs["failed"], jobs["cancelled"]) == (1 + times, 0, 0)
    text = d.text()
    assert text.count("other processes (1) have a context on the GPU") == text.count("is put off: ") >= 3
    assert " warning " not in d.text().split("put off")[1]
    d.processes.write_text("0")
    eventually(lambda: len(traces(d)[0][0][1]) > len(before[0][0][1]), 300)


def test_a_client_who_asks_for_a_key_that_waits_for_a_quiet_gpu_does_not_wait_for_that(doubted):
    d = doubted
    d.gate.touch()
    eventually(lambda: d.status()["jobs"]["running"] == 1 and d.status()["runner"]["state"] == "busy", 30)
    with d.connect(timeout=200) as c:
        request = c.send("tune", problem=gemm(**PLAIN), deadline_ms=1)
        assert c.wait(request)["note"].endswith("the tuning goes on")
    jobs = d.status()["jobs"]
    assert (jobs["running"], jobs["queued"]) == (1, 0), "one job for both"
    before = traces(d)
    d.gate.unlink()
    eventually(lambda: len(traces(d)[0][0][1]) > len(before[0][0][1]), 60)
    assert "put off" not in d.text()


def test_memory_is_shared(stubbed):
    d = stubbed(["--memory-percent", "1"], GEMMD_STUB_FREE=str(4 << 20))
    with pytest.raises(RpcError, match=r"need .* MiB, but only 0.0 MiB \(1 % .*--memory-percent"):
        d.tune(M=96, N=64, K=64)


# ---- compilers are processes of their own --------------------------------------------------------

def compilers(d):
    """Pids of this daemon's compiling processes."""
    mark = f"GEMMD_STUB_TALLY={d.tally}".encode()
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if b"--compile" in (path / "cmdline").read_bytes().split(b"\0") and mark in (
                    path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
        except OSError:  # the process has ended
            pass
    return found


@pytest.mark.parametrize("death", ["runner killed", "all killed"])
def test_a_compile_that_never_ends_goes_with_its_runner(stubbed, death):
    d = stubbed(cache=None, computes=False, GEMMD_STUB_MS="1000000")
    with d.connect() as c:
        c.send("get", problem=gemm(M=96, N=64, K=64), wait="tuned", target="portable")
        eventually(lambda: compilers(d) and d.compiles())
        if death == "runner killed":
            before = set(compilers(d))
            os.kill(d.runner_pid(), signal.SIGKILL)
            eventually(lambda: not before & set(compilers(d)))
        d.kill()
    eventually(lambda: not compilers(d))


def kill_compilers(d):
    """Kills the compiling processes. Returns their number."""
    found = compilers(d)
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return len(found)


def test_a_killed_compile_is_begun_again(stubbed):
    d = stubbed(cache=None, GEMMD_STUB_MS="300")
    with d.connect() as c:
        asked = c.send("get", problem=gemm(M=96, N=64, K=64), wait="tuned", target="portable")
        eventually(lambda: compilers(d) and d.compiles())
        assert kill_compilers(d)
        assert c.wait(asked)["tier"] == "exact"
    assert d.status()["runner"]["deaths"] == 0


def test_a_compile_that_is_always_killed_says_nothing_of_later_ones(stubbed):
    d = stubbed(cache=None, GEMMD_STUB_MS="300")
    with d.connect() as c:
        asked = c.send("tune", problem=gemm(M=96, N=64, K=64), target="portable")
        while not select.select([c.socket], [], [], 0.02)[0]:  # this also kills compilers of the device's own kernels
            kill_compilers(d)
        with pytest.raises(RpcError, match=r"killed twice \(signal 9\)"):
            c.wait(asked)
    assert d.tune(M=160, N=64, K=64)["note"] == ""
    assert d.status()["runner"]["deaths"] == 0


def test_a_crash_of_the_compiler_is_not_the_runners(stubbed):
    d = stubbed(cache=None, computes=False, GEMMD_STUB_SIGNAL="11")
    with pytest.raises(RpcError, match="the compiler crashed: signal"):
        d.tune(M=96, N=64, K=64)
    assert d.status()["runner"]["deaths"] == 0


# Makes gemmd the process that inherits orphans.
AS_SUBREAPER = [sys.executable, "-c", "import ctypes, os, sys\n"
                "assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER\n"
                "os.execv(sys.argv[1], sys.argv[1:])"]
AS_FIRST = ["unshare", "--fork", "--kill-child", "--pid", "--mount-proc"]


def can_unshare():
    try:
        return subprocess.run([*AS_FIRST, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def children(pid):
    """{pid: state} of a process's children, with pids of this namespace. Z: a zombie."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text().rpartition(")")[2].split()[:2]  # the fields after the name
        except OSError:  # the process has ended
            continue
        if int(parent) == pid:
            found[int(path.parent.name)] = state
    return found


def number_within(pid):
    """The pid of a process in its own namespace; None: the process has ended."""
    try:
        return int(re.search(r"^NSpid:.*?(\d+)$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1])
    except OSError:
        return None


@pytest.mark.parametrize("place", ["subreaper", "first process"])
def test_what_a_killed_runner_leaves_behind_is_waited_for(stubbed, place):
    if place == "first process" and not can_unshare():
        pytest.skip("no process namespace can be made here")
    d = stubbed(cache=None, computes=False, GEMMD_STUB_MS="1000000",
                launcher=AS_SUBREAPER if place == "subreaper" else AS_FIRST)
    gemmd, = [d.process.pid] if place == "subreaper" else children(d.process.pid)

    def working(starts):
        """(runner pid, pids of its compilers) of the given start, or None before it compiles."""
        status = d.status()["runner"]
        if (status["starts"], status["state"]) != (starts, "busy"):
            return None
        runner = next(pid for pid in children(gemmd) if number_within(pid) == status["pid"])
        compiling = set(compilers(d)) & set(children(runner))
        return (runner, compiling) if compiling else None

    with d.connect() as c:
        c.send("get", problem=gemm(M=96, N=64, K=64), wait="tuned", target="portable")
        for deaths in (1, 2):
            runner, orphans = eventually(lambda: working(deaths))
            os.kill(runner, signal.SIGKILL)
            eventually(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in (runner, *orphans)))
            eventually(lambda: d.status()["runner"]["deaths"] == deaths)
        eventually(lambda: working(3) and "Z" not in children(gemmd).values())
    assert d.call("shutdown")["stopping"] is True
    assert d.process.wait(20 * PATIENCE) == 0


@pytest.mark.parametrize("death", ["stop", "runner killed", "all killed"])
def test_locked_clocks_are_given_back(stubbed, folder, death):
    clocks = folder / "clocks"
    d = stubbed(["--lock-clocks", "1410"], GEMMD_STUB_CLOCKS=str(clocks))
    d.status()
    assert not clocks.exists(), "nothing is locked before there is a runner"
    assert d.tune(M=96, N=64, K=64)["note"] == ""
    assert clocks.read_text() == "lock 1410\n"
    if death == "stop":
        d.stop()
    elif death == "runner killed":
        os.kill(d.runner_pid(), signal.SIGKILL)
    else:
        d.kill()
    eventually(lambda: clocks.read_text() == "lock 1410\nunlock 0\n")


def test_clocks_that_cannot_be_locked_are_said(stubbed, folder):
    d = stubbed(["--lock-clocks", "1410"], GEMMD_STUB_CLOCKS=str(folder / "clocks"),
                GEMMD_STUB_FAIL="nvmlDeviceSetGpuLockedClocks:1:4")
    assert "could not be locked: locking the clocks: the driver allows it to root only" in d.tune(
        M=96, N=64, K=64)["note"]
    assert not (folder / "clocks").exists()


# ---- the baseline -------------------------------------------------------------------------------

def test_cublas_is_measured_when_nothing_else_is_to_be_done(stubbed):
    d = stubbed(GEMMD_LIBCUBLAS=str(STUBS / "libstub_cublas.so"))
    key = d.tune(M=96, N=64, K=64, experts=4)["key"]

    def baseline():
        with d.connect() as c:
            return c.list("trials", key=key, stage="baseline")
    (trial,) = eventually(baseline)
    assert (trial["status"], trial["family"]) == ("baseline", "cublas")
    assert trial["config"] == {"library": "cublas", "products": 4, "version": 130001}
    assert trial["time_us"] == 250 and 0 < trial["max_error"] < 0.05 and trial["run"] > 0
    rows = d.ctl_json("trials", key)
    assert {r["baseline"] for r in rows} == {"cublas 13.0.1 over the experts"}
    for row in rows:
        assert row["baseline_us"] == pytest.approx(250) and row["speedup"] == pytest.approx(1)
    said = d.ctl("trials", key).stderr
    assert "baseline: cublas 13.0.1 over the experts, rows in expert order" in said
    # the baseline is no candidate: a resumed tuning skips it
    assert d.tune(M=96, N=64, K=64, experts=4)["measured"] == 1


def test_trials_of_several_keys_go_by_what_they_are_compared_with(stubbed):
    """One key has a baseline: cuBLAS took twice as long as its best config. In a list of all keys sorted by speedup, its
    trials come before those of the key without a baseline."""
    d = stubbed(["--no-baseline"])
    d.tune(M=96, N=64, K=64, experts=4)
    assert d.stop() == 0
    d.options = []
    d.env.update(GEMMD_LIBCUBLAS=str(STUBS / "libstub_cublas.so"), GEMMD_STUB_CUBLAS_US="500")
    d.start()
    key = d.tune(M=96, N=128, K=64, experts=4)["key"]
    eventually(lambda: len(d.sql("SELECT 1 FROM trial WHERE stage = 'baseline'")) == 1)
    for command in (["trials"], ["list", "--what", "trials", "--sort", "speedup"]):
        rows = d.ctl_json(*command)
        assert [r["speedup"] for r in rows] == sorted((r["speedup"] for r in rows), reverse=True)
        assert rows[0]["key"] == key and rows[0]["speedup"] == pytest.approx(2)
        assert d.ctl_json(*command, "--top", 1) == rows[:1]
        assert d.ctl_json(*command, "--top", 2, "--offset", 1) == rows[1:3]
    assert "cublas 13.0.1" in d.ctl("list", "--what", "trials").stderr


def test_without_cublas_the_baseline_is_the_analytic_default(stubbed):
    d = stubbed()
    key = d.tune(M=96, N=64, K=64)["key"]
    eventually(lambda: "no baseline: libcublas.so was not found" in d.text())
    assert {r["baseline"] for r in d.ctl_json("trials", key)} == {"analytic default"}
    assert "cuBLAS has not been measured for these rows" in d.ctl("trials", key).stderr


def baselines(d):
    with d.connect() as c:
        return {t["key"] for t in c.list("trials", stage="baseline")}


def test_a_cancelled_search_costs_no_baseline(stubbed, folder):
    gate = folder / "gate"
    d = stubbed(GEMMD_LIBCUBLAS=str(STUBS / "libstub_cublas.so"), GEMMD_STUB_GATE=str(gate))
    key = d.tune(M=96, N=64, K=64)["key"]
    gate.touch()
    with d.connect() as c:  # the search waits for the memory of its operands
        request = c.send("tune", problem=gemm(n=1024, k=1024), target="portable")
        eventually(lambda: gate.stat().st_size)
        assert c.call("cancel", request=request)["cancelled"]
    gate.unlink()
    eventually(lambda: baselines(d) == {key})


def test_an_order_ends_the_baseline_that_is_being_prepared(stubbed, folder):
    """The operands of both do not fit into the memory: 8 and 9 MiB, and half of the free memory may be used."""
    gate = folder / "gate"
    d = stubbed(GEMMD_LIBCUBLAS=str(STUBS / "libstub_cublas.so"), GEMMD_STUB_GATE=str(gate),
                GEMMD_STUB_FREE=str(24 << 20))
    first = d.tune(m=64, n=256, k=256, experts=64, topk=1)["key"]
    gate.touch()
    eventually(lambda: gate.stat().st_size)
    with d.connect() as c:
        problem = gemm(m=72, n=256, k=256, experts=72, topk=1)
        config = c.call("get", problem=problem, wait="cached", target="portable")["config"]
        last = c.send("tune", problem=problem, strategy="given", configs=[config], target="portable")
        eventually(lambda: d.status()["runner"]["state"] == "busy")
        gate.unlink()
        second = c.wait(last)["key"]
    eventually(lambda: baselines(d) == {first, second})


def test_nobody_needs_a_baseline(stubbed):
    d = stubbed(["--no-baseline", "--linger-ms", "1200"],
                GEMMD_LIBCUBLAS=str(STUBS / "libstub_cublas.so"))
    key = d.tune(M=96, N=64, K=64)["key"]
    eventually(lambda: d.status()["runner"]["state"] == "none")
    with d.connect() as c:
        assert c.list("trials", key=key, stage="baseline") == []
