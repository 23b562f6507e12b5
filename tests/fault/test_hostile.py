# SPDX-License-Identifier: Apache-2.0
"""Hostile clients and runners: they are cut off in time, and other clients notice nothing.
Deadlines are short here; gemmd(8) has the defaults."""
import os
import resource
import signal
import socket
import subprocess
import threading
import time

import msgpack
import pytest

from conftest import PATIENCE, Client, RpcError, eventually, gemm
from test_share import ROOT_ONLY, as_nobody, flood_unread, user

HELLO = msgpack.packb([0, 1, "hello", {}])


class Asker:
    """Queries all the time. `usual` is the median wait in seconds: other work affects single waits."""

    def __init__(self, d):
        self.d, self.waits = d, []
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        with self.d.connect() as c:
            while not self.stop.is_set():
                began = time.monotonic()
                c.call("hello", version=1)
                self.waits.append(time.monotonic() - began)
                time.sleep(0.002)

    def __enter__(self):
        self.thread.start()
        eventually(lambda: self.waits)  # the Asker has its connection before the hostile clients connect
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()

    @property
    def usual(self):
        return sorted(self.waits)[len(self.waits) // 2]


# ---- clients that do not read, or write slowly ------------------------------------------------------

def test_who_does_not_read_is_not_read_from(daemon):
    """The client's unread output is bounded. When the client reads again, no answer is missing."""
    d = daemon()
    silent, = flood_unread(d, 1, HELLO)
    status = d.status()
    assert user(status)["bytes_out"] < 384 * 1024 and status["rss_bytes"] < 64 * 2**20
    asked = status["requests"]
    time.sleep(0.2)
    assert d.status()["requests"] - asked < 5, "nothing more is taken from it"
    silent.socket.setblocking(True)
    silent.socket.settimeout(10)
    silent.socket.shutdown(socket.SHUT_WR)
    n = 0
    with pytest.raises(EOFError):
        while silent.read()[1] == 1:
            n += 1
    assert n > 500, "every whole request is answered"


def test_who_never_reads_is_hung_up_on_after_a_while(daemon):
    d = daemon(options=["--answer-ms", "1000"])
    with Asker(d) as asker:
        silent = flood_unread(d, 3, HELLO)
        assert d.status()["connections"] >= 4, "not at once"
        eventually(lambda: d.status()["connections"] == 2)
    assert "does not read its answers" in d.text()
    assert asker.usual < 0.02 * PATIENCE
    [c.close() for c in silent]


def test_a_byte_at_a_time_is_cut_off_and_silence_between_messages_is_not(daemon):
    d = daemon(options=["--message-ms", "400"])
    with d.connect() as idle, d.connect() as slow:
        assert idle.call("hello")["version"] == 1
        began = time.monotonic()
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for byte in msgpack.packb([0, 7, "get", {"problem": gemm(), "wait": "cached"}]) * 10:
                slow.socket.sendall(bytes([byte]))
                time.sleep(0.1)
        assert time.monotonic() - began < 4 * PATIENCE
        message = slow.read()
        assert message[1] == 7 and message[2]["name"] == "malformed" and "400 ms" in message[2]["message"]
        assert idle.call("hello")["version"] == 1


def test_the_daemons_own_sleep_is_no_clients_fault(daemon):
    """After a stop, the daemon reads pending messages before it checks deadlines."""
    d = daemon(options=["--message-ms", "1000"])
    message = msgpack.packb([0, 1, "hello", {"version": 1}])
    with d.connect() as c:
        c.socket.sendall(message[:4])
        time.sleep(0.1)
        d.process.send_signal(signal.SIGSTOP)
        time.sleep(2)
        c.socket.sendall(message[4:])
        d.process.send_signal(signal.SIGCONT)
        assert c.read()[3]["version"] == 1

def test_a_sleep_moves_no_deadline_into_the_future(daemon):
    """Two messages are half sent, at different times, when the daemon is stopped: neither then misses its deadline."""
    d = daemon(options=["--message-ms", "3000"])
    message = msgpack.packb([0, 1, "hello", {"version": 1}])
    with d.connect() as first, d.connect() as second:
        first.socket.sendall(message[:4])
        time.sleep(0.7)
        second.socket.sendall(message[:4])
        time.sleep(0.1)
        d.process.send_signal(signal.SIGSTOP)
        time.sleep(2.5)
        d.process.send_signal(signal.SIGCONT)
        time.sleep(0.2)
        for c in (first, second):
            c.socket.sendall(message[4:])
            assert c.read()[3]["version"] == 1


def test_one_who_floods_waits_for_the_others(daemon):
    """All clients have sent before the daemon looks: eight with hundreds of requests each, the last
    with a single request. The test reads the daemon's own count of answers, and needs no clock."""
    each, d = 450, daemon()
    flooders = [d.connect() for _ in range(8)]
    with d.connect() as c:
        before = c.call("status")["requests"]
        d.process.send_signal(signal.SIGSTOP)
        for i, f in enumerate(flooders):
            f.socket.setblocking(False)
            f.socket.send(b"".join(msgpack.packb([0, n, "get", {
                "problem": gemm(n=64 * (n + 1), k=64 * (i + 1)), "wait": "cached"}]) for n in range(each)))
        request = c.send("status")
        d.process.send_signal(signal.SIGCONT)
        others = c.wait(request)["requests"] - before - 1
        for f in flooders:
            f.socket.setblocking(True)
            f.socket.settimeout(20 * PATIENCE)
            f.wait(each - 1)
        assert c.call("status")["requests"] - before == len(flooders) * each + 2
    assert others < len(flooders) * each / 4


# ---- connections ------------------------------------------------------------------------------------

@ROOT_ONLY
def test_ten_thousand_half_open_connections(daemon):
    """One user opens ten thousand connections, but has a share of 200: the rest get the error `busy`, and
    another user is served."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    n = 10000
    if hard < n + 500:
        pytest.skip(f"at most {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (n + 500, hard))
    d = daemon(options=["--max-connections", "300", "--user-connections", "200"])
    half = msgpack.packb([0, 1, "get", {"problem": gemm()}])[:-5]
    held = []
    try:
        with Asker(d) as asker:
            for _ in range(n):
                s = socket.socket(socket.AF_UNIX)
                s.connect(str(d.socket))
                held.append(s)
                try:
                    s.send(half)
                except BrokenPipeError:
                    pass # already refused
            said = as_nobody(d, "with Client(socket, 5) as c: print(c.call('status')['connections'])")
        assert int(said[0]) <= 200 + 8 + 2
        served = refused = 0
        for s in held:
            s.setblocking(False)
            try:
                data = s.recv(4096)
                refused += b"busy" in data and b"retry later" in data
            except BlockingIOError:
                served += 1
        assert 190 <= served <= 200 and served + refused == n
        assert asker.usual < 0.02 * PATIENCE and len(asker.waits) > 10
    finally:
        [s.close() for s in held]
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    eventually(lambda: d.status()["connections"] == 1)


def test_a_thousand_connects_while_the_daemon_is_busy(daemon):
    """The queue of a stopped daemon takes 500 connections, and the daemon then serves all of them."""
    with open("/proc/sys/net/core/somaxconn") as f:
        if int(f.read()) < 1000:
            pytest.skip("the kernel's own limit (net.core.somaxconn) is below")
    d = daemon()
    d.process.send_signal(signal.SIGSTOP)
    held = []
    try:
        for _ in range(500):
            s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            s.connect(str(d.socket)) # BlockingIOError: the queue is full
            held.append(s)
    finally:
        d.process.send_signal(signal.SIGCONT)
    eventually(lambda: d.status()["connections"] == 501)
    [s.close() for s in held]


# ---- runners ----------------------------------------------------------------------------------------

FLOODS = """
hello()
r, o = order()
attempt(o, limit_ms=60000)
chunk = b"".join(msgpack.packb([2, method, {{"job": o["job"], **more}}]) for method, more in [
    ("progress", {{"phase": "measure", "done": 1}}), ("progress", {{"phase": "final", "done": 1}}),
    ("trial", {{"config": {{"BLOCK_SIZE_M": 32}}, "status": "ok", "time_us": 5.0}}),
    ("nothing", {{"x": "y" * 200}}), ("trial", {{"config": 7}})]) * 200
end = time.monotonic() + {seconds}
while time.monotonic() < end:
    os.write(FD, chunk)
say(1, r, None, {{"config": {{"BLOCK_SIZE_M": 32}}, "time_us": 5.0, "measured": 1}})
order()
"""


def test_a_runner_that_floods_keeps_nobody_waiting(fake):
    d = fake(FLOODS.format(seconds=1.5))
    before = d.status()["rss_bytes"]
    with Asker(d) as asker, d.connect(30) as c:
        answer = c.call("get", problem=gemm(), budget=4, progress=True)
        assert answer["config"] == {"BLOCK_SIZE_M": 32}
    assert asker.usual < 0.02 * PATIENCE, (asker.usual, len(asker.waits))
    status = d.status()
    if "sanitize" not in os.environ.get("GEMMD_BUILD_KIND", ""):
        assert status["rss_bytes"] < before + 64 * 2**20
    assert len(d.log.read_bytes()) < 2**20, "and no log is filled"


NEWS = """
hello()
r, o = order()
attempt(o, limit_ms=60000)
news = b"".join(msgpack.packb([2, "progress", {"job": o["job"], "phase": phase, "done": 1}])
                for phase in ("measure", "final")) * 500
for _ in range(100):
    os.write(FD, news)
say(1, r, None, {"config": {"BLOCK_SIZE_M": 32}, "time_us": 5.0, "measured": 1})
order()
"""


def test_who_does_not_read_gets_no_more_news(fake):
    """The daemon drops progress reports that the client does not read, but not the answer."""
    d = fake(NEWS)
    with d.connect(30) as c:
        request = c.send("get", problem=gemm(), budget=4, progress=True)
        eventually(lambda: d.call("get", problem=gemm(), wait="cached")["tier"] == "exact")
        assert 0 < user(d.status())["bytes_out"] < 384 * 1024
        assert c.wait(request)["config"] == {"BLOCK_SIZE_M": 32}


def stat_fields(path):
    with open(path) as f:
        return f.read().rpartition(")")[2].split()


def nice_values(pid):
    return [int(stat_fields(f"/proc/{pid}/task/{t}/stat")[16]) for t in os.listdir(f"/proc/{pid}/task")]


def test_the_runner_has_a_lower_priority_than_the_loop(daemon):
    mine = os.nice(0)
    if mine >= 5:
        pytest.skip("this test runs at a low priority itself")
    d = daemon(env={"GEMMD_REPLAY_SPEED": "1"})
    with d.connect() as c:
        c.send("get", problem=gemm(), budget=400, iters=100)
        eventually(lambda: d.status()["runner"]["state"] == "busy")
        # A compiler of the runner lowers its own priority (nice 10) soon after its start: wait for that.
        runner = eventually(lambda: (lambda n: len(n) > 1 and max(n) >= 10 and n)(nice_values(d.runner_pid())))
        assert min(runner) >= 5, runner
        assert nice_values(d.process.pid) in ([mine] * 2, [mine] * 3), (
            "the loop, the ledger and, since a list was asked for, its lists: no pool of threads")


# ---- daemons ----------------------------------------------------------------------------------------

def test_many_daemons_at_once_are_one(daemon, folder):
    """Many daemons start on one socket, also on a stale one: one daemon serves, the others exit and name it."""
    d = daemon()
    d.kill()
    assert d.socket.exists()
    rivals = [subprocess.Popen(list(map(str, d.command())), env=d.env, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True) for _ in range(5)]
    ended = eventually(lambda: (lambda e: len(e) == 4 and e)([p for p in rivals if p.poll() is not None]))
    d.process, = [p for p in rivals if p.poll() is None]
    d.killed = False
    for p in ended:
        assert p.returncode == 75 and str(d.process.pid) in p.stderr.read()

    def serves():
        try:
            return d.status()["pid"] == d.process.pid
        except OSError: # a stale socket or no socket: the daemon is still starting
            return False

    eventually(serves)
    for p in rivals:
        p.stderr.close()


# ---- clocks -----------------------------------------------------------------------------------------

JUMP = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long jump(void)
{
    char text[32] = "";
    int fd = open(getenv("TEST_JUMP"), O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (read(fd, text, sizeof(text) - 1) < 0) { text[0] = 0; }
        close(fd);
    }
    return atol(text);
}
int clock_gettime(clockid_t id, struct timespec *t)
{
    int r = (int)syscall(SYS_clock_gettime, id, t);
    if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) { t->tv_sec += jump(); }
    return r;
}
time_t time(time_t *out)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (out) { *out = t.tv_sec; }
    return t.tv_sec;
}
int gettimeofday(struct timeval *restrict v, void *restrict zone)
{
    struct timespec t;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &t);
    v->tv_sec = t.tv_sec;
    v->tv_usec = t.tv_nsec / 1000;
    return 0;
}
"""

YEARS = 10 * 365 * 86400


def test_jumps_of_the_clock_hurry_and_delay_nothing(daemon, folder):
    if "sanitize" in os.environ.get("GEMMD_BUILD_KIND", ""):
        pytest.skip("a sanitizer wants to be loaded first")
    (folder / "jump.c").write_text(JUMP)
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", folder / "jump.so", folder / "jump.c"], check=True)
    offset = folder / "offset"
    offset.write_text("0")
    d = daemon(env={"LD_PRELOAD": str(folder / "jump.so"), "TEST_JUMP": str(offset),
                    "GEMMD_REPLAY_SPEED": "3"},
               options=["--idle-exit-s", "600", "--linger-ms", "600000", "--message-ms", "60000"])
    first = d.call("get", problem=gemm(), budget=4)
    with d.connect() as c, d.connect() as half:
        half.socket.sendall(HELLO[:-3])
        running = c.send("get", problem=gemm(n=512), budget=60, iters=20)
        eventually(lambda: d.status()["runner"]["state"] == "busy")
        offset.write_text(str(YEARS))
        time.sleep(1.1) # meanwhile the daemon checks deadlines once
        offset.write_text(str(-YEARS))
        began = time.monotonic()
        with d.connect() as other:
            late = other.call("get", problem=gemm(n=1024), deadline_ms=300)
        assert 0.25 < time.monotonic() - began < 2 * PATIENCE and "deadline" in late["note"]
        assert c.wait(running)["tier"] == "exact", "no watchdog was hurried"
        half.socket.sendall(HELLO[-3:])
        assert half.wait(1)["version"] == 1
        status = c.call("status")
        assert status["runner"]["deaths"] == 0 and 0 <= status["uptime_s"] < 60
    eventually(lambda: d.status()["jobs"]["running"] == 0)
    offset.write_text(str(YEARS))
    time.sleep(2.2) # chores, twice
    assert d.process.poll() is None, "not idle for ten minutes"
    assert d.call("get", problem=gemm()) == first
    assert d.stop() == 0
    offset.write_text("0")
    d.start()
    assert d.call("get", problem=gemm()) == first
