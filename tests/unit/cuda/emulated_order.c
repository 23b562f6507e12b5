/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bits of an output, from the order of summation that the config's exactness names. The
 * emulator rounds every sum to fp32, as this file does: so a kernel that adds up a row in another
 * order, or in an order that depends on the tile, gives other bits. Real tensor cores round less
 * often; tests/gpu/batch_invariant.py compares these.
 */
#include <stdio.h>
#include <string.h>

#include "tests/unit/cuda/emulated.h"

enum { STEP = 16, BLOCK = 64 }; /* terms of a wgmma or mma.sync, and of a block */

/* ---- operands ------------------------------------------------------------------------------- */

/* A value of 8 significant bits and a scale from 2^-6 to 2^5. */
static void roughen(struct test_case *c, struct matrix *m)
{
    for (int64_t i = 0; i < m->rows * m->cols; i++) {
        const uint64_t r = random_next(&c->random);
        const float f = (float)ldexp((double)(128 + r % 128), (int)(r >> 8 & 0xff) % 12 - 13);
        uint32_t bits;
        memcpy(&bits, &f, sizeof(bits));
        const uint32_t half = m->dtype == DTYPE_BF16 ? bits >> 16 : (bits - (112u << 23)) >> 13;
        ((uint16_t *)m->data)[i / m->cols * m->stride + i % m->cols] =
            (uint16_t)(half | (r >> 40 & 1) << 15);
    }
}

void case_roughen(struct test_case *c)
{
    roughen(c, &c->x);
    roughen(c, &c->w);
    roughen(c, &c->dy);
}

/* ---- sums ----------------------------------------------------------------------------------- */

/* The operands of a row of the output: A[l] * B[l], l below `length`. */
struct sum {
    const struct matrix *a, *b;
    int64_t a_row, b_row, b_col, length;
    bool b_is_column;
};

static float term(const struct sum *s, int64_t l)
{
    return (float)at(s->a, s->a_row, l) *
           (float)(s->b_is_column ? at(s->b, s->b_row + l, s->b_col) : at(s->b, s->b_row, l));
}

/* The sum of the terms [from, to), as the target's instruction takes them: wgmma adds 16 products,
 * then the sum before; mma.sync adds the products to the sum before. */
static float sum_range(const struct sum *s, int64_t from, int64_t to)
{
    float total = 0;
    for (int64_t l = from; l < to; l += STEP) {
        float step = 0;
        for (int64_t i = l; i < l + STEP && i < to; i++) {
#ifdef TARGET_HOPPER
            step += term(s, i);
#else
            total += term(s, i);
#endif
        }
        total += step;
    }
    return total;
}

/* The sum as `parts` thread blocks share it: whole blocks, as evenly as possible. */
static float sum_parts(const struct sum *s, int64_t parts)
{
    const int64_t blocks = (s->length + BLOCK - 1) / BLOCK;
    float total = 0;
    for (int64_t i = 0; i < parts; i++) {
        const int64_t from = i * blocks / parts * BLOCK, to = (i + 1) * blocks / parts * BLOCK;
        const float part = sum_range(s, from, to < s->length ? to : s->length);
        total = i == 0 ? part : total + part;
    }
    return total;
}

static double round_row(const struct test_case *c, int64_t row, float sum)
{
    const struct gemm *v = &c->v;
    const double rounded = round_to(v->in, sum);
    return v->fuse_mul_post ? round_to(v->in, rounded * round_to(v->in, c->weights[row])) : rounded;
}

static int64_t parts_of(const struct test_case *c)
{
    struct exactness exact;
    long parts = 1;
    TARGET.exactness(&c->problem, &c->config, &exact);
    const char *more = strchr(strchr(exact.order, ',') + 1, ',');
    assert_true(exact.runs && exact.batches);
    assert_true(!more || sscanf(more, ", %ld parts", &parts) == 1);
    return parts;
}

static int64_t compare_row(const struct test_case *c, int64_t e, int64_t i, int64_t parts)
{
    const struct gemm *v = &c->v;
    const bool forward = v->mode == GEMM_FORWARD;
    const int64_t row = v->scatter ? c->gather[i] : i;
    struct sum s = {.a = forward ? &c->x : &c->dy,
                    .b = &c->w,
                    .a_row = v->gather_x    ? c->gather[i] / v->topk
                             : v->gather_dy ? c->gather[i]
                                            : i,
                    .length = forward ? v->k : v->n,
                    .b_is_column = !forward};
    int64_t others = 0;
    for (int64_t col = 0; col < v->out_cols; col++) {
        s.b_row = e * v->n + (forward ? col : 0);
        s.b_col = col;
        const double want = round_row(c, row, sum_parts(&s, parts));
        const double got = at(&c->out, row, col);
        if (got != want) {
            fail_msg("%s: expert %d row %d column %d: %.9g, and its order gives %.9g", case_text(c),
                     (int)e, (int)row, (int)col, got, want);
        }
        others += parts > 1 && want != round_row(c, row, sum_parts(&s, 1));
    }
    return others;
}

int64_t case_compare_order(const struct test_case *c)
{
    const int64_t parts = parts_of(c);
    int64_t first = 0, others = 0;
    for (int64_t e = 0; e < c->v.experts; first += c->rows[e++]) {
        for (int64_t i = first; i < first + c->rows[e]; i++) {
            others += compare_row(c, e, i, parts);
        }
    }
    return others;
}
