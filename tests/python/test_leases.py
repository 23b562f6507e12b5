# SPDX-License-Identifier: Apache-2.0
"""Users' own kernels through gemmd.Client: a client gets the lease and measures, others wait for its answer, and the
daemon tells a new holder which configs earlier holders measured."""
import os
import threading

import pytest

import gemmd

KEY = 'custom:mine source="abc" n=64'
CONFIGS = [{"tile": 8, "fast": True}, {"tile": 16, "fast": False}]


def outcome_by(g, deadline_ms):
    """Returns the outcome, or "late": on a busy machine the answer itself may miss the deadline."""
    try:
        return g.acquire(KEY, CONFIGS, deadline_ms=deadline_ms).outcome
    except gemmd.Deadline:
        return "late"


def test_one_measures_and_the_others_get_its_winner(cpu):
    outcomes, held, go = [], threading.Event(), threading.Event()

    def rank():
        with gemmd.Client(cpu.socket) as g:
            asked = g.acquire(KEY, CONFIGS)
            if asked.outcome == "lease":
                assert asked.answer is None and asked.known == []
                held.set()
                assert go.wait(60)
                g.record(KEY, [{"config": CONFIGS[0], "time_us": 20.0},
                               {"config": CONFIGS[1], "time_us": 10.0}])
                g.put(KEY, CONFIGS[1], 10.0)
            outcomes.append((asked.outcome, asked.answer.config if asked.answer else None))

    ranks = [threading.Thread(target=rank) for _ in range(4)]
    for r in ranks:
        r.start()
    assert held.wait(60)
    with gemmd.Client(cpu.socket) as g:
        assert g.acquire(KEY, CONFIGS, now=True).outcome == "held"
        assert outcome_by(g, 300) in ("held", "late")
    go.set()
    for r in ranks:
        r.join()
    assert len(outcomes) == 4
    assert sorted(outcomes, key=str) == [("hit", CONFIGS[1])] * 3 + [("lease", None)]


def test_a_config_more_is_one_to_measure(cpu):
    with gemmd.Client(cpu.socket) as g:
        assert g.acquire(KEY, CONFIGS[:1]).outcome == "lease"
        g.record(KEY, [{"config": CONFIGS[0], "time_us": 20.0}])
        g.put(KEY, CONFIGS[0], 20.0)
        more = g.acquire(KEY, CONFIGS)
        assert more.outcome == "lease"
        assert [(k["config"], k["time_us"]) for k in more.known] == [(CONFIGS[0], 20.0)]
        g.record(KEY, [{"config": CONFIGS[1], "status": "resource", "reason": "too large"}])
        g.put(KEY, CONFIGS[0], 20.0)
        again = g.acquire(KEY, CONFIGS)
        assert again.outcome == "hit" and again.answer.config == CONFIGS[0]
        with pytest.raises(gemmd.GemmdError, match="no_config"):
            g.acquire(KEY, CONFIGS[1:])


def test_a_lost_holder_and_one_that_gives_up(cpu):
    with gemmd.Client(cpu.socket) as first, gemmd.Client(cpu.socket) as second:
        assert first.acquire(KEY).outcome == "lease"
        first.close()
        assert second.acquire(KEY).outcome == "lease"
        second.release(KEY)
        with gemmd.Client(cpu.socket) as third:
            assert third.acquire(KEY).outcome == "lease"


def test_a_forked_child_does_not_hold_its_parents_lease(cpu):
    with gemmd.Client(cpu.socket) as g:
        assert g.acquire(KEY).outcome == "lease"
        child = os.fork()
        if child == 0:
            ok = False
            try:
                ok = g.acquire(KEY, now=True).outcome == "held"
            finally:
                os._exit(0 if ok else 1)
        assert os.waitpid(child, 0)[1] == 0
        g.put(KEY, {"tile": 8}, 5.0)
        assert g.acquire(KEY).outcome == "hit"
