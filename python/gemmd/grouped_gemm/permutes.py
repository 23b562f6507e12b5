# SPDX-License-Identifier: Apache-2.0
"""permute() and unpermute() of grouped_gemm.ops, in PyTorch's own operations.

row_id_map has the form of grouped_gemm: [topk * tokens] int32, the permuted row of (slot, token) at
slot * tokens + token, or -1 for a row that was dropped. The sums add in fp32, slot by slot.
"""
import torch
from torch.autograd import Function

from gemmd.torch.launch import INDEX
from gemmd.torch.once import once_differentiable


def _rows_of_slots(rows, row_id_map, topk):
    """For each slot, the row of each token in fp32, [tokens, H]; zeros for a row that was dropped."""
    wide = torch.float64 if rows.dtype == torch.float64 else torch.float32
    for row in row_id_map.view(topk, -1):
        part = rows.index_select(0, row.clamp(min=0)).to(wide)
        yield torch.where((row >= 0).unsqueeze(-1), part, part.new_zeros(()))


def _sum_rows(rows, row_id_map, topk, probs):
    """[R, H] -> [tokens, H]: the sum of each token's rows, times probs [tokens, topk]."""
    total = 0
    for slot, part in enumerate(_rows_of_slots(rows, row_id_map, topk)):
        total = total + (part if probs is None else part * probs[:, slot, None])
    return total.to(rows.dtype)


def _source_of_rows(row_id_map, rows):
    """For each permuted row, [rows]: its index in row_id_map."""
    index = torch.where(row_id_map < 0, rows, row_id_map).long()
    places = torch.arange(row_id_map.shape[0], device=row_id_map.device)
    return index.new_zeros(rows + 1).scatter(0, index, places)[:rows]


class _Permute(Function):
    @staticmethod
    def forward(ctx, tokens, order, row_id_map, topk):
        ctx.save_for_backward(row_id_map)
        ctx.topk = topk
        return tokens.index_select(0, order // topk)

    @staticmethod
    @once_differentiable
    def backward(ctx, saved, grad):
        return _sum_rows(grad, saved[0], ctx.topk, None), None, None, None


class _Unpermute(Function):
    @staticmethod
    def forward(ctx, rows, row_id_map, probs, topk):
        ctx.save_for_backward(rows if probs is not None else None, row_id_map, probs)
        ctx.topk, ctx.rows = topk, rows.shape[0]
        return _sum_rows(rows, row_id_map, topk, probs)

    @staticmethod
    @once_differentiable
    def backward(ctx, saved, grad):
        rows, row_id_map, probs = saved
        drows = dprobs = None
        if ctx.needs_input_grad[0]:
            tokens = grad.shape[0]
            source = _source_of_rows(row_id_map, ctx.rows)
            drows = grad.index_select(0, source % tokens)
            if probs is not None:
                drows = (drows * probs.t().reshape(-1).index_select(0, source).unsqueeze(-1)).to(grad.dtype)
        if probs is not None and ctx.needs_input_grad[2]:
            dots = [(part * grad).sum(-1) for part in _rows_of_slots(rows, row_id_map, ctx.topk)]
            dprobs = torch.stack(dots, 1).to(probs.dtype)
        return drows, None, dprobs, None


def permute(input_act, indices, num_out_tokens=None, max_token_num=0):
    """Tokens in the order of their experts: (rows [R, H], row_id_map), with a gradient of input_act.

    input_act: [tokens, H]; indices: [tokens, topk] or [tokens], the experts of each token.
    num_out_tokens: R, when rows at the end are dropped; None or 0: tokens * topk. max_token_num is
    grouped_gemm's size of a workspace, and is not needed. ValueError for invalid arguments.
    """
    if input_act.dim() != 2 or indices.dim() not in (1, 2) or indices.shape[0] != input_act.shape[0]:
        raise ValueError(f"input_act is {tuple(input_act.shape)} and indices {tuple(indices.shape)}: "
                         "[tokens, columns] and [tokens, topk], or [tokens] for topk 1")
    if indices.dtype not in INDEX:
        raise ValueError(f"indices is {indices.dtype}: int32 or int64")
    indices = (indices if indices.dim() == 2 else indices.unsqueeze(1)).to(input_act.device)
    tokens, topk = indices.shape
    rows = num_out_tokens or tokens * topk
    if not 0 <= rows <= tokens * topk:
        raise ValueError(f"num_out_tokens is {num_out_tokens}: from 1 to the {tokens * topk} rows of {tokens} "
                         f"tokens with {topk} experts, or 0 for all")
    order = torch.argsort(indices.reshape(-1), stable=True)
    place = torch.arange(tokens * topk, device=order.device, dtype=torch.int32)
    place = torch.where(place < rows, place, -1)
    if not input_act.numel() or not topk:
        return input_act.reshape(-1)[:0].view(rows, input_act.shape[1]), place  # keeps the edge to input_act
    row_id_map = torch.empty_like(place).scatter(0, order % topk * tokens + order // topk, place)
    return _Permute.apply(input_act, order[:rows], row_id_map, topk), row_id_map


def unpermute(input_act, row_id_map, probs=None):
    """The sum over each token's rows, times probs: [tokens, H], with gradients of input_act and probs.

    input_act: [R, H] in the order of permute(); row_id_map: the second result of permute(); probs:
    [tokens, topk]. Without probs, each token has one row. ValueError for invalid arguments.
    """
    if probs is not None and probs.dim() != 2:
        raise ValueError(f"probs is {tuple(probs.shape)}: [tokens, topk]")
    if row_id_map is None and not input_act.numel():
        return input_act
    if input_act.dim() != 2 or row_id_map.dim() != 1 or row_id_map.dtype not in INDEX:
        raise ValueError(f"input_act is {tuple(input_act.shape)} and row_id_map {row_id_map.dtype} "
                         f"{tuple(row_id_map.shape)}: [rows, columns] and the second result of permute()")
    tokens, topk = (row_id_map.shape[0], 1) if probs is None else probs.shape
    if row_id_map.shape[0] != tokens * topk:
        raise ValueError(f"row_id_map has {row_id_map.shape[0]} numbers and probs is {tuple(probs.shape)}: "
                         "one number for each token and slot")
    row_id_map = row_id_map.to(input_act.device)
    if not input_act.numel():
        out = input_act.new_zeros((tokens, input_act.shape[1])) + input_act.sum()  # keeps the edge to input_act
        return out if probs is None else out + probs[:0].sum().to(out.device)
    probs = None if probs is None else probs.to(input_act.device, torch.float32)
    return _Unpermute.apply(input_act, row_id_map, probs, topk)
