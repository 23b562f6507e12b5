# SPDX-License-Identifier: Apache-2.0
"""Users' own kernels: a lease holder measures, the others wait for the answer. A row answers only
its own user until the owner promotes it."""
import multiprocessing
import os
import pathlib
import shutil
import signal
import tempfile
import threading
import time

import pytest
from conftest import PATIENCE, SYNTHETIC, Client, Daemon, RpcError, eventually
from test_disk import limit_files
from test_daemons import host, kill  # noqa: F401 (host is a fixture)

PROBLEM = {"op": "custom:my_kernel", "source": "0123abcd", "n": 4096}
CONFIGS = [{"BLOCK": 64}, {"BLOCK": 128}, "BLOCK=256"]


def trials(**times):
    """Makes trials: BLOCK_64=5.0 is 5 us for the config BLOCK=64; None is a failure."""
    return [{"config": name.replace("_", "="), "time_us": t} if t else
            {"config": name.replace("_", "="), "status": "resource", "reason": "out of smem"}
            for name, t in times.items()]


def rank(socket, barrier, outcomes):
    """Runs a process of a job: it calls `acquire`, and measures if it gets the lease."""
    with Client(socket) as c:
        barrier.wait()
        got = c.call("acquire", problem=PROBLEM, configs=CONFIGS)
        first = got["outcome"]
        if first == "lease":
            for name, t in (("BLOCK=64", 9.0), ("BLOCK=128", 4.0), ("BLOCK=256", 6.0)):
                time.sleep(0.05)
                c.call("record", problem=PROBLEM, trials=[{"config": name, "time_us": t}])
            c.call("put", problem=PROBLEM, config={"BLOCK": 128}, time_us=4.0)
            got = c.call("acquire", problem=PROBLEM, configs=CONFIGS)
        outcomes.put((first, got["outcome"], got["answer"]["config"]))


def test_eight_processes_one_tunes(daemon):
    d = daemon()
    context = multiprocessing.get_context("fork")
    barrier, outcomes = context.Barrier(8), context.Queue()
    ranks = [context.Process(target=rank, args=(d.socket, barrier, outcomes)) for _ in range(8)]
    [r.start() for r in ranks]
    seen = [outcomes.get(timeout=60) for _ in ranks]
    [r.join() for r in ranks]
    assert sorted(first for first, _, _ in seen) == ["hit"] * 7 + ["lease"]
    assert all(last == "hit" and config == {"BLOCK": 128} for _, last, config in seen)
    assert d.stop() == 0
    d.start()  # the job starts a second time, and measures nothing
    got = d.call("acquire", problem=PROBLEM, configs=CONFIGS)
    assert got["outcome"] == "hit" and got["answer"]["config"] == {"BLOCK": 128}


@pytest.fixture
def elsewhere(daemon):
    """A daemon with its own database, as on another host."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-"))
    d = Daemon(path, SYNTHETIC).start()
    yield d
    assert d.stop() == 0, d.text()
    shutil.rmtree(path, ignore_errors=True)


def test_a_job_whose_results_were_exported_and_imported_times_nothing_again(daemon, elsewhere, folder):
    """An export has the row and its trials. `acquire` answers a custom op when all named configs have trials."""
    a, b = daemon(), elsewhere
    many = [{"config": {"BLOCK": i}, "status": "compile", "reason": "no " * 90} for i in range(1000, 1300)]
    with a.connect() as c:
        assert c.call("acquire", problem=PROBLEM, configs=CONFIGS)["outcome"] == "lease"
        c.call("record", problem=PROBLEM, trials=trials(BLOCK_64=9.0, BLOCK_128=4.0, BLOCK_256=None))
        c.call("record", problem=PROBLEM, trials=[{"config": "BLOCK=512", "status": "hung"}])
        for i in range(0, len(many), 100):
            c.call("record", problem=PROBLEM, trials=many[i:i + 100])
        put = c.call("put", problem=PROBLEM, config={"BLOCK": 128}, time_us=4.0)
        c.call("record", problem={"op": "custom:my_kernel", "n": 1}, trials=trials(BLOCK_64=9.0))
    a.ctl("export", "--to", folder / "a.json")
    with b.connect() as c:
        c.call("record", problem=PROBLEM, trials=trials(BLOCK_64=8.0))  # the daemon's own trial, which stays
        said = b.ctl("import", folder / "a.json").stdout
        got = c.call("acquire", problem=PROBLEM, configs=CONFIGS + [many[-1]["config"]])
        assert got["outcome"] == "hit" and got["answer"]["config"] == {"BLOCK": 128}
        assert {k["config"]["BLOCK"]: (k["status"], k["time_us"]) for k in got["known"]} == {
            64: ("ok", 8.0), 128: ("ok", 4.0), 256: ("resource", None), 1299: ("compile", None)}
        assert said == "1 imported, 0 skipped, with 302 trials\n"
        assert c.call("acquire", problem=PROBLEM, configs=["BLOCK=512"])["outcome"] == "lease", "it may run here"
        assert b.ctl("import", folder / "a.json").stdout == "1 imported, 0 skipped\n"
        assert len(c.list("trials", key=put["key"])) == 303


def test_a_config_more_is_one_measurement_more(daemon):
    d = daemon()
    with d.connect() as c:
        got = c.call("acquire", problem=PROBLEM, configs=CONFIGS[:2])
        assert got["outcome"] == "lease" and got["known"] == [] and got["answer"] is None
        c.call("record", problem=PROBLEM, trials=trials(BLOCK_64=9.0, BLOCK_128=0))
        c.call("put", problem=PROBLEM, config={"BLOCK": 64}, time_us=9.0)
        got = c.call("acquire", problem=PROBLEM, configs=CONFIGS)
        assert got["outcome"] == "lease" and got["answer"]["config"] == {"BLOCK": 64}
        known = {k["config"]["BLOCK"]: (k["status"], k["time_us"]) for k in got["known"]}
        assert known == {64: ("ok", 9.0), 128: ("resource", None)}
        c.call("record", problem=PROBLEM, trials=trials(BLOCK_256=3.0))
        c.call("put", problem=PROBLEM, config={"BLOCK": 256}, time_us=3.0)
        got = c.call("acquire", problem=PROBLEM, configs=CONFIGS)
        assert got["outcome"] == "hit" and got["answer"]["config"] == {"BLOCK": 256}
        # a request without the winner gets the best of its configs, without a measurement
        got = c.call("acquire", problem=PROBLEM, configs=CONFIGS[:2])
        assert got["outcome"] == "hit" and got["answer"]["config"] == {"BLOCK": 64}
        assert got["answer"]["time_us"] == 9.0
        with pytest.raises(RpcError, match="no_config: all 1 configs"):
            c.call("acquire", problem=PROBLEM, configs=["BLOCK=128"])
        assert len(c.list("trials", key=got["answer"]["key"])) == 3


def test_what_answers_the_key_has_not_failed(daemon):
    """A put config answers also if it has no time, or failed before the put."""
    d = daemon()
    with d.connect() as c:
        c.call("put", problem=PROBLEM, config={"BLOCK": 64})  # put without a time
        got = c.call("acquire", problem=PROBLEM, configs=CONFIGS[:1])
        assert got["outcome"] == "hit" and got["answer"]["config"] == {"BLOCK": 64}
        assert got["known"] == [{"config": {"BLOCK": 64}, "status": "ok", "time_us": None, "reason": ""}]
        got = c.call("acquire", problem=PROBLEM, configs=CONFIGS[:2])
        assert got["outcome"] == "lease" and got["answer"]["config"] == {"BLOCK": 64}
        c.call("record", problem=PROBLEM, trials=trials(BLOCK_128=5.0))
        got = c.call("acquire", problem=PROBLEM, configs=CONFIGS[:2])
        assert got["outcome"] == "hit" and got["answer"]["config"] == {"BLOCK": 128}
        assert got["answer"]["time_us"] == 5.0
        other = {**PROBLEM, "n": 1}
        assert c.call("acquire", problem=other, configs=CONFIGS[:1])["outcome"] == "lease"
        c.call("record", problem=other, trials=trials(BLOCK_64=None))
        with pytest.raises(RpcError, match="all 1 configs of key .* failed before"):
            c.call("acquire", problem=other, configs=CONFIGS[:1])
        c.call("put", problem=other, config={"BLOCK": 64}, time_us=7)
        got = c.call("acquire", problem=other, configs=CONFIGS[:1])
        assert got["outcome"] == "hit" and got["answer"]["time_us"] == 7
        timed = {**PROBLEM, "n": 2}  # the recorded time counts, whatever was put
        c.call("acquire", problem=timed)
        c.call("record", problem=timed, trials=trials(BLOCK_64=5.0, BLOCK_128=7.0))
        c.call("put", problem=timed, config={"BLOCK": 64})
        got = c.call("acquire", problem=timed, configs=CONFIGS[:2])
        assert got["outcome"] == "hit" and got["answer"]["config"] == {"BLOCK": 64}
        assert {k["config"]["BLOCK"]: k["time_us"] for k in got["known"]} == {64: 5.0, 128: 7.0}
    assert d.stop() == 0
    got = d.start().call("acquire", problem=other, configs=CONFIGS[:1])
    assert got["outcome"] == "hit" and got["answer"]["time_us"] == 7


def test_a_lease_goes_with_its_connection(daemon):
    d = daemon()
    holder = d.connect()
    assert holder.call("acquire", problem=PROBLEM)["outcome"] == "lease"
    with d.connect() as c:
        asked = c.send("acquire", problem=PROBLEM)
        held = c.call("acquire", problem=PROBLEM, wait="now")
        assert held["outcome"] == "held" and held["holder"]["pid"] == os.getpid()
        holder.call("record", problem=PROBLEM, trials=trials(BLOCK_64=9.0))
        holder.close()
        assert c.wait(asked)["outcome"] == "lease"
        # trials of the lost holder remain
        got = c.call("acquire", problem=PROBLEM, configs=CONFIGS)
        assert got["outcome"] == "lease" and [k["time_us"] for k in got["known"]] == [9.0]


def test_a_silent_holder_loses_it_and_a_busy_one_does_not(daemon):
    d = daemon()
    with d.connect() as holder, d.connect() as c:
        holder.call("acquire", problem=PROBLEM, lease_ms=int(1200 * PATIENCE))
        asked = c.send("acquire", problem=PROBLEM)
        for _ in range(6):
            time.sleep(0.25 * PATIENCE)
            holder.call("record", problem=PROBLEM, trials=trials(BLOCK_64=9.0))
        assert c.call("acquire", problem=PROBLEM, wait="now")["outcome"] == "held"
        assert c.wait(asked)["outcome"] == "lease"
        # a late put is still accepted, but the lease is lost
        assert holder.call("put", problem=PROBLEM, config={"BLOCK": 64}, time_us=9)["saved"]
        assert not holder.call("release", problem=PROBLEM)["released"]
        assert c.call("release", problem=PROBLEM)["released"]
        assert c.call("acquire", problem=PROBLEM)["outcome"] == "hit"


@pytest.mark.parametrize("known", [False, True])
def test_an_acquire_of_the_holder_renews_its_lease_for_the_new_time(daemon, known):
    """Also one whose configs are all known."""
    d, of = daemon(), {"problem": PROBLEM, "configs": CONFIGS[:1]}
    with d.connect() as holder, d.connect() as c:
        assert holder.call("acquire", **of, lease_ms=300)["outcome"] == "lease"
        if known:
            holder.call("record", problem=PROBLEM, trials=trials(BLOCK_64=9.0))
        got = holder.call("acquire", **of, lease_ms=3600000)
        assert got["outcome"] == ("hit" if known else "lease")
        assert c.call("acquire", problem=PROBLEM, deadline_ms=1500)["outcome"] == "held"
        holder.call("acquire", **of, lease_ms=300)
        assert c.call("acquire", problem=PROBLEM, deadline_ms=60000)["outcome"] == "lease"


@pytest.mark.parametrize("asleep_s", [0.75, 1.5])
def test_a_daemon_that_slept_takes_no_lease_away(daemon, asleep_s):
    """The daemon reads the holder's pending messages before it checks the lease's deadline."""
    d = daemon()
    with d.connect() as holder, d.connect() as c:
        holder.call("acquire", problem=PROBLEM, lease_ms=600)
        asked = c.send("acquire", problem=PROBLEM)
        c.call("hello")
        d.process.send_signal(signal.SIGSTOP)
        time.sleep(asleep_s)
        recorded = holder.send("record", problem=PROBLEM, trials=trials(BLOCK_64=9.0))
        released = holder.send("release", problem=PROBLEM)
        d.process.send_signal(signal.SIGCONT)
        holder.wait(recorded)
        assert holder.wait(released)["released"]
        assert c.wait(asked)["outcome"] == "lease"
    with d.connect() as holder, d.connect() as c:  # a holder that stays silent afterwards loses the lease
        holder.call("acquire", problem=PROBLEM, lease_ms=600)
        asked = c.send("acquire", problem=PROBLEM)
        c.call("hello")
        d.process.send_signal(signal.SIGSTOP)
        time.sleep(asleep_s)
        d.process.send_signal(signal.SIGCONT)
        began = time.monotonic()
        assert c.wait(asked)["outcome"] == "lease"
        assert time.monotonic() - began < 2
        assert not holder.call("release", problem=PROBLEM)["released"]


def test_waiting_ends_by_release_by_deadline_and_by_put(daemon):
    d = daemon()
    with d.connect() as holder, d.connect() as one, d.connect() as two:
        holder.call("acquire", problem=PROBLEM)
        begun = time.monotonic()
        assert one.call("acquire", problem=PROBLEM, deadline_ms=200)["outcome"] == "held"
        assert 0.19 < time.monotonic() - begun < 5
        first, second = one.send("acquire", problem=PROBLEM), two.send("acquire", problem=PROBLEM)
        one.call("hello")
        assert holder.call("release", problem=PROBLEM)["released"]
        assert one.wait(first)["outcome"] == "lease"  # waiters get the lease in the order of their requests
        one.call("put", problem=PROBLEM, config={"BLOCK": 64}, time_us=9)
        assert two.wait(second)["outcome"] == "hit"


def test_who_waits_is_answered_when_the_key_is_known_by_another_way(daemon):
    d = daemon()
    other = {**PROBLEM, "n": 8192}
    with d.connect() as holder, d.connect() as waiting, d.connect() as late, d.connect() as c:
        holder.call("acquire", problem=PROBLEM)
        of_configs = late.send("acquire", problem=PROBLEM, configs=CONFIGS)
        asked = [waiting.send("acquire", problem=PROBLEM) for _ in range(100)]
        waiting.call("hello")
        c.call("put", problem=PROBLEM, config={"BLOCK": 64}, time_us=9)
        for request in asked:
            got = waiting.wait(request)
            assert got["outcome"] == "hit" and got["answer"]["config"] == {"BLOCK": 64}
        # the holder keeps its lease, and the request that needs a result for each config still waits
        holder.call("record", problem=PROBLEM, trials=trials(BLOCK_64=9, BLOCK_128=4, BLOCK_256=6))
        assert holder.call("release", problem=PROBLEM)["released"]
        assert late.wait(of_configs)["answer"]["config"] == {"BLOCK": 128}
        # an answer for all users ends the wait of requests, too
        holder.call("acquire", problem=other)
        request = waiting.send("acquire", problem=other)
        waiting.call("hello")
        theirs = c.call("put", problem={**other, "user": 777}, config={"BLOCK": 64})
        c.call("promote", key=theirs["key"])
        assert waiting.wait(request)["answer"]["config"] == {"BLOCK": 64}
        assert holder.call("release", problem=other)["released"]


def test_a_client_that_has_left_gets_no_lease(daemon):
    d = daemon()
    with d.connect() as holder:
        holder.call("acquire", problem=PROBLEM)
        gone = d.connect()
        gone.send("acquire", problem=PROBLEM, configs=CONFIGS)
        eventually(lambda: d.status()["connections"] == 3)
        gone.close()
        holder.call("release", problem=PROBLEM)
        assert holder.call("acquire", problem=PROBLEM)["outcome"] == "lease"


def test_a_killed_daemon_leaves_no_lease_behind(daemon):
    d = daemon()
    with d.connect() as holder:
        holder.call("acquire", problem=PROBLEM, lease_ms=3600000)
        d.kill()
    d.start()
    begun = time.monotonic()
    assert d.call("acquire", problem=PROBLEM)["outcome"] == "lease"
    assert time.monotonic() - begun < 5


def test_a_stop_ends_those_who_wait(daemon):
    d = daemon()
    with d.connect() as holder, d.connect() as c:
        holder.call("acquire", problem=PROBLEM)
        asked = c.send("acquire", problem=PROBLEM)
        eventually(lambda: d.status()["connections"] == 3)
        stopper = threading.Thread(target=d.stop)
        stopper.start()
        with pytest.raises(RpcError, match="shutting_down"):
            c.wait(asked)
        stopper.join()


def test_thousands_who_wait_have_their_turns_one_after_the_other(folder):
    """Each waiter passes the key to the next: with a stack of 1 MiB this must not recurse."""
    d = Daemon(folder, SYNTHETIC)
    d.launcher = ["prlimit", "--stack=1048576"]
    d.start()
    with d.connect() as holder:
        holder.call("acquire", problem=PROBLEM)
        waiting = [(c, [c.send("acquire", problem=PROBLEM) for _ in range(250)])
                   for c in (d.connect() for _ in range(8))]
        for c, _ in waiting:
            c.call("hello")  # after this answer, all earlier requests of the client are waiting
        holder.call("put", problem=PROBLEM, config={"BLOCK": 64}, time_us=9)
        assert holder.call("acquire", problem=PROBLEM)["outcome"] == "hit"
        for c, asked in waiting:
            assert {c.wait(request)["outcome"] for request in asked} == {"hit"}
            c.close()
    assert d.stop() == 0


def test_bad_requests_say_what_is_wrong(daemon):
    d = daemon()
    gemm = {"op": "grouped_gemm", "mode": "forward", "M": 64, "N": 64, "K": 64}
    bad = [("acquire", {"problem": gemm}, "invalid", "custom"),
           ("acquire", {"problem": PROBLEM, "wait": "cached"}, "invalid", "tuned or now"),
           ("acquire", {"problem": PROBLEM, "lease_ms": -1}, "invalid", "milliseconds"),
           ("acquire", {"problem": PROBLEM, "configs": [7]}, "invalid", "configs"),
           ("acquire", {"problem": PROBLEM, "lease": 1}, "unknown_field", "lease_ms"),
           ("acquire", {"problem": {**PROBLEM, "user": "me"}}, "denied", "uid"),
           ("record", {"problem": PROBLEM, "trials": [{"config": "A=1"}]}, "invalid", "time_us"),
           ("record", {"problem": PROBLEM, "trials": [{"time_us": 1.0}]}, "invalid", "config"),
           ("record", {"problem": PROBLEM, "trials": [{"config": "A=1", "status": "bad"}]},
            "invalid", "none of ok"),
           ("release", {"problem": gemm}, "invalid", "custom"),
           ("promote", {"problem": PROBLEM}, "not_found", "user")]
    with d.connect() as c:
        for method, params, name, word in bad:
            with pytest.raises(RpcError) as e:
                c.call(method, **params)
            assert e.value.name == name and word in e.value.message, (method, params, e.value)


# ---- owners of rows --------------------------------------------------------------------------------

OTHER = 54321  # a user without an account


def as_user(uid, f):
    """Runs f() in a process of that user; returns its result."""
    context = multiprocessing.get_context("fork")
    results = context.Queue()

    def run():
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        try:
            results.put(("ok", f()))
        except RpcError as e:
            results.put((e.name, e.message))

    p = context.Process(target=run)
    p.start()
    got = results.get(timeout=30)
    p.join()
    return got


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
def test_a_row_is_its_users_own_until_it_is_promoted(daemon, folder):
    d = daemon()
    os.chmod(folder, 0o755)
    os.chmod(d.socket, 0o666)
    private = {**PROBLEM, "user": OTHER}
    with d.connect() as c:
        kind, theirs = as_user(OTHER, lambda: d.call("put", problem=PROBLEM, config={"BLOCK": 64},
                                                     time_us=9.0))
        assert kind == "ok"
        as_user(OTHER, lambda: d.call("record", problem=PROBLEM, trials=trials(BLOCK_64=9.0)))
        assert as_user(OTHER, lambda: d.call("get", problem=PROBLEM))[1]["key"] == theirs["key"]
        for wait in ("cached", "tuned"):
            with pytest.raises(RpcError, match="not_found|no_config"):
                c.call("get", problem=PROBLEM, wait=wait)
        assert c.call("acquire", problem=PROBLEM, wait="now")["outcome"] == "lease"
        # the same bytes of a request that hit for its user do not hit for another user
        assert as_user(OTHER + 1, lambda: d.call("get", problem=PROBLEM))[0] in ("not_found",
                                                                                 "no_config")
        assert as_user(OTHER + 1, lambda: d.call("get", problem=private))[0] == "denied"
        seen = as_user(OTHER + 1, lambda: d.call("show", key=theirs["key"]))[1]
        assert seen["problem"] == private and seen["trials"] == 1, "answers are one's own, rows no secret"
        assert as_user(OTHER, lambda: d.call("promote", key=theirs["key"]))[0] == "denied"
        assert c.call("get", problem=private)["key"] == theirs["key"]

        promoted = c.call("promote", problem=private)
        assert promoted["config"] == {"BLOCK": 64} and promoted["key"] != theirs["key"]
        assert c.call("get", problem=PROBLEM)["key"] == promoted["key"]
        row, = c.list("best", key=promoted["key"])
        assert row["time_us"] == 9 and row["uid"] == OTHER and row["source"] == theirs["source"]
        assert row["tflops"] is row["floor_percent"] is row["flops"] is None, "of a kernel that nobody knows"
        got = c.call("acquire", problem=PROBLEM, configs=["BLOCK=64"])
        assert got["outcome"] == "hit" and got["answer"]["key"] == promoted["key"]
        # a user's own row precedes the shared row
        assert as_user(OTHER, lambda: d.call("get", problem=PROBLEM))[1]["key"] == theirs["key"]
        with pytest.raises(RpcError, match="conflict"):
            c.call("promote", key=promoted["key"])
    assert d.stop() == 0
    d.start()
    os.chmod(d.socket, 0o666)
    assert as_user(OTHER + 1, lambda: d.call("get", problem=PROBLEM))[1]["key"] == promoted["key"]


def many(n):
    return [{"config": f"x={i}", "status": "invalid"} for i in range(n)]


def trials_of(d, name):
    return d.sql("SELECT count(*) FROM trial WHERE json_extract(config, '$.x') IS NOT NULL AND key IN "
                 "(SELECT key FROM best WHERE op = ?)", f"custom:{name}")[0][0]


def test_what_is_said_to_be_recorded_is(host):  # noqa: F811
    """A trial that a daemon acknowledged is in the database, also during a flood of requests, and after kill -9 of the
    daemon that answers or writes."""
    one, two = host(2)
    for d in (two, one):
        with d.connect() as c:
            name = f"flood{d.socket.stem}"
            problems = [{"op": f"custom:{name}", "i": i} for i in range(24)]
            for p in problems:
                c.call("put", problem=p, config={"x": 0}, time_us=1)
            asked = [c.send("record", problem=p, trials=many(1000)) for p in problems]
            recorded = 0
            for request in asked:
                try:
                    recorded += c.wait(request)["recorded"]
                except RpcError as e:
                    assert e.name == "busy" and "none was recorded" in e.message
            assert recorded and trials_of(d, name) == recorded
            assert d.status()["store"]["lost_trials"] == 0
            last = c.send("record", problem=problems[0], trials=many(500))
            assert c.wait(last)["recorded"] == 500
            kill(d)
        assert trials_of(d, name) == recorded + 500
        d.start()
        eventually(lambda: one.status()["store"]["daemons"] == 2)


def test_who_records_while_the_database_takes_nothing_is_told(daemon):
    d = daemon()
    with d.connect() as c:
        c.call("put", problem=PROBLEM, config={"x": 1}, time_us=1)
        limit_files(d, True)
        with pytest.raises(RpcError) as e:
            c.call("record", problem=PROBLEM, trials=many(100))
        assert e.value.name == "disk_full" and "of 100 trials are not kept" in e.value.message
        limit_files(d, False)
        assert c.call("record", problem=PROBLEM, trials=many(100)) == {"recorded": 100}
        assert c.call("record", problem=PROBLEM, trials=[]) == {"recorded": 0}


def test_a_stop_while_trials_are_read_for_a_lease(daemon):
    """The daemon reads a key's trials for two waiters. The trials arrive after the stop has ended all leases."""
    for pause in range(4):
        d = daemon()
        key = {"op": "custom:mine", "n": 3}
        with d.connect() as c, d.connect() as a, d.connect() as b:
            for i in range(3):
                c.call("record", problem=key, trials=[
                    {"config": {"x": 1000 * i + j}, "time_us": 1.0} for j in range(400)])
            c.send("list", what="trials")
            for one in a, b:
                one.send("acquire", problem=key, configs=[{"x": -1 - i} for i in range(20)])
            time.sleep(0.002 + 0.001 * pause)
            assert d.stop() == 0, d.text()


def test_leases_and_subscriptions_are_no_requests_that_wait(daemon):
    d = daemon()
    with d.connect() as c:
        keys = [{"op": "custom:mine", "n": i} for i in range(300)]
        assert c.call("subscribe")["subscribed"]
        for key in keys:
            assert c.call("acquire", problem=key)["outcome"] == "lease"
        assert c.call("record", problem=keys[1], trials=trials(x_1=2.0))["recorded"] == 1
        assert c.call("put", problem=keys[0], config={"x": 1}, time_us=1)["tier"] == "exact"
        assert c.call("list", what="best")["total"] == 1
    with d.connect() as other:  # all leases have ended with their holder's connection
        assert other.call("acquire", problem=keys[7], wait="now")["outcome"] == "lease"
