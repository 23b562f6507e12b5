/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels in a job: the image of an answer, loaded into the job's own context, and launched through
 * the same kernels/launcher.h that measured it. A loaded kernel needs no daemon and no handle.
 */
#include <stdlib.h>
#include <string.h>

#include "client/answer.h"
#include "client/ask.h"
#include "client/handle.h"
#include "client/kernel.h"
#include "client/module.h"
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

/* The arguments that this library would lay out are those of its own kernels: an image that was
 * compiled from other sources might read them otherwise. Stamps say whose an image is. */
static int check_stamp(const struct problem *p, const char *stamp, struct error *err)
{
    const struct family *f = family_of_problem(p);
    char label[TARGET_MAX], own[STAMP_MAX];
    family_stamp_target(stamp, label);
    for (uint32_t i = 0; f && f->targets[i] && label[0]; i++) {
        if (strcmp(f->targets[i]->label, label) == 0) {
            family_stamp(f, f->targets[i], &(struct device_info){.kind = ""}, own);
            size_t n = strcspn(own, " ") + strlen(" abi=");
            n += strcspn(own + n, " ");
            return strncmp(own, stamp, n) == 0
                       ? 0
                       : error_set(err, ERROR_VERSION,
                                   "the kernel was compiled by a gemmd of other sources (%.40s; "
                                   "this library: %.*s): install one version of both, or compile "
                                   "it here",
                                   stamp, (int)n, own);
        }
    }
    return 0; /* an answer that says nothing, or an op that is not ours */
}

enum { STAMPED_SIZE = offsetof(struct gemmd_answer, stamp) + STAMP_MAX };

static bool was_measured(const struct gemmd_answer *answer)
{
    return strcmp(answer->tier, "exact") == 0;
}

static int fetch(struct gemmd *g, const struct problem *p, const struct gemmd_answer *answer,
                 struct gemmd_kernel **out, struct error *err)
{
    void *image = NULL;
    size_t size = 0;
    struct record config;
    int r = record_parse(&config, answer->config, err);
    r = r ? r : module_fetch(g, answer->module, &image, &size, err);
    r = r ? r : kernel_make(p, &config, image, size, out, err);
    free(image);
    return r;
}

/* The cache directory may have been emptied, or have had no room, when the answer was found. What is
 * compiled here is kept there too, so that whoever comes next finds it. */
static int make_again(const struct gemmd_problem *problem, const struct gemmd_answer *answer,
                      struct gemmd_kernel **out, struct error *err)
{
    struct error gone = *err;
    const char *target = answer->size >= STAMPED_SIZE ? answer->target : "";
    const char *device = !target[0] ? NULL : strcmp(target, "cpu") == 0 ? "cpu" : "cuda";
    int r = kernel_compile(device, problem, answer->config, out, err);
    return r ? error_set(err, gone.code, "%.200s; nor can it be compiled here: %.240s", gone.text,
                         err->text)
             : 0;
}

static int load(struct gemmd *g, const struct gemmd_problem *problem,
                const struct gemmd_answer *answer, struct gemmd_kernel **out, struct error *err)
{
    struct problem p;
    const char *stamp = answer->size >= STAMPED_SIZE ? answer->stamp : "";
    int r = ask_to_problem(problem, &p, err);
    r = r ? r : check_stamp(&p, stamp, err);
    if (r) {
        return r;
    }
    r = answer->module[0] ? fetch(g, &p, answer, out, err)
                          : error_set(err, ERROR_NOT_FOUND, "gemmd could not keep the kernel");
    return r == ERROR_NOT_FOUND && was_measured(answer) ? make_again(problem, answer, out, err) : r;
}

static int check(struct gemmd *g, const struct gemmd_answer *answer, struct gemmd_kernel **out,
                 struct error *err)
{
    if (!g) {
        return handle_enter(NULL, 0, err);
    }
    if (!out) {
        return error_set(err, ERROR_INVALID, "there is no place for the kernel (NULL)");
    }
    *out = NULL;
    int r = answer_check_size(answer, err);
    if (r == 0 && !answer->module[0] && !was_measured(answer)) {
        return error_set(err, ERROR_NOT_FOUND,
                         "the answer (tier %s) has no compiled kernel: ask gemmd "
                         "for one that was tuned, or see gemmd_kernel_compile",
                         answer->tier);
    }
    return r;
}

int gemmd_kernel_load(struct gemmd *g, const struct gemmd_problem *problem,
                      const struct gemmd_answer *answer, struct gemmd_kernel **out,
                      struct gemmd_error *err)
{
    struct error e;
    struct ask a;
    int r = check(g, answer, out, &e);
    r = r ? r : ask_problem(&a, problem, &e);
    r = r ? r : load(g, &a.problem, answer, out, &e);
    return handle_result(r, &e, err);
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
