#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes docs/performance.md of the CSV files beside this one (latest.py).

    performance.py            writes docs/performance.md, and the table of figures in README.md
    performance.py --check    exit status 1 when one of them is not of these files
"""
import argparse
import math
import pathlib
import sys

import latest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PAGE = ROOT / "docs" / "performance.md"

CARDS = {
    "h200": "NVIDIA H200 (132 SMs, 700 W, copies at 4.29 TB/s), driver 580.159, NVRTC 13.0, PyTorch 2.11",
    "h100": "NVIDIA H100 80GB HBM3 (132 SMs, 700 W, copies at 3.03 TB/s), otherwise the same",
    "host": "No GPU; device time, where a row has any, is played from recordings",
}
# How each table is measured, in the order of the tables.
COMMANDS = {
    "layer_peers": "tests/bench/layer_peers.py --build build --ways graph --peers sonicmoe --csv",
    "frameworks": "tests/gpu/frameworks.py --build build --csv",
    "moe_peers": "tests/bench/moe_peers.py --build build --csv [--deepgemm DIR] [--unsloth DIR]",
    "dense_peers": "tests/bench/dense_peers.py --build build --csv",
    "fp8": "DEEPGEMM=DIR tests/gpu/fp8.py --build build --parts time --csv",
    "moe_layer": "tests/gpu/moe_layer.py --build build --stages layer,graph --csv",
    "model_steps": "tests/gpu/model_steps.py --build build --csv [--wait cached]",
    "rank_steps": "tests/gpu/rank_steps.py --build build --ranks 4 --csv [--wait boundary]",
    "mma_peers": "tests/gpu/mma_peers.py --build build --csv",
    "tune_times": "tests/gpu/tune_times.py --build build --out DIR --csv",
    "triton_ranks": "tests/gpu/triton_ranks.py --build build --csv [--unsloth DIR]",
    "bucket_loss": "tests/gpu/bucket_loss.py --build build --out DIR --csv",
    "fresh_regret": "tests/gpu/fresh_regret.py --build build --landscapes build/tests/data/landscapes_held_out --csv",
    "regret": "build/tests/search/regret --constants tests/model/h200_left_out.txt --teachers "
              "build/tests/data/landscapes --teachers build/tests/data/landscapes_fresh "
              "build/tests/data/landscapes/*.jsonl | tests/results/latest.py regret h200",
    "defaults": "build/tests/model/defaults build/tests/data/landscapes_held_out | tests/results/latest.py defaults h200",
    "serving": "tests/bench/serving/serving.py --build build --realtime --csv`; beside it `scrapes.py --cases host`, `reports.py` "
               "and `tests/fleet/away.py",
    "fairness": "tests/bench/fairness/fairness.py --build build --csv",
    "cold_ranks": "tests/bench/cold_ranks.py --csv",
    "meeting": "tests/bench/meeting.py --csv",
    "stops": "tests/fault/stops.py --count 50 --seconds 10 --csv",
    "kills": "tests/fault/kills.py --count 1000 --csv [--daemons 4]",
    "power": "build/tests/fault/power --cuts 300 | tests/results/latest.py power host",
    "flips": "build/tests/fault/flips --flips 300 | tests/results/latest.py flips host",
}
RATES = {"1/s"}  # more is better
# Terms in the names of workloads and peers, and the words that the page has in their place.
PLAIN = {
    "torch: permute and _grouped_mm": "the sum of torch's permute and _grouped_mm",
    "step of a transformers model": "training step of a transformers model",
    "tuned, experts_implementation": "tuned, eager, experts_implementation",
    "tuned, gemmd.torch.install()": "tuned, eager, gemmd.torch.install()",
    "gemmd.torch.install()": "unchanged, under gemmd.torch.install()",
    "torch's best form": "the fastest form over torch._grouped_mm",
    "a copy of as many bytes": "a copy of as many bytes as the product moves",
    "ours in bf16": "gemmd's kernel for bf16, not tuned",
    "lost by rounding sizes": "time lost by rounding token counts",
    "regret of a search on keys that taught nothing": "regret (time above the best config's) on keys that no model was fitted to",
    "keys: regret,": "keys: regret (time above the best config's),",
    "device time, worst key": "device time that it needs, worst key",
    "compile time, worst key": "compile time that it needs, worst key",
    "key, nothing compiled": "key, no kernel compiled before",
    "key, kernels compiled": "key, all kernels compiled before",
    "first call, 8 processes, empty store": "first call of a user's Triton kernel in 8 processes, nothing tuned before",
    "first call at the second start": "first call of a user's Triton kernel in 8 processes, tuned before",
    "a hit, one connection: p50": "an answer from the daemon's cache, one connection: median",
    "hits, 50 connections": "answers from the daemon's cache, 50 connections",
    "16 requests at a time": "16 requests of each under way",
    "of 10,000 hits": "of 10,000 keys in the daemon's cache",
    "a hit in the client's own table": "a `get` that libgemmd answers from its own table",
    "start with 100,000 keys, until it serves": "start of gemmd with 100,000 keys, until gemmd answers",
    "p99 of a hit, the fleet's": "99th percentile of an answer from the cache, the fleet's",
    "p99 of a hit while": "99th percentile of an answer from the cache, while",
    "ask for 200 cold keys": "ask for the same 200 untuned keys at once",
    "news of a put at another daemon": "from a `put` until another daemon of the database answers with the row",
    "a hit at an old generation": "an answer for a job that is pinned to an old generation",
    "longest hit of the others": "longest time of an answer from the other daemons",
    "a bit of a file turned over: not reported": "flipped bits of a database or module: effects that gemmd did not report",
}

# Workloads that the page leaves out, by terms in their names. Another line has much the same figure, or users meet it sooner.
LEFT_OUT = ("tokens, eager", "CUDA graph, eager", "taught nothing: median", "recorded keys: regret, median",
            "compile time, worst key", "1 daemon of a database", "16384 tokens, torch.compile", "16384 tokens, CUDA graph",
            "of a layer at once", "exact: 95th percentile", "device time, worst key", "p50 of a hit, the fleet's", "start, the fleet's",
            "all modes, tuned", "kernels compiled: median", "metrics of 8 daemons", "step of Llama 4")

HEAD = """# Performance

<!-- Made by tests/results/performance.py. Change the CSV files or that program, not this page. -->

Each row is the latest run of its bench. "Ours" and "theirs" are geometric means over the cases of a workload. A ratio
above 1 means that gemmd is faster. GPU times change by some per cent from card to card: compare the ratios.
The command of a row stands below the tables. [kernel-notes.md](kernel-notes.md) names the limits of the kernels,
[verified.md](verified.md) the evidence of right results. Where "theirs" permutes rows, "ours" does so, too.
"""


def geomean(values):
    values = list(values)
    if len(values) == 1 or any(v <= 0 for v in values):
        return values[0]
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def shown(value):
    if value == int(value) and abs(value) >= 100:
        return f"{int(value):,}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def lines(bench, card):
    """(workload, peer, ours, theirs, unit, ratio, least ratio, cases, date) of the latest run of each workload."""
    rows = latest.read(bench, card)
    for group in dict.fromkeys(map(latest.group, rows)):
        newest = max(r["date"] for r in rows if latest.group(r) == group)
        cases = [r for r in rows if latest.group(r) == group and r["date"] == newest]
        ours = [float(r["ours"]) for r in cases]
        theirs = [float(r["theirs"]) for r in cases if r["theirs"]]
        unit = cases[0]["unit"]
        ratios = [o / t if unit in RATES else t / o for o, t in zip(ours, theirs) if o and t]
        yield {"workload": group[0], "peer": group[1], "ours": geomean(ours), "theirs": geomean(theirs) if theirs else None,
               "unit": unit, "ratio": geomean(ratios) if ratios else None, "least": min(ratios, default=None),
               "cases": len(cases), "case": cases[0]["case"], "date": newest[:10]}


def plain(name):
    for term, words in PLAIN.items():
        name = name.replace(term, words)
    return name


def row(bench, r):
    unit = f" {r['unit']}" if r["unit"] else ""
    of = f"{r['cases']} cases" if r["cases"] > 1 else r["case"]
    workload = plain(r["workload"]) + (f" ({of})" if of else "")
    theirs = f"{plain(r['peer'])}: {shown(r['theirs'])}{unit}" if r["theirs"] is not None else ""
    ratio = "" if r["ratio"] is None else f"{r['ratio']:.3f}"
    least = "" if r["ratio"] is None or r["cases"] == 1 else f"{r['least']:.2f}"
    return f"| {workload} | {shown(r['ours'])}{unit} | {theirs} | {ratio} | {least} | {r['date']} | {bench} |"


def table(card):
    rows = [row(bench, r) for bench in COMMANDS for r in lines(bench, card) if not any(t in r["workload"] for t in LEFT_OUT)]
    if not rows:
        return ""
    return "\n".join([f"## {card.upper() if card != 'host' else 'Host'}", "", CARDS[card] + ".", "",
                      "| workload | ours | theirs | ratio | least ratio of a case | date | bench |", "|---|---|---|---|---|---|---|",
                      *rows, ""])


def page():
    used = [b for b in COMMANDS if any(latest.read(b, card) for card in CARDS)]
    commands = ["## Commands", "", "| bench | command |", "|---|---|",
                *(f"| {b} | `{COMMANDS[b]}` |".replace("| tests/results", "\\| tests/results") for b in used), ""]
    return "\n".join([HEAD, *filter(None, map(table, CARDS)), *commands])


# ---- the README's table ------------------------------------------------------------------------------

TORCH = "torch._grouped_mm"
README_ROWS = [
    ("times as fast as `torch._grouped_mm`: forward, dX, dW", "moe_peers", [(m, TORCH) for m in latest.MODES]),
    ("times as fast as PyTorch's permute of the rows and `torch._grouped_mm`: forward, dX, dW", "moe_peers",
     [(m, latest.TORCH_PERMUTED) for m in latest.MODES]),
    ("times as fast as DeepGEMM: forward, dX", "moe_peers", [(m, "DeepGEMM") for m in latest.MODES[:2]]),
    ("times as fast as Unsloth's Triton kernels: forward, dX, dW", "moe_peers", [(m, "Unsloth's Triton") for m in latest.MODES]),
    ("seconds to tune a new key, no kernel compiled before", "tune_times",
     [("tune one key, nothing compiled: median of 18", "")]),
    ("seconds to tune a new key, all kernels compiled before", "tune_times",
     [("tune one key, kernels compiled: median of 18", "")]),
    ("a training step of a MoE layer of 4096 tokens, times as fast as the fastest form over `torch._grouped_mm`", "moe_layer",
     [("step of a MoE layer, 4096 tokens, torch.compile", "torch's best form")]),
    ("a training step of a transformers model, times as fast as transformers' own `grouped_mm`", "model_steps",
     [('step of a transformers model, 16384 tokens, tuned, experts_implementation="gemmd"', "transformers' grouped_mm")]),
]
BEGIN, END = "<!-- figures: tests/results/performance.py -->\n", "<!-- end of figures -->\n"


def readme_cell(bench, card, groups):
    by_group = {(r["workload"], r["peer"]): r for r in lines(bench, card)}
    found = [by_group.get(g) for g in groups]
    if None in found:
        return ""
    return ", ".join(f"{r['ratio']:.2f}" if r["ratio"] is not None else shown(r["ours"]) for r in found)


def readme_table():
    rows = [f"| {title} | {readme_cell(bench, 'h200', groups)} | {readme_cell(bench, 'h100', groups)} |"
            for title, bench, groups in README_ROWS]
    hit = next(r for r in lines("serving", "host") if r["workload"] == "a hit, one connection: p50")
    return "\n".join(["| | H200 | H100 |", "|---|---|---|", *rows, "",
                      f"A known answer takes {shown(hit['ours'])} us over the socket.", ""])


def readme():
    text = (ROOT / "README.md").read_text()
    before, rest = text.split(BEGIN)
    return before + BEGIN + readme_table() + END + rest.split(END)[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    wrong = []
    for path, text in ((PAGE, page()), (ROOT / "README.md", readme())):
        if not check:
            path.write_text(text)
        elif path.read_text() != text:
            wrong.append(f"{path.relative_to(ROOT)} is not what tests/results/performance.py makes: run it")
    print("\n".join(wrong) or "the figures are those of tests/results")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
