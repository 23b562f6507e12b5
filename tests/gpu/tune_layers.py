#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tunes whole MoE layers on a GPU through the real daemon, and reports times beside the recorded
peers.

    tune_layers.py --build build --out DIR [--device cuda:0] [--models qwen3-30b-a3b,mixtral-8x7b]
                   [--tokens 4096] [--budget 64]

For each model gemmctl tunes the six kernels of a layer (first and second GEMM x forward, dX, dW,
with the layer's own permutes). A second process asks for all again (all must be hits). 64 clients
then ask at once for a new key (one tuning job must answer all). At the end an idle gemmd must hold
no runner and no GPU memory. Writes DIR/tune_layers.json and prints a table. Exit 77 without a GPU,
1 for a broken promise.
"""
import argparse
import concurrent.futures
import csv
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SHAPES = ROOT / "tests" / "data" / "shapes" / "moe.csv"
PEERS = ["cublas_dense_us", "torch_grouped_mm_us", "torch_permute_plus_grouped_mm_us",
         "unsloth_triton_us", "unsloth_tune_s"]


def gpu_memory_mib(index=0):
    text = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits",
                           "-i", str(index)], capture_output=True, text=True, check=True).stdout
    return int(text.split()[0])


def card_name():
    if not shutil.which("nvidia-smi"):
        return "no GPU"
    asked = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True,
                           check=True)
    return asked.stdout.splitlines()[0]


class Daemon:
    def __init__(self, build, device, work):
        self.env = dict(os.environ, GEMMD_SOCKET=str(work / "gemmd.sock"))
        self.ctl = build / "client" / "gemmctl"
        self.log = (work / "log").open("w")
        self.process = subprocess.Popen(
            [build / "daemon" / "gemmd", "--device", device, "--socket", work / "gemmd.sock",
             "--database", work / "cache.db", "--cache-dir", work / "cache"],
            stderr=self.log, stdout=self.log)
        for _ in range(600):
            if self.run("status", check=False).returncode == 0:
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise SystemExit(f"gemmd did not start: {(work / 'log').read_text()}")

    def run(self, *args, check=True):
        result = subprocess.run([self.ctl, *map(str, args)], env=self.env, capture_output=True,
                                text=True)
        if check and result.returncode:
            raise SystemExit(f"gemmctl {' '.join(map(str, args))}: {result.stderr}")
        return result

    def json(self, *args):
        return json.loads(self.run(*args, "--json").stdout)

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


def problem_options(row):
    """gemmctl's words for a row of a table of shapes, or for a problem's text."""
    if isinstance(row, str):
        return [row]
    own = [{"gate_up": "--permute-x", "down": "--permute-y"}[row["layer"]]]
    if "quant" in row:  # the quantiser permutes what dW reads
        own = ["--quant", row["quant"], *(own if row["mode"] != "dW" else [])]
    return ["--mode", row["mode"], "--m", row["M"], "--n", row["N"], "--k", row["K"],
            "--experts", row["experts"], "--topk", row["topk"], *own]


def rows_of(answer):
    """The answers in a JSON document of gemmctl, which is a list of answers or a single answer."""
    return answer if isinstance(answer, list) else answer.get("answers", [answer])


def tune_layer(daemon, rows, budget):
    results = []
    for row in rows:
        began = time.monotonic()
        answer = rows_of(daemon.json("tune", *problem_options(row), "--budget", budget))[0]
        results.append({**{k: row[k] for k in ("model", "layer", "tokens", "mode")},
                        "seconds": round(time.monotonic() - began, 2), "answer": answer,
                        "floor_us": float(row["floor_us"]),
                        **{p: float(row[p]) if row[p] else None for p in PEERS}})
    return results


def ask_again(daemon, rows):
    """Asks for each key again from a new process: each answer must be an exact hit."""
    worst = 0.0
    for row in rows:
        answer = rows_of(daemon.json("get", *problem_options(row), "--wait", "cached"))[0]
        if answer["tier"] != "exact":
            raise SystemExit(f"asked again, {row['layer']} {row['mode']} was not a hit: {answer}")
        worst = max(worst, answer.get("round_trip_us") or 0.0)
    return worst


def ask_at_once(daemon, clients=64):
    before = daemon.json("status")["jobs"]["done"]
    options = ["--mode", "forward", "--m", 1024, "--n", 1024, "--k", 1024, "--budget", 16]
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(lambda _: rows_of(daemon.json("get", *options))[0], range(clients)))
    jobs = daemon.json("status")["jobs"]["done"] - before
    configs = {json.dumps(a["config"], sort_keys=True) for a in answers}
    if jobs != 1 or len(configs) != 1:
        raise SystemExit(f"{clients} clients, one key: {jobs} jobs, {len(configs)} different answers")
    return {"clients": clients, "jobs": jobs, "different_answers": len(configs)}


def idle(daemon, memory_before, patience_s=40):
    for _ in range(patience_s * 2):
        status = daemon.json("status")
        if status["runner"]["state"] == "none":
            break
        time.sleep(0.5)
    memory = gpu_memory_mib()
    result = {"runner": status["runner"]["state"], "gpu_memory_mib_before": memory_before,
              "gpu_memory_mib_idle": memory, "rss_mib": round(status["rss_bytes"] / 2**20, 1)}
    if result["runner"] != "none" or memory > memory_before:
        raise SystemExit(f"gemmd is not idle: {result}")
    return result


def table(results):
    print(f"{'model':14} {'layer':8} {'mode':8} {'us':>8} {'TFLOP/s':>8} {'%floor':>7} {'torch':>6} "
          f"{'torch+p':>7} {'unsloth':>7} {'tune s':>6} {'tier':6} config")
    for r in results:
        us = r["answer"]["time_us"]
        ratio = {p: f"{r[p] / us:.2f}" if r[p] else "-" for p in PEERS}
        print(f"{r['model']:14} {r['layer']:8} {r['mode']:8} {us:8.1f} {r['answer']['tflops']:8.1f} "
              f"{100 * r['floor_us'] / us:7.1f} {ratio['torch_grouped_mm_us']:>6} "
              f"{ratio['torch_permute_plus_grouped_mm_us']:>7} {ratio['unsloth_triton_us']:>7} "
              f"{r['seconds']:6.1f} {r['answer']['tier']:6} {r['answer']['config']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--models", default="qwen3-30b-a3b,mixtral-8x7b")
    parser.add_argument("--tokens", default="4096")
    parser.add_argument("--budget", type=int, default=64)
    options = parser.parse_args()
    if not shutil.which("nvidia-smi") or subprocess.run(["nvidia-smi", "-L"]).returncode:
        print("tune_layers: SKIP, no GPU on this machine")
        return 77
    memory_before = gpu_memory_mib()
    work = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-gpu-"))
    daemon = Daemon(options.build.resolve(), options.device, work)
    report = {"device": daemon.json("status")["device"], "budget": options.budget, "rows": []}
    try:
        for model in options.models.split(","):
            with SHAPES.open() as f:
                rows = [r for r in csv.DictReader(f)
                        if r["model"] == model and r["tokens"] == options.tokens]
            began = time.monotonic()
            report["rows"] += tune_layer(daemon, rows, options.budget)
            report[f"{model}_layer_seconds"] = round(time.monotonic() - began, 1)
            report[f"{model}_hit_us_worst"] = ask_again(daemon, rows)
        report["single_flight"] = ask_at_once(daemon)
        report["failed_trials"] = rows_of(daemon.json("trials", "--failed"))[:50]
        report["idle"] = idle(daemon, memory_before)
    finally:
        daemon.stop()
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "tune_layers.json").write_text(json.dumps(report, indent=1))
        shutil.copy(work / "log", options.out / "gemmd.log")
    table(report["rows"])
    print(json.dumps({k: v for k, v in report.items() if k not in ("rows", "failed_trials")}))
    shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
