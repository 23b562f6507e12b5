# SPDX-License-Identifier: Apache-2.0
"""torch.compile makes no break in the graph around gemmd's ops, and no copy. Skipped where
there is no PyTorch, or where inductor does not show its code this way."""
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed for this Python")
if not hasattr(torch.library, "register_fake"):
    pytest.skip(f"PyTorch {torch.__version__} is older than 2.4", allow_module_level=True)
try:
    import inductor
except ImportError as e:
    pytest.skip(f"PyTorch {torch.__version__} has another inductor: {e}", allow_module_level=True)

import gemmd.torch as gt  # noqa: E402

TOKENS, TOPK, HIDDEN, INTER, EXPERTS = 32, 2, 72, 48, 4
ROUTED = TOKENS * TOPK * HIDDEN  # elements of a tensor [tokens * topk, hidden]; no other tensor has as many


@pytest.fixture(scope="module")
def layer():
    return gt.MoEMLP(HIDDEN, INTER, EXPERTS, TOPK, dtype=torch.bfloat16)


@pytest.fixture
def x():
    return torch.randn(TOKENS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)


def weighted_after(layer, x):
    """The layer by grouped_gemm() alone: routing weights multiply the output in a separate op."""
    weights, ids = gt.route(layer.router(x), layer.topk)
    m_sizes, gather = gt.sort_by_expert(ids, layer.experts)
    h = gt.grouped_gemm(x, layer.gate_up, m_sizes, gather, layer.topk, permute_x=True)
    gate, up = h.chunk(2, -1)
    y = gt.grouped_gemm(torch.nn.functional.silu(gate) * up, layer.down, m_sizes, gather,
                        layer.topk, permute_y=True)
    return (y.view(TOKENS, TOPK, HIDDEN) * weights.to(y.dtype).unsqueeze(-1)).sum(1)


def test_nothing_as_large_as_the_routed_rows_is_made_around_the_products(layer, x):
    forward, backward = inductor.compile_step(layer, [x])
    assert forward.ours == ["route", "sort_by_expert"] + ["grouped_gemm"] * 2
    # one op computes dX and dW, which share an operand; another computes all of SwiGLU's gradients
    assert backward.ours == ["grouped_gemm_grads", "gate_grads", "route_grads", "grouped_gemm_grads"]
    for code in (forward, backward):
        assert ROUTED not in code.elements and code.grouped_mm == 0
    h = TOKENS * TOPK * 2 * INTER
    assert forward.elements.count(h) == 0 and backward.elements.count(h) == 0
    assert forward.elements.count(h // 2) == 1  # the only buffer of this size is the input of the second product
    assert backward.elements.count(h // 2) == 0


def test_the_activation_is_computed_again_where_its_gradients_are(layer, x):
    least = gt.MoEMLP(HIDDEN, INTER, EXPERTS, TOPK, save="least", dtype=torch.bfloat16)
    forward, backward = inductor.compile_step(least, [x])
    assert forward.ours == ["route", "sort_by_expert"] + ["grouped_gemm"] * 2
    assert backward.ours == ["grouped_gemm_dx", "gate_grads", "route_grads", "grouped_gemm_grads", "grouped_gemm_dw"]


def test_the_gradient_of_an_output_is_made_once_for_both_products(layer, x):
    forward, backward = inductor.compile_step(lambda x: weighted_after(layer, x), [x])
    assert forward.elements.count(ROUTED) == 0 and backward.elements.count(ROUTED) == 1


def test_only_the_gradient_that_is_wanted(layer, x):
    frozen = gt.MoEMLP(HIDDEN, INTER, EXPERTS, TOPK, dtype=torch.bfloat16).requires_grad_(False)
    ours = inductor.compile_step(frozen, [x])[1].ours
    assert ours == ["grouped_gemm_dx", "gate_grads", "route_grads", "grouped_gemm_dx"]
    _, backward = inductor.compile_step(layer, [x.detach()])
    assert backward.ours == ["grouped_gemm_grads", "gate_grads", "route_grads", "grouped_gemm_dw"]
