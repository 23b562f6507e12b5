#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cost on a GPU of rounding token counts into buckets: `gemmctl verify --exact` over MoE
layers.

    bucket_loss.py --build build --out DIR [--device cuda:0] [--seconds 150] [--budget 32]
                   [--samples 4]

Goes through LAYERS, whose models, GEMMs, modes and token counts are mixed, so that a run that ends
early has some of each. For each layer, token counts inside its bucket are answered under pow2 and
sqrt2 and tuned exactly; then each count is measured with all these configs. Begins no layer after
--seconds. Writes all rows to DIR/bucket_loss.json and prints medians and maxima by scheme, mode and
token count. `exact` is the control: the cost of a short tuning and of noise. --device cpu rehearses
the script with a small problem. Exit 77 without a GPU.
"""
import argparse
import csv
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from tune_layers import SHAPES, Daemon, problem_options

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "results"))
import latest  # noqa: E402

SCHEMES = ["sqrt2", "pow2", "exact"]
# (model, layer, mode, tokens)
LAYERS = [
    ("qwen3-30b-a3b", "gate_up", "forward", 4096), ("mixtral-8x7b", "down", "dX", 512),
    ("gpt-oss-20b", "gate_up", "dW", 4096), ("qwen3-30b-a3b", "down", "forward", 512),
    ("llama4-scout", "gate_up", "forward", 4096), ("mixtral-8x7b", "gate_up", "dW", 512),
    ("qwen3-30b-a3b", "gate_up", "dX", 4096), ("gpt-oss-20b", "down", "forward", 512),
    ("mixtral-8x7b", "down", "forward", 4096), ("qwen3-30b-a3b", "down", "dW", 512),
    ("gpt-oss-20b", "down", "dX", 4096), ("llama4-scout", "down", "dW", 512),
    ("qwen3-30b-a3b", "gate_up", "forward", 512), ("mixtral-8x7b", "gate_up", "forward", 512),
    ("gpt-oss-20b", "gate_up", "forward", 4096), ("qwen3-30b-a3b", "down", "dX", 4096),
]
SMALL = {"model": "small", "layer": "gate_up", "tokens": "64", "mode": "forward", "M": "64",
         "N": "64", "K": "64", "experts": "4", "topk": "1"}


def layers(device):
    if device == "cpu":
        return [SMALL]
    with SHAPES.open() as f:
        rows = {(r["model"], r["layer"], r["mode"], int(r["tokens"])): r for r in csv.DictReader(f)}
    return [rows[wanted] for wanted in LAYERS]


def measure(daemon, row, options):
    began = time.monotonic()
    run = daemon.run("verify", "--exact", *problem_options(row), "--bucket", "sqrt2,pow2",
                     "--samples", options.samples, "--budget", options.budget, "--quiet", "--json",
                     check=False)
    if run.stderr:
        print(run.stderr.strip())  # the run goes on with the next layer
    result = json.loads(run.stdout) if run.stdout else {"rows": [], "summary": []}
    seconds = round(time.monotonic() - began, 1)
    print(f"{row['model']:14} {row['layer']:8} {row['mode']:8} {row['tokens']:>5} tokens: " +
          ", ".join(f"{s['scheme']} median {s.get('median_percent', float('nan')):.2f} % max "
                    f"{s.get('max_percent', float('nan')):.2f} %" for s in result["summary"]) +
          f" ({seconds} s)", flush=True)
    return [{**{k: row[k] for k in ("model", "layer", "mode", "tokens")}, **r}
            for r in result["rows"]], seconds


def spread(losses):
    losses = sorted(losses)
    return (f"{len(losses):4} shapes, median {statistics.median(losses):5.2f} %, 95th "
            f"{losses[min(len(losses) - 1, int(0.95 * len(losses)))]:5.2f} %, max {losses[-1]:5.2f} %")


def summarise(rows):
    for name, of in (("all", lambda r: ""), ("mode", lambda r: r["mode"]),
                     ("tokens", lambda r: r["tokens"])):
        for group in sorted({of(r) for r in rows}):
            for scheme in SCHEMES:
                losses = [r["loss_percent"] for r in rows
                          if of(r) == group and r["scheme"] == scheme
                          and r["loss_percent"] is not None]
                if losses:
                    print(f"{name:6} {group:8} {scheme:6} {spread(losses)}")
    for scheme in SCHEMES:
        print(f"{scheme}: {len({r['key'] for r in rows if r['scheme'] == scheme})} keys tuned")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--budget", type=int, default=32)
    latest.add_option(parser)
    parser.add_argument("--samples", type=int, default=4)
    options = parser.parse_args()
    if options.device != "cpu" and (not shutil.which("nvidia-smi") or
                                    subprocess.run(["nvidia-smi", "-L"]).returncode):
        print("bucket_loss: SKIP, no GPU on this machine")
        return 77
    work = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-gpu-"))
    began = time.monotonic()
    daemon = Daemon(options.build.resolve(), options.device, work)
    report = {"device": daemon.json("status")["device"], "budget": options.budget,
              "samples": options.samples, "rows": [], "seconds": []}
    try:
        for row in layers(options.device):
            if time.monotonic() - began < options.seconds:
                rows, seconds = measure(daemon, row, options)
                report["rows"] += rows
                report["seconds"].append(seconds)
    finally:
        daemon.stop()
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "bucket_loss.json").write_text(json.dumps(report, indent=1))
        shutil.copy(work / "log", options.out / "gemmd.log")
        shutil.rmtree(work, ignore_errors=True)
    latest.keep(options, "bucket_loss", report, report["device"]["name"])
    summarise(report["rows"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
