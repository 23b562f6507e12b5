# SPDX-License-Identifier: Apache-2.0
"""The parts of fp8.py that take times: time, clock.

Ours is the best of the analytic default and a few configs that won on an H200, chosen by two samples each, or by seven
for a short product, whose times scatter more. All kernels of a row take turns, by single launches with cold caches
(tests/bench/measure.py)."""
import concurrent.futures
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time

import fp8_check
import gemmd
from fp8_check import log
from fp8_products import BLOCK, FP32, INT32, Data, Row, ceil_to, config, load
from gemmd import ffi

# ---- rows ----------------------------------------------------------------------------------------

DENSE = [(1024, 1024), (4096, 1024), (1024, 2048), (6144, 1024), (1024, 3072)]  # (N, K)
DENSE_M = [16, 32, 64, 128, 256, 512, 2048, 4096]


def time_rows():
    """All rows of moe.csv with scales of blocks, those of 4096 tokens also with scales of rows, and dense products."""
    import shapes
    out = []
    for r in shapes.read_rows():
        rows = shapes.route(r.tokens, r.experts, r.topk, 1).m_sizes
        more = {"out": "fp32", "accumulate": True} if r.mode == "dW" else {}
        out.append(Row(r.name, r.mode, rows, r.n, r.k, **more))
        if r.tokens == 4096:
            out.append(Row(f"{r.name} rows", r.mode, rows, r.n, r.k, "fp8_row"))
    return out + [Row(f"dense {m}x{n}x{k}", "forward", [m], n, k) for n, k in DENSE for m in DENSE_M]


def spread(torch, tokens, experts):
    """Rows of each expert in a uniform random routing."""
    of = torch.randint(0, experts, (tokens,), generator=torch.Generator().manual_seed(1))
    return torch.bincount(of, minlength=experts).tolist()


def time_configs(row):
    """Configs that may win, and "", the analytic default."""
    rows, by_threads, pair = row.m // row.experts, {"tma": False}, {"cluster_shape_mn": "1x2"}
    if row.mode == "dW":
        out = [config(row, *tile, GROUP_SIZE_M=8) for tile in ((256, 128, 12, 3, 4), (256, 128, 12, 3, 2), (128, 192, 12, 3, 2))]
        return ["", *out, config(row, 128, 128, 12, 5, GROUP_SIZE_M=8), config(row, 128, 128, 12, 5, **by_threads)]
    cut, drawn = {"skip_rows": True}, {"skip_rows": True, "tile_scheduler": "dynamic"}
    whole = [(128, 192, 12, 4, 3), (256, 128, 12, 3, 4), (128, 128, 12, 5, 2)]  # the buffers hold a consumer's part of a tile
    kinds = [{}, pair] if row.experts == 1 else [{}, pair, cut, {**cut, **pair}, drawn, {**drawn, **pair}]
    large = [config(row, *tile, GROUP_SIZE_M=8, **more) for more in kinds for tile in whole]
    large += [config(row, 128, 128, 12, 6, **by_threads), config(row, 128, 192, 12, 5, GROUP_SIZE_M=8, **by_threads, **pair)]
    small = [config(row, 64, 64, 8, 8, **by_threads), config(row, 64, 64, 8, 8, 2), config(row, 64, 128, 8, 8, 2),
             config(row, 64, 192, 8, 6, 3), config(row, 128, 64, 12, 8, 2)]
    if row.experts == 1:
        large += [config(row, 128, 192, 12, 5, **by_threads), config(row, 256, 128, 12, 4, **by_threads)]
        small += [config(row, 64, 128, 8, 6, **by_threads), config(row, 128, 64, 12, 6, **by_threads),
                  config(row, 64, 32, 8, 8, **by_threads), config(row, 128, 32, 12, 8, **by_threads)]
    if row.quant == "fp8_block":
        small += [config(row, 64, 128, 8, 6, swap_ab=True, **by_threads), config(row, 96, 256, 12, 4, swap_ab=True, **by_threads),
                  config(row, 128, 256, 12, 4, swap_ab=True, **by_threads)] if row.experts > 1 else []
    if row.experts == 1 and row.quant == "fp8_block":
        small += [config(row, 64, c, 8, 6, NUM_KSPLIT=s) for c, s in ((64, 2), (64, 4), (64, 8), (128, 2), (128, 4))]
    if rows > 512:
        return ["", *large]
    if rows > 128:
        return ["", *large, *(small if row.experts == 1 else small[:3])]
    return ["", *small, *(large[:2] if rows > 64 else [])]


def launch_of(kernel, args):
    return lambda: kernel.launch(args)


# ---- other kernels -------------------------------------------------------------------------------

def torch_rows(torch, row):
    """torch's grouped product with a scale for each row, of the same sizes: {name: function}."""
    f8 = torch.float8_e4m3fn
    ends = torch.tensor(row.rows, device="cuda").cumsum(0).int()

    def codes(*shape):
        return (torch.randn(shape, device="cuda", dtype=torch.bfloat16) * 100).to(f8)

    if row.mode == "dW":
        ends = torch.tensor([ceil_to(m, 16) for m in row.rows], device="cuda").cumsum(0).int()
        total = int(ends[-1])
        a, b = codes(row.n, total), codes(row.k, total).t()
        sa, sb = (torch.rand(row.experts * side, device="cuda") for side in (row.n, row.k))
    else:
        depth, cols = (row.k, row.n) if row.mode == "forward" else (row.n, row.k)
        a, b = codes(row.m, depth), codes(row.experts, cols, depth).transpose(-2, -1)
        sa, sb = torch.rand(row.m, device="cuda"), torch.rand(row.experts, cols, device="cuda")
    return {f"torch {name}": (lambda fast=fast: torch._scaled_grouped_mm(
        a, b, sa, sb, ends, out_dtype=torch.bfloat16, use_fast_accum=fast)) for name, fast in (("fast", True), ("exact", False))}


def torch_blocks(torch, row, data):
    """cuBLAS: a dense product with blocks, of our operands."""
    from torch.nn.functional import ScalingType, scaled_mm
    a, b = data.a.codes[0], data.b.codes[0]
    blocks = -(-row.k // BLOCK)
    padded = torch.zeros(-(-row.n // BLOCK), ceil_to(blocks, 4), device="cuda")
    padded[:, :blocks] = data.b.scales[0]
    sa = data.a.scales[0].t().contiguous().t()
    sb = padded.t()[:ceil_to(blocks, 4)]
    return {"cuBLASLt": lambda: scaled_mm(a, b.t(), sa, ScalingType.BlockWise1x128, sb, ScalingType.BlockWise128x128,
                                               output_dtype=torch.bfloat16)}


def import_deepgemm():
    if os.environ["DEEPGEMM"] not in sys.path:
        sys.path.insert(0, os.environ["DEEPGEMM"])
    import deep_gemm
    return deep_gemm


def deepgemm(torch, row):
    """DeepGEMM's product with blocks, of the same sizes. Each expert's rows are padded as it wants them, and scales lie
    as its kernels read them, so nothing is copied within the call. An older commit than 54e2261 has other names, and
    no kernel for dW of all experts."""
    lib = import_deepgemm()
    step = BLOCK if row.experts > 1 else 1
    sizes = [ceil_to(m, step) for m in row.rows]
    total = sum(sizes)

    def codes(*shape):
        return (torch.randn(shape, dtype=torch.bfloat16, device="cuda") * 100).clamp_(-448, 448).to(torch.float8_e4m3fn)

    def operand(rows, depth):  # scales [row][block], rows contiguous
        return codes(rows, depth), torch.rand((-(-depth // BLOCK), ceil_to(rows, 4)), device="cuda").t()[:rows]
    if row.mode == "dW":
        (a, sa), (b, sb) = operand(row.n, total), operand(row.k, total)
        out = torch.zeros((row.experts, row.n, row.k), device="cuda")
        layout = torch.tensor(sizes, dtype=torch.int32, device="cuda")
        a, b = a.view(-1), b.view(-1)
        if not hasattr(lib, "k_grouped_fp8_gemm_nt_contiguous"):
            return {}
        return {"DeepGEMM": lambda: lib.k_grouped_fp8_gemm_nt_contiguous((a, sa), (b, sb), out, sizes, layout, c=out)}
    depth, cols = (row.k, row.n) if row.mode == "forward" else (row.n, row.k)
    a = operand(total, depth)
    b = codes(row.experts, cols, depth), torch.rand((row.experts, -(-cols // BLOCK), -(-depth // BLOCK)), device="cuda")
    out = torch.empty((total, cols), device="cuda", dtype=torch.bfloat16)
    if row.experts == 1:
        multiply = getattr(lib, "fp8_gemm_nt", None) or lib.gemm_fp8_fp8_bf16_nt
        return {"DeepGEMM": lambda: multiply(a, (b[0][0], b[1][0]), out)}
    of = torch.cat([torch.tensor([e] * m + [-1] * (size - m)) for e, (m, size) in enumerate(zip(row.rows, sizes))]).int().cuda()
    multiply = getattr(lib, "m_grouped_fp8_gemm_nt_contiguous", None) or lib.m_grouped_gemm_fp8_fp8_bf16_nt_contiguous
    return {"DeepGEMM": lambda: multiply(a, b, out, of)}


def compile_deepgemm(rows):
    """In another process: launches DeepGEMM's kernels of these rows, which compiles them into DeepGEMM's cache."""
    import torch
    for row in rows:
        try:
            for launch in deepgemm(torch, row).values():
                launch()
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        except Exception as e:  # pylint: disable=broad-except
            return f"{row.name}: {str(e).splitlines()[0][:200]}"
    return None


def compile_all_deepgemm(rows, processes):
    at, groups = time.monotonic(), {}
    for row in rows:
        if row.quant == "fp8_block":
            groups.setdefault((row.mode == "dW", *((row.k, row.n) if row.mode == "dX" else (row.n, row.k))), []).append(row)
    with concurrent.futures.ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        errors = [e for e in pool.map(compile_deepgemm, groups.values()) if e]
    log(f"DeepGEMM: compiled in {time.monotonic() - at:.0f} s", *errors[:4])


def bf16_of(torch, row):
    """Ours with bf16 operands of the same sizes: the analytic default."""
    kernel = gemmd.compile_kernel(row.problem("none"))

    def make(*shape):
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16)

    x, dy = make(row.m, row.k), make(row.m, row.n)
    w = make(row.experts, row.n, row.k) if row.mode != "dW" else None
    kind = torch.float32 if row.out == "fp32" else torch.bfloat16
    shape = (row.experts, row.n, row.k) if row.mode == "dW" else (row.m, row.n if row.mode == "forward" else row.k)
    out = torch.zeros(shape, dtype=kind, device="cuda")
    sizes = torch.tensor(row.rows, dtype=torch.int32, device="cuda")
    args = ffi.Args(x=x.data_ptr(), dy=dy.data_ptr(), w=w.data_ptr() if w is not None else None, out=out.data_ptr(),
                    m_sizes=sizes.data_ptr(), m_sizes_dtype=INT32, gather_dtype=INT32, weights_dtype=FP32, rows=row.m,
                    flags=1 if row.flags.get("accumulate") else 0, stream=torch.cuda.current_stream().cuda_stream)
    need = kernel.workspace(args)
    work = torch.zeros(max(256, need), dtype=torch.uint8, device="cuda")
    args.workspace, args.workspace_bytes = work.data_ptr(), work.numel()
    keep = (x, dy, w, out, sizes, work)
    return {"ours in bf16": lambda keep=keep: kernel.launch(args)}


# ---- time ----------------------------------------------------------------------------------------

def add_peers(torch, row, data, candidates, faults):
    peers = []
    if row.quant == "fp8_row":
        peers = [lambda: torch_rows(torch, row)]
    else:
        peers += [lambda: torch_blocks(torch, row, data)] if row.experts == 1 else [lambda: bf16_of(torch, row)]
        peers += [lambda: deepgemm(torch, row)] if os.environ.get("DEEPGEMM") else []
    for make in peers:
        try:
            more = make()
            for f in more.values():
                f()
            torch.cuda.synchronize()
            candidates.update(more)
        except Exception as e:  # pylint: disable=broad-except
            faults.append((type(e).__name__ + " " + str(e)).splitlines()[0][:200])


def time_one(torch, clock, row):
    data = Data(torch, row)
    args, kernels = data.args(), {}
    for text in time_configs(row):
        kernel = load(row, text or None)
        if kernel:
            kernels[text] = launch_of(kernel, args)
    short = row.flops() < 1e11
    tries = clock.run(kernels, 7 if short else 2)
    best = min(kernels, key=lambda text: statistics.median(tries[text]))
    candidates, faults = {"ours": kernels[best]}, []
    add_peers(torch, row, data, candidates, faults)
    samples = clock.run(candidates, 15 if short else 5)
    us = {name: statistics.median(t) for name, t in samples.items()}
    ratios = "  ".join(f"{k} {v / us['ours']:.2f}" for k, v in us.items() if k != "ours")
    log(f"{row.name:42} {us['ours']:8.1f} us {row.flops() / us['ours'] / 1e6:6.0f} TFLOP/s  {ratios}", *faults)
    return {"row": row.name, "mode": row.mode, "quant": row.quant, "experts": row.experts, "m": row.m, "us": us,
            "config": best or "default", "tries": {t or "default": statistics.median(v) for t, v in tries.items()}, "faults": faults}


def mean(values):
    return statistics.geometric_mean(values)


def summary(results):
    """Geometric mean and least ratio of each comparison."""
    import latest
    ratios = {}
    for workload, peer, _, ours, theirs, _ in latest.fp8([{"part": "time", "times": results}]):
        ratios.setdefault((workload, peer), []).append(theirs / ours)
    for (workload, peer), r in ratios.items():
        log(f"{workload} | {peer}: {len(r)} rows, mean {mean(r):.3f}, least {min(r):.2f}")


def chosen_rows(options):
    """Rows of 4096 tokens first, those of 512 last: --seconds may end before all rows are measured."""
    rows = [r for r in time_rows() if not options.only or options.only in r.name]
    order = ["/4096/", "dense", "/16384/", "/512/"]
    return sorted(rows, key=lambda r: next(i for i, part in enumerate(order) if part in r.name))


def compile_all(options):
    """Puts the kernels of `time`, ours and DeepGEMM's, into their caches."""
    rows = chosen_rows(options)
    fp8_check.compile_all({r: time_configs(r) for r in rows}, options.jobs)
    if os.environ.get("DEEPGEMM"):
        compile_all_deepgemm(rows, options.jobs)


def measure_times(torch, options, record, deadline):
    import measure
    rows, began = chosen_rows(options), time.monotonic()
    record["card"], record["times"] = torch.cuda.get_device_name(), []
    steps, clock = fp8_check.Steps(options.steps, options.start, 60), measure.DeviceClock(torch, "cuda", gap_ms=2)
    for i, row in enumerate(rows):
        if not steps.begin(row.name):
            continue
        if time.monotonic() > deadline:
            log(f"time: out of time, {len(rows) - i} rows are left over, the first is {row.name}")
            break
        try:
            record["times"].append(time_one(torch, clock, row))
            options.json.write_text(json.dumps(record) + "\n")  # kept if a later kernel ends this process
        except (gemmd.GemmdError, measure.CannotTime, torch.OutOfMemoryError) as e:
            log("FAULT", row.name, "|", str(e)[:300])
        steps.end()
        torch.cuda.empty_cache()
    log(f"time: {len(record['times'])} of {len(rows)} rows in {time.monotonic() - began:.0f} s")
    summary(record["times"])


# ---- clock ---------------------------------------------------------------------------------------

def mhz_after(torch, launch, cycles=400_000):
    """MHz right after `launch`, from a kernel that spins for a number of cycles."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    launch()
    begin.record()
    torch.cuda._sleep(cycles)
    end.record()
    end.synchronize()
    return cycles / begin.elapsed_time(end) / 1e3


def measure_clock(torch, record):
    """For single launches after an idle gap, and for launches without a gap: the median of MHz, watts, TFLOP/s."""
    record["clock"] = {}
    rows = spread(torch, 16384, 32)
    for row, text in ((Row("fp8", "forward", rows, 4096, 7168), config(Row("", "forward", rows, 4096, 7168), 256, 128, 12, 4,
                                                                      GROUP_SIZE_M=8)), (Row("bf16", "forward", rows, 4096, 7168), None)):
        if text:
            data = Data(torch, row)
            launch = launch_of(gemmd.compile_kernel(row.problem(), text), data.args())
        else:
            launch = bf16_of(torch, row)["ours in bf16"]
        single = []
        for _ in range(12):
            torch.cuda.synchronize()
            time.sleep(0.01)
            single.append(mhz_after(torch, launch))
        torch.cuda.synchronize()
        watch = subprocess.Popen(["nvidia-smi", "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader,nounits", "-lms", "50"],
                                 stdout=subprocess.PIPE, text=True)
        at, n = time.monotonic(), 0
        while time.monotonic() - at < 2.0:
            for _ in range(20):
                launch()
            torch.cuda.synchronize()
            n += 20
        seconds = time.monotonic() - at
        after = mhz_after(torch, launch)
        watch.terminate()
        lines = [line.split(",") for line in watch.communicate()[0].splitlines() if line.count(",") == 1]
        half = lines[len(lines) // 2:]
        record["clock"][row.name] = {
            "mhz_single": statistics.median(single), "mhz_sustained": after,
            "nvidia_smi": [statistics.median(float(v[i]) for v in half) for i in range(2)] if half else None,
            "tflops_sustained": row.flops() * n / seconds / 1e12}
        log("clock", row.name, json.dumps(record["clock"][row.name]))
