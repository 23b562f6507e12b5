# SPDX-License-Identifier: Apache-2.0
"""Compares the Triton kernels of routing and sums with plain PyTorch, under Triton's interpreter (TRITON_INTERPRET=1).
test_routing.py runs this program. New tensors hold the worst values until a kernel writes them."""
import itertools

import torch

from gemmd.torch import routing, routing_kernel, rows

empty = torch.Tensor.new_empty
worst = lambda t: t.fill_(float("nan") if t.is_floating_point() else 1 << 20)
torch.Tensor.new_empty = lambda *args, **options: worst(empty(*args, **options))
nan, inf = float("nan"), float("inf")
for (tokens, experts, topk), dtype, normalise in itertools.product(
        ((7, 16, 4), (130, 60, 6), (1, 3, 3), (33, 512, 9)), (torch.float32, torch.bfloat16, torch.float16),
        (True, False)):
    torch.manual_seed(tokens)
    spread = 4 if dtype == torch.float32 else 4096 / experts
    logits = ((torch.rand(tokens, experts).argsort(-1) - experts // 2) * spread / 512).to(dtype)
    logits[0, 0] = -inf
    strided = torch.stack((logits, logits), -1)[..., 0]
    want, want_ids = routing._plain_route(logits, topk, normalise)
    for x in (logits, strided):
        weights, ids = routing._cuda_route(x, topk, normalise)
        assert torch.equal(ids, want_ids)
        torch.testing.assert_close(weights, want)
    g = torch.randn_like(weights)
    operands = None if normalise else strided, weights, ids, g, experts, dtype, normalise
    torch.testing.assert_close(routing._cuda_route_grads(*operands), routing._plain_route_grads(*operands),
                               atol=1e-6, rtol=1e-5 if dtype == torch.float32 else 1.6e-2)
equal = torch.zeros(5, 24, dtype=torch.bfloat16)
assert routing._cuda_route(equal, 3, True)[1].tolist() == [[0, 1, 2]] * 5  # of equal numbers the lower expert
special = torch.tensor([[1.0, nan, -inf, inf], [-0.0, 0.0, -nan, -1.0]])
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    assert routing._cuda_route(special.to(dtype), 2, True)[1].tolist() == [[1, 3], [2, 0]]
routing_kernel.SCAN, routing_kernel.ITEMS = 4, 16
for (tokens, topk, experts), dtype in itertools.product(((100, 3, 5), (70, 2, 33), (1, 1, 1), (9, 4, 1030)),
                                                        (torch.int64, torch.int32)):
    torch.manual_seed(experts)
    ids = torch.randint(0, experts + 2, (tokens, topk)).to(dtype)  # with equal ones of a token, and two of other ranks
    for of in (ids, ids.t().contiguous().t(), ids[:, :1]):
        for got, right in zip(routing._cuda_sort(of, experts), routing.plain_sort(of, experts)):
            assert got.dtype == torch.int32 and torch.equal(got, right)
for tokens, topk, width in ((5, 3, 72), (2, 8, 2048), (9, 1, 130)):
    for dtype in (torch.bfloat16, torch.float32):
        x = torch.randn(tokens * topk, width).to(dtype)
        # The interpreter cuts where a GPU rounds.
        torch.testing.assert_close(rows._cuda_sum_of_slots(x, topk), rows.plain_sum_of_slots(x, topk), atol=1e-6,
                                   rtol=1e-5 if dtype == torch.float32 else 1.6e-2)
strided = lambda t: torch.stack((t, t + 1), 1)[:, 0]
m_sizes, gather = (strided(t.to(torch.int32)) for t in (torch.tensor([4, 0, 3]), torch.randperm(12)))
got, right = torch.ones(2, 12, 40)
rows._cuda_clear(got, gather, m_sizes)
rows._plain_clear(right, gather, m_sizes)
assert torch.equal(got, right)
x = torch.randn(12, 40)
torch.testing.assert_close(rows._cuda_sums(x, m_sizes), rows._plain_sums(x, m_sizes))
print("right")
