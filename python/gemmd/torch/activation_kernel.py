# SPDX-License-Identifier: Apache-2.0
"""The Triton kernel of gemmd::swiglu_grads: memory-bound, so each byte is moved once."""
import math

import triton
import triton.language as tl

ELEMENTS = 1024  # per step: eight per thread, a vector of 16 bytes
COLUMNS_LEAST, COLUMNS_MOST = 64, 512


@triton.jit
def _swiglu_grads(h, weights, da, dh, dweights, rows, INTER: tl.constexpr, WEIGHTED: tl.constexpr,
                  ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_there = row < rows
    weight = tl.load(weights + row, mask=row_there, other=0.0).to(tl.float32) if WEIGHTED else 1.0
    total = tl.zeros([ROWS], dtype=tl.float32)
    for first in range(0, INTER, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        there = row_there[:, None] & (column < INTER)[None, :]
        at = row[:, None] * (2 * INTER) + column[None, :]
        gate = tl.load(h + at, mask=there, other=0.0).to(tl.float32)
        up = tl.load(h + at + INTER, mask=there, other=0.0).to(tl.float32)
        grad = tl.load(da + row[:, None] * INTER + column[None, :], mask=there, other=0.0)
        grad = grad.to(tl.float32)
        sigmoid = tl.sigmoid(gate)
        silu = gate * sigmoid
        scaled = grad * weight[:, None] if WEIGHTED else grad
        of_gate = scaled * up * (sigmoid + silu * (1 - sigmoid))
        tl.store(dh + at, of_gate.to(dh.dtype.element_ty), mask=there)
        tl.store(dh + at + INTER, (scaled * silu).to(dh.dtype.element_ty), mask=there)
        total += tl.sum(grad * silu * up, axis=1)
    if WEIGHTED:
        tl.store(dweights + row, total, mask=row_there)


def launch(h, weights, da, dh, dweights):
    """h, dh [T, 2 * inter], da [T, inter], contiguous; weights [T] of a floating type, or None;
    dweights [T] fp32."""
    rows, inter = da.shape
    columns = min(max(math.gcd(inter, COLUMNS_MOST), COLUMNS_LEAST), COLUMNS_MOST)
    step = ELEMENTS // columns
    _swiglu_grads[(triton.cdiv(rows, step),)](h, weights, da, dh, dweights, rows, inter,
                                              WEIGHTED=weights is not None, ROWS=step,
                                              COLUMNS=columns, num_warps=4)
