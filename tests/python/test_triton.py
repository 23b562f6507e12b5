# SPDX-License-Identifier: Apache-2.0
"""gemmd.triton.autotune in Triton's interpreter: many processes, one tuning; a config more is one
timing more; failures are kept; without a daemon Triton tunes alone. Skipped without Triton."""
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import types

import pytest

triton = pytest.importorskip("triton", reason="Triton is not installed for this Python")
pytest.importorskip("torch", reason="PyTorch is not installed for this Python")

import gemmd  # noqa: E402
from conftest import environment  # noqa: E402

JOB = pathlib.Path(__file__).parent / "triton_job.py"
COMPILED = JOB.with_name("triton_compiled.py")


def start(socket, blocks, n=64, odd=(), **env):
    return subprocess.Popen([sys.executable, "-W", "always", JOB, blocks, str(n), *odd],
                            env=environment(GEMMD_SOCKET=socket, TRITON_INTERPRET="1", **env),
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def run_together(jobs):
    """Lets all jobs go at once when they are ready; returns stdout and stderr of each."""
    for job in jobs:
        assert job.stdout.readline() == "ready\n", job.communicate()[1]
    for job in jobs:
        job.stdin.write("go\n")
        job.stdin.flush()
    out = []
    for job in jobs:
        text, said = job.communicate()
        assert job.returncode == 0, said
        out.append((json.loads(text.splitlines()[-1]), said))
    return out


def run(socket, blocks, n=64, odd=(), **env):
    return run_together([start(socket, blocks, n, odd, **env)])[0][0]


def test_many_processes_one_tuning_and_none_at_the_next_start(cpu):
    ranks = [r for r, _ in run_together([start(cpu.socket, "4,16,8") for _ in range(3)])]
    assert all(r["right"] and r["best"] == 16 for r in ranks)
    assert sorted(len(r["timed"]) for r in ranks) == [0, 0, 3]
    cpu.stop()
    cpu.start()
    again = run(cpu.socket, "4,16,8")
    assert again == {"timed": [], "best": 16, "right": True}
    rows = cpu.call("list", what="best", filter={})["rows"]
    assert len(rows) == 1 and "add_one" in json.dumps(rows[0]) and "n=64" in json.dumps(rows[0])


def test_only_what_is_new_is_timed(cpu):
    assert run(cpu.socket, "4,8")["timed"] == [4, 8]
    assert run(cpu.socket, "4,8,16") == {"timed": [8, 16], "best": 16, "right": True}  # 8 is the best known config
    assert run(cpu.socket, "4") == {"timed": [], "best": 4, "right": True}  # the only config needs no timing
    assert run(cpu.socket, "8,4") == {"timed": [], "best": 8, "right": True}  # without the winner 16, the next best wins
    assert run(cpu.socket, "4,8", n=32)["timed"] == [4, 8]  # another key


def test_a_moved_result_answers_as_it_did_where_it_was_measured(cpu, tmp_path):
    assert run(cpu.socket, "4,8,2")["timed"] == [4, 8, 2]  # the last config fails
    cpu.ctl("export", "--to", tmp_path / "moved.json")
    row, = cpu.call("list", what="best", filter={})["rows"]
    cpu.call("evict", key=row["key"])
    cpu.ctl("import", tmp_path / "moved.json")
    assert run(cpu.socket, "4,8,2") == {"timed": [], "best": 8, "right": True}


def test_a_constant_of_one_job_is_not_that_of_the_next(cpu):
    """The value of an argument that is no key belongs to the row: the best config for one value may fail for
    another."""
    assert run(cpu.socket, "4,64", HEAD="64") == {"timed": [4, 64], "best": 64, "right": True}
    assert run(cpu.socket, "4,64", HEAD="128")["best"] == 4
    assert run(cpu.socket, "4,64", HEAD="128") == {"timed": [], "best": 4, "right": True}
    assert run(cpu.socket, "4,64", HEAD="64") == {"timed": [], "best": 64, "right": True}
    assert {t["status"] for t in cpu.call("list", what="trials", filter={})["rows"]} == {"ok", "resource"}


def test_a_code_base_whose_triton_autotune_is_gemmd_s(cpu):
    assert run(cpu.socket, "4,16,8", CONVERTED="1") == {"timed": [4, 16, 8], "best": 16, "right": True}
    assert run(cpu.socket, "4,16,8", CONVERTED="1")["timed"] == []


def test_what_triton_s_compiler_gets_and_how_it_ends(tmp_path):
    """Compiles by the backend of the installed Triton, which needs no GPU; a script takes the place of ptxas."""
    real = next(pathlib.Path(triton.__file__).parent.glob("backends/nvidia/bin/ptxas"))

    def compiled(end, **env):
        ptxas = tmp_path / "ptxas"
        ptxas.write_text(f'#!/bin/sh\ncase "$*" in *--version*) exec {real} --version;; esac\n{end}\n')
        ptxas.chmod(0o755)
        env = environment(TRITON_PTXAS_PATH=ptxas, TRITON_CACHE_DIR=tmp_path / "cache", **env)
        env.pop("TRITON_INTERPRET", None)
        job = subprocess.run([sys.executable, COMPILED], env=env, capture_output=True, text=True)
        assert job.returncode == 0, job.stderr
        lines = job.stdout.splitlines()
        return lines[0], next(line for line in lines if line.startswith("custom:triton")), lines[-1]

    first = compiled("kill -KILL $$")
    assert first[0] == "7 True" and first[2] == "PTXASError crashed"
    assert compiled("echo 'ptxas fatal   : No space left on device' >&2; exit 255")[2] == "PTXASError crashed"
    refused = compiled("echo 'ptxas k.ptx, line 9; error   : Unknown symbol' >&2; exit 255", DISABLE_LLVM_OPT="1")
    assert refused[2] == "PTXASError compile" and refused[1] != first[1]


def test_failures_are_recorded_with_their_reason(cpu):
    first = run(cpu.socket, "2,4,8")
    assert first["best"] == 8 and first["timed"] == [2, 4, 8]
    assert run(cpu.socket, "2,4,8")["timed"] == []
    failures = [t for t in cpu.call("list", what="trials", filter={})["rows"]
                if t["status"] != "ok"]
    assert [t["status"] for t in failures] == ["resource"]
    assert "shared memory" in json.dumps(failures[0])


def test_a_time_that_is_none_is_a_failure_of_its_config(cpu):
    odd = ("4=inf", "16=nan", "32=0", "64=-1")
    first = run(cpu.socket, "4,8,16,32,64", odd=odd)
    assert first == {"timed": [4, 8, 16, 32, 64], "best": 8, "right": True}
    assert run(cpu.socket, "4,8,16,32,64", odd=odd) == {"timed": [], "best": 8, "right": True}
    reasons = {t["reason"] for t in cpu.call("list", what="trials", filter={})["rows"]
               if t["status"] != "ok"}
    assert reasons == {f"do_bench returned {ms}" for ms in ("inf", "nan", "0", "-1")}


def test_without_a_daemon_triton_tunes_by_itself(tmp_path):
    (result, said), = run_together([start(tmp_path / "nobody.sock", "4,16")])
    assert result == {"timed": [4, 16], "best": 16, "right": True}
    assert said.count("RuntimeWarning") == 1 and "Triton tunes by itself" in said


@pytest.mark.parametrize("deadline_ms", [0, 300])
def test_a_daemon_that_hangs_is_met_once(tmp_path, deadline_ms):
    """The first call notices that the daemon hangs. After that Triton tunes by itself: every chosen config was
    timed."""
    path = tmp_path / "hangs.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        (result, said), = run_together([start(path, "4,16", "64,32,48", DEADLINE_MS=deadline_ms)])
        assert result == {"timed": [4, 16] * 3, "best": 16, "right": True}
        assert said.count("RuntimeWarning") == 1 and "Triton tunes by itself" in said
        assert connections(listener) <= 2  # a connection asks, another looks whether the daemon lives


def connections(listener):
    """Accepts and counts the connections that wait at the listener."""
    listener.setblocking(False)
    n = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            listener.accept()[0].close()
            n += 1
    return n


class Late:
    """A Client with a live daemon that has not said "held" by the deadline."""

    def acquire(self, *_, **__):
        raise gemmd.errors.make_error("acquire", -1, "deadline", "late")

    def reaches_daemon(self):
        return True


def test_what_is_taken_meanwhile_is_asked_for_again(monkeypatch):
    import gemmd.triton as shared
    configs, now = [triton.Config({"B": 1}), triton.Config({"B": 2})], [0.0]
    assert shared.decide(Late(), "custom:x", configs, None, 100) == (configs[0], True)
    tuner = types.SimpleNamespace(prune_configs=lambda _: configs, do_bench=None)
    cache = shared.SharedCache(tuner, None, 100)
    cache.call.args = cache.call.kwargs = {}
    answers = iter([(configs[0], True), (configs[1], False)])
    monkeypatch.setattr(shared, "_client", lambda *_: None)
    monkeypatch.setattr(shared, "problem_of", lambda *_: "custom:x")
    monkeypatch.setattr(shared, "decide", lambda *_: next(answers))
    monkeypatch.setattr(shared, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    for now[0], best in ((0, configs[0]), (29, configs[0]), (31, configs[1]), (99, configs[1])):
        assert "key" in cache and cache["key"] is best


def test_a_cache_that_is_looked_into_outside_a_launch(monkeypatch):
    """A debugger, say, looks into the cache: it sees known configs, and no daemon is asked for others."""
    import gemmd.triton as shared
    monkeypatch.setattr(shared, "_client", lambda *_: pytest.fail("gemmd is asked"))
    cache = shared.SharedCache(types.SimpleNamespace(), None, 0)
    cache["known"], cache["stopgap"] = triton.Config({"B": 1}), triton.Config({"B": 2})
    cache.stopgaps["stopgap"] = 0.0
    assert "known" in cache and "other" not in cache and "stopgap" not in cache
    assert "stopgap" in cache.stopgaps  # it stays a stopgap: the next launch asks the daemon again


def test_a_holder_that_dies_leaves_what_it_timed(cpu):
    holder = start(cpu.socket, ",".join(["4"] + [str(2 ** i) for i in range(3, 9)]))
    assert holder.stdout.readline() == "ready\n"
    holder.stdin.write("go\n")
    holder.stdin.flush()
    while not cpu.call("list", what="trials", filter={})["rows"]:
        assert holder.poll() is None
    holder.kill()
    holder.wait()
    blocks = ",".join(["4"] + [str(2 ** i) for i in range(3, 9)])
    result = run(cpu.socket, blocks)
    new = [block for i, block in enumerate(result["timed"]) if i % 2]  # every second is new; between them is the best
    assert result["best"] == 256 and 0 < len(new) < 7 and 4 not in new


def test_a_child_of_a_fork_does_not_inherit_a_held_lock():
    """A process forks while another thread holds the lock. The child lacks that thread, but must get the lock."""
    import gemmd.triton
    cache, exits = gemmd.triton.SharedCache(None, None, 0), []

    def fork():
        child = os.fork()
        if child == 0:
            os._exit(0 if cache.lock().acquire(timeout=2) else 1)
        exits.append(os.waitpid(child, 0)[1])

    with cache.lock():
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
    assert exits == [0]
