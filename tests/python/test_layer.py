# SPDX-License-Identifier: Apache-2.0
"""A small MoE layer on the CPU without PyTorch, forward and backward, through gemmd.Client and its
kernels, against numpy. And the same kernels compiled in this process."""
import pytest

import gemmd
from gemmd import ffi

numpy = pytest.importorskip("numpy", reason="numpy is not installed for this Python")

TOKENS, TOPK, EXPERTS, HIDDEN, INTER = 20, 2, 4, 32, 16
T = TOKENS * TOPK


class Layer:
    """The layer's tensors, and numpy's results for these tensors."""

    def __init__(self):
        draw = numpy.random.default_rng(7)
        normal = lambda *shape: draw.standard_normal(shape).astype(numpy.float32)  # noqa: E731
        self.x, self.dy = normal(TOKENS, HIDDEN), normal(T, HIDDEN)
        self.up, self.down = normal(EXPERTS, 2 * INTER, HIDDEN), normal(EXPERTS, HIDDEN, INTER)
        # expert 2 is never chosen
        ids = numpy.stack([draw.permutation([0, 1, 3])[:TOPK] for _ in range(TOKENS)]).reshape(-1)
        self.gather = numpy.argsort(ids, kind="stable").astype(numpy.int32)
        self.m_sizes = numpy.bincount(ids, minlength=EXPERTS).astype(numpy.int64)
        self.expert = ids[self.gather]

    def swiglu(self, h):
        gate, up = h[:, :INTER], h[:, INTER:]
        s = 1 / (1 + numpy.exp(-gate))
        return (gate * s * up).astype(numpy.float32), s

    def swiglu_backward(self, h, da):
        gate, up = h[:, :INTER], h[:, INTER:]
        s = 1 / (1 + numpy.exp(-gate))
        return numpy.concatenate([da * up * s * (1 + gate * (1 - s)), da * gate * s],
                                 1).astype(numpy.float32)


def product(kernel, out, layer, **operands):
    """A launch over numpy arrays."""
    args = ffi.Args(out=out.ctypes.data, rows=T, m_sizes=layer.m_sizes.ctypes.data,
                    m_sizes_dtype=ffi.INT64, gather_indices=layer.gather.ctypes.data,
                    gather_dtype=ffi.INT32)
    for name, array in operands.items():
        setattr(args, name, array.ctypes.data)
    workspace = numpy.empty(max(1, kernel.workspace(args)), numpy.uint8)
    args.workspace, args.workspace_bytes = workspace.ctypes.data, workspace.size
    kernel.launch(args)
    return out


def poisoned(*shape):
    return numpy.full(shape, numpy.nan, numpy.float32)


def run(layer, kernels):
    """{name: array} of the whole step."""
    up, down = kernels[:3], kernels[3:]
    h = product(up[0], poisoned(T, 2 * INTER), layer, x=layer.x, w=layer.up)
    a, _ = layer.swiglu(h)
    y = product(down[0], poisoned(T, HIDDEN), layer, x=a, w=layer.down)
    da = product(down[1], poisoned(T, INTER), layer, dy=layer.dy, w=layer.down)
    dw2 = product(down[2], poisoned(EXPERTS, HIDDEN, INTER), layer, dy=layer.dy, x=a)
    dh = layer.swiglu_backward(h, da)
    dx = product(up[1], poisoned(T, HIDDEN), layer, dy=dh, w=layer.up)
    dw1 = product(up[2], poisoned(EXPERTS, 2 * INTER, HIDDEN), layer, dy=dh, x=layer.x)
    return {"y": y, "dx": dx.reshape(TOKENS, TOPK, HIDDEN).sum(1), "dw1": dw1, "dw2": dw2}


def right(layer):
    """Computes run()'s results by numpy, in double precision."""
    g, e = layer.gather, layer.expert
    x, up, down, dy = (a.astype(numpy.float64) for a in (layer.x, layer.up, layer.down, layer.dy))
    rows, dy = x[g // TOPK], dy[g]
    h = numpy.einsum("ik,ink->in", rows, up[e])
    a, _ = layer.swiglu(h)
    y = numpy.empty((T, HIDDEN))
    y[g] = numpy.einsum("ik,ink->in", a, down[e])
    da = numpy.einsum("in,ink->ik", dy, down[e])
    dh = layer.swiglu_backward(h, da)
    dw1, dw2, dx = numpy.zeros_like(up), numpy.zeros_like(down), numpy.zeros_like(x)
    for i in range(T):
        dw1[e[i]] += numpy.outer(dh[i], rows[i])
        dw2[e[i]] += numpy.outer(dy[i], a[i])
        dx[g[i] // TOPK] += dh[i] @ up[e[i]]
    return {"y": y, "dx": dx, "dw1": dw1, "dw2": dw2}


def problems():
    return gemmd.model_problems({"experts": EXPERTS, "topk": TOPK, "hidden": HIDDEN,
                                 "inter": INTER}, TOKENS, dtype="fp32")


def assert_right(kernels):
    layer = Layer()
    got, exact = run(layer, kernels), right(layer)
    for name, array in exact.items():
        error = numpy.linalg.norm(got[name] - array) / numpy.linalg.norm(array)
        assert error < 1e-5, (name, error)  # this fails also for elements that no kernel wrote
    assert (got["dw1"][2] == 0).all() and (got["dw2"][2] == 0).all()


def test_a_layer_with_measured_kernels(cpu):
    with gemmd.Client(cpu.socket) as g:
        answers = gemmd.prefetch({"experts": EXPERTS, "topk": TOPK, "hidden": HIDDEN,
                                  "inter": INTER}, TOKENS, dtype="fp32", client=g, budget=1)
        assert all(a.final for a in answers)
        kernels = [g.kernel(p, a) for p, a in zip(problems(), answers)]
    cpu.stop()  # loaded kernels need no daemon
    assert_right(kernels)


def test_a_layer_without_a_daemon():
    assert_right([gemmd.compile_kernel(p, device="cpu") for p in problems()])
