# SPDX-License-Identifier: Apache-2.0
"""quantise_rows(): operands with a scale for each row, as torch._scaled_grouped_mm, torch._scaled_mm and torchao
multiply them. The custom op gemmd::quantise_rows serves torch.compile."""
import torch

from gemmd.torch.custom_ops import define
from gemmd.torch.scaled import E4M3, SCALE_TYPES, quantise_whole_rows
from gemmd.torch.shapes import describe

ALIGN = 16  # of K
_op = define("quantise_rows", "(Tensor x, str scale_type) -> (Tensor, Tensor)",
             quantise_whole_rows, quantise_whole_rows,
             lambda x, _: (torch.empty(x.shape, dtype=E4M3, device=x.device),
                           x.new_empty(x.shape[:1], dtype=torch.float32)))


def quantise_rows(x, scale_type="fp32"):
    """(q, scale): e4m3 numbers of x's shape, and an fp32 scale for each row of x; x is about q * scale[..., None].

    x: bf16 [..., K] with any number of leading dimensions, such as weights [experts, N, K]. K is a multiple of 16.
    scale_type: "fp32": amax / 448 of the row's finite numbers; "pow2": rounded up to a power of two.
    No gradients. ValueError for invalid arguments; a missing daemon is never an error.
    """
    if not isinstance(x, torch.Tensor) or x.dtype != torch.bfloat16 or x.dim() < 2:
        raise ValueError(f"x is {describe(x)}: the quantiser takes rows of bfloat16, [..., K]")
    if x.shape[-1] % ALIGN or not x.shape[-1]:
        raise ValueError(f"x is {tuple(x.shape)}: K, the last dimension, is a multiple of {ALIGN}; pad rows with zeros")
    if scale_type not in SCALE_TYPES:
        raise ValueError(f"scale_type is {scale_type!r}: fp32, or pow2 for powers of two")
    rows = x.detach().reshape(-1, x.shape[-1])
    if rows.shape[0] == 0:
        return x.new_empty(x.shape, dtype=E4M3), x.new_empty(x.shape[:-1], dtype=torch.float32)
    q, scale = _op(rows, scale_type)
    return q.reshape(x.shape), scale.reshape(x.shape[:-1])
