# SPDX-License-Identifier: Apache-2.0
"""The custom ops gemmd::grouped_gemm, _mul, _dx and _dw, for torch.compile. The ops have no gradients of
their own: product.py combines them.

With permute_y, _dx and _dw read the rows of dy that gather_indices names: a permutation of T rows, or,
for the gradient of a sum over a token's rows, each token's row topk times.
"""
import torch

from gemmd.torch import beside, plain
from gemmd.torch.current import on_device
from gemmd.torch.custom_ops import define
from gemmd.torch.launch import launch, prepare
from gemmd.torch.shapes import Flags, gradient_rows, routed_rows

_COMMON = "Tensor m_sizes, Tensor? gather_indices, int topk, bool permute_x, bool permute_y"


# ---- running -------------------------------------------------------------------------------------

def _forward(x, w, m_sizes, gather, topk, permute_x, permute_y, weights=None):
    flags = Flags(topk, permute_x, permute_y)
    rows = routed_rows(x, flags)
    out = x.new_empty((rows, w.shape[1]))
    if rows == 0 or launch("forward", flags, rows, out, x, w, m_sizes, gather, weights):
        return out
    y = plain.forward(x, w, m_sizes, gather, flags)
    return y if weights is None else plain.multiply(y, weights)


def _forward_mul(x, w, weights, *rest):
    return _forward(x, w, *rest, weights)


def _dx(dy, w, m_sizes, gather, topk, permute_x, permute_y):
    flags = Flags(topk, permute_x, permute_y)
    rows = gradient_rows(dy, gather, flags)
    out = dy.new_empty((rows, w.shape[2]))
    if rows == 0 or launch("dX", flags, rows, out, dy, w, m_sizes, gather):
        return out
    return plain.dx(dy, w, m_sizes, gather, flags)


class WeightGradient:
    """dW with its output and its kernel's arguments, which runs once, alone or beside a sum. Arguments as of dw()."""

    def __init__(self, dy, x, m_sizes, gather, topk, permute_x, permute_y):
        flags = Flags(topk, permute_x, permute_y)
        self._operands, self._rows = (dy, x, m_sizes, gather, flags), gradient_rows(dy, gather, flags)
        self._out, self._prepared = _new_dw(dy, x, m_sizes), None
        with on_device(dy.device):
            if self._rows:
                self._prepared = prepare("dW", flags, self._rows, self._out, dy, x, m_sizes, gather)

    def share_beside(self, nbytes):
        """The SMs for run_beside(), when the work is a sum that moves `nbytes`; 0: run() and the sum after it take no longer."""
        return beside.share_of_product(self._prepared, nbytes)

    def _result(self, launched):
        """dW. Afterwards this holds no tensor."""
        (operands, out), self._operands, self._out, self._prepared = (self._operands, self._out), None, None, None
        if launched:
            return out
        if not self._rows:
            return out.zero_()
        del out
        return plain.dw(*operands)

    def run(self):
        with on_device(self._out.device):
            return self._result(self._prepared is not None and self._prepared.launch())

    def run_beside(self, sms, work):
        """Returns (dW, what work() returned)."""
        launched, done = beside.launch_beside(self._prepared, sms, work)
        return self._result(launched), done


def _dw(*operands):
    return WeightGradient(*operands).run()


# ---- on the CPU ----------------------------------------------------------------------------------

def check_sizes(rows, m_sizes, partial, name="m_sizes"):
    """Refuses m_sizes, the caller's `name`, that are no sizes of `rows` rows; `partial`: of some of them."""
    sizes = m_sizes.tolist()
    total, least = sum(sizes), min(sizes, default=0)
    if total > rows or least < 0 or (total < rows and not partial):
        raise ValueError(f"{name} is {total} rows in all, {least} at least: numbers from 0 on, whose "
                         f"sum is the {rows} routed rows")


def _check_gather(rows, gather, of=""):
    least, most = (int(i) for i in gather.aminmax())
    if least < 0 or most >= rows:
        raise ValueError(f"gather_indices is from {least} to {most}: there are {rows} {of}rows")


def _check_values(rows, m_sizes, gather, flags):
    """Refuses values with which a CPU kernel would access foreign memory. The gradients get the
    same values, already checked. On a GPU the host would have to wait for the numbers."""
    check_sizes(rows, m_sizes, partial=True)
    if flags.permute_x or flags.permute_y:
        _check_gather(rows, gather, "routed ")
        if torch.bincount(gather, minlength=rows).max() > 1:
            raise ValueError(f"gather_indices says a number twice: each of the {rows} routed rows "
                             "is there once")


def _checked(run):
    def run_checked(x, *rest):
        m_sizes, gather, *flags = rest[-5:]
        flags = Flags(*flags)
        if x.shape[0]:
            _check_values(routed_rows(x, flags), m_sizes, gather, flags)
        return run(x, *rest)
    return run_checked


def _dx_checked(dy, w, m_sizes, gather, topk, *permutes):
    """_dx after a check of gather_indices, a user's if forward has weights [experts, K, N], which runs as dX."""
    rows = dy.shape[0]
    if rows and any(permutes):
        _check_gather(rows, gather)
    return _dx(dy, w, m_sizes, gather, topk, *permutes)


# ---- for torch.compile ---------------------------------------------------------------------------

def _new_forward(x, w, m_sizes, gather, *flags):
    return x.new_empty((routed_rows(x, Flags(*flags)), w.shape[1]))


def _new_dx(dy, w, m_sizes, gather, *flags):
    return dy.new_empty((gradient_rows(dy, gather, Flags(*flags)), w.shape[2]))


def _new_dw(dy, x, m_sizes, *_):
    return dy.new_empty((m_sizes.shape[0], dy.shape[1], x.shape[1]))


forward = define("grouped_gemm", f"(Tensor x, Tensor w, {_COMMON}) -> Tensor",
                 _checked(_forward), _forward, _new_forward)
forward_mul = define("grouped_gemm_mul", f"(Tensor x, Tensor w, Tensor topk_weights, {_COMMON}) -> Tensor",
                     _checked(_forward_mul), _forward_mul,
                     lambda x, w, weights, *rest: _new_forward(x, w, *rest))
dx = define("grouped_gemm_dx", f"(Tensor dy, Tensor w, {_COMMON}) -> Tensor", _dx_checked, _dx, _new_dx)
dw = define("grouped_gemm_dw", f"(Tensor dy, Tensor x, {_COMMON}) -> Tensor", _dw, _dw, _new_dw)
