# SPDX-License-Identifier: Apache-2.0
"""gemmd.grouped_gemm and the op gemmd::grouped_mm on a GPU, where they differ from the CPU
(tests/python/test_grouped_gemm.py, test_torchtitan.py): batch_sizes on the host, sums into fp32 by
the device's kernels, graphs, expanded gradients. No daemon: kernels are the analytic default's,
compiled here, or with GEMMD_DISABLE plain PyTorch's.

    GEMMD_LIBRARY=build/client/libgemmd.so python3 -m pytest -q -p no:cacheprovider tests/gpu/test_seams.py

Skipped without PyTorch, a GPU or a libgemmd.so.
"""
import pytest
from on_gpu import by, error, gt, torch  # noqa: F401 -- by is a fixture

from gemmd.grouped_gemm import backend, ops
from gemmd.torch.grouped_mm import grouped_mm

E, T, K, N, LIMIT = 8, 192, 128, 64, 2e-2
SIZES = torch.tensor([30, 0, 50, 1, 63, 16, 0, 32])
SHAPES = {"a b": (E, K, N), "a b^T": (E, N, K), "a^T b": (T, N)}
LAYOUTS = {"a b": {}, "a b^T": {"trans_b": True}, "a^T b": {"trans_a": True}}
NEW = {"device": "cuda", "dtype": torch.bfloat16}


def operands(layout):
    return torch.randn(T, K, requires_grad=True, **NEW), torch.randn(SHAPES[layout], requires_grad=True, **NEW)


def right(layout, a, b):
    parts, b = a.double().split(SIZES.tolist()), b.double()
    if layout == "a^T b":
        return torch.stack([x.t() @ y for x, y in zip(parts, b.split(SIZES.tolist()))])
    return torch.cat([x @ (w.t() if layout == "a b^T" else w) for x, w in zip(parts, b)])


@pytest.mark.parametrize("place", ["cpu", "pinned", "cuda"])
@pytest.mark.parametrize("layout", SHAPES)
def test_gmm_and_its_gradients(by, layout, place):
    a, b = operands(layout)
    sizes = SIZES.pin_memory() if place == "pinned" else SIZES.to(place)
    y = ops.gmm(a, b, sizes, **LAYOUTS[layout])
    if place == "pinned":
        sizes.fill_(7)  # after gmm() returns, the caller may overwrite its sizes
    expected = right(layout, a, b)
    got, exact = (torch.autograd.grad(t.sum(), [a, b]) for t in (y, expected))
    assert error(y, expected) < LIMIT and all(error(x, r) < LIMIT for x, r in zip(got, exact))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", ["a b", "a b^T"])
def test_sums_into_main_grad(by, layout, dtype):
    a, b = operands(layout)
    main_grad = torch.full(b.shape, 0.5, device="cuda", dtype=dtype)
    for _ in range(3):
        ops.gmm(a, b, SIZES, **LAYOUTS[layout], main_grad=main_grad).sum().backward()
    exact = torch.autograd.grad(right(layout, a, b).sum(), b)[0]
    assert b.grad is None and error(main_grad, 0.5 + 3 * exact.double()) < LIMIT


def test_a_sum_in_fp32_loses_nothing(by):
    """The sum 1 + 1/1024 is exact in fp32, and 1 in bf16."""
    a, b = torch.ones(E, K, **NEW), torch.ones(E, N, **NEW) / 1024
    total = torch.ones(E, K, N, device="cuda")
    for _ in range(3):
        backend.gmm(a, b, torch.ones(E, dtype=torch.int64), trans_a=True, c=total, accumulate=True)
    assert torch.equal(total, torch.full_like(total, 1 + 3 / 1024))


@pytest.mark.parametrize("layout", SHAPES)
def test_c_in_a_graph_follows_the_sizes_of_the_device(by, layout):
    a, b = (t.detach() for t in operands(layout))
    sizes, expected = SIZES.to("cuda", copy=True), right(layout, a, b)
    c = torch.empty(expected.shape, **NEW)
    sizes.copy_(SIZES.flip(0))
    backend.gmm(a, b, sizes, **LAYOUTS[layout], c=c)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        backend.gmm(a, b, sizes, **LAYOUTS[layout], c=c)
    sizes.copy_(SIZES)
    for _ in range(2):
        c.fill_(float("nan"))
        graph.replay()
        assert error(c, expected) < LIMIT


@pytest.mark.parametrize("layout", ["a b", "a b^T"])
def test_the_op_of_torchtitan(layout, tmp_path):
    gt.configure(socket=str(tmp_path / "nobody.sock"), enabled=True, wait="cached", retry_s=None)
    a, b = operands(layout)
    ends = SIZES.cumsum(0).to("cuda", torch.int32)
    step = torch.compile(lambda a, b: grouped_mm(a, b if layout == "a b" else b.transpose(1, 2), ends).sum(),
                         fullgraph=True)
    for run in (step, step):
        got = torch.autograd.grad(run(a, b), [a, b])
        exact = torch.autograd.grad(right(layout, a, b).sum(), [a, b])
        assert all(error(x, r) < LIMIT for x, r in zip(got, exact))
    if torch.cuda.get_device_capability() == (9, 0):
        assert {p["mode"] for p in gt.status() if p["launches"]} == {"forward", "dX", "dW"}
