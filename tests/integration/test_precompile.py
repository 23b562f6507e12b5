# SPDX-License-Identifier: Apache-2.0
"""The module cache: no variant is compiled twice, and `gemmctl precompile` compiles ahead.

Two counted compilers: a script around cc, and the stub of NVRTC, which appends a byte to a file for
each compile.
"""
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time

import pytest

from conftest import BUILD, GEMMCTL, GEMMD, PATIENCE, RUNNER, Watched, eventually, gemm

STUB = BUILD / "tests" / "cuda_stub" / "libstub_nvrtc.so"
PROBLEM = ["--mode", "dW", "--m", "512", "--n", "1024", "--k", "1024", "--experts", "8"]
# hopper's space has hundreds of variants, which the stub compiles at once
needs_stub = pytest.mark.skipif(not STUB.exists(), reason="built without the cuda device")
HELPERS = 2  # the device's own kernels: tools.cu and the reference
SPILLS = "ptxas info    : 96 bytes stack frame, 96 bytes spill stores, 96 bytes spill loads\n"


class Cache:
    def __init__(self, folder):
        self.path, self.tally = folder / "cache", folder / "tally"
        self.env = {**os.environ, "GEMMD_RUNNER": str(RUNNER), "GEMMD_NVRTC": str(STUB),
                    "GEMMD_LIBCUDA": "/nowhere/libcuda.so", "GEMMD_STUB_TALLY": str(self.tally)}

    def compiles(self):
        return self.tally.stat().st_size if self.tally.exists() else 0

    def command(self, *args, arch="sm_90a"):
        return [str(GEMMCTL), "precompile", "--cache-dir", str(self.path), "--arch", arch, "--json", "-q",
                *args]

    def precompile(self, *args, code=0, arch="sm_90a", **env):
        result = subprocess.run(self.command(*args, arch=arch), capture_output=True, text=True,
                                env={**self.env, **env}, timeout=400 * PATIENCE)
        assert result.returncode == code, result
        return json.loads(result.stdout) if code == 0 else result.stderr

    def precompile_search(self, search, each, device, **env):
        """The first variants of a search, as gemmd precompiles them for queued searches."""
        result = subprocess.run([str(RUNNER), "--precompile", "--problems", "--each", str(each), "--device",
                                 device, "--cache-dir", str(self.path), "--json", "--quiet"],
                                input=json.dumps(search), capture_output=True, text=True, check=True,
                                env={**self.env, **env}, timeout=400 * PATIENCE)
        return json.loads(result.stdout)

    def start(self, *args, **env):
        return subprocess.Popen(self.command(*args), stdout=subprocess.PIPE, text=True,
                                env={**self.env, **env})


@pytest.fixture
def cache(folder):
    return Cache(folder)


@needs_stub
def test_a_limit_of_file_sizes_is_a_full_disk(cache):
    """Neither precompile nor its compiling processes die of SIGXFSZ."""
    result = subprocess.run(cache.command(*PROBLEM), capture_output=True, text=True, env=cache.env,
                            timeout=400 * PATIENCE, preexec_fn=lambda: resource.setrlimit(
                                resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY)))
    assert result.returncode == 1 and "signal" not in result.stderr, result
    assert "does not take what is compiled" in result.stderr and "free space" in result.stderr
    said = json.loads(result.stdout)
    assert said["full"] and said["left"] > said["variants"] // 2 > said["failed"] > 0, "the rest would be for nothing"
    assert cache.precompile(*PROBLEM)["failed"] == 0


@needs_stub
def test_the_environment_names_the_cache_directory_of_all_programs(cache):
    words = [w for w in cache.command(*PROBLEM, "--seconds", "1") if w not in ("--cache-dir", str(cache.path))]
    result = subprocess.run(words, capture_output=True, text=True, env={**cache.env, "GEMMD_CACHE_DIR": str(cache.path)},
                            timeout=400 * PATIENCE)
    assert result.returncode == 0 and len(list((cache.path / "modules").iterdir())) > 0, result
    shown = subprocess.run([GEMMD, "--device", "cpu", "--print-config"], capture_output=True, text=True, check=True,
                           env={**cache.env, "GEMMD_CACHE_DIR": str(cache.path)}).stdout
    assert re.search(rf"^cache-dir = {cache.path} *; GEMMD_CACHE_DIR", shown, re.M), shown


@needs_stub
def test_a_space_is_compiled_once_without_gpu_driver_and_daemon(cache):
    first = cache.precompile(*PROBLEM)
    space = json.loads(subprocess.run([str(GEMMCTL), "space", "--arch", "sm_90a", "--json", *PROBLEM],
                                      capture_output=True, text=True, check=True).stdout)
    # some variants have the same code: a parameter may have no effect beside another
    assert 0.9 * space["variants"] < first["variants"] - HELPERS <= space["variants"]
    assert first["variants"] > 100 and first["compiled"] == first["variants"] == cache.compiles()
    assert first["left"] == first["failed"] == first["refused"] == 0
    again = cache.precompile(*PROBLEM)
    assert again["found"] == first["variants"] and again["compiled"] == 0
    assert cache.compiles() == first["variants"]
    other_shape = cache.precompile("--mode", "dW", "--m", "1024", "--n", "2048", "--k", "1024",
                                   "--experts", "8")
    assert other_shape["found"] > other_shape["variants"] / 2, "modules are of no shape"
    assert cache.compiles() == first["variants"] + other_shape["compiled"]


@needs_stub
def test_what_the_compiler_refuses_is_refused_once(cache):
    first = cache.precompile(*PROBLEM, GEMMD_STUB_LOG=SPILLS)
    assert first["refused"] == first["variants"] == cache.compiles()
    again = cache.precompile(*PROBLEM, GEMMD_STUB_LOG=SPILLS)
    assert again["found"] == first["variants"] and again["refused"] == 0
    assert cache.compiles() == first["variants"]


@needs_stub
def test_no_memory_is_no_refusal(cache):
    out_of_memory = cache.precompile(*PROBLEM, "--jobs", "1", code=1,
                                     GEMMD_STUB_FAIL="nvrtcCompileProgram:3:1")
    assert "1 failed, the first: " in out_of_memory
    again = cache.precompile(*PROBLEM)
    assert again["compiled"] == 1 and again["found"] == again["variants"] - 1


@needs_stub
def test_several_at_once_share_the_work(cache):
    # slow compiles (5 ms each), so that the three processes often want the same variant at once
    children = [cache.start(*PROBLEM, "--jobs", "2", GEMMD_STUB_MS="5") for _ in range(3)]
    outcomes = [json.loads(c.communicate(timeout=400 * PATIENCE)[0]) for c in children]
    assert [c.returncode for c in children] == [0, 0, 0]
    variants = outcomes[0]["variants"]
    assert cache.compiles() == variants == sum(o["compiled"] for o in outcomes)
    assert all(o["compiled"] + o["found"] == variants for o in outcomes)
    assert sum(o["compiled"] > 0 for o in outcomes) > 1


@needs_stub
def test_ctrl_c_and_on(cache):
    child = cache.start(*PROBLEM, "--jobs", "2", GEMMD_STUB_MS="20")
    eventually(lambda: cache.compiles() > 10)
    child.send_signal(signal.SIGINT)
    outcome = json.loads(child.communicate(timeout=30 * PATIENCE)[0])
    assert child.returncode == 130
    assert outcome["left"] > 0 and outcome["compiled"] == cache.compiles()
    rest = cache.precompile(*PROBLEM)
    assert rest["found"] == outcome["compiled"] and rest["left"] == 0
    assert cache.compiles() == rest["variants"]


@needs_stub
def test_a_second_ctrl_c_ends_it_at_once_and_leaves_a_whole_line(cache):
    command = [word for word in cache.command(*PROBLEM, "--jobs", "1") if word not in ("-q", "--json")]
    precompiling = Watched(command, {**cache.env, "GEMMD_STUB_MS": "600000"})
    precompiling.until(b"\r\033[Kprecompile 0/")
    precompiling.interrupt()
    precompiling.until(b"once more ends it at once")
    precompiling.interrupt()
    shown, code = precompiling.end()
    assert code == -signal.SIGINT and shown.endswith(b"\r\n"), shown


@needs_stub
def test_kill_9_and_on(cache):
    child = cache.start(*PROBLEM, "--jobs", "2", GEMMD_STUB_MS="20")
    eventually(lambda: cache.compiles() > 10)
    child.kill()
    child.communicate()
    before = cache.compiles()
    rest = cache.precompile(*PROBLEM)
    assert rest["found"] >= before - 2, "what was being compiled is lost, at most"
    assert rest["compiled"] + rest["found"] == rest["variants"]


@needs_stub
def test_time_and_room_are_limits(cache):
    outcome = cache.precompile(*PROBLEM, "--seconds", "1", "--jobs", "1", GEMMD_STUB_MS="50")
    assert 0 < outcome["compiled"] < outcome["variants"] and outcome["left"] > 0
    assert outcome["full"] is False
    outcome = cache.precompile(*PROBLEM, "--cache-max-mib", "1")
    assert outcome["left"] > 0 and outcome["full"] is True
    size = sum(-(-p.lstat().st_size // 4096) * 4096 for p in cache.path.rglob("*") if p.is_file()
               and not p.is_symlink())
    assert size < 3 << 20


@needs_stub
def test_a_result_that_cannot_be_written_is_a_failure(cache):
    with open("/dev/full", "w") as full:
        result = subprocess.run(cache.command(*PROBLEM, "--seconds", "1", "--json"), stdout=full, text=True,
                                stderr=subprocess.PIPE, env=cache.env, timeout=100 * PATIENCE)
    assert result.returncode == 1 and "cannot write the result: No space left" in result.stderr, result


@needs_stub
def test_the_usual_problems(cache):
    everything = cache.precompile("--seconds", "1", "--jobs", "1", GEMMD_STUB_MS="500")
    one = cache.precompile("--mode", "dW", "--seconds", "1", "--jobs", "1", GEMMD_STUB_MS="500")
    portable = cache.precompile("--target", "portable", "--mode", "dW,dX", "--seconds", "1", "--jobs", "1",
                                GEMMD_STUB_MS="500")
    assert 0 < one["variants"] < everything["variants"] and portable["variants"] > 0
    rows = cache.precompile("--all", "--mode", "whole_rows,weights", "--seconds", "1", "--jobs", "1", GEMMD_STUB_MS="500")
    assert rows["variants"] > 0 and cache.precompile("--mode", "rows", code=1).count("no kernels for rows")


@needs_stub
def test_damaged_files_are_replaced(cache):
    first = cache.precompile(*PROBLEM)
    records = sorted((cache.path / "records").iterdir())
    assert len(records) == first["variants"]
    records[0].write_bytes(records[0].read_bytes()[:-1])
    records[1].write_bytes(b"")
    damaged = records[2].read_bytes()
    records[2].write_bytes(damaged[:60] + bytes([damaged[60] ^ 1]) + damaged[61:])
    again = cache.precompile(*PROBLEM)
    assert again["compiled"] == 3 and cache.compiles() == first["variants"] + 3
    assert cache.precompile(*PROBLEM)["compiled"] == 0


@pytest.mark.parametrize("args, code, words", [
    (["--arch", "sm_91"], 1, "unknown architecture"),
    (["--mode", "up"], 1, "forward,dX,dW,rows"),
    (["--arch", "sm_80", "--target", "hopper"], 1, "has: portable"),
    (["--all", "--m", "64", "--n", "64", "--k", "64"], 2, "--all"),
    (["--m", "64"], 2, "--n"),
    (["--jobs", "many"], 2, '--jobs takes a whole number from 0 to 256, not "many"'),
    (["--jobs", "-1"], 2, '--jobs takes a whole number from 0 to 256, not "-1"'),
])
@needs_stub
def test_what_is_refused(cache, args, code, words):
    assert words in cache.precompile(*args, code=code)


@needs_stub
def test_warm_is_a_former_name_of_precompile(cache):
    command = cache.command(*PROBLEM, "--seconds", "1", "--jobs", "1")
    command[command.index("precompile")] = "warm"
    slow = {**cache.env, "GEMMD_STUB_MS": "500"}
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, env=slow).stdout)
    assert 0 < said["compiled"] == cache.compiles() < said["variants"]
    runner = [str(RUNNER), "--warm", "--problems", "--each", "1", "--device", "cuda:sm_90a", "--cache-dir",
              str(cache.path), "--json", "--quiet"]
    searched = subprocess.run(runner, input=json.dumps({"problem": gemm(m=64, n=64, k=64), **TUNE}),
                              capture_output=True, text=True, check=True, env=cache.env)
    assert json.loads(searched.stdout)["compiled"] > 0


def test_without_the_runner(cache):
    assert "/nowhere/runner" in cache.precompile(*PROBLEM, code=1, GEMMD_RUNNER="/nowhere/runner")


# ---- the daemon's runner and the same cache -----------------------------------------------------

def counting_cc(folder):
    """A C compiler that counts its compiles."""
    script = folder / "counting-cc"
    script.write_text(f'#!/bin/sh\ncase "$*" in *-shared*) printf x >> {folder}/tally ;; esac\n'
                      f'exec {shutil.which("cc")} "$@"\n')
    script.chmod(0o755)
    return {"GEMMD_CC": str(script)}


TUNE = dict(budget=6, iters=2, warmup=1, again=True)


def modules_of(d):
    return {r["variant"]: r for r in d.call("list", what="modules", filter={})["rows"]}


# The variants of ranked depend on measured times: the second run may compile another.
@pytest.mark.parametrize("strategy", ["ranked", "random"])
def test_a_restart_compiles_nothing_again(daemon, folder, cache, strategy):
    tune = {**TUNE, "strategy": strategy, "seed": 1}
    d = daemon(device="cpu:1", env=counting_cc(folder), own_cache=True,
               options=["--linger-ms", "100"])
    first = d.call("get", problem=gemm(m=64, n=64, k=64), **tune)
    compiled = cache.compiles()
    records = d.cache / "records"
    assert compiled > 0 and compiled == len(list(records.iterdir()))
    rows = modules_of(d)
    assert d.stop() == 0
    d.database.unlink()
    for name in ("cache.db-wal", "cache.db-shm"):
        (folder / name).unlink(missing_ok=True)
    d.start()
    again = d.call("get", problem=gemm(m=64, n=64, k=64), **tune)
    assert cache.compiles() == len(list(records.iterdir())), "each variant once"
    now = modules_of(d)
    assert cache.compiles() - compiled == len(now.keys() - rows.keys()), (
        "the cache outlives daemon, runner and database")
    assert strategy == "ranked" or now.keys() == rows.keys()
    assert first["tier"] == again["tier"] == "exact"
    for variant, row in now.items():
        if variant in rows:
            assert {**row, "used_s": 0} == {**rows[variant], "used_s": 0}, (
                "found is as good as compiled")
        assert row["compile_ms"] > 0


def test_what_was_warmed_is_not_compiled_by_a_tuning(daemon, folder, cache):
    env = counting_cc(folder)
    cache.path.mkdir()
    outcome = cache.precompile_search({"problem": gemm(m=64, n=64, k=64), **TUNE}, 12, "cpu:1", **env)
    assert outcome["compiled"] == cache.compiles() == 12
    d = daemon(device="cpu:1", env=env, own_cache=True)
    assert d.cache == cache.path
    d.call("get", problem=gemm(m=64, n=64, k=64), **TUNE)
    found = [t for t in d.call("list", what="trials", filter={})["rows"] if t["compile_ms"] == 0]
    assert found, "what a search asks for first is compiled first"
    rest = {t["variant"] for t in d.call("list", what="trials", filter={})["rows"]
            if t["compile_ms"]}
    assert cache.compiles() - outcome["compiled"] == len(rest) < 6


# ---- the limit ----------------------------------------------------------------------------------

def test_the_cache_is_kept_below_its_limit(daemon, folder):
    modules = folder / "cache" / "modules"
    modules.mkdir(parents=True, mode=0o755)
    old = time.time() - 86400
    for i in range(8):
        path = modules / f"{i:032x}.so"
        path.write_bytes(bytes(200 * 1024))
        os.utime(path, (old + i, old + i))
    (modules / "notes").write_text("not ours")
    d = daemon(device="cpu:1", own_cache=True, options=["--cache-max-mib", "1"])
    answer = d.call("get", problem=gemm(m=64, n=64, k=64), **TUNE)
    for path in modules.glob("*.so"):  # makes all images old; images of served answers must stay
        if not path.name.startswith("0000"):
            os.utime(path, (old - 100, old - 100))
    status = eventually(lambda: (lambda s: s["cache"]["bytes"] < 1 << 20 and s)(d.status()), 30,
                        every=6)  # asks rarely, because the trim waits for a moment without requests
    assert status["cache"]["max_bytes"] == 1 << 20
    assert status["cache"]["path"] == str(d.cache)
    left = sorted(p.name for p in modules.iterdir())
    assert f"{answer['module']}.so" in left and "notes" in left
    assert f"{0:032x}.so" not in left and f"{7:032x}.so" in left, "the longest unused go first"
    # a runner may still have compiled after the trim
    eventually(lambda: d.status()["cache"]["modules"] == len(list(modules.glob("*.so"))), 60, every=6)
    assert d.call("module", id=answer["module"])["size"] > 0
    text = d.ctl("status").stdout
    assert "kernels' size" in text and "1024.0 KiB" in text
    assert "modules were removed" in d.text()


def test_without_a_limit_nothing_is_removed(daemon, folder):
    modules = folder / "cache" / "modules"
    modules.mkdir(parents=True, mode=0o755)
    path = modules / f"{1:032x}.so"
    path.write_bytes(bytes(2 << 20))
    os.utime(path, (1, 1))
    d = daemon(own_cache=True, options=["--cache-max-mib", "0"])
    d.call("get", problem=gemm(), budget=2)
    eventually(lambda: (d.cache / "serving").exists(), 20)  # the daemon has checked the cache
    assert path.exists()
    assert "none" in d.ctl("status").stdout
