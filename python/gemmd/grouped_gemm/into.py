# SPDX-License-Identifier: Apache-2.0
"""The product of a gmm, also into a tensor that is there already: the op gemmd::gmm_into.

gemmd's kernel writes straight to an output of the operands' type; in dW also to fp32, and it can add
to the old numbers. Otherwise the product goes to a new tensor of the operands' type, which is then
copied or added to the output.
"""
import torch

from gemmd.torch import ops
from gemmd.torch.custom_ops import define
from gemmd.torch.launch import OPERANDS, ROUTES_MOST, launch
from gemmd.torch.layout import ALIGNED
from gemmd.torch.plans import plans
from gemmd.torch.shapes import NO_PERMUTE, Call, has_numbers, sizes

_OPS = {"forward": ops.forward, "dX": ops.dx, "dW": ops.dw}
_announced = set()


def product(mode, a, b, m_sizes):
    """A new tensor with the product. operands.py has the shapes of each mode."""
    return _OPS[mode](a, b, m_sizes, None, *NO_PERMUTE)


def can_announce(mode, a, main_grad):
    """True when a kernel can add dW to main_grad, and the call has numbers."""
    return mode != "dW" and has_numbers(a) and _can_write(main_grad, "dW", a, True)


def announce(mode, a, b, m_sizes, main_grad):
    """Asks for all kernels of a training step at once: the product in `mode`, the gradient of a, and
    the dW that is added to main_grad."""
    first = Call(mode, a.device, a.dtype, a.shape[0], *sizes(mode, a, b, m_sizes), NO_PERMUTE)
    if not first.m or (first, main_grad.dtype) in _announced:
        return
    if len(_announced) >= ROUTES_MOST:
        _announced.clear()
    _announced.add((first, main_grad.dtype))
    dtype_out = None if main_grad.dtype == a.dtype else main_grad.dtype
    calls = [first._replace(mode=other) for other in OPERANDS if other != "dW"]
    plans.prepare([*calls, first._replace(mode="dW", dtype_out=dtype_out, accumulate=True)])


def _can_write(out, mode, a, accumulate):
    types = (a.dtype, torch.float32) if mode == "dW" else (a.dtype,)
    return (out.dtype in types and out.is_contiguous() and out.data_ptr() % ALIGNED == 0
            and (mode == "dW" or not accumulate))


def _run(out, mode, a, b, m_sizes, accumulate):
    if not a.shape[0] or not out.numel():
        if not accumulate:
            out.zero_()
    elif not (_can_write(out, mode, a, accumulate) and launch(
            mode, NO_PERMUTE, a.shape[0], out, a, b, m_sizes, None, accumulate=accumulate)):
        result = product(mode, a, b, m_sizes)
        out.add_(result) if accumulate else out.copy_(result)


into = define("gmm_into", "(Tensor(a!) out, str product, Tensor a, Tensor b, Tensor m_sizes, bool accumulate) -> ()",
              _run, _run, lambda *_: None)
"""Writes the product to `out`, or with `accumulate` adds the product. No gradients."""
