/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLAS, opened at run time: of it only a dense product, to compare with. Its absence is fine. */
#ifndef GEMMD_KERNELS_DEVICES_CUDA_CUBLAS_H
#define GEMMD_KERNELS_DEVICES_CUDA_CUBLAS_H

#include "kernels/devices/cuda/driver.h"
#include "kernels/family.h"

struct cublas; /* a handle in the current context, on a stream */

/* ERROR_NO_DEVICE: it is not here, and how to get it. $GEMMD_LIBCUBLAS names another file. */
int cublas_open(CUstream stream, struct cublas **out, struct error *err);
void cublas_close(struct cublas *b);        /* NULL is fine */
int cublas_version(const struct cublas *b); /* 130001 */
/* Asynchronous. */
int cublas_multiply(struct cublas *b, const struct dense_product *p, struct error *err);

#endif
