#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tunes the quantisers on a GPU through the real daemon, compares every byte of the winners with PyTorch, and
prints GB/s and the share of the rate at which PyTorch copies as many bytes.

    quantise.py --build build [--device cuda:0] [--sizes 65536x2048,16384x7168] [--budget 96] [--out FILE.json]

PyTorch computes the definition of kernels/families/quantise/quantise.h in fp32. The data has NaN, infinities,
zero blocks, and sizes from 1e-40 to 3e38. --device cpu needs no GPU: it checks this script and the cpu target.
Exit 77 without a GPU, 1 for a wrong byte.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "gpu")]

try:
    import torch
except ImportError:
    print("SKIP: PyTorch is not installed for this Python")
    sys.exit(77)
from tune_layers import Daemon  # noqa: E402

LEAST = 2.0 ** -126
CASES = [("rows", {}), ("rows", {"scale_type": "pow2"}), ("columns", {"experts": 8}), ("both", {"experts": 8}),
         ("both", {"experts": 128, "topk": 8, "permute_x": True}), ("weights", {"experts": 8}), ("whole_rows", {}),
         ("whole_rows", {"scale_type": "pow2", "topk": 8, "permute_x": True})]


def make_x(rows, k, device):
    """Normal values with magnitudes that differ by row, and all special values in some rows and columns."""
    g = torch.Generator(device=device).manual_seed(1)
    x = torch.randn(rows, k, device=device, generator=g)
    x *= torch.exp2(torch.randint(-12, 12, (rows, 1), device=device, generator=g).float())
    for first, value in enumerate((float("nan"), float("inf"), -float("inf"), 3.3e38, 1e-28, 1e-40, -0.0)):
        x[first::997, first::61] = value
    x[5::1009] = 0
    x[:, 3::257] *= 1e-30
    x[7::1013] = float("nan")
    return x.bfloat16()


# ---- the definition, in PyTorch --------------------------------------------------------------------

def scale_of(amax, eps, pow2):
    scale = amax.clamp(min=eps) / torch.full_like(amax, 448)  # by a Python number PyTorch multiplies by its reciprocal
    scale = torch.where(scale < LEAST, torch.ones_like(scale), scale)
    if pow2:
        scale = ((scale.view(torch.int32) + 0x7fffff) & 0x7f800000).view(torch.float32)
    return scale


def quantise(x, dims, eps, pow2):
    """x [..] in blocks of 128, of which `dims` are one block; returns e4m3 bytes and scales."""
    size = torch.where(torch.isfinite(x), x.abs(), torch.zeros_like(x))
    scale = scale_of(size.amax(dims, keepdim=True), eps, pow2)
    q = (x * (1.0 / scale)).clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
    return torch.where(torch.isnan(x), torch.full_like(q, 0x7f), q), scale


def padded_to(x, rows, columns):
    return torch.nn.functional.pad(x, (0, columns - x.shape[-1], 0, rows - x.shape[-2]))


def up(n, to=128):
    return (n + to - 1) // to * to


def row_blocks(x, eps, pow2):
    rows, k = x.shape
    q, scale = quantise(padded_to(x, rows, up(k)).view(rows, -1, 128), -1, eps, pow2)
    return q.view(rows, -1)[:, :k], scale.view(rows, -1).T


def whole_rows(x, eps, pow2):
    q, scale = quantise(x, -1, eps, pow2)
    return q, scale.T


def column_blocks(x, eps, pow2):
    rows, k = x.shape
    q, scale = quantise(padded_to(x, up(rows), k).view(-1, 128, k), 1, eps, pow2)
    return q.view(-1, k).T, scale.view(-1, k)


def weight_blocks(w, eps, pow2):
    n, k = w.shape
    tiles = padded_to(w, up(n), up(k)).view(up(n) // 128, 128, up(k) // 128, 128)
    q, scale = quantise(tiles, (1, 3), eps, pow2)
    return q.reshape(up(n), up(k))[:n, :k], scale.view(up(n) // 128, -1)


# ---- a launch ---------------------------------------------------------------------------------------

class Case:
    def __init__(self, mode, rows, k, device, experts=1, topk=1, permute_x=False, scale_type="fp32"):
        self.mode, self.rows, self.k, self.experts, self.topk = mode, rows, k, experts, topk
        self.pow2, self.eps = scale_type == "pow2", 0.0 if scale_type == "pow2" else 1e-12
        self.text = (f"quantise mode={mode} M={rows} K={k} experts={experts} topk={topk} scale_type={scale_type} "
                     f"permute_x={'true' if permute_x else 'false'}")
        self.x = make_x(rows // topk, k, device)
        self.gather = torch.randperm(rows, device=device).int() if permute_x else None
        cuts = sorted((torch.rand(experts - 1) * rows).int().tolist())
        self.sizes = [b - a for a, b in zip([0, *cuts], [*cuts, rows])]
        self.m_sizes = torch.tensor(self.sizes, dtype=torch.int32, device=device)
        self.row_side, self.column_side = mode != "columns", mode not in ("rows", "whole_rows")
        self.n = rows // experts
        self.padded = self.n if mode == "weights" else sum(up(m) for m in self.sizes)
        whole = dict(device=device, dtype=torch.uint8)
        self.q = torch.full((rows, k), 0xff, **whole) if self.row_side else None
        lines = k * experts if mode == "weights" else k
        self.q_t = torch.full((lines, self.padded), 0xff, **whole) if self.column_side else None
        shape = (experts, up(self.n) // 128, up(k) // 128) if mode == "weights" else (
            1 if mode == "whole_rows" else up(k) // 128, rows)
        self.scales = torch.full(shape, -1.0, device=device) if self.row_side else None
        grouped = self.column_side and mode != "weights"
        self.scales_t = torch.full((self.padded // 128, k), -1.0, device=device) if grouped else None

    def args(self, ffi, stream):
        at = {name: t.data_ptr() for name in ("x", "q", "q_t", "scales", "scales_t", "m_sizes")
              if (t := getattr(self, name)) is not None}
        if self.gather is not None:
            at["gather_indices"] = self.gather.data_ptr()
        strides = {} if self.mode == "weights" else {"scales_row_stride": 1, "scales_block_stride": self.rows,
                                                     "padded": self.padded}
        return ffi.QuantiseArgs(**at, **strides, rows=self.rows, eps=self.eps, m_sizes_dtype=ffi.INT32,
                                gather_dtype=ffi.INT32, stream=stream)

    def expected(self):
        """(name, got, expected) of each part."""
        x = self.x.float()
        if self.gather is not None:
            x = x[(self.gather // self.topk).long()]
        if self.mode == "weights":
            for e, (w, scales) in enumerate(zip(x.view(self.experts, self.n, self.k), self.scales)):
                q, scale = weight_blocks(w, self.eps, self.pow2)
                yield f"q of expert {e}", self.q[e * self.n:(e + 1) * self.n], q
                yield f"q_t of expert {e}", self.q_t[e * self.k:(e + 1) * self.k], q.T
                yield f"scales of expert {e}", scales, scale
            return
        if self.row_side:
            for first in range(0, self.rows, 8192):
                part = slice(first, first + 8192)
                of = whole_rows if self.mode == "whole_rows" else row_blocks
                q, scale = of(x[part], self.eps, self.pow2)
                yield f"q from row {first} on", self.q[part], q
                yield f"scales from row {first} on", self.scales[:, part], scale
        first = at = 0
        for e, m in enumerate(self.sizes if self.column_side else []):
            q, scale = column_blocks(x[first:first + m], self.eps, self.pow2)
            yield f"q_t of expert {e}", self.q_t[:, at:at + up(m)], q
            yield f"scales_t of expert {e}", self.scales_t[at // 128:(at + up(m)) // 128], scale
            first, at = first + m, at + up(m)

    def wrong(self):
        """Names of the parts with wrong bytes."""
        out = []
        for name, got, expected in self.expected():
            bad = int((got.contiguous().view(torch.uint8) != expected.contiguous().view(torch.uint8)).sum())
            if bad:
                out.append(f"{bad} bytes of {name}")
        return out

    def bytes(self):
        """As the op's work: each operand and result once."""
        scale = {"weights": 2 / 128 ** 2, "whole_rows": 4 / self.k}.get(self.mode, 4 / 128)
        side = self.rows * self.k * (1 + scale)
        return 2 * self.rows * self.k / self.topk + (self.row_side + self.column_side) * side


def copy_gbps(n_bytes):
    """The rate of a copy that reads and writes n_bytes in all; each launch finds another part of memory."""
    half, times = int(n_bytes / 2) // 16 * 16, []
    pairs = [[torch.empty(half, dtype=torch.uint8, device="cuda") for _ in range(2)] for _ in range(3)]
    for i in range(24):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(200000)
        begin.record()
        pairs[i % 3][1].copy_(pairs[i % 3][0])
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3)
    return 2 * half / statistics.median(times[4:]) * 1e-9


def run(case, client, ffi, budget, on_gpu):
    answer = client.tune(case.text, budget=budget, bucket="exact")
    kernel = client.kernel(case.text, answer)
    kernel.launch(case.args(ffi, torch.cuda.current_stream().cuda_stream if on_gpu else None))
    if on_gpu:
        torch.cuda.synchronize()
    gbps = case.bytes() / answer.time_us * 1e-3
    copy = copy_gbps(case.bytes()) if on_gpu else float("nan")
    row = {"problem": case.text, "config": answer.config, "us": answer.time_us, "gbps": gbps,
           "default_us": answer.reference_us, "copy_gbps": copy, "share": gbps / copy, "wrong": case.wrong()}
    print(f"{case.mode:8} {case.rows}x{case.k} e{case.experts} {'permuted ' if case.gather is not None else ''}"
          f"{'pow2 ' if case.pow2 else ''}{row['us']:.1f} us {gbps:.0f} GB/s, {100 * row['share']:.1f} % of the copy's "
          f"{copy:.0f}; {'WRONG: ' + '; '.join(row['wrong'][:3]) if row['wrong'] else 'every byte right'}; "
          f"{row['config']}", flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--sizes", default="65536x2048,16384x7168")
    parser.add_argument("--budget", type=int, default=96)
    parser.add_argument("--out", type=pathlib.Path)
    a = parser.parse_args()
    on_gpu = a.device.startswith("cuda")
    if on_gpu and not torch.cuda.is_available():
        print("SKIP: no GPU")
        return 77
    os.environ["GEMMD_LIBRARY"] = str(a.build / "client" / "libgemmd.so")
    import gemmd
    from gemmd import ffi
    with tempfile.TemporaryDirectory() as work:
        daemon = Daemon(a.build, a.device, pathlib.Path(work))
        try:
            with gemmd.Client(socket=f"{work}/gemmd.sock") as client:
                rows = [run(Case(mode, *map(int, size.split("x")), "cuda" if on_gpu else "cpu", **fields), client,
                            ffi, a.budget, on_gpu)
                        for size in a.sizes.split(",") for mode, fields in CASES]
        finally:
            daemon.stop()
    if a.out:
        a.out.write_text(json.dumps(rows, indent=1) + "\n")
    if on_gpu:
        print(f"least share of the copy rate: {100 * min(r['share'] for r in rows):.1f} % (goal 88 %)")
    return 1 if any(r["wrong"] for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
