# SPDX-License-Identifier: Apache-2.0
"""fp8 operands with scales, on the cpu device, from gemmctl to the measured kernel and back."""
import pytest

from conftest import RpcError, gemm

CASES = (("forward", "fp8_block", "1x128,128x128"), ("dX", "fp8_block", "1x128,128x128"),
         ("dW", "fp8_block", "1x128,1x128"), ("dW", "fp8_row", "row"))
SMALL = {"m": 64, "n": 128, "k": 256, "experts": 2, "topk": 1}


@pytest.fixture
def gemmd(daemon):
    return daemon("cpu:2")


def test_every_mode_is_tuned(gemmd):
    keys = set()
    with gemmd.connect(120) as c:
        for mode, quant, block in CASES:
            problem = gemm(mode, quant=quant, **SMALL)
            answer = c.call("get", problem=problem, budget=2)
            assert answer["tier"] == "exact" and "target=cpu" in answer["stamp"] and answer["time_us"] > 0
            assert c.call("get", problem=problem) == answer
            key = c.call("show", key=answer["key"])["problem"]
            assert (key["dtype_in"], key["dtype_out"], key["scale_type"]) == ("fp8_e4m3", "bf16", "fp32")
            assert key["scale_block"] == block
            keys.add(answer["key"])
            trials = c.list("trials", key=answer["key"])
            assert trials and {t["status"] for t in trials} <= {"ok", "aborted"}, "no wrong results"
    assert len(keys) == len(CASES)


def test_the_dense_op_by_its_own_name(gemmd):
    rows = gemmd.ctl_json("tune", "--op", "gemm_a8w8_blockscale", "--m", "16,32", "--n", 128, "--k", 128,
                          "--budget", 2)
    assert [r["tier"] for r in rows] == ["exact", "exact"]
    same = gemmd.ctl_json("get", "--m", 16, "--n", 128, "--k", 128, "--quant", "fp8_block")
    assert same[0]["key"] == rows[0]["key"]
    assert gemmd.ctl_json("get", "gemm_a8w8_blockscale M=16 N=128 K=128")[0]["key"] == same[0]["key"]
    assert " fp8_block " in gemmd.ctl("list").stdout


def test_bench_space_and_check(gemmd):
    problem = "grouped_gemm mode=dX M=64 N=128 K=256 experts=2 quant=fp8_block"
    config = gemmd.ctl_json("get", problem, "--wait", "cached")[0]["config"]
    space = gemmd.ctl_json("space", problem)
    assert {p["name"] for p in space["params"]} == set(config)
    sums = next(p for p in space["params"] if p["name"] == "BLOCK_SIZE_N")
    assert max(sums["values"]) == 128, "steps of the sum end where the scales change"
    text = " ".join(f"{name}={str(value).lower()}" for name, value in config.items())
    assert gemmd.ctl("check", problem, "--config", text).returncode == 0
    refused = gemmd.ctl("check", problem, "--config", text.replace("BLOCK_SIZE_N=64", "BLOCK_SIZE_N=96"), check=False)
    assert refused.returncode != 0 and "share their scales" in refused.stdout + refused.stderr
    assert gemmd.ctl_json("bench", problem, "--config", text)


def test_bad_problems_are_refused_with_a_sentence(gemmd):
    with gemmd.connect() as c:
        for more, name, part in (
                ({"quant": "fp8"}, "invalid", "none, fp8_block or fp8_row"),
                ({"quant": "fp8_block", "k": 120}, "invalid", "K is 120, not a multiple of 16"),
                ({"quant": "fp8_row", "dtype_in": "fp16"}, "conflict", "leave dtype_in out"),
                ({"quant": "fp8_row", "mode": "dW", "permute_x": True}, "conflict", "transposed copies"),
                ({"scale_block": "row"}, "conflict", "quant=none")):
            with pytest.raises(RpcError) as e:
                c.call("get", problem=gemm(**{**SMALL, **more}))
            assert e.value.name == name and part in e.value.message, e.value
