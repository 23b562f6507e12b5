/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference on the CPU: the definition of the op, one element after the other, in double
 * precision. It shares nothing with the kernel's source, and asks the workload's own routing (not
 * the buffers that a kernel reads) which row is which.
 */
#include <math.h>
#include <string.h>

#include "kernels/families/grouped_gemm/cpu_target.h"

struct reference {
    const struct workload *workload;
    const struct grouped_gemm_state *state;
    const void *x, *w, *dy;
    double *out;
};

static double element(enum dtype t, const void *data, int64_t i)
{
    if (t == DTYPE_FP32) {
        float v;
        memcpy(&v, (const char *)data + i * 4, sizeof(v));
        return v;
    }
    uint16_t half;
    memcpy(&half, (const char *)data + i * 2, sizeof(half));
    if (t == DTYPE_BF16) {
        uint32_t wide = (uint32_t)half << 16;
        float v;
        memcpy(&v, &wide, sizeof(v));
        return v;
    }
    double sign = half >> 15 ? -1 : 1;
    int exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
    if (exponent == 0x1f) {
        return fraction ? NAN : sign * INFINITY;
    }
    return sign * (exponent ? ldexp(1 + fraction / 1024.0, exponent - 15)
                            : ldexp(fraction / 1024.0, -14));
}

/* To the nearest value with `digits` bits of significand, ties to even. */
static double round_to(double v, int digits)
{
    int exponent;
    double fraction = frexp(v, &exponent);
    return ldexp(nearbyint(ldexp(fraction, digits)), exponent - digits);
}

static double round_in(enum dtype t, double v)
{
    return t == DTYPE_BF16 ? round_to(v, 8) : t == DTYPE_FP16 ? round_to(v, 11)
                                                              : (double)(float)v;
}

/* Row i of x and dy, i in expert order. */
static int64_t x_row(const struct grouped_gemm_state *s, int64_t i)
{
    return s->view.gather_x ? s->gather[i] / s->view.topk : i;
}

static int64_t dy_row(const struct grouped_gemm_state *s, int64_t i)
{
    return s->view.gather_dy ? s->gather[i] : i;
}

static double forward(const struct reference *r, int64_t i, int64_t e, int64_t n)
{
    const struct grouped_gemm_problem *v = &r->state->view;
    double sum = 0;
    for (int64_t k = 0; k < v->k; k++) {
        sum += element(v->in, r->x, x_row(r->state, i) * v->k + k) *
               element(v->in, r->w, (e * v->n + n) * v->k + k);
    }
    if (v->fuse_mul_post) {
        double weight = round_in(v->in, r->state->weights[r->state->gather[i]]);
        sum = round_in(v->in, sum) * weight;
    }
    return sum;
}

static double dx(const struct reference *r, int64_t i, int64_t e, int64_t k)
{
    const struct grouped_gemm_problem *v = &r->state->view;
    double sum = 0;
    for (int64_t n = 0; n < v->n; n++) {
        sum += element(v->in, r->dy, dy_row(r->state, i) * v->n + n) *
               element(v->in, r->w, (e * v->n + n) * v->k + k);
    }
    return sum;
}

static double dw(const struct reference *r, int64_t e, int64_t n, int64_t k)
{
    const struct grouped_gemm_problem *v = &r->state->view;
    double sum = 0;
    for (int64_t i = r->state->start[e]; i < r->state->start[e + 1]; i++) {
        sum += element(v->in, r->dy, dy_row(r->state, i) * v->n + n) *
               element(v->in, r->x, x_row(r->state, i) * v->k + k);
    }
    return sum;
}

/* One check row. */
static void check_row(const void *params, uint32_t check)
{
    struct reference r;
    memcpy(&r, params, sizeof(r));
    const struct grouped_gemm_state *s = r.state;
    int64_t row = s->check_row[check], e = s->check_expert[check];
    int64_t length = r.workload->check_length;
    for (int64_t c = 0; c < length; c++) {
        r.out[check * length + c] = s->view.mode == GEMM_FORWARD ? forward(&r, row, e, c)
                                    : s->view.mode == GEMM_DX   ? dx(&r, row, e, c)
                                                                : dw(&r, e, row - e * s->view.n, c);
    }
}

int grouped_gemm_cpu_reference(const struct workload *w, void *const buffers[],
                               const int64_t *check_at, double *out, struct launch *launch,
                               struct error *err)
{
    (void)check_at; /* the state says what each check is */
    (void)err;
    struct reference r = {
        .workload = w,
        .state = w->state,
        .x = grouped_gemm_buffer(w, buffers, GEMM_X),
        .w = grouped_gemm_buffer(w, buffers, GEMM_W),
        .dy = grouped_gemm_buffer(w, buffers, GEMM_DY),
        .out = out,
    };
    *launch = (struct launch){.grid = {w->n_checks, 1, 1}, .cpu_entry = check_row};
    launch->params_bytes = sizeof(r);
    memcpy(launch->params, &r, sizeof(r));
    return 0;
}
