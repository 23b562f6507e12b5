# SPDX-License-Identifier: Apache-2.0
"""gemmd.torch.fp8 on the CPU: results and gradients against sums in double over numbers that this file quantises."""
import gc
import math
import sys
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed for this Python")
if not hasattr(torch.library, "register_autograd"):
    pytest.skip(f"PyTorch {torch.__version__} is older than 2.4", allow_module_level=True)

import gemmd  # noqa: E402
import gemmd.torch as gt  # noqa: E402
from gemmd.torch import fp8, override, plans, scaled, scaled_grouped_mm  # noqa: E402
from gemmd.torch.fp8 import seen, weights  # noqa: E402

BF16, FP32, E4M3 = torch.bfloat16, torch.float32, torch.float8_e4m3fn
E, TOPK, TOKENS, N, K = 4, 2, 75, 144, 272  # N and K end inside a block of 128
T = TOKENS * TOPK
LIMITS = {BF16: 2.5e-3, FP32: 4e-4}


@pytest.fixture(autouse=True)
def fresh(tmp_path):
    torch.manual_seed(0)
    gt.configure(wait="cached", socket=str(tmp_path / "nobody.sock"), retry_s=None, enabled=True, batch_invariant=False)
    seen.forget()
    fp8.forget_weights()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # nobody has measured anything
        yield
    fp8.stay_bf16(None)


def error(got, right):
    got, right = got.detach().double(), right.double()
    return float((got - right).norm() / right.norm())


# ---- the right results ---------------------------------------------------------------------------

def quantised(x, block_rows, block_columns):
    """x in double, as the numbers that the quantiser makes of it."""
    rows, columns = x.shape
    padded = torch.nn.functional.pad(x.float(), (0, -columns % block_columns, 0, -rows % block_rows))
    blocks = padded.reshape(len(padded) // block_rows, block_rows, -1, block_columns)
    scale = blocks.abs().amax((1, 3), keepdim=True).clamp(min=1e-12) / torch.tensor(448.0)
    values = (blocks * (1 / scale)).to(E4M3).double() * scale.double()
    return values.reshape(padded.shape)[:rows, :columns]


def right(x, w, m_sizes, dy, rows_of_x=None, rows_of_dy=None):
    """y, dx and dw in expert order. w: [E, N, K]; rows_of_*: the row that each routed row reads."""
    x = x.detach() if rows_of_x is None else x.detach()[rows_of_x]
    dy = dy if rows_of_dy is None else dy[rows_of_dy]
    y, dx, dw = (torch.zeros(shape, dtype=torch.double) for shape in ((len(x), w.shape[1]), x.shape, w.shape))
    at = 0
    for e, size in enumerate(m_sizes.tolist()):
        own, of_w = slice(at, at + size), quantised(w[e].detach().to(BF16), 128, 128)
        at += size
        if size:
            y[own] = quantised(x[own], 1, 128) @ of_w.t()
            dx[own] = quantised(dy[own], 1, 128) @ of_w
            dw[e] = quantised(dy[own], 128, 1).t() @ quantised(x[own], 128, 1)
    return y, dx, dw


def routing(index=torch.int32):
    """Expert 1 has no rows."""
    scores = torch.rand(TOKENS, E)
    scores[:, 1] = -1
    m_sizes, gather = gt.sort_by_expert(scores.topk(TOPK).indices, E)
    return m_sizes.to(index), gather.to(index)


def operands(rows=T, dtype=BF16, transposed=False):
    x = (torch.randn(rows, K) * torch.logspace(-3, 3, K)).to(BF16)
    w = torch.randn((E, K, N) if transposed else (E, N, K), dtype=FP32).to(dtype)
    return x.requires_grad_(), w.requires_grad_()


def assert_step(y, x, w, dy, rights):
    dx, dw = torch.autograd.grad(y, (x, w), dy)
    assert (y.dtype, dx.dtype, dw.dtype) == (BF16, BF16, w.dtype)
    for got, expected in zip((y, dx, dw), rights):
        assert error(got, expected) < LIMITS[BF16]
    return dx, dw


SWITCHES = pytest.mark.parametrize("enabled", [True, False], ids=["kernels", "plain"])


@SWITCHES
@pytest.mark.parametrize("dtype", [BF16, FP32])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_step_in_expert_order(enabled, dtype, transposed):
    gt.configure(enabled=enabled)
    (x, w), (m_sizes, _) = operands(dtype=dtype, transposed=transposed), routing()
    y = fp8.grouped_gemm(x, w, m_sizes, transposed=transposed)
    dy = torch.randn(T, N).to(BF16)
    stored = w.transpose(1, 2) if transposed else w
    y_right, dx_right, dw_right = right(x, stored, m_sizes, dy)
    _, dw = assert_step(y, x, w, dy, (y_right, dx_right, dw_right.transpose(1, 2) if transposed else dw_right))
    assert not dw[1].any()
    assert error(dw, dw_right.transpose(1, 2) if transposed else dw_right) < LIMITS[dtype]


@SWITCHES
@pytest.mark.parametrize("transposed", [False, True])
def test_a_step_with_rows_in_token_order(enabled, transposed):
    gt.configure(enabled=enabled)
    (x, w), (m_sizes, gather) = operands(TOKENS, transposed=transposed), routing(torch.int64)
    stored, dy = w.transpose(1, 2) if transposed else w, torch.randn(T, N).to(BF16)
    how = {"permute_x": True, "transposed": transposed}
    y, dx, dw = right(x, stored, m_sizes, dy, rows_of_x=gather // TOPK)
    summed = torch.zeros(TOKENS, K, dtype=torch.double).index_add_(0, gather // TOPK, dx)
    assert_step(fp8.grouped_gemm(x, w, m_sizes, gather, TOPK, **how), x, w, dy,
                (y, summed, dw.transpose(1, 2) if transposed else dw))


@SWITCHES
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("summed", [False, True])
def test_a_step_with_results_in_token_order(enabled, transposed, summed):
    gt.configure(enabled=enabled)
    (x, w), (m_sizes, gather) = operands(transposed=transposed), routing()
    stored, where = w.transpose(1, 2) if transposed else w, gather.long()
    dy = torch.randn(TOKENS if summed else T, N).to(BF16)
    y, dx, dw = right(x, stored, m_sizes, dy, rows_of_dy=where // TOPK if summed else where)
    y = torch.empty_like(y).index_copy_(0, where, y)
    if summed:
        y = y.reshape(TOKENS, TOPK, N).sum(1)
        got = fp8.grouped_gemm_sum(x, w, m_sizes, gather, TOPK, transposed=transposed)
    else:
        got = fp8.grouped_gemm(x, w, m_sizes, gather, TOPK, permute_y=True, transposed=transposed)
    assert_step(got, x, w, dy, (y, dx, dw.transpose(1, 2) if transposed else dw))


@SWITCHES
@pytest.mark.parametrize("sizes", [[0, 0, 0, 7], [1, 15, 16, 97], [128, 129, 127, 0], [0, 0, 0, 0]])
def test_odd_rows_of_experts(enabled, sizes):
    gt.configure(enabled=enabled)
    m_sizes, rows = torch.tensor(sizes), sum(sizes)
    x, w = operands(rows)
    y, dy = fp8.grouped_gemm(x, w, m_sizes), torch.randn(rows, N).to(BF16)
    if rows:
        assert_step(y, x, w, dy, right(x, w, m_sizes, dy))
    else:
        dx, dw = torch.autograd.grad(y, (x, w), dy)
        assert (y.shape, dx.shape, dw.any()) == ((0, N), (0, K), False)


@SWITCHES
@pytest.mark.parametrize("plan", [None, "dW"])
def test_rows_of_no_expert_count_for_nothing(enabled, plan, worst_memory):
    gt.configure(enabled=enabled)
    fp8.stay_bf16(lambda layer: plan)
    for experts in (E, 1):
        x, w = operands(40)
        w = w[:experts].detach().requires_grad_()
        m_sizes, dy = torch.tensor([25] + [0] * (experts - 1)), torch.randn(40, N).to(BF16)
        with torch.no_grad():
            x[25:], dy[25:] = math.nan, math.nan
        y = fp8.grouped_gemm(x, w, m_sizes, partial=True)
        dx, dw = torch.autograd.grad(y, (x, w), dy)
        assert not dx[25:].any()
        y_right, dx_right, dw_right = right(x[:25], w, m_sizes, dy[:25])
        for got, expected in ((y[:25], y_right), (dx[:25], dx_right), (dw, dw_right)):
            assert error(got, expected) < (0.05 if plan and got is dw else LIMITS[BF16])


@pytest.mark.parametrize("enabled, dtype, plan", [(True, FP32, None), (True, BF16, None), (True, torch.double, None), (True, FP32, "dW"),
                                                  (True, FP32, "all"), (False, FP32, None), (False, FP32, "dW")])
def test_gradients_are_added_to_main_gradients(enabled, dtype, plan):
    gt.configure(enabled=enabled)
    fp8.stay_bf16(lambda layer: plan)
    (x, w), (m_sizes, _) = operands(), routing()
    main_grad, dy = torch.ones(w.shape, dtype=dtype), torch.randn(T, N).to(BF16)
    for step in (1, 2):
        fp8.grouped_gemm(x, w, m_sizes, main_grad=main_grad).backward(dy)
        assert w.grad is None and (main_grad[1] == 1).all()
        dw = right(x, w, m_sizes, dy)[2]
        limit = 0.05 if plan else 8e-3 if dtype == BF16 else LIMITS[FP32]
        assert error(main_grad - 1, step * dw) < limit


def test_a_main_gradient_off_16_bytes_gets_no_kernel_of_bf16():
    """A GPU's kernel refuses the address, and its refusal would be the plan of later steps."""
    fp8.stay_bf16(lambda layer: "dW")
    (x, w), (m_sizes, _) = operands(), routing()
    main_grad = torch.zeros(w.numel() + 1)[1:].view(w.shape)
    fp8.grouped_gemm(x, w, m_sizes, main_grad=main_grad).backward(torch.ones(T, N, dtype=BF16))
    assert main_grad.any() and not any(row["launches"] for row in gt.status() if row["mode"] == "dW")


def test_only_wanted_gradients_are_made():
    (x, w), (m_sizes, gather) = operands(), routing()
    dy = torch.randn(T, N).to(BF16)
    _, dx_right, dw_right = right(x, w, m_sizes, dy)
    assert error(torch.autograd.grad(fp8.grouped_gemm(x, w.detach(), m_sizes), x, dy)[0], dx_right) < LIMITS[BF16]
    assert error(torch.autograd.grad(fp8.grouped_gemm(x.detach(), w, m_sizes), w, dy)[0], dw_right) < LIMITS[BF16]
    assert {p.mode for p, _ in seen.products()} == {"forward", "dX", "dW"}
    assert not fp8.grouped_gemm(x.detach(), w.detach(), m_sizes).requires_grad


# ---- the quantiser ------------------------------------------------------------------------------

def special():
    x = (torch.randn(T, K) * torch.logspace(-30, 30, T).unsqueeze(1)).to(BF16)
    x[3, 5], x[4, 6], x[5, 7], x[6], x[7, :128] = math.nan, math.inf, -math.inf, 0, -0.0
    return x


@pytest.mark.parametrize("scale_type", ["fp32", "pow2"])
def test_plain_pytorch_makes_the_bytes_of_the_kernels(scale_type):
    x, (m_sizes, gather) = special(), routing()
    w = torch.randn(E, N, K).to(BF16)
    w[2, 5, 7], w[3] = math.nan, 0

    def run():
        by_token = scaled.Gather(gather, TOPK)
        rows = scaled.quantise_rows(x, T, None, scale_type)
        both = scaled.quantise_columns(x[:TOKENS].contiguous(), T, m_sizes, by_token, scale_type, both=True)
        return [rows, *both, scaled.quantise_columns(x, T, m_sizes, None, scale_type)[1],
                *scaled.quantise_weights(w, scale_type)]
    ours = run()
    assert {p["how"] for p in gt.status()} == {"compiled here"}
    gt.configure(enabled=False)
    used = int(((m_sizes + 127) // 128).sum())  # columns behind the last expert's are not written
    for a, b in zip(ours, run()):
        columns = a.q.shape[-1] if a.q.shape[-2:] in ((T, K), (N, K), (K, N)) else used * 128
        assert torch.equal(a.q[..., :columns].view(torch.uint8), b.q[..., :columns].view(torch.uint8))
        blocks = (columns + 127) // 128
        assert torch.equal(a.scale[..., :blocks], b.scale[..., :blocks])


def test_nan_and_infinity_stay_in_their_rows():
    (x, w), (m_sizes, _) = operands(), routing()
    with torch.no_grad():
        x[3, 5], x[4, 6] = math.nan, math.inf
    y = fp8.grouped_gemm(x, w, m_sizes)
    assert y[3].isnan().all() and y[4].isfinite().all()
    assert y.isnan().sum() == N


# ---- copies of weights --------------------------------------------------------------------------

def count_quantised(monkeypatch):
    calls = []
    own = weights.quantise_weights
    monkeypatch.setattr(weights, "quantise_weights", lambda *rest: calls.append(1) or own(*rest))
    return calls


def test_weights_are_quantised_once_for_each_version(monkeypatch):
    calls = count_quantised(monkeypatch)
    (x, w), (m_sizes, _) = operands(), routing()
    for _ in range(2):
        fp8.grouped_gemm(x, w, m_sizes).sum().backward()
    assert len(calls) == 1
    with torch.no_grad():
        w.mul_(2)
    assert error(fp8.grouped_gemm(x, w, m_sizes), right(x, w, m_sizes, torch.ones(T, N, dtype=BF16))[0]) < LIMITS[BF16]
    assert len(calls) == 2


def test_an_optimizer_step_behind_pytorchs_count_is_seen(monkeypatch):
    calls = count_quantised(monkeypatch)
    (x, w), (m_sizes, _) = operands(), routing()
    before = fp8.grouped_gemm(x, w, m_sizes).detach()

    class Optimizer(torch.optim.SGD):
        def step(self, closure=None):
            w.data.neg_()  # as of main weights that are copied back
    Optimizer([w], lr=1).step()
    assert torch.equal(fp8.grouped_gemm(x, w, m_sizes), -before) and len(calls) == 2
    w.data.neg_()
    fp8.forget_weights()
    assert torch.equal(fp8.grouped_gemm(x, w, m_sizes), before) and len(calls) == 3


def test_replays_of_a_captured_optimizer_step_are_seen(monkeypatch):
    monkeypatch.setattr(weights, "_step_was_captured", False)
    (x, w), (m_sizes, _) = operands(), routing()
    with monkeypatch.context() as during:
        during.setattr(torch.cuda, "is_initialized", lambda: True)
        during.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        torch.optim.SGD([w], lr=1).step()
    before = fp8.grouped_gemm(x, w, m_sizes).detach()
    w.data.neg_()  # as a replay does
    assert torch.equal(fp8.grouped_gemm(x, w, m_sizes), -before)


def test_weights_that_fsdp_gathers_are_quantised_after_each_step(one_rank):
    """FSDP2 writes the gathered weights behind PyTorch's count."""
    from torch.distributed.fsdp import fully_shard
    x, (m_sizes, _) = operands()[0].detach(), routing()

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.w = torch.nn.Parameter(torch.randn(E, N, K).to(BF16))

        def forward(self, x):
            return fp8.grouped_gemm(x, self.w, m_sizes)

    def train(layer):
        optimizer, outs = torch.optim.SGD(layer.parameters(), lr=1.0), []
        for _ in range(3):
            outs.append(layer(x))
            outs[-1].float().square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return outs
    expected = train(Layer())
    for got, wanted in zip(train(fully_shard(Layer(), mesh=one_rank)), expected):
        assert torch.equal(got, wanted)
    assert not torch.equal(expected[0], expected[1])


def test_copies_go_with_their_weights():
    gc.collect()
    fp8.forget_weights()
    before, (x, w) = len(weights._copies), operands()
    fp8.grouped_gemm(x, w, routing()[0])
    assert weights.copied_bytes() == E * (2 * N * K + 4 * 2 * 3)
    del w
    gc.collect()
    assert weights.copied_bytes() == 0 and len(weights._copies) == before


def test_copies_go_with_the_numbers_of_their_weights(one_rank):
    """FSDP2 keeps the storages of gathered weights, and empties them after a layer's forward."""
    from torch.distributed.fsdp import fully_shard

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(E, K, K).to(BF16))

        def forward(self, x):
            return fp8.grouped_gemm(x, self.w, m_sizes)

    (x, _), (m_sizes, _) = operands(), routing()
    layers = [fully_shard(Layer(), mesh=one_rank, reshard_after_forward=True) for _ in range(4)]
    gc.collect()
    fp8.forget_weights()
    torch.nn.Sequential(*layers)(x)
    assert weights.copied_bytes() == E * (2 * K * K + 4 * 3 * 3)


def test_weights_at_the_same_place_with_another_shape_are_others():
    x, (m_sizes, _) = operands()[0].detach(), routing()
    both = torch.randn(E, 2 * N, K).to(BF16)
    for w in (both[:, :N], both[:, N:], both[:, :N]):
        assert error(fp8.grouped_gemm(x, w, m_sizes), right(x, w, m_sizes, torch.ones(T, N, dtype=BF16))[0]) < LIMITS[BF16]


# ---- what stays bf16, and the report ------------------------------------------------------------

@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("plan", ["dW", "all"])
@pytest.mark.parametrize("form", ["order", "permute_x", "permute_y", "sum"])
def test_the_hook_keeps_products_in_bf16(transposed, plan, form):
    layers = []
    fp8.stay_bf16(lambda layer: layers.append(layer) or plan)
    (x, w), (m_sizes, gather) = operands(TOKENS if form == "permute_x" else T, transposed=transposed), routing()
    results = []  # of fp8, and of gemmd.torch in bf16
    for of, more in ((fp8, {"name": "first"}), (gt, {})):
        if form == "sum":
            y = of.grouped_gemm_sum(x, w, m_sizes, gather, TOPK, transposed=transposed, **more)
        else:
            how = {} if form == "order" else {form: True}
            y = of.grouped_gemm(x, w, m_sizes, gather, TOPK, transposed=transposed, **how, **more)
        dy = torch.ones_like(y) * torch.linspace(-1, 1, N).to(BF16)
        results.append((y, *torch.autograd.grad(y, (x, w), dy)))
    exact = [2] if plan == "dW" else [0, 1, 2]
    for i in exact:
        assert error(results[0][i], results[1][i].detach()) < 8e-3
    assert layers == [fp8.Layer(T, N, K, E, None, "first")]
    assert {(p.mode, p.place) for p, _ in seen.products()} == {
        (mode, "fp8" if plan == "dW" and mode != "dW" else "bf16") for mode in ("forward", "dX", "dW")}


def test_a_hook_that_answers_nonsense_is_an_error():
    (x, w), (m_sizes, _) = operands(), routing()
    fp8.stay_bf16(lambda layer: "dx")
    with pytest.raises(ValueError, match="returned 'dx'"):
        fp8.grouped_gemm(x, w, m_sizes)
    with pytest.raises(TypeError, match="a function of a Layer"):
        fp8.stay_bf16("dW")


def test_the_report_lists_products_and_what_they_keep():
    (x, w), (m_sizes, gather) = operands(), routing()
    main_grad = torch.zeros(w.shape)
    fp8.grouped_gemm(x, w, m_sizes, main_grad=main_grad).sum().backward()
    fp8.grouped_gemm_sum(x, w, m_sizes, gather, TOPK).sum().backward()
    rows = fp8.report()
    assert {r["mode"]: r["calls"] for r in rows[:-1] if r["mode"] == "dW"} == {"dW": 1}
    assert sorted(r["mode"] for r in rows) == ["dW", "dW", "dX", "dX", "forward", "forward", "weights"]
    for r in rows[:-1]:
        assert (r["M"], r["N"], r["K"], r["experts"], r["runs"]) == (T, N, K, E, "fp8") and r["fp8_us"] > 0
        assert r["gain"] == r["bf16_us"] / r["fp8_us"]
        assert ("gains nothing" in r["note"]) == (r["gain"] < 1.05)
    assert {r["kept_bytes"] for r in rows if r["mode"] == "forward"} == {T * K * 2}
    assert main_grad.any() and rows[-1]["kept_bytes"] == weights.copied_bytes()
    assert fp8.report()[0]["calls"] == rows[0]["calls"]  # a report counts no calls


def test_of_many_rows_the_fp8_columns_are_kept():
    x, w = torch.randn(2048, K).to(BF16).requires_grad_(), operands()[1]
    m_sizes, dy = torch.tensor([1000, 0, 48, 1000]), torch.randn(2048, N).to(BF16)
    y = fp8.grouped_gemm(x, w, m_sizes)
    assert all(t is None or t.dtype != BF16 or t.shape == w.shape for t in y.grad_fn.saved_tensors)
    assert_step(y, x, w, dy, right(x, w, m_sizes, dy))
    wide = (2048 + 127 * E) // 128 * 128
    assert {p.kept_bytes for p, _ in seen.products() if p.mode == "forward"} == {wide * K + wide // 128 * K * 4}
    assert "both" in {p["mode"] for p in gt.status()}


def test_the_report_says_why_fp8_gains_nothing(monkeypatch):
    monkeypatch.setattr(sys.modules["gemmd.torch.fp8.report"], "_measure", lambda product: (1.0, 1.0))
    (x, w), (m_sizes, _) = operands(), routing()
    fp8.grouped_gemm(x, w, m_sizes, main_grad=torch.zeros(w.shape)).sum().backward()
    notes = {r["mode"]: r["note"] for r in fp8.report()}
    assert "fp32 gradients" in notes["dW"] and f"({T // E} rows an expert" in notes["forward"] and "rows an expert" in notes["dX"]


def test_a_models_fp8_keys_are_those_of_its_layers():
    problems = gemmd.model_problems({"experts": E, "topk": TOPK, "hidden": K, "inter": N}, TOKENS, quant="fp8_block")
    gt.configure(enabled=False)
    first, second = (torch.zeros(s, dtype=BF16) for s in ((E, 2 * N, K), (E, K, N)))
    fp8.prepare_layer(torch.zeros(TOKENS, K, dtype=BF16), first, second, TOPK, False)
    asked = [plans.plans._problem(call) for call in plans.plans._plans]
    assert len(problems) == len(asked) and all(p in problems for p in asked)
    assert {p.mode for p in problems} >= {"forward", "dX", "dW"} and any("mode=weights" in (p.text or "") for p in problems)
    with pytest.raises(ValueError, match="quant is"):
        gemmd.model_problems("qwen3-30b-a3b", 8, quant="fp8_row")


# ---- linear_a8w8 --------------------------------------------------------------------------------

def dense(m=33, n=200, k=272):
    """Scales that have nothing to do with the numbers, over many octaves."""
    q = [torch.randn(s).to(E4M3) for s in ((m, k), (n, k))]
    return [*q, *(torch.exp2(torch.randn(s) * 4) for s in ((m, -(-k // 128)), (-(-n // 128), -(-k // 128))))]


def dense_right(x_q, w_q, x_scale, w_scale):
    def wide(s, block, shape):
        return s.double().repeat_interleave(block, 0).repeat_interleave(128, 1)[:shape[0], :shape[1]]
    return (x_q.double() * wide(x_scale, 1, x_q.shape)) @ (w_q.double() * wide(w_scale, 128, w_q.shape)).t()


@SWITCHES
@pytest.mark.parametrize("m", [1, 33, 200])
def test_linear_a8w8(enabled, m):
    gt.configure(enabled=enabled)
    x_q, w_q, x_scale, w_scale = dense(m)
    expected = dense_right(x_q, w_q, x_scale, w_scale)
    assert error(fp8.linear_a8w8(x_q, w_q, x_scale, w_scale), expected) < LIMITS[BF16]
    y = torch.empty(m, 200, dtype=BF16)
    turned = x_scale.t().contiguous().t()
    assert fp8.gemm_a8w8_blockscale(x_q, w_q, turned, w_scale.t().contiguous().t(), BF16, y, {"BLOCK_SIZE_M": 16}) is y
    assert error(y, expected) < LIMITS[BF16]


@SWITCHES
def test_scales_of_nan_infinity_and_zero_mean_what_they_mean_in_a_product(enabled):
    gt.configure(enabled=enabled)
    x_q, w_q, x_scale, w_scale = dense()
    x_scale[2, 1], x_scale[3], x_scale[5, 0] = math.nan, 0, math.inf
    y = fp8.linear_a8w8(x_q, w_q, x_scale, w_scale)
    assert y[2].isnan().all() and not y[3].any() and not y[5].isfinite().any()
    others = [i for i in range(33) if i not in (2, 3, 5)]
    assert error(y[others], dense_right(x_q, w_q, x_scale, w_scale)[others]) < LIMITS[BF16]


@pytest.mark.parametrize("change, sentence", [
    (dict(x_scale=torch.ones(33, 2)), r"x_scale is \(33, 2\)"),
    (dict(w_scale=torch.ones(2, 3, dtype=BF16)), "w_scale is torch.bfloat16"),
    (dict(w_scale=torch.ones(200)), r"w_scale is torch.float32 \(200,\)"),
    (dict(x_q=torch.zeros(33, 272, dtype=BF16)), "x_q is torch.bfloat16"),
    (dict(w_q=torch.zeros(200, 256).to(E4M3), w_scale=torch.ones(2, 2)), r"w_q \(200, 256\)"),
    (dict(x_q=torch.zeros(33, 264).to(E4M3), w_q=torch.zeros(200, 264).to(E4M3)), "multiple of 16"),
    (dict(w_scale=torch.ones(2, 3, device="meta")), "w_scale is on meta"),
    (dict(dtype=FP32), "the result is bfloat16"),
    (dict(y=torch.zeros(33, 201, dtype=BF16)), r"y is torch.bfloat16 \(33, 201\)"),
    (dict(x_q=None), "x_q is a NoneType"),
])
def test_bad_operands_of_linear_a8w8_are_a_sentence(change, sentence):
    given = {**dict(zip(("x_q", "w_q", "x_scale", "w_scale"), dense())), **change}
    with pytest.raises(ValueError, match=sentence):
        fp8.linear_a8w8(**given)


# ---- aten::_scaled_grouped_mm ---------------------------------------------------------------------

ENDS = torch.tensor([40, 40, 90, T - 3], dtype=torch.int32)  # an expert without rows, and rows of no expert


def rows_scaled():
    """(a, b, scale_a, scale_b, offs) as torch._scaled_grouped_mm has them."""
    a, w = torch.randn(T, K).to(E4M3), torch.randn(E, N, K).to(E4M3)
    return [a, w.transpose(1, 2), *(torch.exp2(torch.randn(s) * 4) for s in ((T,), (E, N))), ENDS]


@pytest.fixture
def pytorchs(monkeypatch):
    """Collects the calls of PyTorch's own kernel, and forgets all products."""
    calls = []
    monkeypatch.setattr(scaled_grouped_mm.own, "call", lambda *rest, **of: calls.append((rest, of)) or "PyTorch's")
    yield calls
    scaled_grouped_mm.uninstall()


def test_scaled_grouped_mm_by_rows(pytorchs):
    a, b, scale_a, scale_b, offs = given = rows_scaled()
    y = scaled_grouped_mm._run("cuda", None, *given, None, None, BF16, True)
    v2 = scaled_grouped_mm._run_v2("cuda", None, a, b, [scale_a], [1], [], [scale_b], [1], [], offs, None, BF16)
    at = 0
    for e, end in enumerate(offs.tolist()):
        expected = a[at:end].double() * scale_a[at:end, None] @ (b[e].double() * scale_b[e])
        assert at == end or max(error(y[at:end], expected), error(v2[at:end], expected)) < LIMITS[BF16]
        at = end
    assert not pytorchs and [(p.launches, p.left) for p in override.products()] == [(2, 0)]


def test_the_first_product_asks_for_the_gradient_of_x(pytorchs):
    scaled_grouped_mm._run("cuda", None, *rows_scaled())
    assert {(p["mode"], p["N"], p["K"]) for p in gt.status()} == {("forward", N, K), ("forward", K, N)}
    with torch.inference_mode():
        scaled_grouped_mm._run("cuda", None, *[t[:100] if i in (0, 2) else t for i, t in enumerate(rows_scaled())])
    assert sum(p["M"] == 100 for p in gt.status()) == 1


# ---- quantise_rows -------------------------------------------------------------------------------

@SWITCHES
@pytest.mark.parametrize("scale_type", ["fp32", "pow2"])
def test_rows_are_quantised_with_a_scale_each(enabled, scale_type):
    gt.configure(enabled=enabled)
    x = torch.randn(3, 50, K).to(BF16) * torch.exp2(torch.arange(150.) - 75).reshape(3, 50, 1).to(BF16)
    x[0, 0] = 0
    x[1, 1, 5], x[1, 2, 7], x[2, 3] = float("nan"), -float("inf"), float("inf")
    q, scale = fp8.quantise_rows(x, scale_type)
    wide = x.float()
    amax = torch.where(wide.isfinite(), wide.abs(), wide.new_zeros(())).amax(-1)
    expected = amax.clamp(min=1e-12) / torch.full_like(amax, 448)
    if scale_type == "pow2":
        expected = torch.exp2(torch.ceil(torch.log2(expected.double()))).float()
    assert q.shape == x.shape and torch.equal(scale, expected)
    values = (wide * (1 / scale)[..., None]).clamp(-448, 448).to(E4M3)
    numbers = ~wide.isnan()
    assert torch.equal(q.view(torch.uint8)[numbers], values.view(torch.uint8)[numbers])
    assert q.view(torch.uint8)[1, 1, 5] == 0x7f and q[1, 2, 7].float() == -448
    assert {p["how"] for p in gt.status()} == {"compiled here" if enabled else "plain"}
    empty, none = fp8.quantise_rows(x[:0], scale_type)
    assert empty.shape == (0, 50, K) and none.shape == (0, 50)


def test_quantised_rows_are_operands_of_the_product(pytorchs):
    x, w = torch.randn(T, K).to(BF16), torch.randn(E, N, K).to(BF16)
    (a, scale_a), (b, scale_b) = fp8.quantise_rows(x), fp8.quantise_rows(w)
    y = scaled_grouped_mm._run("cuda", None, a, b.transpose(1, 2), scale_a, scale_b, ENDS)
    assert error(y[:40], x[:40].double() @ w[0].double().t()) < 0.04  # two roundings to fp8


@pytest.mark.parametrize("x, how, sentence", [
    (torch.zeros(4, 32), "fp32", "rows of bfloat16"), (torch.zeros(32, dtype=BF16), "fp32", "rows of bfloat16"),
    (None, "fp32", "x is NoneType"), (torch.zeros(4, 40, dtype=BF16), "fp32", "a multiple of 16"),
    (torch.zeros(4, 32, dtype=BF16), "e8m0", "scale_type is 'e8m0'")])
def test_bad_rows_are_a_sentence(x, how, sentence):
    with pytest.raises(ValueError, match=sentence):
        fp8.quantise_rows(x, how)


def test_compiled_code_quantises_rows():
    x = torch.randn(48, K).to(BF16)
    compiled = torch.compile(lambda x: fp8.quantise_rows(x * 2), fullgraph=True, backend="aot_eager")
    assert all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(compiled(x), fp8.quantise_rows(x * 2)))


@pytest.mark.parametrize("change", [
    {0: torch.zeros(T, K).to(torch.float8_e5m2)}, {0: torch.zeros(T, 40).to(E4M3), 1: torch.zeros(E, N, 40).to(E4M3).mT},
    {1: torch.zeros(E, K, N).to(E4M3)}, {1: torch.zeros(K, T).to(E4M3)}, {2: torch.ones(T, dtype=BF16)},
    {2: torch.ones(T, 1)}, {2: torch.ones(2 * T)[::2]}, {3: torch.ones(E, N, device="meta")}, {3: torch.ones(E, 1).expand(E, N)},
    {4: ENDS.long()}, {4: torch.tensor([40, 30, 90, T], dtype=torch.int32)}, {5: torch.zeros(N)}, {6: torch.ones(1)},
    {7: FP32}, {4: None}])
def test_what_gemmd_does_not_take_gets_pytorchs_kernel(pytorchs, change):
    given = [*rows_scaled(), None, None, BF16, False]
    for i, value in change.items():
        given[i] = value
    assert scaled_grouped_mm._run("cuda", "keys", *given) == "PyTorch's"
    (rest, of), = pytorchs
    assert of == {"op": "aten::_scaled_grouped_mm"} and all(x is y for x, y in zip(rest, ("cuda", "keys", *given)))
    assert len(rest) == 2 + len(given)


# ---- bad input, and gemmd away -------------------------------------------------------------------

@pytest.mark.parametrize("change, sentence", [
    (dict(x=torch.zeros(T, K)), "x is torch.float32"),
    (dict(w=torch.zeros(E, N, K, dtype=torch.half)), "w torch.float16"),
    (dict(w=torch.zeros(E, 100, K, dtype=BF16)), "multiples of 16"),
    (dict(x=torch.zeros(T, 40, dtype=BF16), w=torch.zeros(E, N, 40, dtype=BF16)), "multiples of 16"),
    (dict(w=torch.zeros(E, N, 32, dtype=BF16)), r"w is \(4, 144, 32\)"),
    (dict(w=torch.zeros(E, N, K, dtype=BF16, device="meta")), "w is on meta"),
    (dict(m_sizes=torch.tensor([T, 0, 0, 1])), "m_sizes is"),
    (dict(m_sizes=torch.tensor([T, 0, 0])), "m_sizes is"),
    (dict(scale_type="e8m0"), "scale_type is 'e8m0'"),
    (dict(main_grad=torch.zeros(E, N)), r"main_grad is torch.float32 \(4, 144\)"),
    (dict(main_grad=3), "main_grad is int"),
    (dict(permute_x=True), "need gather_indices"),
    (dict(x=None), "x is missing"),
])
def test_bad_operands_are_a_sentence(change, sentence):
    given = dict(zip(("x", "w"), (t.detach() for t in operands())), m_sizes=routing()[0])
    with pytest.raises(ValueError, match=sentence):
        fp8.grouped_gemm(**{**given, **change})


def test_bad_topk_of_a_sum_is_a_sentence():
    (x, w), (m_sizes, gather) = operands(), routing()
    for topk, sentence in (0, "topk is 0"), (4, "150 rows: topk = 4"):
        with pytest.raises(ValueError, match=sentence):
            fp8.grouped_gemm_sum(x, w, m_sizes, gather, topk)


def test_without_a_kernel_plain_pytorch_runs_with_one_warning(monkeypatch):
    def refuse(*_):
        raise gt.plans.GemmdError("kernel_compile", -18, "no_compiler", "there is no compiler")
    monkeypatch.setattr(plans.plans, "_compile", refuse)
    (x, w), (m_sizes, _) = operands(), routing()
    dy = torch.randn(T, N).to(BF16)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert_step(fp8.grouped_gemm(x, w, m_sizes), x, w, dy, right(x, w, m_sizes, dy))
    assert len([s for s in said if "gemmd" in str(s.message)]) == 1
    assert {p["how"] for p in gt.status()} == {"plain"}


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("main, rows", [(False, T), (True, 2048)])
@pytest.mark.parametrize("form", ["order", "permute_x", "permute_y", "sum"])
def test_the_kernels_of_a_step_are_asked_for_at_once(monkeypatch, transposed, main, rows, form):
    asked, own = [], plans.plans.prepare
    monkeypatch.setattr(plans.plans, "prepare", lambda calls, *rest: asked.append(calls) or own(calls, *rest))
    ids = torch.arange(rows).reshape(-1, TOPK) % E
    m_sizes, gather = gt.sort_by_expert(ids, E)
    x, w = operands(rows // TOPK if form == "permute_x" else rows, transposed=transposed)
    for _ in range(2):
        y = (fp8.grouped_gemm_sum if form == "sum" else fp8.grouped_gemm)(
            x, w, m_sizes, gather, TOPK, transposed=transposed, main_grad=torch.zeros(w.shape) if main else None,
            **({form: True} if form in ("permute_x", "permute_y") else {}))
        y.sum().backward()
    calls, = asked
    assert set(calls) == set(plans.plans._plans) and len(calls) == len(set(calls))


def test_notes_of_what_was_asked_for_are_bounded(monkeypatch):
    monkeypatch.setattr(plans, "PLANS_MOST", 4)
    _, w = operands()
    for rows in range(1, 10):
        fp8.grouped_gemm(torch.randn(rows, K).to(BF16), w, torch.tensor([rows, 0, 0, 0]))
    assert 0 < len(plans.plans._layers) <= 4


def test_a_daemon_tunes_the_keys_of_a_step(cpu):
    gt.configure(socket=cpu.socket, budget=1, wait="tuned")
    (x, w), (m_sizes, _) = operands(), routing()
    dy = torch.randn(T, N).to(BF16)
    assert_step(fp8.grouped_gemm(x, w, m_sizes), x, w, dy, right(x, w, m_sizes, dy))
    assert {(p["how"], p["tier"]) for p in gt.status()} == {("gemmd", "exact")} and len(gt.status()) == 7


def test_operands_as_they_lie():
    (x, w), (m_sizes, _) = operands(), routing()
    wide = torch.randn(T, K + 3).to(BF16)
    for odd in (wide[:, 1:K + 1], x.detach().t().contiguous().t(), x.detach()[:1].expand(T, K)):
        y = fp8.grouped_gemm(odd, w.detach().transpose(1, 2).contiguous().transpose(1, 2), m_sizes)
        assert error(y, right(odd, w, m_sizes, torch.ones(T, N, dtype=BF16))[0]) < LIMITS[BF16]
    y = fp8.grouped_gemm(x, w, m_sizes)
    dx, = torch.autograd.grad(y.sum(), x)  # an expanded gradient
    assert error(dx, right(x, w, m_sizes, torch.ones(T, N, dtype=BF16))[1]) < LIMITS[BF16]


@SWITCHES
def test_a_single_row_may_have_any_stride(enabled):
    gt.configure(enabled=enabled)
    w = operands()[1].detach()
    row = torch.randn(1, K).to(BF16)
    x_q, w_q, x_scale, w_scale = dense(1)
    expected = fp8.grouped_gemm(row, w, torch.tensor([0, 0, 1, 0])), fp8.linear_a8w8(x_q, w_q, x_scale, w_scale)
    for stride in (0, 8, 4 * K):
        odd, odd_q, odd_scale = (t.as_strided(t.shape, (stride, 1)) for t in (row, x_q, x_scale))
        assert torch.equal(fp8.grouped_gemm(odd, w, torch.tensor([0, 0, 1, 0])), expected[0])
        assert torch.equal(fp8.linear_a8w8(odd_q, w_q, odd_scale, w_scale), expected[1])
    assert {p["how"] for p in gt.status()} == {"compiled here" if enabled else "plain"}


@SWITCHES
def test_autocast_casts_x(enabled):
    gt.configure(enabled=enabled)
    (x, w), (m_sizes, _) = operands(dtype=FP32), routing()
    expected = fp8.grouped_gemm(x, w, m_sizes)
    x = x.detach().float().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        y = fp8.grouped_gemm(x, w, m_sizes)
        linear = fp8.linear_a8w8(*dense())
    assert torch.equal(y, expected) and torch.autograd.grad(y.sum(), x)[0].dtype == FP32
    assert linear.dtype == BF16


def test_gradients_of_gradients_are_an_error():
    (x, w), (m_sizes, _) = operands(), routing()
    dx, = torch.autograd.grad(fp8.grouped_gemm(x, w, m_sizes).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="first derivatives only"):
        dx.sum().backward()


@pytest.mark.parametrize("main", [False, True])
def test_torch_compile_makes_one_graph(main):
    (x, w), (m_sizes, gather) = operands(TOKENS), routing()
    main_grad = torch.zeros(w.shape) if main else None

    def step(x, w):
        return fp8.grouped_gemm(x * 1, w, m_sizes, gather, TOPK, permute_x=True, main_grad=main_grad) * 2

    def run(step):
        if main:
            main_grad.zero_()
        x.grad = w.grad = None
        y = step(x, w)
        y.sum().backward()
        return y.detach(), x.grad, main_grad.clone() if main else w.grad
    expected = run(step)
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for _ in range(2):
        for got, wanted in zip(run(compiled), expected):
            assert torch.equal(got, wanted)
