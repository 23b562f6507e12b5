#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The portable kernels beside cuBLASLt's kernels that use the same instruction, mma.sync, in bf16 on one GPU.

    mma_peers.py [--build build] [--shapes REGEX] [--samples 15] [--seconds 200] [--jobs N] [--json FILE] [--csv]

Cards before Hopper run both. On a Hopper card cuBLASLt has these kernels too: every algorithm, tile, number of stages
and number of parts of K that cublasLtMatmulAlgoCheck accepts is launched once under torch.profiler, and the kernel's
name tells.

dense    out = x w^T: the fastest of these kernels
experts  forward over the rows of E experts, M / E rows each: ours in one launch, beside PyTorch's way on cards before
         Hopper, a loop over the experts, each by the fastest of these kernels. The loop is a CUDA graph, so that the
         host's time does not count.

A grid of portable configs is compiled and timed. The fastest four of both sides take turns, and the best of each side
counts. Exit status: 0 all measured and right, 1 a wrong result, 77 no PyTorch, no GPU, or no such kernel.
"""
import argparse
import concurrent.futures
import itertools
import json
import os
import pathlib
import re
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "bench"), str(ROOT / "tests" / "results")]
import cublaslt  # noqa: E402
import latest  # noqa: E402
import measure  # noqa: E402
import report  # noqa: E402

SHAPES = [  # name, rows, N, K, experts
    ("4096^3", 4096, 4096, 4096, 1), ("8192^3", 8192, 8192, 8192, 1), ("4096 x 14336 x 4096", 4096, 14336, 4096, 1),
    ("2048 x 1536 x 2048", 2048, 1536, 2048, 1),
    ("Qwen3 gate_up, 4096 tokens", 32768, 1536, 2048, 128), ("OLMoE gate_up, 4096 tokens", 32768, 2048, 2048, 64),
    ("Mixtral gate_up, 4096 tokens", 8192, 28672, 4096, 8)]
OTHER_INSTRUCTIONS = re.compile(r"sm90|sm100|nvjet|gemv", re.IGNORECASE)  # wgmma, or no tensor cores
TRY_SAMPLES, FINALISTS = 3, 4


def configs():
    for rows, cols, depth, warps, stages in itertools.product((64, 128, 256), (64, 128, 256), (32, 64), (4, 8, 16), (2, 3, 4)):
        yield {"BLOCK_SIZE_M": rows, "BLOCK_SIZE_N": cols, "BLOCK_SIZE_K": depth, "num_warps": warps, "num_stages": stages,
               "GROUP_SIZE_M": 8}


def kernel_names(torch, runs):
    """The name of the kernel that each function launches. A kernel that fills a number stands between two functions."""
    mark = torch.zeros(1, device="cuda")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for run in runs:
            mark.fill_(1.0)
            try:
                run()
            except cublaslt.CublasLtError:
                pass  # no kernel, so no name
        torch.cuda.synchronize()
    kernels = sorted((e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA),
                     key=lambda e: e.time_range.start)
    names = []
    for kernel in kernels:
        if "FillFunctor" in kernel.name:
            names.append("")
        elif names:
            names[-1] = names[-1] or kernel.name
    return names


class Bench:
    def __init__(self, torch, options):
        import gemmd
        from gemmd import ffi
        self.torch, self.options, self.gemmd, self.ffi = torch, options, gemmd, ffi
        self.device = measure.torch_device(torch, "cuda:0")
        self.clock = measure.DeviceClock(torch, self.device)
        self.lt = cublaslt.CublasLt(torch, self.device)
        self.names = {}  # of algorithms that were launched once
        self.kept = []   # what launches need

    def operands(self, rows, n, k, experts):
        torch, draw = self.torch, self.torch.Generator(device=self.device).manual_seed(7)
        x = torch.randn(rows, k, generator=draw, device=self.device).bfloat16()
        w = torch.randn(experts, n, k, generator=draw, device=self.device).bfloat16()
        return x, w, torch.full((rows, n), float("nan"), dtype=torch.bfloat16, device=self.device)

    # ---- cuBLASLt --------------------------------------------------------------------------------

    def best_of_cublaslt(self, x, w, out):
        """({algorithm: function} of the fastest kernels with mma.sync, the number that were timed)."""
        found = self.lt.all_plans(x, w, out, self.torch.cuda.current_stream().cuda_stream)
        new = [(key, run) for key, run in found.items() if key not in self.names]
        self.names.update(zip((key for key, _ in new), kernel_names(self.torch, [run for _, run in new])))
        found = {key: run for key, run in found.items() if self.names[key] and not OTHER_INSTRUCTIONS.search(self.names[key])}
        if not found:
            measure.skip("cuBLASLt has no kernel with mma.sync here")
        tried = len(found)
        for samples, most in ((1, 16), (TRY_SAMPLES, FINALISTS)):
            times = {key: statistics.median(us) for key, us in self.clock.run(found, samples).items()}
            found = {key: found[key] for key in sorted(times, key=times.get)[:most]}
        return found, tried

    def loop(self, x, w, out, rows, key):
        """The loop over experts as a CUDA graph: a function that replays it."""
        torch, experts = self.torch, len(w)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            plans = []
            for e in range(experts):
                at = slice(e * rows, (e + 1) * rows)
                found = self.lt.all_plans(x[at], w[e], out[at], side.cuda_stream, keys={key})
                plans += list(found.values())
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=side):
                for run in plans:
                    run()
        self.kept.append((graph, plans))
        return graph.replay

    # ---- ours ------------------------------------------------------------------------------------

    def ours(self, x, w, out, until):
        """Compiles and times the grid. Returns [(config, function)], the fastest first."""
        rows, (experts, n, k) = len(x), w.shape
        problem = self.gemmd.Problem(m=rows, n=n, k=k, mode="forward", experts=experts)
        m_sizes = self.torch.full((experts,), rows // experts, dtype=self.torch.int32, device=self.device)
        args = self.ffi.Args(rows=rows, x=x.data_ptr(), w=w.data_ptr(), out=out.data_ptr(),
                             stream=self.torch.cuda.current_stream().cuda_stream or None)
        if experts > 1:
            args.m_sizes, args.m_sizes_dtype = m_sizes.data_ptr(), self.ffi.INT32

        def compile_one(config):
            if time.monotonic() > until:
                return None
            self.torch.cuda.set_device(0)
            self.torch.cuda.is_current_stream_capturing()  # makes the context current in this thread
            try:
                return self.gemmd.compile_kernel(problem, config, "cuda:0")
            except self.gemmd.GemmdError as e:
                if e.name not in ("invalid", "conflict", "resource", "no_config"):
                    raise
                return None

        def launcher(kernel):
            return lambda: kernel.launch(args)
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            made = [(c, k) for c, k in zip(configs(), pool.map(compile_one, configs())) if k]
        found = [(config, launcher(kernel)) for config, kernel in made]
        for samples, most in ((1, 16), (TRY_SAMPLES, FINALISTS)):
            times = self.clock.run({i: run for i, (_, run) in enumerate(found)}, samples)
            order = sorted(times, key=lambda i: statistics.median(times[i]))
            found = [found[i] for i in order[:most]]
        self.alive = (made, args, m_sizes)
        return found, len(made)

    def row(self, name, rows, n, k, experts, until):
        x, w, out = self.operands(rows, n, k, experts)
        right = self.torch.cat([x[e * (rows // experts):(e + 1) * (rows // experts)] @ w[e].t() for e in range(experts)])
        finalists, compiled = self.ours(x, w, out, until)
        each = rows // experts
        self.kept.clear()
        peers, tried = self.best_of_cublaslt(x[:each], w[0], out[:each])
        ops = {i: op for i, (_, op) in enumerate(finalists)}
        ops |= {key: self.loop(x, w, out, each, key) if experts > 1 else run for key, run in peers.items()}
        wrong = []
        for who, op in ops.items():
            out.fill_(float("nan"))
            op()
            why = measure.wrong(measure.difference(self.torch, out, right))
            wrong += [f"{self.names[who] if who in peers else finalists[who][0]}: {why}"] if why else []
        if self.options.torch and experts == 1:
            ops["torch"] = lambda: self.torch.mm(x, w[0].t(), out=out)
        times = {who: statistics.median(us) for who, us in self.clock.run(ops, self.options.samples).items()}
        best, peer = min(range(len(finalists)), key=times.get), min(peers, key=times.get)
        return {"name": name, "experts": experts, "flops": 2 * rows * n * k, "ours_us": times[best], "config": finalists[best][0],
                "compiled": compiled, "peer_us": times[peer], "peer": f"{peer[3]} parts of K, {self.names[peer]}", "tried": tried,
                "torch_us": times.get("torch"), "wrong": "; ".join(wrong)}


def conclude(record):
    lines = [[r["name"], f"{r['ours_us']:.1f}", f"{r['flops'] / r['ours_us'] / 1e6:.0f}", f"{r['peer_us']:.1f}",
              f"{r['flops'] / r['peer_us'] / 1e6:.0f}", f"{r['peer_us'] / r['ours_us']:.3f}", report.cell(r["torch_us"], ".1f"),
              " ".join(str(v) for v in r["config"].values()), f"{r['compiled']}, {r['tried']}", r["peer"][:70]] for r in record["rows"]]
    print(report.table(["shape", "ours, us", "TFLOP/s", "cuBLASLt mma.sync, us", "TFLOP/s", "theirs / ours", "torch, us", "config M N K warps stages group",
                        "tried", "kernel"], lines))
    for r in record["rows"]:
        if r["wrong"]:
            print(f"!! {r['name']}: WRONG: {r['wrong']}")
    return 1 if any(r["wrong"] for r in record["rows"]) else 0


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    p.add_argument("--shapes", default="", help="only shapes whose name has this regular expression")
    p.add_argument("--samples", type=int, default=15)
    p.add_argument("--seconds", type=float, default=200, help="a shape that would begin later is left out")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--torch", action="store_true", help="also time torch.mm, on Hopper by other instructions")
    p.add_argument("--json", type=pathlib.Path)
    latest.add_option(p)
    options = p.parse_args()
    torch = measure.torch_or_skip("cuda:0")
    os.environ.setdefault("GEMMD_LIBRARY", str(options.build / "client" / "libgemmd.so"))
    sys.path.insert(0, str(ROOT / "python"))
    bench, until = Bench(torch, options), time.monotonic() + options.seconds
    record = {"program": "mma_peers", "machine": {"gpu": torch.cuda.get_device_name(0)}, "rows": []}
    for name, *shape in SHAPES:
        if re.search(options.shapes, name) and time.monotonic() < until:
            record["rows"].append(bench.row(name, *shape, until))
            print(record["rows"][-1], flush=True)
        elif re.search(options.shapes, name):
            print(f"!! left out: {name}: --seconds were over")
    if options.json:
        options.json.write_text(json.dumps(record))
    latest.keep(options, "mma_peers", record, record["machine"]["gpu"])
    return conclude(record)


if __name__ == "__main__":
    sys.exit(main())
