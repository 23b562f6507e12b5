# SPDX-License-Identifier: Apache-2.0
"""Batch-invariant products on the CPU: a row has the same bits in every batch, at every place, by every
config of the space. What the other configs do is a test of this test."""
import pytest

import gemmd
from gemmd import ffi

numpy = pytest.importorskip("numpy", reason="numpy is not installed for this Python")

E, N, K = 3, 64, 208  # K: no multiple of a block
BATCHES = [(1, 0, 0), (0, 40, 5), (70, 17, 33)]  # rows of each expert
INDEX = {"forward": ("x", "w", K, N), "dX": ("dy", "w", N, K)}


def problem(mode, sizes, **more):
    return gemmd.Problem(m=sum(sizes), n=N, k=K, mode=mode, dtype_in="fp32", experts=E, **more)


def every_config(mode):
    """Configs with different tiles, vectors and unrolled loops; forward with both values of transpose_w."""
    for tile, width, unroll in (((16, 32, 64), 8, 4), ((16, 32, 64), 16, 8), ((64, 128, 256), 16, 8), ((128, 64, 64), 8, 4)):
        config = {**dict(zip(("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"), tile)), "vector_width": width,
                  "unroll_rows": unroll, "unroll_cols": unroll // 4, "GROUP_SIZE_M": 1}
        yield from ([{**config, "transpose_w": t} for t in (False, True)] if mode == "forward" else [config])


def rows_of(kernel, mode, sizes, pool, w, first):
    """The result for the rows of `pool`, [E, rows, length]: each expert's rows from `first` on."""
    name, _, _, width = INDEX[mode]
    a = numpy.concatenate([pool[e, first:first + n] for e, n in enumerate(sizes)])
    out = numpy.full((len(a), width), numpy.nan, numpy.float32)
    m_sizes = numpy.array(sizes, numpy.int64)
    kernel.launch(ffi.Args(rows=len(a), out=out.ctypes.data, w=w.ctypes.data, m_sizes=m_sizes.ctypes.data,
                           m_sizes_dtype=ffi.INT64, **{name: a.ctypes.data}))
    return numpy.split(out, numpy.cumsum(sizes)[:-1])


def bits_of(mode, configs, **more):
    """{bytes of a row} for each row (expert, number) that several batches and configs compute."""
    draw = numpy.random.default_rng(1)
    length = INDEX[mode][2]
    pool = draw.standard_normal((E, 80, length)).astype(numpy.float32)
    w = draw.standard_normal((E, N, K)).astype(numpy.float32)
    seen = {}
    for config in configs:
        for sizes in BATCHES:
            kernel = gemmd.compile_kernel(problem(mode, sizes, **more), config, "cpu")
            for first in (0, 3):
                for e, rows in enumerate(rows_of(kernel, mode, sizes, pool, w, first)):
                    for i, row in enumerate(rows):
                        seen.setdefault((e, first + i), set()).add(row.tobytes())
    return seen


def is_legal(config, mode):
    try:
        gemmd.compile_kernel(problem(mode, BATCHES[0], batch_invariant=True), config, "cpu")
    except gemmd.GemmdError as e:
        assert "transpose_w=true" in str(e)
        return False
    return True


@pytest.mark.parametrize("mode", INDEX)
def test_a_row_has_the_same_bits_in_every_batch_and_by_every_config(mode):
    legal = [c for c in every_config(mode) if is_legal(c, mode)]
    assert len(legal) == 4
    assert {len(bits) for bits in bits_of(mode, legal, batch_invariant=True).values()} == {1}


def test_other_configs_have_other_bits():
    """Each of these is invariant by itself, and two of them differ: so the restriction is needed."""
    others = [c for c in every_config("forward") if not c["transpose_w"]]
    assert not any(is_legal(c, "forward") for c in others)
    assert {len(bits) for bits in bits_of("forward", others[:1]).values()} == {1}
    assert max(len(bits) for bits in bits_of("forward", others).values()) > 1


def test_answers_stay_within_the_order(cpu):
    """The default of few rows adds up by lanes; the default and the winner of the invariant key do not."""
    few = (2, 2, 2)
    with gemmd.Client(cpu.socket) as g:
        plain = g.get(problem("forward", few), wait="cached")
        default = g.get(problem("forward", few, batch_invariant=True), wait="cached")
        assert plain.config["transpose_w"] is False and default.config["transpose_w"] is True
        tuned = g.get(problem("forward", few, batch_invariant=True), budget=3)
        assert tuned.final and tuned.config["transpose_w"] is True and tuned.key != plain.key
        assert g.get(problem("forward", few), wait="cached").tier != "exact", "another key"
        with pytest.raises(gemmd.GemmdError, match="transpose_w=true"):
            g.call("pin", {"problem": {"op": "grouped_gemm", "mode": "forward", "M": 6, "N": N, "K": K, "experts": E,
                                       "dtype_in": "fp32", "batch_invariant": True}, "config": plain.config})
        assert g.call("show", {"key": tuned.key})["problem"]["batch_invariant"] is True


def test_dw_is_refused():
    with pytest.raises(gemmd.GemmdError, match="sums over the rows of the batch"):
        gemmd.compile_kernel(problem("dW", (4, 4, 4), batch_invariant=True), None, "cpu")


# ---- PyTorch -------------------------------------------------------------------------------------

@pytest.fixture
def gt():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed for this Python")
    if not hasattr(torch.library, "register_autograd"):
        pytest.skip(f"PyTorch {torch.__version__} is older than 2.4")
    import gemmd.torch
    torch.manual_seed(0)
    return gemmd.torch


def layer_of(gt, tokens, topk=2):
    """First and second product of a layer with a token's sum, for `tokens`; also their gradients."""
    import torch
    draw = torch.Generator().manual_seed(1)
    up, down = (torch.randn(*size, generator=draw) for size in ((E, N, K), (E, K, N)))
    x = torch.randn(96, K, generator=draw)[:tokens].requires_grad_()
    experts = torch.stack([torch.arange(96) % E, (torch.arange(96) + 1) % E], 1)[:tokens]
    routes = gt.sort_by_expert(experts, E)
    h = gt.grouped_gemm(x, up, *routes, topk, permute_x=True)
    y = gt.grouped_gemm_sum(h, down, *routes, topk)
    y.backward(torch.ones_like(y))
    return y.detach(), x.grad


@pytest.mark.parametrize("invariant", [True, False])
def test_a_layer_has_the_same_bits_in_every_batch(cpu, gt, invariant):
    import torch
    gt.configure(socket=cpu.socket, wait="cached", batch_invariant=invariant)
    few, many = layer_of(gt, 4), layer_of(gt, 96)
    same = [torch.equal(a, b[:4]) for a, b in zip(few, many)]
    assert all(same) if invariant else not all(same), "without the setting the bits do differ"
    assert {p["how"] for p in gt.status()} != {"plain"}


def test_plain_pytorch_never_runs_instead(cpu, gt, monkeypatch):
    from gemmd.torch import plans
    for settings in ({"enabled": False}, {"wait": "boundary"}):
        with pytest.raises(ValueError, match="batch_invariant is True"):
            gt.configure(batch_invariant=True, **settings)
    with pytest.raises(TypeError, match="True or False"):
        gt.configure(batch_invariant="yes")

    def no_compiler(*arguments):
        raise gemmd.GemmdError("compile", -1, "compile", "no compiler")
    monkeypatch.setattr(plans, "compile_kernel", no_compiler)
    gt.configure(socket=cpu.socket, wait="cached", batch_invariant=True)
    monkeypatch.setattr(plans.Plans, "_load", no_compiler)
    with pytest.raises(gemmd.GemmdError, match="no compiler"):
        layer_of(gt, 4)
