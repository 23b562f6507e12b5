# SPDX-License-Identifier: Apache-2.0
"""install(): gemmd's kernels in the place of PyTorch's kernel of aten::_grouped_mm.

torch._grouped_mm and torch.nn.functional.grouped_mm then run gemmd's kernels, also from PyTorch's
own backward formulas, compiled graphs and CUDA graphs. PyTorch's kernel runs wherever gemmd's
kernels do not take the operands as they lie, or are not expected to be faster.

Three products are known by their operands. offs holds the row at which each expert ends.

    a [T, K], b [E, K, N] as a transposed [E, N, K]     forward
    a [T, N], b [E, N, K]                               dX
    a [N, T] as a transposed [T, N], b [T, K]           dW, [E, N, K]

So weights that a model stores as [E, K, N] run the mode dX in forward and the mode forward in dX,
and need no kernels of their own.
"""
import functools
import warnings

import torch

from gemmd.torch import own, scaled_grouped_mm
from gemmd.torch.launch import new_route, on_device, run
from gemmd.torch.layout import ALIGNED, lies_well
from gemmd.torch.plans import configure, plans
from gemmd.torch.shapes import DTYPES, Flags

DEVICE_TYPES = ("cuda", "cpu")
NO_PERMUTE = Flags(1, False, False)
PRODUCTS_MOST = 4096  # limit, for a job whose sizes always change
_UNKNOWN = object()
_others = 0  # calls without a Product, which PyTorch's kernel ran
_products = {}  # (operands' shapes, strides, types): Product, or None for PyTorch's kernel
_library = None


class Product:
    """All calls with operands of these shapes, strides and types."""

    def __init__(self, route, out_shape, layout):
        self.route, self.out_shape, self.layout = route, out_shape, layout
        self.launches, self.left = 0, 0  # calls that gemmd's, and PyTorch's kernel ran

    def run(self, a, b, offs):
        """The output, or None when PyTorch's kernel must run."""
        if a.data_ptr() % ALIGNED or b.data_ptr() % ALIGNED:
            return None
        with on_device(a.device):
            plan = plans.find(self.route.call)
            if plan.kernel is None:
                return None
            out = a.new_empty(self.out_shape)
            return out if run(plan, self.route, out, a, b, offs) else None

    def operands(self, ends):
        """Random operands, for install_report."""
        call = self.route.call
        a, b = (torch.empty_strided(shape, stride, dtype=call.dtype, device=call.device).normal_()
                for shape, stride in (self.layout[:2], self.layout[2:]))
        return a, b, ends

    def run_pytorchs(self, a, b, offs):
        return own.grouped_mm(a, b, offs)


# ---- which product ---------------------------------------------------------------------------------

def _expected_faster(device):
    """gemmd's kernels for Hopper are measured to be faster than PyTorch's (docs/performance.md). For
    other GPUs nothing is measured. On the CPU the override serves tests."""
    return device.type == "cpu" or torch.cuda.get_device_capability(device) == (9, 0)


def _lies_well(t):
    return lies_well(t.shape, t.stride(), t.element_size())


def _view_of(a, b, offs):
    """(mode, first operand, second operand, shape of the output) as gemmd has them, or None."""
    if a.dim() != 2 or offs.dim() != 1:
        return None
    if b.dim() == 2:
        return "dW", a.t(), b, (offs.shape[0], a.shape[0], b.shape[1])
    if b.dim() != 3 or b.shape[0] != offs.shape[0]:
        return None
    out = a.shape[0], b.shape[2]
    w = b.transpose(1, 2)
    return ("forward", a, w, out) if _lies_well(w) else ("dX", a, b, out)


def _new_product(a, b, offs):
    device = a.device
    fits = (a.dtype == b.dtype and a.dtype in DTYPES and offs.dtype == torch.int32
            and b.device == device and offs.device == device and offs.is_contiguous()
            and offs.numel() > 1 and _expected_faster(device))
    view = _view_of(a, b, offs) if fits else None
    if view is None:
        return None
    mode, first, second, out = view
    if not (_lies_well(first) and _lies_well(second) and out[-1] * a.element_size() % ALIGNED == 0
            and all(out) and first.shape[0] and first.shape[1]):
        return None
    inner = first.shape[0] == second.shape[0] if mode == "dW" else (
        first.shape[1] == second.shape[2 if mode == "forward" else 1])
    if not inner:
        return None
    rows = first.shape[0]
    route = new_route(mode, NO_PERMUTE, rows, first, second, offs, ends=True)
    if a.requires_grad or b.requires_grad:
        plans.prepare(route.calls_of_a_step())
    return Product(route, out, (a.shape, a.stride(), b.shape, b.stride()))


def _product(a, b, offs):
    key = (a.shape, a.stride(), b.shape, b.stride(), a.dtype, b.dtype, offs.shape, offs.stride(),
           offs.dtype, a.device, b.device, offs.device)
    product = _products.get(key, _UNKNOWN)
    if product is _UNKNOWN:
        if len(_products) >= PRODUCTS_MOST:
            _products.clear()
        product = _products[key] = _new_product(a, b, offs)
    return product


# ---- the kernel ------------------------------------------------------------------------------------

def _ends_are_good(offs, rows):
    """On the CPU. A GPU's numbers are not read, because the host would wait for them: the kernels
    cut ends at the rows."""
    ends = [0, *offs.tolist()]
    return all(a <= b for a, b in zip(ends, ends[1:])) and ends[-1] <= rows


def serve(a, b, offs):
    """torch._grouped_mm(a, b, offs=offs) by a gemmd kernel, or None when PyTorch's kernel must run."""
    global _others
    product = _product(a, b, offs)
    if product is None:
        _others += 1
        return None
    good = offs.is_cuda or _ends_are_good(offs, product.route.call.m)
    out = product.run(a, b, offs) if good else None
    if out is None:
        product.left += 1
    else:
        product.launches += 1
    return out


def _grouped_mm(device_type, keys, a, b, offs=None, bias=None, out_dtype=None):
    global _others
    if offs is not None and bias is None and out_dtype in (None, a.dtype):
        out = serve(a, b, offs)
        if out is not None:
            return out
    else:
        _others += 1
    return own.call(device_type, keys, a, b, offs, bias, out_dtype)


def install(**settings):
    """Serves aten::_grouped_mm by gemmd on this machine's GPUs, and on the CPU, until uninstall(); on GPUs also
    aten::_scaled_grouped_mm (scaled_grouped_mm.py).

    settings: as for configure(). Operands, results and gradients are PyTorch's; the results differ in
    the last bits. A missing daemon is never an error. RuntimeError for a PyTorch before 2.10, which
    cannot give its kernel back.
    """
    global _library
    if not hasattr(torch.library, "get_kernel"):
        raise RuntimeError(f"gemmd.torch.install() needs PyTorch 2.10 or newer, and this is {torch.__version__}")
    if settings:
        configure(**settings)
    if _library is not None:
        return
    library = torch.library.Library("aten", "IMPL")
    for device_type in DEVICE_TYPES:
        own.keep(device_type)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns of each override
            library.impl("_grouped_mm", functools.partial(_grouped_mm, device_type), device_type.upper(),
                         with_keyset=True, allow_override=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scaled_grouped_mm.install(library, _expected_faster, _ends_are_good)
    _library = library


def uninstall():
    """Gives aten::_grouped_mm back to PyTorch. Graphs that were captured keep gemmd's kernels."""
    global _library, _others
    if _library is None:
        return
    _library._destroy()
    _library, _others = None, 0
    _products.clear()
    scaled_grouped_mm.uninstall()
    for device_type in DEVICE_TYPES:
        own.forget(device_type)


def products():
    """The products that were met since the start, or since uninstall()."""
    return [p for p in _products.values() if p is not None] + scaled_grouped_mm.products()


def others():
    """How many calls gemmd does not take, since the start or uninstall(): with a bias, another
    out_dtype, or operands that no kernel of gemmd takes."""
    return _others + scaled_grouped_mm.others()
