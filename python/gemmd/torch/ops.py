# SPDX-License-Identifier: Apache-2.0
"""The custom ops gemmd::grouped_gemm, _mul, _dx, _dw and _grads, for torch.compile. The ops have no
gradients of their own: product.py combines them.

With permute_y, _dx, _dw and _grads read the rows of dy that gather_indices names: a permutation of
T rows, or, for the gradient of a sum over a token's rows, each token's row topk times. A single op
gives both gradients, because inductor copies a computed operand for each op that takes the operand.
"""
import torch

from gemmd.torch import plain
from gemmd.torch.launch import launch
from gemmd.torch.shapes import Flags, gradient_rows, routed_rows

_lib = torch.library.Library("gemmd", "DEF")
_COMMON = "Tensor m_sizes, Tensor? gather_indices, int topk, bool permute_x, bool permute_y"
_SCHEMAS = {
    "grouped_gemm": f"(Tensor x, Tensor w, {_COMMON}) -> Tensor",
    "grouped_gemm_mul": f"(Tensor x, Tensor w, Tensor topk_weights, {_COMMON}) -> Tensor",
    "grouped_gemm_dx": f"(Tensor dy, Tensor w, {_COMMON}) -> Tensor",
    "grouped_gemm_dw": f"(Tensor dy, Tensor x, {_COMMON}) -> Tensor",
    "grouped_gemm_grads": f"(Tensor dy, Tensor x, Tensor w, {_COMMON}) -> (Tensor, Tensor)",
}
for _name, _schema in _SCHEMAS.items():
    _lib.define(_name + _schema, tags=(torch.Tag.pt2_compliant_tag,))


# ---- running -------------------------------------------------------------------------------------

def _forward(x, w, m_sizes, gather, topk, permute_x, permute_y):
    flags = Flags(topk, permute_x, permute_y)
    rows = routed_rows(x, flags)
    out = x.new_empty((rows, w.shape[1]))
    if rows == 0 or launch("forward", flags, rows, out, x, w, m_sizes, gather):
        return out
    return plain.forward(x, w, m_sizes, gather, flags)


def _forward_mul(x, w, weights, m_sizes, gather, topk, permute_x, permute_y):
    flags = Flags(topk, permute_x, permute_y)
    rows = routed_rows(x, flags)
    out = x.new_empty((rows, w.shape[1]))
    if rows == 0 or launch("forward", flags, rows, out, x, w, m_sizes, gather, weights):
        return out
    return plain.multiply(plain.forward(x, w, m_sizes, gather, flags), weights)


def _dx(dy, w, m_sizes, gather, topk, permute_x, permute_y):
    flags = Flags(topk, permute_x, permute_y)
    rows = gradient_rows(dy, gather, flags)
    out = dy.new_empty((rows, w.shape[2]))
    if rows == 0 or launch("dX", flags, rows, out, dy, w, m_sizes, gather):
        return out
    return plain.dx(dy, w, m_sizes, gather, flags)


def _dw(dy, x, m_sizes, gather, topk, permute_x, permute_y):
    flags = Flags(topk, permute_x, permute_y)
    rows = gradient_rows(dy, gather, flags)
    out = dy.new_empty((m_sizes.shape[0], dy.shape[1], x.shape[1]))
    if rows == 0:
        return out.zero_()
    if launch("dW", flags, rows, out, dy, x, m_sizes, gather):
        return out
    return plain.dw(dy, x, m_sizes, gather, flags)


def _grads(dy, x, w, *rest):
    dw = _dw(dy, x, *rest)  # first: its kernel may copy rows, and dx may be as large as the copy
    return _dx(dy, w, *rest), dw


# ---- on the CPU ----------------------------------------------------------------------------------

def check_sizes(rows, m_sizes, partial):
    """Refuses m_sizes that are no sizes of `rows` rows; `partial`: of some of them."""
    sizes = m_sizes.tolist()
    total, least = sum(sizes), min(sizes, default=0)
    if total > rows or least < 0 or (total < rows and not partial):
        raise ValueError(f"m_sizes is {total} rows in all, {least} at least: numbers from 0 on, whose "
                         f"sum is the {rows} routed rows")


def _check_values(rows, m_sizes, gather, flags):
    """Refuses values with which a CPU kernel would access foreign memory. The gradients get the
    same values, already checked. On a GPU the host would have to wait for the numbers."""
    check_sizes(rows, m_sizes, partial=True)
    if flags.permute_x or flags.permute_y:
        least, most = (int(i) for i in gather.aminmax())
        if least < 0 or most >= rows:
            raise ValueError(f"gather_indices is from {least} to {most}: there are {rows} routed "
                             "rows")
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


def _dx_checked(dy, w, m_sizes, gather, topk, permute_x, permute_y):
    """_dx after a check of gather_indices, a user's if forward has weights [experts, K, N], which runs as dX."""
    rows = dy.shape[0]
    if rows and (permute_x or permute_y):
        least, most = (int(i) for i in gather.aminmax())
        if least < 0 or most >= rows:
            raise ValueError(f"gather_indices is from {least} to {most}: there are {rows} rows")
    return _dx(dy, w, m_sizes, gather, topk, permute_x, permute_y)


# ---- for torch.compile ---------------------------------------------------------------------------

def _fake_forward(x, w, m_sizes, gather, topk, permute_x, permute_y):
    return x.new_empty((x.shape[0] * topk if permute_x else x.shape[0], w.shape[1]))


def _fake_forward_mul(x, w, weights, *rest):
    return _fake_forward(x, w, *rest)


def _fake_dx(dy, w, m_sizes, gather, topk, permute_x, permute_y):
    return dy.new_empty((gather.shape[0] if permute_y else dy.shape[0], w.shape[2]))


def _fake_dw(dy, x, m_sizes, gather, topk, permute_x, permute_y):
    return dy.new_empty((m_sizes.shape[0], dy.shape[1], x.shape[1]))


def _fake_grads(dy, x, w, *rest):
    return _fake_dx(dy, w, *rest), _fake_dw(dy, x, *rest)


for _name, _run, _on_cpu, _fake in (
        ("grouped_gemm", _forward, _checked(_forward), _fake_forward),
        ("grouped_gemm_mul", _forward_mul, _checked(_forward_mul), _fake_forward_mul),
        ("grouped_gemm_dx", _dx, _dx_checked, _fake_dx),
        ("grouped_gemm_dw", _dw, _dw, _fake_dw),
        ("grouped_gemm_grads", _grads, _grads, _fake_grads)):
    _lib.impl(_name, _on_cpu, "CPU")
    _lib.impl(_name, _run, "CUDA")
    torch.library.register_fake(f"gemmd::{_name}", _fake, lib=_lib)

# Names the overloads themselves, because PyTorch's packet of overloads searches at every call.
forward, forward_mul, dx, dw, grads = (getattr(torch.ops.gemmd, _name).default
                                       for _name in _SCHEMAS)
