#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A user's Triton kernel under gemmd.triton.install(): processes that start together tune once.

    triton_ranks.py --build build [--gemmd PROGRAM] [--lib libgemmd.so] [--json FILE]
                    [--processes 8] [--unsloth CHECKOUT [--mode forward|dX|dW]]

The kernel is a grouped product with 108 configs (triton_grouped.py), or with --unsloth Unsloth's own at a
layer of Qwen3-MoE (triton_unsloth.py). Every process launches the kernel once, at the same moment. Three
starts: with an empty gemmd and an empty cache of Triton; again, with all answers; and a single process
under triton.autotune alone, with an empty cache of Triton. A last process times both winners in turns.
Prints the number of configs that each process timed and compiled, and the seconds of its first call.
Exit status: 0 all right, 1 a broken promise, 77 no PyTorch, Triton or GPU. `--worker` is a process.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "python"), str(HERE.parent / "bench")]

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "results"))
import latest  # noqa: E402
SIZE = dict(rows=32768, n=1536, k=2048, experts=64)
SHARE = 0.25  # of the seconds of triton.autotune alone
WINNERS = 1.01  # times as slow as the winner of triton.autotune
ROUNDS = 15


def parse():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default=HERE.parent.parent / "build")
    p.add_argument("--gemmd", type=pathlib.Path)
    p.add_argument("--lib", type=pathlib.Path)
    p.add_argument("--device", default="cuda:0")
    p.add_argument("--processes", type=int, default=8)
    p.add_argument("--unsloth", metavar="CHECKOUT", type=pathlib.Path,
                   help="a checkout of unslothai/unsloth, whose kernel is started")
    p.add_argument("--mode", choices=["forward", "dX", "dW"], default="forward", help="of Unsloth's kernels")
    p.add_argument("--json", type=pathlib.Path)
    latest.add_option(p)
    p.add_argument("--worker", choices=["gemmd", "triton", "compare"])
    options = p.parse_args()
    if options.unsloth:
        import peers
        peers.find_unsloth(options.unsloth)
    elif options.mode != "forward":
        p.error("--mode needs --unsloth: our own kernel has no other mode")
    return options


# ---- one process ---------------------------------------------------------------------------------

def wait_for_go():
    """Prints "ready", and waits for a line "go ..."; returns the text behind "go"."""
    print("ready", flush=True)
    return sys.stdin.readline().removeprefix("go").strip()


def note_calls(owner, name, value_of):
    """Returns a list that gets (moment, value) of each call of owner.name from now on."""
    seen, real = [], getattr(owner, name)

    def noted(self, value, *more, **named):
        seen.append((time.monotonic(), value_of(self, value)))
        return real(self, value, *more, **named)

    setattr(owner, name, noted)
    return seen


def make_product(options):
    """The autotuner, a launch, and a function for the error of the launch's result."""
    if options.unsloth:
        import triton_unsloth
        return triton_unsloth.make_product(options.unsloth, options.mode, "cuda")
    import triton_grouped
    return triton_grouped.make_product(**SIZE, device="cuda")


def worker(options):
    import torch
    timed, compiled = [], []
    if options.worker == "gemmd":
        import gemmd.triton
        from gemmd.triton_compilation import Compilation
        timed = note_calls(gemmd.triton.Timer, "trial", lambda _, config: str(config))
        compiled = note_calls(Compilation, "_compile", lambda _, i: i)
        gemmd.triton.install()
    kernel, launch, error_of = make_product(options)
    torch.cuda.synchronize()
    wait_for_go()
    began = time.monotonic()
    launch()
    torch.cuda.synchronize()
    seconds = time.monotonic() - began
    first = {config: moment for moment, config in reversed(timed)}.values()  # each config's first timing
    print(json.dumps({"seconds": seconds, "timed": len(first), "timings": len(timed), "compiled": len(compiled),
                      "phases": [moment - began for moment in (min(first), max(first))] if first else [],
                      "configs": len(getattr(kernel, "configs_timings", None) or ()),
                      "error": error_of(), "best": str(kernel.best_config)}), flush=True)


def compare(options):
    """Times the named configs in turns, and prints the ratio of each to the first, by medians."""
    import torch
    import triton
    names = json.loads(wait_for_go())
    kernel, launch, _ = make_product(options)
    configs = [next(c for c in kernel.configs if str(c) == name) for name in names]

    def time_ms(config):
        kernel.configs = [config]  # Triton launches the only config without tuning
        return float(triton.testing.do_bench(launch, quantiles=(0.5,), rep=30))

    rounds = [[time_ms(config) for config in configs] for _ in range(ROUNDS)]
    print(json.dumps({"ms": [statistics.median(column) for column in zip(*rounds)],
                      "ratios": [statistics.median(ms / one[0] for ms, one in zip(column, rounds))
                                 for column in zip(*rounds)]}), flush=True)


# ---- all of them ---------------------------------------------------------------------------------

def start(options, kind, socket, lib, cache):
    env = {**os.environ, "GEMMD_SOCKET": str(socket), "GEMMD_LIBRARY": str(lib), "TRITON_CACHE_DIR": str(cache)}
    named = ["--unsloth", options.unsloth, "--mode", options.mode] if options.unsloth else []
    return subprocess.Popen([sys.executable, __file__, "--worker", kind, *named], env=env, text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def run_together(jobs, text=""):
    for job in jobs:
        if job.stdout.readline() != "ready\n":
            raise SystemExit(f"a process ended with {job.wait()}")
    for job in jobs:
        job.stdin.write(f"go{text}\n")
        job.stdin.flush()
    return [json.loads(job.communicate()[0].splitlines()[-1]) for job in jobs]


def run_kernels(options, kind, count, *where):
    results = run_together([start(options, kind, *where) for _ in range(count)])
    seconds = [r["seconds"] for r in results]
    print(f"{kind:7} timed {[r['timed'] for r in results]}, compiled {[r['compiled'] for r in results]}, "
          f"first call {min(seconds):.2f} to {max(seconds):.2f} s, best {sorted({r['best'] for r in results})}",
          flush=True)
    for phases in filter(None, (r["phases"] for r in results)):
        print(f"        the configs' first samples began {phases[0]:.2f} to {phases[1]:.2f} s after the start", flush=True)
    return results


def checks(record):
    cold, again, alone = record["cold"], record["again"], record["triton"][0]
    configs = alone["configs"]
    slowest, ratio = max(r["seconds"] for r in cold), record["winners"]["ratios"][-1]
    timed = sorted(r["timed"] for r in cold)
    return {"one process timed every config, the others none": timed == [0] * (len(cold) - 1) + [configs],
            "each config was compiled once": sum(r["compiled"] for r in cold) == configs,
            "the second start timed and compiled nothing": all(r["timed"] == r["compiled"] == 0 for r in again),
            "all run the same config": len({r["best"] for r in cold + again}) == 1,
            f"the winner takes {ratio:.4f} of the time of triton.autotune's, at most {WINNERS}": ratio <= WINNERS,
            f"the cold start takes {slowest / alone['seconds']:.3f} of triton.autotune alone, at most {SHARE}":
            slowest <= SHARE * alone["seconds"],
            "results are right": all(r["error"] < 1e-2 for r in [*cold, *again, alone])}


def main():
    options = parse()
    if options.worker:
        return compare(options) if options.worker == "compare" else worker(options)
    import gemmd_ffi
    import measure
    import ours
    from service import Service
    measure.torch_or_skip(options.device)
    try:
        import triton  # noqa: F401
    except ImportError as e:
        measure.skip(f"Triton is not installed ({e})")
    lib = (options.lib or options.build / "client" / "libgemmd.so").resolve()
    program = (options.gemmd or options.build / "daemon" / "gemmd").resolve()
    service = Service(gemmd_ffi.Library(lib), program, options.device).start()
    socket, n = service.folder / "gemmd.sock", options.processes
    record = {"unsloth": options.mode if options.unsloth else None}
    try:
        with tempfile.TemporaryDirectory(prefix="gemmd-triton-") as caches:
            shared, own = pathlib.Path(caches) / "shared", pathlib.Path(caches) / "own"
            record["cold"] = run_kernels(options, "gemmd", n, socket, lib, shared)
            record["again"] = run_kernels(options, "gemmd", n, socket, lib, shared)
            record["triton"] = run_kernels(options, "triton", 1, socket, lib, own)
            winners = [record["triton"][0]["best"], record["cold"][0]["best"]]
            record["winners"], = run_together([start(options, "compare", socket, lib, own)], json.dumps(winners))
    finally:
        service.stop()
    record["checks"] = checks(record)
    for sentence, holds in record["checks"].items():
        print(f"{'ok   ' if holds else 'WRONG'} {sentence}")
    ours.write_json(options.json, record)
    latest.keep(options, "triton_ranks", record, measure.torch_or_skip(options.device).cuda.get_device_name())
    return 0 if all(record["checks"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
