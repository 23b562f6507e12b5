# SPDX-License-Identifier: Apache-2.0
"""Several daemons, one database: a key is tuned once, everybody gets it, and the keeper's death loses
nothing that was acknowledged."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import threading
import time

import msgpack
import pytest
from conftest import (DATA, GEMMD, PATIENCE, RUNNER, Daemon, RpcError, eventually, gemm)
from test_disk import limit_files

DAEMONS = int(os.environ.get("GEMMD_TEST_DAEMONS", "8"))
KEYS = int(os.environ.get("GEMMD_TEST_KEYS", "32"))
CUSTOM = {"op": "custom:mine", "n": 1}


class Member(Daemon):
    """One of the daemons of a folder: a device, a socket and a log of its own."""

    def __init__(self, folder, number, cache, env, options=()):
        landscape = folder / f"gpu{number}.jsonl"
        if not landscape.exists():
            shutil.copy(DATA / "synthetic.jsonl", landscape)
        super().__init__(folder, f"replay:{landscape}", options, env=env, cache=cache)
        self.socket, self.log = folder / f"{number}.sock", folder / f"log{number}"


@pytest.fixture
def host(folder, shared_cache):
    """host(n) -> n daemons of one database, the first of them its keeper."""
    members = []

    def start(n=2, env=None, options=()):
        for i in range(len(members), len(members) + n):
            members.append(Member(folder, i, shared_cache, env, options).start())
        return list(members)

    yield start
    for m in members:
        if not m.killed:
            assert m.stop() == 0, m.text()
        for word in ("ERROR: AddressSanitizer", "runtime error:", "this is a bug"):
            assert word not in m.text(), m.text()


def kill(m):
    m.killed = True
    m.process.kill()
    m.process.wait()


def keeper_of(members):
    """Which of them says that it is the keeper; waits until there is one."""
    def find():
        keepers = [m for m in members if not m.killed and m.status()["store"]["keeper"]]
        return keepers[0] if len(keepers) == 1 else None
    return eventually(find)


def problems(n):
    return [gemm(m=256 * (1 + i % 2), n=64 * (1 + i // 2 % 16), k=64 * (1 + i // 32), experts=4)
            for i in range(n)]


def keys_tuned(m):
    """How often each key was tuned, by the reference that every search measures first."""
    return m.sql("SELECT key, count(*) FROM best WHERE source = 'tuned' GROUP BY key")


@pytest.mark.parametrize("key", ["abcdef", "", "ABCDEF0123456789ABCDEF0123456789", None])
@pytest.mark.parametrize("verb", ["publish", "record", "trial"])
def test_a_row_without_a_proper_key_is_refused(host, verb, key):
    """Once written it would be bad whenever it is read."""
    keeper, = host(1)
    row = {"family": "grouped_gemm", "config": {"A": 1}, "source": "imported", "stage": "measure"}
    if key is not None:
        row["key"] = key
    with pytest.raises(RpcError) as e:
        keeper.call("ledger", verb=verb, row=row)
    assert e.value.name == "invalid" and "'key'" in e.value.message
    keeper.call("ledger", verb=verb, row={**row, "key": "0123456789abcdef" * 2})


def test_an_answer_of_one_is_an_answer_of_all(host):
    one, two, three = host(3)
    assert one.status()["store"]["keeper"] and not two.status()["store"]["keeper"]
    assert eventually(lambda: one.status()["store"]["daemons"] == 3)
    assert two.status()["store"]["daemons"] == 3
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
    """Each cache ends up with what the file has, whoever asked for what in between."""
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
        other = b.call("get", problem=gemm(m=1024), budget=4)  # its device is not idle meanwhile
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


def test_a_stopped_keeper_hands_over(host):
    members = host(3)
    one = members[0]
    key = members[1].call("put", problem=CUSTOM, config={"A": 1}, time_us=5)["key"]
    one.killed = True
    assert one.stop() == 0, one.text()
    new = keeper_of(members[1:])
    other = next(m for m in members[1:] if m is not new)
    assert eventually(lambda: new.status()["store"]["daemons"] == 2)
    tuned = other.call("get", problem=gemm(), budget=4)
    assert tuned["saved"] and eventually(lambda: new.status()["keys"] == 2)
    one.start()  # and comes back as one of the others
    assert not one.status()["store"]["keeper"]
    assert one.call("get", problem=CUSTOM)["key"] == key
    assert one.call("get", problem=gemm(), wait="cached") == tuned


def ask_all(m, wanted, answers, failures):
    """A rank: everything in one go, again at whichever daemon is left when its own dies."""
    with m.connect() as c:
        requests = [c.send("get", problem=p, budget=2) for p in wanted]
        try:
            for r in requests:
                answer = c.wait(r)
                answers.append(answer)
        except (EOFError, ConnectionError, RpcError) as e:
            failures.append(e)


def test_kill_9_of_the_keeper_in_the_middle(host):
    members = host(4, env={"GEMMD_REPLAY_SPEED": "4"})
    wanted = problems(KEYS)
    answers, failures = [], [[] for _ in members]
    ranks = [threading.Thread(target=ask_all, args=(m, wanted, answers, failures[i]))
             for i, m in enumerate(members)]
    [r.start() for r in ranks]
    for _ in range(2):  # the first keeper, then the one that followed it
        before = len(answers)
        eventually(lambda: len(answers) > before + 10, 30)
        kill(keeper_of(members))
    [r.join() for r in ranks]
    left = [m for m in members if not m.killed]
    assert all(not failures[i] for i, m in enumerate(members) if not m.killed), failures
    saved = {a["key"]: a for a in sorted(answers, key=lambda a: a["generation"]) if a["saved"]}
    assert len(saved) == len({a["key"] for a in answers}) > 0
    for m in left:
        shown = m.connect()
        for key, answer in saved.items():
            # published twice, when the keeper died before it could say so: still this answer's config
            got = shown.call("show", key=key)["answer"]
            assert got["config"] == answer["config"] and got["generation"] >= answer["generation"]
        assert {shown.call("get", problem=p, wait="cached")["tier"] for p in wanted} == {"exact"}
        shown.close()
    assert left[0].sql("PRAGMA integrity_check") == [("ok",)]


def test_a_pin_stays_though_another_daemon_was_tuning(host):
    """Pinned after the search had ended, and before its best was written: only who writes it can see that."""
    keeper, pins, tunes = host(3, env={"GEMMD_REPLAY_SPEED": "1"}, options=["--keeper-ms", "60000"])
    first = tunes.call("get", problem=gemm(), budget=4)
    assert tunes.call("evict", key=first["key"])["removed"] > 0
    with tunes.connect() as c:
        asked = c.send("get", problem=gemm(), budget=40, iters=20, progress=True)
        eventually(lambda: tunes.status()["runner"]["state"] == "busy")
        os.kill(keeper.process.pid, signal.SIGSTOP)
        while c.read()[2]["phase"] != "final":
            pass
        time.sleep(1)  # what it found is on its way to the keeper
        os.kill(tunes.process.pid, signal.SIGSTOP)
        kill(keeper)
        assert keeper_of([pins]) is pins
        assert pins.call("pin", problem=gemm(), config=first["config"])["source"] == "manual"
        os.kill(tunes.process.pid, signal.SIGCONT)
        answer = c.wait(asked)
    assert answer["source"] == "tuned" and not answer["saved"] and "pinned" in answer["note"]
    assert pins.sql("SELECT source FROM best") == [("manual",)]
    for m in (pins, tunes):
        eventually(lambda m=m: m.call("get", problem=gemm(), wait="cached")["source"] == "manual")


def test_what_comes_late_is_refused_by_who_writes(host):
    """As `test_a_pin_stays_...`, for the other sources, in the words of the daemons."""
    keeper, = host(1)
    tuned = keeper.call("get", problem=gemm(), budget=4)
    row, = keeper.connect().list("best")

    def publish(source, known):
        return keeper.call("ledger", verb="publish", row={**row, "source": source, "generation": known})

    with pytest.raises(RpcError, match="conflict: winner of a restricted search"):
        publish("partial", tuned["generation"] - 1)
    with pytest.raises(RpcError, match="conflict: the pin of key"):
        publish("manual", tuned["generation"])
    pinned = publish("manual", 0)["row"]["generation"]
    with pytest.raises(RpcError, match="conflict: a config that was pinned meanwhile"):
        publish("tuned", pinned - 1)
    assert publish("manual", pinned)["saved"] and publish("tuned", pinned + 1)["saved"]


def run_ranks(members, ranks, wanted):
    """`ranks` clients ask for everything at once, rank i at daemon i (mod n). Seconds."""
    answers, failures = [], []
    threads = [threading.Thread(target=ask_all,
                                args=(members[i % len(members)], wanted, answers, failures))
               for i in range(ranks)]
    begun = time.monotonic()
    [t.start() for t in threads]
    [t.join() for t in threads]
    seconds = time.monotonic() - begun
    assert not failures, failures
    assert len(answers) == ranks * len(wanted) and all(a["tier"] == "exact" for a in answers)
    assert len({(a["key"], str(a["config"])) for a in answers}) == len({a["key"] for a in answers})
    return seconds


@pytest.mark.parametrize("daemons", [1, DAEMONS])
def test_ranks_cold(host, daemons, record_property):
    """8 ranks ask the same keys, cold: as many tunings as keys. `tests/bench/cold_ranks.py` has it with
    200 keys, timed."""
    members = host(daemons, env={"GEMMD_REPLAY_SPEED": "20"})
    wanted = problems(KEYS)
    run_ranks(members, 8, wanted)
    rows = keys_tuned(members[0])
    assert len(rows) == len({m.call("get", problem=p)["key"] for m in members[:1] for p in wanted})
    assert all(n == 1 for _, n in rows), [r for r in rows if r[1] > 1]
    assert sum(m.status()["jobs"]["done"] for m in members) == len(rows)


@pytest.mark.parametrize("asked", [0, 1])
def test_the_misses_of_one_daemon_spread_over_all(host, asked):
    """A job that knows one daemon only: the others, the keeper or not, were idle."""
    members = host(4, env={"GEMMD_REPLAY_SPEED": "4"})
    eventually(lambda: members[0].status()["store"]["daemons"] == 4)
    wanted = problems(40)
    run_ranks(members[asked:asked + 1], 2, wanted)
    rows = keys_tuned(members[0])
    assert len(rows) == 40 and all(n == 1 for _, n in rows)
    by_daemon = [m.status()["jobs"]["done"] for m in members]
    assert sum(by_daemon) == 40 and min(by_daemon) >= 2, by_daemon


def test_a_daemon_that_starts_takes_no_job_before_it_serves(host):
    """It hears the others while it reads what is known: what they say is not for it yet."""
    keeper, job = host(1)[0], msgpack.packb({"problem": gemm()})
    for n in range(1000):  # to be read
        put(keeper, n, 1)
    with keeper.connect() as f:
        f.call("follow", owner="1.1")
        start = threading.Thread(target=host, args=[1])
        start.start()
        idle = []
        while start.is_alive() or not idle:
            f.call("ledger", verb="unlease", key="0" * 32, owner="9.9")  # news: a job of somebody's has ended
            said = [news["said"] for _, news in f.notifications if news["kind"] == "said"]
            idle += [s for s in said if s["say"] == "idle" and not s["owner"].startswith(f"{keeper.process.pid}.")]
            for s in idle[:1]:
                offer = {"say": "offer", "to": s["owner"], "class": s["class"], "uid": 0, "search": job}
                f.call("ledger", verb="tell", said=offer)
            f.notifications.clear()
        start.join()
    started = host(0)[1]
    assert idle[0]["ask"] and idle[0]["owner"].startswith(f"{started.process.pid}."), idle[:3]
    assert started.status()["pid"] == started.process.pid


def answers(m, n):
    """Config, generation, saved; None: it knows nothing."""
    try:
        answer = m.call("get", problem={**CUSTOM, "n": n}, wait="cached")
    except RpcError as e:
        assert e.name == "not_found", e
        return None
    return answer["config"]["A"], answer["generation"], answer["saved"]


def put(m, n, a):
    return m.call("put", problem={**CUSTOM, "n": n}, config={"A": a}, time_us=5)


def full_keeper(host, n):
    """n daemons of a database whose keeper cannot write; its bests are in its memory alone."""
    members = host(n)
    eventually(lambda: members[0].status()["store"]["daemons"] == n)
    put(members[0], 1, 1)
    limit_files(members[0], True)
    for a in range(2, 5):
        unsaved = put(members[0], 2, a)
    assert not unsaved["saved"] and members[0].status()["store"]["disk_full"]
    eventually(lambda: answers(members[1], 2) == (4, unsaved["generation"], False))
    return [*members, unsaved["generation"]]


def test_what_a_keeper_had_not_saved_when_it_died(host):
    """Who heard of it saves it, under its number; no number is given twice."""
    keeper, other, generation = full_keeper(host, 2)
    assert not other.status()["store"]["keeper"] and other.status()["store"]["unsaved"] > 0
    kill(keeper)
    assert keeper_of([other]) is other
    eventually(lambda: answers(other, 2) == (4, generation, True))
    assert (generation, '{"A":4}') in other.sql("SELECT generation, config FROM best")
    eventually(lambda: other.status()["store"]["unsaved"] == 0)
    assert put(other, 2, 9)["generation"] == generation + 1
    assert answers(other, 2) == (9, generation + 1, True)
    keeper.killed = False
    keeper.start()
    assert answers(keeper, 2) == (9, generation + 1, True)


def test_what_a_keeper_had_not_saved_and_the_next_one_never_heard_of(host):
    keeper, heard, generation = full_keeper(host, 2)
    new = host(1)[2]  # its news begin now
    assert answers(new, 2) is None
    os.kill(heard.process.pid, signal.SIGSTOP)
    kill(keeper)
    assert keeper_of([new]) is new
    assert put(new, 3, 3)["generation"] > generation
    os.kill(heard.process.pid, signal.SIGCONT)
    for m in (new, heard):
        eventually(lambda m=m: answers(m, 2) == (4, generation, True))
    eventually(lambda: heard.status()["store"]["unsaved"] == 0)


def test_what_a_keeper_had_not_saved_and_is_old_by_now(host):
    """It becomes history, and nobody is told of it."""
    keeper, heard, generation = full_keeper(host, 2)
    new = host(1)[2]
    os.kill(heard.process.pid, signal.SIGSTOP)
    kill(keeper)
    assert keeper_of([new]) is new
    newer = put(new, 2, 9)["generation"]
    with new.connect() as c:
        c.call("subscribe")
        os.kill(heard.process.pid, signal.SIGCONT)
        eventually(lambda: heard.status()["store"]["unsaved"] == 0 and
                   new.sql("SELECT 1 FROM best WHERE generation = ?", generation))
        put(new, 4, 4)
        c.call("status")
        told = [n["answer"]["generation"] for kind, n in c.notifications if kind == "improved"]
    assert told == [newer + 1]
    for m in (new, heard):
        eventually(lambda m=m: answers(m, 2) == (9, newer, True))


def test_what_a_keeper_had_not_saved_and_the_next_one_cannot_save(host):
    """It stays unsaved, is counted once, and is written when there is room."""
    keeper, *others, generation = full_keeper(host, 3)
    eventually(lambda: answers(others[1], 2) == (4, generation, False))
    for m in others:
        limit_files(m, True)
    kill(keeper)
    new = keeper_of(others)
    eventually(lambda: new.status()["store"]["daemons"] == 2)
    time.sleep(1.5)  # for who asks whether it is saved
    for m in others:
        assert answers(m, 2) == (4, generation, False) and m.status()["store"]["unsaved"] == 1
    for m in others:
        limit_files(m, False)
    for m in others:
        eventually(lambda m=m: answers(m, 2) == (4, generation, True))
    assert new.sql("SELECT config FROM best WHERE generation = ?", generation) == [('{"A":4}',)]


@pytest.mark.parametrize("next_", ["follows", "keeps"])
def test_who_heard_nothing_for_a_while_forgets_what_is_gone(host, next_):
    """Stopped while the keeper died, the next one evicted, and perhaps died, too: then it is the keeper itself."""
    keeper, away, next_one = host(3)
    keys = [put(keeper, n, n)["key"] for n in range(4)]
    tuned = away.call("get", problem=gemm(), budget=4)
    eventually(lambda: next_one.status()["keys"] == away.status()["keys"] == 5)
    eventually(lambda: away.status()["portfolio"]["shapes"] == 1)
    os.kill(away.process.pid, signal.SIGSTOP)
    kill(keeper)
    assert keeper_of([next_one]) is next_one
    for key in (keys[0], keys[1], tuned["key"]):
        assert next_one.call("evict", key=key)["removed"] > 0
    put(next_one, 1, 7)  # evicted, and put again
    put(next_one, 5, 5)
    if next_ == "keeps":
        kill(next_one)
    os.kill(away.process.pid, signal.SIGCONT)
    eventually(lambda: answers(away, 5))
    eventually(lambda: answers(away, 0) is None)
    assert [answers(away, n)[0] for n in (1, 2, 3, 5)] == [7, 2, 3, 5]
    assert away.status()["keys"] == 4 and away.status()["store"]["keeper"] == (next_ == "keeps")
    assert away.call("get", problem=gemm(), wait="cached")["tier"] == "default"
    eventually(lambda: away.status()["portfolio"]["shapes"] == 0)


def look_and_tune(one, two):
    """One daemon verifies the known config for a tighter tolerance, the other is to tune meanwhile: what they answer,
    and the phases that the second one went through."""
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
    """What the other one does may be to verify the known config, and no more."""
    one, two = host(2, options=["--linger-ms", "0"])  # so that a look takes a runner's start
    one.call("get", problem=gemm(), budget=10)
    phases = set()
    for _ in range(9):
        if "elsewhere" not in phases:  # else it had ended before
            looked, tuned, phases = look_and_tune(one, two)
            assert looked["tier"] == "exact" and tuned["measured"] == 40 and "measure" in phases
    assert "elsewhere" in phases and two.status()["jobs"]["shared"] == 0
    why = one.call("why", problem=gemm(), atol=1e-3)
    assert why["answer"]["measured"] >= 10 and not [d for d in why["doubts"] if "configs were measured" in d]


def test_a_keeper_that_does_not_answer_is_named(host, folder):
    one, = host(1)
    os.kill(one.process.pid, signal.SIGSTOP)
    try:
        result = subprocess.run(
            [GEMMD, "--device", f"replay:{DATA / 'synthetic.jsonl'}", "--socket", folder / "x.sock",
             "--database", one.database, "--cache-dir", folder / "c", "--runner", RUNNER],
            capture_output=True, text=True, timeout=60 * PATIENCE)
    finally:
        os.kill(one.process.pid, signal.SIGCONT)
    assert result.returncode == 75 and str(one.process.pid) in result.stderr


def test_the_keepers_methods_are_for_its_owner_and_make_sense(host):
    one, two = host(2)
    for method, params, name in [("ledger", {"verb": "nonsense"}, "invalid"),
                                 ("ledger", {}, "invalid"),
                                 ("ledger", {"verb": "publish", "row": 7}, "invalid"),
                                 ("follow", {}, "invalid"), ("follow", {"owner": ""}, "invalid")]:
        with pytest.raises(RpcError) as e:
            one.call(method, **params)
        assert e.value.name == name, (method, params, e.value)
    for method, params in [("ledger", {"verb": "status"}), ("follow", {"owner": "1.1"})]:
        with pytest.raises(RpcError, match="conflict: this gemmd is not the keeper"):
            two.call(method, **params)
