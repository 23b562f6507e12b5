# SPDX-License-Identifier: Apache-2.0
"""grouped_gemm() and grouped_gemm_sum(): the ops with gradients."""
import torch
from torch.autograd import Function, forward_ad

from gemmd.torch import activation, beside, ops, plain
from gemmd.torch.activation import gate
from gemmd.torch.custom_ops import define
from gemmd.torch.launch import INDEX
from gemmd.torch.once import once_differentiable
from gemmd.torch.rows import clear_rest
from gemmd.torch.shapes import DTYPES, Flags, has_numbers
from gemmd.torch.sums import sum_of_slots


# ---- the three modes of a product ----------------------------------------------------------------
#
# Weights [experts, K, N] are `transposed`, and such a product runs in the modes of the other direction: the maths of
# forward is the maths of dX for weights [experts, N, K] whose names N and K are exchanged, and back. dW exchanges its
# operands. Of the permutes, one that gathers x now gathers dy, and so on.
#
# Of a `summed` product the rows of a token are added up. Then dy has a row for each token, which the kernels gather
# for each of the token's rows, without a [T, N].

def _token(gather, topk):
    """The token of each routed row."""
    return torch.div(gather, topk, rounding_mode="floor")


def multiply(x, w, m_sizes, gather, flags, transposed):
    """The product's rows [T, N]."""
    topk, permute_x, permute_y = flags
    if not transposed:
        return ops.forward(x, w, m_sizes, gather, topk, permute_x, permute_y)
    if permute_x:
        return ops.dx(x, w, m_sizes, _token(gather, topk), topk, False, True)
    return ops.dx(x, w, m_sizes, gather, topk, permute_y, False)


def multiply_dx(dy, w, m_sizes, gather, flags, transposed, summed):
    """dX, with a row for each routed row."""
    topk, permute_x, permute_y = flags
    if not transposed:
        return ops.dx(dy, w, m_sizes, _token(gather, topk) if summed else gather, topk, permute_x, permute_y)
    slots = topk if summed or not permute_y else 1  # number of routed rows that read the same row of dy
    return ops.forward(dy, w, m_sizes, gather, slots, permute_y, permute_x)


def _reads_others(m_sizes, partial):
    """True when the kernels would also read the rows that belong to experts of other ranks."""
    return partial and m_sizes.shape[0] == 1


def own_rows(x, m_sizes):
    """A single expert's kernels read all rows: zeros in rows that belong to no expert."""
    own = torch.arange(x.shape[0], device=x.device) < m_sizes
    return torch.where(own.unsqueeze(1), x, x.new_zeros(()))


def operands_of_dw(dy, x, m_sizes, gather, flags, transposed, summed, partial):
    """(first operand, second operand, gather, flags) of ops.dw()."""
    first, second, gather, flags = _operands_of_all_rows(dy, x, gather, flags, transposed, summed)
    if not _reads_others(m_sizes, partial):
        return first, second, gather, flags
    topk, permute_x, permute_y = flags
    first = first.index_select(0, gather) if permute_y else first
    second = second.index_select(0, _token(gather, topk)) if permute_x else second
    return own_rows(first, m_sizes), own_rows(second, m_sizes), None, (1, False, False)


def _operands_of_all_rows(dy, x, gather, flags, transposed, summed):
    topk, permute_x, permute_y = flags
    if not transposed:
        return dy, x, _token(gather, topk) if summed else gather, flags
    if permute_x:
        return x, dy, _token(gather, topk), (topk, False, True)
    return x, dy, gather, (topk if summed else 1, permute_y, False)


# ---- gradients -----------------------------------------------------------------------------------

def _sum_rows(rows, m_sizes, gather, topk, partial):
    """The sum over each token's rows, in token order. `partial`: some rows belong to no expert, and
    no product wrote them."""
    if partial:
        clear_rest(rows, gather, m_sizes)
    return sum_of_slots(rows, topk)


def gradient_of_x(dx, m_sizes, gather, topk, permute_x, partial):
    """The gradient of x, of a row for each routed row. `partial`: zeros for rows that belong to no expert."""
    if permute_x:  # a token's gradient is the sum over its experts
        return _sum_rows(dx, m_sizes, gather, topk, partial)
    if partial:
        clear_rest(dx, None, m_sizes)
    return dx


def _bytes_of_sum(x, topk, permute_x):
    """The bytes that the sum over each token's rows of dX moves."""
    return x.shape[0] * (topk + 1) * x.shape[1] * x.element_size() if permute_x and topk > 1 else 0


def _both_gradients(dy, x, w, m_sizes, gather, topk, permute_x, permute_y, transposed, summed, partial, whole):
    flags = topk, permute_x, permute_y
    if summed and not transposed and not _reads_others(m_sizes, partial):
        gather, summed = _token(gather, topk), False  # dX and dW both gather these rows of dy
    first, second, of_rows, flags_of_dw = operands_of_dw(dy, x, m_sizes, gather, flags, transposed, summed, partial)
    of_w = ops.WeightGradient(first, second, m_sizes, of_rows, *flags_of_dw)
    del first, second, of_rows

    def multiply_rows():
        return multiply_dx(dy, w, m_sizes, gather, flags, transposed, summed)

    def finish(rows):
        return gradient_of_x(rows, m_sizes, gather, topk, permute_x, partial) if whole else rows

    sms = of_w.share_beside(_bytes_of_sum(x, topk, permute_x and whole))
    if sms:
        rows = multiply_rows()
        dw, dx = of_w.run_beside(sms, lambda: finish(rows))
    else:
        dw = of_w.run()  # first: its kernel may copy rows, and dx may be as large as the copy
        dx = finish(multiply_rows())
    return dx, dw


def _new_gradients(dy, x, w, m_sizes, gather, topk, permute_x, permute_y, transposed, summed, partial, whole):
    rows = x.shape[0] * topk if permute_x and not whole else x.shape[0]
    return x.new_empty((rows, x.shape[1])), w.new_empty(w.shape)


# One op gives both gradients: inductor copies a computed operand for each op that takes the operand. whole: dX of x's rows;
# else of each routed row.
_grads = define("grouped_gemm_grads", "(Tensor dy, Tensor x, Tensor w, Tensor m_sizes, Tensor? gather_indices, int topk, "
                "bool permute_x, bool permute_y, bool transposed, bool summed, bool partial, bool whole) -> (Tensor, Tensor)",
                _both_gradients, _both_gradients, _new_gradients)


def gradients(wanted, dy, x, w, rest, transposed=False, summed=False, partial=False):
    """The gradients (dx, dw) of a product; None for an unwanted one. rest: (m_sizes, gather, topk, permute_x,
    permute_y)."""
    want_x, want_w = wanted[:2]
    m_sizes, gather, topk, permute_x, permute_y = rest
    flags, whole = (topk, permute_x, permute_y), False
    dx = dw = None
    if want_x and want_w:
        # Inductor fuses a sum with what follows, so the op has the sum only where it may run beside dW.
        whole = not torch.compiler.is_compiling() or _bytes_of_sum(x, topk, permute_x) >= beside.BYTES_LEAST
        dx, dw = _grads(dy, x, w, *rest, transposed, summed, partial, whole)
    elif want_w:
        first, second, of_dw, flags_of_dw = operands_of_dw(dy, x, m_sizes, gather, flags, transposed, summed, partial)
        dw = ops.dw(first, second, m_sizes, of_dw, *flags_of_dw)
    elif want_x:
        dx = multiply_dx(dy, w, m_sizes, gather, flags, transposed, summed)
    if want_x and not whole:
        dx = gradient_of_x(dx, m_sizes, gather, topk, permute_x, partial)
    return dx, dw


class _Product(Function):
    @staticmethod
    def forward(ctx, x, w, m_sizes, gather, topk, permute_x, permute_y, transposed=False, summed=False, partial=False):
        want_x, want_w = ctx.needs_input_grad[:2]  # with frozen experts x is not kept
        ctx.save_for_backward(x if want_w else None, w if want_x else None, m_sizes, gather)
        ctx.flags, ctx.how = (topk, permute_x, permute_y), (transposed, summed, partial)
        y = multiply(x, w, m_sizes, gather, ctx.flags, transposed)
        return _sum_rows(y, m_sizes, gather, topk, partial) if summed else y

    @staticmethod
    @once_differentiable
    def backward(ctx, saved, dy):
        x, w, m_sizes, gather = saved
        dx, dw = gradients(ctx.needs_input_grad, dy, x, w, (m_sizes, gather, *ctx.flags), *ctx.how)
        return dx, dw, None, None, None, None, None, None, None, None


class _GatedSum(Function):
    """An activation and a summed product as one function, which keeps only the activation's input: the pass that
    computes the activation's gradients writes the activation anew, for dW."""

    @staticmethod
    def forward(ctx, h, bias, expert, weights, m_sizes, w, gather, topk, transposed, partial, *kind):
        ctx.save_for_backward(h, bias, expert, weights, m_sizes, w, gather)
        ctx.flags, ctx.transposed, ctx.partial, ctx.kind = (topk, False, True), transposed, partial, kind
        y = multiply(gate(h, bias, expert, weights, kind), w, m_sizes, gather, ctx.flags, transposed)
        return _sum_rows(y, m_sizes, gather, topk, partial)

    @staticmethod
    @once_differentiable
    def backward(ctx, saved, dy):
        *of_gate, w, gather = saved
        m_sizes = of_gate[-1]
        da = multiply_dx(dy, w, m_sizes, gather, ctx.flags, ctx.transposed, True)
        da = gradient_of_x(da, m_sizes, gather, ctx.flags[0], False, ctx.partial)
        dh, dbias, dweights, a = activation.gradients(of_gate, da, ctx.kind, ctx.needs_input_grad[1],
                                                     again=ctx.needs_input_grad[5])
        del da
        dw = None
        if ctx.needs_input_grad[5]:
            first, second, gather, flags = operands_of_dw(dy, a, m_sizes, gather, ctx.flags, ctx.transposed, True,
                                                          ctx.partial)
            dw = ops.dw(first, second, m_sizes, gather, *flags)
        return dh, dbias, None, dweights, None, dw, None, None, None, None, None, None, None


# ---- the functions -------------------------------------------------------------------------------

def _cast(t, dtype):
    return t.to(dtype) if t.is_floating_point() and t.dtype != torch.float64 else t


def autocast(*operands, dtype=None):
    """Casts under torch.autocast like a linear layer: keeps float64 and non-floating types. dtype: instead of
    autocast's type."""
    kind = operands[0].device.type
    if kind == "meta" or not torch.is_autocast_enabled(kind):  # PyTorch has no autocast for the device "meta"
        return operands
    dtype = dtype or torch.get_autocast_dtype(kind)
    return tuple(_cast(t, dtype) for t in operands)


def _refuse_tangents(*operands):
    """Refuses operands of forward-mode AD, which would treat an op without a rule as a constant."""
    if any(forward_ad.unpack_dual(t).tangent is not None for t in operands):
        raise NotImplementedError("grouped_gemm has no forward-mode derivatives (torch.func.jvp, jacfwd, "
                                  "make_dual): use backward()")


def _refuse_others(**operands):
    """ValueError for an argument that is no tensor."""
    for name, t in operands.items():
        if not isinstance(t, torch.Tensor):
            raise ValueError(f"{name} is {'missing' if t is None else f'a {type(t).__name__}'}: it is a tensor")


def _check(x, w, *rest):
    if x.dtype != w.dtype or x.dtype not in DTYPES:
        raise ValueError(f"x is {x.dtype} and w {w.dtype}: use bfloat16, float16 or float32 for "
                         "both")
    check_shapes(x, w, *rest)


def check_shapes(x, w, m_sizes, gather, flags, transposed=False, partial=False):
    """ValueError for operands of other shapes, index types or devices than a product has."""
    if forward_ad._current_level >= 0:
        _refuse_tangents(x, w)
    if w.dim() != 3 or x.shape[-1] != w.shape[1 if transposed else 2]:
        raise ValueError(f"w is {tuple(w.shape)} and x {tuple(x.shape)}: w is [experts, "
                         f"{'K, N' if transposed else 'N, K'}], x [rows, K]")
    if m_sizes.dtype not in INDEX:
        raise ValueError(f"m_sizes is {m_sizes.dtype}: int32 or int64")
    if m_sizes.dim() != 1 or m_sizes.shape[0] != w.shape[0]:
        raise ValueError(f"m_sizes is {tuple(m_sizes.shape)}: one number of rows for each of "
                         f"{w.shape[0]} experts")
    if flags.permute_x and flags.permute_y:
        raise ValueError("permute_x and permute_y are both true: the first GEMM of a layer "
                         "permutes x, the second y, none both")
    if flags.permute_x or flags.permute_y:
        _check_gather(x, gather, flags)
    _check_device("w", w, x)
    _check_device("m_sizes", m_sizes, x)
    if x.device.type == "cpu" and has_numbers(m_sizes):
        ops.check_sizes(ops.routed_rows(x, flags), m_sizes, partial)


def _check_device(name, t, x):
    if t.device != x.device:
        raise ValueError(f"{name} is on {t.device} and x on {x.device}: move it there")


def _check_weights(weights, x):
    if weights.numel() != x.shape[0]:
        raise ValueError(f"topk_weights has {weights.numel()} elements: one for each of the "
                         f"{x.shape[0]} routed rows")
    _check_device("topk_weights", weights, x)
    if forward_ad._current_level >= 0:
        _refuse_tangents(weights)


def _check_gather(x, gather, flags):
    if flags.topk is None or isinstance(flags.topk, float) or flags.topk < 1:
        raise ValueError(f"topk is {flags.topk}: a token has one expert or more")
    if gather is None:
        raise ValueError("permute_x and permute_y need gather_indices")
    _refuse_others(gather_indices=gather)
    if gather.dtype not in INDEX:
        raise ValueError(f"gather_indices is {gather.dtype}: int32 or int64")
    rows = x.shape[0] * flags.topk if flags.permute_x else x.shape[0]
    if gather.dim() != 1 or gather.shape[0] != rows:
        raise ValueError(f"gather_indices is {tuple(gather.shape)}: one index for each of {rows} "
                         f"routed rows ({x.shape[0]} {'tokens' if flags.permute_x else 'rows'}, topk = {flags.topk})")
    _check_device("gather_indices", gather, x)


def grouped_gemm(x=None, w=None, m_sizes=None, gather_indices=None, topk=1, permute_x=False,
                 permute_y=False, topk_weights=None, fuse_mul_post=False, *, X=None, W=None,
                 dX_only=False, dW_only=False, transposed=False, partial=False, **tuning):
    """y = x w[e]^T for the rows of each expert, with gradients of x and w.

    x: [T, K], T routed rows in expert order; with permute_x [tokens, K], T = tokens * topk. Further
        dimensions in front are flattened.
    w: [experts, N, K]; bfloat16 or float16 (float32 where the device's kernels take it).
        torch.autocast casts x and w, as for a linear layer.
    m_sizes: [experts] int32 or int64 on x's device: rows of each expert; zeros allowed, sum T.
    gather_indices: [T] int32 or int64: the flat (token, slot) index of each row in expert order, a
        stable argsort of the flattened expert ids; needed by the permutes.
    permute_x: gathers x's rows into expert order (the first GEMM of a layer); permute_y: scatters
        y's rows back to token order (the second); fuse_mul_post (needs permute_y): multiplies by
        topk_weights ([T], token order; otherwise ignored), fused when no gradient is wanted.
    transposed: w is [experts, K, N]. Not together with fuse_mul_post.
    partial: m_sizes sum to less than T, because the other rows are for experts of other ranks. The
        output's rows for those experts stay unwritten; the gradients of their rows of x are zeros.
    Returns [T, N]. ValueError for invalid arguments; a missing daemon is never an error.

    Replaces Unsloth's grouped_gemm by import. The keywords X, W, dX_only and dW_only mean the same
    as in Unsloth. Unsloth's order of arguments (topk before gather_indices) is recognised by type.
    Unsloth's arguments for choosing kernels (autotune, kernel_config_*, is_first_gemm) are ignored.
    """
    x, w = X if x is None else x, W if w is None else w
    unknown = set(tuning) - {"autotune", "is_first_gemm", "kernel_config_fwd",
                             "kernel_config_bwd_dX", "kernel_config_bwd_dW"}
    if unknown:
        raise TypeError(f"grouped_gemm() has no argument {sorted(unknown)}")
    if isinstance(gather_indices, int) and not isinstance(topk, int):
        gather_indices, topk = topk, gather_indices
    flags = Flags(topk, permute_x, permute_y)
    _refuse_others(x=x, w=w, m_sizes=m_sizes)
    x, w = autocast(x.reshape(-1, x.shape[-1]), w)
    _check(x, w, m_sizes, gather_indices, flags, transposed, partial)
    x = x.detach() if dW_only else x
    w = w.detach() if dX_only else w
    if transposed:
        if fuse_mul_post:
            raise ValueError("fuse_mul_post and transposed are both true: multiply the rows yourself")
        return _Product.apply(x, w, m_sizes, gather_indices, *flags, True, False, partial)
    if fuse_mul_post:
        return _multiplied(x, w, m_sizes, gather_indices, flags, topk_weights, partial)
    return _differentiable(x, w, m_sizes, gather_indices, flags, partial)


def _differentiable(x, w, m_sizes, gather, flags, partial):
    if torch.is_grad_enabled() and (x.requires_grad or w.requires_grad):
        return _Product.apply(x, w, m_sizes, gather, *flags, False, False, partial)
    return ops.forward(x, w, m_sizes, gather, *flags)


def _multiplied(x, w, m_sizes, gather, flags, weights, partial):
    """Without gradients, one kernel multiplies by the weights, too. With gradients, the product and
    the multiplication are separate, with the same two roundings."""
    if not flags.permute_y or weights is None:
        raise ValueError("fuse_mul_post needs permute_y and topk_weights: it multiplies the second "
                         "GEMM's rows, in token order")
    _refuse_others(topk_weights=weights)
    _check_weights(weights, x)
    if torch.is_grad_enabled() and any(t.requires_grad for t in (x, w, weights)):
        y = _differentiable(x, w, m_sizes, gather, flags, partial)
        return plain.multiply(y, weights)
    return ops.forward_mul(x, w, weights.reshape(-1), m_sizes, gather, *flags)


def grouped_gemm_sum(x, w, m_sizes, gather_indices, topk, *, transposed=False, partial=False):
    """A layer's second product with the sum over each token's experts, with gradients of x and w.

    x: [T, K], T = tokens * topk routed rows in expert order, already multiplied by their routing
        weights; w, m_sizes, gather_indices, transposed, partial: as for grouped_gemm().
    Returns [tokens, N]. Unlike grouped_gemm(permute_y=True) and a sum, keeps no [T, N] for the
    gradients and makes no [T, N] of the output's gradient. ValueError for invalid arguments.
    """
    _refuse_others(x=x, w=w, m_sizes=m_sizes)
    x, w = autocast(x.reshape(-1, x.shape[-1]), w)
    _check(x, w, m_sizes, gather_indices, Flags(topk, False, True), transposed, partial)
    if x.shape[0] % topk:
        raise ValueError(f"x has {x.shape[0]} rows: topk = {topk} for each token")
    return _Product.apply(x, w, m_sizes, gather_indices, topk, False, True, transposed, True, partial)


def gated_product_sum(h, weights, w, m_sizes, gather_indices, topk, kind, bias=None, expert=None, *, transposed=False,
                      partial=False):
    """grouped_gemm_sum(gated(h, weights, kind, bias, expert, m_sizes), w, ...), which keeps h for the gradients and not
    the activation."""
    h, w = autocast(h, w)
    return _GatedSum.apply(h, bias, expert, weights, m_sizes, w, gather_indices, topk, transposed, partial, *kind)
