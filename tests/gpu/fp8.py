#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The kernels for fp8 operands on a Hopper GPU: right results, times beside other kernels, the clock that they hold.

fp8.py [--parts check,clock,time] [--seconds S] [--only TEXT] [--json FILE]

check   many configs of every mode, with ragged and empty experts, against sums in double over the dequantised
        operands: the relative norm of each row's error is at most 2.5e-3 (bf16) or 4e-4 (fp32); for operands of one
        sign 1.3e-3, which a kernel that promotes too late exceeds. Then repeated launches, bit by bit.
time    single launches with cold caches, all kernels of a row in turn: the best of several configs of ours; ours with
        bf16 operands (the analytic default); torch's grouped product of fp8 rows, with fast and with exact sums;
        cuBLAS for dense products with blocks; DeepGEMM's kernels if $DEEPGEMM names a folder that holds its commit
        03d0be3, the last without a library to build (`deep_gemm`, in its include folder CUTLASS eefa171's `cute` and
        `cutlass`): it compiles with nvcc. Each expert's rows are padded to 128 there.
clock   MHz right after a launch, and in the middle of a second of launches.

Kernels are compiled in this process from the library of GEMMD_LIBRARY; --jobs processes compile them ahead into
gemmd's cache directory. Each part runs in a process of its own. After a fault of the device, or 25 s (time: 60 s) without a
finished step, the part goes on with the next kernel in another process. Exit status: 0 all right, 1 a wrong result or a fault,
77 no Hopper GPU.
"""
import argparse
import concurrent.futures
import ctypes
import itertools
import json
import math
import multiprocessing
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "bench"), str(HERE.parents[1] / "python")]

import gemmd  # noqa: E402
from gemmd import ffi  # noqa: E402

BLOCK = 128
FP32 = 3
INT32 = 4
LIMITS = {"bf16": 2.5e-3, "fp32": 4e-4}
# Largest error on an H200: 1.02e-3. Promotion every 256 terms would make twice that.
LIMIT_ONE_SIGN = 1.3e-3
# Rounded to bf16 before and behind the routing weight. Largest error on an H200: 3.03e-3.
LIMIT_ROUNDED_TWICE = 4e-3


def log(*words):
    print(*words, flush=True)


class Steps:
    """Counts the steps of a part, and writes the count and the step's name to a file, so that another process can go on
    behind a step that killed or hung this one."""

    def __init__(self, path, start, limit_s):
        self.path, self.start, self.limit_s, self.n, self.name, self.at = path, start, limit_s, 0, "", time.monotonic()
        threading.Thread(target=self._watch, daemon=True).start()

    def begin(self, name):
        """Returns False for a step that an earlier process has done."""
        self.n += 1
        self.name, self.at = name, time.monotonic()
        if self.n > self.start:
            self.path.write_text(json.dumps([self.n, name]))
        return self.n > self.start

    def _watch(self):
        while time.monotonic() - self.at < self.limit_s:
            time.sleep(0.5)
        log("HANG", self.name)
        os._exit(3)


def ceil_to(n, step):
    return (n + step - 1) // step * step


# ---- problems and configs ------------------------------------------------------------------------

class Row:
    """A product: mode, quantisation, sizes, rows of each expert."""

    def __init__(self, name, mode, rows, n, k, quant="fp8_block", topk=1, out="bf16", **flags):
        self.name, self.mode, self.rows, self.n, self.k, self.quant = name, mode, rows, n, k, quant
        self.topk, self.out, self.flags = topk, out, flags
        self.m, self.experts = sum(rows), len(rows)
        self.gathers = flags.get("permute_x" if mode == "forward" else "permute_y", False) and mode != "dW"
        self.scatters = flags.get("permute_y" if mode == "forward" else "permute_x", False) and mode != "dW"

    def problem(self, quant=None):
        quant = self.quant if quant is None else quant
        fields = {"mode": self.mode, "M": self.m, "N": self.n, "K": self.k, "experts": self.experts, "topk": self.topk,
                  **self.flags}
        if quant != "none":
            fields["quant"] = quant
        if self.mode == "dW" and self.out == "fp32":
            fields["dtype_out"] = "fp32"
        return "grouped_gemm " + " ".join(f"{a}={str(b).lower() if isinstance(b, bool) else b}" for a, b in fields.items())

    def flops(self):
        return 2.0 * self.m * self.n * self.k


ROLES = {"forward": ("M", "N", "K"), "dX": ("M", "K", "N"), "dW": ("N", "K", "M")}


def config(row, r, c, warps, stages, staging=1, **more):
    """A config by the tile's rows and columns."""
    sizes = dict(zip(ROLES[row.mode], (r, c, BLOCK)))
    tma = more.pop("tma", True) and not row.scatters and more.get("NUM_KSPLIT", 1) == 1
    fields = {**{f"BLOCK_SIZE_{d}": sizes[d] for d in "MNK"}, "num_warps": warps, "schedule": "cooperative",
              "num_stages": stages, "staging_buffers": staging if tma else 1, "use_tma_store": tma}
    if row.mode != "dW":
        fields["use_tma_load_w"] = True
    if row.mode == "forward":
        fields["use_tma_load_x"] = not row.gathers
    if row.mode == "dX":
        fields["use_tma_load_dy"] = not row.gathers
    fields.update(more)
    return " ".join(f"{a}={str(b).lower() if isinstance(b, bool) else b}" for a, b in fields.items())


TILES = [(256, 128, 12, 4), (256, 64, 12, 4), (128, 192, 12, 4), (128, 128, 12, 5), (128, 64, 12, 6), (64, 192, 8, 5),
         (64, 128, 8, 6), (64, 64, 8, 8)]
SWAPPED = [(128, 256, 12, 4), (96, 256, 12, 4), (192, 128, 12, 4), (160, 128, 12, 4), (64, 128, 8, 6)]
PAIRED = [(128, 256, 12, 4), (112, 256, 12, 4), (96, 256, 12, 4), (160, 128, 12, 5)]


def check_configs(row):
    """Every tile with its usual settings, and with single departures."""
    dw = row.mode == "dW"
    departures = [{}, {"tma": False}, {"GROUP_SIZE_M": 8, "raster": "columns"}, {"fewer": 1}]
    departures += [{"expert_order": "size"}] if dw else [{"skip_rows": True}, {"tile_scheduler": "dynamic"},
                                                         {"skip_rows": True, "tile_scheduler": "dynamic"}]
    out = []
    for (r, c, warps, stages), more in itertools.product(TILES, departures):
        more = dict(more)
        less = (1 if dw and row.out == "fp32" and r * c >= 128 * 128 else 0) + more.pop("fewer", 0)
        if more.get("skip_rows") and r == 64:
            continue
        out.append(config(row, r, c, warps, max(2, stages - less), 2 if r * c < 128 * 192 and not less else 1, **more))
    if not dw and row.quant == "fp8_block":
        out += [config(row, 64, c, 8, 4, NUM_KSPLIT=s) for c in (64, 128) for s in (2, 4, 8)]
        out += [config(row, *tile, swap_ab=True, **more) for tile in SWAPPED for more in
                ({}, {"tma": False}, {"tile_scheduler": "dynamic"}, {"GROUP_SIZE_M": 8, "raster": "columns"})]
        out += [config(row, *tile, swap_ab=True, cluster_shape_mn="2x1", **more) for tile in PAIRED for more in
                ({}, {"tma": False}, {"tile_scheduler": "dynamic"}, {"tma": False, "tile_scheduler": "dynamic"})]
    return list(dict.fromkeys(out))


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


# ---- compiling -----------------------------------------------------------------------------------

def make_context():
    """Makes the first GPU's context current in this thread, without PyTorch, whose import takes seconds."""
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    for code in (cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0),
                 cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), cuda.cuCtxSetCurrent(context)):
        if code:
            raise OSError(f"libcuda: error {code}")


def compile_ahead(job):
    """In another process: puts the kernel into gemmd's cache directory."""
    problem, text = job
    try:
        gemmd.compile_kernel(problem, text).free()
        return None
    except gemmd.GemmdError as e:
        return str(e)


RUN_TIME = ("GROUP_SIZE_M=", "raster=", "expert_order=")


def compile_all(todo, processes):
    """Compiles each kernel of {row: configs} once, ahead."""
    at, jobs = time.monotonic(), {}
    for row, texts in todo.items():
        for text in texts:
            compiled = " ".join(w for w in text.split() if not w.startswith(RUN_TIME))
            jobs[row.mode, row.quant, row.out, row.gathers, row.scatters, "fuse_mul_post" in row.flags, compiled] = (
                row.problem(), text)
    with concurrent.futures.ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), make_context) as pool:
        errors = [e for e in pool.map(compile_ahead, jobs.values(), chunksize=2) if e]
    log(f"compiled {len(jobs) - len(errors)} of {len(jobs)} kernels in {time.monotonic() - at:.0f} s")
    for e in list(dict.fromkeys(errors))[:8]:
        log("  not:", e)


def load(row, text):
    """The kernel of a config; None if the config is not legal, or does not compile."""
    try:
        return gemmd.compile_kernel(row.problem(), text)
    except gemmd.GemmdError:
        return None


# ---- operands ------------------------------------------------------------------------------------

class Operand:
    """fp8 numbers [experts, rows, cols] with scales, which `double` gives back dequantised."""

    def __init__(self, torch, experts, rows, cols, rows_each, blocks, major, one_sign=False):
        shape = (experts, rows, cols)
        values = torch.randn(shape, device="cuda", dtype=torch.float32) * 100
        values = values.abs() if one_sign else values
        self.codes = values.clamp(-448, 448).to(torch.float8_e4m3fn)
        scale_rows = -(-rows // rows_each)
        exponent = torch.rand((experts, scale_rows, blocks), device="cuda") * 4 - 10
        self.scales = torch.full_like(exponent, 2.0 ** -8) if one_sign else torch.exp2(exponent)
        self.rows_each, self.blocks, self.cols, self.torch = rows_each, blocks, cols, torch
        if major:  # [row][block]
            self.kept = self.scales.contiguous()
            self.row, self.block, self.expert = blocks, 1, scale_rows * blocks
        else:  # [block][row], rows padded to a multiple of 4
            padded = ceil_to(scale_rows, 4)
            self.kept = torch.full((experts, blocks, padded), float("nan"), device="cuda")
            self.kept[:, :, :scale_rows] = self.scales.transpose(1, 2)
            self.row, self.block, self.expert = 1, padded, blocks * padded

    def double(self, expert=0):
        scales = self.scales[expert].double().repeat_interleave(self.rows_each, 0)[: self.codes.shape[1]]
        wide = scales.repeat_interleave(BLOCK, 1)[:, : self.cols] if self.blocks > 1 or self.cols <= BLOCK else scales
        return self.codes[expert].double() * wide


class Data:
    def __init__(self, torch, row, one_sign=False, copies=1):
        self.torch, self.row = torch, row
        block = row.quant == "fp8_block"
        self.sizes = torch.tensor(row.rows, dtype=torch.int32, device="cuda")
        self.gather = torch.randperm(row.m, device="cuda", dtype=torch.int32)
        self.weights = torch.rand(row.m, device="cuda") if row.flags.get("fuse_mul_post") else None
        if row.mode == "dW":
            self.columns, at = [], 0
            for m in row.rows:
                self.columns.append(at)
                at += ceil_to(m, BLOCK)
            total = (row.m + 127 * min(row.experts, row.m)) // BLOCK * BLOCK
            blocks = total // BLOCK if block else row.experts
            self.a = Operand(torch, 1, row.n, total, 1, blocks, False, one_sign)
            self.b = Operand(torch, 1, row.k, total, 1, blocks, False, one_sign)
            used = torch.zeros(total, dtype=torch.bool, device="cuda")
            for start, m in zip(self.columns, row.rows):
                used[start:start + m] = True
            for o in (self.a, self.b):
                o.codes.view(torch.uint8)[:, :, ~used] = 0
        else:
            depth, cols = (row.k, row.n) if row.mode == "forward" else (row.n, row.k)
            blocks = -(-depth // BLOCK) if block else 1
            rows = row.m // row.topk if row.gathers and row.mode == "forward" else row.m
            self.a = Operand(torch, 1, rows, depth, 1, blocks, row.gathers, one_sign)
            self.b = Operand(torch, row.experts, cols, depth, BLOCK if block else 1, blocks, True, one_sign)
        kind = torch.float32 if row.out == "fp32" else torch.bfloat16
        shape = (row.experts, row.n, row.k) if row.mode == "dW" else (row.m, row.n if row.mode == "forward" else row.k)
        self.outs = [torch.empty(shape, dtype=kind, device="cuda") for _ in range(copies)]
        self.work = torch.zeros(1 << 16, dtype=torch.uint8, device="cuda")

    def args(self):
        row, a, b = self.row, self.a, self.b
        stream = self.torch.cuda.current_stream().cuda_stream
        args = ffi.Args(out=self.outs[0].data_ptr(), m_sizes=self.sizes.data_ptr(), m_sizes_dtype=INT32, rows=row.m,
                        gather_indices=self.gather.data_ptr(), gather_dtype=INT32, weights_dtype=FP32, stream=stream,
                        workspace=self.work.data_ptr(), workspace_bytes=self.work.numel(),
                        flags=1 if row.flags.get("accumulate") else 0,
                        topk_weights=self.weights.data_ptr() if self.weights is not None else None)
        first = "x" if row.mode == "forward" else "dy"
        second = "x" if row.mode == "dW" else "w"
        for name, o in ((first, a), (second, b)):
            setattr(args, name, o.codes.data_ptr())
            setattr(args, f"{name}_stride", o.cols)
            setattr(args, f"{name}_scale", o.kept.data_ptr())
            setattr(args, f"{name}_scale_stride", o.row)
            setattr(args, f"{name}_scale_stride_block", o.block)
        if second == "w":
            args.w_scale_stride_expert = b.expert
        return args

    def expected(self):
        """The output in double, in fp32's or bf16's place; dW's is added to what `fill` puts there."""
        torch, row = self.torch, self.row
        out = torch.zeros(self.outs[0].shape, dtype=torch.float64, device="cuda")
        if row.mode == "dW":
            for e, (start, m) in enumerate(zip(self.columns, row.rows)):
                if m:
                    out[e] = self.tokens(self.a, e, start, m) @ self.tokens(self.b, e, start, m).t()
            return out + (0.5 if row.flags.get("accumulate") else 0)
        a, at = self.a.double(), 0
        if row.gathers:
            a = a[(self.gather // (row.topk if row.mode == "forward" else 1)).long()]
        for e, m in enumerate(row.rows):
            out[at:at + m] = a[at:at + m] @ self.b.double(e).t()
            at += m
        if row.scatters:
            to = torch.empty_like(out)
            to[self.gather.long()] = out
            out = to
        if self.weights is not None:
            out = out.bfloat16().double() * self.weights.bfloat16().double()[:, None]
        return out

    def tokens(self, o, expert, start, m):
        codes = o.codes[0, :, start:start + m].double()
        if self.row.quant == "fp8_row":
            return codes * o.scales[0, :, expert:expert + 1].double()
        blocks = slice(start // BLOCK, start // BLOCK + -(-m // BLOCK))
        return codes * o.scales[0, :, blocks].double().repeat_interleave(BLOCK, 1)[:, :m]

    def fill(self):
        self.outs[0].fill_(0.5 if self.row.flags.get("accumulate") else float("nan"))


# ---- check ---------------------------------------------------------------------------------------

RAGGED = [0, 1, 15, 16, 63, 65, 128, 0, 129, 257, 510]


def check_rows():
    out = []
    for quant in ("fp8_block", "fp8_row"):
        for mode, flags in (("forward", {}), ("forward", {"permute_x": True, "topk": 2}), ("forward", {"permute_y": True}),
                            ("forward", {"permute_y": True, "fuse_mul_post": True}), ("dX", {}), ("dX", {"permute_x": True}),
                            ("dX", {"permute_y": True})):
            out.append(Row(f"{quant} {mode} {' '.join(flags)}", mode, RAGGED, 1040, 1168, quant, **flags))
        out.append(Row(f"{quant} forward dense", "forward", [300], 576, 7168, quant))
        out.append(Row(f"{quant} dW bf16", "dW", RAGGED, 328, 456, quant))
        out.append(Row(f"{quant} dW fp32", "dW", RAGGED, 328, 456, quant, out="fp32"))
        out.append(Row(f"{quant} dW fp32 +=", "dW", RAGGED, 328, 456, quant, out="fp32", accumulate=True))
    return out


def worst_row(got, want):
    """The largest relative norm of a row's error. Rows of zeros must be zeros."""
    error = (got.double() - want).norm(dim=-1)
    return float((error / want.norm(dim=-1).clamp_min(1e-30)).nan_to_num(math.inf).max())


def check_one(torch, row, data, want, text, limit, launches):
    kernel = load(row, text)
    if not kernel:
        return None
    args = data.args()
    data.fill()
    kernel.launch(args)
    torch.cuda.synchronize()
    first = data.outs[0].clone()
    error = worst_row(first, want)
    if error > limit:
        return f"error {error:.2e} above {limit:.1e}"
    for _ in range(launches):
        data.fill()
        kernel.launch(args)
        if not torch.equal(data.outs[0].view(torch.uint8), first.view(torch.uint8)):
            return "another result in a repeated launch"
    return None


def check(torch, options, record, deadline):
    rows = [r for r in check_rows() if not options.only or options.only in r.name]
    todo = {r: check_configs(r) for r in rows}
    if not options.start:
        compile_all(todo, options.jobs)
    steps, wrong, done = Steps(options.steps, options.start, 25), [], 0
    for one_sign in (False, True):
        for row in rows:
            if time.monotonic() > deadline:
                log("check: out of time at", row.name)
                record["check_stopped"] = row.name
                return wrong
            data = want = None
            limit = LIMITS[row.out]
            if one_sign and row.out == "fp32":
                limit = LIMIT_ONE_SIGN
            elif "fuse_mul_post" in row.flags:
                limit = LIMIT_ROUNDED_TWICE
            for text in todo[row][::4] if one_sign else todo[row]:
                if not steps.begin(f"{row.name} | {text}"):
                    continue
                data = data or Data(torch, row, one_sign)
                want = data.expected() if want is None else want
                fault = check_one(torch, row, data, want, text, limit, 0 if one_sign else options.launches)
                done += 1
                if fault:
                    wrong.append((row.name, text, fault))
                    log("WRONG", row.name, "|", text, "|", fault)
    record["checked"] = done
    log(f"check: {done} launches of kernels, {len(wrong)} wrong")
    return wrong


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
        compile_all({r: time_configs(r) for r in rows}, options.jobs)
    steps, record["times"] = Steps(options.steps, options.start, 60), []
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


def run_part(torch, options):
    """A part in this process. Returns the exit status."""
    deadline, record, wrong = time.monotonic() + options.seconds, {}, []
    torch.zeros(1, device="cuda").item()
    torch.manual_seed(0)
    try:
        if options.child == "check":
            wrong = check(torch, options, record, deadline)
            record["wrong"] = wrong
        elif options.child == "clock":
            measure_clock(torch, record)
        else:
            measure_times(torch, options, record, deadline)
    finally:
        options.json.write_text(json.dumps(record, indent=1, default=str) + "\n")
    return 1 if wrong else 0


def run_parts(options):
    """Each part in a process, which is begun again behind a step that it did not survive."""
    began, parts, faults, records = time.monotonic(), options.parts.split(","), 0, []
    with tempfile.TemporaryDirectory() as folder:
        steps, out = pathlib.Path(folder, "steps"), pathlib.Path(folder, "json")
        for i, part in enumerate(parts):
            start, share = 0, {"check": 0.5, "clock": 0.15}.get(part, 1.0) if i + 1 < len(parts) else 1.0
            end = time.monotonic() + share * (began + options.seconds - time.monotonic())
            for _ in range(6):
                left = end - time.monotonic()
                if left < 5:
                    break
                out.unlink(missing_ok=True)
                steps.write_text(json.dumps([start, "before the first step"]))
                code = subprocess.run(
                    [sys.executable, __file__, "--child", part, "--seconds", str(left), "--start", str(start), "--steps",
                     steps, "--json", out, "--launches", str(options.launches), "--jobs", str(options.jobs),
                     *(["--only", options.only] if options.only else [])], check=False, timeout=left + 60).returncode
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
    log(f"{time.monotonic() - began:.0f} s,", "all right" if not faults else "NOT all right")
    return 1 if faults else 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--parts", default="check,clock,time")
    p.add_argument("--seconds", type=float, default=220, help="limit of all parts together")
    p.add_argument("--launches", type=int, default=3, help="check: repeated launches of each kernel")
    p.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 2), help="processes that compile")
    p.add_argument("--only", help="rows whose name holds this text")
    p.add_argument("--json", type=pathlib.Path)
    p.add_argument("--child", choices=("check", "clock", "time"), help=argparse.SUPPRESS)
    p.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
    p.add_argument("--steps", type=pathlib.Path, help=argparse.SUPPRESS)
    options = p.parse_args()
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
        os._exit(4)


if __name__ == "__main__":
    sys.exit(main())
