# SPDX-License-Identifier: Apache-2.0
"""Daemons that die, stop at any moment, or have no descriptors left. kill -9 at random moments:
saved answers stay, and finished searches are not repeated. kills.py has more kinds of changes."""
import os
import random
import resource
import signal
import socket
import sqlite3
import subprocess
import threading
import time

from conftest import RpcError, eventually, gemm, runs

PROBLEMS = [gemm(n=64 * (i + 1), k=64 * (1 + i % 3)) for i in range(40)]


def measured_twice(d):
    return d.sql("SELECT key, config, count(*) FROM trial WHERE stage = 'measure' AND reference = 0 "
                 "GROUP BY key, config HAVING count(*) > 1")


def ask(d, problems, answers):
    """Sends one query after the other until the daemon is gone."""
    try:
        with d.connect() as c:
            for p in problems:
                answer = c.call("get", problem=p, budget=10)
                if answer["saved"]:
                    answers[answer["key"]] = answer
    except (EOFError, OSError, RpcError):
        pass


def test_kill_loop(daemon):
    rng = random.Random(20261121)
    d = daemon(env={"GEMMD_REPLAY_SPEED": "20"})
    answers, longest = {}, 0.5
    for round_ in range(15):
        new = {}
        threads = [threading.Thread(target=ask, args=(d, rng.sample(PROBLEMS, 10), new))
                   for _ in range(3)]
        [t.start() for t in threads]
        time.sleep(rng.uniform(0.02, longest))
        d.kill()
        [t.join() for t in threads]
        answers.update(new)
        if not new:  # no answer came before the kill: kill later next time, since some kills must come after answers
            longest *= 2
        with sqlite3.connect(f"file:{d.database}?mode=ro", uri=True) as db:
            assert db.execute("PRAGMA quick_check").fetchall() == [("ok",)]
        d.start()
        with d.connect() as c:
            for key, answer in answers.items():
                shown = c.call("show", key=key)["answer"]
                assert shown == answer, f"round {round_}: an answer that was saved is gone"
    with d.connect() as c:
        for p in PROBLEMS:
            assert c.call("get", problem=p, budget=10)["tier"] == "exact"
    assert answers, "the kills came before any answer: the test shows nothing"
    assert measured_twice(d) == []


def test_the_daemon_alone_is_killed_and_its_runner_goes(daemon):
    d = daemon(env={"GEMMD_REPLAY_SPEED": "1"})
    c = d.connect()
    c.send("get", problem=gemm(), budget=40)
    eventually(lambda: d.status()["runner"]["state"] == "busy")
    runner = d.runner_pid()
    d.killed = True
    d.process.send_signal(signal.SIGKILL)
    d.process.wait()
    eventually(lambda: not runs(runner))
    d.start()
    assert d.call("get", problem=gemm(), budget=10)["tier"] == "exact"


def test_a_stop_is_clean_at_every_moment(daemon):
    rng = random.Random(7)
    d = daemon(env={"GEMMD_REPLAY_SPEED": "10"})
    for _ in range(12):
        thread = threading.Thread(target=ask, args=(d, rng.sample(PROBLEMS, 5), {}))
        thread.start()
        time.sleep(rng.uniform(0, 0.3))
        assert d.stop() == 0, d.text()
        thread.join()
        assert not d.socket.exists()
        d.start()


def test_a_stop_right_after_the_start(daemon):
    """SIGTERM during a start ends the daemon, by its handler or the signal; the next start works."""
    rng = random.Random(3)
    d = daemon()
    known = d.call("get", problem=gemm(), budget=4)
    assert d.stop() == 0
    for _ in range(8):
        d.process = subprocess.Popen(list(map(str, d.command())), env=d.env,
                                     stdout=d.log.open("a"), stderr=subprocess.STDOUT)
        time.sleep(rng.uniform(0, 0.2))
        d.process.terminate()
        assert d.process.wait(20) in (0, -signal.SIGTERM), d.text()
    d.start()
    assert d.call("get", problem=gemm()) == known


def test_no_descriptors_left(daemon):
    """Connections beyond the limit of open files are dropped or refused; the daemon recovers."""
    d = daemon()
    known = d.call("get", problem=gemm(), budget=4)
    resource.prlimit(d.process.pid, resource.RLIMIT_NOFILE, (48, 48))
    held = []
    for _ in range(100):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(5)
        s.connect(str(d.socket))
        held.append(s)
    with held[0]:
        pass
    [s.close() for s in held]

    def answers_again():
        try:
            return d.call("get", problem=gemm()) == known
        except OSError:  # the daemon has not seen the closed connections yet
            return False

    eventually(answers_again)


def test_many_clients_come_and_go(daemon):
    d = daemon(env={"GEMMD_REPLAY_SPEED": "20"})
    rng = random.Random(11)
    stop = time.monotonic() + 4

    def come_and_go(seed):
        r = random.Random(seed)
        while time.monotonic() < stop:
            with d.connect() as c:
                for _ in range(r.randint(1, 5)):
                    c.send("get", problem=r.choice(PROBLEMS), budget=r.randint(2, 6),
                           wait=r.choice(["tuned", "now", "cached"]), progress=r.random() < 0.5,
                           deadline_ms=r.choice([0, 1, 50]), again=r.random() < 0.2)
                if r.random() < 0.5:
                    c.send("cancel", request=c.next_id)
                if r.random() < 0.5:
                    time.sleep(r.uniform(0, 0.05))
                    try:
                        c.socket.settimeout(0.02)
                        c.read()
                    except OSError:
                        pass

    threads = [threading.Thread(target=come_and_go, args=(rng.random(),)) for _ in range(16)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    eventually(lambda: d.status()["connections"] == 1)
    status = d.status()
    assert status["pid"] == d.process.pid
    assert status["errors"].get("internal", 0) == 0
    assert d.stop() == 0
