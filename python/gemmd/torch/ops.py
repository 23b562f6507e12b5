# SPDX-License-Identifier: Apache-2.0
"""The custom ops gemmd::grouped_gemm, _mul, _dx and _dw, which torch.compile takes as they are, and
grouped_gemm() over them."""
import torch

from gemmd.torch import plain
from gemmd.torch.launch import launch
from gemmd.torch.shapes import DTYPES, Call, Flags, routed_rows

_lib = torch.library.Library("gemmd", "DEF")
_COMMON = "Tensor m_sizes, Tensor? gather_indices, int topk, bool permute_x, bool permute_y"
_SCHEMAS = {
    "grouped_gemm": f"(Tensor x, Tensor w, {_COMMON}) -> Tensor",
    "grouped_gemm_mul": f"(Tensor x, Tensor w, Tensor topk_weights, {_COMMON}) -> Tensor",
    "grouped_gemm_dx": f"(Tensor dy, Tensor w, {_COMMON}) -> Tensor",
    "grouped_gemm_dw": f"(Tensor dy, Tensor x, {_COMMON}) -> Tensor",
}
for _name, _schema in _SCHEMAS.items():
    _lib.define(_name + _schema, tags=(torch.Tag.pt2_compliant_tag,))


# ---- what runs -----------------------------------------------------------------------------------

def _call(mode, like, rows, w_shape, flags, mul=False):
    experts, n, k = w_shape
    return Call(mode, like.device, like.dtype, rows, n, k, experts, flags, mul)


def _forward(x, w, m_sizes, gather, topk, permute_x, permute_y):
    flags = Flags(topk, permute_x, permute_y)
    rows = routed_rows(x, flags)
    out = x.new_empty((rows, w.shape[1]))
    call = _call("forward", x, rows, w.shape, flags)
    if rows and launch(call, out, m_sizes, gather, x=x, w=w):
        return out
    return plain.forward(x, w, m_sizes, gather, flags) if rows else out


def _forward_mul(x, w, weights, m_sizes, gather, topk, permute_x, permute_y):
    flags = Flags(topk, permute_x, permute_y)
    rows = routed_rows(x, flags)
    out = x.new_empty((rows, w.shape[1]))
    call = _call("forward", x, rows, w.shape, flags, True)
    if rows and launch(call, out, m_sizes, gather, weights, x=x, w=w):
        return out
    return plain.multiply(plain.forward(x, w, m_sizes, gather, flags), weights) if rows else out


def _dx(dy, w, m_sizes, gather, topk, permute_x, permute_y):
    flags, rows = Flags(topk, permute_x, permute_y), dy.shape[0]
    out = dy.new_empty((rows, w.shape[2]))
    call = _call("dX", dy, rows, w.shape, flags)
    if rows and launch(call, out, m_sizes, gather, dy=dy, w=w):
        return out
    return plain.dx(dy, w, m_sizes, gather, flags) if rows else out


def _dw(dy, x, m_sizes, gather, topk, permute_x, permute_y):
    flags, rows = Flags(topk, permute_x, permute_y), dy.shape[0]
    shape = (m_sizes.shape[0], dy.shape[1], x.shape[1])
    if rows == 0:
        return dy.new_zeros(shape)
    out = dy.new_empty(shape)
    call = _call("dW", dy, rows, shape, flags)
    if launch(call, out, m_sizes, gather, dy=dy, x=x):
        return out
    return plain.dw(dy, x, m_sizes, gather, flags)


# ---- what torch.compile sees ---------------------------------------------------------------------

def _fake_forward(x, w, m_sizes, gather, topk, permute_x, permute_y):
    return x.new_empty((x.shape[0] * topk if permute_x else x.shape[0], w.shape[1]))


def _fake_forward_mul(x, w, weights, m_sizes, gather, topk, permute_x, permute_y):
    return _fake_forward(x, w, m_sizes, gather, topk, permute_x, permute_y)


def _fake_dx(dy, w, m_sizes, gather, topk, permute_x, permute_y):
    return dy.new_empty((dy.shape[0], w.shape[2]))


def _fake_dw(dy, x, m_sizes, gather, topk, permute_x, permute_y):
    return dy.new_empty((m_sizes.shape[0], dy.shape[1], x.shape[1]))


for _name, _run, _fake in (("grouped_gemm", _forward, _fake_forward),
                           ("grouped_gemm_mul", _forward_mul, _fake_forward_mul),
                           ("grouped_gemm_dx", _dx, _fake_dx),
                           ("grouped_gemm_dw", _dw, _fake_dw)):
    for _key in ("CPU", "CUDA"):
        _lib.impl(_name, _run, _key)
    torch.library.register_fake(f"gemmd::{_name}", _fake, lib=_lib)


# ---- gradients -----------------------------------------------------------------------------------

def _save(ctx, inputs, output):
    x, w, m_sizes, gather, ctx.topk, ctx.permute_x, ctx.permute_y = inputs
    ctx.save_for_backward(x, w, m_sizes, gather)


def _backward(ctx, dy):
    x, w, m_sizes, gather = ctx.saved_tensors
    rest = (m_sizes, gather, ctx.topk, ctx.permute_x, ctx.permute_y)
    dx = dw = None
    if ctx.needs_input_grad[0]:
        dx = torch.ops.gemmd.grouped_gemm_dx(dy, w, *rest)
        if ctx.permute_x:  # a token's gradient is the sum over its experts
            dx = dx.view(-1, ctx.topk, dx.shape[1]).sum(1)
    if ctx.needs_input_grad[1]:
        dw = torch.ops.gemmd.grouped_gemm_dw(dy, x, *rest)
    return dx, dw, None, None, None, None, None


torch.library.register_autograd("gemmd::grouped_gemm", _backward, setup_context=_save, lib=_lib)


# ---- the function --------------------------------------------------------------------------------

def _check(x, w, m_sizes, gather, flags):
    if w.dim() != 3 or x.shape[-1] != w.shape[2]:
        raise ValueError(f"w is {tuple(w.shape)} and x {tuple(x.shape)}: w is [experts, N, K], x "
                         "[rows, K]")
    if x.dtype != w.dtype or x.dtype not in DTYPES:
        raise ValueError(f"x is {x.dtype} and w {w.dtype}: use bfloat16, float16 or float32 for "
                         "both")
    if m_sizes.dim() != 1 or m_sizes.shape[0] != w.shape[0]:
        raise ValueError(f"m_sizes is {tuple(m_sizes.shape)}: one number of rows for each of "
                         f"{w.shape[0]} experts")
    if flags.permute_x and flags.permute_y:
        raise ValueError("permute_x and permute_y are both true: the first GEMM of a layer "
                         "permutes x, the second y, none both")
    if gather is None and (flags.permute_x or flags.permute_y):
        raise ValueError("permute_x and permute_y need gather_indices")


def grouped_gemm(x=None, w=None, m_sizes=None, gather_indices=None, topk=1, permute_x=False,
                 permute_y=False, topk_weights=None, fuse_mul_post=False, *, X=None, W=None,
                 dX_only=False, dW_only=False, **tuning):
    """y = x w[e]^T for the rows of each expert, with gradients of x and w.

    x: [T, K], T routed rows in expert order; with permute_x [tokens, K], T = tokens * topk. More
        dimensions in front are flattened.
    w: [experts, N, K]; bfloat16 or float16 (float32 where the device's kernels take it).
    m_sizes: [experts] int32 or int64 on x's device: rows of each expert; zeros allowed, sum T.
    gather_indices: [T] int32 or int64: the flat (token, slot) index of each row in expert order, a
        stable argsort of the flattened expert ids; needed by the permutes.
    permute_x: gathers x's rows into expert order (the first GEMM of a layer); permute_y: scatters
        y's rows back to token order (the second); fuse_mul_post (needs permute_y): multiplies by
        topk_weights ([T], token order), fused when no gradient is wanted.
    Returns [T, N]. ValueError for what cannot be meant; never fails for want of a daemon.

    Unsloth's grouped_gemm can be replaced by import: its keywords X, W, dX_only and dW_only mean
    what they do there, its order of arguments (topk before gather_indices) is seen by their types,
    and what it takes to choose kernels (autotune, kernel_config_*, is_first_gemm) is not needed.
    """
    x, w = X if x is None else x, W if w is None else w
    unknown = set(tuning) - {"autotune", "is_first_gemm", "kernel_config_fwd",
                             "kernel_config_bwd_dX", "kernel_config_bwd_dW"}
    if unknown:
        raise TypeError(f"grouped_gemm() has no argument {sorted(unknown)}")
    if isinstance(gather_indices, int) and not isinstance(topk, int):
        gather_indices, topk = topk, gather_indices
    flags = Flags(topk, permute_x, permute_y)
    x = x.reshape(-1, x.shape[-1])
    _check(x, w, m_sizes, gather_indices, flags)
    x = x.detach() if dW_only else x
    w = w.detach() if dX_only else w
    if fuse_mul_post:
        return _multiplied(x, w, m_sizes, gather_indices, flags, topk_weights)
    return torch.ops.gemmd.grouped_gemm(x, w, m_sizes, gather_indices, *flags)


def _multiplied(x, w, m_sizes, gather, flags, weights):
    """Fused for inference. For gradients the two products apart: the same two roundings."""
    if not flags.permute_y or weights is None:
        raise ValueError("fuse_mul_post needs permute_y and topk_weights: it multiplies the second "
                         "GEMM's rows, in token order")
    if torch.is_grad_enabled() and any(t.requires_grad for t in (x, w, weights)):
        y = torch.ops.gemmd.grouped_gemm(x, w, m_sizes, gather, *flags)
        return plain.multiply(y, weights)
    return torch.ops.gemmd.grouped_gemm_mul(x, w, weights.reshape(-1), m_sizes, gather, *flags)
