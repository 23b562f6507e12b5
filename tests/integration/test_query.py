# SPDX-License-Identifier: Apache-2.0
"""Queries and tunings through the real daemon, from request to answer."""
import threading
import time

import msgpack
import pytest

from conftest import RpcError, eventually, gemm


def test_hello_says_whom_one_talks_to(daemon):
    hello = daemon().call("hello", version=1, client="test")
    assert hello["version"] == 1
    assert hello["bucket_scheme"] == "sqrt2"
    assert hello["device"]["class"].startswith("replay:")
    assert {"get", "tune", "list"} <= set(hello["capabilities"])


def test_a_miss_is_tuned_then_a_hit(daemon):
    d = daemon()
    with d.connect() as c:
        first = c.call("get", problem=gemm(), budget=8)
        assert first["tier"] == "exact" and first["source"] == "tuned" and first["saved"]
        assert first["time_us"] > 0 and first["config"]["BLOCK_SIZE_M"] > 0
        jobs = c.call("status")["jobs"]["done"]
        again = c.call("get", problem=gemm())
        assert again == first
        assert c.call("status")["jobs"]["done"] == jobs == 1


def test_a_tuning_on_the_cpu_is_real(daemon):
    d = daemon("cpu")
    with d.connect(120) as c:
        answer = c.call("get", problem=gemm(dtype_in="fp32"), budget=6, progress=True)
        trials = c.list("trials", key=answer["key"])
    ok = [t for t in trials if t["status"] == "ok"]
    assert ok and all(t["time_us"] > 0 and len(t["samples_us"]) > 0 for t in ok)
    assert answer["config"] in [t["config"] for t in ok] and answer["time_us"] > 0
    phases = {p["phase"] for name, p in c.notifications if name == "progress"}
    assert phases & {"compile", "measure"}


def test_fields_in_any_order_and_defaults_left_out_are_the_same_key(daemon):
    d = daemon()
    with d.connect() as c:
        a = c.call("get", problem=gemm(), budget=4)
        b = c.call("get", problem=dict(reversed(list(gemm(dtype_in="bf16", permute_x=False).items()))))
        assert a["key"] == b["key"]
        dense = dict(mode="forward", M=64, N=64, K=64)
        c1 = c.call("get", problem={"op": "gemm", **dense}, budget=4)
        c2 = c.call("get", problem={"op": "grouped_gemm", "experts": 1, "topk": 1, **dense})
        assert c1["key"] == c2["key"]


def test_shapes_of_one_bucket_share_an_answer(daemon):
    d = daemon()
    with d.connect() as c:
        a = c.call("get", problem=gemm(m=500), budget=4)
        b = c.call("get", problem=gemm(m=512))
        assert a["key"] == b["key"] and b["tier"] == "exact"
        six = c.call("get", problem=gemm(m=1020, experts=64, topk=6), budget=4)
        bucket = c.call("show", key=six["key"])["problem"]
        assert bucket["M"] % 6 == 0 and bucket["M"] >= 1020


def test_wait_cached_never_tunes(daemon):
    d = daemon()
    answer = d.call("get", problem=gemm(), wait="cached")
    assert answer["tier"] == "default" and answer["source"] == "model" and answer["config"]
    assert d.status()["jobs"]["done"] == 0


def test_wait_now_answers_at_once_and_tunes_in_the_background(daemon):
    d = daemon()
    with d.connect() as c:
        assert c.call("get", problem=gemm(), wait="now", budget=4)["tier"] == "default"
        eventually(lambda: c.call("get", problem=gemm(), wait="cached")["tier"] == "exact")


def test_near_is_the_nearest_bucket_checked_for_validity(daemon):
    d = daemon()
    with d.connect() as c:
        known = c.call("get", problem=gemm(m=256), budget=4)
        near = c.call("get", problem=gemm(m=512), wait="cached")
        assert near["tier"] == "near" and near["config"] == known["config"]
        assert "M" in near["note"] or known["key"][:6] in near["note"]


def test_a_neighbour_that_is_slower_than_the_default_does_not_answer(daemon):
    """No kind of query gets the neighbour's config: with M=65536 M=64's best config takes twice the default's time."""
    sizes = {"n": 4096, "k": 4096, "experts": 64, "topk": 4}
    far = gemm(m=65536, **sizes)
    few = {"num_stages": [3, 4]}
    d = daemon()
    with d.connect() as c:
        default = c.call("get", problem=far, wait="cached")
        allowed = c.call("get", problem=far, wait="cached", restrict=few)
        known = c.call("tune", problem=gemm(m=64, **sizes), budget=30)
        assert known["config"]["BLOCK_SIZE_M"] == 16 != default["config"]["BLOCK_SIZE_M"]
        eventually(lambda: c.call("status")["portfolio"]["shapes"] == 1)
        answers = [c.call("get", problem=far, wait="cached"),
                   c.call("get", problem={**far, "permute_x": True}, wait="cached"),
                   *c.call("get_many", problems=[far, far])["answers"]]
        assert [a["tier"] for a in answers] == ["default"] * 4
        assert all(a["config"] == default["config"] for a in answers[:1] + answers[2:])
        assert known["key"][:6] in answers[0]["note"] and "not expected to be faster" in answers[0]["note"]
        restricted = c.call("get", problem=far, wait="cached", restrict=few)
        assert (restricted["tier"], restricted["config"]) == ("default", allowed["config"])
        assert c.call("why", problem=far)["answer"]["tier"] == "default"
        assert c.call("get", problem=far, wait="now", budget=1)["config"] == default["config"]
        both = c.call("tune", problem=far, configs=[known["config"], default["config"]])
        took = {str(t["config"]): t["time_us"] for t in c.list("trials", key=both["key"], status="ok")}
        assert took[str(known["config"])] > 1.5 * took[str(default["config"])]


def test_a_put_that_is_slower_than_the_default_is_tried_and_does_not_answer(daemon):
    d = daemon()
    with d.connect() as c:
        default = c.call("get", problem=gemm(m=65536), wait="cached")
        slow = {**default["config"], "BLOCK_SIZE_M": 16}
        c.call("put", problem=gemm(m=65536), config=slow, time_us=1)
        answer = c.call("get", problem=gemm(m=65536), wait="cached")
        assert (answer["tier"], answer["config"]) == ("default", default["config"])
        tuned = c.call("get", problem=gemm(m=65536), budget=3)
        assert slow in [t["config"] for t in c.list("trials", key=tuned["key"])]


def test_64_clients_one_key_one_job(daemon):
    d = daemon()
    answers, barrier = [None] * 64, threading.Barrier(64)

    def ask(i):
        with d.connect() as c:
            barrier.wait()
            answers[i] = c.call("get", problem=gemm(m=2048, n=512), budget=16)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(64)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert all(a == answers[0] and a["tier"] == "exact" for a in answers)
    assert d.status()["jobs"]["done"] == 1


def test_a_deadline_gives_the_lower_tier_and_the_tuning_goes_on(daemon):
    d = daemon(env={"GEMMD_REPLAY_SPEED": "2"})
    with d.connect() as c:
        began = time.monotonic()
        answer = c.call("get", problem=gemm(), deadline_ms=30, budget=20)
        assert time.monotonic() - began < 5
        assert answer["tier"] == "default" and answer["note"]
        eventually(lambda: c.call("get", problem=gemm(), wait="cached")["tier"] == "exact", 60)


def test_a_deadline_in_the_queue_gives_the_lower_tier_too(daemon):
    d = daemon(env={"GEMMD_REPLAY_SPEED": "2"})
    with d.connect() as c:
        running = c.send("get", problem=gemm(), budget=20)
        eventually(lambda: d.status()["jobs"]["running"] == 1)
        answer = c.call("get", problem=gemm(n=512), deadline_ms=30, budget=4)
        assert answer["tier"] == "default" and answer["note"]
        assert c.wait(running)["tier"] == "exact"
        eventually(lambda: c.call("get", problem=gemm(n=512), wait="cached")["tier"] == "exact", 60)


def test_cancel_and_disconnect_end_a_tuning_nobody_waits_for(daemon):
    d = daemon(env={"GEMMD_REPLAY_SPEED": "1"})
    with d.connect() as c:
        request = c.send("get", problem=gemm(), budget=400, iters=100)
        eventually(lambda: d.status()["jobs"]["running"] == 1)
        assert c.call("cancel", request=request)["cancelled"] is True
        with pytest.raises(RpcError) as e:
            c.wait(request)
        assert e.value.name == "cancelled"
    eventually(lambda: d.status()["jobs"]["running"] == 0)
    gone = d.connect()
    gone.send("get", problem=gemm(n=512), budget=400, iters=100)
    eventually(lambda: d.status()["jobs"]["running"] == 1)
    gone.close()
    eventually(lambda: d.status()["jobs"]["running"] == 0)
    assert d.status()["jobs"]["cancelled"] == 2


def test_a_restricted_winner_is_partial_and_no_answer_to_an_unrestricted_query(daemon):
    d = daemon()
    with d.connect() as c:
        partial = c.call("tune", problem=gemm(), restrict={"BLOCK_SIZE_M": [64], "num_warps": 4},
                         budget=8)
        assert partial["source"] == "partial"
        assert partial["config"]["BLOCK_SIZE_M"] == 64 and partial["config"]["num_warps"] == 4
        assert c.call("get", problem=gemm(), wait="cached")["source"] != "partial"
        full = c.call("get", problem=gemm(), budget=8)
        assert full["source"] == "tuned"


def test_the_same_restricted_query_is_not_searched_again(daemon):
    d = daemon()
    narrow = {"problem": gemm(), "restrict": {"BLOCK_SIZE_M": 64}, "budget": 4}
    with d.connect() as c:
        first = c.call("get", **narrow)
        jobs, rows = d.status()["jobs"]["done"], len(c.list("history"))
        assert c.call("get", **narrow) == first
        assert c.call("get", **narrow, wait="cached") == first, "whoever waits, and for how long"
        with d.connect() as other:
            assert other.call("get", **narrow, deadline_ms=60000) == first
        now = d.status()["jobs"]
        assert now["done"] == jobs and now["queued"] == 0 and len(c.list("history")) == rows
        # another search, or an explicit repetition, is a new job
        assert c.call("get", **dict(narrow, budget=5))["measured"] >= first["measured"]
        c.call("tune", **narrow)
        assert d.status()["jobs"]["done"] == jobs + 2

        # the restricted search's answer is stored beside the key's own answer, until the own answer changes
        best = c.call("get", problem=gemm(), budget=8)
        breaks, _ = others(best["config"])
        apart = c.call("get", problem=gemm(), restrict=breaks, budget=4)
        jobs = d.status()["jobs"]["done"]
        assert "keeps its own answer" in apart["note"]
        assert c.call("get", problem=gemm(), restrict=breaks, budget=4) == apart
        assert d.status()["jobs"]["done"] == jobs
        c.call("pin", problem=gemm(), config=best["config"])
        assert c.call("get", problem=gemm(), restrict=breaks, wait="cached", budget=4)["tier"] != "exact"
        again = c.call("get", problem=gemm(), restrict=breaks, budget=4)
        assert c.call("get", problem=gemm(), restrict=breaks, wait="cached", budget=4) == again
        c.call("evict", problem=gemm())
        assert c.call("get", problem=gemm(), restrict=breaks, wait="cached", budget=4)["tier"] != "exact"


def others(config):
    """A restriction that excludes the config, and a restriction that allows it."""
    m = config["BLOCK_SIZE_M"]
    return {"BLOCK_SIZE_M": [32 if m != 32 else 64]}, {"BLOCK_SIZE_M": [m]}


def test_who_does_not_wait_for_a_search_again_gets_what_it_came_to(daemon):
    d = daemon()
    some = {"restrict": {"num_warps": 4}, "budget": 8}
    known = d.call("get", problem=gemm(), **some)
    for wait, note in (("now", "being tuned in the background"), ("cached", "not tuned again")):
        assert d.call("tune", problem=gemm(), wait=wait, **some) == {**known, "note": note}
    eventually(lambda: d.status()["jobs"]["done"] == 2)
    own = d.call("tune", problem=gemm(), budget=4)
    for wait, note in (("cached", "not tuned again"), ("now", "being tuned in the background")):
        assert d.call("tune", problem=gemm(), wait=wait, budget=4) == {**own, "note": note}


def test_a_budget_of_one_is_for_one_that_may_win(daemon):
    """A budget of 1 goes to an allowed config, not to the reference, which the restriction may exclude."""
    some = {"BLOCK_SIZE_K": 32, "num_stages": [2, 3]}
    answer = daemon().call("get", problem=gemm(m=512), restrict=some, budget=1)
    assert answer["source"] == "partial" and answer["config"]["num_stages"] in (2, 3)
    assert answer["measured"] == 2  # including the reference


@pytest.mark.parametrize("wait", ["now", "cached"])
def test_a_row_that_breaks_the_restriction_is_no_answer(daemon, wait):
    d = daemon()
    with d.connect() as c:
        best = c.call("get", problem=gemm(), strategy="exhaustive")
        breaks, obeys = others(best["config"])
        assert c.call("get", problem=gemm(), wait="cached", restrict=obeys) == best
        neighbour = c.call("get", problem=gemm(m=700), wait="cached")
        assert neighbour["tier"] == "near" and neighbour["config"] == best["config"]
        for problem in gemm(), gemm(m=700):
            a = c.call("get", problem=problem, wait=wait, restrict=breaks)
            assert a["tier"] != "exact" and a["time_us"] is None
            assert a["config"]["BLOCK_SIZE_M"] in breaks["BLOCK_SIZE_M"]
        other = dict(best["config"], BLOCK_SIZE_M=breaks["BLOCK_SIZE_M"][0])
        a = c.call("get", problem=gemm(), wait=wait, configs=[other])
        assert a["tier"] == "default" and a["config"] == other
        a = c.call("get", problem=gemm(), wait="cached", configs=[other, best["config"]])
        assert a["config"] == best["config"]
        a = c.call("get", problem=gemm(), wait="cached", restrict={"BLOCK_SIZE_M": [7]})
        assert a["tier"] == "default" and "not what is allowed" in a["note"]


def test_a_row_that_breaks_the_restriction_is_no_answer_past_a_deadline(daemon):
    d = daemon("cpu")
    with d.connect() as c:
        small = gemm(m=64, n=64, k=64, dtype_in="fp32")
        best = c.call("get", problem=small, budget=4)
        breaks = {"BLOCK_SIZE_M": [m for m in (16, 64, 128) if m != best["config"]["BLOCK_SIZE_M"]]}
        a = c.call("get", problem=small, deadline_ms=1, restrict=breaks)
        assert a["tier"] != "exact" and "deadline" in a["note"]
        assert a["config"]["BLOCK_SIZE_M"] in breaks["BLOCK_SIZE_M"]


def test_a_row_that_was_verified_less_tightly_is_near(daemon):
    d = daemon()
    with d.connect() as c:
        best = c.call("get", problem=gemm(), budget=8)
        a = c.call("get", problem=gemm(), wait="cached", atol=1e-4, rtol=1e-4)
        assert a["tier"] == "near" and a["source"] == "tuned"
        assert a["config"] == best["config"] and a["time_us"] == best["time_us"]
        assert "atol 0.01" in a["note"]
        w = c.call("why", problem=gemm(), atol=1e-4)
        assert w["verdict"] == "tolerance" and w["answer"]["tier"] == "near"
        assert any("less tightly" in s for s in w["doubts"])
        assert c.call("get", problem=gemm(), wait="cached") == best


def test_a_tune_does_not_join_a_look_at_the_known_best(daemon):
    d = daemon(env={"GEMMD_REPLAY_SPEED": "0.7"})
    asked = {"problem": gemm(), "budget": 8, "atol": 1e-3, "rtol": 1e-3}
    with d.connect() as c, d.connect() as other:
        known = c.call("get", problem=gemm(), budget=8)
        looks = other.send("get", **asked)
        eventually(lambda: c.call("status")["jobs"]["running"], every=0.001)
        assert c.call("tune", **asked)["measured"] >= 8
        assert other.wait(looks)["config"] == known["config"]


def test_what_was_stopped_early_may_win_under_a_restriction(daemon):
    d = daemon()
    with d.connect() as c:
        whole = c.call("tune", problem=gemm(), strategy="exhaustive")
        trials = c.list("trials", key=whole["key"], stage="measure")
        slow = {t["config"]["BLOCK_SIZE_M"] for t in trials}
        slow -= {t["config"]["BLOCK_SIZE_M"] for t in trials if t["status"] != "aborted"}
        assert slow, "a block whose configs were all given up"
        for block in slow:
            partial = c.call("get", problem=gemm(), restrict={"BLOCK_SIZE_M": block}, budget=2)
            assert partial["source"] == "partial" and partial["measured"] >= 2
            assert partial["config"]["BLOCK_SIZE_M"] == block


def test_one_given_config(daemon):
    d = daemon()
    with d.connect() as c:
        default = c.call("get", problem=gemm(), wait="cached")["config"]
        answer = c.call("tune", problem=gemm(), configs=[default])
        assert answer["config"] == default and answer["time_us"] > 0


def test_exhaustive_measures_the_whole_space(daemon):
    d = daemon()
    with d.connect() as c:
        space = c.call("space", problem=gemm(), restrict={"BLOCK_SIZE_K": 32, "num_stages": 2})
        answer = c.call("tune", problem=gemm(), strategy="exhaustive",
                        restrict={"BLOCK_SIZE_K": 32, "num_stages": 2})
        trials = c.list("trials", key=answer["key"], stage="measure")
    assert 1 < space["legal"] <= space["raw"]
    assert len({str(sorted(t["config"].items())) for t in trials}) >= space["legal"] - 1


def test_custom_ops_are_kept_not_understood(daemon):
    d = daemon()
    problem = {"op": "custom:my_kernel", "heads": 32, "causal": True}
    with d.connect() as c:
        with pytest.raises(RpcError) as e:
            c.call("get", problem=problem)
        assert e.value.name in ("no_config", "not_found")
        c.call("put", problem=problem, config={"BLOCK": 128}, time_us=12.5)
        answer = c.call("get", problem=problem)
        assert answer["config"] == {"BLOCK": 128} and answer["tier"] == "exact"
        row, = c.list("best")
        assert row["flops"] is None and row["floor_percent"] is None and row["tflops"] is None
    assert d.sql("SELECT * FROM slowest") == [], "of what nobody knows the floor, none is slowest"


def test_a_condition_on_a_value_in_a_problem_is_of_its_type(daemon):
    d, values = daemon(), (1, 1.5, True, False, "1", "true", 0)
    with d.connect() as c:
        for value in values:
            c.call("put", problem={"op": "custom:typed", "a": value, "b": repr(value)}, config={"x": value}, time_us=3)
        c.call("put", problem={"op": "custom:typed", "b": "none"}, config={"x": 7}, time_us=3)

        def found(**where):
            return sorted(row["problem"]["b"] for row in c.list("best", **where))
        for value in values:
            also = ["none"] if value is False else []  # a problem has some flags only where they are true
            assert found(**{"problem.a": value}) == sorted([repr(value)] + also), value
            assert found(**{"config.x": value}) == [repr(value)], value
        assert found(**{"problem.a": 1.0}) == ["1"]
        assert found(**{"problem.a": "~1"}) == ["'1'", "1", "1.5", "True"]
    d.ctl("evict", "--where", "problem.a=1", "--yes")
    assert len(d.ctl_json("list", "--what", "best")) == len(values)


def test_get_many(daemon):
    d = daemon()
    problems = [gemm(m=64 * 2 ** (i % 6), n=64 * (1 + i % 3)) for i in range(100)]
    problems[7] = {"op": "nonsense"}
    with d.connect() as c:
        answers = c.call("get_many", problems=problems, wait="cached")["answers"]
    assert len(answers) == 100
    assert answers[7]["name"] == "unknown_op"
    assert all(a["tier"] in ("default", "near") for i, a in enumerate(answers) if i != 7)


def test_pipelined_requests_are_all_answered(daemon):
    d = daemon()
    with d.connect() as c:
        c.call("get", problem=gemm(), budget=4)
        payload = b"".join(msgpack.packb([0, 1000 + i, "get", {"problem": gemm()}]) for i in range(500))
        c.next_id = 2000
        c.socket.sendall(payload)
        answers = [c.wait(1000 + i) for i in range(500)]
    assert all(a == answers[0] for a in answers)


def test_params_may_stand_in_an_array(daemon):
    d = daemon()
    with d.connect() as c:
        c.socket.sendall(msgpack.packb([0, 99, "hello", [{"version": 1}]]))
        assert c.wait(99)["version"] == 1
        c.socket.sendall(msgpack.packb([0, 100, "status", []]))
        assert c.wait(100)["pid"] == d.process.pid


def test_unpin_says_that_a_restricted_winner_answers_nothing(daemon):
    d = daemon()
    with d.connect() as c:
        part = c.call("get", problem=gemm(), budget=4, restrict={"BLOCK_SIZE_M": 64})
        assert part["source"] == "partial"
        c.call("pin", problem=gemm(), config=part["config"])
        assert c.call("unpin", problem=gemm()) is None
        assert c.call("get", problem=gemm(), wait="cached")["tier"] != "exact"


def test_pin_is_verified_and_served_until_unpinned(daemon):
    d = daemon()
    with d.connect() as c:
        tuned = c.call("get", problem=gemm(), budget=8)
        other = c.call("get", problem=gemm(n=512), wait="cached")["config"]
        pinned = c.call("pin", problem=gemm(), config=other)
        assert pinned["source"] == "manual" and pinned["time_us"] > 0
        assert c.call("get", problem=gemm())["config"] == other
        c.call("tune", problem=gemm(), budget=8)
        assert c.call("get", problem=gemm())["config"] == other, "a tuning does not undo a pin"
        back = c.call("unpin", problem=gemm())
        assert back["source"] == "tuned" and back["key"] == tuned["key"]


def test_evict_then_tuned_again(daemon):
    d = daemon()
    with d.connect() as c:
        key = c.call("get", problem=gemm(), budget=4)["key"]
        assert c.call("evict", key=key)["removed"] > 0
        assert c.call("get", problem=gemm(), wait="cached")["tier"] == "default"


def test_answers_survive_a_restart(daemon):
    d = daemon()
    answer = d.call("get", problem=gemm(), budget=4)
    assert d.stop() == 0
    d.start()
    again = d.call("get", problem=gemm(), wait="cached")
    assert again == answer


def test_module_in_chunks(daemon):
    d = daemon("cpu")
    with d.connect(120) as c:
        answer = c.call("get", problem=gemm(dtype_in="fp32", m=64, n=64, k=64), budget=2)
        data, offset = b"", 0
        while offset is not None:
            chunk = c.call("module", id=answer["module"], offset=offset)
            data += chunk["data"]
            offset = chunk["next"]
        assert len(data) == chunk["size"] and data[:4] == b"\x7fELF"
        with pytest.raises(RpcError) as e:
            c.call("module", id="0" * 32, offset=0)
        assert e.value.name == "not_found"


def test_import_takes_no_times_of_other_sizes(daemon):
    """Rows of `verify --exact`, or of a database with other buckets, have sizes that this daemon rounds. Their times are
    of the exact sizes, so `import` drops the times."""
    d = daemon()
    with d.connect() as c:
        fits = c.call("get", problem=gemm(m=1024), budget=4)
        c.call("get", problem=gemm(m=900), bucket="exact", budget=4)
        c.call("get", problem=gemm(m=430), bucket="exact", budget=4)
        rows = sorted(c.list("best"), key=lambda r: -r["problem"]["M"])
        assert [r["problem"]["M"] for r in rows] == [1024, 900, 430]
        for order in rows, rows[::-1], rows[1:] + rows[:1]:
            for row in c.list("best"):
                c.call("evict", key=row["key"])
            result = c.call("import", rows=order)
            assert result["imported"] == 2 and "a row of its own" in result["skipped"][0]["message"]
            known = {r["problem"]["M"]: r for r in c.list("best")}
            assert known[1024]["time_us"] == fits["time_us"] and known[1024]["measured"] == 4
            other, = (r for m, r in known.items() if m != 1024)
            assert other["problem"]["M"] not in (430, 900) and other["time_us"] is None
            assert other["measured"] == 0 and other["floor_us"] > 0
        again = c.call("import", rows=[rows[1]])
        assert again["imported"] == 0, "its key is known by now"


def test_import_gives_hints_not_answers(daemon):
    d = daemon()
    with d.connect() as c:
        c.call("get", problem=gemm(), budget=4)
        rows = c.list("best")
        c.call("evict", key=rows[0]["key"])
        result = c.call("import", rows=rows)
        assert result["imported"] == 1
        hint = c.call("get", problem=gemm(), wait="cached")
        assert hint["tier"] != "exact" or hint["source"] != "imported"
        tuned = c.call("get", problem=gemm(), budget=4)
        assert tuned["tier"] == "exact" and tuned["source"] == "tuned"


def test_get_many_says_what_is_not_being_tuned(daemon):
    d = daemon(options=["--user-jobs", "1"], env={"GEMMD_REPLAY_SPEED": "1"})
    with d.connect() as c:
        problems = [gemm(m=128 * 2 ** i) for i in range(4)]
        answers = c.call("get_many", problems=problems, wait="now")["answers"]
        notes = [a["note"] for a in answers]
        assert sum("being tuned in the background" in n for n in notes) == 1, notes
        assert sum("not being tuned: " in n for n in notes) == 3, notes


def test_a_tune_that_joins_a_queued_get_is_a_search(daemon):
    """The tune gets a search's result, also when another search of the key has answered the get meanwhile."""
    d = daemon(env={"GEMMD_REPLAY_SPEED": "0.05"})
    with d.connect() as a, d.connect() as b, d.connect() as c:
        a.send("tune", problem=gemm(m=8192, n=4096, k=4096), budget=60)
        eventually(lambda: d.status()["jobs"]["running"] == 1)
        small, large = (b.send("get", problem=gemm(), budget=n) for n in (3, 6))
        eventually(lambda: d.status()["jobs"]["queued"] == 2)
        again = c.send("tune", problem=gemm(), budget=6)
        assert b.wait(small)["measured"] == 3
        assert c.wait(again)["measured"] >= 6 and b.wait(large)["measured"] >= 6
