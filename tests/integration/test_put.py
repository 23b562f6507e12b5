# SPDX-License-Identifier: Apache-2.0
"""`put` (daemon/methods/put.c): which row may take the place of which, and which requests are refused."""
import os

import pytest
from conftest import RpcError, eventually, gemm
from test_leases import OTHER, as_user

CUSTOM = {"op": "custom:mine", "n": 1}
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")


def config_of(c, problem, **changed):
    """The default config, with changed parameters."""
    return {**c.call("get", problem=problem, wait="cached")["config"], **changed}


@pytest.fixture
def open_daemon(daemon, folder):
    """A daemon to which every user may connect."""
    d = daemon()
    os.chmod(folder, 0o755)
    os.chmod(d.socket, 0o666)
    return d


@pytest.mark.parametrize("wrong, name, word", [
    ({"config": {}}, "invalid", "empty"),
    ({"config": {"a": "x" * 600}}, "invalid", "511 bytes"),
    ({"time_us": 0}, "invalid", "positive"),
    ({"time_us": -1.0}, "invalid", "positive"),
    ({"time_us": float("inf")}, "invalid", "positive"),
    ({"time_us": "5"}, "invalid", "positive"),
    ({"other": 1}, "unknown_field", "other"),
])
def test_a_wrong_put_is_refused_and_leaves_no_row(daemon, wrong, name, word):
    d = daemon()
    with pytest.raises(RpcError) as e:
        d.call("put", **{"problem": CUSTOM, "config": {"a": 1}, "time_us": 5, **wrong})
    assert e.value.name == name and word in e.value.message
    assert d.status()["keys"] == 0 and d.sql("SELECT count(*) FROM best") == [(0,)]


def test_a_config_that_no_kernel_has_is_refused(daemon):
    d = daemon()
    with d.connect() as c:
        config = config_of(c, gemm(), BLOCK_SIZE_M=7)
        with pytest.raises(RpcError) as e:
            c.call("put", problem=gemm(), config=config, time_us=1)
        assert "BLOCK_SIZE_M" in e.value.message
        assert d.sql("SELECT count(*) FROM best") == [(0,)]


def test_the_owner_s_put_answers_as_near_and_a_tuning_takes_its_place(daemon):
    d = daemon()
    with d.connect() as c:
        put = c.call("put", problem=gemm(), config=config_of(c, gemm()), time_us=3)
        assert (put["tier"], put["source"]) == ("near", "imported")
        tuned = c.call("get", problem=gemm(), budget=4)
        assert (tuned["tier"], tuned["source"], tuned["key"]) == ("exact", "tuned", put["key"])


@pytest.mark.parametrize("served", ["tuned", "manual"])
def test_a_row_of_today_s_kernels_outranks_a_put(daemon, served):
    d = daemon()
    with d.connect() as c:
        answer = c.call("get", problem=gemm(), budget=4)
        if served == "manual":
            answer = c.call("pin", problem=gemm(), config=answer["config"])
        with pytest.raises(RpcError) as e:
            c.call("put", problem=gemm(), config=answer["config"], time_us=0.001)
        assert e.value.name == "conflict"
        assert c.call("get", problem=gemm())["source"] == served


@AS_ROOT
def test_a_user_s_row_answers_this_user_and_gives_way_to_the_owner_s(open_daemon):
    d = open_daemon
    with d.connect() as c:
        config = config_of(c, gemm())
    kind, theirs = as_user(OTHER, lambda: d.call("put", problem=gemm(), config=config, time_us=3))
    assert kind == "ok" and theirs["source"] == "imported"
    assert d.call("get", problem=gemm(), wait="cached")["source"] == "model"  # root, another user, gets the default
    assert as_user(OTHER, lambda: d.call("get", problem=gemm(), wait="cached"))[1]["source"] == "imported"
    again = as_user(OTHER, lambda: d.call("put", problem=gemm(), config=config, time_us=2))
    assert again[0] == "ok" and again[1]["generation"] > theirs["generation"]
    owner = d.call("put", problem=gemm(), config=config, time_us=3)
    assert owner["generation"] > again[1]["generation"]
    assert eventually(lambda: d.call("get", problem=gemm(), wait="cached")["source"] == "imported")


@AS_ROOT
def test_a_user_does_not_push_out_a_row_of_another_user(open_daemon):
    d = open_daemon
    with d.connect() as c:
        config = config_of(c, gemm())
        owner = c.call("put", problem=gemm(), config=config, time_us=3)
    kind, why = as_user(OTHER, lambda: d.call("put", problem=gemm(), config=config, time_us=1))
    assert kind == "conflict", why
    assert d.sql("SELECT max(generation) FROM best") == [(owner["generation"],)]


@AS_ROOT
def test_rows_of_a_custom_op_stand_beside_each_other_for_each_user(open_daemon):
    d = open_daemon
    mine = d.call("put", problem=CUSTOM, config={"a": 1}, time_us=5)
    kind, theirs = as_user(OTHER, lambda: d.call("put", problem=CUSTOM, config={"a": 2}, time_us=5))
    assert kind == "ok" and theirs["key"] != mine["key"]
    assert d.call("get", problem=CUSTOM)["config"] == {"a": 1}
    assert as_user(OTHER, lambda: d.call("get", problem=CUSTOM))[1]["config"] == {"a": 2}


def test_the_same_row_is_written_once(daemon):
    d = daemon()
    with d.connect() as c:
        first, second = (c.call("put", problem=CUSTOM, config={"a": 1}, time_us=5) for _ in range(2))
        assert first["generation"] == second["generation"]
        third = c.call("put", problem=CUSTOM, config={"a": 1}, time_us=4)
        assert third["generation"] > first["generation"]
    assert d.sql("SELECT count(*) FROM best") == [(2,)]


def test_a_put_ends_the_lease_of_its_key_and_the_next_client_has_the_answer(daemon):
    d = daemon()
    with d.connect() as holder, d.connect() as waiter:
        assert holder.call("acquire", problem=CUSTOM)["outcome"] == "lease"
        waiting = waiter.send("acquire", problem=CUSTOM)
        holder.call("put", problem=CUSTOM, config={"a": 1}, time_us=5)
        hit = waiter.wait(waiting)
        assert hit["outcome"] == "hit" and hit["answer"]["config"] == {"a": 1}
        assert not holder.call("release", problem=CUSTOM)["released"]
