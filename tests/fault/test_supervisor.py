# SPDX-License-Identifier: Apache-2.0
"""Runners that misbehave in every way. The waiters get an error with the reason, in time; the
daemon continues to serve known answers; repeated failures switch tuning off."""
import os
import signal
import sqlite3
import subprocess
import time

import pytest

from conftest import RpcError, eventually, gemm

CONFIG = {"BLOCK_SIZE_M": 64}

BAD_RUNNERS = {
    # the runner's body, the name of the waiter's error, a word of the error's message
    "ends at once": ("sys.exit(3)", "crashed", "status 3"),
    "says nothing and ends": ("os.close(FD); sys.exit(0)", "crashed", "start"),
    "is no msgpack": ("os.write(FD, b'\\xc1 what?')", "crashed", "no message"),
    "announces 2^29 elements": ("os.write(FD, b'\\xdd\\x20\\x00\\x00\\x00')", "crashed", "no message"),
    "is no rpc": ("say('x', 1)", "crashed", "no message"),
    "cuts a message": ("hello(); r, o = order(); os.write(FD, b'\\x93\\x02\\xa5tri')", "crashed",
                       "status 0"),
    "is of another build": ("say(2, 'hello', {'build': '0-other'}); time.sleep(60)", "internal",
                            "0-other"),
    "says a hello that is none": ("say(2, 'hello', {'build': 7}); time.sleep(60)", "internal", "hello"),
    "announces nonsense": ("hello(); r, o = order(); say(2, 'attempt', {'limit_ms': 'x'});"
                           "time.sleep(60)", "internal", "nonsense"),
    "dies with nothing announced": ("hello(); order(); os.kill(os.getpid(), signal.SIGABRT)",
                                    "crashed", "signal 6"),
    "dies in prepare": ("hello(); r, o = order(); attempt(o, 'prepare');"
                        "os.kill(os.getpid(), signal.SIGSEGV)", "crashed", "prepare"),
    "is silent in prepare": ("hello(); r, o = order(); attempt(o, 'prepare'); time.sleep(60)",
                             "crashed", "300 ms"),
    "fails the order": ("hello(); r, o = order();"
                        "say(1, r, {'name': 'no_memory', 'message': 'none left'}, None);"
                        "time.sleep(60)", "no_memory", "none left"),
    "answers with no result": ("hello(); r, o = order(); say(1, r, None, 7); time.sleep(60)",
                               "invalid", ""),
}


@pytest.mark.parametrize("body,name,word", BAD_RUNNERS.values(), ids=BAD_RUNNERS)
def test_bad_runner(fake, body, name, word):
    d = fake(body)
    with d.connect(20) as c:
        with pytest.raises(RpcError) as e:
            c.call("get", problem=gemm(), budget=4)
        assert e.value.name == name and word in e.value.message, e.value
        assert c.call("get", problem=gemm(n=1024)) == d.known
        assert c.call("get", problem=gemm(), wait="cached")["tier"] in ("default", "near")
        assert c.call("status")["jobs"]["failed"] == 1


NAMED = """
hello()
r, o = order()
known = len(o["avoid"])
attempt(o, config={"BLOCK_SIZE_M": known}, variant="%032x" % known)
os.kill(os.getpid(), signal.SIGSEGV)
"""


def test_a_runner_that_dies_of_every_candidate(fake):
    d = fake(NAMED)
    with d.connect(60) as c:
        with pytest.raises(RpcError) as e:
            c.call("get", problem=gemm(), budget=4)
        assert e.value.name == "crashed" and "times in this tuning" in e.value.message
        rows = c.list("quarantine")
        assert len(rows) >= 8 and all("signal 11" in q["reason"] for q in rows)
        failed = c.list("trials", key=rows[0]["key"], status="crashed")
        assert len(failed) == len(rows) and {t["variant"] for t in failed} == {q["variant"] for q in rows}
        for n in (512, 768):
            with pytest.raises(RpcError):
                c.call("get", problem=gemm(n=n), budget=4)
        status = c.call("status")
        assert "unhealthy" in status["tuning"] and status["runner"]["state"] == "none"
        starts = status["runner"]["starts"]
        with pytest.raises(RpcError) as e:
            c.call("get", problem=gemm(n=2048), budget=4)
        assert e.value.name == "device_lost" and "unhealthy" in e.value.message
        assert "unhealthy" in c.call("get", problem=gemm(n=2048), wait="now")["note"]
        assert c.call("get", problem=gemm(n=1024)) == d.known
        assert c.call("status")["runner"]["starts"] == starts


HEALS = """
hello()
r, o = order()
if os.path.exists(os.path.join(os.path.dirname(sys.argv[0]), "healed")):
    say(2, "trial", {"job": o["job"], "config": {"BLOCK_SIZE_M": 32}, "status": "ok", "time_us": 5.0})
    say(1, r, None, {"config": {"BLOCK_SIZE_M": 32}, "time_us": 5.0, "measured": 1})
    order()
os.kill(os.getpid(), signal.SIGABRT)
"""


def test_tuning_is_tried_again_after_a_while_and_twice_as_long(fake, folder):
    d = fake(HEALS, ["--retry-ms", "400"])

    def is_on():
        return d.status()["tuning"] == "on"

    def fails(c, n):
        with pytest.raises(RpcError) as e:
            c.call("get", problem=gemm(n=n), budget=4)
        return e.value.name

    with d.connect(20) as c:
        assert [fails(c, n) for n in (64, 128, 192, 256)] == ["crashed"] * 3 + ["device_lost"]
        assert "unhealthy" in c.call("status")["tuning"]
        assert c.call("get", problem=gemm(n=1024)) == d.known
        eventually(is_on)
        began = time.monotonic()  # before the failure: the pause may begin long before fails() returns
        assert fails(c, 64) == "crashed" and not is_on(), "one more is enough"
        (folder / "healed").touch()
        eventually(is_on)
        assert time.monotonic() - began > 0.8, "twice as long"
        for n in (64, 128):
            assert c.call("get", problem=gemm(n=n), budget=4)["config"] == {"BLOCK_SIZE_M": 32}
        kinds = [e["kind"] for e in c.list("events", sort="id") if e["kind"].startswith("tuning_")]
        assert kinds == ["tuning_off", "tuning_on"] * 2


HANGS_ONCE = """
hello()
r, o = order()
if not o["avoid"]:
    attempt(o, config={"BLOCK_SIZE_M": 64}, variant="a" * 32, limit_ms=300)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(60)
assert o["avoid"] == ["a" * 32] and o["done"][0]["status"] == "hung"
say(2, "trial", {"job": o["job"], "config": {"BLOCK_SIZE_M": 32}, "variant": "b" * 32,
                 "family": "grouped_gemm", "stage": "measure", "status": "ok", "time_us": 5.0})
say(1, r, None, {"config": {"BLOCK_SIZE_M": 32}, "time_us": 5.0, "measured": 1})
time.sleep(60)
"""


def test_a_hang_is_killed_in_time_and_the_job_goes_on(fake):
    d = fake(HANGS_ONCE)
    with d.connect(30) as c:
        began = time.monotonic()
        answer = c.call("get", problem=gemm(), budget=4)
        assert 0.3 < time.monotonic() - began < 5
        assert answer["config"] == {"BLOCK_SIZE_M": 32} and answer["saved"]
        assert [q["status"] for q in c.list("quarantine")] == ["hung"]


# The runner says bye while gemmd sends an order: the next runner gets this order.
LEAVES = """
hello()
marker = os.path.join(os.path.dirname(sys.argv[0]), "left")
if not os.path.exists(marker):
    open(marker, "w").close()
    r, o = order()
    say(2, "bye", {})
    sys.exit(0)
r, o = order()
say(2, "trial", {"job": o["job"], "config": {"BLOCK_SIZE_M": 32}, "status": "ok", "time_us": 5.0})
say(1, r, None, {"config": {"BLOCK_SIZE_M": 32}, "time_us": 5.0, "measured": 1})
"""


def test_an_order_that_crosses_bye_is_not_lost(fake):
    d = fake(LEAVES)
    with d.connect(30) as c:
        assert c.call("get", problem=gemm(), budget=4)["config"] == {"BLOCK_SIZE_M": 32}
        assert c.call("status")["runner"]["deaths"] == 0


# The runner sends garbage after its job, and gemmd kills it at once. A child keeps its socket open for a while.
FAILS_IDLE = """
hello()
r, o = order()
say(2, "trial", {"job": o["job"], "config": {"BLOCK_SIZE_M": 32}, "status": "ok", "time_us": 5.0})
say(1, r, None, {"config": {"BLOCK_SIZE_M": 32}, "time_us": 5.0, "measured": 1})
if os.fork() == 0:
    os.setsid()
    time.sleep(1)
    os._exit(0)
go = os.path.join(os.path.dirname(sys.argv[0]), "go")
while not os.path.exists(go):
    time.sleep(0.01)
os.write(FD, b"\\xc1 what?")
time.sleep(60)
"""


def test_what_an_idle_runner_did_is_not_the_next_jobs_fault(fake, folder):
    d = fake(FAILS_IDLE)
    with d.connect(30) as c:
        assert c.call("get", problem=gemm(), budget=4)["config"] == {"BLOCK_SIZE_M": 32}
        (folder / "go").touch()
        eventually(lambda: "no message" in d.text(), every=0.01)
        assert c.call("get", problem=gemm(n=512), budget=4)["config"] == {"BLOCK_SIZE_M": 32}
        status = c.call("status")
        assert status["jobs"]["failed"] == 0 and status["runner"]["deaths"] == 1


LEAVES_AT_ONCE = """
os.write(FD, b"".join(map(msgpack.packb, ([2, "hello", {"build": BUILD}], [2, "bye", {}]))))
"""


def test_runners_that_all_leave_before_their_order_end_the_job(fake):
    d = fake(LEAVES_AT_ONCE)
    with d.connect(30) as c:
        with pytest.raises(RpcError) as e:
            c.call("get", problem=gemm(), budget=4)
        assert e.value.name == "busy" and "left before they had an order" in e.value.message
        assert c.call("status")["runner"]["starts"] == 5


def test_runners_that_left_a_cancelled_job_are_not_counted_for_the_next(fake):
    d = fake("time.sleep(0.3)\n" + LEAVES_AT_ONCE)
    c = d.connect(30)
    c.send("get", problem=gemm(), budget=4)
    eventually(lambda: d.status()["runner"]["starts"] == 4, every=0.01)
    c.close()
    eventually(lambda: d.status()["jobs"]["cancelled"] == 1)
    eventually(lambda: d.status()["runner"]["state"] == "none", every=0.01)
    with d.connect(30) as c:
        with pytest.raises(RpcError, match="5 runners in a row"):
            c.call("get", problem=gemm(n=512), budget=4)
    assert d.status()["runner"]["starts"] == 9


HANGS = """
hello()
while True:
    r, o = order()
    if "a" * 32 not in o["avoid"]:
        attempt(o, config={"BLOCK_SIZE_M": 64}, variant="a" * 32, limit_ms=300)
        time.sleep(60)
    say(2, "trial", {"job": o["job"], "config": {"BLOCK_SIZE_M": 32}, "variant": "b" * 32,
                     "family": "grouped_gemm", "stage": "measure", "status": "ok", "time_us": 5.0})
    say(1, r, None, {"config": {"BLOCK_SIZE_M": 32}, "time_us": 5.0, "measured": 1})
"""


def test_what_hung_is_not_launched_again_while_no_database_takes_it(fake):
    """While the database is locked, an idle gemmd does not exit: only its memory has the quarantine."""
    d = fake(HANGS, ["--idle-exit-s", "1"])
    h = sqlite3.connect(d.database, isolation_level=None)
    h.execute("BEGIN IMMEDIATE")
    with d.connect(60) as c:
        for n in (128, 256, 512):
            assert c.call("get", problem=gemm(n=n), budget=4)["config"] == {"BLOCK_SIZE_M": 32}
        status = c.call("status")
        assert status["runner"]["deaths"] == 1
        assert status["store"]["unsaved_quarantine"] == 1 and status["store"]["quarantined"] == 0
    with pytest.raises(subprocess.TimeoutExpired):
        d.process.wait(3)
    h.close()
    assert d.process.wait(20) == 0
    assert d.sql("SELECT variant, deaths FROM quarantine") == [("a" * 32, 1)]


STAYS = LEAVES.replace("sys.exit(0)", "attempt(o, limit_ms=0); time.sleep(100)")


def test_a_runner_that_says_bye_and_stays_is_killed(fake):
    """A runner has 5 s from its bye to its exit."""
    d = fake(STAYS)
    with d.connect(30) as c:
        assert c.call("get", problem=gemm(), budget=4)["config"] == {"BLOCK_SIZE_M": 32}
        assert c.call("status")["runner"]["deaths"] == 0 and c.list("quarantine") == []
    assert "said that it leaves and did not end within 5 s: killed" in d.text()


IGNORES_CANCEL = """
hello()
r, o = order()
attempt(o, config={"BLOCK_SIZE_M": 64}, variant="a" * 32, limit_ms=100000)
time.sleep(100)
"""


def test_a_runner_that_ignores_cancel_is_killed(fake):
    d = fake(IGNORES_CANCEL)
    c = d.connect(30)
    c.send("get", problem=gemm(), budget=4)
    eventually(lambda: d.status()["runner"]["state"] == "busy")
    c.close()
    eventually(lambda: d.status()["jobs"]["cancelled"] == 1, 15)
    assert d.call("list", what="quarantine")["total"] == 0, "nobody is to blame"
    assert d.status()["runner"]["state"] == "none"


def test_a_job_waits_for_the_cancelled_one_to_end(fake):
    d = fake(IGNORES_CANCEL)
    first = d.connect(30)
    first.send("get", problem=gemm(), budget=4)
    eventually(lambda: d.status()["runner"]["state"] == "busy")
    first.close()
    with d.connect(30) as c:
        request = c.send("get", problem=gemm(), budget=4, deadline_ms=20000)
        eventually(lambda: d.status()["jobs"]["cancelled"] == 1, 15)
        eventually(lambda: d.status()["runner"]["state"] == "busy")
        assert c.call("cancel", request=request)["cancelled"]
        with pytest.raises(RpcError) as e:
            c.wait(request)
        assert e.value.name == "cancelled"


def test_a_daemon_stops_while_its_runner_hangs(fake):
    d = fake("signal.signal(signal.SIGTERM, signal.SIG_IGN); hello(); order(); time.sleep(100)")
    c = d.connect(30)
    c.send("get", problem=gemm(), budget=4)
    eventually(lambda: d.status()["runner"]["state"] == "busy")
    began = time.monotonic()
    assert d.stop() == 0
    assert time.monotonic() - began < 5


def test_a_silent_runner(fake):
    """A runner has 30 s to say that it has started."""
    d = fake("time.sleep(100)")
    with d.connect(60) as c:
        began = time.monotonic()
        with pytest.raises(RpcError) as e:
            c.call("get", problem=gemm(), budget=4)
        assert e.value.name == "crashed" and "said nothing" in e.value.message
        assert 25 < time.monotonic() - began < 45


STEPS = """
def work(ms):  # of its own time: what it is stopped for is not part of it
    for _ in range(ms // 20):
        time.sleep(0.02)

hello()
r, o = order()
for variant in {variants!r}:
    attempt(o, config={{"BLOCK_SIZE_M": 64}}, variant=variant * 32, limit_ms={limit_ms})
    work({step_ms})
say(2, "trial", {{"job": o["job"], "config": {{"BLOCK_SIZE_M": 32}}, "status": "ok", "time_us": 5.0}})
say(1, r, None, {{"config": {{"BLOCK_SIZE_M": 32}}, "time_us": 5.0, "measured": 1}})
time.sleep(60)
"""


@pytest.mark.parametrize("both,stopped_s", [(False, 2.4), (True, 2.4), (True, 1.2)])
def test_who_is_stopped_blames_no_kernel(fake, both, stopped_s):
    """Ctrl-Z, a paused container or a debugger may stop all processes for less or more than a step's limit."""
    d = fake(STEPS.format(variants="abc", limit_ms=1500, step_ms=800))
    with d.connect(30) as c:
        request = c.send("get", problem=gemm(), budget=4)
        eventually(lambda: d.status()["runner"]["state"] == "busy", every=0.01)
        time.sleep(0.1)
        stopped = [d.process.pid] + ([d.runner_pid()] if both else [])
        for pid in reversed(stopped):
            os.kill(pid, signal.SIGSTOP)
        time.sleep(stopped_s)
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        assert c.wait(request)["config"] == {"BLOCK_SIZE_M": 32}
        assert c.list("quarantine") == []
        assert c.call("status")["runner"]["deaths"] == 0
