/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantisations of the operands: a row of a table for each value of the field `quant`, and the
 * matrices that follow from a row. The rest of the family reads these descriptions, so that a
 * further quantisation is a further row.
 */
#include <string.h>

#include "kernels/families/grouped_gemm/grouped_gemm.h"

static const struct gemm_quant quants[] = {
    {.name = "none", .scale_block = {"none", "none", "none"}},
    {.name = "fp8_block",
     .is_scaled = true,
     .in = DTYPE_FP8_E4M3,
     .out = DTYPE_BF16,
     .sum_block = 128,
     .w_block = 128,
     .scale_block = {"1x128,128x128", "1x128,128x128", "1x128,1x128"}},
    {.name = "fp8_row",
     .is_scaled = true,
     .in = DTYPE_FP8_E4M3,
     .out = DTYPE_BF16,
     .w_block = 1,
     .scale_block = {"row", "row", "row"}},
};

const struct gemm_quant *gemm_quant_find(const char *name)
{
    for (size_t i = 1; i < sizeof(quants) / sizeof(quants[0]); i++) {
        if (strcmp(quants[i].name, name) == 0) {
            return &quants[i];
        }
    }
    return &quants[0];
}

int64_t gemm_columns(const struct gemm *v, int64_t rows)
{
    const int64_t cut = v->experts < rows ? v->experts : rows;
    return (rows + (GEMM_COLUMN_ALIGN - 1) * cut) / GEMM_COLUMN_ALIGN * GEMM_COLUMN_ALIGN;
}

int64_t gemm_columns_of(int64_t rows)
{
    return (rows + GEMM_COLUMN_ALIGN - 1) / GEMM_COLUMN_ALIGN * GEMM_COLUMN_ALIGN;
}

/* ---- operands as matrices -------------------------------------------------------------------- */

static int64_t quant_round_up(int64_t n, int64_t step)
{
    return (n + step - 1) / step * step;
}

/* Scaled operands have the summed dimension contiguous, so some are the transposed of the op's. */
static void operand_set_matrix(const struct gemm *v, enum gemm_buffer which, int64_t rows,
                               struct gemm_operand *o)
{
    const bool turned = v->quant->is_scaled && v->mode == (which == GEMM_W ? GEMM_DX : GEMM_DW);
    const int64_t routed = which == GEMM_X && v->gather_x ? rows / v->topk : rows;
    const int64_t tall = which == GEMM_W ? v->n : routed, wide = which == GEMM_DY ? v->n : v->k;
    o->experts = which == GEMM_W ? v->experts : 1;
    o->rows = turned ? wide : tall;
    o->cols = !turned ? wide : which == GEMM_W ? tall : gemm_columns(v, rows);
}

/* The scales of x and dy: [b][row], or [row][b] where rows are gathered. */
static void operand_set_scales(const struct gemm *v, enum gemm_buffer which, struct gemm_operand *o)
{
    enum { PAD = 4 }; /* a row of scales is then a multiple of 16 bytes, as TMA needs */
    const bool gathered = which == GEMM_X ? v->gather_x : v->gather_dy;
    const int64_t sum = v->quant->sum_block, sums = v->mode == GEMM_DW ? v->experts : 1;
    o->scale_rows = o->rows;
    o->scale_blocks = sum ? quant_round_up(o->cols, sum) / sum : sums;
    o->scale_stride = gathered ? quant_round_up(o->scale_blocks, sum ? PAD : 1) : 1;
    o->scale_stride_block = gathered ? 1 : quant_round_up(o->scale_rows, PAD);
}

/* The scales of w: an array [experts, blocks of N, blocks of K] in every mode. */
static void operand_set_w_scales(const struct gemm *v, struct gemm_operand *o)
{
    const int64_t rows = v->quant->w_block, sum = v->quant->sum_block;
    o->scale_rows = quant_round_up(o->rows, rows) / rows;
    o->scale_blocks = sum ? quant_round_up(o->cols, sum) / sum : 1;
    o->scale_stride = v->mode == GEMM_DX ? 1 : o->scale_blocks;
    o->scale_stride_block = v->mode == GEMM_DX ? o->scale_rows : 1;
    o->scale_stride_expert = o->scale_rows * o->scale_blocks;
}

void gemm_operand_describe(const struct gemm *v, enum gemm_buffer which, int64_t rows,
                           struct gemm_operand *out)
{
    *out = (struct gemm_operand){0};
    operand_set_matrix(v, which, rows, out);
    if (!v->quant->is_scaled) {
        return;
    }
    out->scale_row_block = which == GEMM_W ? v->quant->w_block : 1;
    if (which == GEMM_W) {
        operand_set_w_scales(v, out);
    } else {
        operand_set_scales(v, which, out);
    }
}

int64_t gemm_operand_count_scales(const struct gemm_operand *o)
{
    if (!o->scale_row_block) {
        return 0;
    }
    if (o->scale_stride_expert) {
        return o->experts * o->scale_stride_expert;
    }
    return o->scale_stride_block > o->scale_stride ? o->scale_blocks * o->scale_stride_block
                                                   : o->scale_rows * o->scale_stride;
}
