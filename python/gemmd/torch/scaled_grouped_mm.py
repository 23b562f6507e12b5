# SPDX-License-Identifier: Apache-2.0
"""aten::_scaled_grouped_mm by gemmd's kernels, for install(): fp8 operands with a scale for each row.

    a [T, K], b [E, K, N] as a transposed [E, N, K], scale_a [T], scale_b [E, N], offs [E]

is served: forward, and dX with transposed weights. PyTorch's kernel runs for 2D by 2D (dW): there
PyTorch's experts begin at multiples of 16 columns, and gemmd's at multiples of 128. Copying both operands
into place costs about as much time as gemmd's kernel saves. PyTorch's kernel also runs for other scales than
fp32 rows, and wherever install() leaves bf16 products to PyTorch.
"""
import functools
from typing import NamedTuple

import torch

from gemmd.torch import own
from gemmd.torch.layout import ALIGNED, lies_well
from gemmd.torch.plans import plans
from gemmd.torch.scaled import E4M3, NO_PERMUTE, launch, product_call
from gemmd.torch.scaled_plain import Scaled
from gemmd.torch.shapes import Call

OP, OP_V2 = "aten::_scaled_grouped_mm", "aten::_scaled_grouped_mm_v2"
ROW_WISE = 1  # torch.nn.functional.ScalingType.RowWise
PRODUCTS_MOST = 4096  # limit, for a job whose sizes always change
_UNKNOWN = object()
_products = {}  # (operands' shapes, strides, types, devices): Product, or None for PyTorch's kernel
_others = 0  # calls without a Product, which PyTorch's kernel ran


class _Route(NamedTuple):
    call: Call


class Product:
    """All calls with operands of these shapes, strides and types."""

    def __init__(self, call, layout):
        self.route, self.layout = _Route(call), layout
        self.launches, self.left = 0, 0  # calls that gemmd's, and PyTorch's kernel ran

    def run(self, a, b, scale_a, scale_b, offs):
        """The output, or None when PyTorch's kernel must run."""
        if a.data_ptr() % ALIGNED or b.data_ptr() % ALIGNED:
            return None
        call = self.route.call
        out = torch.empty((call.m, call.n), dtype=torch.bfloat16, device=call.device)
        return out if launch(call, out, *_scaled(a, b, scale_a, scale_b), offs, ends=True) else None

    def operands(self, ends):
        """Random operands, for install_report."""
        call = self.route.call
        a, b = (torch.randn(shape, device=call.device).to(E4M3) for shape in ((call.m, call.k), (call.experts, call.n, call.k)))
        scales = (torch.ones(shape, device=call.device) for shape in ((call.m,), (call.experts, call.n)))
        return a, b.transpose(1, 2), *scales, ends

    def run_pytorchs(self, a, b, scale_a, scale_b, offs):
        return own.run(OP, a, b, scale_a, scale_b, offs, None, None, torch.bfloat16, True)


def _scaled(a, b, scale_a, scale_b):
    """(a [T, K], w [E, N, K]) with a scale for each row."""
    return Scaled(a, scale_a.unsqueeze(1)), Scaled(b.transpose(1, 2), scale_b.unsqueeze(2))


def _fits(a, b, scale_a, scale_b, offs):
    w = b.transpose(1, 2)
    return (offs.shape == (b.shape[0],) and scale_a.shape == (a.shape[0],) and scale_b.shape == w.shape[:2]
            and a.shape[1] == b.shape[1] and a.shape[1] % 16 == 0 and w.shape[1] % 8 == 0
            and lies_well(a.shape, a.stride(), 1) and lies_well(w.shape, w.stride(), 1))


def _new_product(a, b, scale_a, scale_b, offs, expected_faster):
    device, operands = a.device, (a, b, scale_a, scale_b, offs)
    fits = (a.dim() == 2 and b.dim() == 3 and a.dtype == b.dtype == E4M3 and scale_a.dtype == scale_b.dtype == torch.float32
            and offs.dtype == torch.int32 and offs.dim() == 1 and offs.numel() > 1 and a.numel() and b.numel()
            and all(t.device == device for t in operands)
            and all(t.is_contiguous() for t in (scale_a, scale_b, offs)) and expected_faster(device))
    if not fits or not _fits(*operands):
        return None
    call = product_call("forward", NO_PERMUTE, a.shape[0], *_scaled(a, b, scale_a, scale_b), offs, quant="fp8_row")
    _prepare_step(call)
    return Product(call, (a.shape, a.stride(), b.shape, b.stride()))


def _prepare_step(call):
    """Asks for dX, too, which has the form of forward. A backward of torchao's calls the operator outside of autograd,
    so nothing tells training from other uses but inference mode."""
    of_dx = [call._replace(n=call.k, k=call.n)] if call.n % 16 == 0 and not torch.is_inference_mode_enabled() else []
    plans.prepare([call, *of_dx])


def serve(a, b, scale_a, scale_b, offs, expected_faster, ends_are_good):
    """The product by a gemmd kernel, or None when PyTorch's kernel must run."""
    global _others
    operands = a, b, scale_a, scale_b, offs
    key = tuple((t.shape, t.stride(), t.dtype, t.device) for t in operands)
    product = _products.get(key, _UNKNOWN)
    if product is _UNKNOWN:
        if len(_products) >= PRODUCTS_MOST:
            _products.clear()
        product = _products[key] = _new_product(*operands, expected_faster)
    if product is None:
        _others += 1
        return None
    good = offs.is_cuda or ends_are_good(offs, product.route.call.m)
    out = product.run(*operands) if good else None
    if out is None:
        product.left += 1
    else:
        product.launches += 1
    return out


# ---- the kernels -----------------------------------------------------------------------------------

def _run(rules, device_type, keys, a, b, scale_a, scale_b, offs=None, bias=None, scale_result=None, out_dtype=None,
         use_fast_accum=False):
    global _others
    if offs is not None and bias is None and scale_result is None and out_dtype in (None, torch.bfloat16):
        out = serve(a, b, scale_a, scale_b, offs, *rules)
        if out is not None:
            return out
    else:
        _others += 1
    return own.call(device_type, keys, a, b, scale_a, scale_b, offs, bias, scale_result, out_dtype, use_fast_accum, op=OP)


def _run_v2(rules, device_type, keys, a, b, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, offs=None,
            bias=None, out_dtype=None, contraction_dim=(), use_fast_accum=False):
    """torch.nn.functional.scaled_grouped_mm."""
    global _others
    rows = list(recipe_a) == list(recipe_b) == [ROW_WISE] and not (any(swizzle_a) or any(swizzle_b) or contraction_dim)
    if rows and offs is not None and bias is None and out_dtype == torch.bfloat16:
        out = serve(a, b, scale_a[0], scale_b[0], offs, *rules)
        if out is not None:
            return out
    else:
        _others += 1
    return own.call(device_type, keys, a, b, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, offs, bias,
                    out_dtype, contraction_dim, use_fast_accum, op=OP_V2)


def install(library, *rules):
    """Puts both operators into `library`, for CUDA, where PyTorch has them."""
    for op, run in ((OP, _run), (OP_V2, _run_v2)):
        if torch._C._dispatch_has_kernel_for_dispatch_key(op, "CUDA"):
            own.keep("cuda", op)
            library.impl(op.split("::")[1], functools.partial(run, rules, "cuda"), "CUDA", with_keyset=True,
                         allow_override=True)


def uninstall():
    global _others
    _others = 0
    _products.clear()
    for op in (OP, OP_V2):
        own.forget("cuda", op)


def products():
    return [p for p in _products.values() if p is not None]


def others():
    return _others
