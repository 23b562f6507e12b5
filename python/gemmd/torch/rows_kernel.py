# SPDX-License-Identifier: Apache-2.0
"""The Triton kernels of gemmd::sum_of_slots, gemmd::sum_of_experts and gemmd::clear_rest."""
import math

import triton
import triton.language as tl

ROWS, COLUMNS = 16, 128  # a step of sum_of_experts
SLOT_ELEMENTS = 1024  # a step of sum_of_slots: eight for each thread, a vector of 16 bytes
PROGRAMS_MOST = 264  # of clear_rest: usually no row is left to clear


@triton.jit(do_not_specialize=["tokens"])
def _sum_of_slots(rows, out, tokens, TOPK: tl.constexpr, WIDTH: tl.constexpr, TOKENS: tl.constexpr, COLUMNS: tl.constexpr):
    token = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    there = (token < tokens)[:, None] & (column < WIDTH)[None, :]
    first = token[:, None] * (TOPK * WIDTH) + column[None, :]
    total = tl.zeros([TOKENS, COLUMNS], dtype=tl.float32)
    for slot in tl.static_range(TOPK):
        total += tl.load(rows + first + slot * WIDTH, mask=there, other=0.0).to(tl.float32)
    tl.store(out + token[:, None] * WIDTH + column[None, :], total.to(out.dtype.element_ty), mask=there)


@triton.jit
def _sum_of_experts(rows, m_sizes, out, width, experts, EXPERTS: tl.constexpr, ROWS: tl.constexpr,
                    COLUMNS: tl.constexpr):
    expert = tl.program_id(0)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    index = tl.arange(0, EXPERTS)
    sizes = tl.load(m_sizes + index, mask=index < experts, other=0).to(tl.int64)
    first = tl.sum(tl.where(index < expert, sizes, 0))
    end = first + tl.sum(tl.where(index == expert, sizes, 0))
    total = tl.zeros([ROWS, COLUMNS], dtype=tl.float32)
    row = first
    while row < end:
        at = row + tl.arange(0, ROWS)
        there = (at < end)[:, None] & (column < width)[None, :]
        total += tl.load(rows + at[:, None] * width + column[None, :], mask=there, other=0.0).to(tl.float32)
        row += ROWS
    tl.store(out + expert.to(tl.int64) * width + column, tl.sum(total, axis=0), mask=column < width)


@triton.jit
def _clear_rest(rows, gather, m_sizes, count, experts, programs, stride, WIDTH: tl.constexpr,
                EXPERTS: tl.constexpr, COLUMNS: tl.constexpr):
    index = tl.arange(0, EXPERTS)
    first = tl.sum(tl.load(m_sizes + index, mask=index < experts, other=0).to(tl.int64))
    i = first + tl.program_id(0)
    while i < count:
        row = i if gather is None else tl.load(gather + i).to(tl.int64)
        for begin in range(0, WIDTH, COLUMNS):
            column = begin + tl.arange(0, COLUMNS)
            tl.store(rows + row * stride + column, tl.zeros([COLUMNS], rows.dtype.element_ty),
                     mask=column < WIDTH)
        i += programs


@triton.jit
def _write_zero(out):
    tl.store(out, 0.0)


def write_zero(out):
    """Writes a zero to the first element of out. The kernel is the least that Triton can launch."""
    _write_zero[(1,)](out)


def sum_of_slots(rows, out):
    """Sums rows [tokens * topk, N] by token into out [tokens, N], both contiguous."""
    tokens, width = out.shape
    columns = max(math.gcd(width, SLOT_ELEMENTS), SLOT_ELEMENTS // 8)
    step = SLOT_ELEMENTS // columns
    _sum_of_slots[(triton.cdiv(tokens, step), triton.cdiv(width, columns))](
        rows, out, tokens, TOPK=rows.shape[0] // tokens, WIDTH=width, TOKENS=step, COLUMNS=columns, num_warps=4)


def sum_of_experts(rows, m_sizes, out):
    """Sums rows [T, N] (contiguous) by expert into out [experts, N] fp32; m_sizes [experts]."""
    experts, width = out.shape
    if not width:
        return
    _sum_of_experts[(experts, triton.cdiv(width, COLUMNS))](
        rows, m_sizes, out, width, experts, EXPERTS=triton.next_power_of_2(experts), ROWS=ROWS,
        COLUMNS=COLUMNS, num_warps=4)


def clear_rest(rows, gather, m_sizes):
    """Writes zeros into the rows [T, N] behind the experts' rows, or those that gather [T] names there."""
    count, width = rows.shape
    programs = min(count, PROGRAMS_MOST)
    if not count or not width:
        return
    _clear_rest[(programs,)](rows, gather, m_sizes, count, m_sizes.shape[0], programs, rows.stride(0),
                             WIDTH=width, EXPERTS=triton.next_power_of_2(m_sizes.shape[0]), COLUMNS=1024, num_warps=4)
