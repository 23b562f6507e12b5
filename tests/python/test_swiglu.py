# SPDX-License-Identifier: Apache-2.0
"""gemmd.torch.swiglu and the gradients; the gradients' kernel under Triton's interpreter, without a
GPU. Skipped where there is no PyTorch."""
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed for this Python")
if not hasattr(torch.library, "register_fake"):
    pytest.skip(f"PyTorch {torch.__version__} is older than 2.4", allow_module_level=True)

from gemmd.torch import activation  # noqa: E402
from gemmd.torch.activation import swiglu  # noqa: E402


def by_definition(h, weights=None):
    gate, up = h.chunk(2, dim=-1)
    a = gate / (1 + torch.exp(-gate)) * up
    return a if weights is None else a * weights.to(h.dtype)


def operands(rows, inter, weighted, dtype=torch.float32):
    torch.manual_seed(rows * inter)
    h = torch.randn(rows, 2 * inter).to(dtype).requires_grad_()
    weights = torch.rand(rows, 1).requires_grad_() if weighted else None
    return h, weights, torch.randn(rows, inter).to(dtype)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rows, inter", [(1, 8), (7, 96), (33, 40), (0, 16)])
def test_gradients(rows, inter, weighted):
    h, weights, da = operands(rows, inter, weighted)
    inputs = [h, weights] if weighted else [h]
    got, right = swiglu(*inputs), by_definition(*inputs)
    torch.testing.assert_close(got, right)
    for a, b in zip(torch.autograd.grad(got, inputs, da), torch.autograd.grad(right, inputs, da)):
        torch.testing.assert_close(a, b)


def test_gradients_of_half_precision_are_rounded_once():
    h, weights, da = operands(64, 48, True, torch.bfloat16)
    right = [t.detach().float().requires_grad_() for t in (h, weights)]
    got = torch.autograd.grad(swiglu(h, weights), (h, weights), da)
    want = torch.autograd.grad(by_definition(*right), right, da.float())
    assert got[0].dtype == torch.bfloat16 and got[1].dtype == torch.float32
    torch.testing.assert_close(got[0], want[0].bfloat16(), atol=1e-6, rtol=2 ** -7)
    torch.testing.assert_close(got[1], want[1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_routing_weights_of_any_floating_type(dtype):
    """Routers of transformers give weights in the model's type. Each gradient has the type of its operand."""
    h, weights, da = operands(33, 40, True, torch.bfloat16)
    weights = weights.detach().to(dtype).requires_grad_()
    y = swiglu(h, weights)
    got = torch.autograd.grad(y, (h, weights), da)
    want = torch.autograd.grad(swiglu(h, weights.float()), (h, weights), da)
    assert y.dtype == h.dtype and [t.dtype for t in got] == [torch.bfloat16, dtype]
    torch.testing.assert_close(y, by_definition(h, weights), atol=1e-2, rtol=1e-2)
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b)
    torch._dynamo.reset()
    compiled = torch.compile(swiglu, fullgraph=True, backend="aot_eager")
    for a, b in zip(torch.autograd.grad(compiled(h, weights), (h, weights), da), got):
        torch.testing.assert_close(a, b)


def test_operands_that_are_no_whole_blocks():
    h, weights, da = operands(6, 32, True)
    column = torch.rand(6, 4)[:, 1:2].requires_grad_()
    strided = torch.randn(6, 128)[:, ::2].requires_grad_()
    a = swiglu(strided, column)
    b = by_definition(strided, column)
    for got, right in zip(torch.autograd.grad(a, (strided, column), da.t().contiguous().t()),
                          torch.autograd.grad(b, (strided, column), da)):
        torch.testing.assert_close(got, right)


@pytest.mark.parametrize("weighted", [False, True])
def test_compiled_without_a_break(weighted):
    h, weights, da = operands(16, 24, weighted)
    inputs = [h, weights] if weighted else [h]
    torch._dynamo.reset()
    compiled = torch.compile(lambda *t: swiglu(*t), fullgraph=True, backend="aot_eager")
    for a, b in zip(torch.autograd.grad(compiled(*inputs), inputs, da),
                    torch.autograd.grad(by_definition(*inputs), inputs, da)):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_of_gradients_are_an_error(weighted):
    h, weights, da = operands(5, 8, weighted)
    inputs = [h, weights] if weighted else [h]
    first = torch.autograd.grad(swiglu(*inputs), inputs, da.requires_grad_(), create_graph=True)
    with pytest.raises(RuntimeError, match="gradients of gradients"):
        first[0].sum().backward()


def test_what_cannot_be_meant():
    h, weights, _ = operands(4, 8, True)
    for args in ((h[:, :3],), (h[0],), (h, weights[:3]), (h, weights.reshape(-1)),
                 (h, weights.int()), (h.double(),)):
        with pytest.raises(ValueError, match="is \\("):
            swiglu(*args)


@pytest.mark.parametrize("weighted", [False, True])
def test_clamped_gate_with_a_bias(weighted):
    """Checks the activation of gpt-oss (clamped, with a bias) and its gradients against PyTorch's own derivatives, with
    values on both sides of the clamp's limit."""
    torch.manual_seed(3)
    sizes, kind = torch.tensor([4, 0, 9, 3]), activation.Kind(True, 1.702, 0.7)
    expert = torch.repeat_interleave(torch.arange(4), sizes)
    h, bias = torch.randn(16, 24, requires_grad=True), torch.randn(4, 24, requires_grad=True)
    weights = torch.rand(16, 1, requires_grad=True) if weighted else None
    inputs = [h, bias, weights][:3 if weighted else 2]
    got = activation.gated(h, weights, kind, bias, expert, sizes)
    right = activation.plain_gate(h, bias, expert, weights, kind)
    torch.testing.assert_close(got, right)
    da = torch.randn(16, 12)
    for a, b in zip(torch.autograd.grad(got, inputs, da), torch.autograd.grad(right, inputs, da)):
        torch.testing.assert_close(a, b)


INTERPRETED = """
import itertools
import torch
from gemmd.torch.activation import Kind, _cuda_gate, _cuda_grads, _plain_gate_op, _plain_grads
empty = torch.Tensor.new_empty
poison = lambda t: t.fill_(float("nan")) if t.is_floating_point() else t
torch.Tensor.new_empty = lambda *args, **options: poison(empty(*args, **options))
like = torch.empty_like
torch.empty_like = lambda t, **options: poison(like(t, **options))
cases = ((9, 96, torch.float32, torch.float32), (5, 40, torch.bfloat16, None),
         (3, 768, torch.float16, torch.bfloat16), (17, 8, torch.bfloat16, torch.float64))
for (rows, inter, dtype, weighted), kind, biased in itertools.product(
        cases, (Kind(), Kind(True, 1.702, 0.8)), (False, True)):
    torch.manual_seed(rows)
    h, da = torch.randn(rows, 2 * inter).to(dtype), torch.randn(rows, inter).to(dtype)
    bias, expert = (torch.randn(3, 2 * inter).to(dtype), torch.randint(0, 3, (rows,))) if biased else (None, None)
    weights = torch.rand(rows, 1).to(weighted) if weighted else None
    operands = h, bias, expert, weights
    strided = [None if t is None else torch.stack((t, t), -1)[..., 0] for t in (*operands, da)]
    wide = [t.float() if t is not None and t.is_floating_point() else t for t in operands]
    if weights is not None:
        wide[3] = weights.to(dtype).float()
    right = _plain_gate_op(*wide, *kind).to(dtype)
    for a, b in ((_cuda_gate(*operands, *kind), right), (_cuda_gate(*strided[:-1], *kind), right),
                 *zip(_cuda_grads(*operands, da, True, *kind), (*_plain_grads(*operands, da, False, *kind)[:2], right)),
                 *zip(_cuda_grads(*strided, False, *kind), _plain_grads(*operands, da, False, *kind))):
        # The interpreter cuts where a GPU rounds.
        torch.testing.assert_close(a, b, atol=1e-6, rtol={torch.float32: 1e-5, torch.float16: 2e-3,
                                                         torch.bfloat16: 1.6e-2}[dtype])
print("right")
"""


def test_the_kernel_says_the_same():
    pytest.importorskip("triton", reason="Triton is not installed for this Python")
    run = subprocess.run([sys.executable, "-c", INTERPRETED], capture_output=True, text=True,
                         env=dict(os.environ, TRITON_INTERPRET="1",
                                  PYTHONPATH=os.pathsep.join(sys.path)))
    assert run.returncode == 0 and run.stdout == "right\n", run.stderr[-2000:]
