# SPDX-License-Identifier: Apache-2.0
"""aten::_scaled_grouped_mm by gemmd's kernels, for install(): fp8 operands with a scale for each row.

    a [T, K], b [E, K, N] as a transposed [E, N, K], scale_a [T], scale_b [E, N], offs [E]

is served: forward, and dX with transposed weights. PyTorch's kernel runs for 2D by 2D (dW): there
PyTorch's experts begin at multiples of 16 columns, and gemmd's at multiples of 128. Copying both operands
into place costs about as much time as gemmd's kernel saves. PyTorch's kernel also runs for other scales than
fp32 rows, and wherever install() leaves bf16 products to PyTorch.
"""
import functools

import torch

from gemmd.torch import own, served
from gemmd.torch.layout import ALIGNED, lies_well
from gemmd.torch.plans import plans
from gemmd.torch.scaled import E4M3, launch, product_call
from gemmd.torch.scaled_plain import Scaled
from gemmd.torch.shapes import NO_PERMUTE

OP, OP_V2 = "aten::_scaled_grouped_mm", "aten::_scaled_grouped_mm_v2"
ROW_WISE = 1  # torch.nn.functional.ScalingType.RowWise
served_by_rows = served.Served()


class Product(served.Product):
    def run(self, a, b, scale_a, scale_b, offs):
        if a.data_ptr() % ALIGNED or b.data_ptr() % ALIGNED:
            return None
        call = self.call
        out = torch.empty((call.m, call.n), dtype=torch.bfloat16, device=call.device)
        return out if launch(call, out, *_scaled(a, b, scale_a, scale_b), offs, ends=True) else None

    def operands(self, ends):
        call, g = self.call, served.generator_of_reports(self.call.device)
        a, b = (torch.randn(shape, device=call.device, generator=g).to(E4M3)
                for shape in ((call.m, call.k), (call.experts, call.n, call.k)))
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


def _new_product(a, b, scale_a, scale_b, offs):
    device, operands = a.device, (a, b, scale_a, scale_b, offs)
    fits = (a.dim() == 2 and b.dim() == 3 and a.dtype == b.dtype == E4M3 and scale_a.dtype == scale_b.dtype == torch.float32
            and offs.dtype == torch.int32 and offs.dim() == 1 and offs.numel() > 1 and a.numel() and b.numel()
            and all(t.device == device for t in operands)
            and all(t.is_contiguous() for t in (scale_a, scale_b, offs)) and served.expected_faster(device))
    if not fits or not _fits(*operands):
        return None
    call = product_call("forward", NO_PERMUTE, a.shape[0], *_scaled(a, b, scale_a, scale_b), offs, quant="fp8_row")
    _prepare_step(call)
    return Product(call)


def _prepare_step(call):
    """Asks for dX, too, which has the form of forward. A backward of torchao's calls the operator outside of autograd,
    so nothing tells training from other uses but inference mode."""
    of_dx = [call._replace(n=call.k, k=call.n)] if call.n % 16 == 0 and not torch.is_inference_mode_enabled() else []
    plans.prepare([call, *of_dx])


def _serve(*operands):
    key = tuple((t.shape, t.stride(), t.dtype, t.device) for t in operands)
    return served_by_rows.serve(key, _new_product, *operands)


# ---- the kernels -----------------------------------------------------------------------------------

def _run(device_type, keys, a, b, scale_a, scale_b, offs=None, bias=None, scale_result=None, out_dtype=None,
         use_fast_accum=False):
    if offs is not None and bias is None and scale_result is None and out_dtype in (None, torch.bfloat16):
        out = _serve(a, b, scale_a, scale_b, offs)
        if out is not None:
            return out
    else:
        served_by_rows.others += 1
    return own.call(device_type, keys, a, b, scale_a, scale_b, offs, bias, scale_result, out_dtype, use_fast_accum, op=OP)


def _run_v2(device_type, keys, a, b, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, offs=None,
            bias=None, out_dtype=None, contraction_dim=(), use_fast_accum=False):
    """torch.nn.functional.scaled_grouped_mm."""
    rows = list(recipe_a) == list(recipe_b) == [ROW_WISE] and not (any(swizzle_a) or any(swizzle_b) or contraction_dim)
    if rows and offs is not None and bias is None and out_dtype == torch.bfloat16:
        out = _serve(a, b, scale_a[0], scale_b[0], offs)
        if out is not None:
            return out
    else:
        served_by_rows.others += 1
    return own.call(device_type, keys, a, b, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, offs, bias,
                    out_dtype, contraction_dim, use_fast_accum, op=OP_V2)


def install(library):
    """Puts both operators into `library`, for CUDA, where PyTorch has them."""
    for op, run in ((OP, _run), (OP_V2, _run_v2)):
        if torch._C._dispatch_has_kernel_for_dispatch_key(op, "CUDA"):
            own.keep("cuda", op)
            library.impl(op.split("::")[1], functools.partial(run, "cuda"), "CUDA", with_keyset=True,
                         allow_override=True)


def uninstall():
    served_by_rows.clear()
    for op in (OP, OP_V2):
        own.forget("cuda", op)
