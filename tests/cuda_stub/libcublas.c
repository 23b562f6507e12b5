/* SPDX-License-Identifier: Apache-2.0 */
/* The stub of libcublas (stub.h). GPU memory is host memory, and cublasGemmEx computes at once, in
 * fp32. Inputs must be bf16, the output bf16 or fp32. */
#include <stdint.h>

#include "tests/cuda_stub/stub.h"

typedef int result;
enum { CUDA_R_32F = 0, CUDA_R_16BF = 14, NOT_SUPPORTED = 15 };
static int stub_calls;
static char handle_of_stub;

#define MAY_FAIL() STUB_MAY_FAIL(result)

STUB_EXPORT result cublasCreate_v2(void **handle);
STUB_EXPORT result cublasCreate_v2(void **handle)
{
    MAY_FAIL();
    *handle = &handle_of_stub;
    return 0;
}

STUB_EXPORT result cublasDestroy_v2(void *handle);
STUB_EXPORT result cublasDestroy_v2(void *handle)
{
    (void)handle;
    return 0;
}

STUB_EXPORT result cublasSetStream_v2(void *handle, void *stream);
STUB_EXPORT result cublasSetStream_v2(void *handle, void *stream)
{
    (void)handle, (void)stream;
    MAY_FAIL();
    return 0;
}

STUB_EXPORT result cublasGetVersion_v2(void *handle, int *version);
STUB_EXPORT result cublasGetVersion_v2(void *handle, int *version)
{
    (void)handle;
    *version = 130001;
    return 0;
}

static float get(const void *data, int type, int64_t at)
{
    if (type == CUDA_R_32F) {
        return ((const float *)data)[at];
    }
    uint32_t bits = (uint32_t)((const uint16_t *)data)[at] << 16;
    float v;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

static void put(void *data, int type, int64_t at, float v)
{
    uint32_t bits;
    if (type == CUDA_R_32F) {
        ((float *)data)[at] = v;
        return;
    }
    memcpy(&bits, &v, sizeof(bits));
    ((uint16_t *)data)[at] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

STUB_EXPORT result cublasGemmEx(void *handle, int op_a, int op_b, int m, int n, int k,
                                const float *alpha, const void *a, int type_a, int lda,
                                const void *b, int type_b, int ldb, const float *beta, void *c,
                                int type_c, int ldc, int compute, int algorithm);
STUB_EXPORT result cublasGemmEx(void *handle, int op_a, int op_b, int m, int n, int k,
                                const float *alpha, const void *a, int type_a, int lda,
                                const void *b, int type_b, int ldb, const float *beta, void *c,
                                int type_c, int ldc, int compute, int algorithm)
{
    (void)handle, (void)compute, (void)algorithm;
    MAY_FAIL();
    const char *us = getenv("GEMMD_STUB_CUBLAS_US");
    if (us) {
        setenv(STUB_TIME, us, 1); /* the libcuda stub reads STUB_TIME as the measured time */
    }
    if (type_a != CUDA_R_16BF || type_b != CUDA_R_16BF) {
        return NOT_SUPPORTED;
    }
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < m; i++) {
            float sum = 0;
            for (int64_t l = 0; l < k; l++) {
                sum += get(a, type_a, op_a ? l + i * lda : i + l * lda) *
                       get(b, type_b, op_b ? j + l * ldb : l + j * ldb);
            }
            float old = *beta != 0 ? *beta * get(c, type_c, i + j * ldc) : 0;
            put(c, type_c, i + j * ldc, *alpha * sum + old);
        }
    }
    return 0;
}
