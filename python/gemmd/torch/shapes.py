# SPDX-License-Identifier: Apache-2.0
"""Describes a call: its flags, and its problem for gemmd."""
from typing import NamedTuple, Optional

import torch
from torch._subclasses.fake_tensor import FakeTensor

from gemmd.results import Problem

DTYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}


def describe(t):
    """The type and shape of an argument, for the sentence of an error; t may be no tensor."""
    return f"{getattr(t, 'dtype', type(t).__name__)} {tuple(getattr(t, 'shape', ()))}"


def has_numbers(t):
    """False while torch.compile traces the call, on the device "meta", and for a fake tensor."""
    return not (torch.compiler.is_compiling() or t.is_meta or isinstance(t, FakeTensor))


class Flags(NamedTuple):
    topk: int
    permute_x: bool
    permute_y: bool

    def meant(self):
        """The flags with topk 1 when no permute uses topk. The rows then need not be a multiple of
        topk, because a rank may have only the rows of the rank's own experts."""
        return self if self.permute_x or self.permute_y else self._replace(topk=1)


NO_PERMUTE = Flags(1, False, False)


class Call(NamedTuple):
    """The mode, device and sizes that a plan is made for."""
    mode: str  # forward | dX | dW
    device: torch.device
    dtype: torch.dtype
    m: int  # routed rows
    n: int
    k: int
    experts: int
    flags: Flags
    mul: bool = False  # forward: multiply by the routing weights
    dtype_out: Optional[torch.dtype] = None  # dW: another type than the operands' (None: dtype)
    accumulate: bool = False  # dW: add to the output
    quant: Optional[str] = None  # fp8_block, fp8_row: the operands are fp8 numbers with scales

    def problem(self, batch_invariant=False):
        """batch_invariant: of forward and dX; dW sums over the batch."""
        f = self.flags
        return Problem(m=self.m, n=self.n, k=self.k, mode=self.mode, quant=self.quant,
                       dtype_in=None if self.quant else DTYPES[self.dtype],
                       experts=self.experts, topk=f.topk, permute_x=f.permute_x,
                       permute_y=f.permute_y, fuse_mul_post=self.mul,
                       dtype_out=DTYPES.get(self.dtype_out), accumulate=self.accumulate,
                       batch_invariant=batch_invariant and self.mode != "dW")


def routed_rows(x, flags):
    """T, the number of routed rows, from x. With permute_x, x has a row for each token."""
    return x.shape[0] * flags.topk if flags.permute_x else x.shape[0]


def gradient_rows(dy, gather, flags):
    """T, the number of routed rows. With permute_y, the kernels gather T rows of dy, perhaps a row
    more than once."""
    return gather.shape[0] if flags.permute_y else dy.shape[0]


def sizes(mode, a, b, m_sizes):
    """(N, K, experts) of w [experts, N, K], from the operands: x and w, dy and w, or dy and x."""
    if mode == "dW":
        return a.shape[1], b.shape[1], m_sizes.shape[0]
    return b.shape[1], b.shape[2], b.shape[0]
