#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cycles of fp8 kernels for Hopper, by ncu at its fixed clock. Also: in what part of the cycles the tensor cores are busy,
and the words that a bank of the shared memory moves in a cycle.

    fp8_cycles.py [--build BUILD] [--shape MODE,M,N,K ...]

A line for each shape (default: SHAPES) and config, and for DeepGEMM where DEEPGEMM says where it is (fp8.py). Two shapes
differ in the length of their sums: the difference of their cycles is the time of blocks, the rest that of the tiles'
ends. dW adds to fp32. Exit: 77 without a Hopper GPU or ncu.
"""
import argparse
import csv
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
METRICS = CYCLES, OF_ALL, BUSY, ISSUED, READS, WRITES = (
    "sm__cycles_elapsed.max", "sm__cycles_elapsed.sum", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "smsp__inst_executed.sum", "l1tex__data_bank_reads.sum", "l1tex__data_bank_writes.sum")
BANKS = 32  # of an SM's shared memory
SHAPES = ["forward,4096,4096,2048", "forward,4096,4096,8192", "dW,2048,4096,4096", "dW,8192,4096,4096"]
LAUNCH = "launch: "  # begins a line of the child, before what it launches


def configs(row):
    from fp8_products import config
    if row.mode == "dW":
        return [config(row, 256, 128, 12, 3, 4, GROUP_SIZE_M=8), config(row, 128, 192, 12, 3, 2, GROUP_SIZE_M=8),
                config(row, 128, 128, 12, 5, GROUP_SIZE_M=8), config(row, 128, 128, 12, 5, tma=False)]
    pair = {"cluster_shape_mn": "1x2"}
    return [config(row, 256, 128, 12, 4, GROUP_SIZE_M=8, tma=False), config(row, 256, 128, 12, 3, 4, GROUP_SIZE_M=8, **pair),
            config(row, 128, 192, 12, 5, GROUP_SIZE_M=8, tma=False), config(row, 128, 128, 12, 5, 2, GROUP_SIZE_M=8, **pair)]


def launch_all(shapes):
    """The child, under ncu: a launch of each config, and of DeepGEMM."""
    import fp8_times
    import gemmd
    import torch
    from fp8_products import Data, Row
    for shape in shapes:
        mode, m, n, k = shape.split(",")
        more = {"out": "fp32", "accumulate": True} if mode == "dW" else {}
        row = Row("", mode, [int(m)], int(n), int(k), **more)
        data = Data(torch, row)
        args = data.args()
        launches = {text: fp8_times.launch_of(gemmd.compile_kernel(row.problem(), text), args) for text in configs(row)}
        if os.environ.get("DEEPGEMM"):
            launches.update(fp8_times.deepgemm(torch, row))
        for name, launch in launches.items():
            launch()
            torch.cuda.synchronize()
            print(f"{LAUNCH}{shape} {name}", flush=True)


def has_hopper():
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)


def rows_of(text):
    """The lines of ncu's CSV, without its line of units."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    return list(csv.DictReader(lines))[1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default=ROOT / "build", type=pathlib.Path)
    parser.add_argument("--shape", action="append", default=[], help="MODE,M,N,K")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    shapes = options.shape or SHAPES
    os.environ.setdefault("GEMMD_LIBRARY", str(options.build / "client" / "libgemmd.so"))
    sys.path[:0] = [str(ROOT / "tests" / "gpu"), str(ROOT / "tests" / "bench"), str(ROOT / "tests" / "results"), str(ROOT / "python")]
    if options.child:
        launch_all(shapes)
        return 0
    if not shutil.which("ncu") or not has_hopper():
        print("SKIP: no ncu, no PyTorch or no Hopper GPU here")
        return 77
    run = subprocess.run(["ncu", "--csv", "--page", "raw", "-k", "regex:grouped_gemm|sm90_fp8", "--metrics", ",".join(METRICS),
                          sys.executable, __file__, "--child", "--build", str(options.build), *(f"--shape={s}" for s in shapes)],
                         capture_output=True, text=True, check=False)
    names = [line[len(LAUNCH):] for line in run.stdout.splitlines() if line.startswith(LAUNCH)]
    rows = rows_of(run.stdout)
    if run.returncode or len(names) != len(rows) or not rows:
        print(run.stdout[-2000:], run.stderr[-2000:], f"{len(names)} launches, ncu saw {len(rows)}", sep="\n")
        return 1
    for name, row in zip(names, rows):
        of = {m: float(row[m].replace(",", "")) for m in METRICS}
        words = (of[READS] + of[WRITES]) / BANKS / of[OF_ALL]
        print(f"{of[CYCLES] / 1e3:8.1f} thousand cycles, tensor cores busy in {of[BUSY]:4.1f} %, {words:.2f} words a bank and cycle, "
              f"{of[ISSUED] / 1e6:6.1f} million instructions | {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
