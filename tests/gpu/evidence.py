#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks gemmd's evidence of a tuning on a GPU: cuBLAS as the baseline of `gemmctl trials --sort
speedup`, the samples of the winner, and the GPU's clock, temperature and power by NVML.

    tests/gpu/evidence.py --build build [--device cuda:0] [--seconds 30]

Exit 77 without a GPU, 1 if some evidence is missing.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from tune_layers import Daemon

PROBLEMS = [["--mode", mode, "--m", 32768, "--n", 1536, "--k", 2048, "--experts", 128, "--topk", 8,
             "--permute-x"] for mode in ("forward", "dW")]


def with_baseline(daemon, problem, until):
    """The best trial, once cuBLAS was measured, which an idle gemmd does after a while; else None."""
    while time.monotonic() < until:
        row = daemon.json("trials", *problem, "--sort", "speedup")[0]
        if "cublas" in row["baseline"].lower():
            return row
        time.sleep(0.5)
    return None


def check(daemon, problem, until):
    daemon.run("tune", *problem)
    row = with_baseline(daemon, problem, until)
    if row is None:
        print(f"MISSING {problem[1]}: cuBLAS was not measured")
        return False
    print(f"{problem[1]}: {row['baseline']} {row['baseline_us']:.1f} us, gemmd {row['time_us']:.1f} us, "
          f"{row['speedup']:.2f} times as fast, {len(row['samples_us'])} samples, "
          f"{row['sm_mhz']} MHz, {row['temperature_c']} degrees, {row['power_w']} W, "
          f"throttled by {row['throttle'] or 'nothing'}")
    print(daemon.run("why", *problem).stdout.rstrip())
    return row["baseline_us"] > 0 and row["samples_us"] != [] and \
        min(row["sm_mhz"], row["temperature_c"], row["power_w"]) > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=30)
    options = parser.parse_args()
    if not shutil.which("nvidia-smi") or subprocess.run(["nvidia-smi", "-L"]).returncode:
        print("evidence: SKIP, no GPU on this machine")
        return 77
    work = pathlib.Path(tempfile.mkdtemp(prefix="gemmd-evidence-"))
    daemon = Daemon(options.build, options.device, work)
    until = time.monotonic() + options.seconds
    try:
        good = [check(daemon, problem, until) for problem in PROBLEMS]
    finally:
        daemon.stop()
        shutil.rmtree(work)
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
