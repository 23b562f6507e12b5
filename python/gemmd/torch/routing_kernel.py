# SPDX-License-Identifier: Apache-2.0
"""The Triton kernels of gemmd::route, gemmd::route_grads and gemmd::sort_by_expert.

sort_by_expert takes four kernels: each program counts its items (a slot of a token) of each expert; the counts are added
up along the programs, and along the experts; then each program sorts its items and knows their places."""
import torch
import triton
import triton.language as tl

ELEMENTS = 4096  # tokens times experts of a program
TOKENS_MOST = 64
EXPERTS_MOST = 4096  # of a program with one token
ITEMS = 512  # of a program that sorts
SCAN = 1024  # counts that a program adds up in a step


@triton.jit
def _ordered(x, BITS: tl.constexpr):
    """Numbers of BITS bits as int32 in the same order; NaN is above all, -0 is 0."""
    if BITS == 16:
        bits, low = x.to(tl.int16, bitcast=True).to(tl.int32), 0x7FFF
    else:
        bits, low = x.to(tl.int32, bitcast=True), 0x7FFFFFFF
    wide = x.to(tl.float32)
    bits = tl.where(wide == wide, tl.where(wide == 0, 0, bits), low)
    return tl.where(bits < 0, bits ^ low, bits)


@triton.jit
def _number(ordered, DTYPE: tl.constexpr, BITS: tl.constexpr):
    """The inverse of _ordered(), in fp32."""
    if BITS == 16:
        return tl.where(ordered < 0, ordered ^ 0x7FFF, ordered).to(tl.int16).to(DTYPE, bitcast=True).to(tl.float32)
    else:
        return tl.where(ordered < 0, ordered ^ 0x7FFFFFFF, ordered).to(tl.float32, bitcast=True)


@triton.jit(do_not_specialize=["tokens", "experts"])
def _route(logits, weights, ids, tokens, experts, stride, TOPK: tl.constexpr, NORMALISE: tl.constexpr,
           SLOTS: tl.constexpr, TOKENS: tl.constexpr, EXPERTS: tl.constexpr, BITS: tl.constexpr):
    token = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    expert, slot = tl.arange(0, EXPERTS), tl.arange(0, SLOTS)
    there = (token < tokens)[:, None] & (expert < experts)[None, :]
    x = tl.load(logits + token[:, None] * stride + expert[None, :], mask=there, other=-float("inf"))
    # The number, and for equal numbers the lower expert: all keys of a token differ. With 16 bits a key has 32.
    KEY: tl.constexpr = tl.int32 if BITS == 16 else tl.int64
    least = tl.full([TOKENS, EXPERTS], 1, dtype=KEY) << (2 * BITS - 1)
    keys = (_ordered(x, BITS).to(KEY) << BITS) | (EXPERTS - 1 - expert)[None, :].to(KEY)
    keys = tl.where((expert < experts)[None, :], keys, least)
    best = tl.zeros([TOKENS, SLOTS], dtype=KEY)
    for k in range(TOPK):
        most = tl.max(keys, axis=1)
        best = tl.where((slot == k)[None, :], most[:, None], best)
        keys = tl.where(keys == most[:, None], least, keys)
    chosen = EXPERTS - 1 - (best & 0x7FFF)
    number = _number((best >> BITS).to(tl.int32), logits.dtype.element_ty, BITS)
    number = tl.where((slot < TOPK)[None, :], number, -float("inf"))
    largest = tl.max(number, axis=1)
    if NORMALISE:
        total = tl.sum(tl.exp(number - largest[:, None]), axis=1)
    else:
        total = tl.sum(tl.exp(x.to(tl.float32) - largest[:, None]), axis=1)
    at = token[:, None] * TOPK + slot[None, :]
    there = (token < tokens)[:, None] & (slot < TOPK)[None, :]
    tl.store(weights + at, tl.exp(number - largest[:, None]) / total[:, None], mask=there)
    tl.store(ids + at, chosen, mask=there)


@triton.jit(do_not_specialize=["tokens", "experts"])
def _route_grads(logits, weights, ids, dweights, dlogits, tokens, experts, stride, TOPK: tl.constexpr, NORMALISE: tl.constexpr,
                 SLOTS: tl.constexpr, TOKENS: tl.constexpr, EXPERTS: tl.constexpr):
    token = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    expert, slot = tl.arange(0, EXPERTS), tl.arange(0, SLOTS)
    at = token[:, None] * TOPK + slot[None, :]
    of_token = (token < tokens)[:, None] & (slot < TOPK)[None, :]
    weight = tl.load(weights + at, mask=of_token, other=0.0)
    mean = tl.sum(weight * tl.load(dweights + at, mask=of_token, other=0.0).to(tl.float32), axis=1)
    there = (token < tokens)[:, None] & (expert < experts)[None, :]
    out = tl.zeros([TOKENS, EXPERTS], dtype=tl.float32)
    for k in range(TOPK):
        k_there = token < tokens
        k_at = token * TOPK + k
        k_expert = tl.load(ids + k_at, mask=k_there, other=-1)
        k_weight = tl.load(weights + k_at, mask=k_there, other=0.0)
        k_grad = tl.load(dweights + k_at, mask=k_there, other=0.0).to(tl.float32)
        value = k_weight * (k_grad - mean) if NORMALISE else k_weight * k_grad
        out += tl.where(k_expert[:, None] == expert[None, :], value[:, None], 0.0)
    if not NORMALISE:
        x = tl.load(logits + token[:, None] * stride + expert[None, :], mask=there, other=-float("inf")).to(tl.float32)
        share = tl.exp(x - tl.max(x, axis=1)[:, None])
        out -= share / tl.sum(share, axis=1)[:, None] * mean[:, None]
    tl.store(dlogits + token[:, None] * experts + expert[None, :], out.to(dlogits.dtype.element_ty), mask=there)


@triton.jit
def _load_ids(ids, item, items, experts):
    """Each item's expert; `experts` for an expert of another rank, and behind the last item."""
    number = tl.load(ids + item, mask=item < items, other=-1)
    return tl.where((number >= 0) & (number < experts), number, experts).to(tl.int32)


@triton.jit(do_not_specialize=["items", "experts", "programs"])
def _count(ids, counts, firsts, items, experts, programs, ITEMS: tl.constexpr, EXPERTS: tl.constexpr):
    """Counts a program's items of each expert, and the items of lower experts."""
    item = tl.program_id(0) * ITEMS + tl.arange(0, ITEMS)
    expert = tl.arange(0, EXPERTS)
    found = tl.histogram(_load_ids(ids, item, items, experts), EXPERTS)
    behind = ITEMS - tl.minimum(items - tl.program_id(0) * ITEMS, ITEMS)
    found = tl.where(expert == experts, found - behind, found)
    at = expert * programs + tl.program_id(0)
    tl.store(counts + at, found, mask=expert <= experts)
    tl.store(firsts + at, tl.cumsum(found, axis=0) - found, mask=expert <= experts)


@triton.jit(do_not_specialize=["programs"])
def _add_up(counts, m_sizes, programs, SCAN: tl.constexpr):
    """Replaces an expert's counts by the sums of the counts before each."""
    first = counts + tl.program_id(0) * programs
    total, begin = 0, 0
    while begin < programs:
        at = begin + tl.arange(0, SCAN)
        count = tl.load(first + at, mask=at < programs, other=0)
        tl.store(first + at, total + tl.cumsum(count, axis=0) - count, mask=at < programs)
        total += tl.sum(count, axis=0)
        begin += SCAN
    tl.store(m_sizes + tl.program_id(0), total)


@triton.jit(do_not_specialize=["experts"])
def _begin(m_sizes, begins, experts, EXPERTS: tl.constexpr):
    """The row at which each expert begins."""
    expert = tl.arange(0, EXPERTS)
    sizes = tl.load(m_sizes + expert, mask=expert <= experts, other=0)
    tl.store(begins + expert, tl.cumsum(sizes, axis=0) - sizes, mask=expert <= experts)


@triton.jit(do_not_specialize=["items", "experts", "programs"])
def _place(ids, counts, firsts, begins, gather, items, experts, programs, ITEMS: tl.constexpr):
    """Sorts a program's items by expert, and writes them to their places behind the programs before."""
    place = tl.arange(0, ITEMS)
    item = tl.program_id(0) * ITEMS + place
    expert = _load_ids(ids, item, items, experts)
    order = tl.sort(tl.where(item < items, expert, experts + 1) * ITEMS + place)
    expert = order // ITEMS
    there = expert <= experts
    at = expert * programs + tl.program_id(0)
    to = tl.load(begins + expert, mask=there, other=0) + tl.load(counts + at, mask=there, other=0)
    to += place - tl.load(firsts + at, mask=there, other=0)
    tl.store(gather + to, tl.program_id(0) * ITEMS + order % ITEMS, mask=there)


def _shape(tokens, experts):
    """Returns (number of programs, constants) of a launch."""
    wide = triton.next_power_of_2(experts)
    step = min(max(ELEMENTS // wide, 1), TOKENS_MOST)
    return triton.cdiv(tokens, step), {"TOKENS": step, "EXPERTS": wide, "num_warps": 4}


def launch_route(logits, weights, ids, normalise):
    """Fills weights [tokens, topk] fp32 and ids [tokens, topk] int64 from logits [tokens, experts], whose columns lie
    side by side."""
    (tokens, experts), topk = logits.shape, ids.shape[1]
    programs, constants = _shape(tokens, experts)
    _route[(programs,)](logits, weights, ids, tokens, experts, logits.stride(0), topk, NORMALISE=normalise,
                        SLOTS=triton.next_power_of_2(topk), BITS=8 * logits.element_size(), **constants)


def launch_route_grads(logits, weights, ids, dweights, dlogits, normalise):
    """Fills dlogits [tokens, experts]. Arguments as of launch_route(); dweights [tokens, topk], contiguous; logits None
    with `normalise`."""
    (tokens, experts), topk = dlogits.shape, ids.shape[1]
    programs, constants = _shape(tokens, experts)
    _route_grads[(programs,)](logits, weights, ids, dweights, dlogits, tokens, experts,
                              0 if logits is None else logits.stride(0), topk, NORMALISE=normalise,
                              SLOTS=triton.next_power_of_2(topk), **constants)


def launch_sort(ids, m_sizes, gather):
    """Fills m_sizes [experts + 1] and gather [items], int32, from ids [items], contiguous. The last size is that of
    other ranks."""
    items, experts = ids.shape[0], m_sizes.shape[0] - 1
    programs, wide = triton.cdiv(items, ITEMS), triton.next_power_of_2(experts + 1)
    counts, firsts = m_sizes.new_empty((2, experts + 1, programs))
    begins = torch.empty_like(m_sizes)
    _count[(programs,)](ids, counts, firsts, items, experts, programs, ITEMS=ITEMS, EXPERTS=wide, num_warps=4)
    _add_up[(experts + 1,)](counts, m_sizes, programs, SCAN=SCAN, num_warps=4)
    _begin[(1,)](m_sizes, begins, experts, EXPERTS=wide, num_warps=4)
    _place[(programs,)](ids, counts, firsts, begins, gather, items, experts, programs, ITEMS=ITEMS, num_warps=4)
