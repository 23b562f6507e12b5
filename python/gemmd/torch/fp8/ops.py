# SPDX-License-Identifier: Apache-2.0
"""The custom ops gemmd::fp8_forward, fp8_grads and fp8_grads_into, for torch.compile. The ops quantise
their bf16 operands and multiply; product.py combines them to a function with gradients.

`plan` is the place of fp8: "fp8" (all products), "dW" (the gradient of the weights stays bf16), "bf16".
"""
import torch

from gemmd.torch import launch as bf16
from gemmd.torch import ops, plain
from gemmd.torch.custom_ops import define
from gemmd.torch.fp8 import seen
from gemmd.torch.fp8.weights import quantised
from gemmd.torch.layout import ALIGNED
from gemmd.torch.product import multiply as multiply_bf16
from gemmd.torch.product import multiply_dx, operands_of_dw, own_rows
from gemmd.torch.scaled import E4M3, Gather, multiply, multiply_into_weights, quantise_columns, quantise_rows
from gemmd.torch.scaled_plain import BLOCK, Scaled, padded_columns
from gemmd.torch.shapes import Flags, gradient_rows, routed_rows

_ROUTING = "Tensor m_sizes, Tensor? gather_indices, int topk, bool permute_x, bool permute_y, bool transposed"
_HOW = "str scale_type, str plan"
_GRADS = f"Tensor dy, Tensor? x, Tensor? x_t, Tensor? x_t_scale, Tensor w, {_ROUTING}, bool summed, {_HOW}"
# Inductor's CUDA graphs warm up in a memory pool that no copy of weights may outlive, so they leave these ops out.
_TAGS = (torch.Tag.pt2_compliant_tag, *[t for t in [getattr(torch.Tag, "cudagraph_unsafe", None)] if t is not None])


def _n_and_k(w, transposed):
    n, k = w.shape[1:]
    return (k, n) if transposed else (n, k)


def _weights(w, transposed, scale_type):
    """(Scaled [E, N, K], Scaled [E, K, N])."""
    copies = quantised(w, scale_type)
    return copies[::-1] if transposed else copies


# ---- bf16 ----------------------------------------------------------------------------------------

def _bf16_dw(out, dy, x, m_sizes, gather, flags, transposed, summed, accumulate):
    """dW of bf16 operands into out."""
    dy, x, gather, flags = operands_of_dw(dy, x, m_sizes, gather, flags, transposed, summed, partial=True)
    flags = Flags(*flags)
    rows = gradient_rows(dy, gather, flags)
    writable = (out.dtype in (torch.bfloat16, torch.float32) and out.is_contiguous()
                and out.data_ptr() % ALIGNED == 0)
    if writable and bf16.launch("dW", flags, rows, out, dy, x, m_sizes, gather, accumulate=accumulate):
        return
    result = plain.dw(dy, x, m_sizes, gather, flags)
    if accumulate:
        out.add_(result)
    else:
        out.copy_(result)


# ---- running -------------------------------------------------------------------------------------

def _columns(x, rows, m_sizes, gather, scale_type, both=False):
    if m_sizes.shape[0] == 1:
        x, gather = x if gather is None else x.index_select(0, gather.index.long() // gather.topk), None
        x = own_rows(x, m_sizes)
    return quantise_columns(x, rows, m_sizes, gather, scale_type, both)


def _new_kept(x, k, rows, experts, keep):
    """The columns of x and their scales, without numbers; without elements unless `keep`."""
    wide = padded_columns(rows, experts) if keep else 0
    return x.new_empty((k if keep else 0, wide), dtype=E4M3), x.new_empty((wide // BLOCK, k), dtype=torch.float32)


def forward_of(x, w, m_sizes, gather, flags, transposed, scale_type, plan, keep):
    """(y [T, N], the columns of x and their scales when `keep`, else tensors without elements)."""
    rows = routed_rows(x, flags)
    n, k = _n_and_k(w, transposed)
    kept = _new_kept(x, k, rows, w.shape[0], keep)
    if rows == 0:
        return (x.new_empty((0, n)), *kept)
    if plan == "bf16":
        return (multiply_bf16(x, w.detach().to(torch.bfloat16), m_sizes, gather, flags, transposed), *kept)
    permuted = flags.permute_x or flags.permute_y
    m_sizes, gather = m_sizes.contiguous(), gather.contiguous() if permuted else None
    straight, _ = _weights(w, transposed, scale_type)
    out = x.new_empty((rows, n))
    if keep:
        of_x = Gather(gather, flags.topk) if flags.permute_x else None
        a, turned = _columns(x, rows, m_sizes, of_x, scale_type, both=True)
        kept, flags = (turned.q, turned.scale.t()), flags._replace(permute_x=False)
    else:
        a = quantise_rows(x, x.shape[0], None, scale_type, by_row=flags.permute_x)
    multiply("forward", flags, rows, out, a, straight, m_sizes, gather)
    return (out, *kept)


def _note(mode, device, rows, w, flags, transposed, summed, scale_type, place, out=None, accumulate=False, kept=()):
    seen.note(seen.Product(mode, device, rows, tuple(w.shape), w.dtype, tuple(flags), transposed, summed, scale_type,
                           place, torch.bfloat16 if out is None else out.dtype, accumulate,
                           sum(t.numel() * t.element_size() for t in kept)))


def _forward(x, w, m_sizes, gather, topk, permute_x, permute_y, transposed, scale_type, plan, keep):
    flags = Flags(topk, permute_x, permute_y)
    y, *kept = forward_of(x, w, m_sizes, gather, flags, transposed, scale_type, plan, keep)
    _note("forward", x.device, y.shape[0], w, flags, transposed, False, scale_type, "bf16" if plan == "bf16" else "fp8",
          kept=kept if keep else (x,))
    return (y, *kept)


def grads_of(dy, x, x_t, x_t_scale, w, m_sizes, gather, flags, transposed, summed, scale_type, plan, dx, dw, accumulate):
    """Writes the gradients to dx and dw; None: not wanted."""
    permuted = flags.permute_x or flags.permute_y
    m_sizes, gather = m_sizes.contiguous(), gather.contiguous() if permuted else None
    rows = gather.shape[0] if permuted else dy.shape[0]
    if dw is not None and plan != "fp8":
        _bf16_dw(dw, dy, x, m_sizes, gather, flags, transposed, summed, accumulate)
    if dx is not None and plan == "bf16":
        dx.copy_(multiply_dx(dy, w.detach().to(torch.bfloat16), m_sizes, gather, flags, transposed, summed))
    dx, dw = dx if plan != "bf16" else None, dw if plan == "fp8" else None
    of_dy = Gather(gather, flags.topk if summed else 1) if flags.permute_y else None
    straight = turned = None
    if dw is not None:
        straight, turned = _columns(dy, rows, m_sizes, of_dy, scale_type, both=dx is not None)
    elif dx is not None:
        straight = quantise_rows(dy, rows, of_dy, scale_type)
    if dx is not None:
        _, w_t = _weights(w, transposed, scale_type)
        multiply("dX", Flags(flags.topk, flags.permute_x, False), rows, dx, straight, w_t, m_sizes, gather)
    if dw is not None:
        if x_t is not None:
            of_x = Scaled(x_t, x_t_scale.t())
        else:
            _, of_x = _columns(x, rows, m_sizes, Gather(gather, flags.topk) if flags.permute_x else None, scale_type)
        multiply_into_weights(dw, *((of_x, turned) if transposed else (turned, of_x)), rows, m_sizes, accumulate)


def _new_grads(dy, x, x_t, x_t_scale, w, m_sizes, gather, topk, permute_x, permute_y, transposed, summed, scale_type,
               plan, want_x, want_w=False):
    """(dx, dw) without numbers; without elements where they are not wanted."""
    rows = gather.shape[0] if permute_x or permute_y else dy.shape[0]
    return (dy.new_empty((rows, _n_and_k(w, transposed)[1]) if want_x else (0,)),
            torch.empty(w.shape if want_w else (0,), dtype=w.dtype, device=w.device))


def _write_grads(dy, x, x_t, x_t_scale, w, m_sizes, gather, topk, permute_x, permute_y, transposed, summed, scale_type,
                 plan, dx, dw, accumulate):
    flags, rows = Flags(topk, permute_x, permute_y), gather.shape[0] if permute_x or permute_y else dy.shape[0]
    if rows == 0:
        return None if dw is None or accumulate else dw.zero_()
    grads_of(dy, x, x_t, x_t_scale, w, m_sizes, gather, flags, transposed, summed, scale_type, plan, dx, dw, accumulate)
    how = dy.device, rows, w, flags, transposed, summed, scale_type
    if dx is not None:
        _note("dX", *how, "bf16" if plan == "bf16" else "fp8")
    if dw is not None:
        _note("dW", *how, "fp8" if plan == "fp8" else "bf16", dw, accumulate)
    return None


def _grads(*arguments):
    dx, dw = _new_grads(*arguments)
    *given, want_x, want_w = arguments
    _write_grads(*given, dx if want_x else None, dw if want_w else None, False)
    return dx, dw


def _grads_into(main_grad, *arguments):
    dx, _ = _new_grads(*arguments)
    *given, want_x = arguments
    _write_grads(*given, dx if want_x else None, main_grad, True)
    return dx


def _forward_checked(x, w, m_sizes, gather, topk, permute_x, permute_y, *rest):
    flags = Flags(topk, permute_x, permute_y)
    if x.shape[0]:
        ops._check_values(routed_rows(x, flags), m_sizes, gather, flags)
    return _forward(x, w, m_sizes, gather, topk, permute_x, permute_y, *rest)


# ---- for torch.compile ---------------------------------------------------------------------------

def _fake_forward(x, w, m_sizes, gather, topk, permute_x, permute_y, transposed, scale_type, plan, keep):
    rows = x.shape[0] * topk if permute_x else x.shape[0]
    n, k = _n_and_k(w, transposed)
    return (x.new_empty((rows, n)), *_new_kept(x, k, rows, w.shape[0], keep))


forward = define("fp8_forward", f"(Tensor x, Tensor w, {_ROUTING}, {_HOW}, bool keep) -> (Tensor, Tensor, Tensor)",
                 _forward_checked, _forward, _fake_forward, _TAGS)
grads = define("fp8_grads", f"({_GRADS}, bool want_x, bool want_w) -> (Tensor, Tensor)",
               _grads, _grads, _new_grads, _TAGS)
grads_into = define("fp8_grads_into", f"(Tensor(a!) main_grad, {_GRADS}, bool want_x) -> Tensor",
                    _grads_into, _grads_into, lambda main_grad, *rest: _new_grads(*rest)[0], _TAGS)
