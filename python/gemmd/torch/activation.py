# SPDX-License-Identifier: Apache-2.0
"""The gated activation between a layer's two products, with the routing weights and an expert's bias,
and its gradients in one pass.

Plain PyTorch makes a kernel of each step. Inductor makes two kernels of the gradients, which take
three times as long as moving their bytes: the first writes both halves of h's gradient with a
condition per element; the second reads all operands again (tests/gpu/moe_layer.py --stages profile
prints both times). The ops gemmd::gate and gemmd::gate_grads read each operand once: Triton kernels
on a GPU, else plain PyTorch. With `again`, gate_grads also writes the activation anew, for a layer
that does not keep it. A product with a bias needs no bias of its own: the activation reads the
product's rows anyway, and adds the bias on the way.
"""
from typing import NamedTuple

import torch
from torch.autograd import Function
from torch.nn import functional

from gemmd.torch.once import once_differentiable
from gemmd.torch.rows import find_kernels, sum_of_experts
from gemmd.torch.shapes import DTYPES

_lib = torch.library.Library("gemmd", "FRAGMENT")
_OPERANDS = "Tensor h, Tensor? bias, Tensor? expert, Tensor? weights"
_KIND = "bool clamped, float alpha, float limit"
_lib.define(f"gate({_OPERANDS}, {_KIND}) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
_lib.define(f"gate_grads({_OPERANDS}, Tensor da, bool again, {_KIND}) -> (Tensor, Tensor, Tensor)",
            tags=(torch.Tag.pt2_compliant_tag,))


class Kind(NamedTuple):
    """The activation of a gate g and u. Plain: silu(g) u, of h's halves. Clamped, as in gpt-oss: of
    h's even and odd columns, g sigmoid(alpha g) (u + 1), g at most `limit`, u within -limit..limit."""
    clamped: bool = False
    alpha: float = 1.0
    limit: float = 0.0


SWIGLU = Kind()


# ---- in plain PyTorch ------------------------------------------------------------------------------

def _with_bias(h, bias, expert):
    return h if bias is None else h + bias.index_select(0, expert).to(h.dtype)


def _halves(h, kind):
    return (h[:, ::2], h[:, 1::2]) if kind.clamped else h.chunk(2, dim=-1)


def plain_gate(h, bias, expert, weights, kind):
    gate, up = _halves(_with_bias(h, bias, expert), kind)
    if kind.clamped:
        gate, up = gate.clamp(max=kind.limit), up.clamp(-kind.limit, kind.limit)
        a = gate * torch.sigmoid(kind.alpha * gate) * (up + 1)
    else:
        a = functional.silu(gate) * up
    return a if weights is None else a * weights.reshape(-1, 1).to(h.dtype)


def _plain_gate_op(h, bias, expert, weights, *kind):
    return plain_gate(h, bias, expert, weights, Kind(*kind))


def _new_weights_gradient(h, weights):
    return h.new_empty(h.shape[0] if weights is not None else 0, dtype=torch.float32)


def _new_again(h, again):
    return h.new_empty((h.shape[0] if again else 0, h.shape[1] // 2))


def _plain_grads(h, bias, expert, weights, da, again, *kind):
    kind = Kind(*kind)
    a = plain_gate(h, bias, expert, weights, kind) if again else _new_again(h, again)
    gate, up = _halves(_with_bias(h.float(), bias, expert), kind)
    da = da.float()
    scaled = da if weights is None else da * weights.reshape(-1, 1).float()
    inside = 1.0, 1.0
    if kind.clamped:
        inside = gate <= kind.limit, up.abs() <= kind.limit
        gate, up = gate.clamp(max=kind.limit), up.clamp(-kind.limit, kind.limit) + 1
    sigmoid = torch.sigmoid(kind.alpha * gate)
    glu = gate * sigmoid
    of_gate = scaled * up * (sigmoid + kind.alpha * glu * (1 - sigmoid)) * inside[0]
    of_up = scaled * glu * inside[1]
    dh = torch.stack((of_gate, of_up), dim=-1).flatten(1) if kind.clamped else torch.cat((of_gate, of_up), dim=-1)
    dweights = _new_weights_gradient(h, weights)
    return dh.to(h.dtype), dweights if weights is None else (da * glu * up).sum(-1), a


# ---- on a GPU --------------------------------------------------------------------------------------

def _operands(h, bias, expert, weights):
    whole = [None if t is None else t.contiguous() for t in (h, bias, expert, weights)]
    return whole[0], whole[1:]


def _cuda_gate(h, bias, expert, weights, *kind):
    kernels = find_kernels("activation_kernel", h.device)
    if kernels is None or not h.numel():
        return _plain_gate_op(h, bias, expert, weights, *kind)
    h, rest = _operands(h, bias, expert, weights)
    a = h.new_empty((h.shape[0], h.shape[1] // 2))
    with torch.cuda.device_of(h):  # Triton launches on the current device
        kernels.launch_gate(h, *rest, a, *kind)
    return a


def _cuda_grads(h, bias, expert, weights, da, again, *kind):
    kernels = find_kernels("activation_kernel", h.device)
    if kernels is None or not h.numel():
        return _plain_grads(h, bias, expert, weights, da, again, *kind)
    h, rest = _operands(h, bias, expert, weights)
    dh, dweights, a = torch.empty_like(h), _new_weights_gradient(h, weights), _new_again(h, again)
    with torch.cuda.device_of(h):
        kernels.launch_grads(h, *rest, da.contiguous(), dh, dweights, a if again else None, *kind)
    return dh, dweights, a


# ---- ops -------------------------------------------------------------------------------------------

def _fake_gate(h, bias, expert, weights, *kind):
    return h.new_empty((h.shape[0], h.shape[1] // 2))


def _fake_grads(h, bias, expert, weights, da, again, *kind):
    return h.new_empty(h.shape), _new_weights_gradient(h, weights), _new_again(h, again)


for _name, _on_cpu, _on_cuda, _fake in (("gate", _plain_gate_op, _cuda_gate, _fake_gate),
                                        ("gate_grads", _plain_grads, _cuda_grads, _fake_grads)):
    _lib.impl(_name, _on_cpu, "CPU")
    _lib.impl(_name, _on_cuda, "CUDA")
    torch.library.register_fake(f"gemmd::{_name}", _fake, lib=_lib)
_gate, _grads = torch.ops.gemmd.gate.default, torch.ops.gemmd.gate_grads.default


def gate(h, bias, expert, weights, kind):
    """The activation without gradients: see gated()."""
    if torch.compiler.is_compiling():  # Inductor fuses these operations into one kernel
        return plain_gate(h, bias, expert, weights, Kind(*kind))
    return _gate(h, bias, expert, weights, *kind)


def gradients(operands, da, kind, want_bias, again=False):
    """The gradients (of h, bias, weights, each in its operand's type) of gate(), and the activation, which has numbers
    only with `again`. operands: those of gated(), in the order of _Gate."""
    h, bias, expert, weights, m_sizes = operands
    dh, dweights, a = _grads(h, bias, expert, weights, da, again, *kind)
    dbias = sum_of_experts(dh, m_sizes).to(bias.dtype) if bias is not None and want_bias else None
    return dh, dbias, None if weights is None else dweights.view(weights.shape).to(weights.dtype), a


class _Gate(Function):
    @staticmethod
    def forward(ctx, h, bias, expert, weights, m_sizes, *kind):
        ctx.save_for_backward(h, bias, expert, weights, m_sizes)
        ctx.kind = kind
        return gate(h, bias, expert, weights, kind)

    @staticmethod
    @once_differentiable
    def backward(ctx, saved, da):
        dh, dbias, dweights, _ = gradients(saved, da, ctx.kind, ctx.needs_input_grad[1])
        return dh, dbias, None, dweights, None, None, None, None


def gated(h, weights, kind, bias=None, expert=None, m_sizes=None):
    """The activation `kind` of h [T, 2 * inter] plus bias [experts, 2 * inter] of each row's expert,
    times weights [T, 1]: [T, inter]. expert: [T]; m_sizes: [experts], rows in expert order; both
    needed with a bias."""
    return _Gate.apply(h, bias, expert, weights, m_sizes, *kind)


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
    return gated(h, weights, SWIGLU)
