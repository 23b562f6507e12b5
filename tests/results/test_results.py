# SPDX-License-Identifier: Apache-2.0
"""docs/performance.md is made of the CSV files, which keep the two latest runs of each workload."""
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import latest  # noqa: E402
import performance  # noqa: E402


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(latest, "HERE", tmp_path)
    return tmp_path


def test_the_page_is_made_of_the_files():
    done = subprocess.run([sys.executable, HERE / "performance.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_page_and_the_files_are_small():
    assert len(performance.page().splitlines()) <= 150
    assert sum(f.stat().st_size for f in HERE.glob("*.csv")) <= 1_000_000


def test_every_file_belongs_to_a_bench_with_a_command_and_a_card():
    for f in HERE.glob("*.csv"):
        bench, card = f.stem.rsplit("-", 1)
        assert bench in performance.COMMANDS and bench in latest.READERS and card in performance.CARDS, f.name


def test_two_runs_are_kept_and_the_newest_is_shown(folder):
    for day in (1, 3, 2):
        latest.append("meeting", "host", [("news", "", "", day, None, "ms"), ("hit", "peer", "a", day, 2 * day, "us")],
                      f"2026-01-0{day}")
    rows = latest.read("meeting", "host")
    assert sorted(r["date"] for r in rows if r["workload"] == "news") == ["2026-01-02", "2026-01-03"]
    shown = {r["workload"]: r for r in performance.lines("meeting", "host")}
    assert shown["news"]["ours"] == 3 and shown["news"]["ratio"] is None
    assert shown["hit"]["ratio"] == 2 and shown["hit"]["date"] == "2026-01-03"


def test_a_later_run_of_some_workloads_leaves_the_others(folder):
    latest.append("moe_peers", "h200", [("forward", "torch", "a", 1, 2, "us"), ("dX", "torch", "a", 1, 2, "us")], "2026-01-01")
    latest.append("moe_peers", "h200", [("forward", "torch", "a", 1, 4, "us"), ("forward", "torch", "b", 1, 9, "us")], "2026-01-02")
    shown = {r["workload"]: r for r in performance.lines("moe_peers", "h200")}
    assert shown["forward"]["ratio"] == pytest.approx(6) and shown["forward"]["least"] == 4
    assert shown["dX"]["ratio"] == 2


def test_times_of_fp8_are_beside_the_better_peer(folder):
    row = {"row": "a", "quant": "fp8_block", "mode": "forward", "m": 64, "experts": 1,
           "us": {"ours": 10.0, "cuBLASLt": 12.0, "DeepGEMM": 11.0}}
    latest.add("fp8", "h200", [{"part": "clock"}, {"part": "time", "times": [
        row, {**row, "mode": "dW", "experts": 8, "us": {"ours": 10.0, "DeepGEMM": 15.0}}]}])
    ratios = {r["workload"]: (r["peer"], r["ratio"]) for r in performance.lines("fp8", "h200")}
    assert ratios == {"fp8, dense, 16 to 256 rows": ("cuBLASLt or DeepGEMM", pytest.approx(1.1)),
                      "fp8, dW, added in fp32": ("DeepGEMM", pytest.approx(1.5))}


def test_of_rates_more_is_better(folder):
    latest.append("serving", "host", [("hits", "redis", "", 300, 100, "1/s")], "2026-01-01")
    assert next(performance.lines("serving", "host"))["ratio"] == 3


@pytest.mark.parametrize("bench, text, workload, ours", [
    ("power", "synchronous=FULL: 300 cuts (259 at work), 9 writes dropped or torn; 26230 bests acknowledged, 0 rows lost, 0 removed",
     "loss of power: bests lost", "0"),
    ("flips", "log of 354352 bytes: 300 flips, 300 of them cut something off, all reported, 278 of them",
     "a bit of a file turned over: not reported", "0"),
    ("regret", "ranked   18 keys x 10: regret median 0.26 %, 95th percentile 0.76 %; of the worst key: device 4.87 %, "
     "compiling 4.50 %, winners", "search `ranked` over 18 recorded keys: regret, median", "0.26"),
    ("defaults", "12 of 18: mean 1.17 %, most 2.53 %", "the default over the best, 12 of 18 recorded keys: most", "2.53"),
])
def test_what_programs_print_is_read(folder, bench, text, workload, ours):
    latest.add(bench, "host", text)
    assert {r["workload"]: r["ours"] for r in latest.read(bench, "host")}[workload] == ours


@pytest.mark.parametrize("name, card", [("NVIDIA H200", "h200"), ("NVIDIA H100 80GB HBM3", "h100"), ("host", "host"),
                                        ("NVIDIA A100-SXM4-80GB", "a100")])
def test_a_card_is_named_shortly(name, card):
    assert latest.card_of(name) == card
