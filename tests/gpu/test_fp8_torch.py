# SPDX-License-Identifier: Apache-2.0
"""gemmd.torch.fp8 on a GPU: results, a whole MoE layer's products in fp8 beside bf16 by time, replays of a captured
step. No daemon: kernels are the analytic default's, compiled here.

    GEMMD_LIBRARY=build/client/libgemmd.so python3 -m pytest -q -s -p no:cacheprovider tests/gpu/test_fp8_torch.py

Skipped without PyTorch, a GPU or a libgemmd.so; times only on a Hopper GPU.
"""
import statistics
import warnings

import pytest
from on_gpu import error, gt, torch

from gemmd.torch import fp8, scaled
from gemmd.torch import scaled_plain as plain

E, TOPK, TOKENS, N, K = 8, 2, 1500, 768, 1040  # K ends inside a block of 128
T = TOKENS * TOPK
BF16 = torch.bfloat16
HOPPER = pytest.mark.skipif(torch.cuda.get_device_capability() != (9, 0), reason="no Hopper GPU")


@pytest.fixture(autouse=True)
def offline(tmp_path):
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    gt.configure(socket=str(tmp_path / "nobody.sock"), wait="cached", retry_s=None, enabled=True)
    yield
    fp8.stay_bf16(None)
    gt.configure(enabled=True)


def routing(tokens=TOKENS, experts=E, topk=TOPK, empty=True):
    scores = torch.rand(tokens, experts, device="cuda")
    if empty:
        scores[:, 1] = -1
    return gt.sort_by_expert(scores.topk(topk).indices, experts)


def layer(x, w1, w2, m_sizes, gather, of=fp8, grads=(None, None), **how):
    """Both products of an MoE layer with SwiGLU. grads: main gradients, which only fp8 takes."""
    more = [{"main_grad": g} if g is not None else {} for g in grads]
    topk = gather.shape[0] // x.shape[0]
    h = of.grouped_gemm(x, w1, m_sizes, gather, topk, permute_x=True, **how, **more[0])
    return of.grouped_gemm_sum(gt.swiglu(h), w2, m_sizes, gather, topk, **how, **more[1])


def weights(hidden, inter, experts=E):
    return [(torch.randn(shape, device="cuda") / shape[-1] ** 0.5).to(BF16).requires_grad_()
            for shape in ((experts, 2 * inter, hidden), (experts, hidden, inter))]


def step(x, ws, m_sizes, gather, dy, **how):
    y = layer(x, *ws, m_sizes, gather, **how)
    return [y.detach(), *torch.autograd.grad(y, (x, *ws), dy)]


def test_the_quantisers_bytes_are_those_of_plain_pytorch():
    x = (torch.randn(T, K, device="cuda") * torch.logspace(-20, 20, T, device="cuda")[:, None]).to(BF16)
    x[3, 5], x[4, 6], x[5] = float("nan"), float("inf"), 0
    w, (m_sizes, gather) = torch.randn(E, N, K, device="cuda").to(BF16), routing()
    used = int(((m_sizes + 127) // 128).sum())

    def run():
        by_token = scaled.Gather(gather, TOPK)
        return [scaled.quantise_rows(x, T, None, "fp32"), scaled.quantise_rows(x, T, None, "pow2", by_row=True),
                plain.Scaled(*(t.unsqueeze(-1) if t.dim() == 1 else t for t in scaled.quantise_whole_rows(x, "fp32"))),
                *scaled.quantise_columns(x[:TOKENS], T, m_sizes, by_token, "fp32", both=True),
                scaled.quantise_columns(x, T, m_sizes, None, "pow2")[1], *scaled.quantise_weights(w, "fp32")]
    ours = run()
    assert {p["how"] for p in gt.status()} == {"compiled here"}
    gt.configure(enabled=False)
    for a, b in zip(ours, run()):
        turned = a.q.dim() == 2 and a.q.shape[0] == K
        columns = used * 128 if turned else a.q.shape[-1]
        assert torch.equal(a.q[..., :columns].view(torch.uint8), b.q[..., :columns].view(torch.uint8))
        assert torch.equal(a.scale[..., :plain.ceil_to(columns, 128) // 128], b.scale[..., :plain.ceil_to(columns, 128) // 128])


@pytest.mark.parametrize("transposed", [False, True])
def test_kernels_and_plain_pytorch_agree(transposed):
    """Both quantise to the same bytes, so only the order of sums differs."""
    m_sizes, gather = routing()
    results = []
    for enabled in (True, False):
        gt.configure(enabled=enabled)
        torch.manual_seed(1)
        got = []
        for of, rows, out, how in ((fp8.grouped_gemm, TOKENS, T, {"permute_x": True}), (fp8.grouped_gemm, T, T, {}),
                                   (fp8.grouped_gemm, T, T, {"permute_y": True}), (fp8.grouped_gemm_sum, T, TOKENS, {})):
            x = torch.randn(rows, K, device="cuda").to(BF16).requires_grad_()
            w = torch.randn((E, K, N) if transposed else (E, N, K), device="cuda").to(BF16).requires_grad_()
            main_grad = torch.zeros(w.shape, device="cuda")
            y = of(x, w, m_sizes, gather, TOPK, transposed=transposed, main_grad=main_grad, **how)
            y.backward(torch.randn(out, N, device="cuda").to(BF16))
            got += [(y, 2.5e-3), (x.grad, 2.5e-3), (main_grad, 4e-4)]
        results.append(got)
        hows = {p["how"] for p in gt.status()}
        assert hows == {"compiled here" if enabled else "plain"}
    for (a, limit), (b, _) in zip(*results):
        assert error(a, b) < limit


def test_linear_a8w8():
    m, n, k = 100, 1536, 7168
    x_q, w_q = (torch.randn(s, device="cuda").to(torch.float8_e4m3fn) for s in ((m, k), (n, k)))
    x_scale, w_scale = (torch.exp2(torch.randn(s, device="cuda") * 2) for s in ((m, k // 128), (n // 128, k // 128)))
    right = plain.dequantise(plain.Scaled(x_q, x_scale)).double() @ plain.dequantise(plain.Scaled(w_q, w_scale), 128).double().t()
    for scales in ((x_scale, w_scale), (x_scale.t().contiguous().t(), w_scale)):
        assert error(fp8.linear_a8w8(x_q, w_q, *scales), right) < 2.5e-3
    with pytest.raises(ValueError, match="w_scale is on cpu"):
        fp8.linear_a8w8(x_q, w_q, x_scale, w_scale.cpu())


def test_replays_of_a_captured_step_have_the_same_bits_and_read_the_weights():
    hidden, inter = 1024, 512
    m_sizes, gather = routing()
    x = torch.randn(TOKENS, hidden, device="cuda").to(BF16).requires_grad_()
    ws, dy = weights(hidden, inter), torch.randn(TOKENS, hidden, device="cuda").to(BF16)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step(x, ws, m_sizes, gather, dy)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outs = step(x, ws, m_sizes, gather, dy)
    for factor in (1, 0.5):
        with torch.no_grad():
            for w in ws:
                w.mul_(factor)
        right = [t.clone() for t in step(x, ws, m_sizes, gather, dy)]
        wrong = torch.zeros((), dtype=torch.int64, device="cuda")
        for _ in range(50):
            graph.replay()
            for a, b in zip(outs, right):
                wrong += (a.view(torch.int16) != b.view(torch.int16)).sum()
        assert int(wrong) == 0


def test_compiled_with_inductors_graphs_the_weights_are_read_anew():
    hidden, inter = 512, 256
    m_sizes, gather = routing()
    x = torch.randn(TOKENS, hidden, device="cuda").to(BF16)
    ws, dy = weights(hidden, inter), torch.randn(TOKENS, hidden, device="cuda").to(BF16)

    def run(layer):
        y = layer(x * 1, *ws, m_sizes, gather)
        return [y.detach().clone(), *(t.clone() for t in torch.autograd.grad(y, ws, dy))]
    compiled = torch.compile(layer, fullgraph=True, mode="reduce-overhead")
    for _ in range(5):
        torch.compiler.cudagraph_mark_step_begin()
        for got, right in zip(run(compiled), run(layer)):
            # Inductor rounds less often, and a last bit may move a number to the next fp8 number.
            assert error(got, right) < 5e-2
        with torch.no_grad():
            for w in ws:
                w.mul_(-0.9)


def test_a_write_of_the_weights_is_seen_on_another_stream():
    m_sizes, _ = routing()
    x = torch.randn(T, K, device="cuda").to(BF16)
    w, side = torch.randn(E, N, K, device="cuda").to(BF16), torch.cuda.Stream()
    for _ in range(3):
        w.neg_()
        right = fp8.grouped_gemm(x, w, m_sizes)
        w.add_(0)
        torch.cuda.synchronize()
        torch.cuda._sleep(20_000_000)
        a = fp8.grouped_gemm(x, w, m_sizes)  # makes the copy, late
        with torch.cuda.stream(side):
            b = fp8.grouped_gemm(x, w, m_sizes)
        torch.cuda.synchronize()
        assert torch.equal(a, right) and torch.equal(b, right)


@HOPPER
@pytest.mark.skipif(not hasattr(torch.library, "get_kernel"), reason="PyTorch older than 2.10")
def test_installed_scaled_products_are_pytorchs():
    ends = torch.tensor([96, 96, 1008, 2000, 2000, 2496, 2992, 2992], dtype=torch.int32, device="cuda")
    a, w = (torch.randn(s, device="cuda").to(torch.float8_e4m3fn) for s in ((T, K), (E, N, K)))
    sa, sb = (torch.exp2(torch.randn(s, device="cuda") * 3) for s in ((T,), (E, N)))
    of_dw = [torch.randn(s, 2992, device="cuda").to(torch.float8_e4m3fn) for s in (N, K)]
    s_dw = [torch.ones(E * s, device="cuda") for s in (N, K)]

    def run():
        kinds = torch.nn.functional.ScalingType.RowWise
        dw = torch._scaled_grouped_mm(of_dw[0], of_dw[1].t(), *s_dw, offs=ends, out_dtype=BF16)
        dw[[1, 4, 7]] = 0  # experts without rows, which PyTorch leaves unwritten
        return [y[:2992] for y in (torch._scaled_grouped_mm(a, w.transpose(1, 2), sa, sb, offs=ends, out_dtype=BF16),
                torch._scaled_grouped_mm(a, w.transpose(1, 2), sa, sb, offs=ends, out_dtype=BF16, use_fast_accum=True),
                torch.nn.functional.scaled_grouped_mm(a, w.transpose(1, 2), sa, kinds, sb, kinds, offs=ends))] + [dw]

    def error_of(device):
        given = [t.cpu() if i == device else t for i, t in enumerate((a, w.transpose(1, 2), sa, sb, ends))]
        with pytest.raises(Exception) as e:
            torch._scaled_grouped_mm(*given[:4], offs=given[4], out_dtype=BF16)
        return type(e.value), str(e.value)
    gt.install()
    try:
        ours, errors = run(), [error_of(i) for i in range(5)]
        rows = gt.report()
    finally:
        gt.uninstall()
    print(*rows, sep="\n")
    assert (rows[0]["dtype"], rows[0]["gemmd"], rows[0]["pytorch"]) == ("float8_e4m3fn", 3, 0)
    exact, fast, public, dw = run()
    assert error(ours[0], exact) < 5e-3 and error(ours[2], public) < 5e-3 and torch.equal(ours[0], ours[1])
    print(f"PyTorch's fast accumulation differs from ours by {error(fast, ours[1]):.1e}")
    assert torch.equal(ours[3], dw)
    assert errors == [error_of(i) for i in range(5)]


def milliseconds(run, blocks=3, each=2):
    times = []
    for _ in range(blocks + 1):
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        for _ in range(each):
            run()
        ended.record()
        ended.synchronize()
        times.append(began.elapsed_time(ended) / each)
    return statistics.median(times[1:])


@HOPPER
@pytest.mark.parametrize("name, hidden, inter, experts, topk, tokens", [
    ("Mixtral", 4096, 14336, 8, 2, 16384), ("DeepSeek-V3 EP8", 7168, 2048, 32, 8, 8192)])
@pytest.mark.parametrize("dw, main", [("fp8", False), ("fp8", True), ("bf16", True)])
def test_a_layer_by_time(name, hidden, inter, experts, topk, tokens, dw, main):
    """Prints the times; the layer's products with quantising, and the weights' quantising once for each step."""
    fp8.stay_bf16((lambda layer: "dW") if dw == "bf16" else None)
    fp8.seen.forget()
    m_sizes, gather = routing(tokens, experts, topk, empty=False)
    x = torch.randn(tokens, hidden, device="cuda").to(BF16).requires_grad_()
    ws, dy = weights(hidden, inter, experts), torch.randn(tokens, hidden, device="cuda").to(BF16)
    grads = [torch.zeros(w.shape, device="cuda") if main else None for w in ws]

    def in_fp8():
        fp8.forget_weights()
        x.grad, ws[0].grad, ws[1].grad = None, None, None
        layer(x, *ws, m_sizes, gather, grads=grads).backward(dy)
        return x.grad

    def everything_bf16():
        fp8.stay_bf16(lambda layer: "all")
        try:
            return in_fp8()
        finally:
            fp8.stay_bf16((lambda layer: "dW") if dw == "bf16" else None)
    ours, bf16 = in_fp8(), everything_bf16()
    assert error(ours, bf16) < 0.1
    a, b, a2, b2 = (milliseconds(run) for run in (in_fp8, everything_bf16, in_fp8, everything_bf16))
    print(f"\n{name}, {'fp32 main' if main else 'bf16'} gradients, dW in {dw}: fp8 {a:.2f} {a2:.2f} ms, bf16 {b:.2f} {b2:.2f} ms, "
          f"gain {(b + b2) / (a + a2):.3f}; kept {[r.kept_bytes >> 20 for r, _ in fp8.seen.products() if r.kept_bytes][:4]} MiB")
    assert a + a2 < 1.5 * (b + b2)


@HOPPER
def test_report():
    fp8.seen.forget()
    m_sizes, _ = routing(8192, 8, 2, empty=False)
    x = torch.randn(16384, 4096, device="cuda").to(BF16).requires_grad_()
    w = torch.randn(8, 4096, 4096, device="cuda").to(BF16).requires_grad_()
    main_grad = torch.zeros(w.shape, device="cuda")
    fp8.grouped_gemm(x, w, m_sizes, main_grad=main_grad).sum().backward()
    rows = fp8.report()
    for r in rows:
        print(r)
    assert {r["mode"] for r in rows} == {"forward", "dX", "dW", "weights"} and all(r["gain"] for r in rows[:-1])
