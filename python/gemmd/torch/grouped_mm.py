# SPDX-License-Identifier: Apache-2.0
"""The custom op gemmd::grouped_mm: torch._grouped_mm by gemmd's kernels for the caller alone. The
override of aten::_grouped_mm (install()) serves a whole process.

PyTorch's own kernel runs where install() would run it, too. The gradients are products of the same
op, so they have gradients themselves.
"""
import torch

from gemmd.torch import override, own
from gemmd.torch.custom_ops import LIBRARY, define


def _run(a, b, offs):
    out = override.serve(a, b, offs)
    return own.grouped_mm(a, b, offs).contiguous() if out is None else out


def _fake(a, b, offs):
    if a.dim() == 2 and b.dim() == 2:
        return a.new_empty((offs.shape[0], a.shape[0], b.shape[1]))
    return a.new_empty((a.shape[-2], b.shape[-1]))


def _setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _is_column_major(t):
    return t.stride(-2) == 1 and t.shape[-2] > 1


def _multiply(a, b, offs, transposed):
    """a @ b, or for `transposed` the same numbers with columns as the memory's rows."""
    if not transposed:
        return grouped_mm(a, b, offs)
    return grouped_mm(b.transpose(-2, -1), a.transpose(-2, -1), offs).transpose(-2, -1)


def _backward(ctx, grad):
    a, b, offs = ctx.saved_tensors
    grad, da, db = grad.contiguous(), None, None
    if ctx.needs_input_grad[0]:
        da = _multiply(grad, b.transpose(-2, -1), offs, b.dim() == 2 and _is_column_major(a))
    if ctx.needs_input_grad[1]:
        db = _multiply(a.transpose(-2, -1), grad, offs, _is_column_major(b))
    return da, db, None


grouped_mm = define("grouped_mm", "(Tensor a, Tensor b, Tensor offs) -> Tensor", _run, _run, _fake,
                    tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order))
torch.library.register_autograd("gemmd::grouped_mm", _backward, setup_context=_setup, lib=LIBRARY)
"""(a [T, K], b [E, K, N], offs [E]) -> [T, N], and the other products of torch._grouped_mm that have
an `offs`. offs: int32, the row at which each expert ends; rows after the last end are not written."""
