/* SPDX-License-Identifier: Apache-2.0 */
/* The problem in cuBLAS, one product for each expert. All products are queued while the GPU spins,
 * and timed together. Products that compute the op's output are compared with the reference, as for
 * a candidate. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/devices/cuda/gpu.h"

/* ---- cuBLAS --------------------------------------------------------------------------------- */

/* gemmd opens cuBLAS at run time, where it exists. Its prototypes and numbers stand here, so that a
 * build needs no cuBLAS headers. */
typedef struct cublas_context *handle;

/* From library_types.h and cublas_api.h. */
enum { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
enum { OP_N = 0, OP_T = 1, COMPUTE_32F = 68, GEMM_DEFAULT = -1 };
enum { MAJOR_NEWEST = 14, MAJOR_OLDEST = 11 };

#define FUNCTIONS(X)                                                                               \
    X(create, "cublasCreate_v2", (handle *))                                                       \
    X(destroy, "cublasDestroy_v2", (handle))                                                       \
    X(set_stream, "cublasSetStream_v2", (handle, CUstream))                                        \
    X(get_version, "cublasGetVersion_v2", (handle, int *))                                         \
    X(gemm, "cublasGemmEx",                                                                        \
      (handle, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a,          \
       int type_a, int lda, const void *b, int type_b, int ldb, const void *beta, void *c,         \
       int type_c, int ldc, int compute, int algorithm))

struct cublas {
    void *library; /* borrowed: stays open, because the library has threads of its own */
    handle handle; /* owned */
#define X(member, symbol, parameters) int(*member) parameters;
    FUNCTIONS(X)
#undef X
};

static void *cublas_open_library(void)
{
    static const char *const folders[] = {"", "/usr/local/cuda/lib64/"};
    const char *named = getenv("GEMMD_LIBCUBLAS");
    void *library = NULL;
    char file[96];
    if (named && *named) {
        return dlopen(named, RTLD_NOW | RTLD_LOCAL);
    }
    for (int major = MAJOR_NEWEST; major >= MAJOR_OLDEST && !library; major--) {
        for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]) && !library; i++) {
            snprintf(file, sizeof(file), "%slibcublas.so.%d", folders[i], major);
            library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
        }
    }
    return library;
}

static bool cublas_load_symbols(struct cublas *b)
{
    bool all = true;
#define X(member, symbol, parameters)                                                              \
    *(void **)&b->member = dlsym(b->library, symbol);                                              \
    all = all && b->member;
    FUNCTIONS(X)
#undef X
    return all;
}

static int cublas_check_status(int status, const char *what, struct error *err)
{
    enum { ALLOC_FAILED = 3, NOT_SUPPORTED = 15 };
    int code = status == ALLOC_FAILED    ? ERROR_NO_MEMORY
               : status == NOT_SUPPORTED ? ERROR_RESOURCE
                                         : ERROR_INTERNAL;
    return status ? error_set(err, code, "%s: cuBLAS status %d", what, status) : 0;
}

static void cublas_close(struct cublas *b)
{
    if (b && b->handle) {
        b->destroy(b->handle);
    }
    free(b);
}

static int cublas_open(CUstream stream, struct cublas **out, struct error *err)
{
    struct cublas *b = calloc(1, sizeof(*b));
    *out = NULL;
    if (!b) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for cuBLAS");
    }
    b->library = cublas_open_library();
    int r = 0;
    if (!b->library || !cublas_load_symbols(b)) {
        r = error_set(err, ERROR_NO_DEVICE,
                      "libcublas.so was not found: install it (libcublas of the CUDA toolkit), or "
                      "set GEMMD_LIBCUBLAS to it");
    }
    r = r ? r : cublas_check_status(b->create(&b->handle), "starting cuBLAS", err);
    r = r ? r
          : cublas_check_status(b->set_stream(b->handle, stream), "giving cuBLAS a stream", err);
    if (r) {
        cublas_close(b);
        return r;
    }
    *out = b;
    return 0;
}

static int cublas_type_of(enum dtype t)
{
    return t == DTYPE_BF16 ? CUDA_R_16BF : t == DTYPE_FP16 ? CUDA_R_16F : CUDA_R_32F;
}

static int cublas_multiply(struct cublas *b, const struct dense_product *p, struct error *err)
{
    const float one = 1, beta = p->add ? 1 : 0;
    const int in = cublas_type_of(p->in);
    return cublas_check_status(
        b->gemm(b->handle, p->transpose_a ? OP_T : OP_N, p->transpose_b ? OP_T : OP_N, (int)p->m,
                (int)p->n, (int)p->k, &one, p->a, in, (int)p->lda, p->b, in, (int)p->ldb, &beta,
                p->c, cublas_type_of(p->out), (int)p->ldc, COMPUTE_32F, GEMM_DEFAULT),
        "multiplying with cuBLAS", err);
}

/* ---- the problem as products ----------------------------------------------------------------- */

struct products {
    struct cublas *cublas;                         /* owned */
    uint32_t n;                                    /* products for one copy of the buffers */
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
    /* Output that no product writes (experts without rows) must be zeros. */
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
        p.cublas->get_version(p.cublas->handle, &out->version); /* for example 130001 */
        out->products = p.n;
    }
    for (uint32_t copy = 0; copy < w->n_copies; copy++) {
        free(p.of[copy]);
    }
    cublas_close(p.cublas);
    return r;
}
