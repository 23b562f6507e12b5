# SPDX-License-Identifier: Apache-2.0
"""A variant that crashed a runner does not answer the key of the crash, nor keys where it was not measured."""
import os
import signal
import sqlite3
import time

import pytest

from conftest import RpcError, eventually, gemm
from test_disk import limit_files
from test_faults import compiled, faults
from test_daemons import commit_lock, host, kill  # noqa: F401: host is a fixture

OTHER = gemm(m=700)


def crash_of(config):
    """Returns a replayed fault: this config's variant crashes, with any run-time settings."""
    part = " ".join(f"{k}={v}".replace("True", "true").replace("False", "false")
                    for k, v in config.items() if k != "GROUP_SIZE_M")
    return {"config": part, "fault": "crash", "stage": "time"}


def crash_it_unsaved(c, problem, config):
    """A user tries the config."""
    with pytest.raises(RpcError) as e:
        c.call("get", problem=problem, configs=[config])
    assert e.value.name in ("crashed", "quarantined")


def crash_it(c, problem, config):
    """Tries the config, whose variant crashes, and waits until the variant's quarantine row is saved."""
    crash_it_unsaved(c, problem, config)
    return c.list("quarantine")[-1]["variant"]


@pytest.fixture
def crashing(daemon, folder):
    """crashing(d, config): restarts the daemon; the config's kernel crashes from now on."""

    def make(d, config):
        assert d.stop() == 0
        d.env.update(faults(folder, crash_of(config)))
        return d.start()

    return make


def test_a_key_where_its_kernel_crashed_has_no_answer(daemon, crashing):
    d = daemon()
    with d.connect() as c:
        best = c.call("get", problem=gemm(), budget=20)
    crashing(d, best["config"])
    with d.connect() as c:
        assert c.call("get", problem=gemm()) == best
        assert c.call("get_many", problems=[gemm()])["answers"] == [best]
        variant = crash_it(c, gemm(), best["config"])
        lower = c.call("get", problem=gemm(), wait="cached")
        many, = c.call("get_many", problems=[gemm()])["answers"]
        assert lower == many and lower["tier"] != "exact"
        assert compiled(lower["config"]) != compiled(best["config"])
        why = c.call("why", problem=gemm())
        assert why["verdict"] == "quarantined" and why["action"] == "tune"
        assert "gemmctl quarantine" in why["because"]
        new = c.call("get", problem=gemm(), budget=20)
        assert new["tier"] == "exact" and compiled(new["config"]) != compiled(best["config"])
        assert "the former best, which cannot run any more" in new["note"]
        new["note"] = ""
        assert c.call("get", problem=gemm()) == new
    assert d.stop() == 0
    with d.start().connect() as c:
        assert c.call("get", problem=gemm()) == new
        c.call("unquarantine", variant=variant)
        assert c.call("get", problem=gemm()) == new


def test_taken_out_of_quarantine_it_answers_again(daemon, crashing):
    d = daemon()
    with d.connect() as c:
        best = c.call("get", problem=gemm(), budget=20)
    crashing(d, best["config"])
    with d.connect() as c:
        pinned = d.connect()
        pinned.call("hello", version=1, generation=best["generation"])
        variant = crash_it(c, gemm(), best["config"])
        assert c.call("get", problem=gemm(), wait="cached")["tier"] != "exact"
        assert pinned.call("get", problem=gemm(), wait="cached")["tier"] == "default"
    assert d.stop() == 0
    with d.start().connect() as c:  # the restarted daemon knows the quarantine
        eventually(lambda: c.call("get", problem=gemm(), wait="cached")["tier"] != "exact")
        c.call("unquarantine", variant=variant)
        assert c.call("get", problem=gemm(), wait="cached") == best
        assert c.call("why", problem=gemm())["verdict"] == "tuned"


def test_where_it_was_measured_it_answers_with_a_doubt_and_nowhere_else(daemon, crashing):
    """A failing device quarantines every variant that it runs. Keys where the variant was measured keep their answers."""
    d = daemon()
    with d.connect() as c:
        best = c.call("get", problem=gemm(), budget=20)
        near = c.call("get", problem=OTHER, wait="cached")
        assert near["tier"] == "near" and near["config"] == best["config"]
        before = c.call("why", problem=gemm())["doubts"]
    crashing(d, best["config"])
    with d.connect() as c:
        crash_it(c, OTHER, best["config"])
        assert c.call("get", problem=gemm()) == best
        why = c.call("why", problem=gemm())
        assert why["verdict"] == "tuned" and len(why["doubts"]) == len(before) + 1
        assert any("at another key" in doubt for doubt in why["doubts"])
        for problem in OTHER, gemm(m=2048):
            lower = c.call("get", problem=problem, wait="cached")
            assert compiled(lower["config"]) != compiled(best["config"])


def test_a_hint_whose_kernel_crashed_is_no_hint(daemon, crashing):
    d = daemon()
    best = d.call("get", problem=gemm(), budget=20)
    crashing(d, best["config"])
    with d.connect() as c:
        crash_it(c, gemm(), best["config"])
        note = c.call("put", problem=OTHER, config=best["config"], time_us=5)["note"]
        assert note == "a hint until it is measured here; but no tuning tries it: its kernel is in quarantine"
        assert "no tuning tries its config: its kernel is in quarantine" in c.call("why", problem=OTHER)["because"]
        answer = c.call("get", problem=OTHER, budget=4)
        assert best["config"] not in [t["config"] for t in c.list("trials", key=answer["key"])]


def test_a_default_whose_kernel_crashed_is_another_one(daemon, crashing):
    d = daemon()
    usual = d.call("get", problem=gemm(), wait="cached")
    assert usual["tier"] == "default"
    crashing(d, usual["config"])
    with d.connect() as c:
        variant = crash_it(c, gemm(), usual["config"])
        other = c.call("get", problem=gemm(), wait="cached")
        assert other["tier"] == "default"
        assert compiled(other["config"]) != compiled(usual["config"])
        assert c.call("check", problem=gemm(), config=other["config"])["valid"]
        # the search for an allowed default does not choose the quarantined variant
        part = {k: v for k, v in usual["config"].items() if k != "GROUP_SIZE_M"}
        only = c.call("get", problem=OTHER, wait="cached", restrict=part)
        assert compiled(only["config"]) != compiled(usual["config"])
        assert "not what is allowed" in only["note"]
        good = {**other["config"], "GROUP_SIZE_M": 1}
        both = c.call("get", problem=OTHER, wait="cached", configs=[usual["config"], good])
        assert both["config"] == good
        c.call("unquarantine", variant=variant)
        assert c.call("get", problem=OTHER, wait="cached",
                      restrict=usual["config"])["config"] == usual["config"]


def test_a_pin_whose_kernel_crashed_is_none(daemon, crashing):
    d = daemon()
    with d.connect() as c:
        best = c.call("get", problem=gemm(), budget=20)
        other = next(t["config"] for t in c.list("trials", key=best["key"], status="ok")
                     if compiled(t["config"]) != compiled(best["config"]))
        c.call("pin", problem=gemm(), config=other)
    crashing(d, other)
    with d.connect() as c:
        assert c.call("get", problem=gemm(), wait="cached")["source"] == "manual"
        crash_it(c, gemm(), other)
        assert c.call("get", problem=gemm(), wait="cached")["tier"] != "exact"
        why = c.call("why", problem=gemm())
        assert why["verdict"] == "quarantined" and why["action"] == "get"
        new = c.call("tune", problem=gemm(), budget=20)
        assert compiled(new["config"]) != compiled(other) and new["source"] == "tuned"
        assert c.call("get", problem=gemm(), wait="cached")["generation"] == new["generation"]


def test_all_daemons_of_a_database_hear_of_it(host, folder):  # noqa: F811
    one, two = host(2)
    with one.connect() as a, two.connect() as b:
        best = a.call("get", problem=gemm(), budget=20)
        eventually(lambda: b.call("get", problem=gemm(), wait="cached")["tier"] == "exact")
        assert one.stop() == 0
        one.env.update(faults(folder, crash_of(best["config"])))
        one.start()
    with one.connect() as a, two.connect() as b:
        variant = crash_it(a, gemm(), best["config"])
        eventually(lambda: b.call("get", problem=gemm(), wait="cached")["tier"] != "exact")
        a.call("unquarantine", variant=variant)
        eventually(lambda: b.call("get", problem=gemm(), wait="cached")["tier"] == "exact")


def tier(m):
    return m.call("get", problem=gemm(), wait="cached")["tier"]


@pytest.mark.parametrize("missed", ["added", "taken out"])
def test_who_heard_nothing_for_a_while_knows_what_is_in_quarantine(host, folder, missed):  # noqa: F811
    best = host(1)[0].call("get", problem=gemm(), budget=20)
    other, away = host(2, env=faults(folder, crash_of(best["config"])))[1:]
    if missed == "taken out":
        with other.connect() as c:
            variant = crash_it(c, gemm(), best["config"])
    eventually(lambda: (tier(away) == "exact") == (missed == "added"))
    with commit_lock(away):  # away is not stopped in the middle of a commit
        os.kill(away.process.pid, signal.SIGSTOP)
    with other.connect() as c:
        if missed == "taken out":
            c.call("unquarantine", variant=variant)
        else:
            crash_it(c, gemm(), best["config"])
    os.kill(away.process.pid, signal.SIGCONT)
    eventually(lambda: (tier(away) == "exact") == (missed == "taken out"))
    assert tier(other) == tier(away)
    why = away.call("why", problem=gemm())
    assert why["verdict"] == ("tuned" if missed == "taken out" else "quarantined")


def test_what_crashed_while_nothing_could_be_saved_is_heard_of_later(host, folder):  # noqa: F811
    """The daemon that saw the crash avoids the variant at once, the others when its row is saved."""
    best = host(1)[0].call("get", problem=gemm(), budget=20)
    _, one, other = host(2, env=faults(folder, crash_of(best["config"])))
    with commit_lock(one):
        with one.connect() as c:
            crash_it_unsaved(c, gemm(), best["config"])
        assert tier(one) != "exact" and tier(other) == "exact"
        eventually(lambda: one.status()["store"]["unsaved_quarantine"] == 1)
    for m in host(0):
        eventually(lambda m=m: tier(m) != "exact")
        assert len(m.connect().list("quarantine")) == 1
    other.call("unquarantine", variant=other.connect().list("quarantine")[0]["variant"])
    for m in host(0):
        eventually(lambda m=m: tier(m) == "exact")


def test_ranks_of_a_generation_agree_on_what_is_in_quarantine(daemon, crashing):
    """The newest row of the generation decides, not an older row."""
    d = daemon()
    with d.connect() as c:
        first = c.call("get", problem=gemm(), budget=20)
        other = next(t["config"] for t in c.list("trials", key=first["key"], status="ok")
                     if compiled(t["config"]) != compiled(first["config"]))
        pin = c.call("pin", problem=gemm(), config=other)
    crashing(d, other)
    with d.connect() as c:
        crash_it(c, gemm(), other)

        def rank():
            r = d.connect()
            r.call("hello", version=1, generation=pin["generation"])
            return r

        before = rank().call("get", problem=gemm(), wait="cached")
        assert before["tier"] == "default"
        answers = [rank().call("get", problem=gemm(), budget=20) for _ in range(3)]
        assert {a["generation"] for a in answers} == {answers[0]["generation"]}
        assert answers[0]["generation"] > pin["generation"]
        assert rank().call("get", problem=gemm(), wait="cached")["config"] == before["config"]


def test_one_that_could_not_be_written_down_can_be_taken_out(daemon, crashing):
    d = daemon()
    with d.connect() as c:
        best = c.call("get", problem=gemm(), budget=20)
    crashing(d, best["config"])
    with d.connect() as c, sqlite3.connect(d.database, isolation_level=None) as db:
        variant = next(t["variant"] for t in c.list("trials", key=best["key"])
                       if t["config"] == best["config"])
        db.execute("BEGIN IMMEDIATE")
        with pytest.raises(RpcError):
            c.call("get", problem=gemm(), configs=[best["config"]])
        db.execute("ROLLBACK")
        assert c.call("get", problem=gemm(), wait="cached")["tier"] != "exact"
        c.call("unquarantine", variant=variant)
        assert c.call("get", problem=gemm(), wait="cached")["generation"] == best["generation"]
        with pytest.raises(RpcError, match="there is no"):
            c.call("unquarantine", variant=variant)
        with pytest.raises(RpcError):  # the variant serves again: a user's put does not replace it
            c.call("put", problem=gemm(), config=best["config"], time_us=1)
