# SPDX-License-Identifier: Apache-2.0
"""gemmd.helion.Backend with Helion from PyPI: many processes, one tuning of each kernel. On the CPU Helion
runs kernels in Pallas's interpreter (JAX). Skipped without Helion."""
import json
import pathlib
import subprocess
import sys
import time
import types

import pytest

pytest.importorskip("jax", reason="JAX, for Helion's interpreter, is not installed for this Python")
pytest.importorskip("helion", reason="Helion is not installed for this Python", exc_type=ImportError)

import gemmd.helion  # noqa: E402
from conftest import environment  # noqa: E402
from gemmd import texts  # noqa: E402

JOB = pathlib.Path(__file__).parent / "helion_job.py"
ENTRY = json.dumps({"config": json.dumps({"block_sizes": [64]}), "key": {"fields": {"hardware": "h" * 2000}}})


@pytest.fixture
def backend(cpu, monkeypatch):
    monkeypatch.setenv("GEMMD_SOCKET", str(cpu.socket))
    monkeypatch.setattr(texts, "_quiet_until", {})
    monkeypatch.setattr(texts, "_warned", False)
    return gemmd.helion.Backend


def start(socket, cache, ranks=1, **env):
    env = environment(GEMMD_SOCKET=socket, HELION_CACHE_DIR=cache, TORCHINDUCTOR_CACHE_DIR=cache, **env)
    return subprocess.Popen([sys.executable, "-W", "always", JOB, "cpu", str(ranks)], env=env, text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def run(*args, **kwargs):
    """Runs helion_job.py. Returns (the result of each process, stderr)."""
    job = start(*args, **kwargs)
    out, said = job.communicate()
    assert job.returncode == 0, said
    return [json.loads(line) for line in out.splitlines() if line.startswith('{"tuned')], said


def test_eight_processes_tune_each_kernel_once(cpu, tmp_path):
    results, _ = run(cpu.socket, tmp_path, ranks=8)
    assert len(results) == 8
    assert sorted(name for r in results for name in r["tuned"]) == ["add", "double"]
    assert all(r["configs"] == results[0]["configs"] for r in results)
    assert len(cpu.call("list", what="best", filter={"op": "custom:helion"})["rows"]) == 2


def test_a_tuning_that_fails_frees_the_kernel_while_its_process_lives(cpu, tmp_path):
    failing = start(cpu.socket, tmp_path / "a", FAIL=1)
    assert failing.stdout.readline() == "no config works\n", failing.communicate()[1]
    (result,), _ = run(cpu.socket, tmp_path / "b")
    assert result["tuned"] == ["add", "double"]
    failing.communicate()
    assert failing.returncode == 0


def test_without_a_daemon_helion_tunes_by_itself_and_later_gives_its_folder(cpu, tmp_path):
    (alone,), said = run(tmp_path / "nobody.sock", tmp_path / "a")
    assert alone["tuned"] == ["add", "double"]
    assert said.count("RuntimeWarning: gemmd") == 1 and "Helion tunes by itself" in said
    (again,), _ = run(cpu.socket, tmp_path / "a")
    assert again["tuned"] == []
    (elsewhere,), _ = run(cpu.socket, tmp_path / "b")
    assert elsewhere == {"tuned": [], "configs": alone["configs"]}


def test_an_entry_comes_back_as_it_was_put_and_the_newest_is_listed_first(backend):
    other = json.dumps({"config": "{}"})
    assert backend().get("k1") is None and backend().get("k2") is None
    backend().put("k1", ENTRY)
    backend().put("k2", other)
    assert backend().get("k1") == ENTRY and backend().get("k2") == other
    assert backend().list() == [other, ENTRY] and list(backend().list(1)) == [other]


def test_an_entry_that_helion_cannot_read_is_unknown(backend):
    shared = texts.Texts("helion", "")
    for text in ("", "text", "[]", '{"config": 1}', '{"config": "[]"}', '{"con'):
        shared.write("k", text)
        assert backend().get("k") is None
    backend().put("k", ENTRY)
    assert backend().get("k") == ENTRY


def test_ranks_that_tune_together_do_not_wait_for_each_other(backend):
    class Cache:
        kernel = types.SimpleNamespace(env=types.SimpleNamespace(process_group_name="0"))

        def get(self):
            return backend().get("k")

    holder = texts.Texts("helion", "")
    assert holder.acquire("k", lease_ms=60000) is None
    assert Cache().get() is None  # would wait for the holder
    holder.write("k", ENTRY)
    assert Cache().get() == ENTRY


class Failing:
    """A cache whose tuning fails."""
    kernel = types.SimpleNamespace(env=None)

    def autotune(self, backend, during):
        self.backend = backend
        assert self.get() is None
        during()
        raise RuntimeError("no config works")

    def get(self):
        return self.backend.get("failing")


def test_a_failed_tuning_frees_the_kernel_also_while_its_exception_is_kept(backend, monkeypatch):
    looks = []
    monkeypatch.setattr(gemmd.helion, "time", types.SimpleNamespace(sleep=lambda s: looks.append(time.sleep(0.001))))
    problem, other = 'custom:helion key="failing"', gemmd.Client()

    def is_watched():
        seen = len(looks)
        while len(looks) < seen + 3:
            time.sleep(0.001)
        assert other.acquire(problem, now=True).outcome == "held"

    with pytest.raises(RuntimeError, match="no config works") as first:
        Failing().autotune(backend(), is_watched)
    with pytest.raises(RuntimeError, match="no config works") as second:
        Failing().autotune(backend(), is_watched)
    assert other.acquire(problem, deadline_ms=30000).outcome == "lease" and first.value and second.value


def test_a_second_try_in_a_thread_keeps_the_lease(backend):
    first = backend()
    assert first.get("k") is None and backend().get("k") is None
    backend().put("k", ENTRY)
    assert first.get("k") == ENTRY
