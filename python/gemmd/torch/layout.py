# SPDX-License-Identifier: Apache-2.0
"""Memory layout that kernels need for operands: gemmd's kernels, and torch._grouped_mm."""
import torch

ALIGNED = 16  # bytes


def lies_well(shape, stride, element_bytes):
    """True when a kernel can read a tensor that begins at a multiple of 16 bytes: adjacent elements
    in a row, rows at multiples of 16 bytes, and no overlap (as in an expanded tensor)."""
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
    """The tensor, or a copy when the tensor's layout does not fit."""
    well = lies_well(t.shape, t.stride(), t.element_size()) and t.data_ptr() % ALIGNED == 0
    return t if well else copied(t)
