/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completes a launch's args from a caller: copies them by their size, checks them against the
 * problem, and fills in dense strides. Every target's plan() begins here, so all give the same
 * error for a mistake. The pointers lead to device memory, which is not read.
 */
#include <stddef.h>
#include <string.h>

#include "kernels/families/grouped_gemm/grouped_gemm.h"

/* The end of the first version's last field: no caller has a smaller struct. */
enum { SIZE_LEAST = offsetof(struct grouped_gemm_args, stream) + sizeof(void *) };

static int copy_args(const void *args, struct grouped_gemm_args *out, struct error *err)
{
    uint32_t size;
    memcpy(&size, args, sizeof(size));
    if (size < SIZE_LEAST || size > 64 * 1024) {
        return error_set(err, ERROR_INVALID,
                         "args.size is %u: set it to sizeof(struct gemmd_grouped_gemm_args), %zu "
                         "bytes in this version",
                         size, sizeof(*out));
    }
    for (uint32_t i = sizeof(*out); i < size; i++) {
        if (((const uint8_t *)args)[i]) {
            return error_set(err, ERROR_INVALID,
                             "args come from a newer gemmd (%u bytes, %zu known here) and use a "
                             "field that this one does not know",
                             size, sizeof(*out));
        }
    }
    memset(out, 0, sizeof(*out));
    memcpy(out, args, size < sizeof(*out) ? size : sizeof(*out));
    out->size = sizeof(*out);
    return 0;
}

/* Without rows operands are not read, and empty tensors often have no address; dW is still
 * zeroed. */
static int gemm_args_check_pointers(const struct gemm *v, const struct grouped_gemm_args *a,
                                    struct error *err)
{
    static const char *const whys[] = {"mode forward needs it", "mode dX needs it",
                                       "mode dW needs it"};
    const char *mode = whys[v->mode];
    const bool some = a->rows != 0, dw = v->mode == GEMM_DW;
    const struct {
        bool needed;
        const void *pointer;
        const char *name, *why;
    } all[] = {
        {some || dw, a->out, "out", mode},
        {some && v->mode != GEMM_DX, a->x, "x", mode},
        {some && !dw, a->w, "w", mode},
        {some && v->mode != GEMM_FORWARD, a->dy, "dy", mode},
        {v->experts > 1, a->m_sizes, "m_sizes", "there is more than one expert"},
        {some && (v->permute_x || v->permute_y), a->gather_indices, "gather_indices",
         "the problem permutes"},
        {some && v->fuse_mul_post, a->topk_weights, "topk_weights",
         "fuse_mul_post multiplies by them"},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (all[i].needed && !all[i].pointer) {
            return error_set(err, ERROR_INVALID, "args.%s is NULL, but %s", all[i].name,
                             all[i].why);
        }
    }
    return 0;
}

static int check_index(const void *pointer, uint32_t dtype, const char *name, struct error *err)
{
    if (pointer && dtype != DTYPE_INT32 && dtype != DTYPE_INT64) {
        return error_set(err, ERROR_INVALID, "args.%s_dtype is %u: use %d (int32) or %d (int64)",
                         name, dtype, DTYPE_INT32, DTYPE_INT64);
    }
    return 0;
}

static int check_rest(const struct gemm *v, const struct grouped_gemm_args *a, struct error *err)
{
    if (a->rows < 0 || a->rows > GEMM_SIZE_MAX || a->rows % v->topk != 0) {
        return error_set(err, ERROR_INVALID,
                         "args.rows is %lld: give the routed rows, from 0 to %d and a multiple of "
                         "topk %lld",
                         (long long)a->rows, GEMM_SIZE_MAX, (long long)v->topk);
    }
    if (a->flags & ~(uint32_t)(GROUPED_GEMM_ACCUMULATE | GROUPED_GEMM_ENDS)) {
        return error_set(err, ERROR_INVALID,
                         "args.flags is 0x%x: only 0x%x (accumulate) and 0x%x (ends) are known",
                         a->flags, GROUPED_GEMM_ACCUMULATE, GROUPED_GEMM_ENDS);
    }
    if ((a->flags & GROUPED_GEMM_ACCUMULATE) && v->mode != GEMM_DW) {
        return error_set(err, ERROR_CONFLICT,
                         "args.flags asks to accumulate in mode %s: only dW can",
                         gemm_mode_name(v->mode));
    }
    if (v->fuse_mul_post && a->weights_dtype != DTYPE_FP32 && a->weights_dtype != v->in) {
        return error_set(err, ERROR_INVALID,
                         "args.weights_dtype is %u: use %d (fp32) or the input type, %d (%s)",
                         a->weights_dtype, DTYPE_FP32, v->in, dtype_name(v->in));
    }
    int r = check_index(a->m_sizes, a->m_sizes_dtype, "m_sizes", err);
    return r ? r : check_index(a->gather_indices, a->gather_dtype, "gather", err);
}

/* ---- strides --------------------------------------------------------------------------------- */

struct stride {
    int64_t *value;
    const char *name;
    int64_t dense; /* the stride that 0 means */
    int64_t least; /* least stride: with a smaller stride rows would overlap */
    size_t element;
};

static int set_stride(const struct stride *s, size_t align, struct error *err)
{
    *s->value = *s->value ? *s->value : s->dense;
    if (*s->value < s->least) {
        return error_set(err, ERROR_INVALID,
                         "args.%s is %lld: rows would overlap, use %lld or more, or 0 for dense",
                         s->name, (long long)*s->value, (long long)s->least);
    }
    if (*s->value > GEMM_ELEMENTS_MAX) {
        return error_set(err, ERROR_INVALID, "args.%s is %lld: at most 2^40 is supported", s->name,
                         (long long)*s->value);
    }
    if ((uint64_t)*s->value * s->element % align != 0) {
        return error_set(err, ERROR_INVALID,
                         "args.%s is %lld elements: this kernel needs a multiple of %zu bytes",
                         s->name, (long long)*s->value, align);
    }
    return 0;
}

static int check_align(const void *pointer, const char *name, size_t align, struct error *err)
{
    if ((uintptr_t)pointer % align != 0) {
        return error_set(err, ERROR_INVALID, "args.%s is %p: this kernel needs %zu-byte alignment",
                         name, pointer, align);
    }
    return 0;
}

/* A matrix of rows; where `expert` is not NULL, n rows for every expert. */
struct tensor {
    const void *data;
    const char *name, *row_name, *expert_name;
    int64_t *row, *expert;
    int64_t length; /* elements of a row */
    size_t element;
};

static int fill_tensor(const struct tensor *t, int64_t n, size_t align, struct error *err)
{
    struct stride row = {t->row, t->row_name, t->length, t->length, t->element};
    int r = set_stride(&row, align, err);
    if (!r && t->expert && *t->row > GEMM_ELEMENTS_MAX / (n > 0 ? n : 1)) {
        return error_set(
            err, ERROR_INVALID,
            "args.%s is %lld: an expert's %lld rows would lie within more than 2^40 elements",
            t->row_name, (long long)*t->row, (long long)n);
    }
    if (!r && t->expert) {
        struct stride expert = {t->expert, t->expert_name, n * *t->row,
                                (n - 1) * *t->row + t->length, t->element};
        r = set_stride(&expert, align, err);
    }
    return r ? r : check_align(t->data, t->name, align, err);
}

static int fill_strides(const struct gemm *v, struct grouped_gemm_args *a, size_t align,
                        struct error *err)
{
    size_t in = dtype_size(v->in), out = dtype_size(v->out);
    struct tensor x = {a->x, "x", "x_stride", NULL, &a->x_stride, NULL, v->k, in};
    struct tensor dy = {a->dy, "dy", "dy_stride", NULL, &a->dy_stride, NULL, v->n, in};
    struct tensor w = {a->w, "w", "w_stride", "w_stride_expert", &a->w_stride, &a->w_stride_expert,
                       v->k, in};
    struct tensor y = {a->out,         "out",
                       "out_stride",   "out_stride_expert",
                       &a->out_stride, v->mode == GEMM_DW ? &a->out_stride_expert : NULL,
                       v->out_cols,    out};
    int r = v->mode != GEMM_DX ? fill_tensor(&x, 0, align, err) : 0;
    r = r || v->mode == GEMM_DW ? r : fill_tensor(&w, v->n, align, err);
    r = r || v->mode == GEMM_FORWARD ? r : fill_tensor(&dy, 0, align, err);
    return r ? r : fill_tensor(&y, v->n, align, err);
}

int gemm_args_read(const struct gemm *v, const void *args, size_t align,
                   struct grouped_gemm_args *out, struct error *err)
{
    int r = copy_args(args, out, err);
    r = r ? r : gemm_args_check_pointers(v, out, err);
    r = r ? r : check_rest(v, out, err);
    return r ? r : fill_strides(v, out, align, err);
}
