# SPDX-License-Identifier: Apache-2.0
"""What a call computes: its flags, and the problem that gemmd is asked about."""
from typing import NamedTuple

import torch

from gemmd.results import Problem

DTYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}


class Flags(NamedTuple):
    topk: int
    permute_x: bool
    permute_y: bool

    def meant(self):
        """Without a permute topk means nothing, and rows need be no multiple of it: only those
        that came to this rank's experts, say."""
        return self if self.permute_x or self.permute_y else self._replace(topk=1)


class Call(NamedTuple):
    """One mode, one device, one set of sizes: what a plan is made for."""
    mode: str  # forward | dX | dW
    device: torch.device
    dtype: torch.dtype
    m: int  # routed rows
    n: int
    k: int
    experts: int
    flags: Flags
    mul: bool = False  # forward: by the routing weights

    def problem(self):
        f = self.flags
        return Problem(m=self.m, n=self.n, k=self.k, mode=self.mode, dtype_in=DTYPES[self.dtype],
                       experts=self.experts, topk=f.topk, permute_x=f.permute_x,
                       permute_y=f.permute_y, fuse_mul_post=self.mul)


def routed_rows(x, flags):
    """T, of the operand that is in token order with permute_x."""
    return x.shape[0] * flags.topk if flags.permute_x else x.shape[0]


def gradient_rows(dy, gather, flags):
    """T, of a gradient whose rows are gathered with permute_y, some of them more than once."""
    return gather.shape[0] if flags.permute_y else dy.shape[0]


def sizes(mode, a, b, m_sizes):
    """(N, K, experts) of w [experts, N, K], from the operands: x and w, dy and w, or dy and x."""
    if mode == "dW":
        return a.shape[1], b.shape[1], m_sizes.shape[0]
    return b.shape[1], b.shape[2], b.shape[0]
