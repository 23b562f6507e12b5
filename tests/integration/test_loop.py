# SPDX-License-Identifier: Apache-2.0
"""The event loop and its surroundings: nobody waits for another's work, late answers arrive, and what
is missing outside (folders, descriptors, rights) is said and survived."""
import grp
import os
import shutil
import socket
import threading
import time

import pytest

from conftest import PATIENCE, RUNNER, Daemon, RpcError, eventually, gemm


# ---- half-closed connections ------------------------------------------------------------------------

def test_a_client_that_only_stops_sending_gets_its_late_answers(daemon):
    d = daemon()
    with d.connect() as c:
        tuning = c.send("get", problem=gemm(), budget=8)
        status = c.send("status")
        c.socket.shutdown(socket.SHUT_WR)
        assert c.wait(status)["tuning"] == "on"
        assert c.wait(tuning)["tier"] == "exact"
        with pytest.raises(EOFError):
            c.read()
    eventually(lambda: d.status()["connections"] == 1)


def test_a_half_closed_client_that_leaves_ends_its_tuning(daemon):
    d = daemon(env={"GEMMD_REPLAY_SPEED": "1"})
    c = d.connect()
    c.send("get", problem=gemm(), budget=400, iters=100)
    eventually(lambda: d.status()["jobs"]["running"] == 1)
    c.socket.shutdown(socket.SHUT_WR)
    assert d.status()["jobs"]["running"] == 1, "it still waits for the answer"
    c.close()
    eventually(lambda: d.status()["jobs"]["running"] == 0)
    assert d.status()["jobs"]["cancelled"] == 1


# ---- work of others ---------------------------------------------------------------------------------

def test_many_misses_keep_nobody_waiting(daemon):
    d = daemon()
    waits, stop = [], threading.Event()

    def ask():
        with d.connect() as c:
            while not stop.is_set():
                began = time.monotonic()
                c.call("hello", version=1)
                waits.append(time.monotonic() - began)
                time.sleep(0.001)

    asker = threading.Thread(target=ask)
    asker.start()
    with d.connect() as c:
        problems = [gemm(m=64 * i, n=64 * (i % 7 + 1), k=128 * (i % 11 + 1)) for i in range(1, 181)]
        answers = c.call("get_many", problems=problems, wait="now")["answers"]
    stop.set()
    asker.join()
    assert len(answers) == 180 and all("config" in a for a in answers)
    assert waits and max(waits) < 0.15 * PATIENCE


# ---- open files -------------------------------------------------------------------------------------

@pytest.fixture
def files_limit(monkeypatch):
    """files_limit("64:1024"): daemons start with so many open files, soft and hard."""
    command = Daemon.command

    def limit(files):
        monkeypatch.setattr(Daemon, "command",
                            lambda self: ["prlimit", f"--nofile={files}", *command(self)])

    return limit


def test_the_soft_limit_of_open_files_is_raised(daemon, files_limit):
    files_limit("64:512")
    d = daemon(options=["--max-connections", "200"])
    held = [d.connect() for _ in range(150)]
    for c in held:
        assert c.call("hello", version=1)["version"] == 1
    for c in held:
        c.close()


def test_under_a_hard_limit_of_open_files_others_are_busy_and_tuning_works(daemon, files_limit):
    files_limit("64:64")
    d = daemon()
    assert "LimitNOFILE" in d.text()
    served, refused = [], []
    for _ in range(60):
        c = d.connect()
        try:
            c.send("hello", version=1)
        except BrokenPipeError:
            pass  # refused before it could ask
        error = c.read()[2]
        if error:
            assert error["name"] == "busy" and "connections" in error["message"]
            refused.append(c)
        else:
            served.append(c)
    assert len(served) >= 16 and refused
    assert served[0].call("get", problem=gemm(), budget=4)["tier"] == "exact"
    for c in served + refused:
        c.close()


def test_a_runner_that_cannot_be_started_is_no_crash(daemon, folder):
    copy = folder / "runner"
    shutil.copy(RUNNER, copy)
    d = daemon(options=["--runner", copy])
    copy.unlink()
    with pytest.raises(RpcError) as e:
        d.call("get", problem=gemm(), budget=4)
    assert e.value.name == "io" and str(copy) in e.value.message


# ---- whose directory ---------------------------------------------------------------------------------

@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_group_gets_the_socket_and_only_a_directory_of_gemmd(daemon, folder):
    group = next(g for g in grp.getgrall() if g.gr_gid != folder.stat().st_gid)
    d = daemon(options=["--group", group.gr_name])
    assert d.socket.stat().st_gid == group.gr_gid
    assert folder.stat().st_gid != group.gr_gid, "it was there before"
    d.stop()
    d.socket = folder / "made" / "gemmd.sock"
    d.start()
    assert d.socket.stat().st_gid == d.socket.parent.stat().st_gid == group.gr_gid
