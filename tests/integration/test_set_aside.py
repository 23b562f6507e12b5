# SPDX-License-Identifier: Apache-2.0
"""Searches that share the device: a search that waits for compilers is set aside while others wait.

The recorded device compiles a kernel in 300 ms, and its configs differ much, so that a search waits for late kernels.
"""
import os
import re
import shutil
import signal

import pytest

from conftest import DATA, Daemon, RpcError, eventually, gemm
from test_disk import limit_files

ROUGH = DATA / "synthetic-rough.jsonl"
COLD = {"device": f"replay:{ROUGH}", "own_cache": True, "env": {"GEMMD_REPLAY_SPEED": "10"}}
SIZES = (256, 512, 1024)


def ask(connection, size):
    return connection.send("get", problem=gemm(m=size, n=size), budget_ms=20000)


def set_aside(connection):
    return connection.list("events", kind="set_aside")


def expect_tuned_once(connection, keys):
    assert len(set(keys)) == len(keys)
    assert sorted(e["text"][:32] for e in connection.list("events", kind="tuned")) == sorted(keys)
    for key in keys:
        trials = [repr(t["config"]) for t in connection.list("trials", key=key, stage="measure")]
        assert len(trials) > 4 and len(set(trials)) == len(trials), "none is measured again"


def test_others_have_the_device_while_one_waits(daemon):
    d = daemon(**COLD)
    with d.connect() as c:
        requests = [ask(c, size) for size in SIZES]
        answers = [c.wait(r) for r in requests]
        assert [a["source"] for a in answers] == ["tuned"] * len(SIZES)
        expect_tuned_once(c, [a["key"] for a in answers])
        events = set_aside(c)
        assert events and {e["text"][:32] for e in events} <= {a["key"] for a in answers}
        assert c.call("status")["runner"]["starts"] == 1


def test_who_is_alone_waits(daemon):
    d = daemon(**COLD)
    with d.connect() as c:
        c.wait(ask(c, SIZES[0]))
        c.wait(ask(c, SIZES[1]))
        assert set_aside(c) == []


def test_who_waits_for_what_was_queued_in_the_background_is_another(daemon):
    d = daemon(**COLD)
    with d.connect() as c:
        first = ask(c, SIZES[0])
        background = c.call("get", problem=gemm(m=SIZES[1], n=SIZES[1]), budget_ms=20000, wait="now")
        assert background["tier"] != "exact"
        eventually(lambda: c.call("status")["jobs"]["queued"] == 1)
        second = ask(c, SIZES[1])
        assert c.call("status")["jobs"]["queued"] == 1, "it is the same search"
        keys = [c.wait(r)["key"] for r in (first, second)]
        assert {e["text"][:32] for e in set_aside(c)} & set(keys), "the first one was told"
        expect_tuned_once(c, keys)


def test_a_shorter_search_of_the_key_does_not_end_the_whole_one(daemon):
    d = daemon(**COLD)
    with d.connect() as c:
        whole, other = ask(c, SIZES[0]), ask(c, SIZES[1])
        short = c.send("get", problem=gemm(m=SIZES[0], n=SIZES[0]), budget=2)
        measured = c.wait(whole)["measured"]
        assert measured > 8 and c.wait(short)["measured"] == measured, "it is answered by that one"
        c.wait(other)
        assert set_aside(c)


def test_a_full_disk_costs_no_trial(daemon):
    d = daemon(**COLD)
    limit_files(d, True)
    with d.connect() as c:
        for request in [ask(c, size) for size in (*SIZES, 2048, 4096, 8192)]:
            assert c.wait(request)["measured"] > 8
    limit_files(d, False)
    said = re.findall(r"the tuning of (.*) is set aside, (\d+) trials", d.text())
    assert len(said) > 1, said
    for name in {name for name, _ in said}:
        trials = [int(n) for its, n in said if its == name]
        assert trials == sorted(set(trials)), "each time more than before"


def test_nobody_waits_any_more_for_one_that_is_set_aside(daemon):
    d = daemon(**COLD)
    with d.connect() as c, d.connect() as other:
        left = c.call("why", problem=gemm(m=2048, n=2048))["key"]
        ask(other, 2048)
        eventually(lambda: c.call("status")["jobs"]["running"], every=0.001)
        requests = [ask(c, size) for size in SIZES]
        with d.connect() as watcher:
            eventually(lambda: [e for e in set_aside(watcher) if e["text"].startswith(left)],
                       seconds=30, every=0.002)
        other.close()
        keys = [c.wait(r)["key"] for r in requests]
        assert left not in keys
        expect_tuned_once(c, keys)
        assert c.call("status")["jobs"]["queued"] == 0
        assert c.wait(ask(c, 2048))["key"] == left, "it goes on with what it has"
        expect_tuned_once(c, [*keys, left])


def test_the_runner_dies_while_some_are_set_aside(daemon):
    d = daemon(**COLD)
    with d.connect() as c:
        requests = [ask(c, size) for size in SIZES]
        eventually(lambda: set_aside(d.connect()), seconds=30)
        os.kill(d.runner_pid(), signal.SIGKILL)
        answers = [c.wait(r) for r in requests]
        assert [a["source"] for a in answers] == ["tuned"] * len(SIZES)
        expect_tuned_once(c, [a["key"] for a in answers])


@pytest.fixture
def two(folder):
    """Two daemons of one database, each with its own device and compilers."""
    members = []
    for name in ("a", "b"):
        shutil.copy(ROUGH, folder / f"{name}.jsonl")
        d = Daemon(folder, f"replay:{folder / name}.jsonl", env={"GEMMD_REPLAY_SPEED": "5"},
                   cache=folder / name)
        d.socket, d.log = folder / f"{name}.sock", folder / f"{name}.log"
        members.append(d.start())
    yield members
    for d in members:
        assert d.stop() == 0, d.text()


@pytest.mark.parametrize("waited", [False, True])
def test_what_nobody_waits_for_here_may_be_tuned_elsewhere(two, waited):
    """A begun tuning that is set aside behind six tunings with waiters may be tuned by another daemon."""
    a, b = two
    left = gemm(m=2048, n=2048)
    with a.connect() as idle, b.connect() as busy, b.connect() as watcher, b.connect() as other:
        key = busy.call("why", problem=left)["key"]
        busy.call("get", problem=left, budget_ms=20000, wait="now")
        if waited:
            ask(other, 2048)
        eventually(lambda: watcher.call("status")["jobs"]["running"], every=0.001)
        # each request is a tuning of its own, which other daemons may not take
        requests = [busy.send("tune", problem=gemm(m=size, n=size), budget_ms=20000)
                    for size in (256, 512, 768, 1024, 1536, 3072)]
        # waits for the line in the log, which comes before the row in the database: with waiters the tuning soon resumes
        eventually(lambda: "is set aside" in b.text(), seconds=30, every=0.001)
        other.close()
        eventually(lambda: not a.sql("SELECT key FROM lease WHERE key = ?", key), every=0.005)
        assert idle.wait(ask(idle, 2048))["key"] == key
        assert idle.call("status")["jobs"]["done"] == 1, "its own device did it"
        for request in requests:
            busy.wait(request)
        eventually(lambda: not watcher.call("status")["jobs"]["queued"])
        jobs = watcher.call("status")["jobs"]
        assert (jobs["done"], jobs["shared"]) == (len(requests), 1)
        assert b.sql("SELECT count(*) FROM best WHERE key = ?", key) == [(1,)]
        assert b.sql("SELECT count(*) FROM lease WHERE key NOT LIKE 'daemon %'") == [(0,)]


def test_the_owner_ends_any_tuning_whoever_waits_for_it(daemon):
    d = daemon(env={"GEMMD_REPLAY_SPEED": "1"})
    with d.connect() as user, d.connect() as owner:
        runs, waits = ask(user, 2048), ask(user, 4096)
        eventually(lambda: owner.call("status")["jobs"]["queued"] == 1, every=0.002)
        owner.call("get", problem=gemm(m=512, n=512), wait="now")  # queues a job that nobody waits for
        left = owner.call("why", problem=gemm(m=512, n=512))["key"]
        for problem, request in ((gemm(m=4096, n=4096), waits), (gemm(m=2048, n=2048), runs)):
            assert owner.call("cancel", problem=problem) == {"cancelled": True}
            with pytest.raises(RpcError, match="cancelled by gemmd's owner") as e:
                user.wait(request)
            assert e.value.name == "cancelled"
        assert "was cancelled" in d.ctl("cancel", left[:8]).stdout
        eventually(lambda: not owner.call("status")["jobs"]["running"])
        jobs = owner.call("status")["jobs"]
        assert (jobs["queued"], jobs["cancelled"], jobs["done"]) == (0, 3, 0)
        assert owner.call("cancel", key=left) == {"cancelled": False}
        assert user.call("get", problem=gemm(m=512, n=512), budget=2)["source"] == "tuned"
