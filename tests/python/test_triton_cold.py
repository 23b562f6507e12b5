# SPDX-License-Identifier: Apache-2.0
"""A key that nobody has tuned: the race of its configs, over a stand-in for Triton, and compiling by
several processes, over the stand-in and over the installed Triton."""
import contextvars
import json
import os
import pathlib
import random
import subprocess
import sys
import threading
import time
import types

import pytest

import gemmd
from conftest import environment
from test_triton_calls import fits, job, statuses, triton  # noqa: F401
from triton_stand_in import OutOfResources, Tensor, clock, measured

PROBLEM = "custom:triton kernel=mine"


def racing(socket, times, speed=lambda: 1.0, **options):
    """A kernel under Triton's own benchmark. times: {BLOCK: ms}. speed(): factor of the clock at each launch."""
    def body(HEAD, BLOCK):
        clock.ms = times[BLOCK] * speed()

    bench = sys.modules["triton.testing"].do_bench
    return job(socket, body, tuple(times), do_bench=bench, **options)


def rows(cpu):
    """Returns {BLOCK: newest time in us} of the recorded trials."""
    trials = sorted(cpu.call("list", what="trials", filter={})["rows"], key=lambda row: row["id"])
    return {t["config"]["BLOCK"]: t["time_us"] for t in trials}


def test_a_config_that_cannot_win_is_given_up_and_finalists_take_turns(triton, cpu):
    times = {4: 10.0, 8: 1.3, 16: 1.0, 32: 1.01, 64: 1.2}
    run = racing(cpu.socket, times)
    began = run(Tensor(8, 8), 8, HEAD=1)
    assert began[:5] == [4, 8, 16, 32, 64]
    assert began[5:] == [16, 32, 64] + [32, 16] + [16, 32, 32, 16] * 3
    assert run.tuner.best_config.kwargs == {"BLOCK": 16}
    assert rows(cpu) == pytest.approx({block: ms * 1e3 for block, ms in times.items()})
    again = racing(cpu.socket, times)
    assert again(Tensor(8, 8), 8, HEAD=1) == [] and again.tuner.best_config.kwargs == {"BLOCK": 16}


def test_a_benchmark_of_the_user_s_times_each_config_once(triton, cpu):
    run = job(cpu.socket, fits, (16, 32, 33), do_bench=measured)
    assert run(Tensor(8, 8), 8, HEAD=1) == [16, 32, 33]


def test_a_clock_that_falls_during_the_first_samples_does_not_choose_the_winner(triton, cpu):
    """BLOCK 4 is timed before the clock falls, and so seems faster than 8. The race then times both in turns: 8, which
    is faster, wins, and its row has the shorter time."""
    def speed():
        return 1.0 if len(clock.began) < 2 else 1.2

    run = racing(cpu.socket, {4: 1.0, 8: 0.95}, speed)
    run(Tensor(8, 8), 8, HEAD=1)
    assert run.tuner.best_config.kwargs == {"BLOCK": 8}
    assert rows(cpu) == pytest.approx({4: 1000.0, 8: 950.0})
    again = racing(cpu.socket, {4: 1.0, 8: 0.95})
    assert again(Tensor(8, 8), 8, HEAD=1) == [] and again.tuner.best_config.kwargs == {"BLOCK": 8}


def test_a_new_config_races_with_the_best_known_one(triton, cpu):
    racing(cpu.socket, {4: 1.1, 8: 1.0})(Tensor(8, 8), 8, HEAD=1)
    run = racing(cpu.socket, {4: 1.1, 8: 1.0, 16: 0.99, 32: 3.0}, lambda: 2.0)
    assert run(Tensor(8, 8), 8, HEAD=1) == [8, 16, 16, 32] + [8, 16, 16, 8] * 4
    assert run.tuner.best_config.kwargs == {"BLOCK": 16}
    assert rows(cpu) == pytest.approx({4: 1100.0, 8: 1000.0, 16: 990.0, 32: 3000.0})


def test_a_leader_that_fails_in_the_race_is_a_failed_trial(triton, cpu):
    times = {4: 1.0, 8: 1.01, 16: 1.02}

    def speed():
        if len(clock.began) > 5 and clock.began[-1] == 4:
            raise OutOfResources("shared memory")
        return 1.0

    run = racing(cpu.socket, times, speed)
    run(Tensor(8, 8), 8, HEAD=1)
    assert run.tuner.best_config.kwargs == {"BLOCK": 8} and statuses(cpu).count("resource") == 1


class Noisy:
    """A Timer whose times are true times, within a factor of 1 - error and 1 + error. Keeps the number of trials."""
    can_race = True

    def __init__(self, seed, error):
        self.random, self.error, self.trials, self.low_us = random.Random(seed), error, 0, 0.0

    def trial(self, true_us, samples):
        self.trials += 1
        self.low_us = true_us * (1 + self.random.uniform(-self.error, self.error))
        return {"time_us": self.low_us}, None


@pytest.mark.no_library
@pytest.mark.parametrize("error, margin", [(0.0099, 1.02), (0.024, 1.05), (0.048, 1.10)])
def test_the_winner_is_within_the_bound_of_the_fastest(triton, error, margin):
    from gemmd.triton_timing import ROUND_MARGINS, Session
    client = types.SimpleNamespace(record=lambda *_: None)
    for seed in range(100):
        times = random.Random(-seed).sample(range(1000, 4000), 120)
        configs, timer = {f"x={us}": float(us) for us in times}, Noisy(seed, error)
        best = configs[Session(client, PROBLEM, configs, [], timer).time_new(list(configs))]
        assert best <= min(times) * margin
        assert timer.trials < len(times) * (1 + len(ROUND_MARGINS)) / 2


# ---- compiling -----------------------------------------------------------------------------------

@pytest.fixture
def claims(triton, tmp_path):
    """claims() opens the same file of claims once more, as another process would."""
    from gemmd.triton_compilation import Claims
    opened = []

    def make(path=tmp_path / "gemmd" / "claims"):
        opened.append(Claims(str(path), True))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


@pytest.mark.no_library
def test_a_config_is_compiled_by_one_process_alone(claims):
    one, other = claims(), claims()
    assert one.claim(3) and not other.claim(3) and not one.claim(3) and other.claim(4)
    one.set_done(3)
    one.unlock(3)
    assert not other.claim(3) and other.is_done(3) and not other.is_done(2)


@pytest.mark.no_library
def test_a_killed_process_leaves_its_configs_to_others(claims):
    one, (ends, says) = claims(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(says, b"1" if claims().claim(0) else b"0")
        time.sleep(600)
    assert os.read(ends, 1) == b"1" and not one.claim(0)
    os.kill(child, 9)
    os.waitpid(child, 0)
    assert one.claim(0)


def test_the_holder_compiles_all_configs_before_it_times(triton, cpu):
    run = job(cpu.socket, fits, (4, 16, 64))
    clock.compiled.clear()
    assert run(Tensor(8, 8), 8, HEAD=1) == [4, 16, 64] and clock.compiled == [4, 16, 64]
    more = job(cpu.socket, fits, (4, 16, 64, 32))
    clock.compiled.clear()
    assert more(Tensor(8, 8), 8, HEAD=1) == [64, 32] and clock.compiled == [32]


def test_a_hint_is_compiled_and_timed_first(triton, cpu, monkeypatch):
    """An answer without a time, as of another tuner's file. It leads, and the race decides."""
    monkeypatch.setattr(gemmd.triton, "problem_of", lambda *_: PROBLEM)
    with gemmd.Client(cpu.socket) as user:
        user.put(PROBLEM, {"BLOCK": 32, "num_warps": 4})
    run = racing(cpu.socket, {4: 1.3, 16: 1.0, 32: 1.01})
    clock.compiled.clear()
    began = run(Tensor(8, 8), 8, HEAD=1)
    assert clock.compiled == [32, 4, 16] and began[:3] == [32, 4, 16] and 4 not in began[3:]
    assert run.tuner.best_config.kwargs == {"BLOCK": 16}
    assert rows(cpu) == pytest.approx({4: 1300.0, 16: 1000.0, 32: 1010.0})


def test_hooks_run_before_a_config_is_compiled(triton, cpu):
    """A pre_hook may set a descriptor's block, which is compiled in."""
    seen = []

    def hook(arguments):
        seen.append((arguments["BLOCK"], len(clock.compiled)))

    run = job(cpu.socket, fits, (4, 64), hook=hook)
    clock.compiled.clear()
    run(Tensor(8, 8), 8, HEAD=1)
    assert seen[:2] == [(4, 0), (64, 1)]


@pytest.mark.no_library
def test_the_post_hook_ends_a_failed_compilation_too(triton, claims):
    from gemmd.triton_compilation import Compilation
    kernel, ended, error = job("nowhere", fits).tuner, [], OutOfResources("shared memory")

    def run(*_, BLOCK, **__):
        if BLOCK == 4:
            raise error

    kernel.fn = types.SimpleNamespace(run=run)
    kernel.user_defined_post_hook, kernel.post_hook = True, lambda arguments, exception: ended.append(exception)
    timer = types.SimpleNamespace(tuner=kernel, args=(), kwargs={})
    Compilation(timer, dict(zip("ab", kernel.configs)), claims()).compile_all(lambda: True)
    assert ended == [error, None]


def test_a_config_that_does_not_compile_is_a_trial_of_the_holder_s(triton, cpu, monkeypatch):
    def run_or_fail(self, *args, warmup=False, **kwargs):
        if kwargs["BLOCK"] == 16:
            raise OutOfResources("shared memory")
        run(self, *args, warmup=warmup, **kwargs)

    run = triton.jit.run
    monkeypatch.setattr(triton.jit, "run", run_or_fail)
    kernel = job(cpu.socket, fits, (4, 16, 64))
    kernel(Tensor(8, 8), 8, HEAD=1)
    assert kernel.tuner.best_config.kwargs == {"BLOCK": 64} and statuses(cpu) == ["ok", "ok", "resource"]


def test_an_interrupt_leaves_no_compile_mode_active(triton, cpu, monkeypatch):
    active = contextvars.ContextVar("active_mode", default=None)

    class Mode:
        def __init__(self, executor, ignore_errors):
            pass

        def __enter__(self):
            active.set(self)

        def __exit__(self, *_):
            raise KeyboardInterrupt  # while Triton waits for its compilations

    monkeypatch.setattr(triton, "AsyncCompileMode", Mode, raising=False)
    with pytest.raises(KeyboardInterrupt):
        job(cpu.socket, fits, (4, 64))(Tensor(8, 8), 8, HEAD=1)
    assert clock.compiled and active.get() is None


def test_the_holder_keeps_its_lease_while_it_compiles_and_races(triton, cpu, monkeypatch):
    """An empty record renews the lease also when all configs are known."""
    renewed = []
    record = gemmd.Client.record

    def note(client, problem, trials):
        if not trials:
            renewed.append((len(clock.compiled), len(clock.began)))
        record(client, problem, trials)

    monkeypatch.setattr(gemmd.Client, "record", note)
    monkeypatch.setattr(gemmd.triton_timing, "RENEW_S", -1.0)
    clock.compiled.clear()
    began = racing(cpu.socket, {4: 1.0, 8: 1.01})(Tensor(8, 8), 8, HEAD=1)
    assert len(began) == 18 and renewed == [(0, 0), (1, 0)] + [(2, timed) for timed in range(18)]


def wait_until(holds, thread):
    while not holds():
        assert thread.is_alive()
        time.sleep(0.001)


def test_the_holder_times_configs_as_others_finish_them(triton, cpu, claims, monkeypatch):
    paths = []

    class Kept(gemmd.triton_compilation.Claims):
        def __init__(self, path, is_new):
            paths.append(path)
            super().__init__(path, is_new)

    monkeypatch.setattr(gemmd.triton_compilation, "Claims", Kept)
    job(cpu.socket, fits, (4, 64))(Tensor(8, 8), 8, HEAD=1)
    row, = cpu.call("list", what="best", filter={})["rows"]
    cpu.call("evict", key=row["key"])
    os.truncate(paths[0], 0)
    other = claims(paths[0])
    assert other.claim(0)
    run = job(cpu.socket, fits, (4, 64))
    clock.compiled.clear()
    holder = threading.Thread(target=run, args=(Tensor(8, 8), 8), kwargs={"HEAD": 1})
    holder.start()
    wait_until(lambda: clock.began == [64], holder)
    other.set_done(0)
    other.unlock(0)
    holder.join()
    assert clock.began == [64, 4] and clock.compiled == [64]


def file_of(*blocks):
    return gemmd.triton_compilation.file_of(PROBLEM, [f"BLOCK={block} num_warps=4" for block in blocks])


def test_the_holder_goes_on_alone_when_stopped_processes_keep_all_slots(triton, cpu, claims, monkeypatch):
    from gemmd import triton_compilation
    monkeypatch.setattr(gemmd.triton, "problem_of", lambda *_: PROBLEM)
    monkeypatch.setattr(triton_compilation, "count_cores", lambda: 2)
    stopped = claims(file_of(4, 64))
    first = triton_compilation.Compilation(None, {}, stopped).first_slot
    assert stopped.lock(first) and stopped.lock(first + 1)
    now = [0.0]

    def sleep(s):
        now[0] += s
        assert now[0] < 2 * triton_compilation.STALL_S

    monkeypatch.setattr(triton_compilation, "time", types.SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    clock.compiled.clear()
    assert job(cpu.socket, fits, (4, 64))(Tensor(8, 8), 8, HEAD=1) == [4, 64] and clock.compiled == []


def test_a_process_that_waits_compiles_for_the_holder(triton, cpu, claims, monkeypatch):
    monkeypatch.setattr(gemmd.triton, "problem_of", lambda *_: PROBLEM)
    claims(file_of(4, 64))
    run = job(cpu.socket, fits, (4, 64))
    clock.compiled.clear()
    with gemmd.Client(cpu.socket) as holder:
        assert holder.acquire(PROBLEM).outcome == "lease"
        waits = threading.Thread(target=run, args=(Tensor(8, 8), 8), kwargs={"HEAD": 1})
        waits.start()
        wait_until(lambda: sum(user["waiting"] for user in cpu.status()["users"]), waits)
        assert clock.compiled == [4, 64] and clock.began == []
        for block in (4, 64):
            holder.record(PROBLEM, [{"config": {"BLOCK": block, "num_warps": 4}, "time_us": 5.0 * block}])
        holder.put(PROBLEM, {"BLOCK": 4, "num_warps": 4}, 20.0)
        waits.join()
    assert clock.began == [] and run.tuner.best_config.kwargs == {"BLOCK": 4}


def test_a_process_with_another_cache_folder_than_the_holder_s_compiles_nothing(triton, cpu, monkeypatch):
    monkeypatch.setattr(gemmd.triton, "problem_of", lambda *_: PROBLEM)
    monkeypatch.setattr(gemmd.triton_compilation, "FIND_S", 0.0)
    run = job(cpu.socket, fits, (4, 64), deadline_ms=300)
    clock.compiled.clear()
    with gemmd.Client(cpu.socket) as holder:
        assert holder.acquire(PROBLEM).outcome == "lease"
        assert run(Tensor(8, 8), 8, HEAD=1) == [] and clock.compiled == []
    assert not os.path.exists(file_of(4, 64))


def test_a_process_that_waits_compiles_no_longer_than_its_deadline(triton, cpu, claims, monkeypatch):
    claims(file_of(4, 16, 64))
    monkeypatch.setattr(gemmd.triton, "problem_of", lambda *_: PROBLEM)
    now = [0.0]
    monkeypatch.setattr(gemmd.triton, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    compiled = []
    monkeypatch.setattr(triton.jit, "run", lambda self, *_, warmup, BLOCK, **__: warmup and (
        compiled.append(BLOCK), now.__setitem__(0, now[0] + 3.0)))
    run = job(cpu.socket, fits, (4, 16, 64), deadline_ms=5000)
    with gemmd.Client(cpu.socket) as holder:
        assert holder.acquire(PROBLEM).outcome == "lease"
        run(Tensor(8, 8), 8, HEAD=1)
    assert compiled == [4, 16] and run.tuner.best_config.kwargs == {"BLOCK": 4}


def test_a_cache_folder_that_cannot_be_written_shares_no_compiling(triton, cpu, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "file"))
    run = job(cpu.socket, fits, (4, 64))
    clock.compiled.clear()
    assert run(Tensor(8, 8), 8, HEAD=1) == [4, 64] and clock.compiled == []


JOB = pathlib.Path(__file__).with_name("triton_together.py")


def test_processes_of_the_installed_triton_compile_each_config_once(cpu, tmp_path):
    """A script in the place of ptxas waits until two processes compile at once."""
    triton = pytest.importorskip("triton", reason="Triton is not installed for this Python")
    real = next(pathlib.Path(triton.__file__).parent.glob("backends/nvidia/bin/ptxas"))
    (tmp_path / "parents").mkdir()
    ptxas = tmp_path / "ptxas"
    ptxas.write_text(f"""#!/bin/sh
case "$*" in *--version*) exec {real} --version;; esac
echo $PPID >>{tmp_path}/calls
touch {tmp_path}/parents/$PPID
n=0
while [ $(ls {tmp_path}/parents | wc -l) -lt 2 ] && [ $n -lt 600 ]; do sleep 0.05; n=$((n + 1)); done
exec {real} "$@"
""")
    ptxas.chmod(0o755)
    env = environment(GEMMD_SOCKET=cpu.socket, TRITON_PTXAS_PATH=ptxas, TRITON_CACHE_DIR=tmp_path / "cache")
    env.pop("TRITON_INTERPRET", None)
    jobs = [subprocess.Popen([sys.executable, JOB], env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE) for _ in range(3)]
    results = [json.loads(out.splitlines()[-1]) for out, _ in run_together(jobs)]
    assert {r["best"] for r in results} == {256} and sorted(len(r["timed"]) for r in results) == [0, 0, 5]
    calls = (tmp_path / "calls").read_text().split()
    assert len(calls) == 5 and len(set(calls)) >= 2


def run_together(jobs):
    for one in jobs:
        assert one.stdout.readline() == "ready\n", one.communicate()[1]
    for one in jobs:
        one.stdin.write("go\n")
        one.stdin.flush()
    for one in jobs:
        out, said = one.communicate()
        assert one.returncode == 0, said
        yield out, said


@pytest.mark.no_library
def test_a_kernel_that_a_hook_launches_does_not_end_its_config(triton):
    """Its compilation comes before the config's own, in the same executor."""
    from gemmd.triton_compilation import _Beside
    beside, ended = _Beside(1), []

    def end():
        ended.append(1)

    beside.submit(lambda: None).result()
    beside.end = end
    beside.submit(lambda: None)
    beside.submit(lambda: None)
    beside.pool.shutdown()
    assert ended == [1] and beside.taken is end
