#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A user's Triton kernel under gemmd.triton.autotune: processes that start together tune once.

    triton_ranks.py --build build [--gemmd PROGRAM] [--lib libgemmd.so] [--json FILE]
                    [--processes 8]

A plain Triton matrix product with eight configs. Every process launches it once, at the same
moment. Three starts: with an empty gemmd; again, with all answers; and under triton.autotune alone.
Prints the number of configs that each process timed, and the seconds of its first call. Exit
status: 0 all right, 1 a broken promise, 77 no PyTorch, Triton or GPU. `--worker` is a process.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "python"), str(HERE.parent / "bench")]

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "results"))
import latest  # noqa: E402
SIZE = 4096


def parse():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default=HERE.parent.parent / "build")
    p.add_argument("--gemmd", type=pathlib.Path)
    p.add_argument("--lib", type=pathlib.Path)
    p.add_argument("--device", default="cuda:0")
    p.add_argument("--processes", type=int, default=8)
    p.add_argument("--json", type=pathlib.Path)
    latest.add_option(p)
    p.add_argument("--worker", choices=["gemmd", "triton"])
    return p.parse_args()


# ---- one process ---------------------------------------------------------------------------------

def worker(kind):
    import torch
    import triton
    import gemmd.triton
    import triton_product
    counted = []
    real = gemmd.triton.Timer.trial
    gemmd.triton.Timer.trial = lambda self, c: counted.append(str(c)) or real(self, c)
    product = triton_product.make(gemmd.triton.autotune if kind == "gemmd" else triton.autotune)
    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    torch.cuda.synchronize()
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    triton_product.launch(product, a, b, out)
    torch.cuda.synchronize()
    seconds = time.monotonic() - began
    right = torch.matmul(a, b)
    error = float((out.float() - right.float()).norm() / right.float().norm())
    print(json.dumps({"seconds": seconds, "timed": len(counted), "error": error,
                      "best": str(product.best_config)}), flush=True)


# ---- all of them ---------------------------------------------------------------------------------

def start(kind, socket, lib):
    import os
    env = {**os.environ, "GEMMD_SOCKET": str(socket), "GEMMD_LIBRARY": str(lib)}
    return subprocess.Popen([sys.executable, __file__, "--worker", kind], env=env, text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def run_together(kind, count, socket, lib):
    jobs = [start(kind, socket, lib) for _ in range(count)]
    for job in jobs:
        if job.stdout.readline() != "ready\n":
            raise SystemExit(f"a process ended with {job.wait()}")
    for job in jobs:
        job.stdin.write("go\n")
        job.stdin.flush()
    results = [json.loads(job.communicate()[0].splitlines()[-1]) for job in jobs]
    timed, seconds = [r["timed"] for r in results], [r["seconds"] for r in results]
    print(f"{kind:7} timed {timed}, first call {min(seconds):.2f} to {max(seconds):.2f} s, "
          f"best {sorted({r['best'] for r in results})}", flush=True)
    return results


def checks(cold, again, configs):
    timed = sorted(r["timed"] for r in cold)
    return {"one process timed every config, the others none":
            timed == [0] * (len(cold) - 1) + [configs],
            "the second start timed nothing": all(r["timed"] == 0 for r in again),
            "all run the same config": len({r["best"] for r in cold + again}) == 1,
            "results are right": all(r["error"] < 1e-2 for r in cold + again)}


def main():
    options = parse()
    if options.worker:
        return worker(options.worker)
    import gemmd_ffi
    import measure
    import ours
    from service import Service
    measure.torch_or_skip(options.device)
    try:
        import triton_product
    except ImportError as e:
        measure.skip(f"Triton is not installed ({e})")
    lib = (options.lib or options.build / "client" / "libgemmd.so").resolve()
    program = (options.gemmd or options.build / "daemon" / "gemmd").resolve()
    service = Service(gemmd_ffi.Library(lib), program, options.device).start()
    socket, n, record = service.folder / "gemmd.sock", options.processes, {}
    try:
        record["cold"] = run_together("gemmd", n, socket, lib)
        record["again"] = run_together("gemmd", n, socket, lib)
        record["triton"] = run_together("triton", n, socket, lib)
    finally:
        service.stop()
    record["checks"] = checks(record["cold"], record["again"], len(triton_product.CONFIGS))
    for sentence, holds in record["checks"].items():
        print(f"{'ok   ' if holds else 'WRONG'} {sentence}")
    ours.write_json(options.json, record)
    latest.keep(options, "triton_ranks", record, measure.torch_or_skip(options.device).cuda.get_device_name())
    return 0 if all(record["checks"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
