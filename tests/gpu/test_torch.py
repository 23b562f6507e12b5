# SPDX-License-Identifier: Apache-2.0
"""gemmd.torch on a GPU, where it differs from the CPU (tests/python/test_torch.py):
torch.autocast("cuda"), refusals of torch._grouped_mm, threads without a context, graphs. No daemon:
kernels are the analytic default's, compiled here, or with GEMMD_DISABLE plain PyTorch's.

    GEMMD_LIBRARY=build/client/libgemmd.so python3 -m pytest -q -p no:cacheprovider tests/gpu/test_torch.py

Skipped without PyTorch, a GPU or a libgemmd.so.
"""
import threading

import pytest
from on_gpu import by, error, gt, torch  # noqa: F401 -- by is a fixture

import gemmd.torch.launch
import gemmd.torch.routing
from gemmd.torch import beside
from gemmd.torch.rows import sum_of_slots

EXPERTS, TOPK, TOKENS, HIDDEN, INTER = 8, 2, 96, 128, 64
T = TOKENS * TOPK
LIMIT = 2e-2
BF16 = torch.bfloat16


def routing():
    """Expert 1 is never chosen."""
    scores = torch.rand(TOKENS, EXPERTS, device="cuda")
    scores[:, 1] = -1
    return gt.sort_by_expert(scores.topk(TOPK).indices, EXPERTS)


def right(x, w, m_sizes):
    """Computes the right result in double precision; its rows are in expert order."""
    parts = x.double().split(m_sizes.tolist())
    return torch.cat([part @ e.double().T for part, e in zip(parts, w)])


def gradients(y, operands):
    return torch.autograd.grad(y.sum(), operands)  # the dy of a sum is an expanded scalar, with strides 0


def layer_in_fp32(layer, x):
    weights, ids = gt.route(layer.router(x), layer.topk)
    y = torch.zeros_like(x)
    for e in range(EXPERTS):
        token, slot = (ids == e).nonzero(as_tuple=True)
        gate, up = (x[token] @ layer.gate_up[e].T).chunk(2, -1)
        part = torch.nn.functional.silu(gate) * up @ layer.down[e].T
        y = y.index_add(0, token, part * weights[token, slot].unsqueeze(1))
    return y


@pytest.mark.filterwarnings("ignore:gemmd")
def test_a_layer_under_autocast(by):
    """Compares the layer under autocast with the layer in fp32. Every token goes to all experts: so both route
    alike."""
    layer = gt.MoEMLP(HIDDEN, INTER, EXPERTS, EXPERTS, device="cuda")
    x = torch.randn(TOKENS, HIDDEN, device="cuda", requires_grad=True)
    dy, operands = torch.randn_like(x), [x, *layer.parameters()]
    with torch.autocast("cuda", BF16):
        y = layer(x)
    assert y.dtype == BF16
    got, exact = (torch.autograd.grad(out.float(), operands, dy) for out in (y, layer_in_fp32(layer, x)))
    assert all(g.dtype == torch.float32 for g in got)
    assert max(error(a, b) for a, b in zip(got, exact)) < LIMIT


@pytest.mark.filterwarnings("ignore:gemmd")
@pytest.mark.parametrize("how", ["odd rows", "odd beginning", "turned weights"])
def test_operands_that_do_not_lie_well(by, how):
    m_sizes, _ = routing()
    x = torch.randn(T, HIDDEN + 1, device="cuda", dtype=BF16)[:, 1:]
    w = torch.randn(EXPERTS, INTER, HIDDEN, device="cuda", dtype=BF16)
    if how == "odd beginning":
        x = torch.randn(T * HIDDEN + 1, device="cuda", dtype=BF16)[1:].view(T, HIDDEN)
    elif how == "turned weights":
        w = torch.randn(EXPERTS, HIDDEN, INTER, device="cuda", dtype=BF16).transpose(1, 2)
    x, w = x.requires_grad_(), w.requires_grad_()
    y, exact = gt.grouped_gemm(x, w, m_sizes), right(x, w, m_sizes)
    assert error(y, exact) < LIMIT
    for got, wanted in zip(gradients(y, [x, w]), gradients(exact, [x, w])):
        assert error(got, wanted) < LIMIT


@pytest.mark.filterwarnings("ignore:gemmd")
def test_threads_without_a_context(by):
    """Threads without a context launch another thread's plan; PyTorch's own threads have a context."""
    m_sizes, _ = routing()
    x, w = (torch.randn(*s, device="cuda", dtype=BF16) for s in ((T, HIDDEN), (EXPERTS, INTER, HIDDEN)))
    ys = [gt.grouped_gemm(x, w, m_sizes)]
    threads = [threading.Thread(target=lambda: ys.append(gt.grouped_gemm(x, w, m_sizes))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    assert len(ys) == 4 and all(torch.equal(y, ys[0]) for y in ys)


@pytest.mark.filterwarnings("ignore:gemmd")
def test_a_captured_graph(by):
    m_sizes, gather = routing()
    x, w = (torch.randn(*s, device="cuda", dtype=BF16) for s in ((TOKENS, HIDDEN), (EXPERTS, INTER, HIDDEN)))
    call = lambda: gt.grouped_gemm(x, w, m_sizes, gather, TOPK, permute_x=True)  # noqa: E731
    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = call()
    x.copy_(torch.randn_like(x))
    graph.replay()
    assert torch.equal(y, call())


@pytest.mark.filterwarnings("ignore:gemmd")
def test_a_kernels_first_launch_in_a_capture(by, monkeypatch):
    """The kernel is loaded before the capture, but not launched."""
    m_sizes, gather = routing()
    x, w = (torch.randn(*s, device="cuda", dtype=BF16) for s in ((TOKENS, HIDDEN), (EXPERTS, INTER, HIDDEN)))
    call = lambda: gt.grouped_gemm(x, w, m_sizes, gather, TOPK, permute_x=True)  # noqa: E731
    with monkeypatch.context() as patch:
        patch.setattr(gemmd.torch.launch.Prepared, "launch", lambda *_: False)
        plain = call()
    assert sum(p["launches"] for p in gt.status()) == 0
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = call()
    assert sum(p["launches"] for p in gt.status()) == (by != "plain")
    graph.replay()
    assert error(y, plain) < LIMIT and torch.equal(y, call())


@pytest.mark.filterwarnings("ignore:gemmd")
def test_streams_beside_each_other(by):
    """The same products on two streams at once, begun by either stream in turn, give the bits that they gave alone."""
    m_sizes, gather = routing()
    many = m_sizes * 16
    few_x, few_w, x, w, dy = (torch.randn(*shape, device="cuda", dtype=BF16) for shape in (
        (TOKENS, HIDDEN), (EXPERTS, INTER, HIDDEN), (16 * T, 1024), (EXPERTS, 768, 1024), (16 * T, 768)))
    x, w = x.requires_grad_(), w.requires_grad_()
    calls = [lambda: (gt.grouped_gemm(few_x, few_w, m_sizes, gather, TOPK, permute_x=True),),
             lambda: torch.autograd.grad(gt.grouped_gemm(x, w, many), [x, w], dy)]  # on its forward's stream
    alone = [call() for call in calls]
    torch.cuda.synchronize()
    streams, outs_of = [torch.cuda.Stream() for _ in range(2)], []
    for turn in range(30):
        for i in range(2 * len(calls)):
            with torch.cuda.stream(streams[(i + turn) % 2]):
                outs_of.append((i // 2, calls[i // 2]()))
    torch.cuda.synchronize()
    assert all(torch.equal(got, wanted) for which, outs in outs_of for got, wanted in zip(outs, alone[which]))


@pytest.mark.skipif(torch.cuda.get_device_capability() != (9, 0), reason="no Hopper GPU")
@pytest.mark.filterwarnings("ignore:gemmd")
def test_gradients_of_weights_beside_a_sum(tmp_path, monkeypatch):
    """The bits are those of one after the other, also when a captured graph replays them."""
    gt.configure(socket=str(tmp_path / "nobody.sock"), wait="cached", retry_s=None)
    torch.manual_seed(0)
    layer = gt.MoEMLP(512, 256, EXPERTS, 4, device="cuda", dtype=BF16)
    x = torch.randn(4096, 512, device="cuda", dtype=BF16, requires_grad=True)
    dy, operands, granted = torch.randn_like(x), [x, *layer.parameters()], []
    real = beside.launch_beside

    def note(prepared, sms, work):
        granted.append(sms)
        return real(prepared, sms, work)

    monkeypatch.setattr(beside, "launch_beside", note)
    monkeypatch.setattr(beside, "BYTES_LEAST", 1 << 60)
    alone = torch.autograd.grad(layer(x), operands, dy)
    assert not granted
    monkeypatch.setattr(beside, "BYTES_LEAST", 0)
    for _ in range(50):
        together = torch.autograd.grad(layer(x), operands, dy)
        assert all(torch.equal(a, b) for a, b in zip(alone, together))
    assert len(granted) == 50
    assert all(0 < sms < torch.cuda.get_device_properties(x.device).multi_processor_count for sms in granted)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = torch.autograd.grad(layer(x), operands, dy)
    for _ in range(100):
        for t in captured:
            t.zero_()
        graph.replay()
        assert all(torch.equal(a, b) for a, b in zip(alone, captured))


@pytest.mark.parametrize("dtype", [BF16, torch.float16, torch.float32])
@pytest.mark.parametrize("tokens, experts, topk", [(24576, 128, 8), (1000, 256, 16), (77, 60, 4), (3, 500, 10)])
def test_routing_as_pytorch_computes_it(tokens, experts, topk, dtype):
    """Compares the Triton kernels with plain PyTorch, for logits without equal numbers."""
    torch.manual_seed(tokens)
    logits = ((torch.rand(tokens, experts, device="cuda").argsort(-1) - experts // 2) / 128).to(dtype).requires_grad_()
    for normalise in (True, False):
        weights, ids = gt.route(logits, topk, normalise)
        want, want_ids = gemmd.torch.routing._plain_route(logits, topk, normalise)
        assert torch.equal(ids, want_ids)
        torch.testing.assert_close(weights, want)
        g = torch.randn_like(weights)
        got, right = (torch.autograd.grad(w, logits, g)[0] for w in (weights, want))
        torch.testing.assert_close(got, right, atol=1e-5, rtol=2e-2)
    ids = torch.where(ids % 7 == 3, experts + 5, ids)  # of other ranks
    for got, wanted in zip(gt.sort_by_expert(ids, experts), gemmd.torch.routing.plain_sort(ids, experts)):
        assert torch.equal(got, wanted)
    rows = torch.randn(tokens * topk, 328, device="cuda", dtype=dtype)
    torch.testing.assert_close(sum_of_slots(rows, topk), rows.view(tokens, topk, -1).float().sum(1).to(dtype), atol=1e-5, rtol=2e-2)
