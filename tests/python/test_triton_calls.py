# SPDX-License-Identifier: Apache-2.0
"""gemmd.triton over a stand-in for Triton (triton_stand_in.py): parts of a call that tell rows apart, and
traces of a failure, a slow day and a killed compiler."""
import functools
import sys
import types

import pytest

import gemmd
from triton_stand_in import (Config, Descriptor, Heuristics, Jit, OutOfResources, PTXASError, Tensor, clock,
                             forget_gemmd, measured, put_in_place)

KILLED = "`ptxas` failed with error code -9\n`ptxas` stderr:\n\nRepro command: ptxas k.ptx\n"
NO_ROOM = "Internal Triton PTX codegen error\n`ptxas` stderr:\nptxas fatal   : No space left on device\n"
REFUSED = "Internal Triton PTX codegen error\n`ptxas` stderr:\nptxas k.ptx, line 9; error   : Unknown symbol 'x'\n"
constexpr = "constexpr"


@pytest.fixture
def triton(monkeypatch, tmp_path):
    triton = put_in_place(monkeypatch)
    forget_gemmd(monkeypatch)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    import gemmd.triton as module
    monkeypatch.setattr(module, "_device", lambda: None)  # the tests' daemon tunes for the CPU
    yield triton
    forget_gemmd(monkeypatch)


def job(socket, body, blocks=(4, 64), below=lambda fn: fn, tune=None, hook=None, **options):
    """A kernel of a job that has just started: run(*args) launches the kernel, and returns the BLOCKs that were timed."""
    def kernel(x, n, HEAD: constexpr, BLOCK: constexpr):
        clock.ms = 1.0 / BLOCK
        body(HEAD, BLOCK)

    configs = [Config({"BLOCK": block}, pre_hook=hook) for block in blocks]
    tuner = (tune or gemmd.triton.autotune)(configs, ["n"], gemmd_socket=str(socket), **options)(below(Jit(kernel)))

    def run(x, n, **more):
        clock.began = []
        tuner.run(x, n, grid=(1,), warmup=False, **more)
        return clock.began

    run.tuner = tuner
    return run


def fits(HEAD, BLOCK):
    """In shared memory."""
    if HEAD * BLOCK > 4096:
        raise OutOfResources("shared memory")


def statuses(cpu):
    return sorted(t["status"] for t in cpu.call("list", what="trials", filter={})["rows"])


# ---- rows apart ------------------------------------------------------------------------

def by_shape(fn):
    return Heuristics(fn, {"HEAD": lambda args: args["x"].shape[-1]})


def test_a_heuristic_s_value_of_one_job_is_not_that_of_the_next(triton, cpu):
    """The second job would die with the first job's config."""
    first = job(cpu.socket, fits, below=by_shape)
    assert first(Tensor(8, 64), 8) == [4, 64] and first.tuner.best_config.kwargs == {"BLOCK": 64}
    second = job(cpu.socket, fits, below=by_shape)
    assert second(Tensor(8, 128), 8) == [4, 64] and second.tuner.best_config.kwargs == {"BLOCK": 4}
    for width, best in ((64, 64), (128, 4)):
        again = job(cpu.socket, fits, below=by_shape)
        assert again(Tensor(8, width), 8) == [] and again.tuner.best_config.kwargs == {"BLOCK": best}


class Asked(Exception):
    """Raised by an Asker instead of an answer; its argument is the request."""


class Asker:
    def acquire(self, problem, configs, deadline_ms, now):
        raise Asked((problem, configs))


@pytest.fixture
def row(triton, monkeypatch):
    """row(...) -> the problem that a job's launch would ask for."""
    monkeypatch.setattr(gemmd.triton, "_client", lambda *_: Asker())

    def ask(x=Tensor(8, 64), n=8, at_launch=None, **options):
        options = {"below": lambda fn: Heuristics(fn, {"HEAD": lambda args: 1}), **options}
        with pytest.raises(Asked) as asked:
            job("nowhere", fits, **options)(x, n, **(at_launch or {}))
        return asked.value.args

    return ask


def one_hook(arguments, reset_only=False):
    arguments["x"].block = 1


def other_hook(arguments, reset_only=False):
    arguments["x"].block = 2


def bench(call, quantiles, rep=1):
    return measured(call, quantiles)


class Bench:
    def __init__(self, rep):
        self.rep, self.calls = rep, 0

    def __call__(self, call, quantiles):
        self.calls += 1
        return bench(call, quantiles, self.rep)


def even(args):
    return args["n"] % args["BLOCK"] == 0


def odd(args):
    return args["n"] % args["BLOCK"] != 0


def heuristics(compute):
    return {"below": lambda fn: Heuristics(fn, {"HEAD": compute})}


def doubles():
    def act(x):
        return 2 * x
    return Jit(act)


def triples():
    def act(x):
        return 3 * x
    return Jit(act)


def by_head(configs, key, **more):
    return gemmd.triton.autotune(configs, ["HEAD"], **more)


def with_head(head, **more):
    return dict(below=lambda fn: fn, at_launch={"HEAD": head}, **more)


@pytest.mark.no_library
@pytest.mark.parametrize("one, other", [
    (with_head(doubles(), tune=by_head), with_head(triples(), tune=by_head)),
    (with_head((1, (doubles(),)), tune=by_head), with_head((1, (triples(),)), tune=by_head)),
    (with_head((1, doubles())), with_head((1, triples()))),
    (heuristics(lambda args: 1), heuristics(lambda args: 2)),
    (heuristics(even), heuristics(odd)),
    (dict(hook=one_hook), dict(hook=other_hook)),
    (dict(hook=one_hook), {}),
    (dict(pre_hook=one_hook), dict(pre_hook=other_hook)),
    (dict(do_bench=bench), {}),
    (dict(do_bench=Bench(1)), dict(do_bench=Bench(2))),
    (dict(do_bench=functools.partial(bench, rep=1)), dict(do_bench=functools.partial(bench, rep=2))),
    (dict(do_bench=lambda *args, **kwargs: bench(*args, **kwargs)), dict(do_bench=lambda *args: bench(*args))),
    (dict(reset_to_zero=["x"]), dict(reset_to_zero=["n"])),
    (dict(at_launch={"maxnreg": 64}), dict(at_launch={"maxnreg": 128})),
    (dict(at_launch={"num_ctas": 2}), {}),
    (dict(x=Tensor(8, 64)), dict(x=Tensor(8, 64, address=4))),
])
def test_what_reaches_the_compiler_is_in_the_row(row, one, other):
    assert row(**one) != row(**other)
    assert row(**one) == row(**one) and row(**other) == row(**other)


@pytest.mark.no_library
def test_a_number_that_is_no_key_counts_as_triton_compiles_it(row, monkeypatch):
    """Triton compiles other code for arguments that are 1 or multiples of 16: such arguments have rows of their own."""
    def asked(n):
        return row(tune=lambda configs, key, **more: gemmd.triton.autotune(configs, [], **more), n=n)

    assert len({str(asked(n)) for n in (1, 16, 17)}) == 3 and asked(17) == asked(19)


@pytest.mark.no_library
def test_what_is_installed_and_the_environment_s_switches_are_in_the_row(row, triton, monkeypatch):
    rows = [row()]
    monkeypatch.setenv("DISABLE_LLVM_OPT", "1")
    rows.append(row())
    for name in ("files", "ptxas"):
        monkeypatch.setattr(triton.installed, name, "13.0")
        rows.append(row())
    monkeypatch.setenv("HOME", "/elsewhere")
    assert row() == rows[-1] and len({str(r) for r in rows}) == 4


def set_block(arguments):
    arguments["x"].block_shape = [arguments["BLOCK"], 64]


@pytest.mark.no_library
def test_a_descriptor_s_block_counts_only_where_no_config_s_hook_sets_it(row):
    """The descriptor of a layer keeps the block of the last launch."""
    for hook, is_in_row in ((set_block, False), (None, True)):
        first, second = (str(row(Descriptor(*shape), hook=hook)) for shape in ((1, 1), (64, 64)))
        assert ("fp16[64, 64]" in second) == (first != second) == is_in_row


def test_a_failed_answer_is_recorded_for_the_arguments_before_its_hook(triton, cpu):
    def set_address(arguments):
        arguments["x"].address = arguments["BLOCK"]

    def fails(HEAD, BLOCK):
        fits(64 * HEAD + 1, BLOCK)

    assert job(cpu.socket, fits, hook=set_address)(Tensor(8, 8, address=1), 8, HEAD=1) == [4, 64]
    for _ in range(2):
        run = job(cpu.socket, fails, hook=set_address)
        assert run(Tensor(8, 8, address=1), 8, HEAD=1) == [] and run.tuner.best_config.kwargs == {"BLOCK": 4}
    assert statuses(cpu) == ["ok", "ok", "resource"]
    assert len({trial["key"] for trial in cpu.call("list", what="trials", filter={})["rows"]}) == 1


calls = 0
SCALE = 2


def counts(call, quantiles):
    global calls
    calls += 1
    return [v * SCALE for v in measured(call, quantiles)]


@pytest.mark.no_library
def test_a_kernel_that_is_interpreted_beside_a_gpu_has_rows_of_the_interpreter(row, monkeypatch):
    """The interpreter compiles nothing, so the row names no compiler and no compiler option."""
    assert "backend=cuda:90" in row()[0][0] and " compiler=" in row()[0][0]
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert "backend=interpreter" in row()[0][0] and " compiler=" not in row()[0][0]


@pytest.mark.no_library
def test_a_counter_of_a_benchmark_is_no_part_of_it(monkeypatch):
    from gemmd.triton_source import _hook_hash
    first = _hook_hash(counts)
    counts(lambda: None, None)
    assert _hook_hash(counts) == first
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 3)
    assert _hook_hash(counts) != first
    monkeypatch.setattr(sys.modules[__name__], "measured", lambda call, quantiles: [])
    assert _hook_hash(counts) != first


def test_a_triton_that_tells_no_rows_apart_tunes_by_itself(triton):
    del sys.modules["triton.runtime.cache"].triton_key
    with pytest.warns(RuntimeWarning, match="has no triton_key.*Triton tunes by itself"):
        assert job("nowhere", fits)(Tensor(8, 64), 8, HEAD=1) == [4, 64]


# ---- answers that fail ----------------------------------------------------------------------------

def test_an_answer_that_cannot_be_launched_is_a_failed_trial_and_the_job_goes_on(triton, cpu):
    """The known winner cannot be launched, as after a change that the row does not record. It becomes a failed
    trial, and the job takes another config."""
    def fails(HEAD, BLOCK):
        fits(64 * HEAD + 1, BLOCK)

    assert job(cpu.socket, fits, (4, 16, 64))(Tensor(8, 8), 8, HEAD=1) == [4, 16, 64]
    unlucky = job(cpu.socket, fails, (4, 16, 64))
    assert unlucky(Tensor(8, 8), 8, HEAD=1) == [] and unlucky.tuner.best_config.kwargs == {"BLOCK": 16}
    assert statuses(cpu) == ["ok", "ok", "ok", "resource"]
    lucky = job(cpu.socket, fits, (4, 16, 64))
    assert lucky(Tensor(8, 8), 8, HEAD=1) == [] and lucky.tuner.best_config.kwargs == {"BLOCK": 16}


def test_an_answer_that_fails_for_other_arguments_is_not_taken_again(triton, cpu):
    """Both calls have the same key for Triton, whose own autotuner would fail at the second call."""
    run = job(cpu.socket, fits)
    assert run(Tensor(8, 8), 8, HEAD=64) == [4, 64]
    assert run(Tensor(8, 8), 8, HEAD=128) == [4] and run.tuner.best_config.kwargs == {"BLOCK": 4}


def test_when_all_answers_fail_triton_says_how(triton, cpu):
    def never(HEAD, BLOCK):
        raise OutOfResources(f"BLOCK {BLOCK}")

    with pytest.raises(OutOfResources):
        job(cpu.socket, never)(Tensor(8, 8), 8, HEAD=1)
    assert statuses(cpu) == ["resource", "resource"]


def test_an_error_of_the_caller_s_is_no_trial(triton, cpu):
    run = job(cpu.socket, fits)
    assert run(Tensor(8, 8), 8, HEAD=1) == [4, 64]
    with pytest.raises(TypeError):
        run(Tensor(8, 8), 8, HEAD=None)
    assert statuses(cpu) == ["ok", "ok"]


@pytest.mark.parametrize("error, status", [
    (PTXASError(KILLED), "crashed"), (PTXASError(NO_ROOM), "crashed"), (OSError(28, "No space left on device"), "crashed"),
    (MemoryError(), "crashed"), (PTXASError(REFUSED), "compile"),
    (RuntimeError("PassManager::run failed"), "compile"), (RuntimeError("Triton Error [CUDA]: invalid argument"), "crashed"),
])
def test_a_compiler_that_was_killed_is_tried_again_and_a_refusal_is_not(triton, cpu, error, status):
    """A config whose compiler was killed is tried again by a later job; until then the job uses another config."""
    trouble = [True]

    def body(HEAD, BLOCK):
        if trouble[0] and BLOCK == 64:
            raise error

    first = job(cpu.socket, body)
    assert first(Tensor(8, 8), 8, HEAD=1) == [4, 64] and first.tuner.best_config.kwargs == {"BLOCK": 4}
    assert statuses(cpu) == sorted([status, "ok"])
    trouble[0] = False
    again = job(cpu.socket, body)
    assert again(Tensor(8, 8), 8, HEAD=1) == ([4, 64] if status == "crashed" else [])
    assert again.tuner.best_config.kwargs == {"BLOCK": 64 if status == "crashed" else 4}


def test_all_compilers_killed_once_leave_no_job_alone(triton, cpu):
    trouble = [True]

    def body(HEAD, BLOCK):
        if trouble[0]:
            raise PTXASError(KILLED)

    with pytest.raises(PTXASError):  # gemmd's trials fail, then Triton tries the same configs, which fail, too
        job(cpu.socket, body)(Tensor(8, 8), 8, HEAD=1)
    trouble[0] = False
    assert job(cpu.socket, body)(Tensor(8, 8), 8, HEAD=1) == [4, 64]
    assert job(cpu.socket, body)(Tensor(8, 8), 8, HEAD=1) == []


def test_a_pass_that_fails_for_one_config_leaves_the_others(triton, cpu):
    def body(HEAD, BLOCK):
        if BLOCK == 4:
            raise RuntimeError("PassManager::run failed")

    assert job(cpu.socket, body)(Tensor(8, 8), 8, HEAD=1) == [4, 64]
    assert job(cpu.socket, body)(Tensor(8, 8), 8, HEAD=1) == []
    failed, = (t for t in cpu.call("list", what="trials", filter={})["rows"] if t["status"] != "ok")
    assert failed["status"] == "compile" and failed["reason"] == "RuntimeError: PassManager::run failed"


class Cuda:
    """Stands for torch.cuda after an illegal read by a kernel."""

    def is_initialized(self):
        return True

    def is_current_stream_capturing(self):
        return False

    def synchronize(self):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), RuntimeError("CUDA error: illegal memory access")])
def test_an_interrupt_and_a_lost_context_end_the_tuning(triton, cpu, monkeypatch, error):
    def body(HEAD, BLOCK):
        raise error

    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=Cuda()))
    run = job(cpu.socket, body)
    with pytest.raises(type(error)):
        run(Tensor(8, 8), 8, HEAD=1)
    assert clock.began == [4]
    assert sum(user["leases"] for user in cpu.status()["users"]) == 0


# ---- days of different speed ----------------------------------------------------------------------

def test_a_config_timed_on_a_slow_day_is_compared_by_its_ratio(triton, cpu):
    day = [1.0]

    def slow(call, quantiles):
        return [ms * day[0] for ms in measured(call, quantiles)]

    def tune(*blocks):
        run = job(cpu.socket, fits, blocks, do_bench=slow)
        return run(Tensor(8, 8), 8, HEAD=1), run.tuner.best_config.kwargs["BLOCK"]

    assert tune(4, 8) == ([4, 8], 8)
    day[0] = 3.0
    assert tune(4, 8, 16) == ([8, 16], 16)  # 16 takes 3/16 ms on this slow day, more than the 1/8 ms recorded for 8
    day[0] = 0.1
    assert tune(4, 8, 16, 2) == ([16, 2], 16)
    times = {t["config"]["BLOCK"]: t["time_us"] for t in cpu.call("list", what="trials", filter={})["rows"]}
    assert times == pytest.approx({2: 500.0, 4: 250.0, 8: 125.0, 16: 62.5})


def test_the_next_best_is_timed_beside_when_the_best_known_one_fails(triton, cpu):
    broken = [False]

    def body(HEAD, BLOCK):
        if broken[0] and BLOCK == 8:
            raise OutOfResources("shared memory")

    assert job(cpu.socket, body, (4, 8))(Tensor(8, 8), 8, HEAD=1) == [4, 8]
    broken[0] = True
    run = job(cpu.socket, body, (4, 8, 2))
    assert run(Tensor(8, 8), 8, HEAD=1) == [8, 4, 2] and run.tuner.best_config.kwargs["BLOCK"] == 4


# ---- a code base that is converted -----------------------------------------------------------------

def test_triton_s_autotune_may_be_replaced_by_gemmd_s(triton, cpu):
    triton.autotune = gemmd.triton.autotune
    from triton import autotune
    assert autotune is gemmd.triton.autotune
    for below in (by_shape, lambda fn: Heuristics(by_shape(fn), {})):
        run = job(cpu.socket, fits, tune=triton.autotune, below=below)
        assert run(Tensor(8, 8), 8 if below is by_shape else 9) == [4, 64]
    above = Heuristics(job(cpu.socket, fits, tune=autotune).tuner, {"HEAD": lambda args: 1})
    above.run(Tensor(8, 8), 10, grid=(1,))
    assert above.fn.best_config.kwargs == {"BLOCK": 64}
