/* SPDX-License-Identifier: Apache-2.0 */
/* Prototypes and numbers are written out, so that its headers are not needed to build. */
#include "kernels/devices/cuda/cublas.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct cublas_context *handle;

/* Of library_types.h and cublas_api.h. */
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
    void *library; /* borrowed: it stays open, as libraries with threads of their own must */
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

int cublas_open(CUstream stream, struct cublas **out, struct error *err)
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

void cublas_close(struct cublas *b)
{
    if (b && b->handle) {
        b->destroy(b->handle);
    }
    free(b);
}

int cublas_version(const struct cublas *b)
{
    int version = 0;
    return b->get_version(b->handle, &version) ? 0 : version;
}

static int cublas_type_of(enum dtype t)
{
    return t == DTYPE_BF16 ? CUDA_R_16BF : t == DTYPE_FP16 ? CUDA_R_16F : CUDA_R_32F;
}

int cublas_multiply(struct cublas *b, const struct dense_product *p, struct error *err)
{
    const float one = 1, beta = p->add ? 1 : 0;
    const int in = cublas_type_of(p->in);
    return cublas_check_status(
        b->gemm(b->handle, p->transpose_a ? OP_T : OP_N, p->transpose_b ? OP_T : OP_N, (int)p->m,
                (int)p->n, (int)p->k, &one, p->a, in, (int)p->lda, p->b, in, (int)p->ldb, &beta,
                p->c, cublas_type_of(p->out), (int)p->ldc, COMPUTE_32F, GEMM_DEFAULT),
        "multiplying with cuBLAS", err);
}
