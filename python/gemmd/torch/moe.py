# SPDX-License-Identifier: Apache-2.0
"""An example layer: the MLP of a mixture of experts, as in Qwen3 and Mixtral."""
import torch
from torch import nn
from torch.autograd import Function

from gemmd.torch.activation import SWIGLU, swiglu
from gemmd.torch.product import gated_product_sum, grouped_gemm, grouped_gemm_sum


def route(logits, topk, normalise=True):
    """Router logits [tokens, experts] to (weights [tokens, topk] in fp32, ids [tokens, topk]).

    `normalise`: a token's weights sum to 1. They are the softmax of its largest logits, so that nothing
    of all experts is kept for the gradients."""
    if normalise:
        largest, ids = torch.topk(logits.float(), topk, dim=-1)
        return torch.softmax(largest, dim=-1), ids
    return torch.topk(torch.softmax(logits.float(), dim=-1), topk, dim=-1)


def sort_by_expert(ids, experts):
    """Returns (m_sizes [experts], gather_indices [tokens * topk]), int32. ids: [tokens, topk] of
    any integer type. An id from `experts` on, an expert of another rank, counts for no expert, and
    its row comes last. Does not wait for the device."""
    flat = ids.reshape(-1)
    # A GPU sorts in passes over the bytes of a key, so shorter keys are faster.
    keys = flat.to(torch.int16) if experts <= 1 << 15 else flat
    gather = torch.argsort(keys, stable=True).to(torch.int32)
    m_sizes = torch.zeros(experts + 1, dtype=torch.int32, device=ids.device)
    m_sizes = m_sizes.scatter_add(0, flat.long().clamp(max=experts),
                                  torch.ones_like(flat, dtype=torch.int32))
    return m_sizes[:experts], gather


class _Gathered(Function):
    """t[index] for a permutation, so the gradient is a gather without sums."""

    @staticmethod
    def forward(ctx, t, index):
        ctx.save_for_backward(index)
        return t.index_select(0, index)

    @staticmethod
    def backward(ctx, grad):
        index, = ctx.saved_tensors
        return torch.empty_like(grad).index_copy(0, index.long(), grad), None


def in_expert_order(weights, gather):
    """Routing weights [tokens, topk] as a column [T, 1], in the order of the routed rows."""
    return _Gathered.apply(weights.reshape(-1), gather).unsqueeze(-1)


class MoEMLP(nn.Module):
    """x [..., hidden] -> [..., hidden]: router, top-k, SwiGLU experts, weighted sum. Both permutes
    are fused into the GEMMs. The routing weights multiply the second GEMM's input, not its output:
    the input has fewer columns, and the gradients then need nothing of the output.

    save: "fast" keeps the activation for the gradients; "least" computes the activation again in the
    backward pass, [T, inter] less memory."""

    def __init__(self, hidden, inter, experts, topk, normalise=True, save="fast", device=None, dtype=None):
        super().__init__()
        if save not in ("fast", "least"):
            raise ValueError(f'save is {save!r}: "fast" or "least"')
        self.save = save
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

    def extra_repr(self):
        experts, hidden, inter = self.down.shape
        return (f"hidden={hidden}, inter={inter}, experts={experts}, topk={self.topk}, "
                f"normalise={self.normalise}, save={self.save}")

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        weights, ids = route(self.router(rows), self.topk, self.normalise)
        m_sizes, gather = sort_by_expert(ids, self.experts)
        h = grouped_gemm(rows, self.gate_up, m_sizes, gather, self.topk, permute_x=True)
        weights = in_expert_order(weights, gather)
        if self.save == "least":
            y = gated_product_sum(h, weights, self.down, m_sizes, gather, self.topk, SWIGLU)
        else:
            y = grouped_gemm_sum(swiglu(h, weights), self.down, m_sizes, gather, self.topk)
        return y.view(x.shape)
