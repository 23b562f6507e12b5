# SPDX-License-Identifier: Apache-2.0
"""`gemmctl verify --exact`, which measures the loss by rounding sizes, and the query field `bucket` that it uses."""
import pathlib
import subprocess
import sys

import pytest

from conftest import BUILD, ROOT, RpcError, gemm


def test_one_query_rounds_otherwise(daemon):
    d = daemon()
    problem = gemm(m=500)
    with d.connect() as c:
        exact = c.call("get", problem=problem, bucket="exact", budget=4)
        pow2 = c.call("get", problem={**problem, "M": 300}, bucket="pow2", budget=4)
        rows = {r["key"]: r["problem"]["M"] for r in c.list("best")}
        assert rows == {exact["key"]: 500, pow2["key"]: 512}
        plain = c.call("get", problem=problem, wait="cached")  # sqrt2 rounds 500 to 512, too
        assert plain["key"] == pow2["key"] and plain["tier"] == "exact"
        other = c.call("get", problem={**problem, "M": 300}, wait="cached")
        assert other["tier"] == "near" and other["key"] not in rows
        assert c.call("get", problem=problem, bucket="exact")["key"] == exact["key"]
        with pytest.raises(RpcError) as e:
            c.call("get", problem=problem, bucket="cube")
        assert e.value.name == "invalid" and "sqrt2" in e.value.message
        # a query's bucket does not affect the next query
        assert c.call("why", problem=problem)["key"] == pow2["key"]
    assert d.stop() == 0
    d.start()
    assert d.call("get", problem=problem, bucket="exact", wait="cached")["key"] == exact["key"]


def test_a_lower_tier_after_the_deadline_is_of_that_bucket(daemon):
    d = daemon("cpu")
    answer = d.call("get", problem=gemm(m=500), bucket="exact", deadline_ms=1)
    assert answer["tier"] == "default" and "deadline" in answer["note"]
    assert answer["key"] == d.call("get", problem=gemm(m=500), bucket="exact", wait="cached")["key"]
    assert answer["key"] != d.call("get", problem=gemm(m=500), wait="cached")["key"]


def verify(d, *args):
    return d.ctl_json("verify", "--exact", *args, "--bucket", "sqrt2,pow2", "--quiet")


def test_losses_are_those_of_the_trials(daemon):
    d = daemon()
    result = verify(d, "--m", 512, "--n", 64, "--k", 64, "--samples", 4, "--budget", 8)
    rows, summary = result["rows"], {s["scheme"]: s for s in result["summary"]}
    assert [r["problem"]["M"] for r in rows[::3]] == [304, 362, 431, 512]
    assert {(r["scheme"], r["problem"]["M"]): r["bucket"]["M"] for r in rows if r["scheme"] != "exact"} == {
        ("sqrt2", 304): 362, ("sqrt2", 362): 362, ("sqrt2", 431): 512, ("sqrt2", 512): 512,
        ("pow2", 304): 512, ("pow2", 362): 512, ("pow2", 431): 512, ("pow2", 512): 512}
    assert {s: (summary[s]["shapes"], summary[s]["buckets"]) for s in summary} == {
        "sqrt2": (4, 2), "pow2": (4, 1), "exact": (4, 4)}
    for scheme, s in summary.items():
        losses = sorted(r["loss_percent"] for r in rows if r["scheme"] == scheme)
        assert s["max_percent"] == losses[-1] > -1e-9
        assert s["median_percent"] == pytest.approx((losses[1] + losses[2]) / 2)
    assert max(r["loss_percent"] for r in rows) > 0.5, "the synthetic landscape differs by shape"
    for shape in (rows[i:i + 3] for i in range(0, len(rows), 3)):
        assert min(r["loss_percent"] for r in shape) == 0, "one of them is the best"
        key = next(r["key"] for r in shape if r["scheme"] == "exact")
        with d.connect() as c:
            times = {str(t["config"]): t for t in c.list("trials", key=key, status="ok")}
        best = next(r for r in shape if r["same"])
        for r in shape:  # times of each config at the exact shape
            ratio = times[str(r["config"])]["ratio"] / times[str(best["config"])]["ratio"]
            assert r["loss_percent"] == pytest.approx(100 * max(0, ratio - 1), abs=8)
    jobs = d.status()["jobs"]["done"]
    again = verify(d, "--m", 512, "--n", 64, "--k", 64, "--samples", 4, "--budget", 8)
    assert [r["config"] for r in again["rows"]] == [r["config"] for r in rows]
    assert d.status()["jobs"]["done"] - jobs <= 4, "only the comparisons are made again"


def test_in_words_and_wrong_usage(daemon_of_module):
    d, size = daemon_of_module, ["--m", 40, "--n", 64, "--k", 64, "--budget", 4]
    out = d.ctl("verify", "--exact", *size).stdout
    assert "LOSS %" in out and "MEDIAN %" in out and "sqrt2" in out and "exact" in out
    for args, words in ((size, "--exact"), (["--exact", *size, "--bucket", "cube"], "cube"),
                        (["--exact", *size, "--samples", 0], "--samples")):
        result = d.ctl("verify", *args, check=False)
        assert result.returncode == 2 and words in result.stderr


def test_the_script_for_gpus_runs_on_the_cpu(folder):
    result = subprocess.run(
        [sys.executable, ROOT / "tests/gpu/bucket_loss.py", "--build", BUILD, "--out", folder / "out",
         "--device", "cpu", "--budget", "3", "--samples", "2"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "keys tuned" in result.stdout and "median" in result.stdout
    assert pathlib.Path(folder / "out" / "bucket_loss.json").stat().st_size > 100
