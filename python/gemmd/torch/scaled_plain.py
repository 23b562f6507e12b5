# SPDX-License-Identifier: Apache-2.0
"""The maths of scaled.py in plain PyTorch, for a job without a kernel of gemmd's: quantises by the definition of
the op `quantise` (the same bytes), and multiplies dequantised operands in fp32.

The products read m_sizes on the host, so no CUDA graph can capture them.
"""
from typing import NamedTuple

import torch

BLOCK = 128
EPS = 1e-12  # least amax of a block
E4M3_MOST = 448.0


class Scaled(NamedTuple):
    """fp8 numbers with scales. The value of q[row, column] is q * scale[row / R, column / 128], R = 128 for
    weights and 1 for others; weights have a dimension of experts in front of both."""
    q: torch.Tensor
    scale: torch.Tensor


def ceil_to(n, step):
    return (n + step - 1) // step * step


def padded_columns(rows, experts):
    """Columns of a transposed copy in which each expert begins at a multiple of 128, for any rows of the experts."""
    return (rows + (BLOCK - 1) * min(rows, experts)) // BLOCK * BLOCK


def gather(x, of):
    """The rows of x that a scaled.Gather names."""
    return x if of is None else x.index_select(0, of.index.long() // of.topk)


# ---- quantise ------------------------------------------------------------------------------------

def _scale(amax, scale_type):
    most = torch.full_like(amax, E4M3_MOST)  # a tensor: PyTorch multiplies by the reciprocal of a number
    scale = amax.clamp(min=EPS) / most
    if scale_type == "pow2":
        bits = scale.view(torch.int32)  # scales are normal numbers, as EPS is
        scale = ((bits + 0x7FFFFF) & 0x7F800000).view(torch.float32)
    return scale


def _amax(x, dims):
    return torch.where(x.isfinite(), x.abs(), x.new_zeros(())).amax(dims)


def _encode(x, scale):
    """x in fp32, scale of the same dimensions -> e4m3."""
    q = (x * scale.reciprocal()).clamp(-E4M3_MOST, E4M3_MOST)
    # An infinite x stays infinite times the reciprocal, so the clamp gives +-448.
    bytes_ = q.to(torch.float8_e4m3fn).view(torch.uint8)
    return torch.where(q.isnan(), bytes_.new_full((), 0x7F), bytes_).view(torch.float8_e4m3fn)


def _pad(x, dims):
    """Zeros behind x, so that the sizes of the last `dims` dimensions are multiples of 128."""
    pad = []
    for size in x.shape[:-dims - 1:-1]:
        pad += [0, ceil_to(size, BLOCK) - size]
    return torch.nn.functional.pad(x, pad)


def quantise_rows(x, scale_type):
    rows, k = x.shape
    blocks = _pad(x.float(), 1).reshape(rows, -1, BLOCK)
    scale = _scale(_amax(blocks, 2), scale_type)
    return Scaled(_encode(blocks, scale.unsqueeze(2)).reshape(rows, -1)[:, :k].contiguous(), scale)


def quantise_whole_rows(x, scale_type):
    x = x.float()
    scale = _scale(_amax(x, 1), scale_type)
    return _encode(x, scale.unsqueeze(1)), scale


def _places(m_sizes, rows):
    """For each routed row its column in a transposed copy; rows that belong to no expert get the last column
    of all, which no expert has."""
    sizes = m_sizes.long()
    ends, room = sizes.cumsum(0), ((sizes + BLOCK - 1) // BLOCK * BLOCK)
    row = torch.arange(rows, device=m_sizes.device)
    expert = torch.searchsorted(ends, row, right=True)
    shift = torch.cat((room.cumsum(0) - room - (ends - sizes), room.new_zeros(1))).index_select(0, expert)
    wide = padded_columns(rows, m_sizes.shape[0])
    return torch.where(expert < m_sizes.shape[0], row + shift, torch.full_like(row, wide)), wide


def quantise_columns(x, m_sizes, scale_type):
    rows, k = x.shape
    places, wide = _places(m_sizes, rows)
    lines = torch.zeros((wide + 1, k), dtype=torch.float32, device=x.device).index_copy_(0, places, x.float())
    blocks = lines[:wide].reshape(-1, BLOCK, k)
    scale = _scale(_amax(blocks, 1), scale_type)
    return Scaled(_encode(blocks, scale.unsqueeze(1)).reshape(wide, k).t().contiguous(), scale.t())


def quantise_weights(w, scale_type):
    experts, n, k = w.shape
    padded = _pad(w.float(), 2)
    blocks = padded.reshape(experts, padded.shape[1] // BLOCK, BLOCK, padded.shape[2] // BLOCK, BLOCK)
    scale = _scale(_amax(blocks, (2, 4)), scale_type)
    q = _encode(blocks, scale[:, :, None, :, None]).reshape(padded.shape)[:, :n, :k].contiguous()
    return Scaled(q, scale), Scaled(q.transpose(1, 2).contiguous(), scale.transpose(1, 2))


# ---- products ------------------------------------------------------------------------------------

def _matmul(a, b):
    """a b^T in fp32, also under torch.autocast."""
    with torch.autocast(a.device.type, enabled=False):
        return a @ b.t()


def dequantise(t, row_block=1):
    """fp32 of a matrix; row_block: rows that share a scale."""
    rows, columns = t.q.shape
    scale = t.scale.repeat_interleave(row_block, 0)[:rows] if row_block > 1 else t.scale
    return t.q.float() * scale.repeat_interleave(BLOCK, 1)[:, :columns]


def _on_host(m_sizes):
    if m_sizes.is_cuda and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("gemmd: a CUDA graph captures an fp8 product only by a kernel of gemmd's, and there is none "
                           "yet: run a step before capturing")
    return m_sizes.tolist()


def _of_expert(w, e):
    return Scaled(w.q[e], w.scale[e])


def multiply(mode, a, b, m_sizes, index, flags):
    """forward or dX: a [.., summed], b [E, columns, summed] -> bf16 [T, columns]; rows of no expert get zeros."""
    gathers, scatters = flags.permute_x, flags.permute_y
    if mode == "dX":
        gathers, scatters = scatters, gathers
    rows = dequantise(a)
    if gathers:
        rows = rows.index_select(0, index.long() // (flags.topk if mode == "forward" else 1))
    out, at = rows.new_zeros((rows.shape[0], b.q.shape[1])), 0
    for e, size in enumerate([rows.shape[0]] if m_sizes is None else _on_host(m_sizes)):
        if size:
            out[at:at + size] = _matmul(rows[at:at + size], dequantise(_of_expert(b, e), BLOCK))
        at += size
    out = out.to(torch.bfloat16)
    return torch.empty_like(out).index_copy_(0, index.long(), out) if scatters else out


def multiply_dense(x, w):
    """x [M, K], w [N, K] with scales of 128 rows -> fp32 [M, N]."""
    return _matmul(dequantise(x), dequantise(w, BLOCK))


def multiply_columns(dy, x, m_sizes):
    """dW: dy [N, C], x [K, C] -> fp32 [E, N, K]."""
    out = torch.zeros((m_sizes.shape[0], dy.q.shape[0], x.q.shape[0]), dtype=torch.float32, device=dy.q.device)
    at = 0
    for e, size in enumerate(_on_host(m_sizes)):
        if size:
            columns, blocks = slice(at, at + size), slice(at // BLOCK, ceil_to(at + size, BLOCK) // BLOCK)
            out[e] = _matmul(*(dequantise(Scaled(t.q[:, columns], t.scale[:, blocks])) for t in (dy, x)))
        at += ceil_to(size, BLOCK)
    return out
