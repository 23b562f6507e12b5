# SPDX-License-Identifier: Apache-2.0
"""Variations of a search's best config: run-time settings outside the space, tried at the end. The
device is a synthetic Hopper GPU with random times."""
import json

import pytest
from conftest import BUILD, DATA, gemm

H100 = BUILD / "tests" / "data" / "landscapes_h100" / "qwen3-30b-a3b-down-4096-dW-none.jsonl"
SETTING = "w_eviction"
GROUPS = (1, 4, 8, 16)


@pytest.fixture
def hopper(daemon, folder):
    header, synthetic = map(json.loads, (DATA / "synthetic.jsonl").read_text().splitlines())
    with H100.open() as f:
        header["device"] = json.loads(f.readline())["device"]
    synthetic["synthetic"].update(noise=0.001, spread=0.01)
    landscape = folder / "h100.jsonl"
    landscape.write_text(f"{json.dumps(header)}\n{json.dumps(synthetic)}\n")
    return daemon(f"replay:{landscape}")


def problem_of(mode):
    return gemm(mode, m=8192, n=1536, k=2048, experts=16)


def measured(d, key):
    """The trials of a search in order, without its finals."""
    rows = d.connect().list("trials", key=key, stage="measure", sort="id")
    return [r for r in rows if r["status"] in ("ok", "aborted")]


def without(config, *settings):
    return {name: value for name, value in config.items() if name not in settings}


def is_varied(config):
    return config["GROUP_SIZE_M"] not in GROUPS or "l2_ahead" in config


@pytest.mark.parametrize("mode", ["forward", "dX"])
def test_the_best_is_tried_with_more(hopper, mode):
    answer = hopper.call("tune", problem=problem_of(mode), budget=24)
    trials = measured(hopper, answer["key"])
    varied = [t for t in trials if SETTING in t["config"]]
    plain = [t for t in trials if SETTING not in t["config"]]
    best = min(plain, key=lambda t: t["time_us"])
    assert len(trials) <= 24 and len(varied) == 2
    assert trials[-2:] == varied, "they come last"
    assert {v["config"][SETTING] for v in varied} < {"evict_first", "evict_normal", "evict_unchanged"}
    for v in varied:
        assert without(v["config"], SETTING) == best["config"]
        assert v["variant"] == best["variant"], "nothing is compiled for it"
    assert answer["config"] in [t["config"] for t in trials]
    assert hopper.call("get", problem=problem_of(mode), wait="cached")["config"] == answer["config"]


@pytest.mark.parametrize("budget, tried", [(15, 1), (24, 2), (40, 4)])
def test_the_best_of_dw_is_tried_with_more(hopper, budget, tried):
    """Tunes the first key of a database: searches of later keys would begin with this winner as a hint, and so with
    its varied settings. A small budget tries only the first variations."""
    answer = hopper.call("tune", problem=gemm("dW", m=8192, n=512, k=2048, experts=16), budget=budget)
    trials = measured(hopper, answer["key"])
    varied = [t for t in trials if is_varied(t["config"])]
    best = min((t for t in trials if not is_varied(t["config"])), key=lambda t: t["time_us"])
    group = best["config"]["GROUP_SIZE_M"]
    wanted = [("GROUP_SIZE_M", (3 * group + 1) // 2)]
    wanted += [("GROUP_SIZE_M", 3 * group // 4)] if group > 1 else []
    if best["config"]["expert_order"] == "index":  # in another order the next expert is not adjacent
        wanted += [("l2_ahead", 1)]
    assert len(trials) <= budget and 1 <= len(varied) <= tried
    assert trials[-len(varied):] == varied, "they come last"
    for v, (name, value) in zip(varied, wanted):
        assert v["config"] == best["config"] | {name: value}
        assert v["variant"] == best["variant"], "nothing is compiled for it"
    assert len(varied) == min(tried, len(wanted))


def test_one_of_them_can_win_and_serve(hopper):
    won = [hopper.call("tune", problem=gemm("forward", m=8192, n=64 * n, k=2048, experts=16), budget=24)
           for n in range(8, 16)]
    served = [a for a in won if SETTING in a["config"]]
    assert served, "none of eight keys, where the times are drawn"
    key = served[0]["key"]
    assert hopper.call("show", key=key)["answer"]["config"] == served[0]["config"]
    assert hopper.ctl("trials", "--wide", key).stdout.count(SETTING) >= 2


def test_where_nothing_more_is_tried(hopper):
    few = hopper.call("tune", problem=problem_of("forward"), budget=8)
    assert not any(SETTING in t["config"] for t in measured(hopper, few["key"]))
    dw = hopper.call("tune", problem=problem_of("dW"), budget=24)
    assert not any(SETTING in t["config"] for t in measured(hopper, dw["key"]))
    given = hopper.call("tune", problem=gemm("forward", m=8192, n=1024, k=2048, experts=16), strategy="given",
                        configs=[few["config"]])
    assert not any(SETTING in t["config"] for t in measured(hopper, given["key"]))
