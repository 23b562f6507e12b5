# SPDX-License-Identifier: Apache-2.0
"""The sum over a token's experts."""
import torch

from gemmd.torch.plans import plans

WRITTEN_OUT_MOST = 32  # a sum of more terms would make the kernel too long


def _to(t, dtype):
    """Skips no-op conversions: dynamo (2.11) loses the gradient of a Function that ends in one."""
    return t if t.dtype == dtype else t.to(dtype)


def sum_of_slots(rows, topk):
    """Sums rows [tokens * topk, N], grouped by token, to [tokens, N], in fp32.

    Under torch.compile the sum is written out: inductor then makes a kernel that reads whole
    vectors. Inductor's reduction over a middle dimension takes four times as long as the bytes need
    (tests/gpu/moe_layer.py --stages profile prints the times).

    For settings.batch_invariant, too: PyTorch's reduction chooses its order by the number of rows.
    """
    if topk == 1:
        return rows
    slots = rows.view(-1, topk, rows.shape[1])
    if not plans.settings.batch_invariant and (not torch.compiler.is_compiling() or topk > WRITTEN_OUT_MOST):
        return slots.sum(1, dtype=rows.dtype)  # torch.autocast("cuda") would use fp32
    total = _to(slots[:, 0], torch.float32)
    for slot in range(1, topk):
        total = total + _to(slots[:, slot], torch.float32)
    return _to(total, rows.dtype)
