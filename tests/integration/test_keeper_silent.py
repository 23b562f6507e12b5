# SPDX-License-Identifier: Apache-2.0
"""A keeper that is there and does not answer (SIGSTOP): the others go on from memory within --keeper-ms,
and what they kept is written exactly once when it wakes up, or when another has taken over."""
import os
import re
import signal
import time

import msgpack
import pytest
from conftest import PATIENCE, RpcError, eventually, gemm
from test_keeper import host, keeper_of, kill  # noqa: F401 (host is a fixture)

KEEPER_MS = 500
CUSTOM = {"op": "custom:mine", "n": 1}


@pytest.fixture
def stopped(host):
    """stopped(n) -> n daemons whose first one, the keeper, is stopped when the others follow it."""
    keepers = []

    def start(n=2):
        members = host(n - len(host(0)), options=["--keeper-ms", str(KEEPER_MS)])
        eventually(lambda: members[0].status()["store"]["daemons"] == n)
        keepers.append(members[0])
        os.kill(members[0].process.pid, signal.SIGSTOP)
        return members

    yield start
    for k in keepers:
        if not k.killed:
            wake(k)


def wake(keeper):
    os.kill(keeper.process.pid, signal.SIGCONT)


def put(m, n):
    return m.call("put", problem={**CUSTOM, "n": n}, config={"A": n}, time_us=5)


def delivered(m):
    store = m.status()["store"]
    return store["unsaved"] == 0 and store["keeper_silent_ms"] == 0


def rows_of(m, table="best"):
    return sorted(m.sql(f"SELECT key, count(*) FROM {table} GROUP BY key"))


def test_a_tuning_goes_on_in_time_and_is_delivered_once(stopped):
    one, two = stopped()
    began = time.monotonic()
    answer = two.call("get", problem=gemm(), budget=4)
    assert time.monotonic() - began < (KEEPER_MS / 1000 + 1) * PATIENCE
    assert answer["source"] == "tuned" and not answer["saved"] and answer["generation"] == 0
    assert two.call("get", problem=gemm(), wait="cached")["config"] == answer["config"]
    store = two.status()["store"]
    assert store["unsaved"] == 1 and store["keeper_silent_ms"] >= KEEPER_MS
    assert f"has not answered for {KEEPER_MS} ms" in two.text()
    assert str(one.process.pid) in two.text()
    wake(one)
    eventually(lambda: delivered(two))
    assert "answers again" in two.text()
    assert rows_of(two) == [(answer["key"], 1)]
    for m in (one, two):
        known = eventually(lambda m=m: m.call("get", problem=gemm(), wait="cached"))
        assert known["saved"] and known["generation"] > 0 and known["config"] == answer["config"]
    assert two.sql("SELECT count(*) FROM event WHERE kind = 'tuned'") == [(1,)]
    assert len(two.sql("SELECT DISTINCT config FROM trial")) >= 4
    assert not two.sql("SELECT config FROM trial GROUP BY config, stage, time_us HAVING count(*) > 1")


def test_leases_that_the_keeper_never_heard_of_are_not_kept(stopped):
    one, two = stopped()
    with two.connect() as c:
        c.call("acquire", problem=CUSTOM)  # asked for before the silence: the keeper will have it
        c.call("release", problem=CUSTOM)
        assert two.status()["store"]["keeper_silent_ms"]
        for _ in range(500):
            assert c.call("acquire", problem=CUSTOM)["outcome"] == "lease"
            assert c.call("release", problem=CUSTOM)["released"]
    time.sleep(0.5)  # the log leaves out what comes too fast
    wake(one)
    eventually(lambda: delivered(two) and "rows that were kept" in two.text())
    kept, = re.findall(r"it gets (\d+) rows that were kept", two.text())
    assert int(kept) < 20
    assert one.call("acquire", problem=CUSTOM, wait="now")["outcome"] == "lease"


def test_what_was_sent_before_the_silence_is_written_once(stopped):
    one, two = stopped()
    keys = []
    for n in range(1, 4):  # the first one is sent, and waits; the others are kept
        answer = put(two, n)
        assert not answer["saved"]
        keys.append(answer["key"])
    assert two.status()["store"]["unsaved"] == 3
    wake(one)
    eventually(lambda: delivered(two))
    assert rows_of(one) == sorted((k, 1) for k in keys)
    assert put(two, 4)["saved"]


def test_another_one_takes_over_what_was_kept(stopped):
    one, two, three = stopped(3)
    keys = sorted(put(m, n)["key"] for n, m in ((1, two), (2, two), (3, three)))
    kill(one)
    new = keeper_of([two, three])
    for m in (two, three):
        eventually(lambda m=m: delivered(m))
    assert rows_of(new) == [(k, 1) for k in keys]
    for m in (two, three):
        eventually(lambda m=m: m.status()["keys"] == 3)
        assert all(m.call("get", problem={**CUSTOM, "n": n})["saved"] for n in (1, 2, 3))


def test_what_a_person_asks_for_is_refused_and_not_done_later(stopped):
    one, two = stopped()
    key = put(two, 1)["key"]
    with pytest.raises(RpcError, match="busy"):
        two.call("evict", key=key)
    wake(one)
    eventually(lambda: delivered(two))
    assert rows_of(two) == [(key, 1)]
    assert two.call("evict", key=key)["removed"] == 1


def test_a_pinned_generation_does_not_see_what_has_none(host, stopped):
    """What the key answered when the connection was pinned, it answers on."""
    one, = host(1)
    before = one.call("put", problem=CUSTOM, config={"A": 7}, time_us=5)
    _, two = stopped()
    generation = two.call("hello", version=1)["generation"]
    with two.connect() as pinned:
        assert pinned.call("hello", version=1, generation=-1)["generation"] == generation
        put(two, 1)
        assert two.call("get", problem=CUSTOM)["config"] == {"A": 1}
        assert pinned.call("get", problem=CUSTOM)["config"] == before["config"]
        assert two.call("hello", version=1)["generation"] == generation
        wake(one)
        eventually(lambda: delivered(two))
        assert pinned.call("get", problem=CUSTOM)["config"] == before["config"]
        assert two.call("get", problem=CUSTOM)["generation"] == generation + 1


def ask_and_never_read(m, n):
    """So many connections, until nothing goes in any more."""
    silent = [m.connect() for _ in range(n)]
    for c in silent:
        c.socket.setblocking(False)
    moved = time.monotonic()
    while time.monotonic() - moved < 0.5:
        for c in silent:
            try:
                c.socket.send(msgpack.packb([0, 1, "status", {}]) * 200)
                moved = time.monotonic()
            except BlockingIOError:
                pass
    return silent


def test_clients_of_the_keepers_user_do_not_silence_it(host):
    """They are busy with something else, and have more answers to take than their user may."""
    one, two = host(2, options=["--keeper-ms", str(KEEPER_MS), "--user-mib", "1"])
    assert put(two, 1)["saved"]
    silent = ask_and_never_read(one, 12)
    with one.connect(1) as c, pytest.raises(TimeoutError):
        c.call("hello")
    answer = put(two, 2)
    assert answer["saved"] and answer["generation"] == 2
    assert two.status()["store"]["keeper_silent_ms"] == 0
    [c.close() for c in silent]


def test_what_cannot_be_delivered_at_the_end_is_said(stopped):
    one, two = stopped()
    key = put(two, 1)["key"]
    put(two, 2)
    two.killed = True
    assert two.stop() == 0
    assert "2 bests were never saved" in two.text()
    wake(one)  # and what it was sent is there
    eventually(lambda: rows_of(one) == [(key, 1)])
