# SPDX-License-Identifier: Apache-2.0
"""gemmd.torch.route, sort_by_expert and the sums of rows. Triton's interpreter runs their kernels without a GPU.
Skipped where there is no PyTorch."""
import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed for this Python")
if not hasattr(torch.library, "register_fake"):
    pytest.skip(f"PyTorch {torch.__version__} is older than 2.4", allow_module_level=True)

from gemmd.torch import activation, route, routing, rows, sort_by_expert  # noqa: E402


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


def test_a_triton_that_cannot_launch_is_one_warning():
    """Triton has no driver for the tensors of a CPU."""
    pytest.importorskip("triton", reason="Triton is not installed for this Python")
    ids, h = torch.tensor([[2, 0], [1, 2]]), torch.randn(4, 8)
    with pytest.warns(RuntimeWarning, match="Triton cannot launch a kernel on cpu") as said:
        m_sizes, gather = routing._cuda_sort(ids, 3)
        total = rows._cuda_sum_of_slots(h, 2)
        a = activation._cuda_gate(h, None, None, None, *activation.SWIGLU)
    assert len(said) == 1 and m_sizes.tolist() == [1, 1, 2] and gather.tolist() == [1, 2, 0, 3]
    torch.testing.assert_close(total, h.view(2, 2, 8).sum(1))
    torch.testing.assert_close(a, torch.nn.functional.silu(h[:, :4]) * h[:, 4:])


def test_the_kernels_say_the_same():
    pytest.importorskip("triton", reason="Triton is not installed for this Python")
    run = subprocess.run([sys.executable, pathlib.Path(__file__).with_name("interpreted_routing.py")], capture_output=True, text=True,
                         env=dict(os.environ, TRITON_INTERPRET="1",
                                  PYTHONPATH=os.pathsep.join(sys.path)))
    assert run.returncode == 0 and run.stdout == "right\n", run.stderr[-2000:]
