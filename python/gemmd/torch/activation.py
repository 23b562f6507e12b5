# SPDX-License-Identifier: Apache-2.0
"""SwiGLU between a layer's two products, with the routing weights, and its gradients in one pass.

Inductor makes two kernels of the gradients, which take three times as long as moving their bytes.
The first writes both halves of h's gradient with a condition per element; the second reads all
operands again (tests/gpu/moe_layer.py --stages profile prints both times). The op
gemmd::swiglu_grads reads each operand once: a Triton kernel on a GPU, else plain PyTorch.
"""
import functools

import torch
from torch.autograd import Function
from torch.nn import functional

from gemmd.torch.once import once_differentiable
from gemmd.torch.shapes import DTYPES

_lib = torch.library.Library("gemmd", "FRAGMENT")
_lib.define("swiglu_grads(Tensor h, Tensor? weights, Tensor da) -> (Tensor, Tensor)",
            tags=(torch.Tag.pt2_compliant_tag,))


def _new_weights_gradient(h, weights):
    return h.new_empty(h.shape[0] if weights is not None else 0, dtype=torch.float32)


def _plain_grads(h, weights, da):
    gate, up = h.float().chunk(2, dim=-1)
    da = da.float()
    sigmoid = torch.sigmoid(gate)
    silu = gate * sigmoid
    scaled = da if weights is None else da * weights.reshape(-1, 1).float()
    dh = torch.cat((scaled * up * (sigmoid + silu * (1 - sigmoid)), scaled * silu), dim=-1)
    dweights = _new_weights_gradient(h, weights)
    return dh.to(h.dtype), dweights if weights is None else (da * silu * up).sum(-1)


@functools.cache
def _find_launch():
    try:
        from gemmd.torch.activation_kernel import launch
    except ImportError:  # a PyTorch without Triton
        return None
    return launch


def _cuda_grads(h, weights, da):
    launch = _find_launch()
    if launch is None or not h.numel():
        return _plain_grads(h, weights, da)
    h, da = h.contiguous(), da.contiguous()
    weights = weights.contiguous() if weights is not None else None
    dh, dweights = torch.empty_like(h), _new_weights_gradient(h, weights)
    with torch.cuda.device_of(h):  # Triton launches on the current device
        launch(h, weights, da, dh, dweights)
    return dh, dweights


def _fake_grads(h, weights, da):
    return h.new_empty(h.shape), _new_weights_gradient(h, weights)


_lib.impl("swiglu_grads", _plain_grads, "CPU")
_lib.impl("swiglu_grads", _cuda_grads, "CUDA")
torch.library.register_fake("gemmd::swiglu_grads", _fake_grads, lib=_lib)
_grads = torch.ops.gemmd.swiglu_grads.default


class _Swiglu(Function):
    @staticmethod
    def forward(ctx, h, weights):
        ctx.save_for_backward(h, weights)
        gate, up = h.chunk(2, dim=-1)
        a = functional.silu(gate) * up
        return a if weights is None else a * weights.to(h.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, saved, da):
        h, weights = saved
        dh, dweights = _grads(h, weights, da)
        return dh, None if weights is None else dweights.view(weights.shape).to(weights.dtype)


def swiglu(h, weights=None):
    """silu(gate) * up of h [T, 2 * inter] (gate, then up), times floating weights [T, 1] if given.

    Returns [T, inter] in h's type (bfloat16, float16, float32), with gradients of h and weights,
    each in its own type; second derivatives are an error. The product uses the weights rounded to
    h's type, the gradient of h the weights unrounded. ValueError for other shapes and types.
    """
    if h.dim() != 2 or h.shape[1] % 2 or h.dtype not in DTYPES:
        raise ValueError(f"h is {tuple(h.shape)}, {h.dtype}: gate and up side by side, [T, 2 * inter], "
                         "in bfloat16, float16 or float32")
    if weights is not None and (weights.shape != (h.shape[0], 1) or not weights.is_floating_point()):
        raise ValueError(f"weights is {tuple(weights.shape)}, {weights.dtype}: one number of a floating "
                         f"type for each of {h.shape[0]} rows, [T, 1]")
    return _Swiglu.apply(h, weights)
