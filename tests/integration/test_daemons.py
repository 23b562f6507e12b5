# SPDX-License-Identifier: Apache-2.0
"""Several equal daemons on one database: a key is tuned once and served by all. No daemon's death
loses acknowledged rows. A daemon that stops in a commit prevents the others only from saving."""
import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import signal
import threading
import time

import pytest
from conftest import DATA, Daemon, RpcError, eventually, gemm
from test_disk import limit_files

DAEMONS = int(os.environ.get("GEMMD_TEST_DAEMONS", "8"))
KEYS = int(os.environ.get("GEMMD_TEST_KEYS", "32"))
CUSTOM = {"op": "custom:mine", "n": 1}


class Member(Daemon):
    """A daemon of a shared folder, with its own device, socket and log."""

    def __init__(self, folder, number, cache, env, options=()):
        landscape = folder / f"gpu{number}.jsonl"
        if not landscape.exists():
            shutil.copy(DATA / "synthetic.jsonl", landscape)
        super().__init__(folder, f"replay:{landscape}", options, env=env, cache=cache)
        self.socket, self.log = folder / f"{number}.sock", folder / f"log{number}"

    def expect_clean_end(self):
        if not self.killed:
            assert self.stop() == 0, self.text()
        for word in ("ERROR: AddressSanitizer", "runtime error:", "this is a bug"):
            assert word not in self.text(), self.text()


@pytest.fixture
def host(folder, shared_cache):
    """host(n) starts n more daemons of one database; returns all daemons."""
    members = []

    def start(n=2, env=None, options=()):
        for i in range(len(members), len(members) + n):
            members.append(Member(folder, i, shared_cache, env, options).start())
        return list(members)

    yield start
    for m in members:
        m.expect_clean_end()


def kill(m):
    m.killed = True
    m.process.kill()
    m.process.wait()


def problems(n):
    return [gemm(m=256 * (1 + i % 2), n=64 * (1 + i // 2 % 16), k=64 * (1 + i // 32), experts=4)
            for i in range(n)]


def keys_tuned(m):
    """Returns the number of tunings of each key."""
    return m.sql("SELECT key, count(*) FROM best WHERE source = 'tuned' GROUP BY key")


def test_an_answer_of_one_is_an_answer_of_all(host):
    one, two, three = host(3)
    assert [m.status()["store"]["daemons"] for m in (one, two, three)] == [3, 3, 3]
    tuned = two.call("get", problem=gemm(), budget=4)
    assert tuned["saved"] and tuned["source"] == "tuned"
    for m in (one, two, three):
        assert eventually(lambda m=m: m.status()["keys"] == 1)
        assert m.call("get", problem=gemm(), wait="cached") == tuned
        assert m.call("show", key=tuned["key"])["answer"] == tuned
    assert two.status()["jobs"]["done"] == 1
    assert three.status()["jobs"]["done"] == one.status()["jobs"]["done"] == 0
    rows = three.sql("SELECT device, count(*) FROM trial JOIN run ON run.id = trial.run")
    assert rows[0][0] == "replay-gpu1" and rows[0][1] >= 4
    assert {d for d, in one.sql("SELECT uuid FROM device")} == {f"replay-gpu{i}" for i in range(3)}


def test_what_one_takes_out_is_out_everywhere(host):
    one, two = host(2)
    key = one.call("put", problem=CUSTOM, config={"A": 1}, time_us=5)["key"]
    eventually(lambda: two.status()["keys"] == 1)
    assert two.call("evict", key=key)["removed"] == 1
    for m in (one, two):
        assert m.status()["keys"] == 0
        with pytest.raises(RpcError, match="no_config"):
            m.call("get", problem=CUSTOM)
    pinned = two.call("get", problem=gemm(), budget=4)
    other = next(t["config"] for t in two.connect().list("trials", key=pinned["key"], status="ok")
                 if t["config"] != pinned["config"])
    assert two.call("pin", problem=gemm(), config=other)["source"] == "manual"
    eventually(lambda: one.call("get", problem=gemm())["source"] == "manual")
    assert one.call("unpin", problem=gemm())["config"] == pinned["config"]
    eventually(lambda: two.call("get", problem=gemm())["source"] == "tuned")


def test_evicts_and_puts_in_turn_are_the_same_everywhere(host):
    """Each cache ends with the rows of the file, in any order of requests."""
    one, two = host(2)
    problems = [{**CUSTOM, "n": i} for i in range(20)]
    with one.connect() as a, two.connect() as b:
        keys = [a.call("put", problem=p, config={"A": 0}, time_us=5)["key"] for p in problems]
        for round_ in range(1, 6):
            for p, key in zip(problems, keys):
                a.send("put", problem=p, config={"A": round_}, time_us=5)
                b.send("evict", key=key)
                b.send("put", problem=p, config={"A": -round_}, time_us=5)
                a.send("evict", key=key)
        a.wait(a.next_id), b.wait(b.next_id)
        left = {key: json.loads(config) for key, config in one.sql("SELECT key, config FROM current_best")}
        assert set(left) <= set(keys)

        def said(c, key, problem):
            try:
                return c.call("get", problem=problem, wait="cached")["config"]
            except RpcError:
                return None
        for p, key in zip(problems, keys):
            for c in (a, b):
                eventually(lambda c=c: said(c, key, p) == left.get(key))


def test_two_clients_of_two_daemons_one_tuning(host):
    one, two = host(2, env={"GEMMD_REPLAY_SPEED": "1"})
    with one.connect() as a, two.connect() as b:
        first = a.send("get", problem=gemm(), budget=12)
        eventually(lambda: one.status()["runner"]["state"] == "busy")
        second = b.send("get", problem=gemm(), budget=12)
        other = b.call("get", problem=gemm(m=1024), budget=4)  # keeps b's device busy
        answer = a.wait(first)
        assert answer == b.wait(second) and other["key"] != answer["key"]
    assert sorted(keys_tuned(one)) == sorted([(answer["key"], 1), (other["key"], 1)])
    assert one.status()["jobs"]["done"] + two.status()["jobs"]["done"] == 2


def test_a_waiting_job_runs_here_when_the_other_daemon_dies(host):
    one, two = host(2, env={"GEMMD_REPLAY_SPEED": "1"})
    with one.connect() as a, two.connect() as b:
        b.send("get", problem=gemm(), budget=400, iters=100)
        eventually(lambda: two.status()["runner"]["state"] == "busy")
        asked = a.send("get", problem=gemm(), budget=4)
        eventually(lambda: one.status()["jobs"]["elsewhere"] == 1)
        kill(two)
        assert a.wait(asked)["source"] == "tuned"


def test_a_deadline_and_a_cancel_while_another_daemon_tunes(host):
    one, two = host(2, env={"GEMMD_REPLAY_SPEED": "1"})
    with one.connect() as a, two.connect() as b:
        a.send("get", problem=gemm(), budget=400, iters=100)
        eventually(lambda: one.status()["runner"]["state"] == "busy")
        late = b.call("get", problem=gemm(), budget=4, deadline_ms=300)
        assert late["tier"] != "exact" and "deadline" in late["note"]
        asked = b.send("get", problem=gemm(), budget=5)
        eventually(lambda: two.status()["jobs"]["elsewhere"] == 2)
        assert b.call("cancel", request=asked)["cancelled"]
        with pytest.raises(RpcError, match="cancelled"):
            b.wait(asked)


def test_leases_of_clients_hold_across_daemons(host):
    one, two = host(2)
    for here, there in ((one, two), (two, one)):
        problem = {**CUSTOM, "at": str(here.socket)}
        holder, waiter = here.connect(), there.connect()
        assert holder.call("acquire", problem=problem)["outcome"] == "lease"
        assert waiter.call("acquire", problem=problem, wait="now")["outcome"] == "held"
        asked = waiter.send("acquire", problem=problem)
        holder.close()
        assert waiter.wait(asked)["outcome"] == "lease"
        with here.connect() as third:
            asked = third.send("acquire", problem=problem)
            waiter.call("put", problem=problem, config={"A": 1}, time_us=5)
            assert third.wait(asked)["outcome"] == "hit"
        waiter.close()


def ask_all(m, wanted, answers, failures):
    """A rank: sends all queries at once, and records the failure when its daemon dies."""
    with m.connect() as c:
        requests = [c.send("get", problem=p, budget=2) for p in wanted]
        try:
            for r in requests:
                answer = c.wait(r)
                answers.append(answer)
        except (EOFError, ConnectionError, RpcError) as e:
            failures.append(e)


def run_ranks(members, ranks, wanted):
    """`ranks` clients send all queries at once, rank i to daemon i (mod n). Returns seconds."""
    answers, failures = [], []
    threads = [threading.Thread(target=ask_all,
                                args=(members[i % len(members)], wanted, answers, failures))
               for i in range(ranks)]
    begun = time.monotonic()
    [t.start() for t in threads]
    [t.join() for t in threads]
    seconds = time.monotonic() - begun
    assert not failures, failures
    alone = [line for m in members for line in m.text().splitlines() if "is not leased" in line]
    assert not alone, "the disk is too slow for this test: " + alone[0]
    assert len(answers) == ranks * len(wanted) and all(a["tier"] == "exact" for a in answers)
    assert len({(a["key"], str(a["config"])) for a in answers}) == len({a["key"] for a in answers})
    return seconds


@pytest.mark.parametrize("daemons", [1, DAEMONS])
def test_ranks_cold(host, daemons, record_property):
    """8 ranks query the same keys of an empty database: as many tunings as keys. tests/bench/cold_ranks.py
    measures the time for 200 keys."""
    members = host(daemons, env={"GEMMD_REPLAY_SPEED": "20"})
    wanted = problems(KEYS)
    run_ranks(members, 8, wanted)
    rows = keys_tuned(members[0])
    assert len(rows) == len({m.call("get", problem=p)["key"] for m in members[:1] for p in wanted})
    assert all(n == 1 for _, n in rows), [r for r in rows if r[1] > 1]
    assert sum(m.status()["jobs"]["done"] for m in members) == len(rows)


@pytest.mark.parametrize("asked", [0, 1])
def test_the_misses_of_one_daemon_spread_over_all(host, asked):
    """A job queries only one daemon. The other daemons, which are idle, tune a part of the keys."""
    members = host(4, env={"GEMMD_REPLAY_SPEED": "4"})
    wanted = problems(40)
    run_ranks(members[asked:asked + 1], 2, wanted)
    rows = keys_tuned(members[0])
    assert len(rows) == 40 and all(n == 1 for _, n in rows)
    by_daemon = [m.status()["jobs"]["done"] for m in members]
    assert sum(by_daemon) == 40 and min(by_daemon) >= 2, by_daemon
    eventually(lambda: not members[0].sql("SELECT key FROM wanted"), 30)


def test_daemons_whose_searches_fail_leave_them_to_the_others(folder, shared_cache):
    """Each tries each search of another daemon once in ten seconds, and takes none away from the third."""
    faults = folder / "faults"
    faults.write_text(json.dumps({"config": "", "fault": "no_memory", "stage": "prepare"}) + "\n")
    of = {"GEMMD_REPLAY_SPEED": "4"}
    members = [Member(folder, i, shared_cache, {**of, "GEMMD_REPLAY_FAULTS": str(faults)} if i in (1, 3) else of).start()
               for i in range(4)]
    began = time.monotonic()
    run_ranks(members[:1], 1, problems(40))
    jobs = [m.status()["jobs"] for m in members]
    passes = 2 + (time.monotonic() - began) // 10
    done, failed = [j["done"] for j in jobs], [j["failed"] for j in jobs]
    assert sum(done) == 40 and done[1] == done[3] == 0 and done[2] >= 5, done
    assert max(failed) <= 40 * passes, failed
    for m in members:
        m.expect_clean_end()


def test_a_search_taken_by_another_daemon_keeps_its_bucket(host):
    """The problems are no buckets of the database, so rounding them again would give other keys."""
    one, *others = host(4, env={"GEMMD_REPLAY_SPEED": "4"})
    with one.connect() as c:
        asked = [c.send("get", problem=gemm(m=306 + 2 * i, n=64, k=64), bucket="exact", budget=4)
                 for i in range(24)]
        keys = {c.wait(r)["key"] for r in asked}
    assert len(keys) == 24 and any(m.status()["jobs"]["done"] for m in others)
    assert sorted(keys_tuned(one)) == [(key, 1) for key in sorted(keys)]
    assert {key for key, in one.sql("SELECT key FROM trial")} == keys


def test_a_client_joins_a_search_of_its_bucket_that_was_taken(host):
    one, two = host(2, env={"GEMMD_REPLAY_SPEED": "1"})
    query = {"problem": gemm(m=306), "bucket": "exact", "budget": 400, "iters": 100}
    with one.connect() as a, two.connect() as b:
        a.send("get", problem=gemm(), budget=400, iters=100)
        eventually(lambda: one.status()["runner"]["state"] == "busy")
        a.send("get", **query)
        eventually(lambda: two.status()["runner"]["state"] == "busy")
        b.send("get", **query)
        assert b.call("status")["jobs"]["queued"] == 0


def answers(m, n):
    """Returns (config, generation, saved) of a daemon's answer, or None without an answer."""
    try:
        answer = m.call("get", problem={**CUSTOM, "n": n}, wait="cached")
    except RpcError as e:
        assert e.name == "not_found", e
        return None
    return answer["config"]["A"], answer["generation"], answer["saved"]


def put(m, n, a):
    return m.call("put", problem={**CUSTOM, "n": n}, config={"A": a}, time_us=5)


def look_and_tune(one, two):
    """`one` verifies its best config for a tighter tolerance; meanwhile `two` is asked to tune the key.
    Returns both answers, and the phases that `two` reported."""
    one.call("evict", problem=gemm())
    assert one.call("get", problem=gemm(), budget=10)["measured"] == 10
    eventually(lambda: two.call("get", problem=gemm(), wait="cached")["tier"] == "exact")
    eventually(lambda: one.status()["runner"]["state"] == "none")
    done = one.status()["jobs"]["done"]
    with one.connect() as a, two.connect() as b:
        looks = a.send("get", problem=gemm(), atol=1e-3)
        eventually(lambda: one.status()["jobs"]["running"] or one.status()["jobs"]["done"] > done)
        tunes = b.send("tune", problem=gemm(), budget=40, progress=True)
        return a.wait(looks), b.wait(tunes), {params["phase"] for _, params in b.notifications}


def test_a_tune_that_waits_for_another_daemon_is_a_search(host):
    """`two` searches after the wait, because `one` only verified its config and did not search."""
    one, two = host(2, options=["--linger-ms", "0"])  # so that the verification includes a runner's start
    one.call("get", problem=gemm(), budget=10)
    phases = set()
    for _ in range(9):
        if "elsewhere" not in phases:  # repeats while `one` has verified before `two` is asked to tune
            looked, tuned, phases = look_and_tune(one, two)
            assert looked["tier"] == "exact" and tuned["measured"] == 40 and "measure" in phases
    assert "elsewhere" in phases and two.status()["jobs"]["shared"] == 0
    why = one.call("why", problem=gemm(), atol=1e-3)
    assert why["answer"]["measured"] >= 10 and not [d for d in why["doubts"] if "configs were measured" in d]


def test_a_daemon_that_stops_and_comes_back(host):
    one, two = host(2)
    key = two.call("put", problem=CUSTOM, config={"A": 1}, time_us=5)["key"]
    one.killed = True
    assert one.stop() == 0, one.text()
    assert two.status()["store"]["daemons"] == 1
    tuned = two.call("get", problem=gemm(), budget=4)
    one.start()
    assert one.status()["store"]["daemons"] == two.status()["store"]["daemons"] == 2
    assert one.call("get", problem=CUSTOM)["key"] == key
    assert one.call("get", problem=gemm(), wait="cached") == tuned


def test_kill_9_in_the_middle(host):
    members = host(4, env={"GEMMD_REPLAY_SPEED": "4"})
    wanted = problems(KEYS)
    answers_, failures = [], [[] for _ in members]
    ranks = [threading.Thread(target=ask_all, args=(m, wanted, answers_, failures[i]))
             for i, m in enumerate(members)]
    [r.start() for r in ranks]
    for m in members[:2]:
        before = len(answers_)
        eventually(lambda: len(answers_) > before + 10, 30)
        kill(m)
    [r.join() for r in ranks]
    left = [m for m in members if not m.killed]
    assert all(not failures[i] for i, m in enumerate(members) if not m.killed), failures
    saved = {a["key"]: a for a in sorted(answers_, key=lambda a: a["generation"]) if a["saved"]}
    assert len(saved) == len({a["key"] for a in answers_}) > 0
    for m in left:
        shown = m.connect()
        for key, answer in saved.items():
            # the row was made twice if a daemon died before its reply: then the generation is later, the config the same
            got = shown.call("show", key=key)["answer"]
            assert got["config"] == answer["config"] and got["generation"] >= answer["generation"]
        assert {shown.call("get", problem=p, wait="cached")["tier"] for p in wanted} == {"exact"}
        shown.close()
    assert left[0].sql("PRAGMA integrity_check") == [("ok",)]


def test_who_heard_nothing_for_a_while_forgets_what_is_gone(host):
    away, other = host(2)
    keys = [put(other, n, n)["key"] for n in range(4)]
    tuned = away.call("get", problem=gemm(), budget=4)
    eventually(lambda: other.status()["keys"] == away.status()["keys"] == 5)
    eventually(lambda: away.status()["portfolio"]["shapes"] == 1)
    os.kill(away.process.pid, signal.SIGSTOP)
    for key in (keys[0], keys[1], tuned["key"]):
        assert other.call("evict", key=key)["removed"] > 0
    put(other, 1, 7)  # evicted and put again
    put(other, 5, 5)
    os.kill(away.process.pid, signal.SIGCONT)
    eventually(lambda: answers(away, 5))
    eventually(lambda: answers(away, 0) is None)
    assert [answers(away, n)[0] for n in (1, 2, 3, 5)] == [7, 2, 3, 5]
    assert away.status()["keys"] == 4
    assert away.call("get", problem=gemm(), wait="cached")["tier"] == "default"
    eventually(lambda: away.status()["portfolio"]["shapes"] == 0)


def test_more_changes_than_are_kept(host):
    """A daemon is stopped until rows of the table `change` that it has not read are deleted. Then it reads all keys."""
    away, other = host(2)
    gone = put(other, 0, 0)["key"]
    eventually(lambda: answers(away, 0))
    os.kill(away.process.pid, signal.SIGSTOP)
    other.call("evict", key=gone)
    with other.connect() as c:
        for a in range(9000):
            c.send("put", problem={**CUSTOM, "n": 1 + a % 50}, config={"A": a}, time_us=5)
            if a % 100 == 99:
                c.wait(c.next_id)
    os.kill(away.process.pid, signal.SIGCONT)
    eventually(lambda: (answers(away, 50) or [0])[0] == 8999)
    eventually(lambda: answers(away, 0) is None and away.status()["keys"] == 50)


def test_what_one_could_not_save_the_others_hear_when_it_can(host):
    one, two = host(2)
    for n in range(20):
        put(one, 1, n)  # makes the database's log long, because limit_files() sets the limit to half of its size
    limit_files(one, True)
    for a in range(2, 5):
        unsaved = put(one, 2, a)
    assert not unsaved["saved"] and unsaved["generation"] == 0 and one.status()["store"]["disk_full"]
    assert answers(two, 2) is None and answers(one, 2) == (4, 0, False)
    assert put(two, 3, 3)["saved"], "one daemon's limit is not another's"
    limit_files(one, False)
    eventually(lambda: (answers(two, 2) or [0])[0] == 4)  # the last put wins, after the earlier unsaved puts
    number = answers(two, 2)[1]
    assert answers(two, 2) == (4, number, True) and number > 0
    eventually(lambda: answers(one, 2) == (4, number, True))
    assert one.status()["store"]["unsaved"] == 0


def test_what_another_takes_out_is_not_saved_later(host):
    one, two = host(2)
    for n in range(20):
        put(one, 1, n)
    limit_files(one, True)
    assert not put(one, 2, 2)["saved"]
    two.call("evict", problem={**CUSTOM, "n": 2})
    eventually(lambda: answers(one, 2) is None)
    limit_files(one, False)
    eventually(lambda: one.status()["store"]["unsaved"] == 0 and put(one, 3, 3)["saved"])
    assert answers(one, 2) is None and answers(two, 2) is None


# ---- a daemon that is stopped in a commit ----------------------------------------------------------


@contextlib.contextmanager
def commit_lock(m):
    """Holds the commit lock (the lock file beside the database), like a daemon stopped in the middle of a commit."""
    with open(f"{m.database}.lock", "r+") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def is_saved(m):
    store = m.status()["store"]
    return store["unsaved"] == 0 and not store["locked"]


def rows_of(m):
    return sorted(m.sql("SELECT key, count(*) FROM best GROUP BY key"))


def test_a_tuning_goes_on_while_another_holds_the_commit_lock(host):
    one, two = host(2)
    with commit_lock(one):
        answer = two.call("get", problem=gemm(), budget=4)
        assert answer["source"] == "tuned" and not answer["saved"] and answer["generation"] == 0
        assert two.call("get", problem=gemm(), wait="cached")["config"] == answer["config"]
        store = two.status()["store"]
        assert store["unsaved"] == 1 and store["locked"]
        assert "the commit lock" in two.text()
    eventually(lambda: is_saved(two))
    assert rows_of(two) == [(answer["key"], 1)]
    for m in (one, two):
        known = eventually(lambda m=m: [a for a in [m.call("get", problem=gemm(), wait="cached")]
                                        if a["saved"]])[0]
        assert known["generation"] > 0 and known["config"] == answer["config"]


def test_what_a_person_asks_for_is_refused_and_not_done_later(host):
    one, two = host(2)
    key = put(two, 1, 1)["key"]
    with commit_lock(one):
        for verb, what in (("evict", {"key": key}), ("unquarantine", {"variant": "0" * 32})):
            with pytest.raises(RpcError, match="busy"):
                two.call(verb, **what)
        assert not put(two, 2, 2)["saved"]
    eventually(lambda: is_saved(two))
    assert [n for _, n in rows_of(two)] == [1, 1]
    assert two.call("evict", key=key)["removed"] == 1


def test_a_pinned_generation_does_not_see_what_has_none(host):
    """A pinned connection gets the answer of its generation, not a later unsaved answer without a number."""
    one, two = host(2)
    before = put(one, 1, 7)
    eventually(lambda: answers(two, 1))
    generation = two.call("hello", version=1)["generation"]
    with two.connect() as pinned:
        assert pinned.call("hello", version=1, generation=-1)["generation"] == generation
        with commit_lock(one):
            assert not put(two, 1, 1)["saved"]
            assert answers(two, 1) == (1, 0, False)
            assert pinned.call("get", problem={**CUSTOM, "n": 1})["config"] == before["config"]
            assert two.call("hello", version=1)["generation"] == generation
        eventually(lambda: is_saved(two))
        assert pinned.call("get", problem={**CUSTOM, "n": 1})["config"] == before["config"]
        assert answers(two, 1)[1] == generation + 1


def test_a_generation_is_the_same_at_each_daemon(host):
    """one pins to a generation that it has just committed, and has not heard yet of two's row below it."""
    one, two = host(2)
    within = 0
    with one.connect() as a, two.connect() as b, one.connect() as pinned:
        for n in range(1000):
            theirs = b.send("put", problem={**CUSTOM, "n": n}, config={"a": 1}, time_us=1.0)
            ours = a.send("put", problem={**CUSTOM, "n": 1000000 + n}, config={"a": 1}, time_us=1.0)
            a.wait(ours)
            generation = pinned.call("hello", version=1, generation=-1)["pinned"]
            try:
                answer = pinned.call("get", problem={**CUSTOM, "n": n}, wait="cached")["generation"]
            except RpcError:
                answer = None
            written = b.wait(theirs)["generation"]
            assert answer == (written if written <= generation else None)
            within += written <= generation
    assert within > 0


def test_what_cannot_be_saved_at_the_end_is_said(host):
    one, two = host(2)
    with commit_lock(one):
        put(two, 1, 1)
        put(two, 2, 2)
        two.killed = True
        assert two.stop() == 0
    assert "2 bests were never saved" in two.text()
    assert rows_of(one) == []


def test_who_cannot_have_the_commit_lock_does_not_start(host, folder):
    one, = host(1)
    with commit_lock(one):
        two = Member(folder, 9, one.cache, None)
        with pytest.raises(AssertionError, match=f"ended with 75: .*commit lock"):
            two.start()


def test_a_commit_lock_that_was_removed_is_made_anew(host):
    one, two = host(2)
    os.unlink(f"{one.database}.lock")
    for n in range(10):
        assert put((one, two)[n % 2], n, n)["saved"]
    assert pathlib.Path(f"{one.database}.lock").exists()
    for m in (one, two):
        eventually(lambda m=m: m.status()["keys"] == 10)
    assert [g for g, in one.sql("SELECT generation FROM best")] == list(range(1, 11))


@pytest.mark.parametrize("what", ["folder", "fifo", "link", "foreign"])
def test_a_lock_file_that_is_none_keeps_a_daemon_from_starting(folder, shared_cache, what):
    m = Member(folder, 0, shared_cache, None)
    lock = pathlib.Path(f"{m.database}.lock")
    if what == "folder":
        lock.mkdir()
    elif what == "fifo":
        os.mkfifo(lock)
    elif what == "link":
        lock.symlink_to(folder / "elsewhere")
    elif os.geteuid() == 0:
        lock.touch()
        os.chown(lock, 12345, 12345)
    else:
        pytest.skip("only root makes files of other users")
    with pytest.raises(AssertionError, match=f"(?s)ended with 1: .*{lock.name}"):
        m.start()


def test_a_search_in_pauses_stays_with_its_daemon(host):
    """The other daemon knows nothing of the pauses, and its device may run a training step."""
    job, idle = host(2)
    with job.connect() as c:
        problems = [gemm(m=m) for m in (256, 512)]
        for problem in problems:
            c.call("get", problem=problem, wait="boundary")
        eventually(lambda: c.call("status")["job"]["phase"] == "pause", seconds=60)
        assert c.call("status")["jobs"]["queued"] == 1 and job.sql("SELECT count(*) FROM wanted") == [(0,)]
        while c.call("pause", ms=20)["left"]:
            time.sleep(0.01)
        assert {c.call("get", problem=p, wait="cached")["tier"] for p in problems} == {"exact"}
    assert idle.status()["runner"]["starts"] == 0
