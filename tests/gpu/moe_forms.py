# SPDX-License-Identifier: Apache-2.0
"""A MoE MLP in several forms over the same parameters (gemmd.torch.MoEMLP's): through gemmd, over
torch._grouped_mm, and expert by expert. All forms share the code of router, top-k and SwiGLU, with
gemmd's kernel for its gradients. The loop is written out and is the reference of the other forms.
Routing weights multiply after the second product, or before it in gemmd's form and in
`torch_early`.

torch._grouped_mm wants rows in expert order, so its forms permute:
torch_index      x[token], the obvious code; its gradient is a scattered sum
torch_gather     tuned code: both permutes and their gradients are gathers, by the permutation and its
                 inverse; the sum over a token's experts is a plain sum
sums_written_out torch_early with gemmd's own sums over a token's experts, for which inductor makes faster
                 kernels. Only products and permutes still differ from gemmd's form. Users do not write this
                 form, and it is not among torch's forms.
Only the loop waits for the device: it reads the rows of each expert.
"""
import torch

from gemmd.torch.activation import swiglu
from gemmd.torch.routing import in_expert_order, route, sort_by_expert
from gemmd.torch.sums import sum_of_slots


class Gather(torch.autograd.Function):
    """rows[index]; the inverse permutation gathers the gradient."""

    @staticmethod
    def forward(ctx, rows, index, inverse):
        ctx.save_for_backward(inverse)
        return rows.index_select(0, index)

    @staticmethod
    def backward(ctx, grad):
        return grad.index_select(0, ctx.saved_tensors[0]), None, None


def weigh(y, weights):
    """Multiplies rows y [tokens * topk, hidden], in token order, by weights and sums each token's: [tokens, hidden]"""
    y = y.view(*weights.shape, y.shape[-1]) * weights.to(y.dtype).unsqueeze(-1)
    return y.sum(1)


def inverse_of(index):
    order = torch.arange(index.numel(), device=index.device, dtype=index.dtype)
    return torch.empty_like(index).index_copy_(0, index, order)


def grouped(rows, w, m_sizes):
    return torch._grouped_mm(rows, w.transpose(1, 2), offs=m_sizes.cumsum(0).to(torch.int32))


def torch_index(layer, x):
    weights, ids = route(layer.router(x), layer.topk)
    m_sizes, gather = sort_by_expert(ids, layer.experts)
    index = gather.long()
    h = grouped(x[index // layer.topk], layer.gate_up, m_sizes)
    y = grouped(swiglu(h), layer.down, m_sizes)
    return weigh(torch.empty_like(y).index_copy(0, index, y), weights)


def first_product(layer, x, index, inverse, m_sizes):
    copies = x.unsqueeze(1).expand(-1, layer.topk, -1).reshape(-1, x.shape[-1])
    return grouped(Gather.apply(copies, index, inverse), layer.gate_up, m_sizes)


def torch_gather(layer, x):
    weights, ids = route(layer.router(x), layer.topk)
    m_sizes, gather = sort_by_expert(ids, layer.experts)
    index = gather.long()
    inverse = inverse_of(index)
    h = first_product(layer, x, index, inverse, m_sizes)
    y = grouped(swiglu(h), layer.down, m_sizes)
    return weigh(Gather.apply(y, inverse, index), weights)


def torch_early(layer, x):
    weights, ids = route(layer.router(x), layer.topk)
    m_sizes, gather = sort_by_expert(ids, layer.experts)
    index = gather.long()
    inverse = inverse_of(index)
    h = first_product(layer, x, index, inverse, m_sizes)
    a = swiglu(h, in_expert_order(weights, gather))
    y = Gather.apply(grouped(a, layer.down, m_sizes), inverse, index)
    return y.view(-1, layer.topk, y.shape[-1]).sum(1)


class Copies(torch.autograd.Function):
    """x's rows, each topk times, in expert order. The gradient sums a token's topk rows by sum_of_slots."""

    @staticmethod
    def forward(ctx, x, index, inverse, topk):
        ctx.save_for_backward(inverse)
        ctx.topk = topk
        return x[index // topk]

    @staticmethod
    def backward(ctx, grad):
        rows = grad.index_select(0, ctx.saved_tensors[0])
        return sum_of_slots(rows, ctx.topk), None, None, None


class Sums(torch.autograd.Function):
    """Sums each token's topk rows: [tokens * topk, hidden] in token order to [tokens, hidden]"""

    @staticmethod
    def forward(ctx, rows, topk):
        ctx.topk = topk
        return sum_of_slots(rows, topk)

    @staticmethod
    def backward(ctx, grad):
        return grad.unsqueeze(1).expand(-1, ctx.topk, -1).reshape(-1, grad.shape[-1]), None


def sums_written_out(layer, x):
    weights, ids = route(layer.router(x), layer.topk)
    m_sizes, gather = sort_by_expert(ids, layer.experts)
    index = gather.long()
    inverse = inverse_of(index)
    h = grouped(Copies.apply(x, index, inverse, layer.topk), layer.gate_up, m_sizes)
    a = swiglu(h, in_expert_order(weights, gather))
    return Sums.apply(Gather.apply(grouped(a, layer.down, m_sizes), inverse, index), layer.topk)


def loop(layer, x, dtype=None):
    """Computes the layer expert by expert. `dtype`: the type of everything behind the router, so that the reference can
    be more exact than the other forms."""
    weights, ids = route(layer.router(x), layer.topk)
    rows = x if dtype is None else x.to(dtype)
    out = torch.zeros_like(rows)
    # unbind, because the gradient of w[e] would be a tensor of all experts, with zeros for the other experts
    for e, (gate_up, down) in enumerate(zip(layer.gate_up.unbind(), layer.down.unbind())):
        token, slot = torch.where(ids == e)
        gate, up = (rows[token] @ gate_up.to(rows.dtype).t()).chunk(2, dim=-1)
        y = (torch.nn.functional.silu(gate) * up) @ down.to(rows.dtype).t()
        out = out.index_add(0, token, y * weights[token, slot, None].to(y.dtype))
    return out


def exact(layer, x):
    return loop(layer, x, torch.float32)


def gemmd_form(layer, x):
    return layer(x)


FORMS = {"gemmd": gemmd_form, "torch_gather": torch_gather, "torch_early": torch_early,
         "torch_index": torch_index, "sums_written_out": sums_written_out, "loop": loop}
GRADS = ("x", "router", "gate_up", "down")


def step(form, layer, x, upstream):
    """Returns (y, gradients of x and the parameters); adds nothing to the parameters' .grad."""
    y = form(layer, x)
    wanted = [x, layer.router.weight, layer.gate_up, layer.down]
    return y, torch.autograd.grad(y, wanted, upstream.to(y.dtype))


def errors(got, right):
    """||got - right|| / ||right|| of the output and of each gradient."""
    out = {}
    for name, a, b in zip(("y", *GRADS), (got[0], *got[1]), (right[0], *right[1])):
        a, b = a.detach().float(), b.detach().float()
        out[name] = float((a - b).norm() / b.norm())
    return out
