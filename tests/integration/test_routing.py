# SPDX-License-Identifier: Apache-2.0
"""The distribution of rows over experts: a query field, part of the key, drawn for the measurement."""
import json

import pytest

from conftest import RpcError, gemm

ROWS = [37, 0, 1, 10]


def test_measured_rows_are_tuned_as_they_are(daemon):
    d = daemon("cpu")
    rows = d.folder / "rows.json"
    rows.write_text(json.dumps(ROWS))
    size = ["--n", 32, "--k", 32, "--mode", "dW", "--dtype", "fp32"]
    tuned = d.ctl_json("tune", *size, "--rows-per-expert", rows, "--budget", 3)[0]
    assert tuned["tier"] == "exact" and tuned["source"] == "tuned"
    asked = gemm("dW", sum(ROWS), 32, 32, topk=1, dtype_in="fp32")
    with d.connect() as c:
        for routing in (ROWS, "rows:37,0,1,10", "rows:37,00,1,10"):
            assert c.call("get", problem={**asked, "routing": routing})["key"] == tuned["key"]
        best = c.list("best", key=tuned["key"])[0]
        assert best["problem"]["M"] == 48 and best["problem"]["routing"] == "rows:37,0,1,10"
        trials = c.list("trials", key=tuned["key"], status="ok")
        assert trials and all(t["rel_norm"] < 1e-3 for t in trials), "verified on these rows"
        # bytes count these rows: dW also writes experts without rows
        assert best["bytes"] == 4 * (48 * 32 * 2 + 4 * 32 * 32)
        assert c.call("get", problem=asked, wait="cached")["key"] != tuned["key"]
    listed = d.ctl_json("get", *size, "--rows-per-expert", "37,0,1,10")[0]
    assert listed["key"] == tuned["key"] and listed["stamp"] == tuned["stamp"]
    assert "rows:..." in d.ctl("list").stdout


def test_profiles_are_keys_of_their_own_and_neighbours(daemon):
    d = daemon()
    with d.connect() as c:
        uniform = c.call("tune", problem=gemm(), budget=6)
        zipf = gemm(routing="zipf:1.20")
        near = c.call("get", problem=zipf, wait="cached")
        assert near["tier"] == "near" and near["config"] == uniform["config"]
        assert "routing=uniform" in near["note"] and near["key"] != uniform["key"]
        tuned = c.call("get", problem=zipf, budget=6)
        assert tuned["tier"] == "exact" and tuned["key"] == near["key"]
        assert c.call("get", problem=gemm(routing="zipf:1.2"), wait="cached")["key"] == near["key"]
        assert c.call("get", problem=gemm(routing="uniform")) == uniform
        steeper = c.call("get", problem=gemm(routing="zipf:1.3"), wait="cached")
        assert steeper["config"] == tuned["config"] and "zipf:1.2" in steeper["note"]


@pytest.mark.parametrize("routing,name", [
    ("zipf:9", "invalid"), ("zipf", "invalid"), ([1, 2, 3], "conflict"), ([1, 2, 3, 4], "conflict"),
    ([252, 4, 0, -0.5], "invalid"), ("rows:256,0,0,0,", "invalid"), (5, "invalid")])
def test_profiles_that_cannot_be(daemon_of_module, routing, name):
    with pytest.raises(RpcError) as e:
        daemon_of_module.call("get", problem=gemm(routing=routing), wait="cached")
    assert e.value.name == name
