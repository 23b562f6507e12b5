#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fits the analytic model of the target "hopper" anew and prints its quality.

    refit.py [--build DIR] [--fp8] [--only NAMES] [--leave-out] [FILE...]

FILEs are measurements of hopper_bench (see collect.py); they replace tests/model/h200.json.xz. Without
FILEs the committed measurements are fitted again:
- h200.json.xz, without dW with few rows an expert, whose stores have changed;
- tests/data/landscapes, which replace h200.json.xz for their problems;
- h200_staggered.json.xz: 16384 tokens and dense products, with schedule=staggered and others;
- h200_deferred.json.xz: 4096 tokens, with schedule=deferred; h200_clusters.json.xz: with cluster_shape_mn=2x1.
Writes kernels/families/grouped_gemm/hopper/model/constants.h; the same measurements give the same
constants. A new constant is a line in that file, with any value. Then the model's errors are learnt
from build/tests/data/landscapes and landscapes_fresh, into corrections_h200.txt beside the constants (learn.h).

--fp8 fits the values for fp8 operands to build/tests/data/landscapes_fp8, and no others. It begins at the committed
values. Tiles with fp8 operands have no corrections.

--leave-out also fits to all problems but one language model's, for each in turn, and judges by that one's
problems, which takes minutes; these constants go to tests/model/h200_left_out.txt. --only fits some
constants, after new measurements of their subject; all other constants stay, also in h200_left_out.txt.
"""
import argparse
import lzma
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MEASURED = "h200.json"
OTHER_SCHEDULES = ("h200_staggered.json", "h200_deferred.json", "h200_clusters.json")
# Constants that the kernels for fp8 operands show; they have no other schedules and no copies.
FP8 = ("setup_us flops_us load_us shared_weights gather_us latency_us shared_us store_us piece_us tile_us tile_sums exposed "
       "direct_store alone split_us sums_us skipping hbm hbm_write write_narrow narrow_sums starved hbm_round sm_round "
       "cut_round cut_share dynamic_us dynamic_apart apart l2_part uneven sorted added added_direct added_alone sums_columns sums_groups promote promote_swapped promote_lines "
       "promote_beside").replace(" ", ",")
LEFT_OUT = HERE / "h200_left_out.txt"  # constants for tests/search
CONSTANTS = ROOT / "kernels/families/grouped_gemm/hopper/model/constants.h"
CORRECTIONS = CONSTANTS.parent / "corrections_h200.txt"


def run(*words):
    print("+", *words, flush=True)
    subprocess.run([str(w) for w in words], check=True)


def unpack(folder, name):
    path = folder / name
    path.write_bytes(lzma.open(HERE / f"{name}.xz").read())
    return path


def fit(args, measured, landscapes):
    """Fits the constants for 16-bit operands, and judges them."""
    program = args.build / "tests/model/model_eval"
    times = args.build / "tests/model/times.json"
    others = [unpack(args.build / "tests/model", name) for name in OTHER_SCHEDULES]
    run(sys.executable, HERE / "collect.py", times, measured, *sorted(landscapes.glob("*.jsonl")))
    run(program, "--fit", CONSTANTS, *(["--only", args.only] if args.only else []), times, *others)
    run("ninja", "-C", args.build, "-j2", "tests/model/model_eval")  # built again, because the constants are compiled into it
    run(program, times)
    run(program, measured)
    if args.leave_out:
        old = args.build / "tests/model/left_out.txt"
        shutil.copy(LEFT_OUT, old)
        only = ["--only", args.only, "--from", old] if args.only else []
        run(program, "--leave-out", *only, "--write", LEFT_OUT, times, *others)


def fit_fp8(args, landscapes):
    program = args.build / "tests/model/model_eval"
    run(program, "--fit", CONSTANTS, "--fp8", "--only", args.only or FP8, landscapes)
    run("ninja", "-C", args.build, "-j2", "tests/model/model_eval")
    run(program, landscapes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--build", default=ROOT / "build", type=pathlib.Path)
    parser.add_argument("--fp8", action="store_true")
    parser.add_argument("--leave-out", action="store_true")
    parser.add_argument("--only", default="", help="constants, commas between: others stay")
    args = parser.parse_args()
    measured = unpack(args.build / "tests/model", MEASURED)
    if args.files:
        run(sys.executable, HERE / "collect.py", measured, *args.files)
        packed = lzma.compress(measured.read_bytes(), preset=9 | lzma.PRESET_EXTREME)
        (HERE / f"{MEASURED}.xz").write_bytes(packed)
    run("ninja", "-C", args.build, "-j2", "tests/model/model_eval")
    data = args.build / "tests/data"
    if args.fp8:
        fit_fp8(args, data / "landscapes_fp8")
        return
    fit(args, measured, data / "landscapes")
    run("ninja", "-C", args.build, "-j2", "tests/model/teach")
    run(args.build / "tests/model/teach", CORRECTIONS, data / "landscapes", data / "landscapes_fresh")


if __name__ == "__main__":
    main()
