# SPDX-License-Identifier: Apache-2.0
"""A job that pins a generation gets the same answers all its life; others subscribe to changes."""
import contextlib
import itertools
import sqlite3
import threading

import msgpack
import pytest
from conftest import GEMMD, RpcError, eventually, gemm
from test_daemons import host  # noqa: F401: the fixture

CUSTOM = {"op": "custom:mine", "n": 1}


def pinned(d, generation=-1):
    c = d.connect()
    c.hello = c.call("hello", version=1, generation=generation)
    return c


def improve(c, problem):
    """Pins another config for the key. Returns the old and the new answer."""
    old = c.call("get", problem=problem)
    other = next(t["config"] for t in c.list("trials", key=old["key"], status="ok")
                 if t["config"] != old["config"])
    new = c.call("pin", problem=problem, config=other)
    assert new["config"] != old["config"] and new["generation"] > old["generation"]
    return old, new


def test_a_pinned_job_sees_what_was_when_it_began(daemon):
    d = daemon()
    with d.connect() as c:
        first = c.call("get", problem=gemm(), budget=6)
        job = pinned(d)
        assert job.hello["pinned"] == job.hello["generation"] == first["generation"]
        old, new = improve(c, gemm())
        late = pinned(d, first["generation"])  # this rank of the job starts late, or has restarted
        for rank in (job, late):
            for wait in ("tuned", "now", "cached"):
                for _ in range(2):  # the second answer comes from the daemon's memory
                    assert rank.call("get", problem=gemm(), wait=wait) == first
        # equal request bytes get different answers on a pinned connection and on others
        assert c.call("get", problem=gemm()) == new
        assert c.call("hello")["pinned"] is None
        assert pinned(d).call("get", problem=gemm())["config"] == new["config"]
        c.call("unpin", problem=gemm())
        c.call("tune", problem=gemm(), budget=6)
        assert job.call("get", problem=gemm()) == first
        many = job.call("get_many", problems=[gemm()] * 3)["answers"]
        assert many == [first] * 3
    assert d.stop() == 0
    d.start()
    assert pinned(d, first["generation"]).call("get", problem=gemm()) == first


def test_a_key_that_came_later_answers_all_ranks_alike(daemon):
    d = daemon()
    with d.connect() as c:
        ranks = [pinned(d) for _ in range(3)]
        assert ranks[0].hello["pinned"] == 0
        first = ranks[0].call("get", problem=gemm(), budget=6)
        assert first["source"] == "tuned"
        improve(c, gemm())
        for r in ranks + [pinned(d, 0)]:
            assert r.call("get", problem=gemm()) == first


def test_who_does_not_wait_gets_the_same_lower_tier_all_the_time(daemon):
    d = daemon()
    with d.connect() as c:
        c.call("get", problem=gemm(n=512), budget=4)  # an earlier neighbour
        job = pinned(d)
        before = [job.call("get", problem=gemm(), wait=w) for w in ("now", "cached")]
        assert {b["tier"] for b in before} == {"default"}
        eventually(lambda: c.call("get", problem=gemm(), wait="cached")["tier"] == "exact")
        c.call("get", problem=gemm(m=512), budget=4)  # a nearer neighbour, tuned after the pin
        for wait in ("now", "cached"):
            again = job.call("get", problem=gemm(), wait=wait)
            assert again["tier"] == "default" and again["config"] == before[0]["config"]
        answer, = job.call("get_many", problems=[gemm()], wait="now")["answers"]
        assert answer["tier"] == "default" and answer["config"] == before[0]["config"]
        # keys known before the pin are exact
        assert job.call("get", problem=gemm(n=512), wait="cached")["tier"] == "exact"


def test_who_has_a_deadline_gets_the_same_lower_tier_all_the_time(daemon):
    """Whether a tuning ends before the deadline is chance, and the nearest known bucket changes: neither may affect
    a pinned job."""
    d = daemon()
    with d.connect() as c:
        c.call("get", problem=gemm(n=512), budget=4)  # a known key beside the keys below
        early, late = pinned(d), pinned(d)
        first = early.call("get", problem=gemm(), deadline_ms=1)
        assert first["tier"] == "default"
        eventually(lambda: c.call("get", problem=gemm(), wait="cached")["tier"] == "exact")
        for rank in (early, late):
            again = rank.call("get", problem=gemm(), deadline_ms=10000)
            assert again["tier"] == "default" and again["config"] == first["config"]
        assert late.call("get", problem=gemm())["tier"] == "exact", "who waits gets the first one"


def test_ranks_with_a_tighter_tolerance_agree(daemon):
    d = daemon()
    tight = {"problem": gemm(), "atol": 1e-4, "rtol": 1e-4}
    with d.connect() as c:
        loose = c.call("get", problem=gemm(), budget=6)
        early, late = pinned(d), pinned(d)
        first = early.call("get", **tight)
        other = next(t["config"] for t in c.list("trials", key=loose["key"], status="ok")
                     if t["config"] != first["config"])
        new = c.call("pin", config=other, **tight)
        assert new["config"] != first["config"]
        for rank in (early, late, pinned(d, loose["generation"])):
            assert rank.call("get", **tight) == first
            assert rank.call("get", problem=gemm()) == loose


def test_many_keys_of_an_old_generation_at_once(daemon):
    d = daemon()
    problems = [{**CUSTOM, "n": i} for i in range(200)]
    with d.connect() as c:
        old = [c.call("put", problem=p, config={"A": 1}, time_us=5) for p in problems]
        job = pinned(d)
        for p in problems[:150]:
            c.call("put", problem=p, config={"A": 2}, time_us=4)
        answers = job.call("get_many", problems=problems)["answers"]
        assert [a["config"] for a in answers] == [{"A": 1}] * 200
        assert [a["generation"] for a in answers] == [a["generation"] for a in old]
        assert c.call("get_many", problems=problems)["answers"][0]["config"] == {"A": 2}


def test_a_key_that_changes_while_many_are_answered(daemon):
    """get_many answers in slices; a `put` comes between two slices."""
    d = daemon()
    others = [gemm(m=128 * (i + 1), n=64 * (3 + i % 50), k=64 * (5 + i // 3),
                   routing=f"zipf:{0.3 + i / 100:.2f}") for i in range(250)]
    with d.connect() as c:
        for n in range(4):
            old = c.call("put", problem=CUSTOM, config={"A": 2 * n})
            job = pinned(d)
            many = job.send("get_many", problems=[*others, CUSTOM])
            new = c.send("put", problem=CUSTOM, config={"A": 2 * n + 1})
            answers = job.wait(many)["answers"]
            assert [a["tier"] for a in answers[:-1]] == ["default"] * len(others)
            assert answers[-1] == old
            assert c.wait(new)["generation"] > job.hello["pinned"]
            job.close()


def test_a_row_of_ones_own_does_not_take_the_place_of_the_shared_one(daemon):
    d = daemon()
    with d.connect() as c:
        nothing_yet = pinned(d)
        own = c.call("put", problem=CUSTOM, config={"A": 1})
        shared = c.call("promote", key=own["key"])
        c.call("evict", key=own["key"])
        job = pinned(d)
        later = c.call("put", problem=CUSTOM, config={"A": 99})
        assert c.call("get", problem=CUSTOM) == later
        assert pinned(d).call("get", problem=CUSTOM) == later
        for rank in (job, pinned(d, job.hello["pinned"])):
            assert rank.call("get", problem=CUSTOM) == shared
            assert rank.call("get", problem=CUSTOM, wait="cached") == shared
            assert rank.call("get_many", problems=[CUSTOM])["answers"] == [shared]
        # with wait=tuned the job gets the first of the two later rows, without waiting no answer
        assert nothing_yet.call("get", problem=CUSTOM) == shared
        with pytest.raises(RpcError, match="nothing was known in the pinned generation"):
            nothing_yet.call("get", problem=CUSTOM, wait="cached")


def test_searches_of_ones_own_are_of_no_generation(daemon):
    """Restricted or repeated searches: pinned or not, clients that do not wait get the same answer."""
    d = daemon(options=["--user-jobs", "1"])
    with d.connect() as pinned, d.connect() as free:
        pinned.call("hello", version=1, generation=0)
        free.call("get", problem=gemm(), budget=4)
        free.call("get", problem=gemm(m=512), budget=4)
        for method, params in (("tune", {"problem": gemm()}), ("get", {"problem": gemm(), "again": True}),
                               ("get", {"problem": gemm(m=362), "restrict": {"num_warps": [4, 8]}})):
            answer = free.call(method, wait="cached", **params)
            assert answer["tier"] in ("exact", "near") and pinned.call(method, wait="cached", **params) == answer
        assert pinned.call("get", problem=gemm(), wait="cached")["tier"] == "default"
        busy = free.send("tune", problem=gemm(m=2048), budget=300, iters=100)  # the daemon allows one job for each user
        eventually(lambda: d.status()["jobs"]["running"])
        answer = pinned.call("tune", problem=gemm(), wait="now", budget=9)
        assert answer["tier"] == "exact" and "not being tuned" in answer["note"]
        free.call("cancel", request=busy)


def test_what_was_tuned_since_is_not_called_being_tuned(daemon):
    d = daemon()
    with d.connect() as c:
        job = pinned(d)
        c.call("get", problem=gemm(), budget=4)
        jobs = c.call("status")["jobs"]
        for wait in ("now", "cached"):
            answer = job.call("get", problem=gemm(), wait=wait)
            many, = job.call("get_many", problems=[gemm()], wait=wait)["answers"]
            assert answer == many and answer["tier"] == "default"
            assert "tuned after the generation" in answer["note"]
        assert c.call("status")["jobs"] == jobs


def test_who_waits_for_the_rows_of_a_generation_can_be_cancelled(daemon):
    d = daemon()
    with d.connect() as c:
        first = c.call("get", problem=gemm(), budget=6)
        job = pinned(d)
        improve(c, gemm())
        get, cancel = job.next_id + 1, job.next_id + 2  # sent in one write, before the rows are read
        job.socket.sendall(msgpack.packb([0, get, "get", {"problem": gemm()}])
                           + msgpack.packb([0, cancel, "cancel", {"request": get}]))
        job.next_id = cancel
        assert job.wait(cancel)["cancelled"]
        with pytest.raises(RpcError, match="cancelled by request"):
            job.wait(get)
        assert not job.call("cancel", request=get)["cancelled"]
        assert job.call("get", problem=gemm()) == first


def test_ranks_at_several_daemons_agree(host):  # noqa: F811
    one, two = host(2)
    with one.connect() as c:
        first = two.call("get", problem=gemm(), budget=6)
        eventually(lambda: one.status()["keys"] == 1)
        g = one.call("hello")["generation"]
        ranks = [pinned(one, g), pinned(two, g)]
        _, new = improve(c, gemm())
        eventually(lambda: two.call("get", problem=gemm())["config"] == new["config"])
        assert [r.call("get", problem=gemm()) for r in ranks] == [first] * 2
        late = gemm(n=1024)
        answers = [None, None]

        def ask(i):
            answers[i] = ranks[i].call("get", problem=late, budget=4)
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(2)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert answers[0] == answers[1]
        improve(c, late)
        assert [r.call("get", problem=late) for r in ranks] == answers


def test_a_number_is_known_where_its_news_has_not_arrived_yet(host):  # noqa: F811
    """One rank sends the job's generation to the other ranks. Their daemons may not have read this change yet."""
    one, two = host(2)
    done = threading.Event()

    def improve_on():
        with one.connect() as c:
            for i in itertools.count():
                if done.is_set():
                    break
                c.call("put", problem=CUSTOM, config={"A": i}, time_us=5)
    writer = threading.Thread(target=improve_on)
    writer.start()
    try:
        with one.connect() as first, two.connect() as second:
            for _ in range(2000):
                g = first.call("hello", generation=-1)["pinned"]
                assert second.call("hello", generation=g)["pinned"] == g
    finally:
        done.set()
        writer.join()


def test_a_generation_that_is_not_there(daemon):
    d = daemon()
    with d.connect() as c:
        for value, word in ((7, "not there yet"), (-2, "from 0 on"), ("now", "number")):
            with pytest.raises(RpcError, match="invalid") as e:
                c.call("hello", generation=value)
            assert word in e.value.message
        assert c.call("hello")["pinned"] is None


def test_improvements_are_announced_to_those_who_want_them(host):  # noqa: F811
    one, two = host(2)
    with one.connect() as c, two.connect() as quiet, one.connect() as asking:
        assert c.call("subscribe")["subscribed"]
        c.call("subscribe")  # a second subscription has no effect
        answer = two.call("get", problem=gemm(), budget=6)
        while not any(n == "improved" for n, _ in c.notifications):
            c.notifications.append(tuple(c.read()[1:]))
        heard = [p for n, p in c.notifications if n == "improved"]
        assert len(heard) == 1 and heard[0]["answer"] == answer
        assert heard[0]["problem"]["op"] == "grouped_gemm" and heard[0]["problem"]["N"] == 256
        assert not c.call("subscribe", on=False)["subscribed"]
        c.notifications.clear()
        _, new = improve(asking, gemm())
        eventually(lambda: c.call("get", problem=gemm())["config"] == new["config"])
        assert c.notifications == [] and quiet.call("hello") and quiet.notifications == []


def test_what_could_not_be_read_once_is_read_again(host):  # noqa: F811
    """After a failed read the daemon reads again: a key's answer in a generation must be the same at all daemons."""
    one, two = host(2)
    with one.connect() as c:
        old = c.call("put", problem=CUSTOM, config={"A": 1}, time_us=5)
        rank = pinned(two, old["generation"])
        c.call("put", problem=CUSTOM, config={"A": 2}, time_us=4)
        eventually(lambda: two.call("get", problem=CUSTOM)["config"] == {"A": 2})
        with contextlib.closing(sqlite3.connect(one.database, isolation_level=None)) as file:
            file.execute("PRAGMA legacy_alter_table = ON")
            file.execute("ALTER TABLE best RENAME TO aside")
            for ask in (lambda: rank.call("get", problem=CUSTOM),
                        lambda: rank.call("get_many", problems=[CUSTOM])):
                with pytest.raises(RpcError, match="could not be read") as e:
                    ask()
                assert e.value.name in ("store", "busy")
            file.execute("ALTER TABLE aside RENAME TO best")
        assert rank.call("get", problem=CUSTOM)["config"] == {"A": 1}
        assert rank.call("get_many", problems=[CUSTOM])["answers"][0]["config"] == {"A": 1}
        assert pinned(one, old["generation"]).call("get", problem=CUSTOM)["config"] == {"A": 1}


def restore(d, copy):
    """Stops the daemon, puts the copy in the place of the database, starts the daemon."""
    assert d.stop() == 0
    d.ctl("restore", copy, "--database", d.database, env={"GEMMD_DAEMON": str(GEMMD)})
    d.start()


def test_no_generation_is_given_to_another_key_after_an_older_backup_is_restored(daemon, folder):
    d, copy = daemon(), folder / "copy.db"
    keys = [{"op": "custom:mine", "n": n} for n in range(6)]
    with d.connect() as c:
        c.call("put", problem=keys[0], config={"a": 1}, time_us=1)
        c.call("backup", path=str(copy))
        lost = [c.call("put", problem=k, config={"a": 1}, time_us=1)["generation"] for k in keys[1:4]]
        newest = c.call("hello")["generation"]
        assert newest == max(lost)
    restore(d, copy)
    with d.connect() as c, pinned(d, newest) as job:
        assert c.call("hello")["generation"] == newest, "jobs may still be pinned to it"
        assert c.call("status")["keys"] == 1
        again = c.call("put", problem=keys[4], config={"a": 1}, time_us=1)["generation"]
        assert again > newest
        assert job.call("get", problem=keys[0], wait="cached")["generation"] < min(lost)
    restore(d, copy)  # restored a second time: new generations exceed also those after the first restore
    with d.connect() as c:
        assert c.call("put", problem=keys[5], config={"a": 1}, time_us=1)["generation"] > again
