# SPDX-License-Identifier: Apache-2.0
"""How operands must lie in memory for a kernel to read them: gemmd's, and torch._grouped_mm."""
import torch

ALIGNED = 16  # bytes


def lies_well(shape, stride, element_bytes):
    """Whether a kernel can read it as it is, when it begins at a multiple of 16 bytes: elements of
    a row side by side, rows at such multiples, none over another (as an expanded tensor has
    them)."""
    need = shape[-1]
    if stride[-1] != 1:
        return False
    for size, step in zip(shape[-2::-1], stride[-2::-1]):
        if step * element_bytes % ALIGNED or (size > 1 and step < need):
            return False
        need = max(need, step * size)
    return True


def copied(t):
    return t.clone(memory_format=torch.contiguous_format)


def laid_well(t):
    """The tensor, or where it does not lie so a copy that does."""
    well = lies_well(t.shape, t.stride(), t.element_size()) and t.data_ptr() % ALIGNED == 0
    return t if well else copied(t)
