/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels in a job: loaded into the job's own context, and launched through the same
 * kernels/launcher.h that measured them. A loaded kernel needs no daemon and no handle.
 */
#include <stdlib.h>

#include "client/handle.h"
#include "client/kernel.h"
#include "kernels/launcher.h"

/* gemmd.h repeats the launch ABI for its users: these keep the two one. */
#define SAME_FIELD(f)                                                                              \
    _Static_assert(offsetof(struct gemmd_grouped_gemm_args, f) ==                                  \
                           offsetof(struct grouped_gemm_args, f) &&                                \
                       sizeof(((struct gemmd_grouped_gemm_args *)0)->f) ==                         \
                           sizeof(((struct grouped_gemm_args *)0)->f),                             \
                   "gemmd.h: struct gemmd_grouped_gemm_args." #f)
SAME_FIELD(size);
SAME_FIELD(flags);
SAME_FIELD(x);
SAME_FIELD(w);
SAME_FIELD(dy);
SAME_FIELD(out);
SAME_FIELD(x_stride);
SAME_FIELD(w_stride);
SAME_FIELD(w_stride_expert);
SAME_FIELD(dy_stride);
SAME_FIELD(out_stride);
SAME_FIELD(out_stride_expert);
SAME_FIELD(m_sizes);
SAME_FIELD(gather_indices);
SAME_FIELD(topk_weights);
SAME_FIELD(m_sizes_dtype);
SAME_FIELD(gather_dtype);
SAME_FIELD(weights_dtype);
SAME_FIELD(reserved);
SAME_FIELD(rows);
SAME_FIELD(workspace);
SAME_FIELD(workspace_bytes);
SAME_FIELD(stream);
_Static_assert(sizeof(struct gemmd_grouped_gemm_args) == sizeof(struct grouped_gemm_args),
               "gemmd.h: struct gemmd_grouped_gemm_args");
_Static_assert((int)GEMMD_BF16 == (int)DTYPE_BF16 && (int)GEMMD_FP16 == (int)DTYPE_FP16 &&
                   (int)GEMMD_FP32 == (int)DTYPE_FP32 && (int)GEMMD_INT32 == (int)DTYPE_INT32 &&
                   (int)GEMMD_INT64 == (int)DTYPE_INT64,
               "gemmd.h: enum gemmd_dtype");
_Static_assert((int)GEMMD_ACCUMULATE == (int)GROUPED_GEMM_ACCUMULATE, "gemmd.h: GEMMD_ACCUMULATE");

struct gemmd_kernel {
    struct launcher *launcher; /* owned */
};

int kernel_make(const struct problem *p, const struct record *config, const void *image,
                size_t size, struct gemmd_kernel **out, struct error *err)
{
    const struct family *f = family_of_problem(p);
    if (!f) {
        return error_set(err, ERROR_UNKNOWN_OP,
                         "kernels of op %s cannot be launched by this library", p->op_name);
    }
    struct gemmd_kernel *k = calloc(1, sizeof(*k));
    if (!k) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a kernel");
    }
    int r = launcher_new(f, p, config, image, size, NULL, &k->launcher, err);
    *out = r == 0 ? k : gemmd_kernel_free(k);
    return r;
}

struct gemmd_kernel *gemmd_kernel_free(struct gemmd_kernel *k)
{
    if (k) {
        launcher_free(k->launcher);
        free(k);
    }
    return NULL;
}

static int check_launch(const struct gemmd_kernel *k, const struct gemmd_grouped_gemm_args *args,
                        struct error *err)
{
    if (!k || !args) {
        return error_set(err, ERROR_INVALID, "there is no %s (NULL)", k ? "args" : "kernel");
    }
    return 0;
}

int gemmd_kernel_workspace(struct gemmd_kernel *k, const struct gemmd_grouped_gemm_args *args,
                           int64_t *bytes, struct gemmd_error *err)
{
    struct error e;
    int r = check_launch(k, args, &e);
    if (r == 0 && !bytes) {
        r = error_set(&e, ERROR_INVALID, "there is no place for the bytes (NULL)");
    }
    r = r ? r : launcher_workspace(k->launcher, args, bytes, &e);
    return handle_result(r, &e, err);
}

int gemmd_kernel_launch(struct gemmd_kernel *k, const struct gemmd_grouped_gemm_args *args,
                        struct gemmd_error *err)
{
    struct error e;
    int r = check_launch(k, args, &e);
    r = r ? r : launcher_launch(k->launcher, args, &e);
    return handle_result(r, &e, err);
}
