# SPDX-License-Identifier: Apache-2.0
"""A bias for each expert, added to the expert's rows."""
from torch.autograd import Function

from gemmd.torch.once import once_differentiable
from gemmd.torch.rows import sum_of_experts


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
