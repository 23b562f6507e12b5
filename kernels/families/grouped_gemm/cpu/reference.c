/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference on the CPU: the definition of the op, row by row, in double precision. It shares no
 * code with the kernel's source, and takes rows from the workload's own routing, not from the
 * buffers that a kernel reads.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/families/grouped_gemm/grouped_gemm.h"
#include "kernels/fp8.h"

struct reference {
    const struct workload *workload;
    const struct gemm_state *state;
    const void *x, *w, *dy;
    const float *x_scale, *w_scale, *dy_scale;
    double *out;
};

static double half_value(uint16_t half)
{
    double sign = half >> 15 ? -1 : 1;
    int exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
    if (exponent == 0x1f) {
        return fraction ? NAN : sign * INFINITY;
    }
    return sign *
           (exponent ? ldexp(1 + fraction / 1024.0, exponent - 15) : ldexp(fraction / 1024.0, -14));
}

/* Reads n elements of an operand from element `at` on, without rounding. */
static void reference_read_row(enum dtype t, const void *data, int64_t at, int64_t n, double *out)
{
    const uint16_t *halves = (const uint16_t *)data + at;
    if (t == DTYPE_FP32) {
        for (int64_t i = 0; i < n; i++) {
            out[i] = ((const float *)data)[at + i];
        }
    } else if (t == DTYPE_FP16) {
        for (int64_t i = 0; i < n; i++) {
            out[i] = half_value(halves[i]);
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            uint32_t wide = (uint32_t)halves[i] << 16;
            float v;
            memcpy(&v, &wide, sizeof(v));
            out[i] = v;
        }
    }
}

/* Rounds v to the nearest value with `digits` bits of significand, ties to even. */
static double round_to(double v, int digits)
{
    int exponent;
    double fraction = frexp(v, &exponent);
    return ldexp(nearbyint(ldexp(fraction, digits)), exponent - digits);
}

static double round_in(enum dtype t, double v)
{
    return t == DTYPE_BF16 ? round_to(v, 8) : t == DTYPE_FP16 ? round_to(v, 11) : (double)(float)v;
}

static int64_t x_row(const struct gemm_state *s, int64_t i)
{
    return s->view.gather_x ? s->gather[i] / s->view.topk : i;
}

static int64_t dy_row(const struct gemm_state *s, int64_t i)
{
    return s->view.gather_dy ? s->gather[i] : i;
}

/* Multiplies the results of row i by its routing weight. */
static void reference_weigh_row(const struct reference *r, int64_t i, double *out)
{
    const struct gemm *v = &r->state->view;
    for (int64_t n = 0; v->fuse_mul_post && n < v->n; n++) {
        double weight = round_in(v->out, r->state->weights[r->state->gather[i]]);
        out[n] = round_in(v->out, out[n]) * weight;
    }
}

/* ---- scaled operands ------------------------------------------------------------------------- */

/* A row of an operand that is summed over `length` columns from `first` on. */
struct scaled {
    const struct gemm_quant *quant;
    struct gemm_operand lies;
    const uint8_t *data; /* of the expert */
    const float *scales; /* of the expert */
    int64_t first, length;
    int64_t sum; /* number of the row's scale where the whole sum shares one */
};

static struct scaled scaled_of(const struct reference *r, enum gemm_buffer which, int64_t e)
{
    const struct gemm_state *s = r->state;
    const struct gemm *v = &s->view;
    const bool dw = v->mode == GEMM_DW;
    struct scaled o = {.quant = v->quant,
                       .data = which == GEMM_X   ? r->x
                               : which == GEMM_W ? r->w
                                                 : r->dy,
                       .scales = which == GEMM_X   ? r->x_scale
                                 : which == GEMM_W ? r->w_scale
                                                   : r->dy_scale,
                       .first = dw ? s->column[e] : 0,
                       .sum = dw ? e : 0};
    gemm_operand_describe(v, which, v->m, &o.lies);
    o.length = dw ? s->m_sizes[e] : o.lies.cols;
    if (which == GEMM_W) {
        o.data += e * o.lies.rows * o.lies.cols;
        o.scales += e * o.lies.scale_stride_expert;
    }
    return o;
}

static void scaled_read_row(const struct scaled *o, int64_t row, double *out)
{
    const uint8_t *data = o->data + row * o->lies.cols;
    const float *scales = o->scales + row / o->lies.scale_row_block * o->lies.scale_stride;
    for (int64_t i = 0; i < o->length; i++) {
        const int64_t at = o->first + i, sum = o->quant->sum_block;
        out[i] = (double)fp8_decode(data[at]) *
                 scales[(sum ? at / sum : o->sum) * o->lies.scale_stride_block];
    }
}

/* The check row `row` of expert e: with scaled operands every mode is a sum over a row of each. */
static void reference_row_scaled(const struct reference *r, int64_t row, int64_t e, double *a,
                                 double *b, double *out)
{
    const struct gemm_state *s = r->state;
    const enum gemm_mode mode = s->view.mode;
    const struct scaled left = scaled_of(r, mode == GEMM_FORWARD ? GEMM_X : GEMM_DY, e);
    const struct scaled right = scaled_of(r, mode == GEMM_DW ? GEMM_X : GEMM_W, e);
    scaled_read_row(&left,
                    mode == GEMM_FORWARD ? x_row(s, row)
                    : mode == GEMM_DX    ? dy_row(s, row)
                                         : row - e * s->view.n,
                    a);
    for (int64_t c = 0; c < s->view.out_cols; c++) {
        scaled_read_row(&right, c, b);
        for (int64_t i = 0; i < right.length; i++) {
            out[c] += a[i] * b[i];
        }
    }
    reference_weigh_row(r, row, out);
}

/* ---- other operands -------------------------------------------------------------------------- */

static void reference_row_forward(const struct reference *r, int64_t i, int64_t e, double *x,
                                  double *w, double *out)
{
    const struct gemm *v = &r->state->view;
    reference_read_row(v->in, r->x, x_row(r->state, i) * v->k, v->k, x);
    for (int64_t n = 0; n < v->n; n++) {
        reference_read_row(v->in, r->w, (e * v->n + n) * v->k, v->k, w);
        double sum = 0;
        for (int64_t k = 0; k < v->k; k++) {
            sum += x[k] * w[k];
        }
        out[n] = sum;
    }
    reference_weigh_row(r, i, out);
}

static void reference_row_dx(const struct reference *r, int64_t i, int64_t e, double *dy, double *w,
                             double *out)
{
    const struct gemm *v = &r->state->view;
    reference_read_row(v->in, r->dy, dy_row(r->state, i) * v->n, v->n, dy);
    for (int64_t n = 0; n < v->n; n++) {
        reference_read_row(v->in, r->w, (e * v->n + n) * v->k, v->k, w);
        for (int64_t k = 0; k < v->k; k++) {
            out[k] += dy[n] * w[k];
        }
    }
}

static void reference_row_dw(const struct reference *r, int64_t e, int64_t n, double *x,
                             double *out)
{
    const struct gemm *v = &r->state->view;
    for (int64_t i = r->state->start[e]; i < r->state->start[e + 1]; i++) {
        double dy;
        reference_read_row(v->in, r->dy, dy_row(r->state, i) * v->n + n, 1, &dy);
        reference_read_row(v->in, r->x, x_row(r->state, i) * v->k, v->k, x);
        for (int64_t k = 0; k < v->k; k++) {
            out[k] += dy * x[k];
        }
    }
}

static void check_row(const void *params, uint32_t check)
{
    struct reference r;
    memcpy(&r, params, sizeof(r));
    const struct gemm_state *s = r.state;
    const struct gemm *v = &s->view;
    int64_t row = s->check_row[check], e = s->check_expert[check];
    int64_t length = r.workload->check_length, longest = v->n > v->k ? v->n : v->k;
    longest = longest > s->m_sizes[e] ? longest : s->m_sizes[e]; /* dW of scaled operands */
    double *out = r.out + check * length;
    double *a = malloc(2 * (size_t)longest * sizeof(*a)), *b = a + longest;
    for (int64_t c = 0; c < length; c++) {
        out[c] = a ? 0 : NAN; /* out of memory: no result can be right */
    }
    if (!a) {
        return;
    }
    if (v->quant->is_scaled) {
        reference_row_scaled(&r, row, e, a, b, out);
        free(a);
        return;
    }
    switch (v->mode) {
    case GEMM_FORWARD:
        reference_row_forward(&r, row, e, a, b, out);
        break;
    case GEMM_DX:
        reference_row_dx(&r, row, e, a, b, out);
        break;
    case GEMM_DW:
        reference_row_dw(&r, e, row - e * v->n, a, out);
        break;
    }
    free(a);
}

/* The workload's state holds the checks, too: check_at is not needed. */
int grouped_gemm_cpu_reference(const struct workload *w, void *const buffers[],
                               const int64_t *check_at, double *out, struct launch *launch,
                               struct error *err)
{
    struct reference r = {
        .workload = w,
        .state = w->state,
        .x = gemm_buffer(w, buffers, GEMM_X),
        .w = gemm_buffer(w, buffers, GEMM_W),
        .dy = gemm_buffer(w, buffers, GEMM_DY),
        .x_scale = gemm_buffer(w, buffers, GEMM_X_SCALE),
        .w_scale = gemm_buffer(w, buffers, GEMM_W_SCALE),
        .dy_scale = gemm_buffer(w, buffers, GEMM_DY_SCALE),
        .out = out,
    };
    *launch = (struct launch){.grid = {w->n_checks, 1, 1}, .cpu_entry = check_row};
    launch->params_bytes = sizeof(r);
    memcpy(launch->params, &r, sizeof(r));
    return 0;
}
