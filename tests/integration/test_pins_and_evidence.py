# SPDX-License-Identifier: Apache-2.0
"""Users' decisions outlive changes, and recorded evidence is true."""
import os

import msgpack
import pytest

from conftest import DATA, RpcError, gemm


@pytest.fixture
def pinned(daemon, folder):
    """A daemon with its own landscape, and a pin of a config that tuning does not choose."""
    landscape = folder / "own.jsonl"
    landscape.write_text((DATA / "synthetic.jsonl").read_text())
    d = daemon(f"replay:{landscape}")
    with d.connect() as c:
        tuned = c.call("get", problem=gemm(), budget=8)
        config = next(t["config"] for t in c.list("trials", key=tuned["key"], status="ok")
                      if t["config"] != tuned["config"])
        answer = c.call("pin", problem=gemm(), config=config)
    assert answer["source"] == "manual" and answer["config"] == config
    return d, answer


def change_compiler(d):
    """Changes the device's compiler, and so the stamp of the daemon after its next start."""
    path = d.folder / "own.jsonl"
    text = path.read_text()
    assert "synthetic 1" in text
    path.write_text(text.replace("synthetic 1", "synthetic 2"))


def trials(d):
    return d.call("list", what="trials")["total"]  # the daemon lists only after all pending writes


def test_a_pin_outlives_a_new_stamp(pinned):
    d, pin = pinned
    assert d.stop() == 0
    change_compiler(d)
    d.start()
    with d.connect() as c:
        tuned = c.call("tune", problem=gemm(), budget=8)
        assert tuned["source"] == "tuned" and "pinned" in tuned["note"]
        assert c.call("get", problem=gemm(), wait="cached")["source"] != "tuned"
        before = trials(d)
        answer = c.call("get", problem=gemm())
        assert answer["source"] == "manual" and answer["config"] == pin["config"]
        assert answer["stamp"] != pin["stamp"] and answer["time_us"] > 0
        assert trials(d) - before <= 3, "it is looked at alone"
        assert c.call("get", problem=gemm()) == answer
        assert any("again" in e["text"] for e in c.list("events", kind="pin"))
        assert c.call("unpin", problem=gemm())["source"] == "tuned"


def test_a_pin_that_is_slower_than_the_default_says_so(daemon, folder):
    d = daemon()
    problem = gemm(m=8192, n=4096, k=1024)
    config = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 32, "num_warps": 4, "num_stages": 2,
              "GROUP_SIZE_M": 1}
    with d.connect() as c:
        assert "slower" not in c.call("get", problem=problem, budget=4)["note"]
        answer = c.call("pin", problem=problem, config=config)
        assert answer["time_us"] > 1.5 * answer["reference_us"]
        says = f"slower than the reference of its run: {answer['reference_us'] / answer['time_us']:.2f} of its speed"
        assert answer["note"].startswith(says)
        assert c.call("get", problem=problem, wait="cached")["note"].startswith(says)
    words = " ".join(f"{k}={v}" for k, v in problem.items() if k != "op")
    said = d.ctl("pin", words, "--config", " ".join(f"{k}={v}" for k, v in config.items())).stderr
    assert "slower than the reference of its run" in said
    d.ctl("export", "--to", folder / "rows.json")
    again = d.ctl("import", folder / "rows.json", check=False)
    assert again.returncode == 1, "the pin stays"
    assert "slower than the reference of their run: 1 of 1 rows" in again.stderr


def test_unpin_of_a_pin_of_another_stamp(pinned):
    d, pin = pinned
    assert d.stop() == 0
    change_compiler(d)
    d.start()
    with d.connect() as c:
        assert c.call("unpin", key=pin["key"])["source"] == "tuned"
        assert c.call("get", problem=gemm(), budget=8)["source"] == "tuned"
        with pytest.raises(RpcError) as e:
            c.call("unpin", key=pin["key"])
        assert e.value.name == "not_found" and "pinned" in e.value.message


def test_a_pin_that_does_not_hold_any_more_is_searched_for(pinned, folder):
    d, pin = pinned
    assert d.stop() == 0
    change_compiler(d)
    faults = folder / "faults.jsonl"
    config = " ".join(f"{k}={str(v).lower() if isinstance(v, bool) else v}"
                      for k, v in pin["config"].items())
    faults.write_text('{"config": "%s", "fault": "wrong", "stage": "verify"}\n' % config)
    d.env["GEMMD_REPLAY_FAULTS"] = str(faults)
    d.start()
    with d.connect() as c:
        answer = c.call("get", problem=gemm(), budget=8)
        assert answer["source"] == "tuned" and answer["config"] != pin["config"]
        assert any("not hold" in e["text"] for e in c.list("events", kind="pin"))
        assert c.call("get", problem=gemm()) == answer


def test_tighter_tolerances_verify_a_pin_once(pinned):
    d, pin = pinned
    with d.connect() as c:
        answer = c.call("get", problem=gemm(), atol=1e-3)
        assert answer["source"] == "manual" and answer["config"] == pin["config"]
        before = trials(d)
        assert c.call("get", problem=gemm(), atol=1e-3) == answer
        # the row keeps the tightest atol and the tightest rtol that its config was verified for
        answer = c.call("get", problem=gemm(), rtol=1e-3)
        assert answer["source"] == "manual"
        after = trials(d)
        assert after > before
        assert c.call("get", problem=gemm(), atol=1e-3, rtol=1e-3) == answer
        assert trials(d) == after
        best = c.list("best", key=answer["key"])[0]
        assert (best["atol"], best["rtol"]) == (1e-3, 1e-3)


def test_evict_takes_what_was_on_its_way(daemon):
    d = daemon()
    problem = {"op": "custom:evicted", "i": 1}
    with d.connect() as c:
        key = c.call("put", problem=problem, config={"x": 1}, time_us=1)["key"]
        for x in range(20):  # put and evict arrive together, so that the evict comes before the row is written
            c.socket.sendall(
                msgpack.packb([0, 1000 + 2 * x, "put",
                               {"problem": problem, "config": {"x": x}, "time_us": 1}]) +
                msgpack.packb([0, 1001 + 2 * x, "evict", {"key": key}]))
            c.wait(1000 + 2 * x)
            assert c.wait(1001 + 2 * x)["removed"] >= 1
            with pytest.raises(RpcError):
                c.call("get", problem=problem, wait="cached")
            assert c.list("best", key=key) == []
            c.call("put", problem=problem, config={"x": x}, time_us=1)


def test_events_say_who(pinned):
    d, pin = pinned
    with d.connect() as c:
        c.call("unpin", key=pin["key"])
        c.call("import", rows=[])
        c.call("evict", key=pin["key"])
        kinds = {e["kind"]: e["uid"] for e in c.list("events")}
    assert {"pin", "unpin", "import", "evict"} <= set(kinds)
    assert all(uid == os.getuid() for uid in kinds.values()), kinds


@pytest.mark.parametrize("field,value", [
    ("time_us", -5.0), ("time_us", float("inf")), ("spread", -1.0), ("measured", -4), ("atol", -1.0),
    ("rtol", float("inf")), ("created_s", 2 ** 62), ("created_s", -1), ("config", {})])
def test_garbage_is_not_imported(daemon_of_module, field, value):
    row = {"op": "custom:garbage", "problem": {"i": 1}, "config": {"x": 1}, "time_us": 5.0}
    with daemon_of_module.connect() as c:
        result = c.call("import", rows=[{**row, field: value}])
        assert result["imported"] == 0
        assert field in result["skipped"][0]["message"]


def test_what_is_put_has_a_time_that_can_be(daemon_of_module):
    problem = {"op": "custom:put", "i": 1}
    with daemon_of_module.connect() as c:
        for time_us in (float("inf"), -1.0):
            with pytest.raises(RpcError) as e:
                c.call("put", problem=problem, config={"x": 1}, time_us=time_us)
            assert e.value.name == "invalid" and "time_us" in e.value.message
        with pytest.raises(RpcError) as e:
            c.call("put", problem=problem, config={}, time_us=1)
        assert "empty" in e.value.message
        assert c.call("put", problem=problem, config={"x": 1}, time_us=float("nan"))["tier"] == "exact"


def test_an_imported_custom_row_answers(daemon_of_module):
    row = {"op": "custom:loose", "problem": {"i": 1}, "config": {"x": 1}, "time_us": 5.0, "atol": 1.0}
    with daemon_of_module.connect() as c:
        assert c.call("import", rows=[row])["imported"] == 1
        answer = c.call("get", problem={"op": "custom:loose", "i": 1})
        assert answer["config"] == {"x": 1} and answer["tier"] == "exact"
