/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completes a launch's args from a caller: copies them by their size, checks them against the
 * problem, and fills in dense strides. Every target's plan() begins here, so all give the same
 * error for a mistake. The pointers lead to device memory, which is not read.
 */
#include <stddef.h>
#include <string.h>

#include "kernels/args.h"
#include "kernels/families/grouped_gemm/grouped_gemm.h"

/* The end of the first version's last field: no caller has a smaller struct. */
enum { SIZE_LEAST = offsetof(struct grouped_gemm_args, stream) + sizeof(void *) };

/* An array of a launch: a matrix of rows, of every expert where `expert` is not NULL; or a list,
 * without strides. */
struct operand {
    bool present; /* this problem reads or writes the array */
    bool always;  /* the pointer must not be NULL even when the launch has no rows */
    const void *data;
    const char *name, *why;
    size_t element;        /* bytes */
    int64_t *row, *expert; /* strides, in elements */
    int64_t length;        /* elements of a row */
    int64_t rows;          /* of an expert's matrix */
};
enum { OPERANDS = 7 };

/* Without rows operands are not read, and empty tensors often have no address; dW is still
 * zeroed. */
static void list_operands(const struct gemm *v, struct grouped_gemm_args *a,
                          struct operand out[OPERANDS])
{
    static const char *const whys[] = {"mode forward needs it", "mode dX needs it",
                                       "mode dW needs it"};
    const char *mode = whys[v->mode];
    const bool dw = v->mode == GEMM_DW, permutes = v->permute_x || v->permute_y;
    struct gemm_operand x, w, dy;
    gemm_operand_describe(v, GEMM_X, a->rows, &x);
    gemm_operand_describe(v, GEMM_W, a->rows, &w);
    gemm_operand_describe(v, GEMM_DY, a->rows, &dy);
    const size_t in = dtype_size(v->in), size = dtype_size((enum dtype)a->m_sizes_dtype),
                 index = dtype_size((enum dtype)a->gather_dtype),
                 weight = dtype_size((enum dtype)a->weights_dtype);
    const struct operand all[OPERANDS] = {
        {true, dw, a->out, "out", mode, dtype_size(v->out), &a->out_stride,
         dw ? &a->out_stride_expert : NULL, v->out_cols, v->n},
        {v->mode != GEMM_DX, false, a->x, "x", mode, in, &a->x_stride, NULL, x.cols, x.rows},
        {!dw, false, a->w, "w", mode, in, &a->w_stride, &a->w_stride_expert, w.cols, w.rows},
        {v->mode != GEMM_FORWARD, false, a->dy, "dy", mode, in, &a->dy_stride, NULL, dy.cols,
         dy.rows},
        {v->experts > 1, true, a->m_sizes, "m_sizes", "there is more than one expert", size},
        {permutes, false, a->gather_indices, "gather_indices", "the problem permutes", index},
        {v->fuse_mul_post, false, a->topk_weights, "topk_weights",
         "fuse_mul_post multiplies by them", weight},
    };
    memcpy(out, all, sizeof(all));
}

static int gemm_args_check_pointers(const struct operand all[OPERANDS], bool rows,
                                    struct error *err)
{
    for (int i = 0; i < OPERANDS; i++) {
        if (all[i].present && (rows || all[i].always) && !all[i].data) {
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
    if (v->fuse_mul_post && a->weights_dtype != DTYPE_FP32 && a->weights_dtype != v->out) {
        return error_set(err, ERROR_INVALID,
                         "args.weights_dtype is %u: use %d (fp32) or the output's type, %d (%s)",
                         a->weights_dtype, DTYPE_FP32, v->out, dtype_name(v->out));
    }
    int r = check_index(a->m_sizes, a->m_sizes_dtype, "m_sizes", err);
    return r ? r : check_index(a->gather_indices, a->gather_dtype, "gather", err);
}

/* ---- strides --------------------------------------------------------------------------------- */

/* Sets a stride of 0 to `dense`. With a stride below `least` rows would overlap. */
static int set_stride(const struct operand *o, int64_t *stride, int64_t dense, int64_t least,
                      size_t align, struct error *err)
{
    const char *of = stride == o->expert ? "_expert" : "";
    *stride = *stride ? *stride : dense;
    if (*stride < least) {
        return error_set(err, ERROR_INVALID,
                         "args.%s_stride%s is %lld: rows would overlap, use %lld or more, or 0 for "
                         "dense",
                         o->name, of, (long long)*stride, (long long)least);
    }
    if (*stride > GEMM_ELEMENTS_MAX) {
        return error_set(err, ERROR_INVALID, "args.%s_stride%s is %lld: at most 2^40 is supported",
                         o->name, of, (long long)*stride);
    }
    if ((uint64_t)*stride * o->element % align != 0) {
        return error_set(err, ERROR_INVALID,
                         "args.%s_stride%s is %lld elements: this kernel needs a multiple of %zu "
                         "bytes",
                         o->name, of, (long long)*stride, align);
    }
    return 0;
}

static int fill_strides(const struct operand *o, size_t align, struct error *err)
{
    const int64_t n = o->rows;
    int r = set_stride(o, o->row, o->length, o->length, align, err);
    if (!r && o->expert && *o->row > GEMM_ELEMENTS_MAX / n) {
        return error_set(err, ERROR_INVALID,
                         "args.%s_stride is %lld: an expert's %lld rows would lie within more than "
                         "2^40 elements",
                         o->name, (long long)*o->row, (long long)n);
    }
    if (!r && o->expert) {
        r = set_stride(o, o->expert, n * *o->row, (n - 1) * *o->row + o->length, align, err);
    }
    if (!r && (uintptr_t)o->data % align != 0) {
        r = error_set(err, ERROR_INVALID, "args.%s is %p: this kernel needs %zu-byte alignment",
                      o->name, o->data, align);
    }
    return r;
}

/* Checks a list's address when `align` is above 1: the list's elements must be aligned to their
 * size. */
static int check_list(const struct operand *o, size_t align, struct error *err)
{
    if (align > 1 && o->element && (uintptr_t)o->data % o->element) {
        return error_set(err, ERROR_INVALID, "args.%s is %p: align it to its %zu-byte elements",
                         o->name, o->data, o->element);
    }
    return 0;
}

/* ---- scales ---------------------------------------------------------------------------------- */

/* The scales of an operand in the args. */
struct scales {
    enum gemm_buffer of;
    const char *name;
    bool present; /* the mode reads the operand */
    const void *data;
    int64_t *row, *block, *expert; /* strides; expert: NULL but for w */
};

/* Sets a stride of 0 to `dense`; other strides must be positive. */
static int scales_set_stride(const struct scales *s, const char *of, int64_t *stride, int64_t dense,
                             struct error *err)
{
    *stride = *stride ? *stride : dense;
    return *stride > 0 && *stride <= GEMM_ELEMENTS_MAX
               ? 0
               : error_set(err, ERROR_INVALID,
                           "args.%s_scale_stride%s is %lld: use 1 to 2^40, or 0 for dense", s->name,
                           of, (long long)*stride);
}

/* True if two scales would share an address. `rows` is not known where a launch gathers rows. */
static bool scales_overlap(const struct gemm_operand *o, const struct scales *s, bool gathered)
{
    const int64_t rows = gathered ? 1 : o->scale_rows, blocks = o->scale_blocks;
    if (rows < 2 || blocks < 2) {
        return false;
    }
    return *s->row < *s->block ? *s->block / rows < *s->row : *s->row / blocks < *s->block;
}

static int scales_fill(const struct gemm *v, int64_t launched, const struct scales *s, size_t align,
                       struct error *err)
{
    const bool gathered = s->of == GEMM_X ? v->gather_x : s->of == GEMM_DY && v->gather_dy;
    struct gemm_operand o;
    if (launched == 0) {
        return 0; /* the kernel reads no operand */
    }
    gemm_operand_describe(v, s->of, launched, &o);
    if (!s->data) {
        return error_set(err, ERROR_INVALID, "args.%s_scale is NULL, but quant=%s needs it",
                         s->name, v->quant->name);
    }
    if (align > 1 && (uintptr_t)s->data % sizeof(float)) {
        return error_set(err, ERROR_INVALID, "args.%s_scale is %p: align it to 4 bytes", s->name,
                         s->data);
    }
    int r = scales_set_stride(s, "", s->row, o.scale_stride, err);
    r = r ? r : scales_set_stride(s, "_block", s->block, o.scale_stride_block, err);
    if (r == 0 && s->expert) {
        r = scales_set_stride(s, "_expert", s->expert, o.scale_stride_expert, err);
    }
    if (r == 0 && scales_overlap(&o, s, gathered)) {
        r = error_set(err, ERROR_INVALID,
                      "args.%s_scale_stride is %lld and args.%s_scale_stride_block %lld: %lld x "
                      "%lld scales would overlap",
                      s->name, (long long)*s->row, s->name, (long long)*s->block,
                      (long long)o.scale_rows, (long long)o.scale_blocks);
    }
    return r;
}

static int gemm_args_fill_scales(const struct gemm *v, struct grouped_gemm_args *a, size_t align,
                                 struct error *err)
{
    const struct scales all[] = {
        {GEMM_X, "x", v->mode != GEMM_DX, a->x_scale, &a->x_scale_stride, &a->x_scale_stride_block,
         NULL},
        {GEMM_W, "w", v->mode != GEMM_DW, a->w_scale, &a->w_scale_stride, &a->w_scale_stride_block,
         &a->w_scale_stride_expert},
        {GEMM_DY, "dy", v->mode != GEMM_FORWARD, a->dy_scale, &a->dy_scale_stride,
         &a->dy_scale_stride_block, NULL},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        const struct scales *s = &all[i];
        if (!v->quant->is_scaled && s->data) {
            return error_set(
                err, ERROR_INVALID,
                "args.%s_scale is given, but the problem has quant=none: leave it NULL", s->name);
        }
        int r = v->quant->is_scaled && s->present ? scales_fill(v, a->rows, s, align, err) : 0;
        if (r) {
            return r;
        }
    }
    return 0;
}

int gemm_args_read(const struct gemm *v, const void *args, size_t align,
                   struct grouped_gemm_args *out, struct error *err)
{
    struct operand all[OPERANDS];
    int r = args_copy(args, out, sizeof(*out), SIZE_LEAST, "gemmd_grouped_gemm_args", err);
    if (r) {
        return r;
    }
    out->m_sizes = v->experts > 1 ? out->m_sizes : NULL; /* one expert has all rows */
    list_operands(v, out, all);
    r = gemm_args_check_pointers(all, out->rows != 0, err);
    r = r ? r : check_rest(v, out, err);
    for (int i = 0; i < OPERANDS && r == 0; i++) {
        const struct operand *o = &all[i];
        r = !o->row ? check_list(o, align, err) : o->present ? fill_strides(o, align, err) : 0;
    }
    return r ? r : gemm_args_fill_scales(v, out, align, err);
}

struct gemm_scales gemm_scales_of(const struct grouped_gemm_args *a)
{
    return (struct gemm_scales){
        .x = a->x_scale,
        .w = a->w_scale,
        .dy = a->dy_scale,
        .x_stride = a->x_scale_stride,
        .x_block = a->x_scale_stride_block,
        .w_stride = a->w_scale_stride,
        .w_block = a->w_scale_stride_block,
        .w_expert = a->w_scale_stride_expert,
        .dy_stride = a->dy_scale_stride,
        .dy_block = a->dy_scale_stride_block,
    };
}
