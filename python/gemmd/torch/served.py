# SPDX-License-Identifier: Apache-2.0
"""The products that gemmd computes in the place of an operator of PyTorch's: one kernel for all calls with the
same operands, and the number of calls by each kernel."""
import torch

PRODUCTS_MOST = 4096  # limit, for a job whose sizes always change
_UNKNOWN = object()


def expected_faster(device):
    """gemmd's kernels for Hopper are measured to be faster than PyTorch's (docs/performance.md). For
    other GPUs nothing is measured. On the CPU the operators serve tests."""
    return device.type == "cpu" or (device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0))


def generator_of_reports(device):
    """Random numbers for a report's operands, apart from the job's own."""
    return torch.Generator(device).manual_seed(0)


def _ends_are_good(offs, rows):
    """On the CPU. A GPU's numbers are not read, because the host would wait for them: the kernels
    cut ends at the rows."""
    ends = [0, *offs.tolist()]
    return all(a <= b for a, b in zip(ends, ends[1:])) and ends[-1] <= rows


class Product:
    """All calls with operands of these shapes, strides and types. A subclass has run(*operands), the output or None when
    PyTorch's kernel must run; operands(ends), random ones for install_report; and run_pytorchs(*operands)."""

    def __init__(self, call):
        self.call, self.launches, self.left = call, 0, 0  # calls that gemmd's, and PyTorch's kernel ran


class Served:
    """The products of an operator."""

    def __init__(self):
        self.clear()

    def clear(self):
        self._products = {}  # {a key of operands: Product, or None for PyTorch's kernel}
        self.others = 0  # calls without a Product, which PyTorch's kernel ran

    def products(self):
        return [p for p in self._products.values() if p is not None]

    def serve(self, key, make, *operands):
        """The output by a gemmd kernel, or None when PyTorch's kernel must run. make(*operands): the key's Product or
        None. The last operand holds the row at which each expert ends."""
        product = self._products.get(key, _UNKNOWN)
        if product is _UNKNOWN:
            if len(self._products) >= PRODUCTS_MOST:
                self._products.clear()
            product = self._products[key] = make(*operands)
        if product is None:
            self.others += 1
            return None
        offs = operands[-1]
        good = offs.is_cuda or _ends_are_good(offs, product.call.m)
        out = product.run(*operands) if good else None
        if out is None:
            product.left += 1
        else:
            product.launches += 1
        return out
