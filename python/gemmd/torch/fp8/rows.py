# SPDX-License-Identifier: Apache-2.0
"""quantise_rows(): operands with a scale for each row, as torch._scaled_grouped_mm, torch._scaled_mm and torchao
multiply them. The custom op gemmd::quantise_rows serves torch.compile."""
import torch

from gemmd.torch.scaled import E4M3, SCALE_TYPES, quantise_whole_rows

ALIGN = 16  # of K
_lib = torch.library.Library("gemmd", "FRAGMENT")
_lib.define("quantise_rows(Tensor x, str scale_type) -> (Tensor, Tensor)", tags=(torch.Tag.pt2_compliant_tag,))
_lib.impl("quantise_rows", quantise_whole_rows, "CPU")
_lib.impl("quantise_rows", quantise_whole_rows, "CUDA")
torch.library.register_fake("gemmd::quantise_rows", lambda x, _: (
    torch.empty(x.shape, dtype=E4M3, device=x.device), x.new_empty(x.shape[:1], dtype=torch.float32)), lib=_lib)
_op = torch.ops.gemmd.quantise_rows.default


def quantise_rows(x, scale_type="fp32"):
    """(q, scale): e4m3 numbers of x's shape, and an fp32 scale for each row of x; x is about q * scale[..., None].

    x: bf16 [..., K] with any number of leading dimensions, such as weights [experts, N, K]. K is a multiple of 16.
    scale_type: "fp32": amax / 448 of the row's finite numbers; "pow2": rounded up to a power of two.
    No gradients. ValueError for invalid arguments; a missing daemon is never an error.
    """
    if not isinstance(x, torch.Tensor) or x.dtype != torch.bfloat16 or x.dim() < 2:
        raise ValueError(f"x is {getattr(x, 'dtype', type(x).__name__)} {tuple(getattr(x, 'shape', ()))}: the quantiser "
                         "takes rows of bfloat16, [..., K]")
    if x.shape[-1] % ALIGN or not x.shape[-1]:
        raise ValueError(f"x is {tuple(x.shape)}: K, the last dimension, is a multiple of {ALIGN}; pad rows with zeros")
    if scale_type not in SCALE_TYPES:
        raise ValueError(f"scale_type is {scale_type!r}: fp32, or pow2 for powers of two")
    rows = x.detach().reshape(-1, x.shape[-1])
    if rows.shape[0] == 0:
        return x.new_empty(x.shape, dtype=E4M3), x.new_empty(x.shape[:-1], dtype=torch.float32)
    q, scale = _op(rows, scale_type)
    return q.reshape(x.shape), scale.reshape(x.shape[:-1])
