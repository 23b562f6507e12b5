# SPDX-License-Identifier: Apache-2.0
"""Forward, dX and dW in plain PyTorch, for a job without a gemmd kernel.

On a GPU uses torch._grouped_mm when that takes the operands (no host synchronisation, CUDA graphs
can capture it). Otherwise computes expert by expert, and reads m_sizes on the host. The maths and
the two roundings are as in docs/training-job.md.
"""
import functools

import torch

from gemmd.torch import own
from gemmd.torch.layout import laid_well
from gemmd.torch.shapes import Flags


def _ends(m_sizes):
    return m_sizes.cumsum(0).to(torch.int32)


def _by_expert(rows, m_sizes):
    """The rows of each expert. Rows after the sum of m_sizes belong to no expert."""
    sizes = m_sizes.tolist()
    return rows[:sum(sizes)].split(sizes)


@functools.cache
def _groups(device):
    """True when torch._grouped_mm supports this GPU: before PyTorch 2.9 only Hopper."""
    return hasattr(torch, "_grouped_mm") and (
        torch.__version__ >= (2, 9) or torch.cuda.get_device_capability(device) == (9, 0))


def _can_group(*operands):
    """True when torch._grouped_mm takes the operands: on a GPU, in bf16, and rows of a multiple of
    16 bytes. The caller also applies laid_well()."""
    return all(t.is_cuda and t.dtype == torch.bfloat16 and t.shape[-1] % 8 == 0 and _groups(t.device)
               for t in operands)


def _rows_by_expert(rows, w, m_sizes, transposed=False):
    """Returns rows[i] @ w[e] for row i of expert e, w [E, K, N], or transposed [E, N, K]; rows in expert order."""
    group = _can_group(rows, w) and rows.shape[0]
    if group:
        rows, w = laid_well(rows), laid_well(w)
    w = w.transpose(1, 2) if transposed else w
    if group:
        return own.grouped_mm(rows, w, _ends(m_sizes))
    out = torch.cat([part @ w[e] for e, part in enumerate(_by_expert(rows, m_sizes))])
    return torch.cat((out, out.new_zeros((rows.shape[0] - out.shape[0], w.shape[-1]))))


def _scatter(rows, gather):
    return torch.empty_like(rows).index_copy_(0, gather.long(), rows)


def forward(x, w, m_sizes, gather, flags: Flags):
    """x [T or tokens, K], w [E, N, K] -> [T, N]"""
    rows = x.index_select(0, gather.long() // flags.topk) if flags.permute_x else x
    y = _rows_by_expert(rows, w, m_sizes, transposed=True)
    return _scatter(y, gather) if flags.permute_y else y


def multiply(y, topk_weights):
    """Multiplies rows by their routing weights, with a second rounding."""
    return y * topk_weights.reshape(-1, 1).to(y.dtype)


def dx(dy, w, m_sizes, gather, flags: Flags):
    """Returns dX [T, K] of dy [T, N] and w [E, N, K], in token order with permute_x (topk not yet summed)."""
    rows = dy.index_select(0, gather.long()) if flags.permute_y else dy
    d = _rows_by_expert(rows, w, m_sizes)
    return _scatter(d, gather) if flags.permute_x else d


def dw(dy, x, m_sizes, gather, flags: Flags):
    """Returns dW [E, N, K] of dy [T, N] and x [T or tokens, K]; experts without rows get zeros."""
    dy = dy.index_select(0, gather.long()) if flags.permute_y else dy
    x = x.index_select(0, gather.long() // flags.topk) if flags.permute_x else x
    if _can_group(dy, x) and x.shape[0]:
        out = own.grouped_mm(laid_well(dy).t(), laid_well(x), _ends(m_sizes))
        return torch.where((m_sizes == 0).reshape(-1, 1, 1), out.new_zeros(()), out)
    return torch.stack([d.t() @ part for d, part in zip(_by_expert(dy, m_sizes), _by_expert(x, m_sizes))])
