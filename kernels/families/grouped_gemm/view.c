/* SPDX-License-Identifier: Apache-2.0 */
/* A problem's record as a typed struct, with what follows from mode and permutes worked out once.
 */
#include <string.h>

#include "kernels/families/grouped_gemm/grouped_gemm.h"

static const char *const mode_names[] = {"forward", "dX", "dW"};

const char *gemm_mode_name(enum gemm_mode mode)
{
    return mode_names[mode];
}

static enum gemm_mode mode_of(const char *name)
{
    return strcmp(name, "dX") == 0 ? GEMM_DX : strcmp(name, "dW") == 0 ? GEMM_DW : GEMM_FORWARD;
}

enum dtype gemm_dtype_of(const char *name)
{
    static const enum dtype all[] = {DTYPE_BF16, DTYPE_FP16, DTYPE_FP32};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (strcmp(name, dtype_name(all[i])) == 0) {
            return all[i];
        }
    }
    return DTYPE_NONE;
}

void grouped_gemm_view(const struct problem *p, struct grouped_gemm_problem *v)
{
    const struct record *f = &p->fields;
    *v = (struct grouped_gemm_problem){
        .mode = mode_of(record_text(f, "mode", "forward")),
        .in = gemm_dtype_of(record_text(f, "dtype_in", "bf16")),
        .out = gemm_dtype_of(record_text(f, "dtype_out", "bf16")),
        .acc = gemm_dtype_of(record_text(f, "dtype_acc", "fp32")),
        .m = record_int(f, "M", 1),
        .n = record_int(f, "N", 1),
        .k = record_int(f, "K", 1),
        .experts = record_int(f, "experts", 1),
        .topk = record_int(f, "topk", 1),
        .permute_x = record_bool(f, "permute_x", false),
        .permute_y = record_bool(f, "permute_y", false),
        .fuse_mul_post = record_bool(f, "fuse_mul_post", false),
        .accumulate = record_bool(f, "accumulate", false),
        .routing = record_text(f, "routing", "uniform"),
    };
    v->tokens = v->m / v->topk;
    v->gather_x = v->permute_x && v->mode != GEMM_DX;
    v->gather_dy = v->permute_y && v->mode != GEMM_FORWARD;
    v->scatter = (v->permute_y && v->mode == GEMM_FORWARD) || (v->permute_x && v->mode == GEMM_DX);
    v->x_rows = v->gather_x ? v->tokens : v->m;
    v->out_rows = v->mode == GEMM_DW ? v->experts * v->n : v->m;
    v->out_cols = v->mode == GEMM_FORWARD ? v->n : v->k;
}
