# SPDX-License-Identifier: Apache-2.0
"""A gemmd linked with a second family (tests/family, op `transpose`) tunes this op as well as grouped_gemm's."""
import pytest

import conftest
from conftest import BUILD, RpcError, gemm

HERE = BUILD / "tests" / "integration"


@pytest.fixture
def second(daemon, monkeypatch):
    monkeypatch.setattr(conftest, "GEMMD", HERE / "gemmd-family")
    monkeypatch.setattr(conftest, "RUNNER", HERE / "gemmd-runner-family")
    return daemon("cpu")


def test_a_second_family_is_tuned_like_the_first(second):
    with second.connect(120) as c:
        problem = {"op": "transpose", "rows": 200, "cols": 96}
        default = c.call("get", problem=problem, wait="cached")
        assert default["tier"] == "default" and default["family"] == "transpose"
        answer = c.call("get", problem=problem, budget=4)
        assert answer["tier"] == "exact" and answer["family"] == "transpose"
        assert answer["time_us"] > 0 and answer["gbps"] > 0 and answer["module"]
        bucket = c.call("show", key=answer["key"])["problem"]
        assert bucket["rows"] > 200 and bucket["cols"] == 96, "its own rounding"
        assert c.call("get", problem=dict(reversed(bucket.items()))) == answer
        # A neighbour's config answers only if it is expected to be no slower than the default. So pin the default's.
        c.call("pin", problem=problem, config=default["config"])
        near = c.call("get", problem={**problem, "rows": 4096}, wait="cached")
        assert near["tier"] == "near" and near["config"] == default["config"]
        space = c.call("space", problem=problem)
        assert {p["name"] for p in space["params"]} == set(answer["config"])
        assert {t["status"] for t in c.list("trials", key=answer["key"])} <= {"ok", "aborted"}


def test_both_families_side_by_side(second):
    with second.connect(120) as c:
        one = c.call("get", problem={"op": "transpose", "rows": 64, "cols": 64}, budget=2)
        two = c.call("get", problem=gemm(dtype_in="fp32", m=64, n=64, k=64), budget=2)
        assert {one["family"], two["family"]} == {"transpose", "grouped_gemm"}
        assert one["stamp"] != two["stamp"]
        for problem, name in (({"op": "transpose", "rows": 64}, "invalid"),
                              ({"op": "transpose", "rows": 64, "cols": 64, "M": 1}, "unknown_field"),
                              ({"op": "transposed", "rows": 64, "cols": 64}, "unknown_op")):
            with pytest.raises(RpcError) as e:
                c.call("get", problem=problem)
            assert e.value.name == name


def test_gemmctl_shows_what_it_is(second):
    text, problem = "transpose rows=200 cols=96", {"op": "transpose", "rows": 200, "cols": 96}
    gemm_key = second.call("get", problem=gemm(dtype_in="fp32", m=64, n=64, k=64), budget=2)["key"]
    key = second.call("get", problem=problem, budget=2)["key"]
    answer = second.ctl("get", text, "--wide").stdout
    best = second.ctl("list", "--wide", "--where", "op=transpose").stdout
    rows = second.call("show", key=key)["problem"]["rows"]
    for table, fields in ((answer, "cols=96 rows=200"), (best, f"cols=96 dtype=fp32 rows={rows}")):
        titles, row = table.splitlines()
        assert row[titles.index("MODE"):].split()[0] == "transpose"
        assert row[titles.index("FLAGS"):titles.index("TIME us")].strip() == fields
    assert second.ctl("trials", key).stderr == second.ctl("trials", gemm_key).stderr == (
        "baseline: the run's reference kernel, which is the analytic default\n")
    exported = second.ctl("export", "--format", "portfolio").stderr
    assert "transpose: " in exported and "grouped_gemm forward: " in exported
    assert "not served" not in exported
    said = second.ctl("verify", "--exact", "--samples", 2, text, check=False)
    assert said.returncode == 2 and "op transpose has no M" in said.stderr


def test_the_usual_program_does_not_know_it(daemon):
    d = daemon("cpu")
    with pytest.raises(RpcError) as e:
        d.call("get", problem={"op": "transpose", "rows": 64, "cols": 64})
    assert e.value.name == "unknown_op" and "transpose" in e.value.message
