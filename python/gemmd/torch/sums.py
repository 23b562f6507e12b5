# SPDX-License-Identifier: Apache-2.0
"""The sum over a token's experts."""
import torch

from gemmd.torch import rows as routed

WRITTEN_OUT_MOST = 32  # a sum of more terms would make inductor's kernel too long


def sum_of_slots(rows, topk):
    """Sums rows [tokens * topk, N], grouped by token, to [tokens, N], in fp32 and slot by slot.

    Under torch.compile the sum is written out: inductor then makes a kernel that reads whole
    vectors. Inductor's reduction over a middle dimension takes four times as long as the bytes need
    (tests/gpu/moe_layer.py --stages profile prints the times), and PyTorch's one and a half times as long.
    """
    if topk == 1:
        return rows
    if torch.compiler.is_compiling() and topk <= WRITTEN_OUT_MOST:
        return routed.plain_sum_of_slots(rows, topk)
    return routed.sum_of_slots(rows, topk)
