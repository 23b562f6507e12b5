# SPDX-License-Identifier: Apache-2.0
"""The event loop and its surroundings: no client waits for another's work, late answers arrive, and
missing resources (folders, descriptors, rights) are reported and survived."""
import grp
import os
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest

from conftest import GEMMD, PATIENCE, RUNNER, SYNTHETIC, Daemon, RpcError, eventually, gemm


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
    jobs = d.status()["jobs"]
    assert jobs["cancelled"] == 1, f"{jobs}\n{d.text()}"


# ---- other clients' work ----------------------------------------------------------------------------

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
    """files_limit("64:1024"): starts daemons with these limits of open files, soft and hard."""
    command = Daemon.command

    def limit(files):
        monkeypatch.setattr(Daemon, "command",
                            lambda self: ["prlimit", f"--nofile={files}", *command(self)])

    return limit


def test_the_soft_limit_of_open_files_is_raised(daemon, files_limit):
    files_limit("64:512")
    d = daemon(options=["--max-connections", "200"])
    held = [d.connect() for _ in range(140)]  # a user's share is 150, and a connection may still be closing
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
            pass  # refused before its request
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


# ---- owners of directories ---------------------------------------------------------------------------

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


# ---- modules ----------------------------------------------------------------------------------------

def fetch(c, module):
    data, offset = b"", 0
    while offset is not None:
        part = c.call("module", id=module, offset=offset)
        data, offset = data + part["data"], part["next"]
        assert len(data) <= part["size"]
    assert len(data) == part["size"]
    return data


def test_a_cache_that_is_removed_comes_back(daemon):
    d = daemon(own_cache=True)
    d.call("get", problem=gemm(), budget=4)
    shutil.rmtree(d.cache)
    answer = d.call("get", problem=gemm(n=1024), budget=4)
    with d.connect() as c:
        assert answer["module"] and fetch(c, answer["module"])


def test_an_answer_names_no_module_that_is_not_there(daemon):
    d = daemon(own_cache=True)
    shutil.rmtree(d.cache)
    d.cache.write_text("in the way")
    answer = d.call("get", problem=gemm(), budget=4)
    assert answer["tier"] == "exact" and answer["module"] == ""
    assert "names none" in d.text()
    d.cache.unlink()


def test_a_module_comes_in_parts_and_a_damaged_one_not_at_all(daemon):
    d = daemon(own_cache=True)
    with d.connect() as c:
        module = c.call("get", problem=gemm(), budget=4)["module"]
        path, = (d.cache / "modules").glob(module + ".*")
        assert fetch(c, module) == path.read_bytes()
        assert c.call("module", id=module, offset=0)["suffix"] == path.suffix[1:]
        size = path.stat().st_size
        assert c.call("module", id=module, offset=size)["data"] == b""
        with pytest.raises(RpcError) as e:
            c.call("module", id=module, offset=size + 1)
        assert e.value.name == "invalid" and str(size) in e.value.message
        path.write_bytes(path.read_bytes() + b"x")
        with pytest.raises(RpcError) as e:
            c.call("module", id=module)
        assert e.value.name == "not_found" and not path.exists()


def test_what_a_killed_writer_left_is_removed_at_the_next_start(daemon):
    d = daemon(own_cache=True)
    d.call("get", problem=gemm(), budget=4)
    d.stop()
    whole = sorted((d.cache / "modules").iterdir())
    old, new = (d.cache / "modules" / f"{'0' * 32}.so.{end}" for end in ("oldOLD", "newNEW"))
    for path in (old, new):
        path.write_bytes(b"half of it")
    os.utime(old, (time.time() - 7200,) * 2)
    d.start()
    assert sorted((d.cache / "modules").iterdir()) == sorted([*whole, new]), "another may be writing"


def test_a_home_that_cannot_be_made_is_said_with_the_way_out(folder):
    (folder / "file").write_text("")
    env = {"HOME": str(folder / "file" / "home"), "GEMMD_SYSTEM": "0"}
    command = [GEMMD, "--device", SYNTHETIC, "--socket", folder / "s", "--runner", RUNNER]
    for more, words in (([], ["--cache-dir", "GEMMD_CACHE_DIR"]),
                        (["--cache-dir", folder / "cache"], ["--database", "XDG_STATE_HOME"])):
        result = subprocess.run([*map(str, [*command, *more])], env=env, capture_output=True,
                                text=True, timeout=60)
        assert result.returncode == 1 and all(w in result.stderr for w in words), result.stderr


# ---- a runner that nothing ends ----------------------------------------------------------------------

@pytest.fixture
def no_kill(folder):
    """SIGKILL has no effect, as for a process that hangs in a driver."""
    if "sanitize" in os.environ.get("GEMMD_BUILD_KIND", ""):
        pytest.skip("a sanitizer wants to be loaded first")
    (folder / "kill.c").write_text("int kill(int pid, int n) { return pid && n ? 0 : 0; }\n")
    library = folder / "kill.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, folder / "kill.c"], check=True)
    (folder / "faults").write_text('{"config": "", "fault": "hang", "stage": "time"}\n')
    return {"LD_PRELOAD": str(library), "GEMMD_REPLAY_FAULTS": str(folder / "faults")}


def test_tuning_is_off_when_a_runner_cannot_be_killed_and_gemmd_stops(daemon, no_kill):
    d = daemon(env=no_kill, options=["--hang-limit-ms", "300"])
    with d.connect() as c:
        with pytest.raises(RpcError) as e:
            c.call("get", problem=gemm(), budget=4)
        assert e.value.name == "device_lost" and "does not end" in e.value.message
        assert c.call("status")["tuning"] != "on"
        assert c.call("get", problem=gemm(), wait="cached")["tier"] == "default"
        runner = d.runner_pid()
    try:
        assert d.stop() == 0
    finally:
        if os.path.exists(f"/proc/{runner}"):
            os.kill(runner, signal.SIGKILL)
