/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The problem by cuBLAS, a product for each expert: all are queued while the GPU spins, and timed
 * from the first one's begin to the last one's end. Nothing is waited for in between. Where the
 * products compute what the op does, they are compared with the reference, as any candidate is.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/devices/cuda/cublas.h"
#include "kernels/devices/cuda/gpu.h"

struct products {
    struct cublas *cublas;                         /* owned */
    uint32_t n;                                    /* of one copy */
    struct dense_product *of[PREPARED_COPIES_MAX]; /* owned */
    bool exact;
};

static int cuda_baseline_queue(void *ctx, uint32_t copy, struct error *err)
{
    const struct products *p = ctx;
    int r = 0;
    for (uint32_t i = 0; i < p->n && r == 0; i++) {
        r = cublas_multiply(p->cublas, &p->of[copy][i], err);
    }
    return r;
}

static int cuda_baseline_list_products(const struct prepared *w, struct products *p,
                                       struct error *err)
{
    const struct workload *load = &w->workload;
    p->n = load->family->products(load, w->buffers[0], NULL, 0, &p->exact);
    if (p->n == 0) {
        return error_set(err, ERROR_NO_CONFIG, "this routing is no sum of dense products");
    }
    for (uint32_t copy = 0; copy < w->n_copies; copy++) {
        p->of[copy] = calloc(p->n ? p->n : 1, sizeof(*p->of[copy]));
        if (!p->of[copy]) {
            return error_set(err, ERROR_NO_MEMORY, "no memory for %u products", p->n);
        }
        load->family->products(load, w->buffers[copy], p->of[copy], p->n, &p->exact);
    }
    return 0;
}

static int cuda_baseline_verify(struct device *d, const struct prepared *w, struct products *p,
                                const struct tolerance *tol, double *max_error, struct error *err)
{
    const uint32_t output = w->workload.output;
    struct verdict v;
    *max_error = NAN;
    if (!p->exact || w->workload.n_checks == 0) {
        return 0;
    }
    /* Output that no product writes (of experts without rows) is to be zeros. */
    int r = prepared_poison(d, w, err);
    r = r ? r : prepared_fill(d, w, output, w->buffers[0][output], err);
    r = r ? r : cuda_baseline_queue(p, 0, err);
    r = r ? r : prepared_judge(d, w, tol, &v, err);
    if (r == 0 && !v.right) {
        r = error_set(err, ERROR_WRONG_RESULT, "cuBLAS: %s", v.text);
    }
    *max_error = r ? NAN : v.max_error;
    return r;
}

int cuda_baseline(struct device *d, struct prepared *w, const struct tolerance *tol,
                  const struct timing *t, struct baseline *out, double *samples_us, uint32_t *n,
                  struct error *err)
{
    struct products p = {0};
    *n = 0;
    if (!w->workload.family->products) {
        return error_set(err, ERROR_NO_DEVICE, "op %s is no sum of dense products",
                         w->workload.problem.op_name);
    }
    *out = (struct baseline){.library = "cublas"};
    int r = cublas_open(w->stream, &p.cublas, err);
    r = r ? r : cuda_baseline_list_products(w, &p, err);
    r = r ? r : cuda_baseline_verify(d, w, &p, tol, &out->max_error, err);
    const struct prepared_work work = {.launches = p.n, .queue = cuda_baseline_queue, .ctx = &p};
    r = r ? r : prepared_samples(d, w, &work, t, samples_us, n, err);
    if (r == 0) {
        out->version = cublas_version(p.cublas);
        out->products = p.n;
    }
    for (uint32_t copy = 0; copy < w->n_copies; copy++) {
        free(p.of[copy]);
    }
    cublas_close(p.cublas);
    return r;
}
