# SPDX-License-Identifier: Apache-2.0
"""A job for tests: kernels of Inductor's CachingAutotuner, tuned through gemmd.inductor. argv: the number of
processes, forked after the imports and started together, and their work. "tune" and "descend" (coordinate
descent) need no GPU: lookup, tuning and saving are Inductor's, with stand-ins for compiling and timing; a
config takes as long as its XBLOCK is from $BEST. "plain": the same without gemmd. "compile": torch.compile on
the GPU. Prints a line of JSON for each process: the timings and the winner of each kernel."""
import json
import multiprocessing
import os
import sys
import tempfile

import torch
import triton
import triton.language as tl
from torch._inductor.runtime.hints import DeviceProperties, HeuristicType
from torch._inductor.runtime.triton_heuristics import CachingAutotuner, cached_autotune

import gemmd.inductor

KERNELS = ("one", "two")
timed = []


@triton.jit
def kernel(x, XBLOCK: tl.constexpr):
    pass


class Launcher:
    n_regs = n_spills = shared = 0
    store_cubin, cache_hash = False, "hash"

    def __init__(self, config):
        self.config = config

    def make_launcher(self):
        return self

    def __call__(self, *args, stream=None):
        return self.config.kwargs["XBLOCK"]


def bench(self, launcher, *args, **kwargs):
    timed.append(launcher.config.kwargs["XBLOCK"])
    return 1.0 + abs(launcher.config.kwargs["XBLOCK"] - int(os.environ.get("BEST", 64)))


def load(name):
    """Makes a tuner, like the code that Inductor generates for a kernel, with its configs compiled."""
    meta = {"backend_hash": "backend", "autotune_remote_cache": torch._inductor.config.autotune_remote_cache,
            "autotune_local_cache": False, "coordinate_descent_tuning": WORK == "descend", "kernel_name": name}
    device = DeviceProperties(type="cpu", index=0, multi_processor_count=1, cc=0, max_threads_per_block=1024,
                              warp_size=32)
    configs = [triton.Config({"XBLOCK": n}, num_warps=4) for n in (32, 128)]
    tuner = cached_autotune({"x": 1024}, configs, {"device": device, "signature": {}}, HeuristicType.POINTWISE,
                            filename=f"{name}.py", inductor_meta=meta)(kernel)
    tuner.launchers = [Launcher(config) for config in tuner.configs]
    return tuner


def rank(number, together):
    """All kernels are loaded before the first runs, as in a graph, and ranks load in different orders."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] += f"/{number}"
    together.wait()
    names = KERNELS[::1 if number % 2 else -1]
    tuners = {name: load(name) for name in names}
    out = {}
    for name in KERNELS:
        timed.clear()
        compiled = sorted(launcher.config.kwargs["XBLOCK"] for launcher in tuners[name].launchers)
        best = tuners[name].run(None, stream=None)
        out[name] = {"compiled": compiled, "timed": list(timed), "best": best}
    os.write(1, (json.dumps(out) + "\n").encode())


def compile_on_gpu(number, together):
    """Runs a compiled function. Kernels have the same names in all processes."""
    gemmd.inductor.install()
    os.environ["TORCHINDUCTOR_CACHE_DIR"] += f"/{number}"
    out, bench, run = {}, CachingAutotuner.bench, CachingAutotuner.run

    def count(self, launcher, *args, **kwargs):
        out.setdefault(self.fn.__name__, {"timed": 0})["timed"] += 1
        return bench(self, launcher, *args, **kwargs)

    def note(self, *args, **kwargs):
        result = run(self, *args, **kwargs)
        out.setdefault(self.fn.__name__, {"timed": 0})["best"] = str(self.launchers[0].config)
        return result

    CachingAutotuner.bench, CachingAutotuner.run = count, note

    def f(x):
        return torch.softmax(x * 2 + 1, -1).sum(0), (x.t().contiguous() + x.relu()).sum()

    together.wait()
    torch.compile(f, options={"max_autotune_pointwise": True})(torch.randn(4096, 4096, device="cuda"))
    torch.cuda.synchronize()
    os.write(1, (json.dumps(out) + "\n").encode())


def main():
    if WORK not in ("plain", "compile"):
        gemmd.inductor.install()
    if WORK != "compile":
        CachingAutotuner.bench, CachingAutotuner._precompile_config = bench, lambda self, config: Launcher(config)
    start = multiprocessing.get_context("spawn" if WORK == "compile" else "fork")  # CUDA forbids a fork
    together = start.Barrier(RANKS)
    work = compile_on_gpu if WORK == "compile" else rank
    processes = [start.Process(target=work, args=(n, together)) for n in range(RANKS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(any(process.exitcode for process in processes))


RANKS, WORK = (int(sys.argv[1]), sys.argv[2]) if __name__ == "__main__" else (1, "tune")
if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        main()
