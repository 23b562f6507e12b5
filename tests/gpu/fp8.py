#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The kernels for fp8 operands on a Hopper GPU: right results, times beside other kernels, the clock that they hold.

fp8.py --build build [--parts check,space,late,soak,small,clock,compile,time] [--seconds S] [--only TEXT] [--json FILE]

space   every variant of the space, in every kind of product, over ragged sizes (SHAPES in fp8_space.py), with data whose
        sums are exact, and with rows, scales and experts of NaN, infinities and zeros among these; and with normal data,
        against sums in double over the dequantised operands. fp8_check.py has the limits and their reasons. --sample N
        takes a part; variants left over by --seconds are counted.
check   configs chosen by hand, of every mode, with the same data.
late    kernels whose source is changed to promote every 256 terms: exact data show this, or the part fails.
soak    10,000 launches of five kernels: all have the same bits.
small   a few launches of fp8 and quantising kernels, for compute-sanitizer (sanitize.sh).
time    single launches with cold caches of all rows of tests/data/shapes/moe.csv, with blocks and (4096 tokens) with rows,
        and of forty dense products: the best of a few configs of ours; ours with bf16 operands; torch's grouped product
        of rows, with fast and with exact sums; cuBLASLt for dense products; DeepGEMM's kernels, with padding
        beforehand, if $DEEPGEMM names a folder with its package `deep_gemm` (commit 54e2261), built. --csv keeps the
        times in tests/results. compile comes before: it compiles all these kernels with --jobs processes.
clock   MHz right after a launch, and in the middle of a second of launches.

Kernels are compiled from the library of GEMMD_LIBRARY by --jobs processes, which put them into gemmd's cache directory.
Each part runs in a process of its own. After a fault of the device, or 25 s (time: 60 s) in one step, the part goes on
with the next kernel in another process. Exit status: 0 all right, 1 a wrong result or a fault, 77 no Hopper GPU.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), *(str(HERE.parent / d) for d in ("bench", "results")), str(HERE.parents[1] / "python")]

import fp8_check  # noqa: E402
import fp8_space  # noqa: E402
import fp8_times  # noqa: E402
import gemmd  # noqa: E402
import latest  # noqa: E402
from fp8_check import log  # noqa: E402

CHECKS = {"check": fp8_check.check, "space": fp8_space.space, "late": fp8_check.late, "soak": fp8_check.soak,
          "small": fp8_check.small}
PARTS = (*CHECKS, "clock", "compile", "time")


def run_part(torch, options):
    """A part in this process. Returns the exit status."""
    deadline, record, wrong = time.monotonic() + options.seconds, {}, []
    torch.zeros(1, device="cuda").item()
    torch.manual_seed(0)
    try:
        if options.child in CHECKS:
            record["wrong"] = wrong = CHECKS[options.child](torch, options, record, deadline)
        elif options.child == "clock":
            fp8_times.measure_clock(torch, record)
        elif options.child == "compile":
            fp8_times.compile_all(options)
        else:
            fp8_times.measure_times(torch, options, record, deadline)
    finally:
        options.json.write_text(json.dumps(record, indent=1, default=str) + "\n")
    return 1 if wrong else 0


def run_parts(options):
    """Each part in a process, which is begun again behind a step that it did not survive."""
    began, parts, faults, records = time.monotonic(), options.parts.split(","), 0, []
    with tempfile.TemporaryDirectory() as folder:
        steps, out = pathlib.Path(folder, "steps"), pathlib.Path(folder, "json")
        for i, part in enumerate(parts):
            start, share = 0, {"space": 0.8, "clock": 0.15, "small": 0.3}.get(part, 0.5) if i + 1 < len(parts) else 1.0
            end = time.monotonic() + share * (began + options.seconds - time.monotonic())
            for _ in range(6):
                left = end - time.monotonic()
                if left < 5:
                    break
                out.unlink(missing_ok=True)
                steps.write_text(json.dumps([start, "before the first step"]))
                code = subprocess.run(
                    [sys.executable, __file__, *sys.argv[1:], "--child", part, "--seconds", str(left), "--start", str(start),
                     "--steps", steps, "--json", out], check=False, timeout=left + 60).returncode
                if out.is_file():
                    records.append({"part": part, **json.loads(out.read_text())})
                if code == 77:
                    return 77
                faults += code != 0
                if code == 0 or (code == 1 and out.is_file()):
                    break
                start, name = json.loads(steps.read_text())
                log(f"DIED ({code}): {name}")
    if options.json:
        options.json.write_text(json.dumps(records, indent=1, default=str) + "\n")
    timed = [r for r in records if r.get("times")]
    if timed:
        latest.keep(options, "fp8", records, timed[0]["card"])
    log(f"{time.monotonic() - began:.0f} s,", "all right" if not faults else "NOT all right")
    return 1 if faults else 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default=HERE.parents[1] / "build")
    p.add_argument("--parts", default="space,late,soak")
    p.add_argument("--seconds", type=float, default=300, help="limit of all parts together")
    p.add_argument("--launches", type=int, default=3, help="check: repeated launches of each kernel")
    p.add_argument("--sample", type=int, default=0, help="space: so many variants only")
    p.add_argument("--list", type=pathlib.Path, help="space: what compile_space --target hopper_fp8 --list prints, as a file")
    p.add_argument("--soak", type=int, default=10000, help="soak: launches of each kernel")
    p.add_argument("--no-clusters", action="store_true", help="small: no kernels in clusters")
    p.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="processes that compile")
    p.add_argument("--only", help="rows, or kinds of space, whose name holds this text")
    p.add_argument("--json", type=pathlib.Path)
    latest.add_option(p)
    p.add_argument("--child", choices=PARTS, help=argparse.SUPPRESS)
    p.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
    p.add_argument("--steps", type=pathlib.Path, help=argparse.SUPPRESS)
    options = p.parse_args()
    os.environ.setdefault("GEMMD_LIBRARY", str(options.build / "client" / "libgemmd.so"))
    unknown = set(options.parts.split(",")) - set(PARTS)
    if unknown:
        p.error(f"--parts has {', '.join(PARTS)}, not {', '.join(unknown)}")
    if not options.child:
        return run_parts(options)
    try:
        import torch
    except ImportError:
        log("SKIP: no PyTorch")
        return 77
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        log("SKIP: no Hopper GPU")
        return 77
    try:
        return run_part(torch, options)
    except (RuntimeError, gemmd.GemmdError) as e:  # a fault of the device
        log("FAULT", type(e).__name__, str(e).splitlines()[0][:300])
        fp8_check.stop_now(4)


if __name__ == "__main__":
    sys.exit(main())
