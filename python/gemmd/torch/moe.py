# SPDX-License-Identifier: Apache-2.0
"""An example layer: the MLP of a mixture of experts, as in Qwen3 and Mixtral."""
import torch
from torch import nn
from torch.autograd import Function

from gemmd.torch import ops, product, routing
from gemmd.torch.activation import SWIGLU, swiglu
from gemmd.torch.once import once_differentiable
from gemmd.torch.product import gated_product_sum, grouped_gemm_sum
from gemmd.torch.shapes import DTYPES


class _RoutedProduct(Function):
    """The router and the first product as one function, whose gradient of x is written once: the router's
    product adds to the sum over the token's experts."""

    @staticmethod
    def forward(ctx, x, router, w, topk, normalise):
        logits = x @ router.t()
        weights, ids = routing.route_rows(logits, topk, normalise)
        m_sizes, gather = routing.sort_by_expert(ids, w.shape[0])
        ctx.save_for_backward(x, router, w, None if normalise else logits, weights, ids, m_sizes, gather)
        ctx.of, ctx.topk = (logits.shape[1], logits.dtype, normalise), topk
        ctx.mark_non_differentiable(m_sizes, gather)
        return ops.forward(x, w, m_sizes, gather, topk, True, False), weights, m_sizes, gather

    @staticmethod
    @once_differentiable
    def backward(ctx, saved, dh, dweights, *_):
        x, router, w, logits, weights, ids, m_sizes, gather = saved
        want_x, want_router, want_w = ctx.needs_input_grad[:3]
        dlogits = routing.route_grads(logits, weights, ids, dweights, *ctx.of)
        dx, dw = product.gradients((want_x, want_w), dh, x, w, (m_sizes, gather, ctx.topk, True, False))
        if want_x:
            dx.addmm_(dlogits, router)
        return dx, dlogits.t() @ x if want_router else None, dw, None, None


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
        if not 1 <= topk <= experts:
            raise ValueError(f"topk is {topk}: a token goes to 1 to {experts} experts")
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
        operands = product.autocast(rows, self.router.weight, self.gate_up)
        if operands[0].dtype not in DTYPES:
            raise ValueError(f"x is {operands[0].dtype}: use bfloat16, float16 or float32 for x and the layer")
        h, weights, m_sizes, gather = _RoutedProduct.apply(*operands, self.topk, self.normalise)
        weights = routing.in_expert_order(weights, gather)
        if self.save == "least":
            y = gated_product_sum(h, weights, self.down, m_sizes, gather, self.topk, SWIGLU)
        else:
            y = grouped_gemm_sum(swiglu(h, weights), self.down, m_sizes, gather, self.topk)
        return y.view(x.shape)
