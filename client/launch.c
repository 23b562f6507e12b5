/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels in a job: loaded into the job's own context, and launched through the same
 * kernels/launcher.h that measured them. A loaded kernel needs no daemon and no handle.
 */
#include "client/handle.h"
#include "client/kernel.h"
#include "kernels/launcher.h"

/* A kernel of gemmd.h is a launcher. */
static struct launcher *kernel_get_launcher(struct gemmd_kernel *k)
{
    return (struct launcher *)(void *)k;
}

int kernel_make(const struct problem *p, const struct record *config, const void *image,
                size_t size, struct gemmd_kernel **out, struct error *err)
{
    const struct family *f = family_of_problem(p);
    struct launcher *l = NULL;
    int r = f ? launcher_new(f, p, config, image, size, NULL, &l, err)
              : error_set(err, ERROR_UNKNOWN_OP,
                          "kernels of op %s cannot be launched by this library", p->op_name);
    *out = (struct gemmd_kernel *)(void *)l;
    return r;
}

struct gemmd_kernel *gemmd_kernel_free(struct gemmd_kernel *k)
{
    launcher_free(kernel_get_launcher(k));
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
    r = r ? r : launcher_workspace(kernel_get_launcher(k), args, bytes, &e);
    return handle_result(r, &e, err);
}

int gemmd_kernel_launch(struct gemmd_kernel *k, const struct gemmd_grouped_gemm_args *args,
                        struct gemmd_error *err)
{
    struct error e;
    int r = check_launch(k, args, &e);
    r = r ? r : launcher_launch(kernel_get_launcher(k), args, &e);
    return handle_result(r, &e, err);
}
