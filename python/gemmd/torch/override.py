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

transformers' MoE layers call the operator between a permute and a sum over each token's experts, which
take longer than the products. install() serves these layers as a whole (gemmd.transformers), also
when the job imports transformers later.
"""
import contextlib
import functools
import warnings

import torch

from gemmd.at_import import when_imported
from gemmd.torch import own, scaled_grouped_mm, served, whole_layers
from gemmd.torch.current import on_device
from gemmd.torch.launch import counts, new_route, run
from gemmd.torch.layout import ALIGNED, lies_well
from gemmd.torch.plans import configure, plans
from gemmd.torch.shapes import DTYPES, NO_PERMUTE

DEVICE_TYPES = ("cuda", "cpu")
_served = served.Served()
_library = None
_transformers = contextlib.ExitStack()  # has the calls that end what install() did to transformers


class Product(served.Product):
    def __init__(self, route, out_shape, layout):
        super().__init__(route.call)
        self.route, self.out_shape, self.layout = route, out_shape, layout

    def run(self, a, b, offs):
        if a.data_ptr() % ALIGNED or b.data_ptr() % ALIGNED:
            return None
        with on_device(a.device):
            plan = plans.find(self.call)
            if plan.kernel is None:
                return None
            out = a.new_empty(self.out_shape)
            if not run(plan, self.route, out, a, b, offs):
                return None
            plan.installed += counts()
            return out

    def operands(self, ends):
        g = served.generator_of_reports(self.call.device)
        a, b = (torch.empty_strided(shape, stride, dtype=self.call.dtype, device=self.call.device).normal_(generator=g)
                for shape, stride in (self.layout[:2], self.layout[2:]))
        return a, b, ends

    def run_pytorchs(self, a, b, offs):
        return own.grouped_mm(a, b, offs)


# ---- which product ---------------------------------------------------------------------------------

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
            and offs.numel() > 1 and served.expected_faster(device))
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


# ---- the kernel ------------------------------------------------------------------------------------

def serve(a, b, offs):
    """torch._grouped_mm(a, b, offs=offs) by a gemmd kernel, or None when PyTorch's kernel must run."""
    key = (a.shape, a.stride(), b.shape, b.stride(), a.dtype, b.dtype, offs.shape, offs.stride(),
           offs.dtype, a.device, b.device, offs.device)
    return _served.serve(key, _new_product, a, b, offs)


def _grouped_mm(device_type, keys, a, b, offs=None, bias=None, out_dtype=None):
    if offs is not None and bias is None and out_dtype in (None, a.dtype):
        out = serve(a, b, offs)
        if out is not None:
            return out
    else:
        _served.others += 1
    return own.call(device_type, keys, a, b, offs, bias, out_dtype)


def _serve_transformers(moe):
    _transformers.callback(whole_layers.serve(moe))


def install(**settings):
    """Serves aten::_grouped_mm by gemmd on this machine's GPUs, and on the CPU, until uninstall(); on GPUs also
    aten::_scaled_grouped_mm (scaled_grouped_mm.py). Serves whole layers of transformers' models: of those with
    experts_implementation="grouped_mm", and of Llama 4 (whole_layers.py).

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
        scaled_grouped_mm.install(library)
    _library = library
    _transformers.callback(when_imported("transformers.integrations.moe", _serve_transformers))
    _transformers.callback(when_imported("transformers.models.llama4.modeling_llama4", whole_layers.serve_llama4))


def uninstall():
    """Gives aten::_grouped_mm back to PyTorch, and "grouped_mm" and Llama 4 to transformers. Graphs that were captured keep gemmd's
    kernels."""
    global _library
    if _library is None:
        return
    _library._destroy()
    _library = None
    _transformers.close()
    _served.clear()
    scaled_grouped_mm.uninstall()
    for device_type in DEVICE_TYPES:
        own.forget(device_type)


def products():
    """The products that were met since the start, or since uninstall()."""
    return _served.products() + scaled_grouped_mm.served_by_rows.products()


def others():
    """How many calls gemmd does not take, since the start or uninstall(): with a bias, another
    out_dtype, or operands that no kernel of gemmd takes."""
    return _served.others + scaled_grouped_mm.served_by_rows.others
