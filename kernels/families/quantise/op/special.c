/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The drawn content of a workload: rows of the experts, the gather, and the first rows of x, which
 * have special values. Random values would never show a wrong rule for them.
 *
 * The first 128 special rows change their kind every 16 rows, so that blocks of a row have one
 * kind. The others change every 16 columns, so that blocks of a column have one kind. Weights
 * change with each block of 128 x 128. In mode whole_rows all of a row has one kind.
 */
#include <math.h>
#include <string.h>

#include "kernels/families/quantise/quantise.h"

/* ---- special values -------------------------------------------------------------------------- */

enum kind { NORMAL, ZEROS, SOME_NAN, SOME_INFINITY, TINY, HUGE_VALUES, EDGES, ANY_BITS, KINDS };

enum { BF16_NAN = 0x7fc1, BF16_INFINITY = 0x7f80, BF16_SIGN = 0x8000 };

static uint16_t special_round(double value)
{
    float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return (uint16_t)(bits >> 16);
}

/* Uniform in [-1, 1) times a power of two. */
static uint16_t special_scaled(uint64_t *random, int exponent)
{
    return special_round(ldexp(2 * random_unit(random) - 1, exponent));
}

/* `group`: counts the pieces of one kind, so that pieces of a kind differ. */
static uint16_t special_value(enum kind kind, int64_t group, uint64_t *random)
{
    const uint16_t sign = random_next(random) & 1 ? BF16_SIGN : 0;
    const bool rare = random_next(random) % 64 == 0;
    switch (kind) {
    case ZEROS:
        return sign;
    case SOME_NAN: /* every fourth piece is all NaN */
        return rare || group % 4 == 3 ? sign | BF16_NAN : special_scaled(random, 2);
    case SOME_INFINITY:
        return rare || group % 4 == 3 ? sign | BF16_INFINITY : special_scaled(random, -3);
    case TINY: /* about 1e-28, 1e-9 and 1e-40 */
        return special_scaled(random, group % 3 == 0 ? -93 : group % 3 == 1 ? -30 : -131);
    case HUGE_VALUES:
        return special_scaled(random, 127);
    case EDGES: /* 448 * 2^n, where the scale is a power of two, or the next number */
        return rare ? special_round(ldexp(group % 2 ? 448 : 450, (int)(group % 16) - 8))
                    : special_scaled(random, 0);
    case ANY_BITS:
        return (uint16_t)random_next(random);
    default:
        return special_scaled(random, (int)(group % 41) - 20);
    }
}

static void special_draw(struct quantise_state *s, uint64_t seed)
{
    uint64_t random = seed ^ 0x5be1a7;
    const int64_t k = s->view.k;
    for (int64_t row = 0; row < s->special_rows; row++) {
        for (int64_t col = 0; col < k; col++) {
            const int64_t block = col / QUANTISE_BLOCK;
            const int64_t group = s->view.mode == QUANTISE_WHOLE_ROWS ? row
                                  : s->view.mode == QUANTISE_WEIGHTS  ? row / QUANTISE_BLOCK + block
                                  : row < QUANTISE_BLOCK              ? row / 16 + block
                                                                      : col / 16;
            s->special[row * k + col] =
                special_value((enum kind)(group % KINDS), group / KINDS + row, &random);
        }
    }
}

/* ---- rows of the experts --------------------------------------------------------------------- */

/* Shares of half to three halves of the mean. The second of three or more experts has no rows; the
 * last has the rest. */
static void special_draw_sizes(struct quantise_state *s, uint64_t *random)
{
    const int64_t experts = s->view.experts, mean = s->view.m / experts;
    int64_t rest = s->view.m;
    for (int64_t e = 0; e < experts; e++) {
        int64_t rows = (int64_t)((0.5 + random_unit(random)) * (double)mean);
        rows = e == experts - 1 || rows > rest ? rest : e == 1 ? 0 : rows;
        s->m_sizes[e] = (int32_t)rows;
        rest -= rows;
    }
}

/* Deals the routed rows to the experts in random order; each expert lists its rows in ascending
 * order, as a router does. */
static int special_draw_gather(struct quantise_state *s, uint64_t *random, struct error *err)
{
    enum { EVERY = 1 << 22 };
    const int64_t experts = s->view.experts;
    int64_t next[GEMM_EXPERTS_MAX], rest[GEMM_EXPERTS_MAX], start = 0;
    for (int64_t e = 0; e < experts; e++) {
        next[e] = start;
        rest[e] = s->m_sizes[e];
        start += rest[e];
    }
    int64_t e = 0;
    for (int64_t i = 0; i < s->view.m; i++) {
        if (i % EVERY == 0 && host_work_check(err)) {
            return ERROR_CANCELLED;
        }
        e = (int64_t)(random_next(random) % (uint64_t)experts);
        while (rest[e] == 0) {
            e = (e + 1) % experts;
        }
        rest[e]--;
        s->gather[next[e]++] = (int32_t)i;
    }
    return 0;
}

int quantise_draw(struct quantise_state *s, uint64_t seed, struct error *err)
{
    uint64_t random = seed;
    special_draw(s, seed);
    special_draw_sizes(s, &random);
    return s->gather ? special_draw_gather(s, &random, err) : 0;
}
