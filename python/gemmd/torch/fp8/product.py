# SPDX-License-Identifier: Apache-2.0
"""grouped_gemm() and grouped_gemm_sum() in fp8, with gradients.

Kept for the backward are the weights, and for dW the fewer bytes of two: x in bf16, 2 bytes a number, or
the fp8 columns that dW multiplies, 1.03 bytes for each routed row, with every expert's rows padded to 128.
"""
import functools
from typing import NamedTuple, Optional

import torch
from torch.autograd import Function
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from gemmd.torch.fp8 import ops
from gemmd.torch.once import once_differentiable
from gemmd.torch.plans import plans
from gemmd.torch.product import _refuse_others, _sum_rows, autocast, check_shapes, gradient_of_x
from gemmd.torch.scaled import E4M3, SCALE_TYPES, quantise_call
from gemmd.torch.scaled_plain import padded_columns
from gemmd.torch.shapes import NO_PERMUTE, Call, Flags, describe, has_numbers, routed_rows

ALIGN = 16  # of N and K
PLANS = {None: "fp8", False: "fp8", "": "fp8", "dW": "dW", "all": "bf16", True: "bf16"}
_hook = None


class Layer(NamedTuple):
    """A product, for the hook of stay_bf16()."""
    rows: int  # routed rows
    n: int
    k: int
    experts: int
    main_grad: Optional[torch.dtype]  # of the tensor that the weights' gradient is added to
    name: str  # the argument `name` of the call; in transformers of name_layers()


def stay_bf16(hook):
    """hook(Layer) says what of a product stays bf16: "all", "dW" (the gradient of the weights), or None. Holds for
    later calls; stay_bf16(None): everything runs in fp8. torch.compile calls the hook as it traces."""
    global _hook
    if hook is not None and not callable(hook):
        raise TypeError(f"the hook is {hook!r}: it is a function of a Layer, or None")
    _hook = hook


def _plan(layer):
    if _hook is None:
        return "fp8"
    answer = _hook(layer)
    if answer not in PLANS:
        raise ValueError(f'the hook of stay_bf16() returned {answer!r}: "all", "dW" or None')
    return PLANS[answer]


# ---- the function with gradients -----------------------------------------------------------------

class Routing(NamedTuple):
    """How the rows reach their experts, and how the weights lie."""
    topk: int
    permute_x: bool
    permute_y: bool
    transposed: bool


def keeps_fp8(rows, experts, routing):
    """True when the fp8 columns that dW multiplies take fewer bytes than x in bf16. rows: of x."""
    routed = rows * routing.topk if routing.permute_x else rows
    return padded_columns(routed, experts) * 33 < rows * 64  # 1 + 4 / 128 bytes, and 2


class _Product(Function):
    @staticmethod
    def forward(ctx, x, w, m_sizes, gather, main_grad, routing, summed, partial, scale_type, plan):
        want_x, want_w = ctx.needs_input_grad[:2]
        keep = want_w and plan == "fp8" and keeps_fp8(x.shape[0], w.shape[0], routing)
        y, x_t, x_t_scale = ops.forward(x, w, m_sizes, gather, *routing, scale_type, plan, keep)
        kept = (None, x_t, x_t_scale) if keep else (x if want_w else None, None, None)
        ctx.save_for_backward(*kept, w, m_sizes, gather)
        ctx.main_grad, ctx.how = main_grad, (routing, summed, partial, scale_type, plan)
        return _sum_rows(y, m_sizes, gather, routing.topk, partial) if summed else y

    @staticmethod
    @once_differentiable
    def backward(ctx, saved, dy):
        m_sizes, gather = saved[-2:]
        routing, summed, partial, scale_type, plan = ctx.how
        want_x, want_w = ctx.needs_input_grad[:2]
        rest = (dy, *saved, *routing, summed, scale_type, plan, want_x)
        dw = None
        if want_w and ctx.main_grad is not None:
            dx = ops.grads_into(ctx.main_grad, *rest)
        else:
            dx, dw = ops.grads(*rest, want_w)
        if want_x:
            dx = gradient_of_x(dx, m_sizes, gather, *routing[:2], partial)
        return dx if want_x else None, dw if want_w else None, *[None] * 8


# ---- kernels before the first step ---------------------------------------------------------------

def _calls_of_a_step(x_rows, w, routing, summed, main_grad, scale_type, plan):
    """All launches in fp8 of a training step's product. x_rows: rows of x."""
    topk, permute_x, permute_y, transposed = routing
    rows, device, experts = x_rows * topk if permute_x else x_rows, w.device, w.shape[0]
    if rows == 0 or plan == "bf16":
        return []
    n, k = ops._n_and_k(w, transposed)
    keep = plan == "fp8" and keeps_fp8(x_rows, experts, routing)
    of_x, of_dy = topk if permute_x else 0, (topk if summed else 1) if permute_y else 0
    product = Call("forward", device, E4M3, rows, n, k, experts, Flags(topk, permute_x and not keep, permute_y).meant(),
                   quant="fp8_block")
    calls = [quantise_call("both", device, rows, k, experts, of_x, scale_type) if keep else
             quantise_call("rows", device, x_rows, k, 1, 0, scale_type),
             quantise_call("weights", device, experts * w.shape[1], w.shape[2], experts, 0, scale_type),
             product, product._replace(mode="dX", flags=Flags(topk, permute_x, False).meant()),
             quantise_call("both" if plan == "fp8" else "rows", device, rows, n, experts, of_dy, scale_type)]
    if plan == "fp8":
        out = w if main_grad is None else main_grad
        calls.append(product._replace(
            mode="dW", n=k if transposed else n, k=n if transposed else k, flags=NO_PERMUTE,
            dtype_out=torch.float32 if out.dtype == torch.float32 else None, accumulate=main_grad is not None))
        calls += [] if keep else [quantise_call("columns", device, rows, k, experts, of_x, scale_type)]
    return calls


def _prepare(x, w, routing, summed, main_grad, scale_type, plan):
    """Asks for all kernels of a training step at once, so that the daemon tunes them side by side."""
    key = x.shape[0], w.device, w.shape, w.dtype, routing, summed, main_grad is None, scale_type, plan
    if plans.is_new_layer(key):
        plans.prepare(_calls_of_a_step(x.shape[0], w, routing, summed, main_grad, scale_type, plan))


def calls_of_layer(tokens, experts, topk, hidden, inter):
    """All launches in fp8 of a training step of a layer with SwiGLU, weights [experts, out, in] in bf16."""
    first, second = (torch.empty((experts, *size), dtype=torch.bfloat16, device="meta")
                     for size in ((2 * inter, hidden), (hidden, inter)))
    return [call for w, rows, summed in ((first, tokens, False), (second, tokens * topk, True))
            for call in _calls_of_a_step(rows, w, Routing(topk, not summed, summed, False), summed, None, "fp32", "fp8")]


def prepare_layer(x, first, second, topk, transposed, meanwhile=None, names=("", "")):
    """As gemmd.torch.launch.prepare_layer(), in fp8: asks for both products of a layer in all modes. names: of the
    products, for the hook of stay_bf16()."""
    key = "fp8", x.shape[0], first.device, first.shape, second.shape, first.dtype, topk, transposed, _hook, names
    if x.shape[0] == 0 or not plans.is_new_layer(key):
        return
    calls = []
    for w, x_rows, summed, name in ((first, x.shape[0], False, names[0]), (second, x.shape[0] * topk, True, names[1])):
        n, k = ops._n_and_k(w, transposed)
        plan = _plan(Layer(x.shape[0] * topk, n, k, w.shape[0], None, name))
        calls += _calls_of_a_step(x_rows, w, Routing(topk, not summed, summed, transposed), summed, None, "fp32", plan)
    plans.prepare(calls, meanwhile and functools.partial(meanwhile, torch.bfloat16))


# ---- the functions -------------------------------------------------------------------------------

def _check(x, w, m_sizes, gather, routing, partial, main_grad, scale_type):
    if x.dtype != torch.bfloat16 or w.dtype not in (torch.bfloat16, torch.float32):
        raise ValueError(f"x is {x.dtype} and w {w.dtype}: the quantisers take bfloat16 x, and bfloat16 or float32 weights")
    if is_traceable_wrapper_subclass(x) or is_traceable_wrapper_subclass(w):
        raise ValueError(f"x is a {type(x).__name__} and w a {type(w).__name__}: give plain tensors, such as to_local()")
    check_shapes(x, w, m_sizes, gather, Flags(*routing[:3]), routing.transposed, partial)
    if w.shape[1] % ALIGN or w.shape[2] % ALIGN or 0 in w.shape:
        raise ValueError(f"w is {tuple(w.shape)}: N and K are multiples of {ALIGN} in fp8, which sums over both; "
                         "keep this product bf16 (gemmd.torch.grouped_gemm)")
    if scale_type not in SCALE_TYPES:
        raise ValueError(f"scale_type is {scale_type!r}: fp32, or pow2 for powers of two")
    if main_grad is None:
        return
    if not isinstance(main_grad, torch.Tensor) or main_grad.shape != w.shape or main_grad.device != w.device \
            or not main_grad.is_floating_point():
        raise ValueError(f"main_grad is {describe(main_grad)}: it is a floating-point tensor of w's shape "
                         f"{tuple(w.shape)} on {w.device}")


def _run(x, w, m_sizes, gather, routing, summed, partial, main_grad, scale_type, name):
    _refuse_others(x=x, w=w, m_sizes=m_sizes)
    x, = autocast(x.reshape(-1, x.shape[-1]), dtype=torch.bfloat16)  # the quantisers read bf16
    _check(x, w, m_sizes, gather, routing, partial, main_grad, scale_type)
    if summed and x.shape[0] % routing.topk:
        raise ValueError(f"x has {x.shape[0]} rows: topk = {routing.topk} for each token")
    n, k = ops._n_and_k(w, routing.transposed)
    plan = _plan(Layer(routed_rows(x, routing), n, k, w.shape[0], None if main_grad is None else main_grad.dtype, name))
    if torch.is_grad_enabled() and (x.requires_grad or w.requires_grad):
        if has_numbers(x):
            _prepare(x, w, routing, summed, main_grad, scale_type, plan)
        return _Product.apply(x, w, m_sizes, gather, main_grad, routing, summed, partial, scale_type, plan)
    y, *_ = ops.forward(x, w, m_sizes, gather, *routing, scale_type, plan, False)
    return _sum_rows(y, m_sizes, gather, routing.topk, partial) if summed else y


def grouped_gemm(x, w, m_sizes, gather_indices=None, topk=1, permute_x=False, permute_y=False, *, transposed=False,
                 partial=False, main_grad=None, scale_type="fp32", name=""):
    """gemmd.torch.grouped_gemm() in fp8: y = x w[e]^T for the rows of each expert, with gradients of x and w.

    x: bf16 [T, K], or with permute_x [tokens, K]; w: bf16 or fp32 [experts, N, K], or [experts, K, N] when
        `transposed`; m_sizes, gather_indices, topk, permute_x, permute_y, partial: as for
        gemmd.torch.grouped_gemm(). torch.autocast casts x to bf16. N and K are multiples of 16.
    main_grad: a tensor of w's shape (fp32, say). The backward adds w's gradient to it, and w.grad stays as it is.
    scale_type: "fp32": amax / 448; "pow2": rounded up to a power of two.
    name: for the hook of stay_bf16().
    Returns bf16 [T, N]. The gradients have the types of x and w. ValueError for invalid arguments; a missing daemon
    is never an error. Quantised copies of w are kept as weights.py describes.
    """
    return _run(x, w, m_sizes, gather_indices, Routing(topk, permute_x, permute_y, transposed), False, partial, main_grad,
                scale_type, name)


def grouped_gemm_sum(x, w, m_sizes, gather_indices, topk, *, transposed=False, partial=False, main_grad=None,
                     scale_type="fp32", name=""):
    """gemmd.torch.grouped_gemm_sum() in fp8: a layer's second product with the sum over each token's experts. Arguments
    as of grouped_gemm(). Returns bf16 [tokens, N]."""
    return _run(x, w, m_sizes, gather_indices, Routing(topk, False, True, transposed), True, partial, main_grad,
                scale_type, name)
