# SPDX-License-Identifier: Apache-2.0
"""linear_a8w8(): a dense product of fp8 operands with block scales, with the arguments of aiter's
gemm_a8w8_blockscale. The custom op gemmd::linear_a8w8 serves torch.compile."""
import torch

from gemmd.torch.custom_ops import define
from gemmd.torch.scaled import E4M3, launch, product_call
from gemmd.torch.scaled_plain import BLOCK, Scaled, ceil_to, multiply_dense
from gemmd.torch.shapes import NO_PERMUTE, describe


def _run(y, x_q, w_q, x_scale, w_scale):
    x, w = Scaled(x_q, x_scale), Scaled(w_q.unsqueeze(0), w_scale.unsqueeze(0))
    out = y if y.is_contiguous() and y.data_ptr() % 16 == 0 else torch.empty_like(y, memory_format=torch.contiguous_format)
    if not launch(product_call("forward", NO_PERMUTE, x_q.shape[0], x, w, None), out, x, w):
        out.copy_(multiply_dense(x, Scaled(w_q, w_scale)))
    if out is not y:
        y.copy_(out)


_op = define("linear_a8w8", "(Tensor(a!) y, Tensor x_q, Tensor w_q, Tensor x_scale, Tensor w_scale) -> ()",
             _run, _run, lambda *_: None)


def _check_operand(name, q, scale, row_block, device):
    for of, t, dtype in ((f"{name}_q", q, E4M3), (f"{name}_scale", scale, torch.float32)):
        if not isinstance(t, torch.Tensor) or t.dtype != dtype or t.dim() != 2:
            raise ValueError(f"{of} is {describe(t)}: it is a matrix of {dtype}")
        if t.device != device:
            raise ValueError(f"{of} is on {t.device} and x_q on {device}: move it there")
    wanted = tuple(ceil_to(size, block) // block for size, block in zip(q.shape, (row_block, BLOCK)))
    if tuple(scale.shape) != wanted:
        raise ValueError(f"{name}_scale is {tuple(scale.shape)} and {name}_q {tuple(q.shape)}: the scales are {wanted}, one "
                         f"for each {row_block} x {BLOCK}")


def _check(x_q, w_q, x_scale, w_scale, dtype, y, skip_reduce):
    if not isinstance(x_q, torch.Tensor):
        raise ValueError(f"x_q is a {type(x_q).__name__}: it is a tensor")
    _check_operand("x", x_q, x_scale, 1, x_q.device)
    _check_operand("w", w_q, w_scale, BLOCK, x_q.device)
    (m, k), n = x_q.shape, w_q.shape[0]
    if w_q.shape[1] != k or k % 16 or n % 8 or not (k and n):
        raise ValueError(f"x_q is {tuple(x_q.shape)} and w_q {tuple(w_q.shape)}: x_q is [M, K] and w_q [N, K], with K a "
                         "multiple of 16 and N a multiple of 8")
    if dtype != torch.bfloat16 or skip_reduce:
        raise ValueError(f"dtype is {dtype} and skip_reduce {skip_reduce}: the result is bfloat16, and reduced")
    if y is not None and (not isinstance(y, torch.Tensor) or y.shape != (m, n) or y.dtype != dtype or y.device != x_q.device):
        raise ValueError(f"y is {describe(y)}: it is {dtype} {(m, n)} on {x_q.device}")


def linear_a8w8(x_q, w_q, x_scale, w_scale, dtype=torch.bfloat16, y=None, config=None, skip_reduce=False):
    """x w^T of e4m3 operands with scales of blocks, without gradients.

    x_q: [M, K]; x_scale: fp32 [M, ceil(K / 128)]; w_q: [N, K]; w_scale: fp32 [ceil(N / 128), ceil(K / 128)]; any
        strides. K is a multiple of 16, N of 8. NaN, infinities and zeros in scales mean what they mean in a product.
    y: the output, or None; config: ignored, gemmd chooses the kernel.
    Returns bf16 [M, N]. ValueError for invalid arguments.
    """
    _check(x_q, w_q, x_scale, w_scale, dtype, y, skip_reduce)
    y = torch.empty((x_q.shape[0], w_q.shape[0]), dtype=dtype, device=x_q.device) if y is None else y
    if y.numel():
        with torch.no_grad():
            _op(y, x_q, w_q, x_scale, w_scale)
    return y


gemm_a8w8_blockscale = linear_a8w8  # aiter's name
