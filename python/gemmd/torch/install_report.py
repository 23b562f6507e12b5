# SPDX-License-Identifier: Apache-2.0
"""What install() served: a table of the products, by which kernel each ran, and the time saved.

The times are measured when the report is made: gemmd's and PyTorch's kernel in turns, over operands
of the product's shapes and strides, with rows spread evenly over the experts.
"""
import statistics
import sys
import time

import torch

from gemmd.torch import override

TURNS = 8
FIELDS = ("mode", "M", "N", "K", "experts", "dtype", "gemmd", "pytorch", "gemmd_us", "pytorch_us", "saved_ms")
PRODUCTS_MOST = 32  # most products that are timed, from those with most launches on


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
    """The median time of each of make_ways()'s functions in us; None: no memory for the operands, say."""
    try:
        ways = make_ways()
        times = [[_time(way, device) for way in ways] for _ in range(TURNS + 1)][1:]
    except RuntimeError:
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
    return dict(zip(FIELDS, (call.mode, call.m, call.n, call.k, call.experts, str(call.dtype)[6:],
                             product.launches, product.left, ours, theirs, saved)))


def report():
    """Rows of dicts, one for each product that install() has served: mode, sizes, the number of calls
    that gemmd's and PyTorch's kernel ran, microseconds of a call by each, and the milliseconds that
    gemmd saved. The last row has the mode "other": the calls that gemmd does not take, all by PyTorch's
    kernel. Uses the device. None for a time that could not be measured."""
    others = override.others()
    products = sorted(override.products(), key=lambda p: -p.launches)
    with torch.no_grad():
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
        print("gemmd: torch._grouped_mm was not called", file=file)
        return
    table = [list(rows[0])] + [[_text(v) for v in row.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*table)]
    for line in table:
        print("gemmd:", " ".join(cell.rjust(width) for cell, width in zip(line, widths)), file=file)
    saved = sum(row["saved_ms"] or 0 for row in rows)
    print(f"gemmd: {saved:.1f} ms saved in this process", file=file)
