# SPDX-License-Identifier: Apache-2.0
"""Gradients that are taken once.

torch.autograd.function.once_differentiable looks at the incoming gradients alone. Of a loss that is
linear in the output they are constants: then the gradients are so, too, for PyTorch, and what they owe
to the saved operands is lost without a word.
"""
import functools

import torch
from torch.autograd import Function


class _Refused(Function):
    """A gradient as it is, made of tensors that its own gradient would be of."""

    @staticmethod
    def forward(ctx, grad, *sources):
        return grad.view_as(grad)

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError("gradients of gradients through gemmd.torch (create_graph=True, hvp, hessian): "
                           "its products and swiglu have first derivatives only")


def _refuse(outs, sources):
    return tuple(None if t is None else _Refused.apply(t, *sources) for t in outs)


def once_differentiable(backward):
    """A Function's backward(ctx, saved, *grads), of ctx.saved_tensors: a tuple, None for what has no
    gradient. A derivative of what it returns, by the gradients or by what was saved, is a RuntimeError."""
    @functools.wraps(backward)
    def backward_once(ctx, *grads):
        saved = ctx.saved_tensors  # read once: torch.utils.checkpoint makes them at that
        if not torch.is_grad_enabled():
            return backward(ctx, saved, *grads)
        with torch.no_grad():
            outs = backward(ctx, saved, *grads)
        sources = [t for t in (*grads, *saved) if t is not None and t.requires_grad]
        return _refuse(outs, sources) if sources else outs
    return backward_once
