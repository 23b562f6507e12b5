# SPDX-License-Identifier: Apache-2.0
"""A user's share: whatever a user does, other users can connect, query, get answers and tune."""
import contextlib
import json
import os
import pathlib
import re
import signal
import sqlite3
import subprocess
import sys
import time

import msgpack
import pytest

from conftest import GEMMCTL, RpcError, eventually, gemm

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")

NOBODY = """
import sys
sys.path.insert(0, {harness!r})
sys.dont_write_bytecode = True
from rpc import Client, RpcError, eventually, gemm
socket = {socket!r}
{body}
"""


def nobody_asks(d, call, first=None):
    """Sends another user's call to a stopped daemon, then continues the daemon. Returns the
    process, which prints the time of its answer, and the time of continuing. `first`: an earlier
    call."""
    other = start_as_nobody(d, "c = Client(socket, 60)\n"
                               + (f"c.send({first})\n" if first else "") +
                               f"request = c.send({call})\n"
                               "print('asked', flush=True)\n"
                               "c.wait(request)\n"
                               "import time\n"
                               "print(time.monotonic())\n")
    assert other.stdout.readline() == "asked\n"
    began = time.monotonic()
    d.process.send_signal(signal.SIGCONT)
    return other, began


def start_as_nobody(d, body):
    """Runs `body` as another user with the right to connect."""
    d.folder.chmod(0o755)
    d.socket.chmod(0o666)
    harness = pathlib.Path(__file__).parent.parent / "integration"
    return subprocess.Popen([sys.executable, "-c",
                             NOBODY.format(harness=str(harness), socket=str(d.socket), body=body)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, user="nobody",
                            group="nogroup", extra_groups=[])


def as_nobody(d, body):
    """Runs `body` as another user; returns the words that it prints."""
    process = start_as_nobody(d, body)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out.split()


def refused(d):
    with d.connect() as c:
        error = c.read()[2]
        with pytest.raises(EOFError):
            c.read()
    return error


def user(status, uid=os.geteuid()):
    return next(u for u in status["users"] if u["uid"] == uid)


@ROOT_ONLY
def test_connections_of_one_user_leave_room_for_others(daemon):
    d = daemon(options=["--max-connections", "8"])
    held = [d.connect()]
    eventually(lambda: held[0].call("status")["connections"] == 1)  # daemon(), which waited for the start, has left
    held += [d.connect() for _ in range(5)]
    eventually(lambda: user(held[0].call("status"))["connections"] == 6)
    error = refused(d)
    assert error["name"] == "busy" and "--user-connections" in error["message"]
    assert as_nobody(d, "with Client(socket) as c: print(c.call('hello')['version'])") == ["1"]
    held.pop().close()
    eventually(lambda: user(held[0].call("status"))["connections"] == 5)
    assert d.status()["pid"], "room again"
    [c.close() for c in held]


@ROOT_ONLY
def test_tunings_of_one_user_leave_room_for_others(daemon):
    d = daemon(env={"GEMMD_REPLAY_SPEED": "1"}, options=["--user-jobs", "5"])
    with d.connect() as c:
        c.send("get", problem=gemm(), budget=400, iters=100)
        notes = [c.call("get", problem=gemm(n=64 * i), wait="now")["note"] for i in range(1, 10)]
        assert [n.startswith("being tuned") for n in notes].count(True) == 4, notes
        assert "--user-jobs" in notes[-1]
        with pytest.raises(RpcError) as e:
            c.call("get", problem=gemm(m=1024))
        assert e.value.name == "busy" and "--user-jobs" in e.value.message
        assert user(c.call("status"))["jobs"] == 5
        said = as_nobody(d, "with Client(socket) as c:\n"
                            "    print(c.call('get', problem=gemm(m=512), wait='now')['note'])")
        assert said[:2] == ["being", "tuned"]
        assert c.call("status")["jobs"]["queued"] == 5
    assert d.stop() == 0


def test_a_finished_tuning_is_given_back(daemon):
    d = daemon(options=["--user-jobs", "1"])
    with d.connect() as c:
        for i in range(1, 4):
            assert c.call("get", problem=gemm(n=64 * i), budget=4)["tier"] == "exact"
        assert user(c.call("status"))["jobs"] == 0


def test_background_work_is_of_who_asked(daemon):
    d = daemon()
    with d.connect() as c:
        c.call("get", problem=gemm(), budget=4, wait="now")
        row = eventually(lambda: c.list("best"))[0]
        assert row["uid"] == os.geteuid()


@ROOT_ONLY
def test_background_work_of_another_user_is_theirs(daemon):
    d = daemon()
    as_nobody(d, "with Client(socket) as c:\n"
                 "    c.call('get', problem=gemm(), budget=4, wait='now')\n"
                 "    eventually(lambda: c.list('best'))")
    assert d.call("list", what="best")["rows"][0]["uid"] == 65534


def flood_unread(d, n, request):
    """Connections that send and never read, until all buffers are full."""
    silent = [d.connect() for _ in range(n)]
    for c in silent:
        c.socket.setblocking(False)
    moved = time.monotonic()
    while time.monotonic() - moved < 0.5:
        for c in silent:
            try:
                c.socket.send(request * 200)
                moved = time.monotonic()
            except BlockingIOError:
                pass
    return silent


@ROOT_ONLY
def test_bytes_of_one_user_are_bounded_and_others_are_answered(daemon):
    d = daemon(options=["--user-mib", "2"])
    before = d.status()["rss_bytes"]
    silent = flood_unread(d, 40, msgpack.packb([0, 1, "hello", {}]))
    said = as_nobody(d, "with Client(socket, 5) as c:\n"
                        "    s = c.call('status')\n"
                        "    u = [u for u in s['users'] if u['uid'] != 65534][0]\n"
                        "    print(u['bytes_out'], u['bytes_in'], s['rss_bytes'])")
    out, in_, rss = map(int, said)
    assert 1.9 * 2**20 < out < 4 * 2**20, "the limit, and what was on its way"
    assert in_ < 6 * 2**20 and rss < before + 20 * 2**20
    for c in silent:
        c.close()
    eventually(lambda: user(d.status())["bytes_out"] == 0)


def test_who_takes_its_answers_again_is_served_on(daemon):
    d = daemon(options=["--user-mib", "1"])
    silent = flood_unread(d, 12, msgpack.packb([0, 1, "status", {}]))
    for c in silent:
        c.socket.setblocking(False)
    drained = 0

    def drain():
        nonlocal drained
        for c in silent:
            try:
                drained += len(c.socket.recv(1 << 20))
            except BlockingIOError:
                pass
        return drained > 6 * 2**20

    eventually(drain)
    [c.close() for c in silent]
    assert eventually(d.status)["pid"]


WATCH = """
import time
with Client(socket, 20) as c:
    print("ready", flush=True)
    seen = [0]
    end = time.monotonic() + 30
    while time.monotonic() < end and not (max(seen) > 2**20 and seen[-1] < 2**19):
        seen.append(sum(u["bytes_in"] for u in c.call("status")["users"]))
        time.sleep(0.01)
print(max(seen), seen[-1])
"""


@ROOT_ONLY
def test_bytes_of_half_messages_are_bounded(daemon):
    """Each message is within its own limit; all together exceed the user's share."""
    d = daemon(options=["--user-mib", "1", "--message-ms", "500"])
    watch = start_as_nobody(d, WATCH)
    assert watch.stdout.readline() == "ready\n"
    half = msgpack.packb([0, 1, "get", {"x": "y" * 60000}])[:-100]
    begun = [d.connect() for _ in range(30)]
    for c in begun:
        c.socket.setblocking(False)
        try:
            c.socket.send(half)
        except BlockingIOError:
            pass
    out, err = watch.communicate(timeout=60)
    assert out, err
    most, last = map(int, out.split())
    assert 2**20 < most < 1.5 * 2**20 and last < 2**19, "and the deadline ends it"
    [c.close() for c in begun]


@ROOT_ONLY
def test_questions_of_one_user_do_not_fill_the_ledger(daemon):
    """The ledger answers in order. So a user has a limited number of requests there; the rest wait unread."""
    d = daemon()
    page = b"".join(msgpack.packb([0, i, "list", {"what": "trials"}]) for i in range(64))
    askers = [d.connect() for _ in range(60)]
    d.process.send_signal(signal.SIGSTOP)
    for c in askers:
        c.socket.sendall(page)
    d.process.send_signal(signal.SIGCONT)
    most = 0
    with d.connect() as c:
        while not most or user(c.call("status"))["asked"] > 1:
            most = max(most, user(c.call("status"))["asked"])
    for c in askers:
        assert c.wait(63)["rows"] == []
    assert 0 < most < 1200


@ROOT_ONLY
def test_leases_of_one_user_are_bounded_and_given_back(daemon):
    """A user has 2048 leases at most: the daemon renews each in the database every few seconds."""
    d = daemon()
    holders, outcomes = [d.connect() for _ in range(9)], []
    for n, c in enumerate(holders):
        asked = [c.send("acquire", problem={"op": "custom:mine", "n": n, "i": i}, wait="now")
                 for i in range(250)]
        for request in asked:
            try:
                outcomes.append(c.wait(request)["outcome"])
            except RpcError as e:
                assert e.name == "busy" and "retry later" in e.message
                outcomes.append(e.name)
    assert outcomes == ["lease"] * 2048 + ["busy"] * (9 * 250 - 2048)
    assert user(holders[0].call("status"))["leases"] == 2048
    ask = "c.call('acquire', problem={'op': 'custom:mine', 'n': 1}, wait='now')"
    assert as_nobody(d, f"with Client(socket) as c: print({ask}['outcome'])") == ["lease"]

    def ask_again(i):
        try:
            return holders[8].call("acquire", problem={"op": "custom:mine", "n": 9, "i": i},
                                   wait="now")["outcome"] == "lease"
        except RpcError:
            return False
    assert not ask_again(0)
    holders[0].close()
    assert eventually(lambda: ask_again(0)) and all(ask_again(i) for i in range(100))


@ROOT_ONLY
def test_subscriptions_of_one_user_are_bounded_and_given_back(daemon):
    """Each subscription receives every improvement."""
    d = daemon()
    told = [d.connect() for _ in range(512)]
    assert all(c.call("subscribe")["subscribed"] for c in told)
    with d.connect() as c:
        assert user(c.call("status"))["subscriptions"] == 512
        with pytest.raises(RpcError, match="busy"):
            c.call("subscribe")
        assert as_nobody(d, "with Client(socket) as c: print(c.call('subscribe')['subscribed'])") == ["True"]
        told[0].call("subscribe", on=False)
        assert c.call("subscribe")["subscribed"]
        [t.close() for t in told]
        with d.connect() as other:
            eventually(lambda: other.call("status")["connections"] == 2)
            assert other.call("subscribe")["subscribed"]


@ROOT_ONLY
def test_news_that_a_user_does_not_take_are_bounded_for_all_its_connections(daemon):
    d = daemon(options=["--user-mib", "1"])
    told = [d.connect() for _ in range(64)]
    assert all(t.call("subscribe")["subscribed"] for t in told)
    held = as_nobody(d, "with Client(socket) as c:\n"
                        "    for i in range(1000):\n"
                        "        c.call('put', problem={'op': 'custom:mine', 'n': i},\n"
                        "               config={'A': 'x' * 400}, time_us=5)\n"
                        "    users = c.call('status')['users']\n"
                        "    print(next(u['bytes_out'] for u in users if u['uid'] == 0))")
    assert 1 << 19 < int(held[0]) < 1 << 21
    [t.close() for t in told]


def test_a_client_that_finds_no_room_comes_again_until_its_deadline(daemon):
    d = daemon(options=["--max-connections", "2"])
    held = [d.connect()]
    eventually(lambda: held[0].call("status")["connections"] == 1)
    held.append(d.connect())
    command, env = [GEMMCTL, "status"], {**d.env, "GEMMD_SOCKET": str(d.socket)}
    waits = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    time.sleep(0.5)
    assert waits.poll() is None
    held.pop().close()
    assert waits.wait(20) == 0 and "connections" in waits.stdout.read()
    waits.stdout.close()
    eventually(lambda: held[0].call("status")["connections"] == 1)
    held.append(d.connect())
    late = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30)
    assert late.returncode == 75 and "all 2 connections are in use" in late.stderr
    [c.close() for c in held]


@ROOT_ONLY
def test_a_user_of_many_connections_takes_no_more_of_the_loop(daemon):
    """All clients send before the daemon looks: a hundred connections of a user, one of another."""
    d = daemon()
    flooders = [d.connect() for _ in range(100)]
    d.process.send_signal(signal.SIGSTOP)
    for i, f in enumerate(flooders):
        f.socket.sendall(b"".join(msgpack.packb([0, n, "get", {
            "problem": gemm(n=64 * (n + 1), k=64 * (i + 1)), "wait": "cached"}]) for n in range(40)))
    other, began = nobody_asks(d, "'hello'")
    for f in flooders:
        f.wait(39)
    everything = time.monotonic() - began
    waited = float(other.communicate(timeout=60)[0]) - began
    assert waited < everything / 4, (waited, everything)


@ROOT_ONLY
def test_acquires_of_one_user_do_not_fill_the_ledger(daemon):
    """Each acquire with configs reads all trials of its key. Another user's list waits for a few of
    these acquires only."""
    d = daemon()
    problem = {"op": "custom:mine"}
    askers = [d.connect() for _ in range(4)]
    for start in range(0, 1000, 50):
        askers[0].call("record", problem=problem, trials=[{"config": {"A": i}, "time_us": 5}
                                                          for i in range(start, start + 50)])
    d.process.send_signal(signal.SIGSTOP)
    for c in askers:
        c.socket.sendall(b"".join(msgpack.packb([0, 1000 + n, "acquire", {
            "problem": problem, "configs": ["A=1", "A=2"], "wait": "now"}]) for n in range(100)))
    other, began = nobody_asks(d, "'list', what='best'")
    for c in askers:
        for n in range(100):
            assert c.wait(1000 + n)["outcome"] == "hit"
    everything = time.monotonic() - began
    waited = float(other.communicate(timeout=60)[0]) - began
    assert waited < everything / 6, (waited, everything)
    assert user(d.status())["asked"] == 1, "the question itself"


@ROOT_ONLY
@pytest.mark.parametrize("call", ["'list', what='best'", "'get', problem=gemm()"], ids=["list", "pinned"])
def test_lists_of_one_user_keep_another_one_waiting_for_few_of_them(daemon, call):
    """Each list reads the whole table. Another user's list, or answer of an older generation, waits
    for a few of these lists only."""
    d = daemon()
    askers = [d.connect() for _ in range(8)]
    old = askers[0].call("get", problem=gemm(), budget=4)
    for start in range(0, 3000, 250):
        askers[0].call("record", problem={"op": "custom:mine"}, trials=[
            {"config": {"A": i}, "time_us": 5} for i in range(start, start + 250)])
    worse = next(t["config"] for t in askers[0].list("trials", key=old["key"], status="ok")
                 if t["config"] != old["config"])
    askers[0].call("pin", problem=gemm(), config=worse)
    d.process.send_signal(signal.SIGSTOP)
    for c in askers:
        c.socket.sendall(b"".join(msgpack.packb([0, 1000 + n, "list", {
            "what": "trials", "filter": {"config": "~nothing", "sort": "-time_us"}}]) for n in range(60)))
    other, began = nobody_asks(d, call, f"'hello', generation={old['generation']}")
    for c in askers:
        for n in range(60):
            assert c.wait(1000 + n)["rows"] == []
    everything = time.monotonic() - began
    waited = float(other.communicate(timeout=60)[0]) - began
    assert waited < everything / 8, (waited, everything)


def put_all(c, problems, config):
    """Puts the config for all problems, and only then reads the answers. Returns the generations."""
    asked = [(c.send("put", problem=p, config=config, time_us=5)) for p in problems]
    return [c.wait(request)["generation"] for request in asked]


def pinned(d, generation):
    c = d.connect()
    c.call("hello", generation=generation)
    return c


def peak_bytes(d):
    status = pathlib.Path(f"/proc/{d.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) * 1024


def test_lists_of_a_pinned_job_are_as_heavy_as_their_keys(daemon):
    """Each key with a best newer than the job's generation costs a read by the ledger; a request has 256 keys."""
    d = daemon()
    with d.connect() as c:
        problems = [{"op": "custom:mine", "n": i} for i in range(2048)]
        old = [g for i in range(0, 2048, 128) for g in put_all(c, problems[i:i + 128], "A=1")]
        for i in range(0, 2048, 128):
            put_all(c, problems[i:i + 128], "A=2")
        ranks = [pinned(d, old[-1] + i) for i in range(8)]
        before = peak_bytes(d)
        d.process.send_signal(signal.SIGSTOP)
        for rank in ranks[:2]:
            rank.send("get_many", problems=problems[:256])
        watch = c.send("status")
        d.process.send_signal(signal.SIGCONT)
        assert 256 < user(c.wait(watch))["asked"] <= 513
        asked = [(rank, rank.send("get_many", problems=problems[i:i + 256]))
                 for rank in ranks for i in range(256, 2048, 256)]
        for rank, request in asked:
            assert [a["config"] for a in rank.wait(request)["answers"]] == [{"A": 1}] * 256
        if "sanitize" not in os.environ.get("GEMMD_BUILD_KIND", ""):  # sanitizers keep freed memory for a while
            assert peak_bytes(d) < before + 48 * 2**20


def test_what_is_read_for_pinned_jobs_is_bounded(daemon):
    """The daemon keeps a limited number of old answers for pinned jobs, and reads the least recently used again."""
    d = daemon()
    with d.connect() as c:
        problems = [{"op": "custom:mine", "n": i} for i in range(256)]
        configs = [{"A": letter * 480} for letter in "xyz"]
        old = [put_all(c, problems, config) for config in configs][0]
        before = peak_bytes(d)
        ranks = [pinned(d, old[-1] + i) for i in range(50)]
        for rank in [*ranks, ranks[0]]:
            answers = rank.call("get_many", problems=problems)["answers"]
            assert [a["config"] for a in answers[128:]] == configs[:1] * 128
        if "sanitize" not in os.environ.get("GEMMD_BUILD_KIND", ""):  # sanitizers keep freed memory for a while
            assert peak_bytes(d) < before + 13 * 2**20


def fill_line(d, connections, **params):
    """Sends 250 acquires of a leased key on each connection. Returns all requests, and the errors of the refused."""
    asked, refused = [], []
    for c in connections:
        requests = [c.send("acquire", problem={"op": "custom:mine"}, **params) for _ in range(250)]
        c.call("hello")  # all requests are handled
        eventually(lambda: user(d.status())["asked"] == 1)
        c.call("hello")
        refused += [c.responses.pop(r)[2] for r in requests if r in c.responses]
        asked += [(c, r) for r in requests]
    return asked, refused


@ROOT_ONLY
def test_acquires_that_wait_are_bounded_for_each_user_and_given_back(daemon):
    d = daemon()
    holder, connections = d.connect(), [d.connect() for _ in range(9)]
    holder.call("acquire", problem={"op": "custom:mine"})
    _, refused = fill_line(d, connections)
    assert len(refused) == 9 * 250 - 2048
    assert all(e["name"] == "busy" and "deadline_ms" in e["message"] for e in refused)
    assert user(holder.call("status"))["waiting"] == 2048
    # the lease holder and another user still get answers
    assert holder.call("acquire", problem={"op": "custom:mine"})["outcome"] == "lease"
    ask = "c.call('acquire', problem={'op': 'custom:mine'})"
    assert as_nobody(d, f"with Client(socket) as c: print({ask}['outcome'])") == ["lease"]
    connections.pop(0).close()
    eventually(lambda: user(holder.call("status"))["waiting"] == 2048 - 250)
    holder.call("put", problem={"op": "custom:mine"}, config="A=1", time_us=5)
    eventually(lambda: user(holder.call("status"))["waiting"] == 0)


@ROOT_ONLY
def test_configs_of_acquires_that_wait_are_bounded_for_each_user(daemon):
    d = daemon(options=["--user-mib", "1"])
    holder, connection = d.connect(), d.connect()
    holder.call("acquire", problem={"op": "custom:mine"})
    _, refused = fill_line(d, [connection], configs=[f"A={i}" for i in range(512)])
    assert 100 < len(refused) < 200
    assert all(e["name"] == "busy" and "--user-mib" in e["message"] for e in refused)
    assert user(holder.call("status"))["waiting"] == 250 - len(refused)
    holder.call("release", problem={"op": "custom:mine"})
    eventually(lambda: user(holder.call("status"))["waiting"] == 250 - len(refused) - 1)


@ROOT_ONLY
@pytest.mark.parametrize("problem", ["gemm(m=512)", "gemm(n=64 * 119)"], ids=["own", "joined"])
def test_a_user_of_many_tunings_keeps_another_one_waiting_for_one_round(daemon, problem):
    """Users take turns, a job each: another user's request waits for a turn only, also when both users wait for
    the same tuning."""
    d = daemon()
    other = start_as_nobody(d, "with Client(socket) as c:\n"
                               "    print('ready', flush=True)\n"
                               "    eventually(lambda: c.call('status')['jobs']['queued'] > 50, every=0.01)\n"
                               f"    c.call('get', problem={problem}, budget=4)\n"
                               "    print(c.call('status')['jobs']['queued'])\n")
    assert other.stdout.readline() == "ready\n"
    with d.connect() as c:
        asked = [c.send("get", problem=gemm(n=64 * i), budget=4) for i in range(1, 120)]
        left = int(other.communicate(timeout=60)[0])
        assert left > 20, left
        for request in asked:
            assert c.wait(request)["tier"] == "exact"


@ROOT_ONLY
def test_keys_that_users_record_trials_of_are_bounded(daemon):
    """A key counts towards the limit when it has trials, even without an answer. A user at the limit
    may still record trials of keys that are counted already."""
    d = daemon(options=["--max-keys", "3", "--user-keys", "3"])
    told = ("with Client(socket) as c:\n"
            "    for method, i, more in {calls}:\n"
            "        try: print(c.call(method, problem={{'op': 'custom:many', 'i': i}}, **more).get('outcome', 'ok'))\n"
            "        except RpcError as e: print(e.name if '--max-keys' in e.message else e.message)\n")
    trials = {"trials": [{"config": "A=1", "time_us": 5}]}
    put = {"config": "A=1", "time_us": 5}
    calls = [("acquire", 0, {}), ("record", 0, trials), ("record", 1, trials), ("record", 1, trials),
             ("record", 2, trials), ("record", 3, trials), ("put", 3, put), ("acquire", 3, {}),
             ("put", 0, put), ("acquire", 0, {}), ("acquire", 1, {}), ("record", 1, trials)]
    assert as_nobody(d, told.format(calls=calls)) == \
        "lease ok ok ok ok denied denied denied ok hit lease ok".split()
    with d.connect() as c:
        assert c.call("record", problem={"op": "custom:many", "i": 3}, **trials)["recorded"] == 1
        rows = c.list("trials")
        assert len(rows) == 6
        c.call("evict", key=rows[3]["key"])
    assert as_nobody(d, told.format(calls=[("record", 3, trials), ("acquire", 4, {})])) == ["ok", "denied"]


@ROOT_ONLY
def test_keys_whose_trials_were_refused_take_no_room(daemon):
    d = daemon(options=["--max-keys", "1"])
    told = ("with Client(socket) as c:\n"
            "    for i in {numbers}:\n"
            "        try: print(c.call('record', problem={{'op': 'custom:many', 'i': i}}, trials=[{{'config': 'A=1', 'time_us': 5}}])['recorded'])\n"
            "        except RpcError as e: print(e.name)\n")
    with contextlib.closing(sqlite3.connect(d.database, timeout=30, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert as_nobody(d, told.format(numbers="[0, 1]")) == ["busy", "busy"]
        other.execute("ROLLBACK")
    assert as_nobody(d, told.format(numbers="[2, 3, 2]")) == ["1", "denied", "1"]


@ROOT_ONLY
def test_keys_that_users_put_are_bounded(daemon):
    d = daemon(options=["--max-keys", "8", "--user-keys", "8"])
    put = ("with Client(socket) as c:\n"
           "    for i in {numbers}:\n"
           "        try: print(c.call('put', problem={{'op': 'custom:many', 'i': i}}, config='A=1', time_us={us})['tier'])\n"
           "        except RpcError as e: print(e.name, '--max-keys' in e.message)\n")
    first = as_nobody(d, put.format(numbers="range(9)", us=5))
    assert first.count("exact") == 8 and first[-2:] == ["denied", "True"], first
    assert as_nobody(d, put.format(numbers="[3]", us=4)) == ["exact"], "a key that is known may be put again"
    with d.connect() as c:
        assert c.call("put", problem={"op": "custom:many", "i": 9}, config="A=1", time_us=5)["saved"]
        assert c.call("status")["keys"] == 9
        rows = c.call("list", what="best", filter={"op": "custom:many"})["rows"]
        c.call("evict", key=next(r["key"] for r in rows if r["uid"] == os.geteuid()))
        c.call("evict", key=next(r["key"] for r in rows if r["uid"] != os.geteuid()))
    assert as_nobody(d, put.format(numbers="[20]", us=5)) == ["exact"], "there is room again"
    assert d.stop() == 0


@ROOT_ONLY
def test_keys_of_one_user_leave_room_for_others_and_the_user_evicts_them(daemon):
    d = daemon(options=["--max-keys", "20"])  # a single user may have three quarters of the keys: 15
    body = ("with Client(socket) as c:\n"
            "    for method, problem, more in {calls}:\n"
            "        try: c.call(method, problem=problem, **more); print('ok')\n"
            "        except RpcError as e: print(e.name, '--user-keys' in e.message)\n")

    def nobody(*calls):
        return as_nobody(d, body.format(calls=list(calls)))

    def put(i):
        return "put", {"op": "custom:many", "i": i}, {"config": "A=1", "time_us": 5}

    def record(i):
        return "record", {"op": "custom:many", "i": i}, {"trials": [{"config": "A=1", "time_us": 5}]}

    def evict(i):
        return "evict", {"op": "custom:many", "i": i}, {}

    with d.connect() as c:
        config = c.call("get", problem=gemm(), wait="cached")["config"]
        c.call("get", problem=gemm(n=512), budget=4)
        hint = ("put", gemm(), {"config": config, "time_us": 5})
        assert nobody(hint, *map(put, range(12)), *map(record, (20, 21))) == ["ok"] * 15
        assert nobody(put(12), record(22), put(1), record(20)) == ["denied", "True", "denied", "True", "ok", "ok"]
        shared = {"op": "custom:many", "i": 99}
        c.call("put", problem=shared, config="A=1", time_us=5)
        c.call("promote", problem={**shared, "user": os.geteuid()})
        assert nobody(("evict", gemm(n=512), {}), evict(99), ("evict", gemm(n=64), {})) == ["denied", "False"] * 3
        assert nobody(("evict", gemm(), {}), put(12), evict(0), evict(21), record(22), put(13)) == ["ok"] * 6
        assert nobody(put(14)) == ["denied", "True"]
        assert c.call("get", problem=gemm(n=512), wait="cached")["tier"] == "exact"
        assert c.call("get", problem=shared)["tier"] == "exact"
    assert d.stop() == 0
    assert as_nobody(d.start(), body.format(calls=[put(14), put(15), put(16), evict(22), evict(3), put(16)])) == [
        "ok", "ok", "denied", "True", "ok", "ok", "ok"], "also after a restart, which forgets keys without an answer"


@ROOT_ONLY
def test_bytes_that_one_user_records_are_bounded_for_others_to_have_room(daemon):
    d = daemon(options=["--user-mib", "1"])
    body = ("n = 0\n"
            "for i in range({n}):\n"
            "    with Client(socket) as c:\n" # a new connection does not enlarge the user's share
            "        try: n += c.call('record', problem={{'op': 'custom:much', 'n': {key}}}, trials=[\n"
            "            {{'config': {{'A': 'x' * 400, 'B': 40 * i + k}}, 'time_us': 5}} for k in range(40)])['recorded']\n"
            "        except RpcError as e: print(e.name, '--user-mib' in e.message); break\n"
            "print(n)")
    name, says, n = as_nobody(d, body.format(n=200, key=1))
    assert (name, says) == ("busy", "True") and 500 < int(n) < 1500
    assert as_nobody(d, body.format(n=200, key=2))[0] == "busy"
    put = ("with Client(socket) as c:\n"
           "    for i in range(100): c.call('put', problem={'op': 'custom:it'}, config={'A': i}, time_us=5)")
    assert "--user-mib" in start_as_nobody(d, put).communicate(timeout=60)[1]
    with d.connect() as c:
        for i in range(60):
            c.call("record", problem={"op": "custom:owner"}, trials=[
                {"config": {"A": "x" * 400, "B": 40 * i + k}, "time_us": 5} for k in range(40)])


@ROOT_ONLY
def test_lists_that_one_user_does_not_read_are_bounded(daemon):
    """The bytes of a list count in the user's share before the daemon reads the rows: many concurrent lists would take
    many megabytes."""
    d = daemon(options=["--user-mib", "4"])
    with d.connect() as c:
        for i in range(256):
            c.call("put", problem={"op": "custom:wide", "i": i, **{f"f{k}": "x" * 500 for k in range(6)}},
                   config={"A": "y" * 480}, time_us=5)
        one = c.call("list", what="best")
        assert len(msgpack.packb(one)) > 900_000 and one["next"] is None
    page = b"".join(msgpack.packb([0, i, "list", {"what": "best"}]) for i in range(8))
    watch = start_as_nobody(d, "import time\n"
                               "with Client(socket, 60) as c:\n"
                               "    print('ready', flush=True)\n"
                               "    most, quiet = 0, 0\n"
                               "    while quiet < 20:\n"
                               "        u = [u for u in c.call('status')['users'] if u['uid'] != 65534]\n"
                               "        most = max([most] + [x['bytes_out'] for x in u])\n"
                               "        quiet = quiet + 1 if most and max(x['asked'] for x in u) == 0 else 0\n"
                               "        time.sleep(0.01)\n"
                               "print(most)")
    assert watch.stdout.readline() == "ready\n"
    silent = [d.connect() for _ in range(3)]
    for c in silent:
        c.socket.sendall(page)
    out, err = watch.communicate(timeout=120)
    assert out, err
    assert 3 * 2**20 < int(out) < 6 * 2**20, "the share, and one answer more"
    with silent[0] as c: # a client that reads again gets all its answers
        assert all(len(c.wait(i)["rows"]) == 256 for i in range(8))
    [c.close() for c in silent]


# ---- answers of other users ------------------------------------------------------------------------

LOOSE = "budget=8, atol=1.0, rtol=1.0"


@ROOT_ONLY
def test_a_loose_tune_of_one_user_leaves_everybody_the_exact_answer(daemon):
    d = daemon()
    tuned = d.call("get", problem=gemm(), budget=12)
    said = as_nobody(d, "with Client(socket) as c:\n"
                        f"    for i in range(2): a = c.call('tune', problem=gemm(), {LOOSE})\n"
                        "    print(a['tier'], a['saved'], 'less tightly' in a['note'])\n"
                        f"    print(c.call('get', problem=gemm(), {LOOSE})['generation'])")
    assert said == ["exact", "False", "True", str(tuned["generation"])]
    with d.connect() as c:
        assert c.call("get", problem=gemm(), wait="cached") == tuned
        assert [(r["atol"], r["generation"]) for r in c.list("history")] == [(0.01, tuned["generation"])]
        assert any("atol=1" in t["stamp"] for t in c.list("trials")), "what was measured is kept"


@ROOT_ONLY
def test_a_loosely_verified_key_answers_no_neighbour_that_asks_for_more(daemon):
    d = daemon()
    as_nobody(d, f"with Client(socket) as c: c.call('get', problem=gemm(), {LOOSE})")
    with d.connect() as c:
        assert c.call("get", problem=gemm(n=512), wait="cached")["tier"] == "default"
        assert c.call("get", problem=gemm(n=512), wait="cached", atol=1.0, rtol=1.0)["tier"] == "near"


PUT = "c.call('put', problem=gemm(), config=config, time_us=0.001)"


@ROOT_ONLY
def test_a_put_of_one_user_answers_nobody_else_until_it_is_measured(daemon):
    """The put has the default's own config: a slower config would answer no other user anyway."""
    d = daemon()
    with d.connect() as c:
        default = c.call("get", problem=gemm(), wait="cached")
        tuned = c.call("get", problem=gemm(n=512), budget=12)
        slow = next(t["config"] for t in c.list("trials", key=tuned["key"], status="ok", sort="-time_us")
                    if t["config"] not in (tuned["config"], default["config"]))
        c.call("evict", problem=gemm(n=512))
        script = ("import json\n"
                  "config, slow = json.loads({configs})\n"
                  "with Client(socket) as c:\n"
                  f"    for i in range(2): a = {PUT}\n"
                  "    print('alone' in a['note'])\n"
                  "    a = c.call('get', problem=gemm(), wait='cached')\n"
                  "    print(a['tier'], a['config'] == config)\n"
                  "    (a,) = c.call('get_many', problems=[gemm()])['answers']\n"
                  "    print(a['tier'], a['config'] == config)\n")
        configs = json.dumps(json.dumps([default["config"], slow]))
        said = as_nobody(d, script.format(configs=configs))
        assert said == ["True", "near", "True", "near", "True"]
        assert c.call("get", problem=gemm(), wait="cached") == default
        assert c.call("get_many", problems=[gemm()])["answers"] == [default]
        why = c.call("why", problem=gemm())
        assert why["verdict"] == "imported" and "another user" in why["because"]
        as_nobody(d, "import json\n"
                     f"config = json.loads({configs})[1]\n"
                     f"with Client(socket) as c: {PUT}\n")
        c.call("get", problem=gemm(), budget=8)
        measured = {json.dumps(t["config"]) for t in c.list("trials", key=default["key"])}
        assert json.dumps(slow) in measured, "a hint all the same"


@ROOT_ONLY
def test_a_put_of_one_user_takes_away_no_other_users_row(daemon):
    d = daemon()
    put = ("config = c.call('get', problem=gemm(), wait='cached')['config']\n"
           "    try: print(c.call('put', problem=gemm(), config=config, time_us=1.0)['tier'])\n"
           "    except RpcError as e: print(e.name)")
    with d.connect() as c:
        config = c.call("get", problem=gemm(), wait="cached")["config"]
        mine = c.call("put", problem=gemm(), config=config, time_us=5.0)
        assert as_nobody(d, f"with Client(socket) as c:\n    {put}") == ["conflict"]
        assert c.list("best")[0]["generation"] == mine["generation"]
        c.call("evict", problem=gemm())
        assert as_nobody(d, f"with Client(socket) as c:\n    {put}") == ["near"]
        assert c.call("put", problem=gemm(), config=config, time_us=5.0)["generation"] > mine["generation"]
