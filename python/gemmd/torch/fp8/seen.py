# SPDX-License-Identifier: Apache-2.0
"""Counts the products that ran in this process, for report(). Replays of CUDA graphs are not counted."""
from typing import NamedTuple

import torch

PRODUCTS_MOST = 4096  # limit, for a job whose sizes always change
_calls = {}  # Product: number of calls


class Product(NamedTuple):
    """A product of one mode. `place` is "fp8" or "bf16"; dtype_out and accumulate: of dW; kept_bytes: what forward
    keeps for dW."""
    mode: str
    device: torch.device
    rows: int
    w_shape: tuple
    w_dtype: torch.dtype
    flags: tuple
    transposed: bool
    summed: bool
    scale_type: str
    place: str
    dtype_out: torch.dtype
    accumulate: bool
    kept_bytes: int


def note(product):
    if product not in _calls and len(_calls) >= PRODUCTS_MOST:
        _calls.clear()
    _calls[product] = _calls.get(product, 0) + 1


def products():
    """[(Product, calls)], the most called first."""
    return sorted(_calls.items(), key=lambda item: -item[1])


def forget():
    _calls.clear()
