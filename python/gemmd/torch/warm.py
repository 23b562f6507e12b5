# SPDX-License-Identifier: Apache-2.0
"""Compiles the Triton kernels around a layer's products, side by side, while the daemon tunes the products.

A kernel of Triton is compiled at its first call. In a layer's first step the calls come one after the
other, and each compile takes a quarter of a second."""
import threading
from concurrent.futures import ThreadPoolExecutor

import torch

from gemmd.torch import activation, routing, rows
from gemmd.torch.current import on_device
from gemmd.torch.plans import plans

# Triton compiles apart for numbers that are multiples of 16, as the rows of real steps are. clear_rest
# has at most 264 programs, and with fewer rows another kernel.
ROWS = 272


def calls_of(first, hidden, kind, weights, bias, again, dtype):
    """The calls of Triton kernels in a step of a layer, with few rows of zeros. Arguments as of warm_layer()."""
    experts, wide = first.shape[0], first.numel() // first.shape[0] // hidden
    ids = torch.zeros((ROWS, 1), dtype=torch.int64, device=first.device)
    m_sizes, gather = routing.plain_sort(ids, experts)
    of, topk = {"dtype": dtype, "device": first.device}, weights.shape[-1]
    calls = [lambda: routing.sort_by_expert(ids, experts),
             lambda: rows.sum_of_slots(torch.zeros((2 * topk, hidden), **of), topk),
             lambda: rows.clear_rest(torch.zeros((ROWS, hidden), **of), gather, m_sizes)]
    if bias is not None:
        bias = bias.detach()
        calls.append(lambda: rows.sum_of_experts(torch.zeros((ROWS, wide), **of), m_sizes))
    if kind is not None:
        h, a = torch.zeros((ROWS, wide), **of), torch.zeros((ROWS, wide // 2), **of)
        expert = None if bias is None else torch.zeros(ROWS, dtype=torch.int64, device=first.device)
        column = torch.zeros((ROWS, 1), dtype=weights.dtype, device=first.device)
        calls.append(lambda: rows.clear_rest(torch.zeros_like(a), None, m_sizes))  # the second product's gradient
        calls.append(lambda: activation._gate(h, bias, expert, column, *kind))
        calls.append(lambda: activation._grads(h, bias, expert, column, a, again, *kind))
    return calls


def _compile(calls, device):
    def run(call):
        rows.compiling.add(threading.current_thread())
        with torch.no_grad(), on_device(device):
            call()

    try:
        with ThreadPoolExecutor(len(calls)) as pool:
            list(pool.map(run, calls))
    finally:
        rows.compiling.clear()


def warm_layer(first, hidden, kind, weights, bias, again, dtype):
    """Compiles for weights `first` [experts, 2 * inter, hidden] in either order, rows of `hidden` numbers of
    type `dtype`, an activation `kind` (None: not ours) that is computed `again` for the gradients or kept, routing
    weights of weights' type, and a `bias` [experts, 2 * inter] or None. Does nothing on a CPU, and without Triton. With wait="boundary", where the
    first step waits for nothing, the compilers run beside the step, which runs plain PyTorch."""
    if first.device.type != "cuda" or rows.find_kernels("rows_kernel", first.device) is None:
        return
    calls = calls_of(first, hidden, kind, weights, bias, again, dtype)
    if plans.settings.wait == "boundary":
        rows.compiling.add(_compile)
        threading.Thread(target=_compile, args=(calls, first.device), daemon=True).start()
    else:
        _compile(calls, first.device)
