# SPDX-License-Identifier: Apache-2.0
"""gemmd.torch.install() on a GPU: results, the host's time of a call, CUDA graphs, torch.compile. No daemon:
kernels are the analytic default's, compiled here.

    GEMMD_LIBRARY=build/client/libgemmd.so python3 -m pytest -q -s -p no:cacheprovider tests/gpu/test_install.py

Skipped without PyTorch 2.10, a Hopper GPU or a libgemmd.so.
"""
import time
import warnings

import pytest
from on_gpu import error, gt, torch

if not hasattr(torch.library, "get_kernel"):
    pytest.skip(f"PyTorch {torch.__version__} is older than 2.10", allow_module_level=True)
if torch.cuda.get_device_capability() != (9, 0):
    pytest.skip("no Hopper GPU", allow_module_level=True)

from gemmd.torch import override  # noqa: E402

E, T, N, K = 16, 2000, 384, 256
BF16 = torch.bfloat16
HOST_US = 10  # limit of what install() adds to a call


@pytest.fixture(autouse=True)
def installed(tmp_path):
    warnings.simplefilter("ignore")
    gt.configure(socket=str(tmp_path / "nobody.sock"), wait="cached", retry_s=None)
    gt.install()
    yield
    gt.uninstall()


def operands(stored):
    torch.manual_seed(1)
    ends = torch.rand(E).cumsum(0)
    ends = (ends / ends[-1] * (T - 50)).int()
    ends[3] = ends[2]  # an expert without rows
    w = torch.randn((E, N, K) if stored == "nk" else (E, K, N), device="cuda", dtype=BF16)
    return torch.randn(T, K, device="cuda", dtype=BF16).requires_grad_(), w.requires_grad_(), ends.cuda()


def step(x, w, ends, stored):
    y = torch._grouped_mm(x, w.transpose(1, 2) if stored == "nk" else w, offs=ends)
    torch.manual_seed(2)
    dx, dw = torch.autograd.grad(y, (x, w), torch.randn_like(y))
    return y[:ends[-1]].detach(), dx[:ends[-1]], dw


@pytest.mark.parametrize("stored", ["nk", "kn"])
def test_results(stored):
    got = step(*operands(stored), stored)
    assert {p.call.mode for p in override.products() if p.launches} == {"forward", "dX", "dW"}
    gt.uninstall()
    right = step(*operands(stored), stored)
    right[2][3] = 0  # PyTorch leaves this expert's gradient unwritten
    for a, b in zip(got, right):
        assert error(a, b) < 5e-3


def test_operands_on_two_devices_get_pytorchs_error():
    def error_of(device):
        x, w, ends = (t.detach() for t in operands("nk"))
        x, w, ends = (t.cpu() if i == device else t for i, t in enumerate((x, w, ends)))
        with pytest.raises(Exception) as e:
            torch._grouped_mm(x, w.transpose(1, 2), offs=ends)
        return type(e.value), str(e.value)
    got = [error_of(i) for i in range(2)]
    gt.uninstall()
    assert got == [error_of(i) for i in range(2)]


def host_us(calls=400):
    """Microseconds of the host for a call, least of five blocks; the device is never waited for."""
    x, w, ends = (t.detach() for t in operands("nk"))
    w, least = w.transpose(1, 2), float("inf")
    for _ in range(6):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(calls):
            torch._grouped_mm(x, w, offs=ends)
        least = min(least, (time.perf_counter() - began) / calls * 1e6)
    return least


def test_the_hosts_time_of_a_call():
    ours = host_us()
    gt.uninstall()
    theirs = host_us()
    print(f"\nhost: {ours:.1f} us a call, PyTorch alone {theirs:.1f} us")
    assert ours - theirs <= HOST_US


def test_a_captured_step_replays_bit_equal():
    x, w, ends = operands("nk")
    for _ in range(3):
        step_for_graph(x, w, ends)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outs = step_for_graph(x, w, ends)
    graph.replay()
    torch.cuda.synchronize()
    first = [t[:int(ends[-1])].clone() if t.dim() == 2 else t.clone() for t in outs]
    for _ in range(100):
        graph.replay()
        torch.cuda.synchronize()
        for a, b in zip(outs, first):
            assert torch.equal(a[:int(ends[-1])] if a.dim() == 2 else a, b)


def step_for_graph(x, w, ends):
    y = torch._grouped_mm(x, w.transpose(1, 2), offs=ends)
    return (y, *torch.autograd.grad(y, (x, w), torch.ones_like(y)))


def test_compiled_without_a_break():
    torch._dynamo.reset()
    x, w, ends = operands("nk")
    compiled = torch.compile(lambda x, w, ends: torch._grouped_mm(x, w.transpose(1, 2), offs=ends) * 2,
                             fullgraph=True)
    y = compiled(x, w, ends)
    y.backward(torch.randn_like(y))
    assert {p.call.mode for p in override.products() if p.launches} == {"forward", "dX", "dW"}
    assert error(y[:ends[-1]], 2 * torch._grouped_mm(x, w.transpose(1, 2), offs=ends)[:ends[-1]]) < 5e-3
