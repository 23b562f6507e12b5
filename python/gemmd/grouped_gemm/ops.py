# SPDX-License-Identifier: Apache-2.0
"""grouped_gemm.ops: gmm with gradients, permute and unpermute."""
import torch
from torch.autograd import Function

from gemmd.grouped_gemm import backend
from gemmd.grouped_gemm.into import announce, can_announce, into, product
from gemmd.grouped_gemm.operands import check, check_out, mode_of
from gemmd.grouped_gemm.permutes import permute, unpermute
from gemmd.torch.once import once_differentiable

__all__ = ["gmm", "permute", "unpermute"]


class _Gmm(Function):
    @staticmethod
    def forward(ctx, a, b, sizes, mode, main_grad):
        want_a, want_b = ctx.needs_input_grad[:2]
        ctx.save_for_backward(a if want_b else None, b if want_a else None, sizes)
        ctx.mode, ctx.main_grad = mode, main_grad
        if main_grad is not None and want_b and can_announce(mode, a, main_grad):
            a, b = a.detach(), b.detach()  # else launch() would also ask for a dW that is not added to main_grad
            announce(mode, a, b, sizes, main_grad)
        return product(mode, a, b, sizes)

    @staticmethod
    @once_differentiable
    def backward(ctx, saved, dy):
        a, b, sizes = saved
        want_a, want_b = ctx.needs_input_grad[:2]
        da = _gradient_of_a(ctx.mode, dy, b.detach(), sizes) if want_a else None
        if not want_b:
            return da, None, None, None, None
        mode, *of_b = _gradient_of_b(ctx.mode, dy, a.detach())
        if ctx.main_grad is None:
            return da, product(mode, *of_b, sizes), None, None, None
        into(ctx.main_grad, mode, *of_b, sizes, True)
        return da, None, None, None, None


def _gradient_of_a(mode, dy, b, sizes):
    if mode == "dW":
        return product("forward", b, dy, sizes)
    return product("dX" if mode == "forward" else "forward", dy, b, sizes)


def _gradient_of_b(mode, dy, a):
    """(mode, first operand, second operand) of the product that is b's gradient."""
    if mode == "dW":
        return "dX", a, dy
    return ("dW", dy, a) if mode == "forward" else ("dW", a, dy)


def gmm(a, b, batch_sizes, trans_b=False, *, trans_a=False, c=None, accumulate=False, main_grad=None):
    """The product of each expert's rows, with gradients of a and b.

        ops.gmm(a, b, batch_sizes)                   a [T, K], b [experts, K, N] -> [T, N]
        ops.gmm(a, b, batch_sizes, trans_b=True)     a [T, K], b [experts, N, K] -> [T, N]
        ops.gmm(a, b, batch_sizes, trans_a=True)     a [T, M], b [T, N] -> [experts, M, N]

    batch_sizes: [experts], int64 or int32, on the host or on a's device: rows of each expert, sum T.
    c, accumulate: as for backend.gmm().
    main_grad: a tensor of b's shape (fp32, say). The backward adds b's gradient to main_grad, and
        b.grad stays as it is. A kernel adds in fp32, without a rounding to the operands' type.
    ValueError for invalid arguments. A missing daemon is never an error.
    """
    mode = mode_of(trans_a, trans_b)
    wants = torch.is_grad_enabled() and any(
        isinstance(t, torch.Tensor) and t.requires_grad for t in (a, b, c))
    if not wants:
        return backend.gmm(a, b, batch_sizes, trans_a, trans_b, c, accumulate=accumulate)
    sizes = check(mode, a, b, batch_sizes, c, accumulate)
    if main_grad is not None:
        check_out("main_grad", main_grad, a, b.shape)
    out = _Gmm.apply(a, b, sizes, mode, main_grad)
    if c is None:
        return out
    return c.add_(out) if accumulate else c.copy_(out)
