# SPDX-License-Identifier: Apache-2.0
"""gemmd.torchao with the real torchao, on the CPU. torchao's own quantisers are Triton kernels, so gemmd's quantiser
stands in for the one of its activations. Skipped where torchao has no block-scaled MoE training."""
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed for this Python")
pytest.importorskip("torchao.prototype.moe_training.blockwise_fp8.grouped_mm_backend",
                    reason="no torchao with block-scaled MoE training")

import gemmd.torch as gt  # noqa: E402
import gemmd.torchao  # noqa: E402
from gemmd.torch import fp8, scaled  # noqa: E402
from torchao.prototype.moe_training.blockwise_fp8 import grouped_mm, grouped_mm_backend  # noqa: E402
from torchao.quantization.quantize_.common import KernelPreference  # noqa: E402

BF16 = torch.bfloat16
SIZES = torch.tensor([30, 0, 129, 41])
E, T, N, K = 4, int(SIZES.sum()), 256, 128
ENDS = SIZES.cumsum(0).int()


def _quantise(x, block_size, dtype):
    q = scaled.quantise_rows(x.to(BF16), x.shape[0], None, "fp32")
    return q.q, q.scale.t().contiguous().t()


@pytest.fixture(autouse=True, params=["fp8 kernels", "plain PyTorch"])
def fresh(request, tmp_path, monkeypatch):
    torch.manual_seed(0)
    gt.configure(wait="cached", socket=str(tmp_path / "nobody.sock"), retry_s=None, enabled=request.param != "plain PyTorch")
    monkeypatch.setattr(grouped_mm, "triton_fp8_blockwise_act_quant_lhs", _quantise)
    fp8.forget_weights()
    gemmd.torchao.install()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # nobody has measured anything
        yield
    gemmd.torchao.uninstall()


def error(got, right):
    got, right = got.detach().double(), right.detach().double()
    return float((got - right).norm() / right.norm())


@pytest.mark.parametrize("dtype", [BF16, torch.float32])
@pytest.mark.parametrize("pad", [True, False])
def test_a_training_step_is_gemmds_own(pad, dtype):
    sizes = SIZES if pad else torch.tensor([128, 0, 256, 128])
    rows, ends = int(sizes.sum()), sizes.cumsum(0).int()
    x, w, dy = torch.randn(rows, K).to(dtype), torch.randn(E, N, K).to(dtype), torch.randn(rows, N).to(BF16)
    mine = [t.to(BF16).detach().requires_grad_() for t in (x, w)]
    theirs = [t.detach().clone().requires_grad_() for t in (x, w)]
    expected = fp8.grouped_gemm(*mine, sizes)
    y = grouped_mm._to_fp8_blockwise_then_scaled_grouped_mm(
        theirs[0], theirs[1].transpose(-2, -1), ends, pad_token_groups_for_grouped_mm=pad)
    assert y.dtype == BF16 and error(y, expected) < 1e-6
    expected.backward(dy)
    y.backward(dy)
    for a, b in zip(theirs, mine):
        assert a.grad.dtype == dtype and error(a.grad, b.grad) < 1e-6
    assert {p["mode"] for p in gt.status()} >= {"forward", "dX", "dW"}
    assert {p["how"] for p in gt.status()} <= {"compiled here", "plain"}


def test_the_kernels_of_a_step_are_asked_for_at_the_first_product(monkeypatch):
    w = torch.randn(E, N, K).to(BF16)
    grouped_mm._to_fp8_blockwise_then_scaled_grouped_mm(torch.randn(T, K).to(BF16), w.transpose(-2, -1), ENDS)
    assert [p["mode"] for p in gt.status() if p["N"]].count("dW") == 1


def test_torchaos_own_backends_stay_for_all_else():
    def chosen(preference=KernelPreference.AUTO, dtype=BF16):
        return grouped_mm._select_fp8_blockwise_grouped_mm_backend(preference, torch.zeros(T, K), dtype, 128, ENDS)
    assert isinstance(chosen(), gemmd.torchao.Backend)
    for own in (chosen(KernelPreference.EMULATED), chosen(dtype=torch.float32)):
        assert type(own) is grouped_mm_backend._EmulatedGroupedMMBackend
    gemmd.torchao.install()  # twice is once
    gemmd.torchao.uninstall()
    assert type(chosen()) is grouped_mm_backend._EmulatedGroupedMMBackend


def test_torch_compile_gets_torchaos_own_backends():
    """torchao's entry runs with fake tensors then, which have no address."""
    chosen = []

    @torch._dynamo.nonstrict_trace
    def choose(x):
        backend = grouped_mm._select_fp8_blockwise_grouped_mm_backend(KernelPreference.AUTO, x, BF16, 128, ENDS)
        chosen.append(type(backend))
        return x + 1

    torch.compiler.reset()
    torch.compile(choose, backend="aot_eager")(torch.zeros(T, K))
    assert set(chosen) == {grouped_mm_backend._EmulatedGroupedMMBackend}
