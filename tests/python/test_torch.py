# SPDX-License-Identifier: Apache-2.0
"""gemmd.torch on the CPU: results and gradients against a loop over the experts, torch.compile, and
a job that goes on when the daemon fails. Skipped where there is no PyTorch."""
import contextlib
import gc
import os
import re
import signal
import socket
import threading
import time
import types
import warnings
import weakref

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed for this Python")
if not hasattr(torch.library, "register_autograd"):
    pytest.skip(f"PyTorch {torch.__version__} is older than 2.4", allow_module_level=True)

import gemmd  # noqa: E402
import gemmd.torch as gt  # noqa: E402
from conftest import BUILD, LIB, Refused, strange_daemon  # noqa: E402
from gemmd.torch import activation, beside, launch, layout, ops, plain, plans, product  # noqa: E402
from gemmd.torch.shapes import Call, Flags  # noqa: E402

E, TOPK, TOKENS, N, K = 4, 2, 12, 16, 32
T = TOKENS * TOPK
LIMITS = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)


@pytest.fixture
def tuned(cpu):
    """gemmd.torch over a daemon that tunes a single config for each key."""
    gt.configure(socket=cpu.socket, budget=1)
    return cpu


def routing(index=torch.int32):
    """Expert 1 is never chosen."""
    scores = torch.rand(TOKENS, E)
    scores[:, 1] = -1
    m_sizes, gather = gt.sort_by_expert(scores.topk(TOPK).indices, E)
    return m_sizes.to(index), gather.to(index)


def right(x, w, m_sizes, gather, permute_x=False, permute_y=False):
    """Computes the right result in double precision, row by row."""
    x, w, out = x.double(), w.double(), torch.zeros(T, N, dtype=torch.double)
    rows = []
    for e, m in enumerate(m_sizes.tolist()):
        rows += [e] * m
    out = []
    for i, e in enumerate(rows):
        source = int(gather[i]) // TOPK if permute_x else i
        out.append(w[e] @ x[source])
    out = torch.stack(out)
    return out[torch.argsort(gather.long())] if permute_y else out


def error(got, expected):
    got, expected = got.detach().double(), expected.detach().double()
    return float((got - expected).norm() / expected.norm())


def operands(dtype=torch.float32, rows=T):
    x = torch.randn(rows, K, dtype=dtype, requires_grad=True)
    w = torch.randn(E, N, K, dtype=dtype, requires_grad=True)
    return x, w


def hows():
    return {p["how"] for p in gt.status()}


# ---- results and gradients -----------------------------------------------------------------------

@pytest.mark.parametrize("flags", [{}, {"permute_x": True}, {"permute_y": True}],
                         ids=["plain", "permute_x", "permute_y"])
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
def test_all_modes_against_double_precision(tuned, dtype, flags):
    m_sizes, gather = routing(torch.int64 if flags else torch.int32)
    x, w = operands(dtype, TOKENS if "permute_x" in flags else T)
    y = gt.grouped_gemm(x, w, m_sizes, gather, TOPK, **flags)
    expected = right(x, w, m_sizes, gather, **flags)
    g = torch.randn_like(y)
    got = torch.autograd.grad(y, [x, w], g)
    exact = torch.autograd.grad(expected, [x, w], g.double())
    assert error(y, expected) < LIMITS[dtype]
    assert all(error(a, b) < LIMITS[dtype] for a, b in zip(got, exact))
    assert (got[1][1] == 0).all()  # the expert without rows
    assert hows() == {"gemmd"} and [p["mode"] for p in gt.status()] == ["forward", "dX", "dW"]
    assert all(p["launches"] == 1 and p["time_us"] > 0 for p in gt.status())


def test_the_fused_multiply_and_its_gradient(tuned):
    m_sizes, gather = routing()
    x, w = operands(torch.bfloat16)
    weights = torch.rand(TOKENS, TOPK, requires_grad=True)
    call = {"topk": TOPK, "permute_y": True, "topk_weights": weights, "fuse_mul_post": True}
    with torch.no_grad():
        fused = gt.grouped_gemm(x, w, m_sizes, gather, **call)
    apart = gt.grouped_gemm(x, w, m_sizes, gather, **call)
    assert torch.equal(fused, apart)  # the same two roundings
    y = right(x, w, m_sizes, gather, permute_y=True)
    assert error(fused, y * weights.reshape(-1, 1).double()) < 2e-2
    g = torch.randn_like(apart)
    dweights, = torch.autograd.grad(apart, [weights], g)
    assert error(dweights.reshape(-1), (y * g.double()).sum(1)) < 2e-2
    with pytest.raises(ValueError, match="fuse_mul_post needs permute_y"):
        gt.grouped_gemm(x, w, m_sizes, gather, topk_weights=weights, fuse_mul_post=True)


def loop(layer, x):
    rows = x.reshape(-1, x.shape[-1])
    weights, ids = gt.route(layer.router(rows), layer.topk)
    out = torch.zeros_like(rows)
    for e in range(layer.experts):
        token, slot = torch.where(ids == e)
        gate, up = (rows[token] @ layer.gate_up[e].t()).chunk(2, -1)
        y = (torch.nn.functional.silu(gate) * up) @ layer.down[e].t()
        out = out.index_add(0, token, y * weights[token, slot, None].to(y.dtype))
    return out.view(x.shape)


@pytest.mark.parametrize("save", ["fast", "least"])
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
def test_a_layer_against_a_loop_over_its_experts(tuned, dtype, save):
    layer = gt.MoEMLP(K, N, E, TOPK, save=save, dtype=dtype)
    x = torch.randn(3, 4, K, dtype=dtype, requires_grad=True)
    g = torch.randn_like(x)
    wanted = [x, *layer.parameters()]
    mine, theirs = ((f(x), torch.autograd.grad(f(x), wanted, g))
                    for f in (layer, lambda x: loop(layer, x)))
    assert error(mine[0], theirs[0]) < LIMITS[dtype]
    assert all(error(a, b) < LIMITS[dtype] for a, b in zip(mine[1], theirs[1]))
    assert hows() == {"gemmd"} and len(gt.status()) == 6


def test_the_least_memory_is_less_by_the_activation_and_gives_the_same_bits(tuned):
    fast = gt.MoEMLP(K, N, E, TOPK, dtype=torch.bfloat16)
    least = gt.MoEMLP(K, N, E, TOPK, save="least", dtype=torch.bfloat16)
    least.load_state_dict(fast.state_dict())
    x = torch.randn(TOKENS, K, dtype=torch.bfloat16, requires_grad=True)
    g, grads, kept = torch.randn_like(x), [], []
    for layer in (fast, least):
        blocks = {}
        with torch.autograd.graph.saved_tensors_hooks(
                lambda t: blocks.setdefault(t.untyped_storage().data_ptr(), t) is None or t, lambda t: t):
            y = layer(x)
        kept.append(sum(t.untyped_storage().nbytes() for t in blocks.values()))
        grads.append((y, *torch.autograd.grad(y, [x, *layer.parameters()], g)))
    assert all(torch.equal(a, b) for a, b in zip(*grads))
    assert kept[0] - kept[1] == TOKENS * TOPK * N * 2
    with pytest.raises(ValueError, match='"fast" or "least"'):
        gt.MoEMLP(K, N, E, TOPK, save="most")
    for topk in (0, E + 1):
        with pytest.raises(ValueError, match=f"topk is {topk}: a token goes to 1 to {E} experts"):
            gt.MoEMLP(K, N, E, topk)
    with pytest.raises(ValueError, match="x is torch.float64: use bfloat16, float16 or float32"):
        gt.MoEMLP(K, N, E, TOPK, dtype=torch.float64)(torch.randn(TOKENS, K, dtype=torch.float64))


@pytest.mark.parametrize("name", ["enabled", "autostart", "batch_invariant"])
def test_a_switch_is_true_or_false(name):
    with pytest.raises(TypeError, match=f"{name} is 'no': True or False"):
        gt.configure(**{name: "no"})


def test_a_tokens_weights_are_the_softmax_of_its_largest_logits():
    logits = torch.randn(50, 16, requires_grad=True)
    weights, ids = gt.route(logits, 4)
    all_weights = torch.softmax(logits, -1)
    top, want = torch.topk(all_weights, 4)
    want_weights = top / top.sum(-1, keepdim=True)
    assert torch.equal(ids, want) and torch.allclose(weights, want_weights)
    g = torch.randn_like(weights)
    mine, theirs = (torch.autograd.grad(w, logits, g)[0] for w in (weights, want_weights))
    assert torch.allclose(mine, theirs, atol=1e-6)


def lies_well(t):
    return layout.lies_well(t.shape, t.stride(), t.element_size())


def test_operands_as_they_lie(tuned):
    """Rows of a larger tensor are read in place; an expanded gradient and turned weights are
    copied."""
    m_sizes, gather = routing()
    big, w = torch.randn(T, 2 * K), torch.randn(E, K, N).transpose(1, 2).requires_grad_()
    x = big[:, K:].requires_grad_()
    y = gt.grouped_gemm(x, w, m_sizes, gather, TOPK)
    assert error(y, right(x, w, m_sizes, gather)) < 1e-5
    dx, dw = torch.autograd.grad(y.sum(), [x, w])
    exact = torch.autograd.grad(right(x, w, m_sizes, gather).sum(), [x, w])
    assert error(dx, exact[0]) < 1e-5 and error(dw, exact[1]) < 1e-5
    assert lies_well(x) and not lies_well(w)
    assert not lies_well(torch.ones(1, K).expand(T, K))
    assert not lies_well(torch.ones(T, K + 1)[:, 1:])


def test_rows_that_begin_at_no_multiple_of_16_bytes_are_copied(tuned):
    """The strides are of an operand that kernels may read in place: only the beginning is
    not."""
    m_sizes, gather = routing()
    wide, w = torch.randn(T, 2 * K), torch.randn(E, N, K)
    for first in (0, 1, 4, 5):
        x = wide[:, first:first + K]
        y = gt.grouped_gemm(x, w, m_sizes, gather, TOPK)
        assert error(y, right(x, w, m_sizes, gather)) < 1e-5
    assert gt.status()[0]["launches"] == 4


@pytest.mark.parametrize("wanted", ["xw", "x", "w"])
def test_the_sum_over_a_token_s_experts(tuned, wanted):
    m_sizes, gather = routing()
    x, w = operands()
    x.requires_grad_("x" in wanted)
    w.requires_grad_("w" in wanted)
    operand = {"x": x, "w": w}
    y = gt.grouped_gemm_sum(x, w, m_sizes, gather, TOPK)
    expected = right(x, w, m_sizes, gather, permute_y=True).view(TOKENS, TOPK, N).sum(1)
    g = torch.randn_like(y)
    got = torch.autograd.grad(y, [operand[name] for name in wanted], g)
    exact = torch.autograd.grad(expected, [operand[name] for name in wanted], g.double())
    assert error(y, expected) < 1e-5
    assert all(error(a, b) < 1e-5 for a, b in zip(got, exact))
    assert all(p["permute_y"] and p["M"] == T for p in gt.status())
    with pytest.raises(ValueError, match="one index for each of 24"):
        gt.grouped_gemm_sum(x, w, m_sizes, gather[1:], TOPK)
    with pytest.raises(ValueError, match="24 rows: topk = 5"):
        gt.grouped_gemm_sum(x, w, m_sizes, gather, 5)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("form", ["order", "permute_x", "permute_y", "sum", "gated"])
def test_rows_of_other_ranks_experts_have_gradients_of_zero(tuned, worst_memory, form, transposed):
    ids = torch.rand(TOKENS, E + 2).topk(TOPK).indices
    m_sizes, gather = gt.sort_by_expert(ids, E)
    here, x, w = int(m_sizes.sum()), *operands(rows=TOKENS if form == "permute_x" else T)
    how = {"transposed": transposed, "partial": True}
    w = w.transpose(1, 2).contiguous() if transposed else w
    if form == "sum":
        y = gt.grouped_gemm_sum(x, w, m_sizes, gather, TOPK, **how)
    elif form == "gated":
        x = torch.cat([x, x], 1).detach().requires_grad_()
        y = product.gated_product_sum(x, None, w, m_sizes, gather, TOPK, activation.SWIGLU, **how)
    else:
        y = gt.grouped_gemm(x, w, m_sizes, gather, TOPK, form == "permute_x", form == "permute_y", **how)
    dx, = torch.autograd.grad(y, x, torch.randn_like(y))
    assert here < T and dx.isfinite().all() and dx.any()
    assert form == "permute_x" or not dx[here:].any()


def spoil_rest(t, read):
    """Writes NaN to the rows of t that are not in `read`."""
    rest = torch.ones(t.shape[0], dtype=torch.bool)
    rest[read] = False
    with torch.no_grad():
        t[rest] = torch.nan


@pytest.mark.parametrize("wanted", ["xw", "w"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("of", ["straight", "permute_x", "permute_y", "fuse_mul_post", "sum", "gated"])
def test_rows_of_no_expert_count_for_nothing(tuned, of, transposed, wanted):
    """On a rank with a single expert the kernels read all rows."""
    if transposed and of == "fuse_mul_post":
        pytest.skip("fuse_mul_post takes no transposed weights")
    own, gather, m_sizes = slice(9), torch.randperm(T).to(torch.int32), torch.tensor([9])
    x, w = operands()
    w = (w[:1].transpose(1, 2) if transposed else w[:1]).detach().contiguous().requires_grad_()
    dy, gathered, how = torch.randn(T, N), gather[own].long(), dict(transposed=transposed, partial=True)
    x_read, dy_read = gathered if of == "permute_x" else own, own if of in ("straight", "permute_x") else gathered
    spoil_rest(x, x_read)
    spoil_rest(dy, dy_read)
    if of == "sum":
        y = gt.grouped_gemm_sum(x, w, m_sizes, gather, 1, **how)
    elif of == "gated":
        h = torch.cat([x, torch.ones_like(x)], 1)
        y = product.gated_product_sum(h, None, w, m_sizes, gather, 1, activation.SWIGLU, **how)
        x_right = activation.swiglu(h)
    else:
        permutes = (of == "permute_x", of in ("permute_y", "fuse_mul_post"))
        y = gt.grouped_gemm(x, w, m_sizes, gather, 1, *permutes, torch.ones(T), of == "fuse_mul_post", **how)
    got = torch.autograd.grad(y, [x, w] if wanted == "xw" else [w], dy)[-1][0]
    rows = (x_right if of == "gated" else x)[x_read]
    assert error(got.t() if transposed else got, dy[dy_read].double().t() @ rows.double()) < 1e-5
    assert hows() == {"gemmd"}


@pytest.mark.parametrize("wanted", ["", "x", "w", "xw"])
@pytest.mark.parametrize("product", ["grouped_gemm", "grouped_gemm_sum"])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_only_what_a_gradient_needs_is_kept(tuned, product, wanted, compiled):
    """With frozen experts x is not kept: x is most of a step's memory."""
    m_sizes, gather = routing()
    x, w = operands()
    x.requires_grad_("x" in wanted)
    w.requires_grad_("w" in wanted)
    permute_y = {"permute_y": True} if product == "grouped_gemm" else {}
    kept = []

    def run(x, w):
        return getattr(gt, product)(x * 1, w * 1, m_sizes, gather, TOPK, **permute_y)

    torch._dynamo.reset()
    run = torch.compile(run, fullgraph=True, backend="aot_eager") if compiled else run
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.shape) or t, lambda t: t):
        y = run(x, w)
    assert (x.shape in kept) == ("w" in wanted) and (w.shape in kept) == ("x" in wanted)
    operand = {"x": x, "w": w}
    if wanted:
        got = torch.autograd.grad(y.sum(), [operand[name] for name in wanted])
        exact = torch.autograd.grad(right(x, w, m_sizes, gather, permute_y=True).sum(),
                                    [operand[name] for name in wanted])
        assert all(error(a, b) < 1e-5 for a, b in zip(got, exact))


def test_no_rows_at_all(tuned):
    x, w = operands(rows=0)
    y = gt.grouped_gemm(x, w, torch.zeros(E, dtype=torch.int32))
    dx, dw = torch.autograd.grad(y.sum(), [x, w])
    assert y.shape == (0, N) and dx.shape == (0, K) and (dw == 0).all() and dw.shape == w.shape


def test_row_counts_share_a_kernel(tuned):
    w = torch.randn(E, N, K)
    for rows in (4, 8, 12):
        gt.grouped_gemm(torch.randn(rows, K), w, torch.tensor([rows, 0, 0, 0]))
    assert len(gt.status()) == 3 and len(plans.plans._kernels) <= 3
    assert len(plans.plans._kernels) == len({p["config"] for p in gt.status()})


def forward_call(rows):
    return Call("forward", torch.device("cpu"), torch.float32, rows, N, K, E,
                Flags(1, False, False))


def test_plans_are_bounded_and_kernels_of_a_gpu_stay(tuned, monkeypatch):
    """The least recently used plans are dropped, the kernels stay: a captured graph may launch a kernel that no
    plan names any more."""
    monkeypatch.setattr(plans, "PLANS_MOST", 4)
    monkeypatch.setattr(plans, "_may_be_captured", lambda device: True)
    w, x, launched = torch.randn(E, N, K), torch.randn(12, K), set()
    for rows in range(1, 12):
        for m in (12, rows):
            gt.grouped_gemm(x[:m], w, torch.tensor([m, 0, 0, 0]))
            launched.add(plans.plans._plans[forward_call(m)].kernel)
        assert len(gt.status()) <= 4
    assert forward_call(12) in plans.plans._plans and forward_call(11) in plans.plans._plans
    assert gt.status()[0]["launches"] == 11  # always the same plan
    assert forward_call(1) not in plans.plans._plans
    assert launched == set(plans.plans._kernels.values())
    assert plans.plans.find(forward_call(1)).how == "gemmd"


@pytest.mark.parametrize("end", ["evicted", "configured anew"])
def test_a_kernel_of_the_cpu_goes_with_its_last_plan(tuned, monkeypatch, end):
    monkeypatch.setattr(plans, "PLANS_MOST", 2)
    first = weakref.ref(plans.plans.find(forward_call(1)).kernel)
    assert first() is not None and plans.plans.find(forward_call(1)).kernel is first()
    if end == "evicted":
        for n in (2 * N, 3 * N, 4 * N, 5 * N):  # plans of other products, with other kernels, push the first out
            plans.plans.find(forward_call(1)._replace(n=n))
        assert len(plans.plans._kernels) <= 2
    else:
        gt.configure()
    gc.collect()
    assert first() is None
    assert plans.plans.find(forward_call(1)).kernel is not None


def test_a_kernel_is_not_freed_while_it_is_launched(tuned, monkeypatch):
    m_sizes, gather = routing()
    x, w = (t.detach() for t in operands())
    freed, inside, go, results = [], threading.Event(), threading.Event(), []
    free, launch_it = gemmd.Kernel.free, gemmd.Kernel.launch

    def slowly(self, args):
        inside.set()
        assert go.wait(20)
        launch_it(self, args)

    monkeypatch.setattr(gemmd.Kernel, "free", lambda k: freed.append(k._handle.value) or free(k))
    monkeypatch.setattr(gemmd.Kernel, "launch", slowly)
    thread = threading.Thread(target=lambda: results.append(gt.grouped_gemm(x, w, m_sizes, gather, TOPK)))
    thread.start()
    assert inside.wait(60)
    gt.configure()  # drops all plans: none refers to the kernel any more
    gc.collect()
    early = list(freed)
    go.set()
    thread.join()
    gc.collect()
    assert not early and len(freed) == 1 and error(results[0], right(x, w, m_sizes, gather)) < 1e-5


def test_kernels_come_and_go_under_threads_that_launch(tmp_path, monkeypatch):
    """Threads launch kernels while plans are dropped; backward launches them in autograd's threads."""
    monkeypatch.setattr(plans, "PLANS_MOST", 4)
    gt.configure(socket=tmp_path / "nobody.sock", retry_s=None)
    wrong, until = [], time.monotonic() + 3

    def run(first):
        rows = first
        while time.monotonic() < until:
            rows = rows % 7 + 1
            x, w = operands(rows=rows)
            m_sizes = torch.tensor([rows, 0, 0, 0])
            y = gt.grouped_gemm(x, w, m_sizes)
            dx, = torch.autograd.grad(y.sum(), [x])
            if error(y, x @ w[0].t()) > 1e-5 or error(dx, w[0].sum(0).expand(rows, K)) > 1e-5:
                wrong.append(rows)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        threads = [threading.Thread(target=run, args=(first,)) for first in range(4)]
        for t in threads:
            t.start()
        while time.monotonic() < until:
            time.sleep(0.3)
            gt.configure()
        for t in threads:
            t.join()
    assert not wrong


class Loaded:
    """Stands for a gemmd.Kernel."""


def test_default_kernels_are_shared_by_all_rows_that_run_them(monkeypatch):
    made = []
    monkeypatch.setattr(plans, "compile_kernel", lambda problem, config, device, library:
                        made.append(config) or Loaded())
    own = plans.Plans()
    kernels = {own._compile(forward_call(rows), None) for rows in range(1, 200)}
    assert all(made) and len(set(made)) == len(made) == len(kernels) < 20
    own._compile(forward_call(8)._replace(n=2 * N), None)  # another product
    assert len(made) == len(kernels) + 1


# ---- calls ---------------------------------------------------------------------------------------

def test_calls_written_for_unsloth(tuned):
    m_sizes, gather = routing()
    x, w = operands(rows=TOKENS)
    mine = gt.grouped_gemm(x, w, m_sizes, gather, TOPK, permute_x=True)
    theirs = gt.grouped_gemm(X=x.view(3, 4, K), W=w, m_sizes=m_sizes, topk=TOPK,
                             gather_indices=gather, permute_x=True, autotune=True,
                             is_first_gemm=True, kernel_config_fwd=None)
    assert torch.equal(mine, theirs)
    assert torch.equal(mine, gt.grouped_gemm(x, w, m_sizes, TOPK, gather, permute_x=True))
    dx, dw = torch.autograd.grad(gt.grouped_gemm(x, w, m_sizes, gather, TOPK, permute_x=True,
                                                 dX_only=True).sum(), [x, w], allow_unused=True)
    assert dx is not None and dw is None


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_ids_of_any_whole_numbers(dtype):
    """Routers return such types."""
    ids = torch.randint(E, (TOKENS, TOPK), generator=torch.Generator().manual_seed(1))
    for got, wanted in zip(gt.sort_by_expert(ids.to(dtype), E), gt.sort_by_expert(ids, E)):
        assert got.dtype == torch.int32 and torch.equal(got, wanted)


def test_calls_that_cannot_be_meant():
    m_sizes, gather = routing()
    x, w = operands()
    for change, sentence in (
            ({"w": w[0]}, r"w is \[experts, N, K\]"), ({"x": x.double()}, "float16"),
            ({"x": x.bfloat16()}, "for both"), ({"m_sizes": m_sizes[:2]}, "4 experts"),
            ({"permute_x": True, "permute_y": True}, "none both"),
            ({"permute_y": True, "gather_indices": None}, "need gather_indices"),
            ({"permute_x": True, "topk": 0}, "topk is 0"),
            ({"m_sizes": m_sizes - 1}, "sum is the 24 routed rows"),
            ({"m_sizes": m_sizes + 10000}, "sum is the 24 routed rows"),
            ({"m_sizes": torch.tensor([-T, T, T, 0])}, "from 0 on"),
            ({"w": w[:0], "m_sizes": m_sizes[:0]}, "sum is the 24"),
            ({"permute_y": True, "gather_indices": gather + 1000000}, "from 1000000 to 1000023"),
            ({"permute_y": True, "gather_indices": gather - 1}, "from -1 to 22"),
            ({"permute_x": True, "x": x[:TOKENS], "gather_indices": gather + 1}, "from 1 to 24"),
            ({"permute_y": True, "fuse_mul_post": True, "topk_weights": torch.rand(T),
              "gather_indices": gather + 1000000}, "gather_indices is from"),
            ({"m_sizes": m_sizes + 0.5}, "m_sizes is torch.float32: int32 or int64"),
            ({"m_sizes": m_sizes.to(torch.int8)}, "m_sizes is torch.int8"),
            ({"permute_y": True, "gather_indices": gather + 0.7}, "gather_indices is torch.float32"),
            ({"permute_y": True, "gather_indices": torch.zeros_like(gather)}, "says a number twice"),
            ({"permute_x": True, "x": x[:TOKENS], "gather_indices": gather.clamp(min=1)},
             "says a number twice"),
            ({"x": None}, "x is missing: it is a tensor"), ({"w": [1]}, "w is a list: it is a tensor"),
            ({"m_sizes": None}, "m_sizes is missing"), ({"m_sizes": [6] * 4}, "m_sizes is a list"),
            ({"permute_y": True, "gather_indices": list(range(T))}, "gather_indices is a list"),
            ({"permute_y": True, "topk": None}, "topk is None"), ({"permute_y": True, "topk": 2.0}, "topk is 2.0"),
            ({"permute_y": True, "fuse_mul_post": True, "topk_weights": [1.0] * T}, "topk_weights is a list"),
            ({"w": w.to("meta")}, "w is on meta and x on cpu"),
            ({"m_sizes": m_sizes.to("meta")}, "m_sizes is on meta"),
            ({"permute_y": True, "gather_indices": gather.to("meta")}, "gather_indices is on meta"),
            ({"permute_y": True, "fuse_mul_post": True, "topk_weights": torch.rand(1)},
             "topk_weights has 1 elements"),
            ({"permute_y": True, "fuse_mul_post": True,
              "topk_weights": torch.rand(x.shape[0], device="meta")}, "topk_weights is on meta")):
        call = {"x": x, "w": w, "m_sizes": m_sizes, "gather_indices": gather, "topk": TOPK}
        with pytest.raises(ValueError, match=sentence):
            gt.grouped_gemm(**{**call, **change})
    with pytest.raises(TypeError, match="atuotune"):
        gt.grouped_gemm(x, w, m_sizes, atuotune=True)
    for topk, sentence in ((0, "topk is 0"), (5, "topk = 5")):
        with pytest.raises(ValueError, match=sentence):
            gt.grouped_gemm_sum(x, w, m_sizes, gather, topk)
    with pytest.raises(ValueError, match="gather_indices is from"):
        gt.grouped_gemm_sum(x, w, m_sizes, gather + 1000000, TOPK)
    with pytest.raises(TypeError, match="deadline_ms"):
        gt.configure(budget=3, deadline=3)
    for name, value in (("deadline_ms", "100"), ("retry_s", "1"), ("budget", 2.5)):
        with pytest.raises(TypeError, match=f"{name} is {value!r}: a .*number is wanted"):
            gt.configure(**{name: value})
    for name in ("deadline_ms", "retry_s", "budget"):
        with pytest.raises(ValueError, match=f"{name} is -1: 0 and more"):
            gt.configure(**{name: -1})
    for name, wanted in (("library", "a gemmd.ffi.Library"), ("socket", "a path")):
        with pytest.raises(TypeError, match=f"{name} is 5: {wanted} is wanted"):
            gt.configure(**{name: 5})
    with pytest.raises(TypeError, match="library is 'libgemmd.so': a gemmd.ffi.Library"):
        gt.configure(library="libgemmd.so")
    with pytest.raises(ValueError, match="use tuned, now, cached"):
        gt.configure(budget=3, wait="later")
    assert plans.plans.settings.budget == 0


@pytest.mark.parametrize("deadline", ["1s", "-3"])
def test_a_mistake_in_the_environment_is_a_warning(monkeypatch, deadline):
    monkeypatch.setenv("GEMMD_DEADLINE_MS", deadline)
    monkeypatch.setenv("GEMMD_WAIT", "later")
    with pytest.warns(RuntimeWarning) as said:
        settings = plans.Settings()
    assert settings.deadline_ms == 60000 and settings.wait == "tuned"
    assert 'GEMMD_WAIT="later"' in str(said[0].message) and f'"{deadline}"' in str(said[1].message)


def test_no_tokens_at_all(tuned):
    layer = gt.MoEMLP(K, N, E, TOPK)
    x = torch.randn(2, 0, K, requires_grad=True)
    y = layer(x)
    grads = torch.autograd.grad(y.sum(), [x, *layer.parameters()])
    assert y.shape == grads[0].shape == (2, 0, K) and all((g == 0).all() for g in grads)
    assert "experts=4, topk=2" in repr(layer)


def test_under_autocast(tuned):
    layer = gt.MoEMLP(K, N, E, TOPK)
    x = torch.randn(TOKENS, K, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    grads = torch.autograd.grad(y.float().sum(), [x, *layer.parameters()])
    assert y.dtype == torch.bfloat16 and all(g.dtype == torch.float32 for g in grads)
    assert {p["dtype"] for p in gt.status()} == {"bfloat16"}


@pytest.mark.parametrize("of", ["x", "w"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.bool, torch.complex64], ids=str)
def test_autocast_takes_what_it_takes_elsewhere(dtype, of):
    """PyTorch's linear layer does not round operands of these types under autocast, and neither may ours:
    rounded operands would give another product."""
    m_sizes, gather = routing()
    x, w = (t.detach() for t in operands())
    call = {"x": x, "w": w, of: {"x": x, "w": w}[of].to(dtype)}
    with torch.autocast("cpu", torch.bfloat16):
        for product in (gt.grouped_gemm, gt.grouped_gemm_sum):
            with pytest.raises(ValueError, match=str(dtype)):
                product(call["x"], call["w"], m_sizes, gather, TOPK)


@pytest.mark.parametrize("under", [False, True])
def test_a_layer_without_memory(under):
    """The layer runs on the device `meta`, for which PyTorch has no autocast."""
    layer = gt.MoEMLP(K, N, E, TOPK, device="meta")
    x = torch.empty(3, 4, K, device="meta", requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=under):
        y = layer(x)
    assert y.shape == x.shape and y.device.type == "meta" and y.dtype == torch.float32
    assert torch.autograd.grad(y.sum(), [x])[0].shape == x.shape


def test_under_autocast_sums_stay_in_its_type(tuned, monkeypatch):
    """On a GPU autocast makes every sum without an explicit type an fp32 sum. On the CPU it does not, so this test
    replaces Tensor.sum by a function that does."""
    real = torch.Tensor.sum
    monkeypatch.setattr(torch.Tensor, "sum", lambda t, *dims, dtype=torch.float32, **more:
                        real(t, *dims, dtype=dtype, **more))
    layer = gt.MoEMLP(K, N, E, TOPK)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(torch.randn(TOKENS, K))
    assert y.dtype == torch.bfloat16


def test_operands_of_two_types_are_an_error(tuned):
    m_sizes, gather = routing()
    x, w = operands()
    with pytest.raises(ValueError, match="dX: dy is torch.bfloat16 and w torch.float32"):
        ops.dx(torch.randn(T, N).bfloat16(), w, m_sizes, gather, TOPK, False, False)


@pytest.mark.skipif(torch.__version__ < (2, 9), reason="torch._grouped_mm takes CPU tensors since 2.9")
def test_plain_products_of_operands_as_they_lie(monkeypatch):
    """torch._grouped_mm refuses operands that our kernels get as a copy; on the CPU torch has the same checks."""
    monkeypatch.setattr(plain, "_can_group", lambda *operands: True)
    gt.configure(enabled=False)
    m_sizes, gather = routing()
    w = torch.randn(E, N, K, dtype=torch.bfloat16).requires_grad_()
    odd, offset = torch.randn(T, K + 1).bfloat16()[:, 1:], torch.randn(T * K + 1).bfloat16()[1:].view(T, K)
    for x, v in ((odd, w), (offset, w), (odd, torch.randn(E, K, N).bfloat16().transpose(1, 2).requires_grad_())):
        x = x.requires_grad_()
        y = gt.grouped_gemm(x, v, m_sizes, gather, TOPK)
        exact = right(x, v, m_sizes, gather)
        assert error(y, exact) < LIMITS[torch.bfloat16]
        for got, wanted in zip(torch.autograd.grad(y.sum(), [x, v]),  # an expanded gradient
                               torch.autograd.grad(exact.sum(), [x, v])):
            assert error(got, wanted) < LIMITS[torch.bfloat16]


@pytest.mark.parametrize("version, capability, can", [
    ("2.8.0", (9, 0), True), ("2.8.0", (8, 0), False), ("2.9.0", (8, 0), True)])
def test_pytorch_that_groups_on_hopper_alone(monkeypatch, version, capability, can):
    monkeypatch.setattr(torch, "__version__", type(torch.__version__)(version))
    monkeypatch.setattr(torch, "_grouped_mm", None, raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    plain._groups.cache_clear()
    assert plain._groups(torch.device("cuda:0")) == can
    plain._groups.cache_clear()


def test_a_gradient_of_a_gradient_is_an_error(tuned):
    m_sizes, gather = routing()
    x, w = operands()
    dx, = torch.autograd.grad(gt.grouped_gemm(x, w, m_sizes, gather, TOPK).square().sum(), [x],
                              create_graph=True)
    with pytest.raises(RuntimeError, match="gradients of gradients"):
        dx.sum().backward()


def products(m_sizes, gather):
    layer = gt.MoEMLP(K, N, E, TOPK)
    return {"grouped_gemm": (lambda x, w: gt.grouped_gemm(x, w, m_sizes, gather, TOPK), operands()),
            "grouped_gemm_sum": (lambda x, w: gt.grouped_gemm_sum(x, w, m_sizes, gather, TOPK), operands()),
            "swiglu": (lambda h, weights: gt.swiglu(h, weights),
                       (torch.randn(T, 2 * N, requires_grad=True), torch.rand(T, 1, requires_grad=True))),
            "MoEMLP": (lambda x, _: layer(x), (torch.randn(T, K, requires_grad=True), layer.down))}


@pytest.mark.parametrize("product", ["grouped_gemm", "grouped_gemm_sum", "swiglu", "MoEMLP"])
def test_so_it_is_of_a_loss_that_is_linear(tuned, product):
    """Gradients of gradients are refused for a linear loss, too, whose incoming gradient is a constant: the result
    still depends on saved tensors."""
    run, (a, b) = products(*routing())[product]
    y = run(a, b)
    da, = torch.autograd.grad(y.sum(), [a], create_graph=True)
    with pytest.raises(RuntimeError, match="gradients of gradients"):
        (y.pow(2).mean() + da.pow(2).sum()).backward()
    with pytest.raises(RuntimeError, match="gradients of gradients"):
        torch.autograd.functional.hvp(lambda a: run(a, b).sum() + run(a, b).pow(2).sum(), a, torch.ones_like(a))


def test_a_graph_of_gradients_may_be_made_and_left_alone(tuned):
    m_sizes, gather = routing()
    x, w = operands()
    y = gt.grouped_gemm(x, w, m_sizes, gather, TOPK)
    once = torch.autograd.grad(y.sum(), [x, w], retain_graph=True)
    graph = torch.autograd.grad(y.sum(), [x, w], create_graph=True)
    assert all(torch.equal(a, b) and b.requires_grad for a, b in zip(once, graph))
    other, = torch.autograd.grad(x.square().sum() + graph[0].detach().sum(), [x])
    assert torch.equal(other, 2 * x)


def test_what_depends_on_constants_alone_has_no_gradient(tuned):
    """With frozen experts and a linear loss dX is constant: that is no error, and dX has no gradient."""
    m_sizes, gather = routing()
    x, w = operands()
    w.requires_grad_(False)
    dx, = torch.autograd.grad(gt.grouped_gemm(x, w, m_sizes, gather, TOPK).sum(), [x], create_graph=True)
    assert not dx.requires_grad


def test_gradients_where_operands_are_made_again(tuned):
    """torch.utils.checkpoint computes saved tensors again, and returns each only once."""
    m_sizes, gather = routing()
    x, w = operands()

    def run(x, w):
        return gt.grouped_gemm(x * 1, w * 1, m_sizes, gather, TOPK)

    for create_graph in (False, True):
        y = torch.utils.checkpoint.checkpoint(run, x, w, use_reentrant=False)
        got = torch.autograd.grad(y.sum(), [x, w], create_graph=create_graph)
        exact = torch.autograd.grad(right(x, w, m_sizes, gather).sum(), [x, w])
        assert all(error(a, b) < 1e-5 for a, b in zip(got, exact))


# ---- torch.compile -------------------------------------------------------------------------------

@pytest.mark.parametrize("of", ["x", "w", "weights"])
@pytest.mark.parametrize("how", ["jvp", "jacfwd", "make_dual"])
def test_forward_mode_is_an_error(tuned, of, how):
    """gemmd.torch refuses forward-mode derivatives: a tangent of zeros would be silently wrong."""
    m_sizes, gather = routing()
    given = {**dict(zip("xw", operands())), "weights": torch.rand(T)}

    def product(t):
        o = {**given, of: t}
        if of == "weights":
            return gt.grouped_gemm(o["x"], o["w"], m_sizes, gather, TOPK, permute_y=True,
                                   topk_weights=o["weights"], fuse_mul_post=True)
        return gt.grouped_gemm(o["x"], o["w"], m_sizes)

    def differentiate(t):
        if how == "jvp":
            return torch.func.jvp(product, (t,), (t,))
        if how == "jacfwd":
            return torch.func.jacfwd(product)(t)
        with torch.autograd.forward_ad.dual_level():
            return product(torch.autograd.forward_ad.make_dual(t, t))

    with pytest.raises(NotImplementedError, match="forward-mode"):
        differentiate(given[of].detach())


def test_a_constant_may_stand_in_what_is_differentiated_forwards(tuned):
    m_sizes, _ = routing()
    x, w = (t.detach() for t in operands())
    _, tangent = torch.func.jvp(lambda t: t * gt.grouped_gemm(x, w, m_sizes).sum(), (x,), (x,))
    assert tangent.abs().max() > 0


def test_the_ops_keep_what_they_declare(tuned):
    m_sizes, gather = routing()
    x, w = operands(rows=TOKENS)
    dy = torch.randn(T, N)
    x, w = x.detach(), w.detach()
    ops, rest = torch.ops.gemmd, (m_sizes, gather, TOPK, True, False)
    torch.library.opcheck(ops.grouped_gemm.default, (x, w, *rest))
    torch.library.opcheck(ops.grouped_gemm_dx.default, (dy, w, *rest))
    torch.library.opcheck(ops.grouped_gemm_dw.default, (dy, x, *rest))
    torch.library.opcheck(ops.grouped_gemm_grads.default, (dy, x, w, *rest, False, False, False, True))
    torch.library.opcheck(ops.grouped_gemm_grads.default, (  # the gradients of a sum over each token's rows
        torch.randn(TOKENS, N), torch.randn(T, K), w, m_sizes, gather, TOPK, False, True, False, True, False, True))
    torch.library.opcheck(ops.grouped_gemm_grads.default, (  # of weights [experts, K, N]
        dy, x, w.mT.contiguous(), *rest, True, False, True, True))
    torch.library.opcheck(ops.grouped_gemm_grads.default, (  # rows of dX; a sum's gradient, which is expanded
        dy[:1, :1].expand(T, N), x, w, *rest, False, False, False, False))
    torch.library.opcheck(ops.grouped_gemm_mul.default, (
        torch.randn(T, K), w, torch.rand(T), m_sizes, gather, TOPK, False, True))


@pytest.mark.parametrize("nbytes, workspace, sms, left", [
    (4_563_402_752, 0, 132, 11),  # SonicMoE's 32768 x 4096, 256 experts of 256, top 16: dW takes 3.5 ms
    (4_563_402_752, 4096, 132, 0),  # the kernel has a workspace
    (256 << 20, 0, 132, 0),  # too short
    (4_563_402_752, 0, 0, 0),  # no Hopper GPU
    (1 << 40, 0, 132, 33),  # never more than a quarter
    (600 << 20, 0, 132, 2)])
def test_the_sms_that_a_product_leaves_to_a_sum(monkeypatch, nbytes, workspace, sms, left):
    call = Call("dW", torch.device("cuda", 0), torch.bfloat16, 524288, 512, 4096, 256, Flags(16, True, False))
    prepared = types.SimpleNamespace(plan=types.SimpleNamespace(call=call), workspace_bytes=lambda: workspace)
    monkeypatch.setattr(beside, "_sms_of_hopper", lambda device: sms)
    assert beside.share_of_product(prepared, nbytes) == (sms - left if left else 0)
    assert beside.share_of_product(None, nbytes) == 0


class Beside:
    """Stands in for two streams of a GPU, and notes what they get."""
    cuda_stream = None

    def __init__(self, monkeypatch):
        self.steps = []
        own = types.SimpleNamespace(wait_stream=lambda _: self.steps.append("fork"), cuda_stream=None)
        main = types.SimpleNamespace(wait_stream=lambda _: self.steps.append("join"))
        monkeypatch.setattr(beside, "_streams_of", lambda device: (main, own))
        monkeypatch.setattr(beside, "_sms_of_hopper", lambda device: 132)
        monkeypatch.setattr(beside, "BYTES_LEAST", 0)
        real_launch, real_sum = launch.Prepared.launch, product.gradient_of_x

        def note_launch(prepared, stream=None, sms=0):
            self.steps += [f"{prepared.plan.call.mode} on some"] if sms else []
            return real_launch(prepared, stream, sms)

        def note_sum(*of):
            self.steps.append("sum")
            return real_sum(*of)

        monkeypatch.setattr(launch.Prepared, "launch", note_launch)
        monkeypatch.setattr(product, "gradient_of_x", note_sum)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("partial", [False, True])
def test_a_product_beside_a_sum(tuned, monkeypatch, transposed, partial):
    m_sizes, gather = routing()
    m_sizes = m_sizes - (torch.arange(E) == m_sizes.argmax()).int() if partial else m_sizes
    x, w = operands(rows=TOKENS)
    w = w.detach().mT.contiguous().requires_grad_() if transposed else w
    y = gt.grouped_gemm(x, w, m_sizes, gather, TOPK, permute_x=True, transposed=transposed, partial=partial)
    dy = torch.randn_like(y)
    apart = torch.autograd.grad(y, (x, w), dy, retain_graph=True)
    seen = Beside(monkeypatch)
    together = torch.autograd.grad(y, (x, w), dy, retain_graph=True)
    assert seen.steps == ["fork", "dW on some", "sum", "join"] and all(torch.equal(a, b) for a, b in zip(apart, together))


def test_what_fails_beside_a_sum(tuned, monkeypatch):
    m_sizes, gather = routing()
    x, w = operands(rows=TOKENS)
    y = gt.grouped_gemm(x, w, m_sizes, gather, TOPK, permute_x=True)
    dy = torch.randn_like(y)
    apart = torch.autograd.grad(y, (x, w), dy, retain_graph=True)
    seen = Beside(monkeypatch)

    def fail(*_):
        raise MemoryError("no memory for the sum")

    def refuse(_):
        raise gemmd.GemmdError("workspace", -22, "invalid", "not these strides")

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(product, "gradient_of_x", fail)
        torch.autograd.grad(y, (x, w), dy, retain_graph=True)
    assert seen.steps == ["fork", "dW on some", "join"]
    real = launch.Prepared.launch
    monkeypatch.setattr(launch.Prepared, "launch", lambda self, stream=None, sms=0: not sms and real(self, stream))
    assert all(error(a, b) < 1e-5 for a, b in zip(torch.autograd.grad(y, (x, w), dy, retain_graph=True), apart))
    monkeypatch.setattr(launch.Prepared, "workspace_bytes", refuse)
    assert all(torch.equal(a, b) for a, b in zip(torch.autograd.grad(y, (x, w), dy), apart))


@pytest.mark.parametrize("topk", [1, TOPK, 3])
@pytest.mark.parametrize("dynamic", [False, True])
def test_the_layer_compiles_without_a_break(tuned, dynamic, topk):
    layer = gt.MoEMLP(K, N, E, topk)
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for tokens in (12, 20) if dynamic else (12,):
        x = torch.randn(tokens, K, requires_grad=True)
        mine, theirs = (torch.autograd.grad(f(x).square().sum(), [x, *layer.parameters()])
                        for f in (compiled, layer))
        # a single expert has the weight 1: the router's gradient is exactly 0
        assert all(error(a, b) < 1e-5 or torch.equal(a, b) for a, b in zip(mine, theirs))
    assert hows() == {"gemmd"}


# ---- never break the job -------------------------------------------------------------------------

def steps(n=2):
    """Runs and checks forward and backward of a small layer; returns the warnings."""
    layer = gt.MoEMLP(K, N, E, TOPK)
    x = torch.randn(TOKENS, K, requires_grad=True)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(n):
            y = layer(x)
            torch.autograd.grad(y.sum(), [x, *layer.parameters()])
    assert error(y, loop(layer, x)) < 1e-5
    return [str(w.message) for w in seen
            if w.category is RuntimeWarning and "gemmd" in str(w.message)]


def test_no_daemon(tmp_path):
    gt.configure(socket=tmp_path / "nobody.sock")
    said = steps()
    assert len(said) == 1 and "nobody.sock" in said[0] and "not measured" in said[0]
    assert hows() == {"compiled here"} and len(gt.status()) == 6
    assert all(p["tier"] == "default" and p["config"] for p in gt.status())


def test_a_daemon_that_hangs(cpu):
    gt.configure(socket=cpu.socket, deadline_ms=400)
    os.kill(cpu.process.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        said = steps()
        took = time.monotonic() - began
    finally:
        os.kill(cpu.process.pid, signal.SIGCONT)
    compiling = 6 * 3  # seconds to compile six kernels; the six products may wait for one deadline only
    within = re.search(r"within (\d+) ms", said[0])  # what is left of the deadline after connecting
    assert len(said) == 1 and 300 <= int(within[1]) <= 400 and took < 0.4 + compiling
    waited = [p for p in gt.status() if "within" in p["reason"]]
    assert len(waited) == 1 and hows() == {"compiled here"}


@pytest.mark.parametrize("text,enabled", [("false", True), ("NO", True), ("0", True), ("", True),
                                          ("1", False), ("yes", False), ("perhaps", True)])
def test_switches_of_the_environment(monkeypatch, text, enabled):
    monkeypatch.setenv("GEMMD_DISABLE", text)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert plans.Settings().enabled == enabled
    assert [str(w.message) for w in seen if "GEMMD_DISABLE" in str(w.message)] == (
        ['gemmd: GEMMD_DISABLE="perhaps" is not understood (1 or 0 is); False is taken']
        if text == "perhaps" else [])


def test_a_deadline_of_months_is_no_mistake(cpu):
    gt.configure(socket=cpu.socket, deadline_ms=10 ** 12, budget=1)
    assert steps() == [] and hows() == {"gemmd"}


def test_a_daemon_that_dies_while_it_tunes(cpu):
    gt.configure(socket=cpu.socket, budget=40)

    def kill_when_busy():
        until = time.monotonic() + 20
        while time.monotonic() < until and cpu.status()["runner"]["state"] != "busy":
            time.sleep(0.01)
        cpu.kill()

    killer = threading.Thread(target=kill_when_busy)
    killer.start()
    said = steps()
    killer.join()
    assert len(said) == 1 and "compiled here" in hows() and len(gt.status()) == 6


@pytest.mark.parametrize("kind", ["newer", "nonsense"])
def test_a_daemon_of_another_version(folder, kind):
    path = folder / "other.sock"
    listener = strange_daemon(path, lambda *_: {"version": 2, "build": "2.0"} if kind == "newer"
                              else {"what": [1, 2, 3]})
    gt.configure(socket=path, deadline_ms=2000)
    said = steps()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    assert len(said) == 1 and hows() == {"compiled here"}
    assert kind == "nonsense" or "version 2" in said[0]


@pytest.mark.parametrize("name, code, how", [("no_memory", -24, "compiled here"),
                                             ("quarantined", -31, "plain")])
def test_one_refused_key_is_not_taken_for_no_daemon(folder, name, code, how):
    """The refusal of one key does not make gemmd.torch stop asking. After a refused tuning libgemmd asks once more, for
    the daemon's lower tiers. A product whose default is quarantined runs plain PyTorch."""
    asked = {"tuned": [], "cached": []}

    def result(method, params):
        if method == "hello":
            return {"version": 1, "build": "strange"}
        if method == "get":
            asked[params["wait"]].append(str(params["problem"]))
        raise Refused(name, code)

    path = folder / "other.sock"
    listener = strange_daemon(path, result)
    gt.configure(socket=path, retry_s=None)
    steps()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    assert len(asked["tuned"]) == len(set(asked["tuned"])) == 6
    assert asked["cached"] == (asked["tuned"] if how == "compiled here" else [])
    assert {p["reason"] for p in gt.status()} == {gt.status()[0]["reason"]}
    assert f"{name}, it said" in gt.status()[0]["reason"] and hows() == {how}


def test_a_daemon_that_is_not_there_for_one_device_is_for_another(cpu, tmp_path, monkeypatch):
    monkeypatch.setattr(plans, "_fits", lambda answer, device: True)  # does not ask the GPU, which may not exist
    own = plans.Plans()
    own.settings.retry_s = None
    own._clients = {"cuda:0": gemmd.Client(tmp_path / "nobody.sock", device="cpu", lazy=True),
                    "cpu": gemmd.Client(cpu.socket, lazy=True)}
    calls = [forward_call(8)._replace(device=torch.device(device))
             for device in ("cuda:0", "cuda:0", "cpu")]
    reasons = [own._ask(call, "cached", 1000)[1] for call in calls]
    assert "nobody.sock" in reasons[0] and "a moment ago" in reasons[1]
    assert "a moment ago" not in reasons[2] and cpu.status()["requests"] >= 1


def test_a_kernel_of_other_sources_is_made_here_instead(tuned, monkeypatch):
    real = gemmd.Client.get

    def of_other_sources(self, *args, **query):
        a = real(self, *args, **query)
        return gemmd.Answer(**{**a.__dict__, "stamp": a.stamp.replace("src=", "src=f")})

    monkeypatch.setattr(gemmd.Client, "get", of_other_sources)
    said = steps()
    assert len(said) == 1 and "other sources" in said[0] and hows() == {"compiled here"}
    assert {p["source"] for p in gt.status()} == {"tuned"}  # the config is still the one that the daemon measured


def test_a_config_that_this_library_lacks_is_the_default_instead(tuned, monkeypatch):
    real = gemmd.Client.get

    def of_a_newer_one(self, *args, **query):
        a = real(self, *args, **query)
        newer = "" if query.get("offline") else " newer=1"
        return gemmd.Answer(**{**a.__dict__, "config_text": a.config_text + newer})

    monkeypatch.setattr(gemmd.Client, "get", of_a_newer_one)
    said = steps()
    assert len(said) == 1 and "newer" in said[0] and hows() == {"compiled here"}
    assert {p["config"] for p in gt.status()} == {""}


def test_a_gpu_s_call_never_gets_a_kernel_of_the_cpu(monkeypatch):
    made = []
    monkeypatch.setattr(plans, "on_device", lambda device: contextlib.nullcontext(made.append(f"current: {device}")))
    monkeypatch.setattr(plans, "compile_kernel", lambda problem, config, device, library:
                        made.append(device) or Loaded())
    call = Call("forward", torch.device("cuda", 1), torch.bfloat16, 8, 8, 8, 1, Flags(1, False, False),
                False)
    plans.Plans()._compile(call, None)
    assert made == ["current: cuda:1", "cuda:1"]  # the Client is for the tensor's device, also without a driver


def test_no_wait_at_all_before_gemmd_is_asked_again(tmp_path):
    gt.configure(socket=tmp_path / "nobody.sock", retry_s=0)
    steps()
    assert plans.plans._quiet_until["cpu"] <= time.monotonic()


def test_no_library(monkeypatch, tmp_path):
    monkeypatch.setattr(gemmd.ffi, "_shared", None)
    monkeypatch.setenv("GEMMD_LIBRARY", str(tmp_path / "libgemmd.so"))
    gt.configure()
    said = steps()
    assert len(said) == 1 and "libgemmd.so" in said[0] and "plain PyTorch" in said[0]
    assert hows() == {"plain"}


@pytest.mark.parametrize("want", ["no library", "nothing can be asked"])
def test_what_is_plain_stays_so_when_it_is_asked_for_again(monkeypatch, tmp_path, want):
    gt.configure(socket=tmp_path / "nobody.sock", retry_s=0)
    if want == "no library":
        monkeypatch.setattr(gemmd.ffi, "_shared", None)
        monkeypatch.setenv("GEMMD_LIBRARY", str(tmp_path / "libgemmd.so"))
    else:
        def refuse(*_, **__):
            raise gemmd.GemmdError("get", -15, "no_config", "no config for this")
        monkeypatch.setattr(gemmd.Client, "get", refuse)
    said = steps(3)
    assert len(said) == 1 and hows() == {"plain"}


def test_topk_without_permutes_means_nothing(cpu):
    """Without permutes the number of rows need not be a multiple of topk: where experts live on several devices,
    any number of rows may come to one device."""
    gt.configure(socket=cpu.socket, budget=1, retry_s=0)
    x, w = torch.randn(13, K), torch.randn(E, N, K)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            gt.grouped_gemm(x, w, torch.tensor([6, 0, 7, 0], dtype=torch.int32), topk=8)
    assert [(p["how"], p["M"], p["topk"]) for p in gt.status()] == [("gemmd", 13, 1)]


def test_no_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("GEMMD_CC", "/nonexistent/cc")
    gt.configure(socket=tmp_path / "nobody.sock")
    said = steps()
    assert len(said) == 1 and hows() == {"plain"}


def test_a_daemon_started_when_none_answers(folder, monkeypatch):
    for name, value in (("GEMMD_DAEMON", BUILD / "daemon" / "gemmd"), ("XDG_STATE_HOME", folder),
                        ("XDG_RUNTIME_DIR", folder)):
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("GEMMD_SOCKET", raising=False)
    gt.configure(autostart=True, budget=1)
    try:
        assert steps() == [] and hows() == {"gemmd"}
    finally:
        with gemmd.Client(device="cpu") as g:
            g.call("shutdown")


def test_kernels_of_a_gpu_stay_loaded(tuned, monkeypatch):
    """Kernels stay loaded after configure(), because a CUDA graph captured before may still launch them."""
    monkeypatch.setattr(plans, "_may_be_captured", lambda device: True)
    freed, real = [], gemmd.Kernel.free
    monkeypatch.setattr(gemmd.Kernel, "free", lambda k: freed.append(k) or real(k))
    assert steps() == [] and hows() == {"gemmd"}
    gt.configure(enabled=False)
    gc.collect()
    assert steps() == [] and hows() == {"plain"} and not freed


def test_switched_off(cpu):
    gt.configure(socket=cpu.socket, enabled=False)
    assert steps() == []
    assert hows() == {"plain"} and cpu.status()["jobs"]["done"] == 0


def test_a_refused_launch_is_plain_from_then_on(tuned, monkeypatch):
    real = gemmd.Kernel.launch
    refused = []

    def refuse(self, args):
        refused.append(self)
        raise gemmd.GemmdError("kernel_launch", -2, "invalid", "not these arguments")

    monkeypatch.setattr(gemmd.Kernel, "launch", refuse)
    said = steps()
    monkeypatch.setattr(gemmd.Kernel, "launch", real)
    assert len(said) == 1 and "not these arguments" in said[0]
    assert hows() == {"plain"} and len(refused) == 6


def test_a_better_answer_is_taken_up_later(cpu, monkeypatch):
    gt.configure(socket=cpu.socket, wait="cached", retry_s=0.0)
    m_sizes, gather = routing()
    x, w = operands()

    def run():
        return gt.grouped_gemm(x.detach(), w.detach(), m_sizes, gather, TOPK)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first = run()
    assert {p["tier"] for p in gt.status()} == {"default"}  # compiled here, or in the cache already
    with gemmd.Client(cpu.socket) as g:
        g.tune(gemmd.Problem(m=T, n=N, k=K, experts=E, dtype_in="fp32"), budget=1)
    assert error(run(), first) < 1e-5 and {p["tier"] for p in gt.status()} == {"exact"}
    assert gt.status()[0]["launches"] == 2


def test_kernels_are_loaded_with_their_device_current(tuned, monkeypatch):
    """Also those of a whole layer, which is asked for before any launch."""
    current, loaded = [], []

    @contextlib.contextmanager
    def on_device(device):
        current.append(device)
        yield
        current.pop()

    def loading(name):
        load = getattr(gemmd.Client, name)
        return lambda *arguments: loaded.append(current[-1:]) or load(*arguments)

    monkeypatch.setattr(plans, "on_device", on_device)
    monkeypatch.setattr(gemmd.Client, "kernel", loading("kernel"))
    launch.prepare_layer(torch.randn(TOKENS, K), torch.randn(E, 2 * N, K), torch.randn(E, K, N), TOPK, False)
    assert loaded == [[torch.device("cpu")]] * 6


def test_a_kernel_that_cannot_be_loaded_ends_no_job_that_has_one(cpu, monkeypatch):
    gt.configure(socket=cpu.socket, wait="cached", retry_s=0.0, batch_invariant=True)
    m_sizes, gather = routing()
    x, w = (t.detach() for t in operands())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first = gt.grouped_gemm(x, w, m_sizes, gather, TOPK)
    with gemmd.Client(cpu.socket) as g:
        g.tune(gemmd.Problem(m=T, n=N, k=K, experts=E, dtype_in="fp32", batch_invariant=True), budget=1)

    def refuse(*_, **__):
        raise gemmd.GemmdError("kernel_load", -3, "no_memory", "no memory")

    monkeypatch.setattr(plans.Plans, "_shared", refuse)
    assert torch.equal(gt.grouped_gemm(x, w, m_sizes, gather, TOPK), first)


def test_new_settings_ask_for_a_step_again(tuned):
    """Products whose shapes were seen before configure() are asked for together, as at first."""
    m_sizes, gather = routing()
    for _ in range(2):
        gt.configure(budget=1)
        gt.grouped_gemm(*operands(), m_sizes, gather, TOPK)
        assert [p["mode"] for p in gt.status()] == ["forward", "dX", "dW"]


def test_nothing_is_asked_while_a_graph_is_captured(tuned, monkeypatch):
    m_sizes, gather = routing()
    x, w = operands()
    known = gt.grouped_gemm(x, w, m_sizes, gather, TOPK)
    monkeypatch.setattr(plans, "_is_capturing", lambda device: True)
    before = tuned.status()["requests"]
    assert torch.equal(gt.grouped_gemm(x, w, m_sizes, gather, TOPK), known)
    other = gt.grouped_gemm(x, w, m_sizes, gather, TOPK, permute_y=True)  # not seen before
    assert error(other, right(x, w, m_sizes, gather, permute_y=True)) < 1e-5
    assert tuned.status()["requests"] == before + 1 and len(gt.status()) == 3  # those of the first call's step


def test_the_daemon_of_another_kind_of_device_is_not_believed(tuned, monkeypatch):
    monkeypatch.setattr(plans, "_fits", lambda answer, device: False)
    said = steps()
    assert len(said) == 1 and "another device" in said[0] and hows() == {"compiled here"}


def test_threads_make_each_plan_once(tuned):
    m_sizes, gather = routing()
    x, w = operands()
    wrong, expected = [], right(x, w, m_sizes, gather)

    def run():
        for _ in range(5):
            if error(gt.grouped_gemm(x, w, m_sizes, gather, TOPK), expected) > 1e-5:
                wrong.append(1)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and tuned.status()["jobs"]["done"] == 3 and len(gt.status()) == 3  # of a step
    assert gemmd.ffi.find_library() == LIB


def test_a_thread_with_a_kernel_does_not_wait_for_another_s_tuning(cpu, monkeypatch):
    gt.configure(socket=cpu.socket, wait="cached", retry_s=0)
    call = forward_call(8)
    old, waits, tuned = plans.plans.find(call), threading.Event(), threading.Event()

    def make(self, call, answer=None):
        waits.set()
        assert tuned.wait(60)
        return plans.Plan(call)

    monkeypatch.setattr(plans.Plans, "_make", make)
    other = threading.Thread(target=lambda: plans.plans.find(forward_call(16)))
    other.start()
    assert waits.wait(60)
    late = threading.Timer(5, tuned.set)
    late.start()
    found, in_time = plans.plans.find(call), not tuned.is_set()
    late.cancel()
    tuned.set()
    other.join()
    assert found is old and in_time
