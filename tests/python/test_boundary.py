# SPDX-License-Identifier: Apache-2.0
"""wait="boundary" on the CPU: a job begins in plain PyTorch, and its products are tuned between
steps. Skipped where there is no PyTorch."""
import subprocess
import sys
import textwrap
import threading
import time

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed for this Python")
if not hasattr(torch.library, "register_autograd"):
    pytest.skip(f"PyTorch {torch.__version__} is older than 2.4", allow_module_level=True)

import gemmd.torch as gt  # noqa: E402
from conftest import environment  # noqa: E402
from gemmd.torch import plans, rows, warm  # noqa: E402

E, TOPK, TOKENS, N, K = 4, 2, 12, 16, 32


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)


def step(x, w, sizes):
    x.grad = w.grad = None
    out = gt.grouped_gemm(x, w, *sizes, TOPK)
    out.backward(torch.ones_like(out))
    return [t.detach().clone() for t in (out, x.grad, w.grad)]


def operands():
    x, w = (torch.randn(*size, requires_grad=True) for size in ((TOKENS * TOPK, K), (E, N, K)))
    return x, w, gt.sort_by_expert(torch.rand(TOKENS, E).topk(TOPK).indices, E)


def hows():
    return {p["how"] for p in gt.status()}


def test_a_job_begins_at_once_and_is_tuned_between_steps(cpu):
    gt.configure(socket=cpu.socket, wait="boundary", budget=1, retry_s=0)  # a loaded machine may miss a pause's end
    job = operands()
    first = step(*job)
    # plain PyTorch, or the default's kernel when another test has left it in the shared cache
    assert "exact" not in {p["tier"] for p in gt.status()} and cpu.status()["store"]["trials"] == 0
    while {p["tier"] for p in gt.status()} != {"exact"}:
        gt.boundary(20)
        now = step(*job)
        assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(now, first))
        time.sleep(0.01)
    assert hows() == {"gemmd"}
    asked = cpu.status()["requests"]
    assert gt.boundary(20) == 0 and cpu.status()["requests"] == asked + 1, "known: nobody is asked"
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(step(*job), first))


def test_other_settings_make_a_boundary_nothing(cpu):
    gt.configure(socket=cpu.socket, wait="cached")
    asked = cpu.status()["requests"]
    assert gt.boundary(20) == 0 and cpu.status()["requests"] == asked + 1


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("ms", [0, -1, 60001, 20.5, "50", None])
def test_a_wrong_time_is_said(ms):
    with pytest.raises(ValueError, match="1 to 60000"):
        gt.boundary(ms)


@pytest.mark.parametrize("retry_s", [30.0, None])
def test_a_product_that_nobody_tunes_costs_no_pauses(cpu, retry_s):
    gt.configure(socket=cpu.socket, wait="boundary", budget=1, retry_s=retry_s)
    step(*operands())
    while (now := cpu.status())["job"] or now["jobs"]["queued"]:
        if now["job"]:
            cpu.call("cancel", key=now["job"]["key"])
    assert gt.boundary(20) == 0
    asked = cpu.status()["requests"]
    assert gt.boundary(20) == 0 and cpu.status()["requests"] == asked + 1


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_daemon_of_another_kind_of_device_is_not_believed(cpu, monkeypatch):
    gt.configure(socket=cpu.socket, wait="boundary", budget=1)
    monkeypatch.setattr(plans, "_fits", lambda answer, device: False)
    step(*operands())
    while gt.boundary(1000):
        pass
    assert "gemmd" not in hows() and cpu.status()["jobs"]["done"] == 3


def test_without_a_daemon_the_job_goes_on(tmp_path):
    gt.configure(socket=str(tmp_path / "none"), wait="boundary")
    step(*operands())
    assert hows() == {"compiled here"} and gt.boundary(20) == 0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_daemon_that_comes_back_is_asked_at_once_without_a_retry_time(cpu):
    gt.configure(socket=cpu.socket, wait="boundary", budget=1, retry_s=0)
    step(*operands())
    cpu.kill()
    assert gt.boundary(20) == 0
    cpu.start()
    step(*operands())
    asked = cpu.status()["requests"]
    gt.boundary(20)
    assert cpu.status()["requests"] > asked + 1


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_daemon_that_dies_ends_the_pauses(cpu):
    gt.configure(socket=cpu.socket, wait="boundary", budget=1)
    job = operands()
    step(*job)
    cpu.kill()
    assert gt.boundary(20) == 0 and gt.boundary(20) == 0
    step(*job)


def test_an_unchanged_script(cpu, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent("""
        import time, torch
        torch.manual_seed(0)
        x = torch.randn(64, 32)
        w = torch.randn(4, 16, 32, requires_grad=True)
        ends = torch.arange(16, 65, 16, dtype=torch.int32)
        optimizer = torch.optim.SGD([w], lr=1e-3)
        import gemmd.torch as gt
        for _ in range(2000):
            torch._grouped_mm(x.bfloat16(), w.bfloat16().transpose(-2, -1), offs=ends).float().square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            if {p["how"] for p in gt.status()} == {"gemmd"}:
                break
            time.sleep(0.01)
        print(sorted({p["how"] for p in gt.status()}))
        """))
    run = subprocess.run([sys.executable, "-W", "ignore", "-m", "gemmd.torch", "--boundary-ms", "20", "--socket",
                          cpu.socket, str(script)], capture_output=True, text=True,
                         env=environment(GEMMD_WAIT="boundary"))
    assert (run.returncode, run.stdout) == (0, "['gemmd']\n"), run.stdout + run.stderr


def test_while_triton_compiles_only_its_compilers_call_it():
    go, seen = threading.Event(), []

    def call():
        seen.append(rows.may_call_triton())
        assert go.wait(60)

    rows.compiling.add(warm._compile)
    compiler = threading.Thread(target=warm._compile, args=([call, call], torch.device("cpu")))
    compiler.start()
    assert not rows.may_call_triton() and rows.find_kernels("rows_kernel", torch.device("cpu")) is None
    go.set()
    compiler.join()
    assert seen == [True, True] and rows.may_call_triton()
