# SPDX-License-Identifier: Apache-2.0
"""The package grouped_gemm, with gemmd's kernels: `from gemmd.grouped_gemm import ops`, then
ops.gmm(a, b, batch_sizes, trans_b=False). A job with libraries that import grouped_gemm
(Megatron-Core, MegaBlocks, NeMo Automodel) calls gemmd.grouped_gemm.install() before these imports.

ops has gradients, backend has none; both take the arguments of grouped_gemm in grouped_gemm's order,
and further ones by keyword. Tensors of a CPU are taken, too. The function sinkhorn is missing.
"""
import sys

from gemmd.grouped_gemm import backend, ops

__all__ = ["backend", "install", "ops", "uninstall"]
_NAMES = {"grouped_gemm": sys.modules[__name__], "grouped_gemm.ops": ops, "grouped_gemm.backend": backend}
_absent = object()
_replaced = {}  # name: the module that install() found under it, or _absent


def install():
    """Makes `import grouped_gemm` give this package, until uninstall(). Modules that imported another
    grouped_gemm before keep the other one."""
    for name, module in _NAMES.items():
        if sys.modules.get(name) is not module:
            _replaced[name] = sys.modules.get(name, _absent)
            sys.modules[name] = module


def uninstall():
    """Undoes install(): `import grouped_gemm` gives the same module as before."""
    for name, module in _replaced.items():
        if module is _absent:
            sys.modules.pop(name, None)
        else:
            sys.modules[name] = module
    _replaced.clear()
