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

struct reference {
    const struct workload *workload;
    const struct gemm_state *state;
    const void *x, *w, *dy;
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
    for (int64_t n = 0; v->fuse_mul_post && n < v->n; n++) {
        double weight = round_in(v->in, r->state->weights[r->state->gather[i]]);
        out[n] = round_in(v->in, out[n]) * weight;
    }
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
    double *out = r.out + check * length;
    double *a = malloc(2 * (size_t)longest * sizeof(*a)), *b = a + longest;
    for (int64_t c = 0; c < length; c++) {
        out[c] = a ? 0 : NAN; /* out of memory: no result can be right */
    }
    if (!a) {
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
        .out = out,
    };
    *launch = (struct launch){.grid = {w->n_checks, 1, 1}, .cpu_entry = check_row};
    launch->params_bytes = sizeof(r);
    memcpy(launch->params, &r, sizeof(r));
    return 0;
}
