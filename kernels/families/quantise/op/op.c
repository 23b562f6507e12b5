/* SPDX-License-Identifier: Apache-2.0 */
/* The op quantise: its fields with their ranges, contradictions between fields, the rounding of
 * sizes into buckets, and the least work. */
#include <string.h>

#include "kernels/families/quantise/quantise.h"

static const char *const modes[] = {"rows", "columns", "both", "weights", "whole_rows", NULL};
static const char *const dtypes[] = {"bf16", NULL};
static const char *const scale_types[] = {"fp32", "pow2", NULL};
static const char *const family_names[] = {"quantise", NULL};

static const struct op_field fields[] = {
    OP_MODE(modes,
            "rows: 1x128; columns: 128x1, transposed; both; weights: 128x128, also transposed; "
            "whole_rows: a scale for each row"),
    OP_SIZE("M", "routed rows, tokens * topk; weights: rows of all experts"),
    OP_SIZE("K", "columns, a multiple of 16"),
    OP_COUNT("experts", GEMM_EXPERTS_MAX,
             "experts that share the rows; modes rows and whole_rows ignore them"),
    OP_COUNT("topk", GEMM_TOPK_MAX, "experts per token; only permute_x uses it"),
    OP_FLAG("permute_x", "x is in token order: row i reads token gather_indices[i] / topk"),
    OP_CHOICE("dtype_in", dtypes, "bf16", "type of x"),
    OP_CHOICE("scale_type", scale_types, "fp32",
              "fp32: amax / 448; pow2: rounded up to a power of two"),
    OP_CHOICE("family", family_names, "quantise", "the kernels that solve it"),
};

void quantise_view(const struct problem *p, struct quantise *v)
{
    const struct record *f = &p->fields;
    const char *mode = record_text(f, "mode", modes[0]);
    *v = (struct quantise){
        .m = record_int(f, "M", 1),
        .k = record_int(f, "K", 1),
        .experts = record_int(f, "experts", 1),
        .topk = record_int(f, "topk", 1),
        .permute_x = record_bool(f, "permute_x", false),
        .pow2 = strcmp(record_text(f, "scale_type", "fp32"), "pow2") == 0,
    };
    while (strcmp(modes[v->mode], mode) != 0) {
        v->mode++;
    }
    v->row_side = v->mode != QUANTISE_COLUMNS;
    v->column_side = v->mode != QUANTISE_ROWS && v->mode != QUANTISE_WHOLE_ROWS;
    v->row_scales = v->mode == QUANTISE_WHOLE_ROWS ? 1 : quantise_blocks(v->k);
}

/* ---- check ----------------------------------------------------------------------------------- */

/* Fields that cannot matter get a single value, so that equal problems share a key. */
static void quantise_drop_unused(struct problem *p, struct quantise *v)
{
    if (!v->column_side && v->experts != 1) {
        record_put_int(&p->fields, "experts", v->experts = 1);
    }
    if (!v->permute_x && v->topk != 1) {
        record_put_int(&p->fields, "topk", v->topk = 1);
    }
}

static int quantise_check_shape(const struct quantise *v, struct error *err)
{
    if (v->k % QUANTISE_ALIGN) {
        return error_set(err, ERROR_INVALID,
                         "K is %lld, not a multiple of 16: fp8 rows are read in pieces of 16 "
                         "bytes; pad K with zeros",
                         (long long)v->k);
    }
    if (v->mode == QUANTISE_WEIGHTS && v->m % (v->experts * QUANTISE_ALIGN)) {
        return error_set(err, ERROR_INVALID,
                         "M is %lld with %lld experts: mode weights needs M = experts * N with N a "
                         "multiple of 16",
                         (long long)v->m, (long long)v->experts);
    }
    if (v->m > GEMM_ELEMENTS_MAX / v->k) {
        return error_set(err, ERROR_INVALID,
                         "x [M, K] would have %lld x %lld elements: at most 2^40 are supported",
                         (long long)v->m, (long long)v->k);
    }
    return 0;
}

static int quantise_op_check(struct problem *p, struct error *err)
{
    struct quantise v;
    quantise_view(p, &v);
    if (v.permute_x && v.mode == QUANTISE_WEIGHTS) {
        return error_set(err, ERROR_CONFLICT,
                         "permute_x is true in mode weights: only rows of tokens are gathered");
    }
    quantise_drop_unused(p, &v);
    if (v.m % v.topk) {
        return error_set(err, ERROR_INVALID,
                         "M is %lld, which is not a multiple of topk %lld: M counts routed rows, "
                         "tokens * topk",
                         (long long)v.m, (long long)v.topk);
    }
    return quantise_check_shape(&v, err);
}

/* ---- buckets --------------------------------------------------------------------------------- */

/* Keeps the size if rounding would make a problem that check() refuses. */
static void quantise_round_size(struct problem *p, const struct quantise *v, const char *name,
                                int64_t rounded)
{
    struct quantise next = *v;
    *(name[0] == 'M' ? &next.m : &next.k) = rounded;
    if (rounded <= GEMM_SIZE_MAX && quantise_check_shape(&next, NULL) == 0) {
        record_put_int(&p->fields, name, rounded);
    }
}

static void quantise_round_bucket(struct problem *p, enum bucket_scheme scheme)
{
    struct quantise v;
    quantise_view(p, &v);
    const bool weights = v.mode == QUANTISE_WEIGHTS;
    if (scheme == BUCKET_SQRT2 && !weights) {
        quantise_round_size(p, &v, "M", bucket_sqrt2_rows(v.m, v.experts, v.topk));
    }
    if (scheme == BUCKET_POW2) {
        quantise_round_size(p, &v, "M",
                            weights ? v.experts * bucket_pow2(v.m / v.experts)
                                    : bucket_pow2_rows(v.m, v.topk));
        quantise_view(p, &v);
        quantise_round_size(p, &v, "K", bucket_pow2(v.k));
    }
}

/* ---- work ------------------------------------------------------------------------------------ */

void quantise_work(const struct problem *p, double *flops, double *bytes)
{
    struct quantise v;
    quantise_view(p, &v);
    const double n = (double)v.m * (double)v.k;
    const double scale = v.mode == QUANTISE_WEIGHTS      ? 2.0 / QUANTISE_BLOCK / QUANTISE_BLOCK
                         : v.mode == QUANTISE_WHOLE_ROWS ? 4.0 / (double)v.k
                                                         : 4.0 / QUANTISE_BLOCK;
    *flops = 0;
    *bytes = 2 * n / (double)v.topk + (v.row_side + v.column_side) * n * (1 + scale);
}

int64_t quantise_padded_most(int64_t rows, int64_t experts)
{
    const int64_t ragged = experts < rows ? experts : rows;
    return (rows + (QUANTISE_BLOCK - 1) * ragged) / QUANTISE_BLOCK * QUANTISE_BLOCK;
}

const struct op quantise_op = {
    .name = "quantise",
    .fields = fields,
    .n_fields = sizeof(fields) / sizeof(fields[0]),
    .check = quantise_op_check,
    .bucket = quantise_round_bucket,
    .rows = "M",
};
