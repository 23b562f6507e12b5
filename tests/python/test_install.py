# SPDX-License-Identifier: Apache-2.0
"""gemmd.torch.install(): aten::_grouped_mm by gemmd's kernels, on the CPU."""
import subprocess
import sys
import warnings

import pytest
from conftest import environment

torch = pytest.importorskip("torch", reason="PyTorch is not installed for this Python")
if not hasattr(torch.library, "get_kernel"):
    pytest.skip(f"PyTorch {torch.__version__} is older than 2.10", allow_module_level=True)

import gemmd.torch as gt  # noqa: E402
from gemmd.torch import install_report, override  # noqa: E402

E, T, N, K = 4, 50, 32, 64
ENDS = [10, 10, 30, 48]  # an expert without rows, and two rows of no expert


@pytest.fixture
def installed(tmp_path):
    gt.configure(wait="cached", socket=str(tmp_path / "nobody.sock"), retry_s=None, enabled=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # nobody has measured anything
        gt.install()
        yield
        gt.uninstall()


def operands(stored, dtype=torch.bfloat16, ends=ENDS):
    """x [T, K], w stored as [E, N, K] ("nk") or [E, K, N] ("kn"), offs."""
    torch.manual_seed(5)
    w = torch.randn((E, N, K) if stored == "nk" else (E, K, N)).to(dtype).requires_grad_()
    return (torch.randn(T, K).to(dtype).requires_grad_(), w,
            torch.tensor(ends, dtype=torch.int32))


def step(x, w, offs, stored, product=torch._grouped_mm):
    """Computes output and gradients; returns only the rows that belong to experts."""
    y = product(x, w.transpose(1, 2) if stored == "nk" else w, offs=offs)
    torch.manual_seed(6)
    dx, dw = torch.autograd.grad(y, (x, w), torch.randn_like(y))
    return y[:offs[-1]].detach(), dx[:offs[-1]], dw


def pytorchs(*arguments):
    """The step by PyTorch alone."""
    gt.uninstall()
    try:
        return step(*arguments)
    finally:
        gt.install()


def assert_same(got, right):
    for a, b in zip(got, right):
        torch.testing.assert_close(a, b, atol=0.02, rtol=0.02)


def served():
    return {p.call.mode: (p.launches, p.left) for p in override.products()}


@pytest.mark.parametrize("stored", ["nk", "kn"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_step_is_pytorchs_step(installed, stored, dtype):
    right = pytorchs(*operands(stored, dtype), stored)
    got = step(*operands(stored, dtype), stored)
    assert served() == {"forward": (1, 0), "dX": (1, 0), "dW": (1, 0)}
    assert_same(got, right)


def test_uninstalled_nothing_is_served(installed):
    gt.uninstall()
    step(*operands("nk"), "nk")
    assert served() == {}
    gt.install()
    gt.install()  # twice is once
    step(*operands("nk"), "nk", torch.nn.functional.grouped_mm)
    assert served()["forward"] == (1, 0)


def test_switched_off_pytorchs_kernel_runs(installed):
    gt.configure(enabled=False)
    got = step(*operands("nk"), "nk")
    assert served() == {"forward": (0, 1), "dX": (0, 1), "dW": (0, 1)}
    assert_same(got, pytorchs(*operands("nk"), "nk"))


def test_calls_with_more_arguments_count_as_pytorchs(installed):
    x, w, offs = (t.detach() for t in operands("nk"))
    gt.uninstall()
    gt.install()
    assert gt.report() == []
    torch._grouped_mm(x, w.transpose(1, 2), offs=offs, out_dtype=torch.bfloat16)  # the operands' own: served
    with pytest.raises(RuntimeError):  # PyTorch takes no bias yet
        torch._grouped_mm(x, w.transpose(1, 2), offs=offs, bias=torch.zeros(N, dtype=x.dtype))
    served_row, other = gt.report()
    assert (served_row["gemmd"], served_row["pytorch"]) == (1, 0)
    assert (other["mode"], other["gemmd"], other["pytorch"]) == ("other", 0, 1)
    gt.uninstall()
    assert override.others() == 0


@pytest.mark.parametrize("ends", [[10, 5, 30, 50], [10, 20, 30, 60], [0, 0, 0, 0]])
def test_ends_that_are_no_ends_get_what_pytorch_gives(installed, ends):
    x, w, offs = (t.detach() for t in operands("nk", ends=ends))

    def run():
        try:
            return torch._grouped_mm(x, w.transpose(1, 2), offs=offs)[:10].clone()
        except Exception as e:
            return type(e)
    got = run()
    assert served() == ({} if ends == [0, 0, 0, 0] else {"forward": (0, 1)}) or ends[-1] == 0
    gt.uninstall()
    right = run()
    if isinstance(right, type):
        assert got is right
    elif ends[-1]:
        torch.testing.assert_close(got, right)


def test_operands_that_are_not_taken(installed):
    x, w, offs = (t.detach() for t in operands("nk"))
    one = torch.tensor([T], dtype=torch.int32)
    torch._grouped_mm(x, w[:1].transpose(1, 2), offs=one)                 # a single expert
    torch._grouped_mm(torch.randn(E, 8, K), w.float().transpose(1, 2))    # batched
    with pytest.raises(RuntimeError):
        torch._grouped_mm(x, w.float().transpose(1, 2), offs=offs)        # operands of two types
    with pytest.raises(RuntimeError):
        torch._grouped_mm(x, w.transpose(1, 2)[:, :32], offs=offs)        # x and w differ in K
    before = override.others()
    torch._grouped_mm(x, w[:1].transpose(1, 2), offs=one)
    assert override.others() == before + 1 and served() == {}


def test_compiled_without_a_break(installed):
    x, w, offs = operands("nk")
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, w, offs: torch._grouped_mm(x, w.transpose(1, 2), offs=offs) * 2,
                             fullgraph=True)
    got = step(x, w, offs, "kn", lambda x, w, offs: compiled(x, w, offs))
    assert {mode: n for mode, (n, _) in served().items()} == {"forward": 1, "dX": 1, "dW": 1}
    assert_same(got, pytorchs(*operands("nk"), "nk", lambda *args, offs: torch._grouped_mm(*args, offs=offs) * 2))


def test_checkpoints_recompute_on_gemmd(installed):
    from torch.utils.checkpoint import checkpoint

    def product(x, w, offs):
        return checkpoint(lambda x, w: torch._grouped_mm(x, w, offs=offs).sin(), x, w, use_reentrant=False)
    got = step(*operands("nk"), "nk", product)
    assert served()["forward"] == (2, 0)
    assert_same(got, pytorchs(*operands("nk"), "nk", product))


def test_fake_tensors_and_tensors_of_a_mesh(installed, one_rank):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed.tensor import Replicate, distribute_tensor
    x, w, offs = (t.detach() for t in operands("nk"))
    right = torch._grouped_mm(x, w.transpose(1, 2), offs=offs)
    assert served() == {"forward": (1, 0)}
    with FakeTensorMode() as mode:
        a, b, ends = (mode.from_tensor(t) for t in (x, w, offs))
        fake = torch._grouped_mm(a, b.transpose(1, 2), offs=ends)
    assert fake.shape == right.shape and served() == {"forward": (1, 0)}
    x, w, offs = (distribute_tensor(t, one_rank, [Replicate()]) for t in (x, w, offs))
    got = torch._grouped_mm(x, w.transpose(1, 2), offs=offs)
    assert torch.equal(got.to_local()[:ENDS[-1]], right[:ENDS[-1]]) and served() == {"forward": (2, 0)}


def test_plain_products_reach_pytorchs_kernel(installed):
    """own.grouped_mm is what gemmd.torch.plain calls without a kernel; it must not come back here."""
    from gemmd.torch import own
    x, w, offs = (t.detach() for t in operands("nk"))
    own.grouped_mm(x, w.transpose(1, 2), offs)
    assert served() == {}


def test_all_modes_are_tuned_at_the_first_call(cpu, recwarn):
    gt.configure(wait="tuned", socket=str(cpu.socket), budget=2, enabled=True, deadline_ms=60000)
    gt.install()
    try:
        x, w, offs = operands("nk", torch.float32)
        torch._grouped_mm(x, w.transpose(1, 2), offs=offs)
        assert {(row["mode"], row["how"]) for row in gt.status()} == {
            (mode, "gemmd") for mode in ("forward", "dX", "dW")}
        assert cpu.stop() == 0
        right = pytorchs(*operands("nk", torch.float32), "nk")
        assert_same(step(x, w, offs, "nk"), right)  # nothing needs the daemon any more
        more = operands("nk", torch.float32)[0][:40].detach()
        torch._grouped_mm(more, w.transpose(1, 2), offs=offs.clamp(max=40))
        told = [w for w in recwarn if "gemmd" in str(w.message)]
        assert len(told) <= 1
    finally:
        gt.uninstall()


def test_the_report_counts_and_times(installed, capsys):
    step(*operands("nk"), "nk")
    rows = gt.report()
    assert [row["gemmd"] for row in rows] == [1, 1, 1] and all(row["gemmd_us"] > 0 for row in rows)
    assert served()["forward"] == (1, 0)  # the report's own calls do not count
    install_report.print_report(sys.stdout)
    assert "ms saved in this process" in capsys.readouterr().out


SCRIPT = """
import sys, torch
x, w = torch.randn(50, 64, requires_grad=True), torch.randn(4, 32, 64, requires_grad=True)
y = torch.nn.functional.grouped_mm(x, w.transpose(1, 2), offs=torch.tensor([10, 10, 30, 50], dtype=torch.int32))
y.backward(torch.randn_like(y))
print(__name__, sys.argv[1:])
"""


def run_unchanged(folder, *arguments, **env):
    (folder / "train.py").write_text(SCRIPT)
    run = subprocess.run([sys.executable, "-W", "ignore", "-m", "gemmd.torch", "--wait", "cached",
                          "--socket", folder / "nobody.sock", *arguments], cwd=folder,
                         capture_output=True, text=True, env=environment(**env))
    return run.returncode, run.stdout, run.stderr


def test_an_unchanged_script(tmp_path):
    code, out, err = run_unchanged(tmp_path, "--report", tmp_path / "train.py", "--lr", "1")
    assert (code, out) == (0, "__main__ ['--lr', '1']\n") and err.count("dX") == 1, err
    code, out, err = run_unchanged(tmp_path, "-m", "train", "-x", GEMMD_TORCH_REPORT="1")
    assert (code, out) == (0, "__main__ ['-x']\n") and "ms saved" in err
    code, out, err = run_unchanged(tmp_path, "nothing.py")
    assert code == 1 and "there is no nothing.py" in err
    (tmp_path / "empty").mkdir()
    code, out, err = run_unchanged(tmp_path, "empty")
    assert (code, err) == (1, "python -m gemmd.torch: the folder empty has no __main__.py\n")
    for name in ("nothing", "nothing.at.all"):
        code, out, err = run_unchanged(tmp_path, "-m", name)
        assert code == 1 and f"there is no module {name}" in err and "Traceback" not in err
