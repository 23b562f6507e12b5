# SPDX-License-Identifier: Apache-2.0
"""What fp8 brings to the products of this process, measured when the report is made."""
import torch

from gemmd.torch.fp8 import ops, seen
from gemmd.torch.fp8.weights import copied_bytes
from gemmd.torch.install_report import PRODUCTS_MOST, medians
from gemmd.torch.launch import uncounted
from gemmd.torch.routing import sort_by_expert
from gemmd.torch.served import generator_of_reports
from gemmd.torch.shapes import Flags

FIELDS = ("mode", "M", "N", "K", "experts", "runs", "calls", "kept_bytes", "fp8_us", "bf16_us", "gain", "note")
GAIN_LEAST = 1.05  # below, the noise of a measurement may be all of the gain
FEW_ROWS = 256  # of an expert: with fewer, reading the weights takes the time


def _operands(p, n, k):
    """(x, dy, w, m_sizes, gather, dw) of a product: random numbers, rows spread evenly over the experts."""
    topk, permute_x, permute_y = p.flags
    of = {"device": p.device, "dtype": torch.bfloat16, "generator": generator_of_reports(p.device)}
    slots = topk if permute_x or permute_y else 1
    ids = torch.arange(p.rows, device=p.device).reshape(-1, slots) % p.w_shape[0]
    m_sizes, gather = sort_by_expert(ids, p.w_shape[0])
    x = torch.randn((p.rows // topk if permute_x else p.rows, k), **of)
    dy = torch.randn((p.rows // topk if p.summed else p.rows, n), **of)
    w = torch.randn(p.w_shape, **of).to(p.w_dtype)
    dw = torch.zeros(p.w_shape, dtype=p.dtype_out, device=p.device) if p.mode == "dW" else None
    return x, dy, w, m_sizes, gather, dw


def _ways(p):
    """Two functions: the product in fp8 with the quantising of its rows, and in bf16."""
    n, k = ops._n_and_k(torch.empty(p.w_shape, device="meta"), p.transposed)
    x, dy, w, m_sizes, gather, dw = _operands(p, n, k)
    routing = m_sizes, gather, Flags(*p.flags), p.transposed
    dx = torch.empty((p.rows, k), dtype=x.dtype, device=p.device) if p.mode == "dX" else None
    if p.mode == "forward":
        return [lambda plan=plan: ops.forward_of(x, w, *routing, p.scale_type, plan, False) for plan in ("fp8", "bf16")]
    return [lambda plan=plan: ops.grads_of(dy, x, None, None, w, *routing, p.summed, p.scale_type, plan, dx, dw, p.accumulate)
            for plan in ("fp8", "bf16")]


def _measure(p):
    """Medians (fp8, bf16) in microseconds, or None."""
    return medians(lambda: _ways(p), p.device)


def _reason(p):
    """Why fp8 gains nothing, where the product's sizes tell."""
    if p.mode == "dW" and p.dtype_out == torch.float32:
        return " (the traffic of fp32 gradients takes the time)"
    rows = p.rows // p.w_shape[0]
    return f" ({rows} rows an expert: reading the weights takes the time)" if rows < FEW_ROWS else ""


def _note(p, gain):
    if gain is None:
        return ""
    if p.place == "fp8" and gain < GAIN_LEAST:
        return f"fp8 gains nothing here{_reason(p)}: see stay_bf16()"
    return "fp8 would gain" if p.place == "bf16" and gain >= GAIN_LEAST else ""


def _row(p, calls, measured):
    n, k = reversed(p.w_shape[1:]) if p.transposed else p.w_shape[1:]
    fp8, bf16 = measured or (None, None)
    gain = bf16 / fp8 if measured else None
    return dict(zip(FIELDS, (p.mode, p.rows, n, k, p.w_shape[0], p.place, calls, p.kept_bytes, fp8, bf16, gain,
                             _note(p, gain))))


def report():
    """Rows of dicts, one for each product that ran: mode, sizes, where it ran ("fp8", "bf16"), calls, the bytes that
    its forward keeps for dW, microseconds of a call in fp8 and in bf16, the gain, and a note where fp8 gains nothing.
    The last row, "weights", has the bytes of the weights' quantised copies.

    A time in fp8 has the quantising of the activations in it, not that of the weights, which are quantised once for
    many calls. Uses the device, and asks gemmd for the kernels of both ways. None for a time that could not be
    measured."""
    with torch.no_grad(), uncounted():
        rows = [_row(p, calls, _measure(p) if p.rows and i < PRODUCTS_MOST else None)
                for i, (p, calls) in enumerate(seen.products())]
    weights = {**dict.fromkeys(FIELDS), "mode": "weights", "kept_bytes": copied_bytes(), "note": ""}
    return rows + [weights] if rows else []
