# SPDX-License-Identifier: Apache-2.0
"""gemmd.torch.route, sort_by_expert and the sums of rows; their kernels under Triton's interpreter, without a GPU.
Skipped where there is no PyTorch."""
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed for this Python")
if not hasattr(torch.library, "register_fake"):
    pytest.skip(f"PyTorch {torch.__version__} is older than 2.4", allow_module_level=True)

from gemmd.torch import route, sort_by_expert  # noqa: E402


def by_definition(logits, topk, normalise):
    weights, ids = torch.topk(torch.softmax(logits.float(), -1), topk)
    return weights / weights.sum(-1, keepdim=True) if normalise else weights, ids


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_and_gradients(dtype, normalise):
    torch.manual_seed(1)
    order = torch.rand(3, 11, 16).argsort(-1)  # distinct: PyTorch may choose any of equal logits
    logits = (order / 4 - 2).to(dtype).requires_grad_()
    (weights, ids), (want, want_ids) = route(logits, 4, normalise), by_definition(logits, 4, normalise)
    assert weights.dtype == torch.float32 and ids.dtype == torch.int64 and torch.equal(ids, want_ids)
    torch.testing.assert_close(weights, want)
    g = torch.randn_like(weights)
    got, right = (torch.autograd.grad(w, logits, g)[0] for w in (weights, want))
    assert got.dtype == dtype
    torch.testing.assert_close(got, right, atol=1e-6 if dtype == torch.float32 else 1e-3, rtol=1e-2)


@pytest.mark.parametrize("normalise", [True, False])
def test_compiled_without_a_break(normalise):
    torch._dynamo.reset()
    logits = torch.randn(9, 8, requires_grad=True)
    g = torch.randn(9, 2)

    def weights_and_sizes(x):
        weights, ids = route(x, 2, normalise)
        return weights, *sort_by_expert(ids, 8)

    mine, compiled = weights_and_sizes(logits), torch.compile(weights_and_sizes, fullgraph=True, backend="aot_eager")(logits)
    assert all(torch.equal(a, b) for a, b in zip(mine, compiled))
    assert torch.equal(*(torch.autograd.grad(out[0], logits, g)[0] for out in (mine, compiled)))


def test_a_topk_that_cannot_be_meant():
    for topk in (0, 9):
        with pytest.raises(ValueError, match=f"topk is {topk}"):
            route(torch.zeros(4, 8), topk)


def test_ids_of_other_ranks_come_last():
    ids = torch.tensor([[5, 0], [1, 7], [-1, 1], [0, 4]])
    m_sizes, gather = sort_by_expert(ids, 4)
    assert m_sizes.tolist() == [2, 2, 0, 0] and gather.tolist() == [1, 6, 2, 5, 0, 3, 4, 7]


def test_ids_without_a_row_or_with_one_for_each_token():
    assert [t.numel() for t in sort_by_expert(torch.empty(0, 2, dtype=torch.int64), 4)] == [4, 0]
    m_sizes, gather = sort_by_expert(torch.tensor([2, 0, 2]), 3)
    assert m_sizes.tolist() == [1, 0, 2] and gather.tolist() == [1, 0, 2]


INTERPRETED = """
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
    for of in (ids, ids.t().contiguous().t()):
        for got, right in zip(routing._cuda_sort(of, experts), routing._plain_sort(ids, experts)):
            assert got.dtype == torch.int32 and torch.equal(got, right)
for tokens, topk, width in ((5, 3, 72), (2, 8, 2048), (9, 1, 130)):
    for dtype in (torch.bfloat16, torch.float32):
        x = torch.randn(tokens * topk, width).to(dtype)
        # The interpreter cuts where a GPU rounds.
        torch.testing.assert_close(rows._cuda_sum_of_slots(x, topk), rows.plain_sum_of_slots(x, topk), atol=1e-6,
                                   rtol=1e-5 if dtype == torch.float32 else 1.6e-2)
print("right")
"""


def test_the_kernels_say_the_same():
    pytest.importorskip("triton", reason="Triton is not installed for this Python")
    run = subprocess.run([sys.executable, "-c", INTERPRETED], capture_output=True, text=True,
                         env=dict(os.environ, TRITON_INTERPRET="1",
                                  PYTHONPATH=os.pathsep.join(sys.path)))
    assert run.returncode == 0 and run.stdout == "right\n", run.stderr[-2000:]
