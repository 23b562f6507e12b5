# SPDX-License-Identifier: Apache-2.0
"""gemmd.grouped_gemm on the CPU: gmm in all layouts with gradients, into a given output, and permute
and unpermute, against plain PyTorch in double precision. Skipped where there is no PyTorch."""
import importlib
import sys
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed for this Python")
if not hasattr(torch.library, "register_autograd"):
    pytest.skip(f"PyTorch {torch.__version__} is older than 2.4", allow_module_level=True)

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import gemmd.grouped_gemm as gg  # noqa: E402
import gemmd.torch as gt  # noqa: E402

E, T, N, K = 4, 24, 16, 32
SIZES = torch.tensor([10, 0, 13, 1])
LAYOUTS = {"a b": {}, "a b^T": {"trans_b": True}, "a^T b": {"trans_a": True}}
LIMITS = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)


@pytest.fixture
def tuned(cpu):
    gt.configure(socket=cpu.socket, budget=1)
    return cpu


def operands(layout, dtype=torch.float32):
    shape = {"a b": (E, K, N), "a b^T": (E, N, K), "a^T b": (T, N)}[layout]
    return (torch.randn(T, K, dtype=dtype, requires_grad=True), torch.randn(shape, dtype=dtype, requires_grad=True))


def right(layout, a, b):
    a, parts = a.double(), a.double().split(SIZES.tolist())
    b = b.double()
    if layout == "a^T b":
        return torch.stack([x.t() @ y for x, y in zip(parts, b.split(SIZES.tolist()))])
    return torch.cat([x @ (w.t() if layout == "a b^T" else w) for x, w in zip(parts, b)])


def error(got, expected):
    got, expected = got.detach().double(), expected.detach().double()
    return float((got - expected).norm() / expected.norm())


def of_kernels():
    """(mode, launches) of the products, all of which must have run gemmd's measured kernels."""
    assert {p["how"] for p in gt.status()} == {"gemmd"}
    return sorted((p["mode"], p["launches"]) for p in gt.status())


# ---- gmm -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("index", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_layouts_and_their_gradients(tuned, layout, index, dtype):
    a, b = operands(layout, dtype)
    y = gg.ops.gmm(a, b, SIZES.to(index), **LAYOUTS[layout])
    expected = right(layout, a, b)
    g = torch.randn_like(y)
    got, exact = (torch.autograd.grad(out, [a, b], g.to(out.dtype)) for out in (y, expected))
    assert error(y, expected) < LIMITS[dtype] and y.dtype == dtype
    assert all(error(x, r) < LIMITS[dtype] for x, r in zip(got, exact))
    assert of_kernels() == [("dW", 1), ("dX", 1), ("forward", 1)]


def test_the_fourth_argument_is_trans_b_in_ops_and_trans_a_in_backend(tuned):
    """As in grouped_gemm."""
    a, b = operands("a b^T")
    assert error(gg.ops.gmm(a, b, SIZES, True), right("a b^T", a, b)) < 1e-5
    a, b = operands("a^T b")
    assert error(gg.backend.gmm(a, b, SIZES, True, False), right("a^T b", a, b)) < 1e-5


def test_backend_has_no_gradients(tuned):
    a, b = operands("a b")
    assert not gg.backend.gmm(a, b, SIZES).requires_grad


def test_strided_operands_and_an_expanded_gradient(tuned):
    """A gradient of sum() has strides of 0; b is a view of a larger tensor."""
    wide = torch.randn(E, N, K + 8, requires_grad=True)
    a = torch.randn(K, T).t().requires_grad_()
    b = wide[:, :, :K]
    gg.ops.gmm(a, b, SIZES, trans_b=True).sum().backward()
    expected = torch.autograd.grad(right("a b^T", a, b).sum(), [a, wide])
    assert error(a.grad, expected[0]) < 1e-5 and error(wide.grad, expected[1]) < 1e-5


@pytest.mark.parametrize("layout", LAYOUTS)
def test_only_the_wanted_gradient_is_computed(tuned, layout):
    a, b = operands(layout)
    gg.ops.gmm(a.detach(), b, SIZES, **LAYOUTS[layout]).sum().backward()
    assert a.grad is None and error(b.grad, torch.autograd.grad(right(layout, a, b).sum(), b)[0]) < 1e-5
    assert sum(p["launches"] for p in gt.status()) == 2


def test_experts_without_any_row(tuned):
    a, b = torch.randn(0, K, requires_grad=True), torch.randn(E, K, N, requires_grad=True)
    y = gg.ops.gmm(a, b, torch.zeros(E, dtype=torch.int64))
    y.sum().backward()
    assert y.shape == (0, N) and (b.grad == 0).all() and a.grad.shape == (0, K)
    c = torch.ones(E, K, N)
    gg.backend.gmm(a, y.detach(), torch.zeros(E, dtype=torch.int64), trans_a=True, c=c)
    assert (c == 0).all()


def test_torch_compile_takes_gmm_whole(tuned):
    a, b = operands("a b")

    @torch.compile(fullgraph=True, backend="aot_eager")
    def step(a, b, sizes):
        return gg.ops.gmm(a, b, sizes).square().sum()

    loss = step(a, b, SIZES)
    got = torch.autograd.grad(loss, [a, b])
    expected = right("a b", a, b).square().sum()
    assert error(loss, expected.detach()) < 1e-5
    assert all(error(x, r) < 1e-5 for x, r in zip(got, torch.autograd.grad(expected, [a, b])))


def test_fake_tensors_ask_for_nothing():
    with FakeTensorMode():
        a, b = operands("a b")
        gg.ops.gmm(a, b, torch.empty(E, dtype=torch.int64), main_grad=torch.empty(b.shape)).sum().backward()
    assert a.grad.shape == a.shape and len(gt.status()) == 0


def test_torch_compile_takes_outputs_that_are_there_already(tuned):
    a, b = operands("a b")
    main_grad, c = torch.zeros(b.shape), torch.zeros(T, N)
    step = torch.compile(lambda a, b, main_grad: gg.ops.gmm(a, b, SIZES, main_grad=main_grad).sum(),
                         fullgraph=True, backend="aot_eager")
    step(a, b, main_grad).backward()
    exact = torch.autograd.grad(right("a b", a, b).sum(), [a, b])
    assert b.grad is None and error(a.grad, exact[0]) < 1e-5 and error(main_grad, exact[1]) < 1e-5
    with torch.no_grad():
        torch.compile(lambda a, b, c: gg.ops.gmm(a, b, SIZES, c=c), fullgraph=True, backend="aot_eager")(a, b, c)
    assert error(c, right("a b", a, b)) < 1e-5


def test_gradients_of_gradients_are_refused(tuned):
    a, b = operands("a b")
    first, = torch.autograd.grad(gg.ops.gmm(a, b, SIZES).square().sum(), a, create_graph=True)
    with pytest.raises(RuntimeError, match="first derivatives only"):
        first.sum().backward()


# ---- into a given output -------------------------------------------------------------------------

@pytest.mark.parametrize("kind", ["dense", "strided", "fp32"])
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_c_gets_the_result(tuned, layout, accumulate, kind):
    a, b = (t.detach() for t in operands(layout, torch.bfloat16))
    expected = right(layout, a, b)
    c = torch.randn(expected.shape, dtype=torch.float32 if kind == "fp32" else torch.bfloat16)
    c = torch.cat([c, c], -1)[..., :c.shape[-1]] if kind == "strided" else c
    before = c.double()
    got = gg.backend.gmm(a, b, SIZES, **LAYOUTS[layout], c=c, accumulate=accumulate)
    assert got is c and error(c, before + expected if accumulate else expected) < 2e-2
    assert sum(launches for _, launches in of_kernels()) == 1


def test_c_in_a_graph_of_gradients(tuned):
    """c is written in place: its old numbers have a gradient only where the result was added."""
    a, b = operands("a b")
    base = torch.randn(T, N, requires_grad=True)
    for accumulate in (False, True):
        c = base * 2
        y = gg.ops.gmm(a, b, SIZES, c=c, accumulate=accumulate)
        got = torch.autograd.grad(y.square().sum(), [a, b, base])
        expected = right("a b", a, b) + (base.double() * 2 if accumulate else base.double() * 0)
        exact = torch.autograd.grad(expected.square().sum(), [a, b, base])
        assert y is c and error(y, expected.detach()) < 1e-5
        assert all(error(x, r) < 1e-5 for x, r in zip(got[:2], exact))
        assert error(got[2], exact[2]) < 1e-5 if accumulate else (got[2] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_gradient_of_b_is_added_to_main_grad(tuned, layout, dtype):
    a, b = operands(layout, torch.bfloat16)
    main_grad = torch.full(b.shape, 0.5, dtype=dtype)
    for _ in range(2):
        gg.ops.gmm(a, b, SIZES, **LAYOUTS[layout], main_grad=main_grad).sum().backward()
    exact = torch.autograd.grad(right(layout, a, b).sum(), [a, b])
    assert b.grad is None and error(a.grad, 2 * exact[0]) < 2e-2
    assert error(main_grad, 0.5 + 2 * exact[1].double()) < 2e-2
    assert of_kernels() == [("dW", 2), ("dX", 2), ("forward", 2)]  # the only dW is the one that adds to main_grad


def test_small_gradients_are_not_lost_in_main_grad(tuned):
    """main_grad is fp32, and each product adds 1/1024 to 1. A sum in bf16 would remain 1."""
    a, b = torch.ones(E, K, dtype=torch.bfloat16), torch.ones(E, N, dtype=torch.bfloat16) / 1024
    main_grad, ones = torch.ones(E, K, N), torch.ones(E, dtype=torch.int64)
    for _ in range(3):
        gg.backend.gmm(a, b, ones, trans_a=True, c=main_grad, accumulate=True)
    assert torch.equal(main_grad, torch.full((E, K, N), 1 + 3 / 1024))


def test_main_grad_under_a_forward_that_was_recomputed(tuned):
    """torch.utils.checkpoint runs forward twice and backward once: main_grad gets the gradient once."""
    from torch.utils.checkpoint import checkpoint
    a, b = operands("a b")
    main_grad = torch.zeros(b.shape)
    checkpoint(lambda a, b: gg.ops.gmm(a, b, SIZES, main_grad=main_grad), a, b, use_reentrant=False).sum().backward()
    assert error(main_grad, torch.autograd.grad(right("a b", a, b).sum(), b)[0]) < 1e-5


# ---- permute, unpermute --------------------------------------------------------------------------

TOKENS, TOPK = 12, 3


def routing(topk=TOPK):
    return torch.rand(TOKENS, E).topk(topk).indices.to(torch.int32)


@pytest.mark.parametrize("kept", [None, 0, TOKENS * TOPK - 5])
def test_permute_and_unpermute_with_gradients(kept):
    indices, rows = routing(), kept or TOKENS * TOPK
    x = torch.randn(TOKENS, K, requires_grad=True)
    probs = torch.rand(TOKENS, TOPK, requires_grad=True)
    order = torch.argsort(indices.reshape(-1), stable=True)[:rows]
    scale = torch.rand(rows, K)

    permuted, row_id_map = gg.ops.permute(x, indices, kept)
    assert torch.equal(permuted, x[order // TOPK]) and row_id_map.dtype == torch.int32
    for place, flat in enumerate(order.tolist()):  # grouped_gemm's form of the map
        assert row_id_map[flat % TOPK * TOKENS + flat // TOPK] == place
    assert (row_id_map == -1).sum() == TOKENS * TOPK - rows
    y = gg.ops.unpermute(permuted * scale, row_id_map, probs)
    factor = probs.double().reshape(-1)[order].unsqueeze(1)
    expected = torch.zeros(TOKENS, K, dtype=torch.double).index_add(
        0, order // TOPK, x.double()[order // TOPK] * scale * factor)
    g = torch.randn_like(y)
    got = torch.autograd.grad(y, [x, probs], g)
    exact = torch.autograd.grad(expected, [x, probs], g.double())
    assert error(y, expected) < 1e-6 and all(error(a, b) < 1e-6 for a, b in zip(got, exact))


def test_a_dropped_row_adds_nothing_even_when_others_are_not_finite():
    x = torch.full((TOKENS, K), float("inf"))
    permuted, row_id_map = gg.ops.permute(x, routing(1), 1)
    y = gg.ops.unpermute(permuted, row_id_map, torch.ones(TOKENS, 1))
    assert torch.isinf(y).any(1).sum() == 1 and (y[~torch.isinf(y)] == 0).all()


def test_a_single_expert_needs_no_probs_and_flat_indices_do():
    indices, x = routing(1).reshape(-1), torch.randn(TOKENS, K, dtype=torch.bfloat16, requires_grad=True)
    permuted, row_id_map = gg.ops.permute(x, indices)
    y = gg.ops.unpermute(permuted, row_id_map)
    y.sum().backward()
    assert torch.equal(y, x) and (x.grad == 1).all()


@pytest.mark.parametrize("tokens, topk, columns", [(0, TOPK, K), (3, 0, K), (3, TOPK, 0)])
def test_no_numbers(tokens, topk, columns):
    """A rank's backward reaches the functions before permute(), such as a collective, also without rows."""
    x, probs = (torch.randn(tokens, size, dtype=torch.bfloat16, requires_grad=True) for size in (columns, topk))
    permuted, row_id_map = gg.ops.permute(x, torch.zeros(tokens, topk, dtype=torch.int32))
    y = gg.ops.unpermute(permuted, row_id_map, probs)
    assert permuted.shape == (tokens * topk, columns) and row_id_map.shape == (tokens * topk,)
    assert y.shape == (tokens, columns) and y.dtype == x.dtype and not y.any()
    y.sum().backward()
    for t in x, probs:
        assert t.grad.shape == t.shape and not t.grad.any()


def test_a_whole_layer_as_megatron_writes_it(tuned):
    indices, x = routing(), torch.randn(TOKENS, K, requires_grad=True)
    probs, w = torch.rand(TOKENS, TOPK), torch.randn(E, K, N, requires_grad=True)
    permuted, row_id_map = gg.ops.permute(x, indices)
    h = gg.ops.gmm(permuted, w, torch.bincount(indices.reshape(-1), minlength=E), trans_b=False)
    y = gg.ops.unpermute(h, row_id_map, probs)
    expected = sum(probs[:, s, None].double() * torch.einsum("tk,tkn->tn", x.double(), w.double()[indices[:, s].long()])
                   for s in range(TOPK))
    g = torch.randn_like(y)
    got, exact = torch.autograd.grad(y, [x, w], g), torch.autograd.grad(expected, [x, w], g.double())
    assert error(y, expected) < 1e-5 and all(error(a, b) < 1e-5 for a, b in zip(got, exact))


# ---- the name grouped_gemm -----------------------------------------------------------------------

def test_install_answers_to_the_name_grouped_gemm(monkeypatch):
    for name in ("grouped_gemm", "grouped_gemm.ops", "grouped_gemm.backend"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    other = type(sys)("grouped_gemm")
    monkeypatch.setitem(sys.modules, "grouped_gemm", other)
    gg.install()
    gg.install()
    import grouped_gemm
    from grouped_gemm import backend
    assert grouped_gemm.ops.gmm is gg.ops.gmm and backend is gg.backend
    assert importlib.import_module("grouped_gemm.ops") is gg.ops and importlib.util.find_spec("grouped_gemm")
    gg.uninstall()
    gg.uninstall()
    assert sys.modules["grouped_gemm"] is other and "grouped_gemm.ops" not in sys.modules


# ---- bad input, no daemon ------------------------------------------------------------------------

def bad(**changes):
    a, b = operands("a b")
    return {"a": a, "b": b, "batch_sizes": SIZES, **changes}


@pytest.mark.parametrize("changes, says", [
    ({"trans_a": True, "trans_b": True}, "both true"),
    ({"batch_sizes": [10, 0, 13, 1]}, "batch_sizes is a list: it is a tensor"),
    ({"batch_sizes": SIZES.float()}, "int64 or int32"),
    ({"batch_sizes": SIZES[None]}, "int64 or int32"),
    ({"batch_sizes": SIZES[:3]}, "one for each of the 4 experts"),
    ({"batch_sizes": SIZES + 1}, "batch_sizes is 28 rows in all"),
    ({"batch_sizes": SIZES - 1}, "-1 at least"),
    ({"batch_sizes": SIZES.to("meta")}, "move it to cpu, or to the host"),
    ({"a": torch.randn(T, K).double()}, "float64"),
    ({"a": torch.randn(T, K).bfloat16()}, "for both"),
    ({"a": torch.randn(T, K + 8)}, "share no K"),
    ({"a": torch.randn(2, T, K)}, "without trans_b"),
    ({"b": torch.randn(T, N)}, "experts, K, N"),
    ({"b": torch.randn(T + 1, N), "trans_a": True}, "share no number of rows"),
    ({"b": torch.randn(E, K, N, device="meta")}, "b is on meta and a on cpu"),
    ({"c": torch.empty(T, N + 1)}, "the result is \\(24, 16\\)"),
    ({"c": torch.empty(T, N, dtype=torch.int32)}, "floating-point"),
    ({"c": 3}, "c is a int: it is a tensor"),
    ({"accumulate": True}, "accumulate needs c"),
    ({"main_grad": torch.empty(E, N, K)}, "main_grad is"),
])
def test_bad_arguments_are_sentences(changes, says):
    with pytest.raises(ValueError, match=says):
        gg.ops.gmm(**bad(**changes))
    if "main_grad" not in changes:
        with pytest.raises(ValueError, match=says), torch.no_grad():
            gg.ops.gmm(**bad(**changes))


@pytest.mark.parametrize("call, says", [
    (lambda: gg.ops.permute(torch.randn(3, 4), torch.zeros(2, 1).int()), "indices \\(2, 1\\)"),
    (lambda: gg.ops.permute(torch.randn(3, 4), torch.zeros(3, 1)), "indices is torch.float32"),
    (lambda: gg.ops.permute(torch.randn(3, 4), torch.zeros(3).int(), 4), "from 1 to the 3 rows"),
    (lambda: gg.ops.unpermute(torch.randn(3, 4), torch.zeros(3).int(), torch.ones(3)), "tokens, topk"),
    (lambda: gg.ops.unpermute(torch.randn(3, 4), torch.zeros(3).int(), torch.ones(3, 2)), "row_id_map has 3"),
    (lambda: gg.ops.unpermute(torch.randn(3, 4), torch.zeros(3)), "second result of permute"),
])
def test_bad_arguments_of_the_permutes_are_sentences(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_a_missing_daemon_is_one_warning(tmp_path):
    gt.configure(socket=tmp_path / "nobody.sock")
    a, b = operands("a b")
    main_grad = torch.zeros(b.shape)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        y = gg.ops.gmm(a, b, SIZES, main_grad=main_grad)
        y.sum().backward()
    assert len([w for w in seen if "gemmd" in str(w.message)]) == 1 and error(y, right("a b", a, b)) < 1e-5


@pytest.mark.parametrize("layout", LAYOUTS)
def test_without_gemmd_plain_pytorch_gives_the_same(layout):
    gt.configure(enabled=False)
    a, b = operands(layout)
    main_grad = torch.ones(b.shape)
    y = gg.ops.gmm(a, b, SIZES, **LAYOUTS[layout], main_grad=main_grad)
    y.sum().backward()
    exact = torch.autograd.grad(right(layout, a, b).sum(), [a, b])
    assert error(y, right(layout, a, b)) < 1e-5 and error(a.grad, exact[0]) < 1e-5
    assert error(main_grad, 1 + exact[1].double()) < 1e-5
    assert {p["how"] for p in gt.status()} == {"plain"}
