# SPDX-License-Identifier: Apache-2.0
"""The sum over a token's experts."""
import torch

WRITTEN_OUT_MOST = 32  # longer sums would make kernels that are long themselves


def _to(t, dtype):
    """Never a conversion of nothing: dynamo (2.11) loses the gradient of a Function that ends in one."""
    return t if t.dtype == dtype else t.to(dtype)


def sum_of_slots(rows, topk):
    """rows [tokens * topk, N], a token's one after the other, to their sums [tokens, N], added in
    fp32.

    Under torch.compile the sum is written out: inductor then makes a kernel that reads whole
    vectors, where its reduction over a dimension in the middle took four times what the bytes do
    (tests/gpu/moe_layer.py --stages profile prints it).
    """
    if topk == 1:
        return rows
    slots = rows.view(-1, topk, rows.shape[1])
    if not torch.compiler.is_compiling() or topk > WRITTEN_OUT_MOST:
        return slots.sum(1, dtype=rows.dtype)  # said: torch.autocast("cuda") would make it fp32
    total = _to(slots[:, 0], torch.float32)
    for slot in range(1, topk):
        total = total + _to(slots[:, slot], torch.float32)
    return _to(total, rows.dtype)
