# SPDX-License-Identifier: Apache-2.0
"""The parts of fp8.py that take times: time, clock."""
import itertools
import json
import os
import statistics
import subprocess
import sys
import time

import fp8_check
import gemmd
from fp8_check import log
from fp8_products import BLOCK, FP32, INT32, PAIRED, SWAPPED, Data, Row, ceil_to, config, load
from gemmd import ffi


def time_configs(row):
    """Configs that may win: large tiles in several orders."""
    orders = [{}, {"GROUP_SIZE_M": 8}, {"GROUP_SIZE_M": 8, "raster": "columns"}]
    out = []
    if row.mode == "dW":
        tiles = [(256, 128, 12, 4, 1), (256, 128, 12, 3, 2), (128, 192, 12, 4, 1), (128, 128, 12, 5, 2)]
    else:
        tiles = [(256, 128, 12, 4, 1), (256, 128, 12, 3, 2), (128, 192, 12, 5, 1), (128, 192, 12, 4, 2), (128, 128, 12, 5, 2),
                 (64, 192, 8, 6, 1), (64, 128, 8, 8, 1)]
    if row.mode == "dW":
        out += [config(row, r, c, warps, stages, tma=False, **order)
                for (r, c, warps, stages, staging), order in itertools.product(tiles, orders[:2])]
    for (r, c, warps, stages, staging), order in itertools.product(tiles, orders):
        if r > 64 or row.m // row.experts <= 128:
            out.append(config(row, r, c, warps, stages, staging, **order))
    if row.mode != "dW" and row.quant == "fp8_block":
        out += [config(row, *tile, swap_ab=True, **order, **more) for tile in SWAPPED for order in orders[:2]
                for more in ({}, {"tile_scheduler": "dynamic"}, {"tma": False})
                if tile[0] > 64 or row.m // row.experts <= 128]
        out += [config(row, *tile, swap_ab=True, cluster_shape_mn="2x1", **order, **more) for tile in PAIRED
                for order in orders[:2] for more in ({}, {"tile_scheduler": "dynamic"}, {"tma": False})
                if row.m // row.experts > 128]
    if row.mode != "dW":
        out += [config(row, r, c, 12, stages, 1, GROUP_SIZE_M=8, tile_scheduler="dynamic", skip_rows=skip)
                for r, c, stages in ((256, 128, 4), (128, 192, 5)) for skip in (False, True)]
        if row.experts == 1 and row.m <= 512:
            out += [config(row, 64, c, 8, 6, NUM_KSPLIT=s) for c in (64, 128) for s in (2, 4, 8)]
    return out



# ---- time ----------------------------------------------------------------------------------------

def spread(torch, tokens, experts):
    """Rows of each expert in a uniform random routing."""
    of = torch.randint(0, experts, (tokens,), generator=torch.Generator().manual_seed(1))
    return torch.bincount(of, minlength=experts).tolist()


def time_rows(torch):
    layers = [("Qwen3 gate_up", 128, 1536, 2048, 32768), ("DeepSeek-V3/EP8 gate_up", 32, 4096, 7168, 16384),
              ("Mixtral gate_up", 8, 28672, 4096, 8192), ("gpt-oss gate_up", 32, 5760, 2880, 16384),
              ("DeepSeek-V3/EP8 down", 32, 7168, 2048, 16384)]
    out = []
    for name, experts, n, k, tokens in layers:
        rows = spread(torch, tokens, experts)
        for mode in ("forward", "dX", "dW"):
            more = {"out": "fp32", "accumulate": True} if mode == "dW" else {}
            if mode == "forward" or name.startswith(("Deep", "Qwen")):
                out.append(Row(f"{name} {mode}", mode, rows, n, k, **more))
    out.append(Row("DeepSeek-V3/EP8 gate_up forward rows", "forward", spread(torch, 16384, 32), 4096, 7168, "fp8_row"))
    for m, n, k in ((64, 6144, 1024), (512, 6144, 1024), (4096, 7168, 16384), (128, 7168, 16384)):
        out.append(Row(f"dense {m} x {n} x {k}", "forward", [m], n, k))
    return out


def launch_of(kernel, args):
    return lambda: kernel.launch(args)


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
    return {f"torch rows {name}": (lambda fast=fast: torch._scaled_grouped_mm(
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
    return {"cuBLAS blocks": lambda: scaled_mm(a, b.t(), sa, ScalingType.BlockWise1x128, sb, ScalingType.BlockWise128x128,
                                               output_dtype=torch.bfloat16)}


def deepgemm_blocks(torch, row, data):
    """DeepGEMM's product of blocks with our weights; each expert's rows padded as it wants them."""
    if os.environ["DEEPGEMM"] not in sys.path:
        sys.path.insert(0, os.environ["DEEPGEMM"])
    import deep_gemm
    experts, cols, depth = data.b.codes.shape
    step = deep_gemm.get_m_alignment_for_contiguous_layout() if experts > 1 else 1
    rows = torch.tensor([ceil_to(m, step) for m in row.rows], device="cuda")
    total = int(rows.sum())
    of = torch.arange(experts, device="cuda").repeat_interleave(rows).int()
    a = (torch.randn((total, depth), device="cuda", dtype=torch.bfloat16) * 100).to(torch.float8_e4m3fn)
    sa = deep_gemm.get_col_major_tma_aligned_tensor(torch.rand((total, -(-depth // BLOCK)), device="cuda") / 100)
    b, sb = data.b.codes, data.b.kept.view(experts, -(-cols // BLOCK), -(-depth // BLOCK))
    out = torch.empty((total, cols), device="cuda", dtype=torch.bfloat16)
    if experts == 1:
        return {"DeepGEMM": lambda: deep_gemm.gemm_fp8_fp8_bf16_nt((a, sa), (b[0], sb[0]), out)}
    return {"DeepGEMM": lambda: deep_gemm.m_grouped_gemm_fp8_fp8_bf16_nt_contiguous((a, sa), (b, sb), out, of)}


def bf16_of(torch, row):
    """Ours and torch's with bf16 operands of the same sizes."""
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
    ends = sizes.cumsum(0).int()
    out = {"ours bf16": lambda keep=keep: kernel.launch(args)}
    if row.mode != "dW":
        a, b = (x, w.transpose(-2, -1)) if row.mode == "forward" else (dy, w)
        out["torch bf16"] = lambda: torch._grouped_mm(a, b, offs=ends)
    return out


def screen(clock, kernels, most=3):
    """The fastest few of the configs, by three samples each."""
    times = clock.run(kernels, 3)
    return sorted(kernels, key=lambda t: statistics.median(times[t]))[:most]


def add_peers(torch, row, data, candidates, faults):
    peers = [("bf16", lambda: bf16_of(torch, row)), ("rows", lambda: torch_rows(torch, row))]
    if row.experts == 1 and row.quant == "fp8_block":
        peers.append(("blocks", lambda: torch_blocks(torch, row, data)))
    if os.environ.get("DEEPGEMM") and row.mode != "dW" and row.quant == "fp8_block":
        peers.append(("DeepGEMM", lambda: deepgemm_blocks(torch, row, data)))
    for name, make in peers:
        try:
            more = make()
            for f in more.values():
                f()
            torch.cuda.synchronize()
            candidates.update(more)
        except Exception as e:  # pylint: disable=broad-except
            faults[name] = (type(e).__name__ + " " + str(e)).splitlines()[0][:200]


def time_one(torch, measure, row):
    clock = measure.DeviceClock(torch, "cuda", gap_ms=3)
    data = Data(torch, row)
    args = data.args()
    kernels = {}
    for text in time_configs(row):
        kernel = load(row, text)
        if kernel:
            kernels[text] = launch_of(kernel, args)
    candidates, faults = {t: kernels[t] for t in screen(clock, kernels)}, {}
    add_peers(torch, row, data, candidates, faults)
    times = {name: statistics.median(t) for name, t in clock.run(candidates, 9).items()}
    best = min((t for t in kernels if t in times), key=times.get)
    result = {"row": row.name, "config": best, "us": times[best], "tflops": row.flops() / times[best] / 1e6, "faults": faults,
              "others": {k: v for k, v in times.items() if k not in kernels},
              "ours": {k: v for k, v in times.items() if k in kernels}}
    ratios = "  ".join(f"{k} {v / times[best]:.2f}" for k, v in result["others"].items())
    log(f"{row.name:36} {times[best]:8.1f} us {result['tflops']:6.0f} TFLOP/s  {ratios}")
    log("   ", best)
    for name, fault in faults.items():
        log("    without", name + ":", fault)
    return result


def measure_times(torch, options, record, deadline):
    import measure
    rows = [r for r in time_rows(torch) if not options.only or options.only in r.name]
    if not options.start:
        fp8_check.compile_all({r: time_configs(r) for r in rows}, options.jobs)
    steps, record["times"] = fp8_check.Steps(options.steps, options.start, 60), []
    for row in rows:
        if not steps.begin(row.name):
            continue
        if time.monotonic() > deadline:
            log("time: out of time at", row.name)
            break
        try:
            record["times"].append(time_one(torch, measure, row))
        except gemmd.GemmdError as e:
            log("FAULT", row.name, "|", str(e)[:300])
        torch.cuda.empty_cache()


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
            launch = bf16_of(torch, row)["ours bf16"]
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
