# SPDX-License-Identifier: Apache-2.0
"""Small ops on routed rows: sums over a token's rows and over an expert's, zeros in rows that no product writes, and
an expert's bias.

A Triton kernel on a GPU, else plain PyTorch. The rows are in expert order, m_sizes[e] for expert e;
the rows after the sum of m_sizes belong to no expert of this rank.
"""
import functools
import importlib
import threading
import warnings

import torch
from torch.autograd import Function

from gemmd.torch.custom_ops import define
from gemmd.torch.once import once_differentiable

# The threads that compile Triton kernels ahead (warm.py), and warm.py itself. Meanwhile other threads run plain
# PyTorch, and do not wait for a compiler.
compiling = set()


def may_call_triton():
    return not compiling or threading.current_thread() in compiling


@functools.cache
def _can_launch(device):
    """False for a PyTorch without Triton, and when Triton cannot launch a kernel: no C compiler, say."""
    out = torch.empty(1, device=device)
    try:
        from gemmd.torch import rows_kernel
        with torch.cuda.device_of(out):
            rows_kernel.write_zero(out)
    except ImportError:
        return False
    except Exception as e:  # Triton has errors of many types
        warnings.warn(f"gemmd: Triton cannot launch a kernel on {device} ({e}); the ops around the products run in "
                      "plain PyTorch (this is said once)", RuntimeWarning, stacklevel=2)
        return False
    return True


def find_kernels(module, device):
    """The module of gemmd.torch that has an op's Triton kernels; None when plain PyTorch has to run."""
    return importlib.import_module(f"gemmd.torch.{module}") if may_call_triton() and _can_launch(device) else None


def _to(t, dtype):
    """Skips no-op conversions: dynamo (2.11) loses the gradient of a Function that ends in one."""
    return t if t.dtype == dtype else t.to(dtype)


def plain_sum_of_slots(rows, topk):
    slots = rows.view(-1, topk, rows.shape[1])
    total = _to(slots[:, 0], torch.float32)
    for slot in range(1, topk):
        total = total + _to(slots[:, slot], torch.float32)
    return _to(total, rows.dtype)


def _new_sum_of_slots(rows, topk):
    return rows.new_empty((rows.shape[0] // topk, rows.shape[1]))


def _cuda_sum_of_slots(rows, topk):
    kernels = find_kernels("rows_kernel", rows.device)
    if kernels is None or not rows.numel():
        return plain_sum_of_slots(rows, topk)
    rows, out = rows.contiguous(), _new_sum_of_slots(rows, topk)
    with torch.cuda.device_of(rows):
        kernels.sum_of_slots(rows, out)
    return out


def _new_sums(rows, m_sizes):
    return rows.new_empty((m_sizes.shape[0], rows.shape[1]), dtype=torch.float32)


def _plain_sums(rows, m_sizes):
    sizes = m_sizes.tolist()
    parts = rows[:sum(sizes)].split(sizes)
    return torch.stack([part.sum(0, dtype=torch.float32) for part in parts])


def _cuda_sums(rows, m_sizes):
    kernels = find_kernels("rows_kernel", rows.device)
    if kernels is None:
        return _plain_sums(rows, m_sizes)
    rows, out = rows.contiguous(), _new_sums(rows, m_sizes)
    with torch.cuda.device_of(rows):
        kernels.sum_of_experts(rows, m_sizes.contiguous(), out)
    return out


def _plain_clear(rows, gather, m_sizes):
    rest = slice(int(m_sizes.sum()), None)
    rows[rest if gather is None else gather[rest].long()] = 0


def _cuda_clear(rows, gather, m_sizes):
    kernels = find_kernels("rows_kernel", rows.device)
    if kernels is None:
        return _plain_clear(rows, gather, m_sizes)
    with torch.cuda.device_of(rows):
        kernels.clear_rest(rows, None if gather is None else gather.contiguous(), m_sizes.contiguous())


sum_of_slots = define("sum_of_slots", "(Tensor rows, int topk) -> Tensor",
                      plain_sum_of_slots, _cuda_sum_of_slots, _new_sum_of_slots)
"""rows [tokens * topk, N] -> [tokens, N]: the sum of each token's rows, in fp32 and slot by slot."""

sum_of_experts = define("sum_of_experts", "(Tensor rows, Tensor m_sizes) -> Tensor",
                        _plain_sums, _cuda_sums, _new_sums)
"""rows [T, N] in expert order, m_sizes [experts] -> [experts, N] in fp32, in a fixed order of sums."""

clear_rest = define("clear_rest", "(Tensor(a!) rows, Tensor? gather_indices, Tensor m_sizes) -> ()",
                    _plain_clear, _cuda_clear, lambda rows, gather, m_sizes: None)
"""Writes zeros to rows[gather_indices[i]] for each i from the sum of m_sizes on; without gather_indices to rows[i].
rows: [T, N], adjacent elements in a row."""


class _AddBias(Function):
    @staticmethod
    def forward(ctx, h, bias, expert, m_sizes):
        ctx.save_for_backward(m_sizes)
        ctx.dtype = bias.dtype
        return h + bias.index_select(0, expert).to(h.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, saved, dy):
        m_sizes, = saved
        dbias = sum_of_experts(dy, m_sizes).to(ctx.dtype) if ctx.needs_input_grad[1] else None
        return dy, dbias, None, None


def add_bias(h, bias, expert, m_sizes):
    """Returns h [T, N] in expert order plus bias [experts, N] of each row's expert, expert [T]; m_sizes
    [experts]. Rows after the sum of m_sizes count for no bias's gradient."""
    return _AddBias.apply(h, bias, expert, m_sizes)
