# SPDX-License-Identifier: Apache-2.0
"""Functions with first derivatives only.

torch.autograd.function.once_differentiable looks only at the incoming gradients. When the loss is
linear in the output, these are constants. PyTorch then treats the new gradients as constants too,
and silently loses their dependence on the saved operands.
"""
import functools

import torch
from torch.autograd import Function


class _Refused(Function):
    """Returns a gradient unchanged. A derivative of the gradient by `sources` raises."""

    @staticmethod
    def forward(ctx, grad, *sources):
        return grad.view_as(grad)

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError("gradients of gradients through gemmd.torch (create_graph=True, hvp, hessian): "
                           "its products and swiglu have first derivatives only. For such a loss call "
                           "gemmd.torch.uninstall(), or give transformers' model experts_implementation=\"eager\" "
                           "(which does not help Llama 4 under install())")


def once_differentiable(backward):
    """Wraps a Function's backward(ctx, saved, *grads). `saved` is ctx.saved_tensors; backward
    returns a tuple, None for inputs without gradient. Second derivatives are a RuntimeError."""
    @functools.wraps(backward)
    def backward_once(ctx, *grads):
        saved = ctx.saved_tensors  # read once: torch.utils.checkpoint recomputes at each read
        if not torch.is_grad_enabled():
            return backward(ctx, saved, *grads)
        with torch.no_grad():
            outs = backward(ctx, saved, *grads)
        sources = [t for t in (*grads, *saved) if t is not None and t.requires_grad]
        return tuple(None if t is None else _Refused.apply(t, *sources) for t in outs) if sources else outs
    return backward_once
