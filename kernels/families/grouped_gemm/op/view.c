/* SPDX-License-Identifier: Apache-2.0 */
/* A problem's record as a typed struct, with values derived from mode and permutes. */
#include <string.h>

#include "kernels/families/grouped_gemm/grouped_gemm.h"

static const char *const mode_names[] = {"forward", "dX", "dW"};

const char *gemm_mode_name(enum gemm_mode mode)
{
    return mode_names[mode];
}

static enum gemm_mode view_mode_of(const char *name)
{
    return strcmp(name, "dX") == 0 ? GEMM_DX : strcmp(name, "dW") == 0 ? GEMM_DW : GEMM_FORWARD;
}

/* The fields that this file reads, sorted bytewise, as in records. */
#define FIELDS(X)                                                                                  \
    X(K)                                                                                           \
    X(M)                                                                                           \
    X(N)                                                                                           \
    X(accumulate)                                                                                  \
    X(batch_invariant)                                                                             \
    X(dtype_in)                                                                                    \
    X(dtype_out)                                                                                   \
    X(experts)                                                                                     \
    X(fuse_mul_post)                                                                               \
    X(mode)                                                                                        \
    X(permute_x)                                                                                   \
    X(permute_y)                                                                                   \
    X(quant)                                                                                       \
    X(routing)                                                                                     \
    X(topk)
enum {
#define X(name) AT_##name,
    FIELDS(X)
#undef X
        N_FIELDS
};
static const char *const names[] = {
#define X(name) #name,
    FIELDS(X)
#undef X
};

void gemm_read_values(const struct record *r, const char *const fields[], size_t n,
                      struct value out[])
{
    memset(out, 0, n * sizeof(out[0]));
    for (size_t i = 0, at = 0; i < r->n && at < n; i++) {
        int order = strcmp(fields[at], r->fields[i].name);
        while (order < 0 && ++at < n) {
            order = strcmp(fields[at], r->fields[i].name);
        }
        if (order == 0) {
            out[at++] = record_at(r, i);
        }
    }
}

static int64_t view_size_of(const struct value *v)
{
    return v->type == VALUE_INT ? v->integer : 1;
}

static bool flag_of(const struct value *v)
{
    return v->type == VALUE_BOOL && v->flag;
}

static const char *view_text_of(const struct value *v, const char *fallback)
{
    return v->type == VALUE_TEXT ? v->text : fallback;
}

void gemm_view(const struct problem *p, struct gemm *v)
{
    struct value f[N_FIELDS];
    gemm_read_values(&p->fields, names, N_FIELDS, f);
    *v = (struct gemm){
        .mode = view_mode_of(view_text_of(&f[AT_mode], "forward")),
        .quant = gemm_quant_find(view_text_of(&f[AT_quant], "none")),
        .in = dtype_find(view_text_of(&f[AT_dtype_in], "bf16")),
        .out = dtype_find(view_text_of(&f[AT_dtype_out], "bf16")),
        .m = view_size_of(&f[AT_M]),
        .n = view_size_of(&f[AT_N]),
        .k = view_size_of(&f[AT_K]),
        .experts = view_size_of(&f[AT_experts]),
        .topk = view_size_of(&f[AT_topk]),
        .permute_x = flag_of(&f[AT_permute_x]),
        .permute_y = flag_of(&f[AT_permute_y]),
        .fuse_mul_post = flag_of(&f[AT_fuse_mul_post]),
        .accumulate = flag_of(&f[AT_accumulate]),
        .batch_invariant = flag_of(&f[AT_batch_invariant]),
        .routing = view_text_of(&f[AT_routing], "uniform"),
    };
    v->tokens = v->m / v->topk;
    v->gather_x = v->permute_x && v->mode != GEMM_DX;
    v->gather_dy = v->permute_y && v->mode != GEMM_FORWARD;
    v->scatter = (v->permute_y && v->mode == GEMM_FORWARD) || (v->permute_x && v->mode == GEMM_DX);
    v->x_rows = v->gather_x ? v->tokens : v->m;
    v->out_rows = v->mode == GEMM_DW ? v->experts * v->n : v->m;
    v->out_cols = v->mode == GEMM_FORWARD ? v->n : v->k;
}
