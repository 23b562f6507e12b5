# SPDX-License-Identifier: Apache-2.0
"""An example layer: the MLP of a mixture of experts, as Qwen3 and Mixtral have it."""
import torch
from torch import nn
from torch.nn import functional

from gemmd.torch.ops import grouped_gemm


def route(logits, topk, normalise=True):
    """Router logits [tokens, experts] to (weights [tokens, topk] in fp32, ids [tokens, topk])."""
    weights, ids = torch.topk(torch.softmax(logits.float(), dim=-1), topk, dim=-1)
    return weights / weights.sum(-1, keepdim=True) if normalise else weights, ids


def sort_by_expert(ids, experts):
    """(m_sizes [experts], gather_indices [tokens * topk]), int32; nothing waits for the device."""
    flat = ids.reshape(-1)
    gather = torch.argsort(flat, stable=True).to(torch.int32)
    m_sizes = torch.zeros(experts, dtype=torch.int32, device=ids.device)
    m_sizes = m_sizes.scatter_add(0, flat, torch.ones_like(flat, dtype=torch.int32))
    return m_sizes, gather


def swiglu(h):
    """[T, 2 * inter] (gate, then up) to [T, inter]"""
    gate, up = h.chunk(2, dim=-1)
    return functional.silu(gate) * up


class MoEMLP(nn.Module):
    """x [..., hidden] -> [..., hidden]: router, top-k, SwiGLU experts, weighted sum. Both permutes
    are fused into the GEMMs."""

    def __init__(self, hidden, inter, experts, topk, normalise=True, device=None, dtype=None):
        super().__init__()
        self.experts, self.topk, self.normalise = experts, topk, normalise
        new = {"device": device, "dtype": dtype}
        self.router = nn.Linear(hidden, experts, bias=False, **new)
        self.gate_up = nn.Parameter(torch.empty(experts, 2 * inter, hidden, **new))
        self.down = nn.Parameter(torch.empty(experts, hidden, inter, **new))
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.normal_(self.router.weight, std=self.router.in_features ** -0.5)
        nn.init.normal_(self.gate_up, std=self.gate_up.shape[2] ** -0.5)
        nn.init.normal_(self.down, std=self.down.shape[2] ** -0.5)

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        weights, ids = route(self.router(rows), self.topk, self.normalise)
        m_sizes, gather = sort_by_expert(ids, self.experts)
        h = grouped_gemm(rows, self.gate_up, m_sizes, gather, self.topk, permute_x=True)
        y = grouped_gemm(swiglu(h), self.down, m_sizes, gather, self.topk, permute_y=True)
        y = y.view(-1, self.topk, y.shape[-1]) * weights.to(y.dtype).unsqueeze(-1)
        return y.sum(1).view(x.shape)
