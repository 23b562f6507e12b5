# SPDX-License-Identifier: Apache-2.0
"""gemmd.inductor with the installed Inductor; compiling and timing are stand-ins
(inductor_job.py): many processes, one tuning of each kernel. Skipped without PyTorch and Triton."""
import json
import os
import pathlib
import pickle
import subprocess
import sys
import threading

import pytest

pytest.importorskip("triton", reason="Triton is not installed for this Python")
torch = pytest.importorskip("torch", reason="PyTorch is not installed for this Python")

import gemmd.inductor  # noqa: E402
import inductor_job  # noqa: E402
from conftest import PYTHON, environment  # noqa: E402
from gemmd import texts  # noqa: E402
from torch._inductor import async_compile, remote_cache  # noqa: E402
from torch._inductor.runtime.triton_heuristics import CachingAutotuner  # noqa: E402

JOB = pathlib.Path(inductor_job.__file__)


def run(socket, ranks=1, work="tune", **env):
    """Runs inductor_job.py. Returns ({kernel: result} of each process, stderr)."""
    job = subprocess.run([sys.executable, "-W", "always", JOB, str(ranks), work], capture_output=True, text=True,
                         env=environment(GEMMD_SOCKET=socket, **env))
    assert job.returncode == 0, job.stderr
    return [json.loads(line) for line in job.stdout.splitlines()], job.stderr


@pytest.fixture
def here(cpu, monkeypatch):
    """gemmd.inductor, installed in this process."""
    monkeypatch.setenv("GEMMD_SOCKET", str(cpu.socket))
    monkeypatch.setattr(texts, "_quiet_until", {})
    monkeypatch.setattr(texts, "_of_thread", threading.local())
    gemmd.inductor.install()
    yield
    gemmd.inductor.uninstall()


def timed_in(results, kernel):
    """The timings of each process that timed anything."""
    return [r[kernel]["timed"] for r in results if r[kernel]["timed"]]


def test_eight_processes_tune_each_kernel_once(cpu):
    results, _ = run(cpu.socket, ranks=8, BEST=100)
    assert len(results) == 8
    for kernel in inductor_job.KERNELS:
        assert timed_in(results, kernel) == [[32, 128]]
        assert {r[kernel]["best"] for r in results} == {128}
    later, _ = run(cpu.socket)
    for kernel in inductor_job.KERNELS:  # one config is compiled
        assert later[0][kernel] == {"compiled": [128], "timed": [], "best": 128}


def test_coordinate_descent_runs_once(cpu):
    alone, _ = run("nobody.sock", work="descend")
    results, _ = run(cpu.socket, ranks=4, work="descend")
    for kernel in inductor_job.KERNELS:
        assert alone[0][kernel]["best"] == 64 and len(alone[0][kernel]["timed"]) > 2
        assert len([r for r in results if 64 in r[kernel]["timed"]]) == 1  # 64 is none of the given configs
        assert {r[kernel]["best"] for r in results} == {64}
    later, _ = run(cpu.socket, work="descend")
    assert later[0]["one"]["timed"] == [] and later[0]["one"]["best"] == 64


def test_a_timing_that_fails_frees_the_kernel(cpu, here, monkeypatch):
    def bench(*_, **__):
        raise RuntimeError("no config can be timed")

    monkeypatch.setattr(CachingAutotuner, "bench", bench)
    tuner = inductor_job.load("one")
    with pytest.raises(RuntimeError, match="no config can be timed"):
        tuner.run(None, stream=None)
    remote, key = tuner.save_cache_hook.__self__.remote_cache
    problem = {"op": "custom:inductor", "key": remote._get_key(key)}
    assert cpu.call("acquire", problem=problem, wait="now")["outcome"] == "lease"


def test_a_cache_of_a_process_without_gemmd_is_completed(cpu, here, monkeypatch):
    """A tuner that Inductor's own cache has kept from a process without gemmd has no remote cache: it gets gemmd's."""
    monkeypatch.setattr(CachingAutotuner, "bench", inductor_job.bench)
    for timed in ([32, 128], []):
        tuner = inductor_job.load("one")
        if timed:
            tuner.save_cache_hook.__self__.remote_cache = None
        inductor_job.timed.clear()
        assert tuner.run(None, stream=None) == 32
        assert inductor_job.timed == timed


def test_without_a_daemon_inductor_tunes_by_itself(tmp_path):
    (result,), said = run(tmp_path / "nobody.sock")
    assert result["one"] == {"compiled": [32, 128], "timed": [32, 128], "best": 32}
    assert said.count("RuntimeWarning: gemmd") == 1 and "Inductor tunes by itself" in said
    assert run(tmp_path / "nobody.sock", work="plain")[0][0] == result


def test_an_entry_that_inductor_cannot_read_is_unknown(here):
    backend, entry = gemmd.inductor.Backend(), b'{"num_warps": 4, "num_stages": 2}'
    for data in (b"", b"no JSON", b"[1]", b'{"num_warps": 4}', b'{"num_warps": 4, "num_stages": "2"}'):
        backend.put("k", data)
        assert backend.get("k") is None
    backend.put("k", entry)
    assert backend.get("k") == entry


def compile_in_worker(*_):
    """Stands for Inductor's _worker_compile_triton: the cache that a worker process makes."""
    from torch._inductor.runtime.autotune_cache import AutotuneCache
    meta = {"backend_hash": "backend", "autotune_remote_cache": True, "autotune_local_cache": False}
    return AutotuneCache.create(meta, "worker.py", "configs")


def test_a_compiling_process_gives_its_parent_a_cache_of_gemmd(here, monkeypatch):
    gemmd.inductor.uninstall()
    monkeypatch.setattr(async_compile, "_worker_compile_triton", compile_in_worker)
    gemmd.inductor.install()
    job = pickle.dumps(async_compile._worker_compile_triton)
    code = "import pickle, sys; sys.stdout.buffer.write(pickle.dumps(pickle.load(sys.stdin.buffer)()))"
    path = os.pathsep.join(map(str, (JOB.parent, PYTHON)))
    cache = pickle.loads(subprocess.run([sys.executable, "-c", code], input=job, stdout=subprocess.PIPE,
                                        env=environment(PYTHONPATH=path), check=True).stdout)
    cache.save(inductor_job.triton.Config({"XBLOCK": 8}, num_warps=2), 1000)
    assert compile_in_worker()._read()["XBLOCK"] == 8
    gemmd.inductor.uninstall()


def test_uninstall_leaves_inductor_as_it_was():
    def state():
        return (remote_cache.RemoteAutotuneCache.backend_override_cls, async_compile._worker_compile_triton,
                CachingAutotuner.autotune_to_one_config, CachingAutotuner._coordinate_descent_tuning,
                torch._inductor.config.autotune_remote_cache)

    before = state()
    gemmd.inductor.install()
    gemmd.inductor.install()
    assert all(a is not b for a, b in zip(state(), before))
    gemmd.inductor.uninstall()
    assert state() == before
    with torch._inductor.config.patch(autotune_remote_cache=False):  # the user's own choice
        gemmd.inductor.install()
        assert torch._inductor.config.autotune_remote_cache is False
        gemmd.inductor.uninstall()
