/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The op grouped_gemm: its fields with their ranges, contradictions between fields, and the
 * rounding of sizes into buckets. Device-independent: a target's check() reports the limits of its
 * kernel.
 */
#include <math.h>
#include <string.h>

#include "kernels/families/grouped_gemm/grouped_gemm.h"

static const char *const modes[] = {"forward", "dX", "dW", NULL};
static const char *const dtypes[] = {"bf16", "fp16", "fp32", "fp8_e4m3", NULL};
static const char *const dtypes_out[] = {"same", "bf16", "fp16", "fp32", NULL};
static const char *const dtypes_acc[] = {"fp32", NULL};
static const char *const quants[] = {"none", "fp8_block", "fp8_row", NULL};
static const char *const scale_blocks[] = {"none", "1x128,128x128", "1x128,1x128", "row", NULL};
static const char *const scale_types[] = {"fp32", NULL};
static const char *const family_names[] = {"grouped_gemm", NULL};

static const struct op_field fields[] = {
    OP_MODE(modes, "forward: X W^T; dX: dY W; dW: dY^T X"),
    OP_SIZE("M", "routed rows, tokens * topk"),
    OP_SIZE("N", "rows of each expert's W [N, K]"),
    OP_SIZE("K", "columns of each expert's W [N, K]"),
    OP_COUNT("experts", GEMM_EXPERTS_MAX, "experts that share the launch; 1 is a dense GEMM"),
    OP_COUNT("topk", GEMM_TOPK_MAX, "experts per token"),
    OP_CHOICE("dtype_in", dtypes, "bf16", "type of the operands; fp8_e4m3 follows from quant"),
    OP_CHOICE("dtype_out", dtypes_out, "same",
              "type of the result: as dtype_in, with quant bf16; dW also fp32"),
    OP_CHOICE("dtype_acc", dtypes_acc, "fp32", "type of the sums"),
    OP_FLAG("permute_x", "X (dX: its gradient) is in token order: first GEMM of an MoE MLP"),
    OP_FLAG("permute_y", "Y (or dY) is in token order: second GEMM of an MoE MLP"),
    OP_FLAG("fuse_mul_post", "forward with permute_y: multiply rows by their routing weights"),
    OP_FLAG("accumulate", "dW is added to the output"),
    OP_RESTRICTION("batch_invariant", "a row has the same bits for every M; forward and dX"),
    OP_CHOICE("routing", NULL, "uniform", "uniform | zipf:<s> | rows:<rows of each expert>"),
    OP_CHOICE("quant", quants, "none",
              "quantisation of the operands: fp8 with scales of blocks, or of rows"),
    OP_CHOICE("scale_block", scale_blocks, "none",
              "the scales' blocks; follow from quant and mode"),
    /* without a fallback: keys from before this field lack the field */
    {.name = "scale_type",
     .type = VALUE_TEXT,
     .choices = scale_types,
     .help = "type of the scales; fp32 follows from quant"},
    OP_CHOICE("family", family_names, "grouped_gemm", "the kernels that solve it"),
};

/* ---- check ----------------------------------------------------------------------------------- */

static int gemm_op_check_flags(const struct gemm *v, struct error *err)
{
    if (v->permute_x && v->permute_y) {
        return error_set(err, ERROR_CONFLICT,
                         "permute_x and permute_y are both true: the first GEMM of a layer "
                         "permutes X, the second Y, none both");
    }
    if (v->fuse_mul_post && v->mode != GEMM_FORWARD) {
        return error_set(err, ERROR_CONFLICT,
                         "fuse_mul_post is true in mode %s: routing weights are multiplied in the "
                         "forward mode only",
                         gemm_mode_name(v->mode));
    }
    if (v->fuse_mul_post && !v->permute_y) {
        return error_set(err, ERROR_CONFLICT,
                         "fuse_mul_post is true without permute_y: only the second GEMM multiplies "
                         "by routing weights; set permute_y=true");
    }
    if (v->accumulate && v->mode != GEMM_DW) {
        return error_set(err, ERROR_CONFLICT,
                         "accumulate is true in mode %s: only dW can be added to its output",
                         gemm_mode_name(v->mode));
    }
    if (v->batch_invariant && v->mode == GEMM_DW) {
        return error_set(err, ERROR_CONFLICT,
                         "batch_invariant is true in mode dW, which sums over the rows of the "
                         "batch: every bit of dW depends on them; leave it out");
    }
    return 0;
}

/* Fills in the fields that follow from quant: the types, and the scales' blocks and type. */
static int gemm_op_check_quant(struct problem *p, struct gemm *v, struct error *err)
{
    const struct gemm_quant *q = v->quant;
    const char *block = record_text(&p->fields, "scale_block", "none");
    const char *type = record_text(&p->fields, "scale_type", ""), *fits = q->scale_block[v->mode];
    if (!q->is_scaled && v->in == DTYPE_FP8_E4M3) {
        return error_set(err, ERROR_CONFLICT,
                         "dtype_in is fp8_e4m3 with quant=none: say how the numbers are scaled, by "
                         "quant=fp8_block or quant=fp8_row");
    }
    if (q->is_scaled && v->in != DTYPE_BF16 && v->in != q->in) {
        return error_set(err, ERROR_CONFLICT,
                         "dtype_in is %s with quant=%s, whose operands are %s: leave dtype_in out",
                         dtype_name(v->in), q->name, dtype_name(q->in));
    }
    if (strcmp(block, "none") != 0 && strcmp(block, fits) != 0) {
        return error_set(err, ERROR_CONFLICT,
                         "scale_block is %s with quant=%s in mode %s, which has %s: leave it out",
                         block, q->name, gemm_mode_name(v->mode), fits);
    }
    if (!q->is_scaled) {
        return *type ? error_set(err, ERROR_CONFLICT,
                                 "scale_type is %s with quant=none: there are no scales, leave it "
                                 "out",
                                 type)
                     : 0;
    }
    v->in = q->in;
    record_put_text(&p->fields, "dtype_in", dtype_name(q->in));
    record_put_text(&p->fields, "scale_block", fits);
    record_put_text(&p->fields, "scale_type", "fp32");
    return 0;
}

static int gemm_op_check_dtypes(struct problem *p, struct gemm *v, struct error *err)
{
    const char *out = record_text(&p->fields, "dtype_out", "same");
    const enum dtype usual = v->quant->is_scaled ? v->quant->out : v->in;
    if (strcmp(out, "same") == 0) {
        record_put_text(&p->fields, "dtype_out", dtype_name(usual));
        v->out = usual;
    } else if (strcmp(out, dtype_name(usual)) != 0 &&
               !(v->mode == GEMM_DW && strcmp(out, "fp32") == 0)) {
        return error_set(err, ERROR_CONFLICT,
                         "dtype_out is %s with dtype_in %s in mode %s: the result is %s%s", out,
                         dtype_name(v->in), gemm_mode_name(v->mode), dtype_name(usual),
                         v->mode == GEMM_DW ? " or fp32" : "; only dW may be fp32");
    }
    return 0;
}

/* Checks sizes and permutes of scaled operands, whose rows are read in pieces of 16 bytes. */
static int gemm_op_check_scaled(const struct gemm *v, struct error *err)
{
    enum { PIECE = 16 };
    const char *name = v->quant->name, *mode = gemm_mode_name(v->mode);
    const bool forward = v->mode == GEMM_FORWARD;
    const int64_t sum = forward ? v->k : v->n, cols = v->out_cols,
                  whole = PIECE / (int64_t)dtype_size(v->out);
    if (!v->quant->is_scaled) {
        return 0;
    }
    if (v->mode == GEMM_DW && (v->permute_x || v->permute_y)) {
        return error_set(err, ERROR_CONFLICT,
                         "%s is true in mode dW with quant=%s: dW multiplies transposed copies, in "
                         "which the quantiser has put the rows in the order of experts; leave it "
                         "out",
                         v->permute_x ? "permute_x" : "permute_y", name);
    }
    if (v->mode != GEMM_DW && sum % PIECE) {
        return error_set(err, ERROR_INVALID,
                         "%s is %lld, not a multiple of %d: with quant=%s mode %s sums over it, in "
                         "pieces of %d bytes; pad it with zeros",
                         forward ? "K" : "N", (long long)sum, PIECE, name, mode, PIECE);
    }
    if (cols % whole) {
        return error_set(err, ERROR_INVALID,
                         "%s is %lld, not a multiple of %lld: with quant=%s mode %s writes rows of "
                         "16-byte pieces (%lld elements of %s); pad it",
                         forward ? "N" : "K", (long long)cols, (long long)whole, name, mode,
                         (long long)whole, dtype_name(v->out));
    }
    return 0;
}

static int gemm_op_check_sizes(const struct gemm *v, struct error *err)
{
    if (v->topk > v->experts) {
        return error_set(err, ERROR_CONFLICT,
                         "topk is %lld of %lld experts: a token goes to each expert at most once",
                         (long long)v->topk, (long long)v->experts);
    }
    if (v->m % v->topk != 0) {
        return error_set(err, ERROR_INVALID,
                         "M is %lld, which is not a multiple of topk %lld: M counts routed rows, "
                         "tokens * topk",
                         (long long)v->m, (long long)v->topk);
    }
    const struct {
        const char *name;
        int64_t rows, cols;
    } operands[] = {
        {"X [M, K]", v->m, v->k},
        {"Y [M, N]", v->m, v->n},
        {"W [experts, N, K]", v->experts * v->n, v->k},
    };
    for (size_t i = 0; i < sizeof(operands) / sizeof(operands[0]); i++) {
        if (operands[i].rows > GEMM_ELEMENTS_MAX / operands[i].cols) {
            return error_set(err, ERROR_INVALID,
                             "%s would have %lld x %lld elements: at most 2^40 are supported",
                             operands[i].name, (long long)operands[i].rows,
                             (long long)operands[i].cols);
        }
    }
    return 0;
}

static int check_routing(struct problem *p, const struct gemm *v, struct error *err)
{
    if (strcmp(v->routing, "uniform") == 0) {
        return 0; /* nearly every query returns here */
    }
    struct routing routing;
    char text[RECORD_TEXT_MAX];
    int r = routing_parse(&routing, v->routing, v->experts, v->m, err);
    if (r) {
        return r;
    }
    if (routing_format(&routing, v->experts, text, sizeof(text)) >= sizeof(text)) {
        return error_set(err, ERROR_INVALID, "routing is longer than %d bytes", RECORD_TEXT_MAX);
    }
    return record_set(&p->fields, "routing", VALUE_OF_TEXT(text), err);
}

static int gemm_op_check(struct problem *p, struct error *err)
{
    struct gemm v;
    gemm_view(p, &v);
    int r = gemm_op_check_flags(&v, err);
    r = r ? r : gemm_op_check_sizes(&v, err);
    r = r ? r : gemm_op_check_quant(p, &v, err);
    r = r ? r : gemm_op_check_dtypes(p, &v, err);
    r = r ? r : gemm_op_check_scaled(&v, err);
    return r ? r : check_routing(p, &v, err);
}

/* ---- buckets --------------------------------------------------------------------------------- */

/* Keeps the size if rounding would make a problem that check() refuses. */
static void set_size(struct problem *p, struct gemm *v, const char *name, int64_t *size,
                     int64_t rounded)
{
    int64_t given = *size;
    if (rounded == given) {
        return;
    }
    *size = rounded;
    if (rounded > GEMM_SIZE_MAX || gemm_op_check_sizes(v, NULL) != 0) {
        *size = given;
        return;
    }
    record_put_int(&p->fields, name, rounded);
}

static void gemm_op_round_bucket(struct problem *p, enum bucket_scheme scheme)
{
    struct gemm v;
    gemm_view(p, &v);
    /* The rows in "rows:.." sum to M, so neither may be rounded. */
    bool rows_given = strncmp(v.routing, "rows:", 5) == 0;
    switch (scheme) {
    case BUCKET_EXACT:
        break;
    case BUCKET_POW2:
        if (!rows_given) {
            set_size(p, &v, "M", &v.m, bucket_pow2_rows(v.m, v.topk));
        }
        set_size(p, &v, "N", &v.n, bucket_pow2(v.n));
        set_size(p, &v, "K", &v.k, bucket_pow2(v.k));
        break;
    case BUCKET_SQRT2:
        if (!rows_given) {
            set_size(p, &v, "M", &v.m, bucket_sqrt2_rows(v.m, v.experts, v.topk));
        }
        break;
    }
}

/* ---- neighbours ------------------------------------------------------------------------------ */

/* Places a routing by its unevenness, to find a problem's neighbours: times depend on how full the
 * experts' tiles are. NAN: the field is not a routing. */
static double gemm_op_place_field(const struct problem *p, const char *field)
{
    struct gemm v;
    if (strcmp(field, "routing") != 0) {
        return NAN;
    }
    gemm_view(p, &v);
    return gemm_unevenness(&v);
}

/* ---- work ------------------------------------------------------------------------------------
 *
 * The least work of a problem: every multiply-add, every needed operand and the output once. W
 * counts for the experts with expected rows. In dW every expert's output is written, and also read
 * when the launch adds to the output. */

static double active_experts(const struct gemm *v)
{
    int64_t rows[GEMM_EXPERTS_MAX];
    gemm_expected_rows(v, rows);
    double active = 0;
    for (int64_t e = 0; e < v->experts; e++) {
        active += rows[e] > 0;
    }
    return active;
}

/* Bytes of an operand of `rows` that are summed over `length`, and of its scales: `share` rows have
 * one in common, and each row has `sums` sums. */
static double operand_bytes(const struct gemm *v, double rows, double length, int64_t share,
                            double sums)
{
    const struct gemm_quant *q = v->quant;
    const double blocks = q->sum_block ? length / (double)q->sum_block : sums;
    return rows * length * (double)dtype_size(v->in) +
           (q->is_scaled ? 4 * rows * blocks / (double)share : 0);
}

void gemm_work(const struct problem *p, double *flops, double *bytes)
{
    struct gemm v;
    gemm_view(p, &v);
    const double out = (double)dtype_size(v.out), experts = (double)v.experts;
    const double m = (double)v.m, n = (double)v.n, k = (double)v.k, x = (double)v.x_rows;
    const int64_t share = v.quant->w_block;
    *flops = 2 * m * n * k;
    switch (v.mode) {
    case GEMM_FORWARD:
        *bytes = operand_bytes(&v, x, k, 1, 1) +
                 operand_bytes(&v, active_experts(&v) * n, k, share, 1) + out * m * n;
        break;
    case GEMM_DX:
        *bytes = operand_bytes(&v, m, n, 1, 1) +
                 operand_bytes(&v, active_experts(&v) * k, n, share, 1) + out * m * k;
        break;
    case GEMM_DW:
        *bytes = operand_bytes(&v, n, m, 1, experts) + operand_bytes(&v, k, x, 1, experts) +
                 out * experts * n * k * (v.accumulate ? 2 : 1);
        break;
    }
}

/* Tensor cores multiply fp8 at twice the rate of 16-bit types, from compute capability 8.9 on. */
double gemm_rate(const struct problem *p, const struct device_info *info)
{
    struct gemm v;
    gemm_view(p, &v);
    return v.quant->is_scaled && info->cc_major * 10 + info->cc_minor >= 89 ? 2 : 1;
}

#define ONE                                                                                        \
    {                                                                                              \
        .type = VALUE_INT, .integer = 1                                                            \
    }
#define WORD(value)                                                                                \
    {                                                                                              \
        .type = VALUE_TEXT, .text = (value)                                                        \
    }

/* Dense products, as other libraries name them. */
static const struct op_alias aliases[] = {
    {"gemm", {{"experts", ONE}, {"topk", ONE}}},
    {"gemm_a8w8_blockscale",
     {{"experts", ONE}, {"topk", ONE}, {"mode", WORD("forward")}, {"quant", WORD("fp8_block")}}},
    {NULL},
};

const struct op grouped_gemm_op = {
    .name = "grouped_gemm",
    .aliases = aliases,
    .fields = fields,
    .n_fields = sizeof(fields) / sizeof(fields[0]),
    .check = gemm_op_check,
    .bucket = gemm_op_round_bucket,
    .place = gemm_op_place_field,
    .rows = "M",
};
