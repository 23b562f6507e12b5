# SPDX-License-Identifier: Apache-2.0
"""grouped_gemm.backend: gmm without gradients, in all layouts, and into a given output."""
import torch

from gemmd.grouped_gemm.into import into, product
from gemmd.grouped_gemm.operands import check, mode_of


@torch.no_grad()
def gmm(a, b, batch_sizes, trans_a=False, trans_b=False, c=None, *, accumulate=False):
    """The product of each expert's rows; operands.py has the shapes. No gradients.

    batch_sizes: [experts], int64 or int32, on the host or on a's device: rows of each expert, sum T.
    c: gets the result, in its own type (fp32 beside bf16 operands, say), and is returned.
    accumulate: the result is added to c.
    ValueError for invalid arguments. Numbers of batch_sizes are checked only on the host.
    """
    mode = mode_of(trans_a, trans_b)
    sizes = check(mode, a, b, batch_sizes, c, accumulate)
    if c is None:
        return product(mode, a, b, sizes)
    into(c, mode, a, b, sizes, accumulate)
    return c
