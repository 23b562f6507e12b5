# SPDX-License-Identifier: Apache-2.0
"""From a router's logits to the rows of each expert: route(), sort_by_expert() and in_expert_order().

PyTorch needs about thirty kernels for this, and its top-k alone takes a twentieth of a step of a layer with 128
experts (tests/bench/layer_peers.py --kernels). The ops gemmd::route, gemmd::route_grads and gemmd::sort_by_expert are
six Triton kernels on a GPU, else plain PyTorch. They do not wait for the device.
"""
import torch
from torch.autograd import Function

from gemmd.torch.custom_ops import define
from gemmd.torch.once import once_differentiable
from gemmd.torch.rows import find_kernels
from gemmd.torch.shapes import DTYPES


# ---- in plain PyTorch ------------------------------------------------------------------------------

def _plain_route(logits, topk, normalise):
    if normalise:
        largest, ids = torch.topk(logits.float(), topk, dim=-1)
        return torch.softmax(largest, dim=-1), ids
    return torch.topk(torch.softmax(logits.float(), dim=-1), topk, dim=-1)


def _plain_route_grads(logits, weights, ids, dweights, experts, dtype, normalise):
    mean = (weights * dweights).sum(-1, keepdim=True)
    out = weights.new_zeros((weights.shape[0], experts))
    if normalise:
        return out.scatter(1, ids, weights * (dweights - mean)).to(dtype)
    return (out.scatter(1, ids, weights * dweights) - torch.softmax(logits.float(), dim=-1) * mean).to(dtype)


def plain_sort(ids, experts):
    flat = ids.reshape(-1).long()
    flat = torch.where((flat >= 0) & (flat < experts), flat, experts)
    # A GPU sorts in passes over the bytes of a key, so shorter keys are faster.
    keys = flat.to(torch.int16) if experts < 1 << 15 else flat
    gather = torch.argsort(keys, stable=True).to(torch.int32)
    m_sizes = torch.zeros(experts + 1, dtype=torch.int32, device=ids.device)
    m_sizes = m_sizes.scatter_add(0, flat, torch.ones_like(flat, dtype=torch.int32))
    return m_sizes[:experts], gather


# ---- on a GPU --------------------------------------------------------------------------------------

def _find_kernels(t, experts):
    """The Triton kernels; None when they do not take the elements of t and so many experts."""
    kernels = find_kernels("routing_kernel", t.device) if t.numel() else None
    return kernels if kernels and experts <= kernels.EXPERTS_MOST else None


def _cuda_route(logits, topk, normalise):
    kernels = _find_kernels(logits, logits.shape[1])
    if kernels is None or logits.dtype not in DTYPES or not 0 < topk <= logits.shape[1]:
        return _plain_route(logits, topk, normalise)
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    weights, ids = _fake_route(logits, topk, normalise)
    with torch.cuda.device_of(logits):  # Triton launches on the current device
        kernels.launch_route(logits, weights, ids, normalise)
    return weights, ids


def _cuda_route_grads(logits, weights, ids, dweights, experts, dtype, normalise):
    kernels = _find_kernels(ids, experts)
    if kernels is None or dtype not in DTYPES:
        return _plain_route_grads(logits, weights, ids, dweights, experts, dtype, normalise)
    if logits is not None and logits.stride(1) != 1:
        logits = logits.contiguous()
    dlogits = weights.new_empty((weights.shape[0], experts), dtype=dtype)
    with torch.cuda.device_of(weights):
        kernels.launch_route_grads(logits, weights, ids, dweights.contiguous(), dlogits, normalise)
    return dlogits


def _cuda_sort(ids, experts):
    kernels = _find_kernels(ids, experts + 1)
    if kernels is None:
        return plain_sort(ids, experts)
    m_sizes, gather = _fake_sort(ids, experts + 1)
    with torch.cuda.device_of(ids):
        kernels.launch_sort(ids.reshape(-1).contiguous(), m_sizes, gather)
    return m_sizes[:experts], gather


# ---- ops -------------------------------------------------------------------------------------------

def _fake_route(logits, topk, normalise):
    shape = logits.shape[0], topk
    return logits.new_empty(shape, dtype=torch.float32), logits.new_empty(shape, dtype=torch.int64)


def _fake_route_grads(logits, weights, ids, dweights, experts, dtype, normalise):
    return weights.new_empty((weights.shape[0], experts), dtype=dtype)


def _fake_sort(ids, experts):
    return ids.new_empty(experts, dtype=torch.int32), ids.new_empty(ids.numel(), dtype=torch.int32)


route_rows = define("route", "(Tensor logits, int topk, bool normalise) -> (Tensor, Tensor)",
                    _plain_route, _cuda_route, _fake_route)
route_grads = define("route_grads", "(Tensor? logits, Tensor weights, Tensor ids, Tensor dweights, int experts, "
                     "ScalarType dtype, bool normalise) -> Tensor",
                     _plain_route_grads, _cuda_route_grads, _fake_route_grads)
_sort = define("sort_by_expert", "(Tensor ids, int experts) -> (Tensor, Tensor)", plain_sort, _cuda_sort, _fake_sort)


# ---- the functions ---------------------------------------------------------------------------------

class _Route(Function):
    @staticmethod
    def forward(ctx, logits, topk, normalise):
        weights, ids = route_rows(logits, topk, normalise)
        ctx.save_for_backward(None if normalise else logits, weights, ids)
        ctx.of = logits.shape[1], logits.dtype, normalise
        ctx.mark_non_differentiable(ids)
        return weights, ids

    @staticmethod
    @once_differentiable
    def backward(ctx, saved, dweights, _):
        return route_grads(*saved, dweights, *ctx.of), None, None


def route(logits, topk, normalise=True):
    """Router logits [tokens, experts] to (weights [tokens, topk] in fp32, ids [tokens, topk] int64), the largest first.

    `normalise`: a token's weights sum to 1. They are the softmax of its largest logits, so that nothing
    of all experts is kept for the gradients. NaN counts as the largest number. ValueError for another topk."""
    if not logits.dim() or not 1 <= topk <= logits.shape[-1]:
        raise ValueError(f"topk is {topk} and logits {tuple(logits.shape)}: 1 to the number of experts, the last dimension")
    found = _Route.apply(logits.reshape(-1, logits.shape[-1]), topk, normalise)
    return tuple(t.view(*logits.shape[:-1], topk) for t in found)


def sort_by_expert(ids, experts):
    """Returns (m_sizes [experts], gather_indices [tokens * topk]), int32. ids: [tokens, topk] of
    any integer type. An id that is not in 0 .. experts - 1, an expert of another rank, counts for no expert, and
    its row comes last. The rows of an expert keep their order."""
    return _sort(ids, experts)


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
