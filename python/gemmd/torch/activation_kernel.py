# SPDX-License-Identifier: Apache-2.0
"""The Triton kernels of gemmd::gate and gemmd::gate_grads: memory-bound, so each byte is moved once."""
import math

import triton
import triton.language as tl

ELEMENTS = 1024  # that a program takes in a step: eight for each thread, a vector of 16 bytes
COLUMNS_LEAST, COLUMNS_MOST = 64, 512


@triton.jit
def _load_pair(data, row, there, column, INTER: tl.constexpr, CLAMPED: tl.constexpr):
    """Gate and up: a row's even and odd columns (CLAMPED), or its halves."""
    if CLAMPED:
        two = tl.arange(0, 2)
        at = (row[:, None] * (2 * INTER) + column[None, :] * 2)[:, :, None] + two[None, None, :]
        gate, up = tl.split(tl.load(data + at, mask=there[:, :, None], other=0.0).to(tl.float32))
    else:
        at = row[:, None] * (2 * INTER) + column[None, :]
        gate = tl.load(data + at, mask=there, other=0.0).to(tl.float32)
        up = tl.load(data + at + INTER, mask=there, other=0.0).to(tl.float32)
    return gate, up


@triton.jit
def _load_gate(h, bias, expert_of_row, row, there, column, INTER: tl.constexpr, CLAMPED: tl.constexpr,
               BIASED: tl.constexpr):
    gate, up = _load_pair(h, row, there, column, INTER, CLAMPED)
    if BIASED:
        more_gate, more_up = _load_pair(bias, expert_of_row, there, column, INTER, CLAMPED)
        gate += more_gate
        up += more_up
    return gate, up


@triton.jit
def _gate(h, bias, expert, weights, a, rows, alpha, limit, INTER: tl.constexpr, CLAMPED: tl.constexpr,
          BIASED: tl.constexpr, WEIGHTED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_there = row < rows
    weight = tl.load(weights + row, mask=row_there, other=0.0).to(tl.float32) if WEIGHTED else 1.0
    weight = weight.to(a.dtype.element_ty).to(tl.float32) if WEIGHTED else weight
    expert_of_row = tl.load(expert + row, mask=row_there, other=0).to(tl.int64) if BIASED else row
    for first in range(0, INTER, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        there = row_there[:, None] & (column < INTER)[None, :]
        gate, up = _load_gate(h, bias, expert_of_row, row, there, column, INTER, CLAMPED, BIASED)
        if CLAMPED:
            gate = tl.minimum(gate, limit)
            up = tl.minimum(tl.maximum(up, -limit), limit) + 1
        out = gate * tl.sigmoid(alpha * gate) * up
        out = out * weight[:, None] if WEIGHTED else out
        tl.store(a + row[:, None] * INTER + column[None, :], out.to(a.dtype.element_ty), mask=there)


@triton.jit
def _gate_grads(h, bias, expert, weights, da, dh, dweights, a, rows, alpha, limit, INTER: tl.constexpr,
                CLAMPED: tl.constexpr, BIASED: tl.constexpr, WEIGHTED: tl.constexpr, AGAIN: tl.constexpr,
                ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_there = row < rows
    weight = tl.load(weights + row, mask=row_there, other=0.0).to(tl.float32) if WEIGHTED else 1.0
    expert_of_row = tl.load(expert + row, mask=row_there, other=0).to(tl.int64) if BIASED else row
    total = tl.zeros([ROWS], dtype=tl.float32)
    for first in range(0, INTER, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        there = row_there[:, None] & (column < INTER)[None, :]
        gate, up = _load_gate(h, bias, expert_of_row, row, there, column, INTER, CLAMPED, BIASED)
        grad = tl.load(da + row[:, None] * INTER + column[None, :], mask=there, other=0.0)
        grad = grad.to(tl.float32)
        gate_inside, up_inside = gate <= limit, tl.abs(up) <= limit
        if CLAMPED:
            gate = tl.minimum(gate, limit)
            up = tl.minimum(tl.maximum(up, -limit), limit) + 1
        sigmoid = tl.sigmoid(alpha * gate)
        glu = gate * sigmoid
        scaled = grad * weight[:, None] if WEIGHTED else grad
        of_gate = scaled * up * (sigmoid + alpha * glu * (1 - sigmoid))
        of_up = scaled * glu
        if CLAMPED:
            of_gate = tl.where(gate_inside, of_gate, 0.0)
            of_up = tl.where(up_inside, of_up, 0.0)
            two = tl.arange(0, 2)
            at = (row[:, None] * (2 * INTER) + column[None, :] * 2)[:, :, None] + two[None, None, :]
            tl.store(dh + at, tl.join(of_gate, of_up).to(dh.dtype.element_ty), mask=there[:, :, None])
        else:
            at = row[:, None] * (2 * INTER) + column[None, :]
            tl.store(dh + at, of_gate.to(dh.dtype.element_ty), mask=there)
            tl.store(dh + at + INTER, of_up.to(dh.dtype.element_ty), mask=there)
        total += tl.sum(grad * glu * up, axis=1)
        if AGAIN:  # as _gate computes it
            rounded = weight.to(dh.dtype.element_ty).to(tl.float32)[:, None] if WEIGHTED else 1.0
            tl.store(a + row[:, None] * INTER + column[None, :], (glu * up * rounded).to(dh.dtype.element_ty), mask=there)
    if WEIGHTED:
        tl.store(dweights + row, total, mask=row_there)


def _shape(rows, inter, bias, weights, clamped):
    """Returns (grid, constants) of a launch."""
    columns = min(max(math.gcd(inter, COLUMNS_MOST), COLUMNS_LEAST), COLUMNS_MOST)
    step = ELEMENTS // columns
    return (triton.cdiv(rows, step),), {"INTER": inter, "CLAMPED": clamped, "BIASED": bias is not None,
                                        "WEIGHTED": weights is not None, "ROWS": step,
                                        "COLUMNS": columns, "num_warps": 4}


def launch_gate(h, bias, expert, weights, a, clamped, alpha, limit):
    """Fills a [T, inter] from h [T, 2 * inter], both contiguous; bias [experts, 2 * inter] with expert [T], or None;
    weights [T] of a floating type, or None."""
    grid, constants = _shape(*a.shape, bias, weights, clamped)
    _gate[grid](h, bias, expert, weights, a, a.shape[0], alpha, limit, **constants)


def launch_grads(h, bias, expert, weights, da, dh, dweights, a, clamped, alpha, limit):
    """Arguments as of launch_gate(); da [T, inter], dh [T, 2 * inter], dweights [T] fp32; a [T, inter], or None."""
    grid, constants = _shape(*da.shape, bias, weights, clamped)
    _gate_grads[grid](h, bias, expert, weights, da, dh, dweights, a, da.shape[0], alpha, limit, AGAIN=a is not None,
                      **constants)
