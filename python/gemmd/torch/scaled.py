# SPDX-License-Identifier: Apache-2.0
"""Launches of the op `quantise`, and of products whose operands are fp8 numbers with scales.

The plans are those of gemmd.torch: the same answers, deadlines and fallbacks. Without a kernel, the
functions of scaled_plain.py compute the same numbers.
"""
from typing import NamedTuple, Optional

import torch

from gemmd import ffi
from gemmd.results import Problem
from gemmd.torch import scaled_plain as plain
from gemmd.torch.current import on_device
from gemmd.torch.launch import INDEX, OPERANDS, _set_strides, launch_plan
from gemmd.torch.layout import ALIGNED, copied, laid_well
from gemmd.torch.plans import plans
from gemmd.torch.scaled_plain import BLOCK, EPS, Scaled, ceil_to, padded_columns
from gemmd.torch.shapes import NO_PERMUTE, Call, Flags

E4M3 = torch.float8_e4m3fn
SCALE_TYPES = ("fp32", "pow2")


class QuantiseCall(NamedTuple):
    """What a plan of the op `quantise` is made for. The first fields are those of Call."""
    mode: str  # rows | columns | both | weights | whole_rows
    device: torch.device
    dtype: torch.dtype
    m: int  # routed rows; weights: rows of all experts
    n: int  # 0: the op has no N
    k: int
    experts: int
    flags: Flags  # permute_x: the rows are gathered
    scale_type: str

    def problem(self, batch_invariant=False):
        """batch_invariant: holds for every kernel, as quantising adds nothing up."""
        f = self.flags
        return Problem(text=f"quantise mode={self.mode} M={self.m} K={self.k} experts={self.experts} topk={f.topk} "
                            f"permute_x={str(f.permute_x).lower()} scale_type={self.scale_type}")


def _readable(t):
    """The tensor, or a copy that a kernel can read: a single row may have any stride in PyTorch."""
    t = laid_well(t)
    return t if t.stride(-2) >= t.shape[-1] else copied(t)


# ---- quantise ------------------------------------------------------------------------------------

class Gather(NamedTuple):
    """Row i of the result reads row index[i] // topk."""
    index: torch.Tensor
    topk: int


def _new_rows(rows, k, by_row, device):
    """Scaled [rows, k] without numbers. The scales lie [block][row], or with by_row [row][block], padded to 16
    bytes."""
    blocks = ceil_to(k, BLOCK) // BLOCK
    if by_row:
        scale = torch.empty((rows, ceil_to(blocks, 4)), dtype=torch.float32, device=device)[:, :blocks]
    else:
        scale = torch.empty((blocks, ceil_to(rows, 4)), dtype=torch.float32, device=device).t()[:rows]
    return Scaled(torch.empty((rows, k), dtype=E4M3, device=device), scale)


def quantise_call(mode, device, rows, k, experts, topk, scale_type):
    """topk: of gathered rows; 0: the rows lie in order."""
    flags = Flags(topk, True, False) if topk else NO_PERMUTE
    experts = 1 if mode in ("rows", "whole_rows") else experts
    return QuantiseCall(mode, device, torch.bfloat16, rows, 0, k, experts, flags, scale_type)


def _launch_quantise(mode, x, rows, experts, gather, scale_type, set_outputs):
    """Quantises rows of x. set_outputs(args): stores the outputs in ffi.QuantiseArgs. False: no kernel writes them."""
    with on_device(x.device):
        topk = 0 if gather is None else gather.topk
        plan = plans.find(quantise_call(mode, x.device, rows, x.shape[-1], experts, topk, scale_type))
        if plan.kernel is None:
            return False
        args = ffi.QuantiseArgs.from_buffer_copy(_EMPTY)
        args.x, args.x_stride, args.rows = x.data_ptr(), x.stride(-2), rows
        if gather is not None:
            args.gather_indices, args.gather_dtype = gather.index.data_ptr(), INDEX[gather.index.dtype]
        set_outputs(args)
        return launch_plan(plan, args)


def _set_rows(args, t):
    args.q, args.scales = t.q.data_ptr(), t.scale.data_ptr()
    args.scales_row_stride, args.scales_block_stride = t.scale.stride()


_EMPTY = ffi.QuantiseArgs(eps=EPS)


def quantise_rows(x, rows, gather, scale_type, by_row=False):
    """x [.., K] bf16 -> Scaled [rows, K] with a scale of each 128 columns; by_row: the layout of the scales."""
    x, k = _readable(x), x.shape[1]
    out = _new_rows(rows, k, by_row, x.device)
    if _launch_quantise("rows", x, rows, 1, gather, scale_type, lambda args: _set_rows(args, out)):
        return out
    return plain.quantise_rows(plain.gather(x, gather), scale_type)


def quantise_whole_rows(x, scale_type):
    """x [rows, K] bf16 -> (e4m3 [rows, K], fp32 [rows]): a scale for each row."""
    x, (rows, k) = _readable(x), x.shape
    q, scale = torch.empty((rows, k), dtype=E4M3, device=x.device), torch.empty(rows, dtype=torch.float32, device=x.device)

    def set_outputs(args):
        args.q, args.scales = q.data_ptr(), scale.data_ptr()
        args.scales_row_stride, args.scales_block_stride = 1, rows

    if _launch_quantise("whole_rows", x, rows, 1, None, scale_type, set_outputs):
        return q, scale
    return plain.quantise_whole_rows(x, scale_type)


def quantise_columns(x, rows, m_sizes, gather, scale_type, both=False):
    """x [.., K] bf16 -> (Scaled [rows, K] or None, Scaled [K, C]): the columns with a scale of each 128 routed
    rows; each expert begins at a multiple of 128 of the C rows. both: the rows, too, from the same read."""
    x, k, experts = _readable(x), x.shape[1], m_sizes.shape[0]
    wide = padded_columns(rows, experts)
    turned = Scaled(torch.empty((k, wide), dtype=E4M3, device=x.device),
                    torch.empty((wide // BLOCK, k), dtype=torch.float32, device=x.device).t())
    straight = _new_rows(rows, k, False, x.device) if both else None

    def set_outputs(args):
        args.q_t, args.scales_t = turned.q.data_ptr(), turned.scale.data_ptr()
        args.q_t_stride, args.scales_t_stride, args.padded = wide, k, wide
        args.m_sizes, args.m_sizes_dtype = m_sizes.data_ptr(), INDEX[m_sizes.dtype]
        if both:
            _set_rows(args, straight)

    if _launch_quantise("both" if both else "columns", x, rows, experts, gather, scale_type, set_outputs):
        return straight, turned
    routed = plain.gather(x, gather)
    return (plain.quantise_rows(routed, scale_type) if both else None,
            plain.quantise_columns(routed, m_sizes, scale_type))


def quantise_weights(w, scale_type):
    """w [E, N, K] bf16 -> (Scaled [E, N, K], Scaled [E, K, N]) with the same scale of each 128 x 128."""
    w, (experts, n, k) = w.contiguous(), w.shape
    w = copied(w) if w.data_ptr() % ALIGNED else w
    straight = torch.empty((experts, n, k), dtype=E4M3, device=w.device)
    turned = torch.empty((experts, k, n), dtype=E4M3, device=w.device)
    scale = torch.empty((experts, ceil_to(n, BLOCK) // BLOCK, ceil_to(k, BLOCK) // BLOCK), dtype=torch.float32,
                        device=w.device)

    def set_outputs(args):
        args.q, args.q_t, args.scales = straight.data_ptr(), turned.data_ptr(), scale.data_ptr()

    if _launch_quantise("weights", w, experts * n, experts, None, scale_type, set_outputs):
        return Scaled(straight, scale), Scaled(turned, scale.transpose(1, 2))
    return plain.quantise_weights(w, scale_type)


# ---- products ------------------------------------------------------------------------------------

def _set_operand(args, name, t):
    """Stores an operand of fp8 and its scales in args. Returns the tensors that own the memory."""
    q = _readable(t.q)
    scale = t.scale if 0 not in t.scale.stride() else copied(t.scale)
    setattr(args, name, q.data_ptr())
    _set_strides(args, name, q.shape, q.stride())
    setattr(args, f"{name}_scale", scale.data_ptr())
    setattr(args, f"{name}_scale_stride", scale.stride(-2))
    setattr(args, f"{name}_scale_stride_block", scale.stride(-1))
    if name == "w":
        args.w_scale_stride_expert = scale.stride(0)
    return q, scale


def _sizes(mode, a, b, m_sizes):
    """(N, K, experts) of the product."""
    if mode == "dW":
        return a.q.shape[0], b.q.shape[0], 1 if m_sizes is None else m_sizes.shape[0]
    rows, summed = b.q.shape[1:]
    return (rows, summed, b.q.shape[0]) if mode == "forward" else (summed, rows, b.q.shape[0])


def product_call(mode, flags, rows, a, b, m_sizes, out_dtype=None, accumulate=False, quant="fp8_block"):
    return Call(mode, a.q.device, E4M3, rows, *_sizes(mode, a, b, m_sizes), flags.meant(),
                dtype_out=out_dtype if out_dtype == torch.float32 else None, accumulate=accumulate, quant=quant)


def launch(call, out, a, b, m_sizes=None, gather: Optional[torch.Tensor] = None, ends=False):
    """Writes the product of Scaled operands to `out`; False: no kernel takes it. a, b: OPERANDS[call.mode], with the
    summed dimension contiguous: w of dX is [E, K, N], and operands of dW are [N, C] and [K, C]."""
    with on_device(call.device):
        plan = plans.find(call)
        if plan.kernel is None:
            return False
        args = ffi.Args()
        args.rows, args.out = call.m, out.data_ptr()
        args.flags = (ffi.ENDS if ends else 0) | (ffi.ACCUMULATE if call.accumulate else 0)
        owners = [_set_operand(args, name, t) for name, t in zip(OPERANDS[call.mode], (a, b))]  # noqa: F841
        if m_sizes is not None:
            args.m_sizes, args.m_sizes_dtype = m_sizes.data_ptr(), INDEX[m_sizes.dtype]
        if gather is not None:
            args.gather_indices, args.gather_dtype = gather.data_ptr(), INDEX[gather.dtype]
        return launch_plan(plan, args)


def multiply(mode, flags, rows, out, a, b, m_sizes, gather=None):
    """forward or dX into out [.., columns], by a kernel or in plain PyTorch."""
    gather = gather if flags.permute_x or flags.permute_y else None
    call = product_call(mode, flags, rows, a, b, m_sizes)
    if not launch(call, out, a, b, m_sizes, gather):
        out.copy_(plain.multiply(mode, a, b, m_sizes, gather, flags))
    return out


def multiply_into_weights(out, dy, x, rows, m_sizes, accumulate):
    """dW into out [E, N, K], bf16 or fp32; accumulate: added to out. An expert without rows gets zeros."""
    if out.dtype not in (torch.bfloat16, torch.float32) or not out.is_contiguous() or out.data_ptr() % ALIGNED:
        result = multiply_into_weights(torch.empty(out.shape, dtype=torch.float32, device=out.device), dy, x, rows, m_sizes, False)
    elif launch(product_call("dW", NO_PERMUTE, rows, dy, x, m_sizes, out.dtype, accumulate), out, dy, x, m_sizes):
        return out
    else:
        result = plain.multiply_columns(dy, x, m_sizes)
    return out.add_(result) if accumulate else out.copy_(result)
