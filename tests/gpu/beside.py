#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times what gemmd/torch/beside.py gains: the gradient of a layer's first weights beside the sum over each token's experts.

    beside.py --library build/client/libgemmd.so [--shapes sonic,qwen3-30b-a3b] [--rounds 12]     whole steps
    beside.py ... --left 2,4,6,8,12,16,24      the two alone, by the SMs that the product leaves to the sum

A step is forward and backward of gemmd.torch.MoEMLP, back to back. --left gave the constants of beside.py.
tests/bench/layer_shapes.py has the shapes. Kernels are the analytic default's. All forms are CUDA graphs whose blocks take
turns in a new order each round; a figure is the median of the blocks' means, in us. Skips (77) without PyTorch or a
Hopper GPU.
"""
import argparse
import os
import pathlib
import random
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "bench")]
STEPS_MS, PAIR_MS = 100, 8  # of a block


def read_options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--library", default=str(ROOT / "build" / "client" / "libgemmd.so"))
    p.add_argument("--shapes", default="")
    p.add_argument("--left", default=[], type=lambda text: [int(n) for n in text.split(",")])
    p.add_argument("--rounds", type=int, default=12)
    return p.parse_args()


# ---- times -----------------------------------------------------------------------------------------

def capture(torch, run):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # kernels are compiled before the capture
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def replay(torch, graph, times):
    """Mean us of a replay."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(times):
        graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / times * 1e3


def time_graphs(torch, graphs, block_ms, rounds):
    """{name: median us}."""
    times = {name: max(2, round(block_ms * 1e3 / replay(torch, graph, 2))) for name, graph in graphs.items()}
    blocks = {name: [] for name in graphs}
    for _ in range(rounds):
        for name in random.sample(list(graphs), len(graphs)):
            blocks[name].append(replay(torch, graphs[name], times[name]))
    return {name: statistics.median(b) for name, b in blocks.items()}


# ---- steps -----------------------------------------------------------------------------------------

def time_steps(torch, gt, shape, rounds):
    """A line's text."""
    from gemmd.torch import beside
    layer = gt.MoEMLP(shape.hidden, shape.inter, shape.experts, shape.topk, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(shape.tokens, shape.hidden, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    operands, dy, granted, real = [x, *layer.parameters()], torch.randn_like(x), [], beside.share_of_product

    def step():
        return torch.autograd.grad(layer(x), operands, dy)

    def note(*of):
        granted.append(real(*of))
        return granted[-1]

    beside.share_of_product = note
    graphs = {"beside": capture(torch, step)}
    beside.share_of_product = lambda *_: 0
    graphs["one after the other"] = capture(torch, step)
    beside.share_of_product = real
    times = time_graphs(torch, graphs, STEPS_MS, rounds)
    return (f"one after the other {times['one after the other']:.0f}, beside {times['beside']:.0f}, "
            f"{times['one after the other'] / times['beside']:.3f} times as fast; the product's SMs: "
            f"{max(granted) or 'all, and the sum after it'}")


# ---- pairs -----------------------------------------------------------------------------------------

def time_pair(torch, gt, shape, options):
    """A line's text."""
    from gemmd.torch import ops, rows
    tokens, hidden, topk = shape.tokens, shape.hidden, shape.topk
    m_sizes, gather = gt.sort_by_expert(torch.rand(tokens, shape.experts, device="cuda").topk(topk).indices, shape.experts)
    x, h, dx = (torch.randn(*size, device="cuda", dtype=torch.bfloat16) for size in (
        (tokens, hidden), (tokens * topk, 2 * shape.inter), (tokens * topk, hidden)))
    sms = torch.cuda.get_device_properties(0).multi_processor_count

    def product():
        return ops.WeightGradient(h, x, m_sizes, gather, topk, True, False)  # which runs once

    def add_up():
        return rows.sum_of_slots(dx, topk)

    forms = {"product": lambda: product().run(), "sum": add_up, "one after the other": lambda: (product().run(), add_up())}
    for left in options.left:
        forms[f"{left} SMs left"] = lambda left=left: product().run_beside(sms - left, add_up)
    times = time_graphs(torch, {name: capture(torch, run) for name, run in forms.items()}, PAIR_MS, options.rounds)
    kept = product().share_beside(2 * (topk + 1) * x.numel()) or sms
    return ", ".join(f"{name} {us:.0f}" for name, us in times.items()) + f"; chosen: {sms - kept} left"


def main():
    options = read_options()
    os.environ.update(GEMMD_LIBRARY=options.library, GEMMD_SYSTEM="0")
    try:
        import torch
        if torch.cuda.get_device_capability() != (9, 0):
            raise RuntimeError("no Hopper GPU")
    except (ImportError, RuntimeError, AssertionError) as e:
        print(f"skipped: {e}")
        return 77
    import gemmd.torch as gt
    import layer_shapes
    gt.configure(socket="/nonexistent/gemmd.sock", wait="cached", retry_s=None)
    print(torch.cuda.get_device_name())
    for shape in layer_shapes.select(options.shapes):
        torch.manual_seed(0)
        text = time_pair(torch, gt, shape, options) if options.left else time_steps(torch, gt, shape, options.rounds)
        print(f"{shape.name}: {text}", flush=True)
        torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
