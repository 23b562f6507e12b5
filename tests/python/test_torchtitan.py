# SPDX-License-Identifier: Apache-2.0
"""gemmd.torch.grouped_mm, and gemmd.torchtitan with the real torchtitan, on the CPU. Skipped where
there is no PyTorch, or for the second part no torchtitan with overrides (0.3.0)."""
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed for this Python")
if not hasattr(torch, "_grouped_mm") or not hasattr(torch.library, "register_autograd"):
    pytest.skip(f"PyTorch {torch.__version__} has no torch._grouped_mm", allow_module_level=True)

import gemmd.torch as gt  # noqa: E402
from conftest import environment  # noqa: E402
from gemmd.torch import override as serving  # noqa: E402
from gemmd.torch.grouped_mm import grouped_mm  # noqa: E402

E, T, N, K = 4, 24, 16, 32
ENDS = torch.tensor([10, 10, 23, 24], dtype=torch.int32)


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    serving._served.clear()
    yield
    serving._served.clear()


@pytest.fixture
def tuned(cpu):
    gt.configure(socket=cpu.socket, budget=1)
    return cpu


def error(got, expected):
    got, expected = got.detach().double(), expected.detach().double()
    return float((got - expected).norm() / expected.norm())


def parts_of(t):
    return t.split([10, 0, 13, 1])


def right(a, b):
    """[T, K], [E, K, N] -> [T, N], and [M, T], [T, N] -> [E, M, N], in double precision."""
    a, b = a.double(), b.double()
    if b.dim() == 3:
        return torch.cat([x @ w for x, w in zip(parts_of(a), b)])
    return torch.stack([x.t() @ y for x, y in zip(parts_of(a.t()), parts_of(b))])


def launches():
    return sorted((p["mode"], p["launches"]) for p in gt.status())


# ---- the op --------------------------------------------------------------------------------------

def operands(layout, dtype=torch.bfloat16):
    """Returns two leaf tensors, which get gradients, and the operands a and b, which are views of them."""
    a = torch.randn(T, K, dtype=dtype, requires_grad=True)
    if layout == "rows":
        b = torch.randn(E, K, N, dtype=dtype, requires_grad=True)
        return a, b, a, b
    if layout == "columns":
        b = torch.randn(E, N, K, dtype=dtype, requires_grad=True)
        return a, b, a, b.transpose(-2, -1)
    b = torch.randn(T, N, dtype=dtype, requires_grad=True)
    return a, b, a.t(), b


@pytest.mark.parametrize("layout", ["rows", "columns", "summed"])
@pytest.mark.parametrize("dtype, limit", [(torch.bfloat16, 2e-2), (torch.float32, 1e-5)], ids=str)
def test_products_and_gradients_run_gemmd_s_kernels(tuned, layout, dtype, limit):
    a, b, *views = operands(layout, dtype)
    y = grouped_mm(*views, ENDS)
    g = torch.randn_like(y)
    got, expected = torch.autograd.grad(y, [a, b], g), right(*views)
    exact = torch.autograd.grad(expected, [a, b], g.double())
    assert error(y, expected) < limit and all(error(x, r) < limit for x, r in zip(got, exact))
    assert launches() == [("dW", 1), ("dX", 1), ("forward", 1)]
    assert {p["how"] for p in gt.status()} == {"gemmd"} and sum(p.left for p in serving.products()) == 0


def test_the_three_modes_are_asked_for_at_the_first_product(tuned):
    _, _, *views = operands("columns")
    grouped_mm(*views, ENDS)
    assert launches() == [("dW", 0), ("dX", 0), ("forward", 1)]


def test_gradients_of_gradients(tuned):
    a, b, *views = operands("columns", torch.float32)
    def second(product):
        first, = torch.autograd.grad(product(*views).square().sum(), a, create_graph=True)
        return torch.autograd.grad(first.square().sum(), [a, b])
    got, exact = second(lambda a, b: grouped_mm(a, b, ENDS)), second(right)
    assert all(error(x, r) < 1e-5 for x, r in zip(got, exact))


def test_rows_after_the_last_end_change_nothing(tuned):
    a, b, *views = operands("columns")
    ends = torch.tensor([10, 10, 20, 20], dtype=torch.int32)
    grouped_mm(*views, ends)[:20].sum().backward()
    sizes = [10, 0, 10, 0]
    x, w = a[:20].double(), b.double()
    exact = torch.autograd.grad(torch.cat([p @ m.t() for p, m in zip(x.split(sizes), w)]).sum(), [a, b])
    assert error(a.grad[:20], exact[0][:20]) < 2e-2 and error(b.grad, exact[1]) < 2e-2


@pytest.mark.parametrize("case", ["no gemmd", "ends after the rows", "int64 ends"])
def test_where_gemmd_does_not_serve_it_is_pytorch_s_own(tuned, case):
    a, b, *views = operands("columns")
    ends = ENDS
    if case == "no gemmd":
        gt.configure(enabled=False)
        assert torch.equal(grouped_mm(*views, ends), torch._grouped_mm(*views, offs=ends))
        return
    ends = ends.long() if case == "int64 ends" else ends + 1
    mine, theirs = [], []
    for product, said in ((lambda: grouped_mm(*views, ends), mine),
                          (lambda: torch._grouped_mm(*views, offs=ends), theirs)):
        try:
            said.append(product().shape)
        except (RuntimeError, IndexError) as e:
            said.append(str(e))
    assert mine == theirs and not any(n for _, n in launches())


def test_torch_compile_takes_the_op_whole(tuned):
    a, b, *views = operands("columns", torch.float32)
    step = torch.compile(lambda a, b: grouped_mm(a, b.transpose(-2, -1), ENDS).square().sum(), fullgraph=True,
                         backend="aot_eager", dynamic=True)
    got = torch.autograd.grad(step(a, b), [a, b])
    exact = torch.autograd.grad(right(*views).square().sum(), [a, b])
    assert all(error(x, r) < 1e-5 for x, r in zip(got, exact))
    assert {mode for mode, n in launches() if n} == {"forward", "dX", "dW"}


def test_the_op_s_registrations_are_consistent(tuned):
    for layout in ("rows", "columns", "summed"):
        _, _, *views = operands(layout, torch.float32)
        torch.library.opcheck(torch.ops.gemmd.grouped_mm.default, (*views, ENDS),
                              test_utils=("test_schema", "test_autograd_registration", "test_faketensor"))


# ---- torchtitan ----------------------------------------------------------------------------------

@pytest.fixture
def titan():
    """The real torchtitan with gemmd's override of its experts registered."""
    pytest.importorskip("torchtitan", reason="torchtitan is not installed for this Python")
    import torch.distributed.fsdp as fsdp
    for name in ("DataParallelMeshDims",):  # of newer PyTorch; torchtitan's experts do not use it
        if not hasattr(fsdp, name):
            setattr(fsdp, name, object)
    try:
        import gemmd.torchtitan
    except ImportError as e:
        pytest.skip(f"this torchtitan has no overrides, or does not go with this PyTorch: {e}")
    return gemmd.torchtitan


def tree_of(cfg):
    """Wraps a config of experts in torchtitan's config of routed experts, where the override must find it."""
    from torchtitan.models.common.moe import RoutedExperts
    from torchtitan.models.common.token_dispatcher import LocalTokenDispatcher
    return RoutedExperts.Config(inner_experts=cfg, token_dispatcher=LocalTokenDispatcher.Config(
        num_experts=E, top_k=2))


def apply(cfg, target="gemmd.torchtitan.grouped_experts"):
    from torchtitan.config.override import OverrideConfig, apply_overrides
    tree = tree_of(cfg)
    lines = apply_overrides(OverrideConfig(imports=[target]), tree)
    return tree.inner_experts, lines


def experts_of(kind):
    if kind == "gpt_oss":
        from torchtitan.models.gpt_oss.moe import GptOssGroupedExperts
        return GptOssGroupedExperts.Config(dim=K, hidden_dim=N, num_experts=E, swiglu_limit=3.0)
    from torchtitan.models.common.moe import GroupedExperts
    return GroupedExperts.Config(dim=K, hidden_dim=N, num_experts=E)


@pytest.mark.parametrize("kind", ["common", "gpt_oss"])
def test_experts_of_torchtitan_run_gemmd_s_kernels(tuned, titan, kind):
    cfg = experts_of(kind)
    mine, lines = apply(cfg)
    assert len(lines) == 1 and "gemmd.torchtitan.grouped_experts" in lines[0] and "Gemmd" in lines[0]
    stock, experts = cfg.build(), mine.build()
    assert isinstance(experts, type(stock)) and getattr(mine, "swiglu_limit", 3.0) == 3.0
    for p in stock.parameters():
        torch.nn.init.normal_(p, std=0.2)
    experts.load_state_dict(stock.state_dict())  # the same names and shapes
    x, sizes = torch.randn(T, K), torch.tensor([10, 0, 13, 1])
    runs = []
    for module in (stock, experts):
        leaf = x.clone().requires_grad_()
        y = module(leaf, sizes)
        grads = torch.autograd.grad(y.float().square().sum(), [leaf, *module.parameters()])
        runs.append((y, *grads))
        assert bool(launches()) == (module is experts)
    assert all(error(a, b) < 3e-2 for a, b in zip(*runs))
    assert {p["how"] for p in gt.status()} == {"gemmd"} and all(p["launches"] for p in gt.status())
    assert {p["mode"] for p in gt.status()} == {"forward", "dX", "dW"} and len(gt.status()) == 6


def test_compiled_experts_have_no_graph_break(tuned, titan):
    experts = apply(experts_of("common"))[0].build()
    for p in experts.parameters():
        torch.nn.init.normal_(p, std=0.2)
    x, sizes = torch.randn(T, K), torch.tensor([10, 0, 13, 1])
    expected = experts(x, sizes)
    y = torch.compile(experts, fullgraph=True, backend="aot_eager")(x, sizes)
    y.sum().backward()
    assert error(y, expected) < 2e-2 and all(p.grad is not None for p in experts.parameters())


def test_experts_with_products_of_their_own_stay_as_they_are(titan):
    from dataclasses import dataclass
    from torchtitan.models.common.moe import GroupedExperts

    class Quantized(GroupedExperts):
        @dataclass(kw_only=True, slots=True)
        class Config(GroupedExperts.Config):
            pass

        def _grouped_mm(self, *, A, B_t, offs):
            return "quantized"

    cfg = Quantized.Config(dim=K, hidden_dim=N, num_experts=E)
    with pytest.warns(RuntimeWarning, match="Quantized computes its products by its own _grouped_mm"):
        assert titan.grouped_experts(cfg) is cfg


def test_a_subclass_and_the_type_check_keep_pytorch_s_own_product(tuned, titan, monkeypatch):
    """The subclasses are such as torchao's weights, whose torch._grouped_mm is a product in float8."""
    experts = apply(experts_of("common"))[0].build()
    from torch.testing._internal.two_tensor import TwoTensor
    seen = []
    monkeypatch.setattr(torch, "_grouped_mm", lambda a, b, offs: seen.append(type(b)) or a)
    a, b = torch.randn(T, K).bfloat16(), torch.randn(E, K, N).bfloat16()
    experts._grouped_mm(A=a, B_t=TwoTensor(b, b.clone()), offs=ENDS)
    monkeypatch.setattr(titan.spmd, "is_type_checking", lambda: True)
    experts._grouped_mm(A=a, B_t=b, offs=ENDS)
    assert seen == [TwoTensor, torch.Tensor] and launches() == []


def test_an_older_torchtitan_is_named(tmp_path):
    (tmp_path / "torchtitan").mkdir()
    (tmp_path / "torchtitan" / "__init__.py").write_text("")
    env = environment()
    env["PYTHONPATH"] = f"{tmp_path}:{env['PYTHONPATH']}"
    done = subprocess.run([sys.executable, "-c", "import gemmd.torchtitan"], env=env, capture_output=True, text=True)
    assert done.returncode and "gemmd.torchtitan needs torchtitan 0.3.0 or newer" in done.stderr
    assert "gemmd.torch.install()" in done.stderr
