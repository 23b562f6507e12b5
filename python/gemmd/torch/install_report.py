# SPDX-License-Identifier: Apache-2.0
"""A table of this process's products: how often gemmd's and PyTorch's kernel ran each, and the time that gemmd saved.

A product is a call of torch._grouped_mm under install(), or of a whole layer's (gemmd.transformers,
gemmd.torch). The times are measured when the report is made: gemmd's kernel and PyTorch's in turns, over
operands of the product's shapes, with rows spread evenly over the experts. Where gemmd's kernel permutes
rows, PyTorch's time has a permute in it.
"""
import statistics
import sys
import time

import torch

from gemmd.errors import GemmdError
from gemmd.torch import ops, override, plain
from gemmd.torch.launch import OPERANDS, uncounted
from gemmd.torch.plans import plans
from gemmd.torch.served import generator_of_reports

TURNS = 8
FIELDS = ("mode", "M", "N", "K", "experts", "dtype", "permutes", "gemmd", "pytorch", "gemmd_us", "pytorch_us", "saved_ms")
PRODUCTS_MOST = 32  # most products that are timed, from those with most launches on


class _OfLayer:
    """The calls of a plan, which are products of gemmd.torch's functions."""

    def __init__(self, plan):
        self.call, self.launches, self.left = plan.call, plan.launches - plan.installed, plan.left

    def operands(self, ends):
        """(the two operands, m_sizes, gather_indices)"""
        c, device = self.call, self.call.device
        g = generator_of_reports(device)
        shapes = {"x": (c.m // c.flags.topk if c.flags.permute_x else c.m, c.k), "dy": (c.m, c.n), "w": (c.experts, c.n, c.k)}
        a, b = (torch.empty(shapes[name], dtype=c.dtype, device=device).normal_(generator=g) for name in OPERANDS[c.mode])
        return a, b, ends.diff(prepend=ends.new_zeros(1)), torch.randperm(c.m, device=device, generator=g)

    def run(self, a, b, m_sizes, gather):
        if self.call.mul:
            return ops.forward_mul(a, b, torch.ones_like(gather, dtype=torch.float32), m_sizes, gather, *self.call.flags)
        return {"forward": ops.forward, "dX": ops.dx, "dW": ops.dw}[self.call.mode](a, b, m_sizes, gather, *self.call.flags)

    def run_pytorchs(self, a, b, m_sizes, gather):
        way = {"forward": plain.forward, "dX": plain.dx, "dW": plain.dw}[self.call.mode]
        out = way(a, b, m_sizes, gather, self.call.flags)
        return plain.multiply(out, torch.ones_like(gather, dtype=torch.float32)) if self.call.mul else out


def _of_layers():
    """The products of gemmd.torch's functions, but for those of fp8, which has a report of its own, and those that add to
    main gradients."""
    products = [_OfLayer(p) for p in plans.all() if not (p.call.quant or p.call.accumulate or p.call.dtype_out)]
    return [p for p in products if p.launches or p.left]


def _operands(product):
    call = product.call
    ends = torch.arange(1, call.experts + 1, device=call.device) * call.m // call.experts
    return product.operands(ends.to(torch.int32))


def _time(run, device):
    """Microseconds of a call."""
    if device.type != "cuda":
        began = time.perf_counter()
        run()
        return (time.perf_counter() - began) * 1e6
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    run()
    ended.record()
    ended.synchronize()
    return began.elapsed_time(ended) * 1e3


def medians(make_ways, device):
    """The median time of each of make_ways()'s functions in us; None: no memory for the operands, say,
    or no kernel."""
    try:
        ways = make_ways()
        times = [[_time(way, device) for way in ways] for _ in range(TURNS + 1)][1:]
    except (RuntimeError, GemmdError):
        return None
    return tuple(statistics.median(column) for column in zip(*times))


def _ways(product):
    """Two functions: the product by gemmd's and by PyTorch's kernel."""
    operands = _operands(product)
    return (lambda: product.run(*operands)), (lambda: product.run_pytorchs(*operands))


def _row(product, measured):
    call = product.call
    ours, theirs = measured or (None, None)
    saved = (theirs - ours) * product.launches / 1e3 if measured else None
    permutes = "".join(name for name, on in (("x", call.flags.permute_x), ("y", call.flags.permute_y)) if on)
    return dict(zip(FIELDS, (call.mode, call.m, call.n, call.k, call.experts, str(call.dtype)[6:], permutes or None,
                             product.launches, product.left, ours, theirs, saved)))


def report():
    """Rows of dicts, one for each product that gemmd was asked for. `mode` is the kernel's: a forward product of weights
    [experts, K, N] runs as dX. `permutes` names the operands whose rows the kernel permutes. `gemmd` and `pytorch` count
    the calls that each one's kernel ran; then come microseconds of a call by each, and the milliseconds that gemmd saved.
    These times lack a layer's activation and its sum over experts. The last row has the mode "other": the calls that
    install() does not take, all by PyTorch's kernel. Uses the device. None for a time that could not be measured."""
    others = override.others()
    products = sorted(override.products() + _of_layers(), key=lambda p: -p.launches)
    with torch.no_grad(), uncounted():
        rows = [_row(p, medians(lambda: _ways(p), p.call.device) if p.launches and i < PRODUCTS_MOST else None)
                for i, p in enumerate(products)]
    return rows + [{**dict.fromkeys(FIELDS), "mode": "other", "gemmd": 0, "pytorch": others}] if others else rows


def _text(value):
    return "-" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def print_report(file=None):
    """Prints report() as a table."""
    file = file or sys.stderr
    rows = report()
    if not rows:
        print("gemmd: no product was called", file=file)
        return
    table = [list(rows[0])] + [[_text(v) for v in row.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*table)]
    for line in table:
        print("gemmd:", " ".join(cell.rjust(width) for cell, width in zip(line, widths)), file=file)
    saved = sum(row["saved_ms"] or 0 for row in rows)
    print(f"gemmd: {saved:.1f} ms saved in this process", file=file)
