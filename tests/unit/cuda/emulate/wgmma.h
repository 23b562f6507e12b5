/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wgmma: descriptors of shared memory, tiles of 64 rows and 16 elements along the sum, accumulators
 * as the lanes hold them.
 */
#ifndef GEMMD_TESTS_EMULATE_WGMMA_H
#define GEMMD_TESTS_EMULATE_WGMMA_H

#include "tests/unit/cuda/emulate/async.h"
#include "tests/unit/cuda/emulate/numbers.h"
#include "tests/unit/cuda/emulate/warp.h"

EMULATE_FAST
#if FP8
#include "tests/unit/cuda/emulate/wgmma_fp8.h"
#else
/* Reads an operand's element. A descriptor has no room for a rank, so `rank` names the
 * thread block whose shared memory it refers to. */
static float operand(int rank, uint64_t desc, int mn, int k, int transposed)
{
    const uint32_t start = (uint32_t)(desc & 0x3fff) << 4, lead = (uint32_t)(desc >> 16 & 0x3fff)
                                                                  << 4;
    const uint32_t stride = (uint32_t)(desc >> 32 & 0x3fff) << 4;
    uint32_t at = transposed ? start + (uint32_t)(mn / 64) * lead + (uint32_t)(k / 8) * stride +
                                   (uint32_t)(k % 8) * 128 + (uint32_t)(mn % 64) * 2
                             : start + (uint32_t)(mn / 8) * stride + (uint32_t)(mn % 8) * 128 +
                                   (uint32_t)k * 2;
    uint16_t v;
    if (desc >> 62 != 1 || (desc >> 49 & 7) || at + 2 > emulate.l.shared_bytes) {
        async_fail("a wgmma descriptor", desc);
        return 0;
    }
    memcpy(&v, async_.memory + rank * EMULATE_SHARED_MAX + swizzle_128(at), 2);
    return widen(v);
}

static void run_wgmma(const struct emulate_op *op)
{
    static float a[64][16], b[16][TILE_C];
    const int rank = op->actor / (int)(emulate.l.threads / 128);
    for (int k = 0; k < 16; k++) {
        for (int m = 0; m < 64; m++) {
            a[m][k] = operand(rank, op->a, m, k, A_TRANSPOSED);
        }
        for (int n = 0; n < op->columns; n++) {
            b[k][n] = operand(rank, op->b, n, k, B_TRANSPOSED);
        }
    }
    for (int m = 0; m < 64; m++) {
        float sum[TILE_C] = {0};
        for (int k = 0; k < 16; k++) {
            for (int n = 0; n < op->columns; n++) {
                sum[n] += a[m][k] * b[k][n];
            }
        }
        for (int n = 0; n < op->columns; n++) {
            float *d =
                op->d[m / 16 * 32 + m % 8 * 4 + n % 8 / 2] + n / 8 * 4 + m / 8 % 2 * 2 + n % 2;
            *d = (op->scale ? *d : 0) + sum[n];
        }
    }
}
#endif
EMULATE_FAST_END

static int wgmmas_until(const struct emulate_op *op, int actor, uint32_t group)
{
    return op->kind == OP_WGMMA && op->actor == actor && op->group < group;
}

/* The last of the warpgroup's 128 threads to arrive issues the operation for all. */
static void wgmma(float d[MMAS][ACCUMULATORS], int i, uint64_t a, uint64_t b, int scale,
                  int columns)
{
    const int wg = emulate.current / 128;
    struct emulate_meeting *m = &async_.warpgroups[wg];
#if FP8
    async_.d[emulate.current] = async_.temporary[i][emulate.current]; /* i: of the temporaries */
    if (!scale) { /* until the operation has run, the registers are undefined */
        memset(async_.temporary[i][emulate.current], 0xff, sizeof(async_.temporary[0][0]));
    }
#else
    async_.d[emulate.current] = d[i];
#endif
    if (m->arrived == 127) {
        struct emulate_op *op = new_op(OP_WGMMA, wg, async_.wgmmas[emulate.current]);
        op->a = a;
        op->b = b;
        op->scale = scale;
        op->columns = columns;
        memcpy(op->d, &async_.d[wg * 128], sizeof(op->d));
    }
    emulate_meet(m, 128, "wgmma");
}

static void wgmma_fence(void)
{
}

static void wgmma_commit(void)
{
    async_.wgmmas[emulate.current]++;
}

/* On a GPU each warp waits only for its own quarter of a wgmma; here for all of it. */
#define WGMMA_WAIT(pending)                                                                        \
    run_ops(wgmmas_until, emulate.current / 128,                                                   \
            async_.wgmmas[emulate.current] < (pending)                                             \
                ? 0                                                                                \
                : async_.wgmmas[emulate.current] - (pending))

static void wgmma_declare(void)
{
}

static void wgmma_settle(float d[MMAS][ACCUMULATORS], int i)
{
    (void)d;
    (void)i;
}

#endif
