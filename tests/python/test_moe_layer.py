# SPDX-License-Identifier: Apache-2.0
"""Summaries that tests/gpu/moe_layer.py makes of times. Needs neither PyTorch nor a GPU."""
import sys
import time
import types

import pytest

from conftest import ROOT

sys.path[:0] = [str(ROOT / "tests" / "gpu"), str(ROOT / "tests" / "bench")]
import moe_layer  # noqa: E402

pytestmark = pytest.mark.no_library


def bench(**options):
    """moe_layer.Bench without PyTorch."""
    b = moe_layer.Bench.__new__(moe_layer.Bench)
    forms = dict.fromkeys(("gemmd", "torch_gather", "torch_index", "loop"))
    b.forms, b.left_out = types.SimpleNamespace(FORMS=forms), []
    b.options = types.SimpleNamespace(seconds=1, until=time.monotonic() + 60, rounds=4, block=2,
                                      lead=3, **options)
    b.device = types.SimpleNamespace(type="cpu")
    return b


def test_ours_against_the_best_of_theirs_and_of_the_same_kind():
    ms = {"gemmd": 2.0, "torch_gather": 3.0, "torch_index": 2.5, "gemmd_eager": 4.0,
          "torch_gather_eager": 1.0, "loop_eager": 80.0}
    b = bench()
    assert moe_layer.ratio(b, ms) == 1.25 and moe_layer.ratio(b, ms, "_eager") == 0.25
    assert moe_layer.ratio(b, ms, "_compiled") is None
    assert moe_layer.ratio(b, {"torch_index": 1.0}) is None


def test_every_block_has_a_lead_of_its_own_steps():
    ran = []
    times = bench().times({name: lambda name=name: ran.append(name) for name in "ab"})
    assert {name: len(t) for name, t in times.items()} == {"a": 4, "b": 4}
    blocks = ["".join(ran[i:i + 5]) for i in range(0, len(ran), 5)]
    assert sorted(blocks) == ["aaaaa"] * 4 + ["bbbbb"] * 4 and blocks[0] != blocks[2]


def test_what_would_begin_too_late_is_left_out_and_said(capsys):
    b = bench()
    assert not b.is_late("stage graph")
    b.options.until = time.monotonic()
    assert b.is_late("stage graph") and b.left_out == ["stage graph"]
    assert "LEFT OUT: stage graph: the 1 s are over" in capsys.readouterr().out


def test_one_of_torch_s_forms_may_fail_and_ours_may_not(capsys):
    b = bench()

    def fail():
        raise RuntimeError("no such kernel")

    assert not moe_layer.ready(b, "torch_index", fail) and b.left_out == ["torch_index"]
    assert "no such kernel" in capsys.readouterr().out
    with pytest.raises(RuntimeError):
        moe_layer.ready(b, "gemmd", fail)
