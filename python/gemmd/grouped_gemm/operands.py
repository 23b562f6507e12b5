# SPDX-License-Identifier: Apache-2.0
"""Checks the operands of a gmm, and chooses the mode of gemmd that computes the product.

    trans_a  trans_b  a        b          result     mode
    no       no       [T, K]   [E, K, N]  [T, N]     dX
    no       yes      [T, K]   [E, N, K]  [T, N]     forward
    yes      no       [T, M]   [T, N]     [E, M, N]  dW
"""
import torch

from gemmd.torch.launch import INDEX
from gemmd.torch.ops import check_sizes
from gemmd.torch.shapes import DTYPES, has_numbers


def mode_of(trans_a, trans_b):
    """The mode of gemmd that computes the product. ValueError for both transposed, which is no product of experts."""
    if trans_a and trans_b:
        raise ValueError("trans_a and trans_b are both true: a transposed a is summed over its rows with "
                         "a b of the same rows")
    return "dW" if trans_a else "forward" if trans_b else "dX"


def _check_shapes(mode, a, b, experts):
    if a.dim() != 2 or b.dim() != (2 if mode == "dW" else 3):
        wanted = "[rows, N]" if mode == "dW" else "[experts, N, K]" if mode == "forward" else "[experts, K, N]"
        raise ValueError(f"a is {tuple(a.shape)} and b {tuple(b.shape)}: a is [rows, columns], and b "
                         f"{wanted} {'with' if mode != 'dX' else 'without'} "
                         f"{'trans_a' if mode == 'dW' else 'trans_b'}")
    inner = b.shape[0] if mode == "dW" else b.shape[2 if mode == "forward" else 1]
    if a.shape[0 if mode == "dW" else 1] != inner:
        raise ValueError(f"a is {tuple(a.shape)} and b {tuple(b.shape)}: they share no "
                         f"{'number of rows' if mode == 'dW' else 'K'}")
    if mode != "dW" and b.shape[0] != experts:
        raise ValueError(f"batch_sizes has {experts} numbers: one for each of the {b.shape[0]} experts of b")


def _out_shape(mode, a, b, experts):
    if mode == "dW":
        return experts, a.shape[1], b.shape[1]
    return a.shape[0], b.shape[1 if mode == "forward" else 2]


def check(mode, a, b, batch_sizes, c, accumulate):
    """Returns batch_sizes on a's device. ValueError for operands of which no product can be made, and for an output c
    that does not fit."""
    if accumulate and c is None:
        raise ValueError("accumulate needs c: the result is added to it")
    for name, t in (("a", a), ("b", b), ("batch_sizes", batch_sizes)):
        if not isinstance(t, torch.Tensor):
            raise ValueError(f"{name} is a {type(t).__name__}: it is a tensor")
    if batch_sizes.dtype not in INDEX or batch_sizes.dim() != 1:
        raise ValueError(f"batch_sizes is {batch_sizes.dtype} {tuple(batch_sizes.shape)}: one int64 or "
                         "int32 number of rows for each expert")
    if a.dtype != b.dtype or a.dtype not in DTYPES:
        raise ValueError(f"a is {a.dtype} and b {b.dtype}: use bfloat16, float16 or float32 for both")
    if b.device != a.device:
        raise ValueError(f"b is on {b.device} and a on {a.device}: move it there")
    if batch_sizes.device not in (a.device, torch.device("cpu")):
        raise ValueError(f"batch_sizes is on {batch_sizes.device}: move it to {a.device}, or to the host")
    _check_shapes(mode, a, b, batch_sizes.shape[0])
    if c is not None:
        check_out("c", c, a, _out_shape(mode, a, b, batch_sizes.shape[0]))
    if batch_sizes.device.type == "cpu" and has_numbers(batch_sizes):
        check_sizes(a.shape[0], batch_sizes, False, "batch_sizes")
        if a.is_cuda and batch_sizes.is_pinned():  # the caller may change pinned memory before the GPU reads it
            batch_sizes = batch_sizes.clone()
    return batch_sizes.to(a.device, non_blocking=True)


def check_out(name, out, a, shape):
    """ValueError for an output that does not have the product's shape, or is on another device."""
    if not isinstance(out, torch.Tensor):
        raise ValueError(f"{name} is a {type(out).__name__}: it is a tensor")
    if tuple(out.shape) != tuple(shape):
        raise ValueError(f"{name} is {tuple(out.shape)}: the result is {tuple(shape)}")
    if out.device != a.device or not out.is_floating_point():
        raise ValueError(f"{name} is {out.dtype} on {out.device}: it is a floating-point tensor on {a.device}")
