# SPDX-License-Identifier: Apache-2.0
"""gemmd.triton.install(): all autotuners of a process, over a stand-in for Triton and in Triton's
interpreter; and buckets of a key's numbers."""
import functools
import json
import subprocess
import sys
import types

import pytest

import gemmd
from conftest import PYTHON, environment
from test_triton_calls import fits, job, triton  # noqa: F401
from triton_stand_in import OutOfResources, Tensor

BLOCKS = (4, 64)


@pytest.fixture
def install(triton, cpu, monkeypatch):
    """install(**options), ended after the test."""
    monkeypatch.setenv("GEMMD_SOCKET", str(cpu.socket))
    yield gemmd.triton.install
    gemmd.triton.uninstall()


def kernel(triton, **options):
    """A kernel of a package that knows nothing about gemmd."""
    return job(None, fits, BLOCKS, tune=lambda *args, gemmd_socket, **more: triton.autotune(*args, **more), **options)


def best_rows(cpu):
    return [row["problem"]["arguments"] for row in cpu.call("list", what="best", filter={})["rows"]]


def test_kernels_made_before_and_after_install_are_shared(triton, cpu, install):
    before = kernel(triton)
    held_elsewhere = types.SimpleNamespace(kernel=before.tuner)
    install()
    after = kernel(triton)
    assert before(Tensor(8, 8), 8, HEAD=1) == [4, 64] and best_rows(cpu) == ["n=8,x.dtype=fp32"]
    assert after(Tensor(8, 8), 8, HEAD=1) == []
    held_elsewhere.kernel.run(Tensor(8, 8), 9, HEAD=1, grid=(1,))
    assert len(best_rows(cpu)) == 2


def test_a_kernel_under_install_has_the_rows_of_gemmd_s_autotune(triton, cpu, install):
    def hook(arguments, reset_only=False):
        pass

    options = dict(do_bench=lambda call, quantiles: call() or [1.0] * 3, reset_to_zero=["x"], pre_hook=hook)
    assert job(cpu.socket, fits, BLOCKS, **options)(Tensor(8, 8), 8, HEAD=1) == [4, 64]
    install()
    assert kernel(triton, **options)(Tensor(8, 8), 8, HEAD=1) == []
    assert job(cpu.socket, fits, BLOCKS, **options)(Tensor(8, 8), 8, HEAD=1) == []


def test_keys_that_triton_tuned_before_install_stay(triton, cpu, install):
    run = kernel(triton)
    assert run(Tensor(8, 8), 8, HEAD=1) == [4, 64]
    install()
    assert run(Tensor(8, 8), 8, HEAD=1) == [] and best_rows(cpu) == []
    assert run(Tensor(8, 8), 9, HEAD=1) == [4, 64] and len(best_rows(cpu)) == 1


def test_uninstall_gives_triton_its_autotuner_back(triton, cpu, install):
    alone = triton.runtime.autotuner.Autotuner.run
    run = kernel(triton)
    install()
    install(deadline_ms=100)
    run(Tensor(8, 8), 8, HEAD=1)
    run.tuner.cache.stopgaps["a stopgap"] = 0.0
    run.tuner.cache["a stopgap"] = run.tuner.configs[0]
    gemmd.triton.uninstall()
    assert triton.runtime.autotuner.Autotuner.run is alone and type(run.tuner.cache) is dict
    assert run(Tensor(8, 8), 8, HEAD=1) == [] and "a stopgap" not in run.tuner.cache
    assert run(Tensor(8, 8), 9, HEAD=1) == [4, 64] and len(best_rows(cpu)) == 1
    gemmd.triton.uninstall()  # once more does nothing


def test_uninstall_leaves_a_wrapper_of_another_package(triton, cpu, install):
    tuners, launches = triton.runtime.autotuner.Autotuner, []
    install()
    shared = tuners.run

    @functools.wraps(shared)
    def wrapped(tuner, *args, **kwargs):
        launches.append(tuner)
        return shared(tuner, *args, **kwargs)

    tuners.run = wrapped
    gemmd.triton.uninstall()
    run = kernel(triton)
    assert run(Tensor(8, 8), 8, HEAD=1) == [4, 64] and launches == [run.tuner] and best_rows(cpu) == []
    install()
    assert run(Tensor(8, 8), 9, HEAD=1) == [4, 64] and len(launches) == 2 and len(best_rows(cpu)) == 1


def test_a_second_install_replaces_the_arguments_of_the_first(triton, cpu, install):
    run = kernel(triton)
    install(gemmd_socket="nowhere")
    with pytest.warns(RuntimeWarning, match="Triton tunes by itself"):
        assert run(Tensor(8, 8), 8, HEAD=1) == [4, 64]
    install(gemmd_socket=cpu.socket)
    assert run(Tensor(8, 8), 9, HEAD=1) == [4, 64] and len(best_rows(cpu)) == 1


def test_a_failed_answer_is_replaced_under_install_too(triton, cpu, install):
    install()
    run = kernel(triton)
    assert run(Tensor(8, 8), 8, HEAD=64) == [4, 64]
    assert run(Tensor(8, 8), 8, HEAD=128) == [4] and run.tuner.best_config.kwargs == {"BLOCK": 4}


def test_a_subclass_that_calls_the_autotuner_s_run_is_shared(triton, cpu, install, monkeypatch):
    class Counting(triton.runtime.autotuner.Autotuner):
        launches = 0

        def run(self, *args, **kwargs):
            self.launches += 1
            return super().run(*args, **kwargs)

    plain = triton.runtime.autotuner.Autotuner
    monkeypatch.setattr(triton.runtime.autotuner, "Autotuner", Counting)
    run = kernel(triton)
    monkeypatch.setattr(triton.runtime.autotuner, "Autotuner", plain)
    install()
    assert run(Tensor(8, 8), 8, HEAD=1) == [4, 64] and len(best_rows(cpu)) == 1 and run.tuner.launches == 1


# ---- buckets -------------------------------------------------------------------------------------

@pytest.mark.no_library
def test_bounds_of_buckets(triton):
    from gemmd.triton_rows import round_up
    assert [round_up(n, "pow2") for n in (1, 2, 3, 4, 5, 4097)] == [1, 2, 4, 4, 8, 8192]
    assert [round_up(n, "sqrt2") for n in (1, 2, 3, 4, 5, 6, 8, 9, 12, 724, 725)] == [
        1, 2, 4, 4, 5, 8, 8, 11, 16, 724, 1024]
    for n in range(1, 3000):
        bound = round_up(n, "sqrt2")
        assert n <= bound <= n * 1.5 and round_up(bound, "sqrt2") == bound


def test_numbers_of_a_bucket_are_tuned_once(triton, cpu):
    run = job(cpu.socket, fits, BLOCKS, bucket={"n": "sqrt2"})
    assert run(Tensor(8, 8), 600, HEAD=1) == [4, 64]
    assert run(Tensor(8, 8), 724, HEAD=1) == [] and run(Tensor(8, 8), 513, HEAD=1) == []
    assert best_rows(cpu) == ["n=<=724,x.dtype=fp32"]
    assert run(Tensor(8, 8), 725, HEAD=1) == [4, 64]
    again = job(cpu.socket, fits, BLOCKS, bucket={"n": "sqrt2"})
    assert again(Tensor(8, 8), 650, HEAD=1) == []
    exact = job(cpu.socket, fits, BLOCKS)
    assert exact(Tensor(8, 8), 724, HEAD=1) == [4, 64]  # a row of a bucket is no answer for a number


def test_an_answer_that_fails_for_another_number_of_the_bucket_is_replaced(triton, cpu):
    def body(HEAD, BLOCK):
        if big and BLOCK == 64:
            raise OutOfResources("shared memory")

    big = False
    run = job(cpu.socket, body, (4, 16, 64), bucket={"n": "pow2"})
    assert run(Tensor(8, 8), 600, HEAD=1) == [4, 16, 64]
    big = True
    assert run(Tensor(8, 8), 700, HEAD=1) == [] and run.tuner.best_config.kwargs == {"BLOCK": 16}


def test_values_that_are_no_sizes_stay_as_they_are(triton):
    from gemmd.triton_rows import bucket_key
    names, bucket = ["a", "b", "c", "d", "e"], dict.fromkeys("abcd", "pow2")
    assert bucket_key((0, True, None, 3, 3, "fp32"), names, bucket) == (0, True, None, "<=4", 3, "fp32")


@pytest.mark.no_library
@pytest.mark.parametrize("bucket, said", [({"n": "sqrt3"}, "use \"pow2\" or \"sqrt2\""), ({"n": 2}, "bucket of \"n\" is 2"),
                                          ({"N": "pow2"}, "names \"N\", which is not in key=\\['n'\\]")])
def test_a_wrong_bucket_is_told(triton, bucket, said):
    with pytest.raises(ValueError, match=said):
        job(None, fits, bucket=bucket)


@pytest.mark.no_library
def test_install_refuses_a_wrong_bucket_and_ignores_arguments_that_a_kernel_lacks(triton):
    with pytest.raises(ValueError, match="use \"pow2\" or \"sqrt2\""):
        gemmd.triton.install(bucket={"M": "half"})
    for name, value in (("bucket", "M"), ("deadline_ms", "x"), ("deadline_ms", -1), ("gemmd_socket", 5)):
        with pytest.raises((TypeError, ValueError), match=f"{name} is {value!r}: .* is wanted here"):
            gemmd.triton.install(**{name: value})
    assert not hasattr(triton.runtime.autotuner.Autotuner.run, "alone")


def test_install_with_buckets(triton, cpu, install):
    run = kernel(triton)
    run(Tensor(8, 8), 600, HEAD=1)
    install(bucket={"n": "sqrt2", "M": "pow2"})
    assert run(Tensor(8, 8), 700, HEAD=1) == [4, 64] and run(Tensor(8, 8), 600, HEAD=1) == []
    gemmd.triton.uninstall()
    assert run(Tensor(8, 8), 700, HEAD=1) == [4, 64]


# ---- the installed Triton ------------------------------------------------------------------------

PACKAGE = '''
import triton
import triton.language as tl
from triton import autotune
timed = []

def note_block(arguments, **_):
    timed.append(arguments["BLOCK"])

def bench(call, quantiles=None, **_):
    call()
    return [1.0 / timed[-1]] * 3

@autotune([triton.Config({"BLOCK": b}, pre_hook=note_block) for b in (4, 16, 8)], key=["n"], do_bench=bench)
@triton.jit
def add_one(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)
'''
SCRIPT = '''
import importlib, json, sys, torch, triton
import first
if sys.argv[1] == "install":
    import gemmd.triton
    gemmd.triton.install()
second = importlib.import_module("second")
for package in first, second:
    x, out = torch.arange(32.0), torch.zeros(32)
    package.add_one[lambda meta: (triton.cdiv(32, meta["BLOCK"]),)](x, out, 32)
    assert torch.equal(out, x + 1)
print(json.dumps([len(first.timed), len(second.timed), first.add_one.best_config.kwargs["BLOCK"]]))
'''


def test_packages_imported_before_and_after_share_the_installed_triton(cpu, tmp_path):
    pytest.importorskip("triton", reason="Triton is not installed for this Python")
    pytest.importorskip("torch", reason="PyTorch is not installed for this Python")
    for name, text in (("first.py", PACKAGE), ("second.py", PACKAGE), ("script.py", SCRIPT)):
        (tmp_path / name).write_text(text)

    def run(how):
        env = environment(GEMMD_SOCKET=cpu.socket, TRITON_INTERPRET="1", PYTHONPATH=f"{PYTHON}:{tmp_path}")
        out = subprocess.run([sys.executable, tmp_path / "script.py", how], env=env, capture_output=True, text=True)
        assert out.returncode == 0, out.stderr
        return json.loads(out.stdout)

    assert run("alone") == [4, 4, 16]  # three timings and a launch
    assert run("install") == [4, 1, 16]  # the second package's kernel is the first's, and has its answer
    assert run("install") == [1, 1, 16]
