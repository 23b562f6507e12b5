# SPDX-License-Identifier: Apache-2.0
"""A grouped product in Triton, as a user writes it, with 108 configs: the kernel of triton_ranks.py.

    y[r] = w[expert of r] x[r]      x [rows, K], w [experts, N, K], y [rows, N], sizes [experts] int32

Rows lie in the order of their experts; sizes[e] of them belong to expert e. A program computes a tile
of BM rows and BN columns. There are at most cdiv(rows, BM) + experts tiles of rows.
"""
import itertools

import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BM": m, "BN": n, "BK": k}, num_warps=w, num_stages=s)
           for m, n, k, w, s in itertools.product((32, 64, 128), (64, 128, 256), (32, 64), (4, 8), (2, 3, 4))]


@triton.jit
def multiply(x, w, y, sizes, N: tl.constexpr, K: tl.constexpr, experts, EXPERTS: tl.constexpr, BM: tl.constexpr,
             BN: tl.constexpr, BK: tl.constexpr):
    tile = tl.program_id(0)
    e = tl.arange(0, EXPERTS)
    rows = tl.load(sizes + e, mask=e < experts, other=0)
    tiles = (rows + BM - 1) // BM
    tiles_before, rows_before = tl.cumsum(tiles) - tiles, tl.cumsum(rows) - rows
    is_mine = (tiles_before <= tile) & (tile < tiles_before + tiles)
    end = tl.sum(tl.where(is_mine, rows_before + rows, 0))
    first = tl.sum(tl.where(is_mine, rows_before + (tile - tiles_before) * BM, 0))
    if first < end:
        expert = tl.sum(tl.where(is_mine, e, 0)).to(tl.int64)
        r, c = first + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
        k = tl.arange(0, BK)
        a = x + r[:, None] * K + k[None, :]
        b = w + expert * N * K + c[None, :] * K + k[:, None]
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for at in range(0, K, BK):
            left = tl.load(a, mask=r[:, None] < end, other=0.0)
            right = tl.load(b, mask=c[None, :] < N, other=0.0)
            acc = tl.dot(left, right, acc)
            a += BK
            b += BK
        tl.store(y + r[:, None] * N + c[None, :], acc.to(y.dtype.element_ty),
                 mask=(r[:, None] < end) & (c[None, :] < N))


def make(configs=CONFIGS, **options):
    """The kernel under triton.autotune. K must be a multiple of each BK."""
    return triton.autotune(configs=configs, key=["N", "K", "experts"], **options)(multiply)


def launch(kernel, x, w, y, sizes):
    (rows, k), (experts, n) = x.shape, w.shape[:2]
    kernel[lambda meta: (triton.cdiv(rows, meta["BM"]) + experts, triton.cdiv(n, meta["BN"]))](
        x, w, y, sizes, n, k, experts, EXPERTS=triton.next_power_of_2(experts))


def make_operands(rows, n, k, experts, device, dtype):
    """Returns random x and w, an empty y, and uneven sizes of experts."""
    torch.manual_seed(1)
    x, w = torch.randn(rows, k, device=device, dtype=dtype), torch.randn(experts, n, k, device=device, dtype=dtype)
    sizes = torch.bincount(torch.randint(experts, (rows,)), minlength=experts).to(torch.int32)
    return x, w, torch.empty(rows, n, device=device, dtype=dtype), sizes.to(device)


def error_of(x, w, y, sizes):
    """The relative norm of y's error."""
    right = torch.cat([part.float() @ one.float().t() for part, one in zip(x.split(sizes.tolist()), w)])
    return float((y.float() - right).norm() / right.norm())


def make_product(rows, n, k, experts, device):
    """Returns make()'s kernel, a function that launches it, and a function that computes the error of y."""
    operands, kernel = make_operands(rows, n, k, experts, device, torch.bfloat16), make()
    return kernel, lambda: launch(kernel, *operands), lambda: error_of(*operands)
