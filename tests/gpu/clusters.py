#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures dW with two thread blocks that share an operand (cluster_shape_mn), and checks the
results.

    clusters.py --build build --out FILE [--device cuda:0] [--tokens 512,4096] [--models M,...]
                [--seconds 240] [--tops 4] [--permutes own|none] [--wide] [--no-right]

right   problems whose experts have uneven rows; given configs with tiles of every shape that can share an
        operand, also an odd number of tiles; gemmd compares their results with the reference kernel's
fast    each dW row of tests/data/shapes/moe.csv is tuned from an empty store; the best --tops configs are then
        measured alone and with either cluster, all in alternating blocks of one run; --wide: also
        clusters of every tile that can share, in two depths and six orders of tiles

Prints every config's time, and writes the times to FILE. Exit 77 without a GPU, 1 if a result was
wrong.
"""
import argparse
import csv
import itertools
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from fresh_regret import text_of
from tune_layers import SHAPES, Daemon, problem_options, rows_of

SHARED = {"2x1": "BLOCK_SIZE_K", "1x2": "BLOCK_SIZE_N"}  # cluster: in dW, the tile's size that its thread blocks share
CONFIGS_MOST = 512  # configs in a request
RAGGED = "0,1,15,16,17,48,63,64,65,0,129,1000,0"
SIZES = [(384, 640), (320, 192), (1024, 128), (64, 64)]  # N, K
TILES = [(128, 128, "pingpong", 12, 4), (64, 256, "pingpong", 12, 4), (256, 128, "cooperative", 12, 3),
         (64, 128, "cooperative", 8, 6), (128, 64, "cooperative", 8, 6), (128, 192, "pingpong", 12, 4)]


def with_cluster(config, cluster):
    return {**config, "cluster_shape_mn": cluster}


def can_share(config, cluster):
    return config[SHARED[cluster]] % 128 == 0


def measure(daemon, problem, configs, iters):
    """Measures the configs. Returns a list of (microseconds, status), without results of earlier runs."""
    words = [word for c in configs for word in ("--config", text_of(c))]
    answer = daemon.run("tune", *problem, "--again", "--strategy", "given", "--iters", iters, *words, "--json",
                        check=False)
    trials = []
    if answer.returncode == 0:
        trials = rows_of(daemon.json("trials", rows_of(json.loads(answer.stdout))[0]["key"]))
    found = {}
    for t in sorted(trials, key=lambda t: t["id"]):  # trials of the finals, with more samples, come last
        found[text_of(t["config"])] = (t["time_us"] and round(t["time_us"], 2), t["status"] if t["status"] == "ok" else t["reason"])
    return [found.get(text_of(c), (None, answer.stderr.strip() or "not measured")) for c in configs]


def ragged_problems():
    for n, k in SIZES:
        for permute in ([], ["--permute-x"], ["--permute-y"]):
            for dtype in ([], ["--out-dtype", "fp32"]):
                yield ["--mode", "dW", "--n", n, "--k", k, "--topk", 2 if permute else 1, "--rows-per-expert",
                       RAGGED, *permute, *dtype]


def ragged_configs(problem):
    gathered = {"2x1": "--permute-x" in problem, "1x2": "--permute-y" in problem}
    for n, k, schedule, warps, stages in TILES:
        for cluster in SHARED:
            config = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "schedule": schedule,
                      "num_warps": warps, "num_stages": stages, "cluster_shape_mn": cluster}
            if can_share(config, cluster):
                yield {**config, "permute_copy": True} if gathered[cluster] else config


def right(daemon, clock):
    results = []
    for problem in ragged_problems():
        if time.monotonic() > clock:
            break
        configs = list(ragged_configs(problem))
        for config, (_, status) in zip(configs, measure(daemon, problem, configs, 3)):
            results.append({"problem": " ".join(map(str, problem)), "config": text_of(config), "status": status})
    wrong = [r for r in results if r["status"] != "ok"]
    print(f"right: {len(results) - len(wrong)} of {len(results)}")
    for r in wrong[:20]:
        print(f"  {r['problem']}: {r['config']}: {r['status']}")
    return results


def tops(daemon, key, n):
    best = {}
    for t in rows_of(daemon.json("trials", key)):
        if t["status"] == "ok" and isinstance(t.get("config"), dict) and "schedule" in t["config"]:
            text = text_of(t["config"])
            best[text] = min(best.get(text, (t["time_us"], t["config"])), (t["time_us"], t["config"]),
                             key=lambda pair: pair[0])
    return [config for _, config in sorted(best.values(), key=lambda pair: pair[0])[:n]]


def every_cluster(config):
    """Yields configs with every cluster, tile and schedule that fits, for the problem of a config without cluster."""
    for cluster in SHARED:
        for n, k in itertools.product((64, 128, 192, 256), repeat=2):
            for schedule, stages, group, raster in itertools.product(
                    ("pingpong", "cooperative"), (3, 4), (1, 4, 16), ("rows", "columns")):
                found = {**config, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "schedule": schedule, "num_warps": 12,
                         "num_stages": stages, "staging_buffers": 2, "GROUP_SIZE_M": group, "raster": raster,
                         "in_flight": 0, "skip_rows": False, "expert_order": "index", "cluster_shape_mn": cluster}
                halves = n // 64 if schedule == "pingpong" else n // 128
                fits = (n % 128 == 0 or schedule == "pingpong") and halves * k // 2 <= 192
                if can_share(found, cluster) and fits and stages * (n + k) * 128 + 128 * n <= 220000:
                    yield found


def problem_of(row, options):
    problem = problem_options(row)
    return problem if options.permutes == "own" else problem[:-1]


def fast(daemon, rows, options, clock):
    results = []
    print(f"{'key':36} {'plain':>8} {'2x1':>8} {'1x2':>8}  plain / best cluster")
    for row in rows:
        if time.monotonic() > clock:
            break
        problem = problem_of(row, options)
        key = rows_of(daemon.json("tune", *problem))[0]["key"]
        plain = tops(daemon, key, options.tops)
        configs = plain + [with_cluster(c, cluster) for cluster in SHARED for c in plain if can_share(c, cluster)]
        configs += list(every_cluster(plain[0]))[:CONFIGS_MOST - len(configs)] if options.wide else []
        times = measure(daemon, problem, configs, 4 if options.wide else 20)
        least = {cluster: min((us for c, (us, status) in zip(configs, times)
                               if us and status == "ok" and c["cluster_shape_mn"] == cluster), default=None)
                 for cluster in ("1x1", *SHARED)}
        shared = min((us for cluster, us in least.items() if us and cluster != "1x1"), default=None)
        name = "-".join(row[k] for k in ("model", "layer", "tokens"))
        print(f"{name:36} " + " ".join(f"{us or float('nan'):8.1f}" for us in least.values()) +
              f"  {least['1x1'] / shared if shared and least['1x1'] else float('nan'):.3f}", flush=True)
        results.append({"name": name, "least_us": least,
                        "configs": [{"config": text_of(c), "us": us, "status": status}
                                    for c, (us, status) in zip(configs, times)]})
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tokens", default="512,4096")
    parser.add_argument("--models", default="")
    parser.add_argument("--permutes", choices=("own", "none"), default="none")
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--tops", type=int, default=4)
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--no-right", action="store_true")
    options = parser.parse_args()
    if not shutil.which("nvidia-smi") or subprocess.run(["nvidia-smi", "-L"]).returncode:
        print("clusters: SKIP, no GPU on this machine")
        return 77
    with SHAPES.open() as f:
        rows = [r for r in csv.DictReader(f) if r["mode"] == "dW" and r["tokens"] in options.tokens.split(",")
                and (not options.models or r["model"] in options.models.split(","))]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gemmd-clusters-") as folder:
        daemon = Daemon(options.build.resolve(), options.device, pathlib.Path(folder))
        try:
            results = {"right": [] if options.no_right else right(daemon, began + options.seconds / 3)}
            results["fast"] = fast(daemon, rows, options, began + options.seconds)
        finally:
            daemon.stop()
            shutil.copy(pathlib.Path(folder) / "log", options.out.with_suffix(".log"))
    options.out.write_text(json.dumps(results) + "\n")
    return 1 if any(r["status"] != "ok" for r in results["right"]) else 0


if __name__ == "__main__":
    sys.exit(main())
