# SPDX-License-Identifier: Apache-2.0
"""A plain Triton matrix product, as a user writes it: the kernel of triton_ranks.py."""
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BM": m, "BN": n, "BK": k}, num_warps=w, num_stages=s)
           for m, n, k, w, s in ((64, 64, 32, 4, 3), (64, 128, 32, 4, 3), (128, 64, 64, 4, 3),
                                 (128, 128, 32, 8, 3), (128, 128, 64, 8, 3), (128, 256, 64, 8, 3),
                                 (64, 256, 64, 8, 4), (256, 256, 64, 8, 5))]


@triton.jit
def multiply(a, b, out, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for at in range(0, k, BK):
        x = tl.load(a + rows[:, None] * k + (at + inner)[None, :])
        y = tl.load(b + (at + inner)[:, None] * n + cols[None, :])
        acc += tl.dot(x, y)
    tl.store(out + rows[:, None] * n + cols[None, :], acc.to(out.dtype.element_ty))


def make(autotune):
    return autotune(configs=CONFIGS, key=["m", "n", "k"])(multiply)


def launch(product, a, b, out):
    (m, k), n = a.shape, b.shape[1]
    product[lambda meta: (triton.cdiv(m, meta["BM"]), triton.cdiv(n, meta["BN"]))](
        a, b, out, m, n, k)
