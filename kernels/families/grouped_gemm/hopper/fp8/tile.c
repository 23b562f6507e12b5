/* SPDX-License-Identifier: Apache-2.0 */
/* The twin of a problem with fp8 operands, and a config as the template sees it. */
#include "kernels/families/grouped_gemm/hopper/fp8/fp8.h"

int64_t fp8_token_units(int64_t rows)
{
    return (rows + FP8_DEPTH - 1) / FP8_DEPTH * (FP8_DEPTH / FP8_UNIT);
}

void fp8_twin(const struct gemm *v, struct gemm *twin)
{
    *twin = *v;
    twin->in = DTYPE_BF16;
    switch (v->mode) {
    case GEMM_FORWARD:
        twin->k = v->k / FP8_UNIT;
        break;
    case GEMM_DX:
        twin->mode = GEMM_FORWARD;
        twin->n = v->k;
        twin->k = v->n / FP8_UNIT;
        if (v->gather_dy) { /* a gathered row is a row of dy, not of a token */
            twin->topk = 1;
            twin->tokens = v->m;
        }
        twin->gather_x = v->gather_dy;
        twin->gather_dy = false;
        twin->x_rows = v->m;
        break;
    case GEMM_DW:
        twin->m = v->m / FP8_UNIT;
        break;
    }
}

int fp8_count_sums(const struct hopper_tile *t)
{
    return t->accumulators + t->c / 2;
}

void fp8_tile_of(const struct gemm *v, const struct hopper_values *h, struct hopper_tile *t)
{
    struct gemm twin;
    struct hopper_values as = *h;
    fp8_twin(v, &twin);
    for (int i = 0; i < GEMM_ROLES; i++) { /* the twin's blocks, by their roles */
        const enum gemm_role role = gemm_roles[twin.mode][i];
        int from = 0;
        while (gemm_roles[v->mode][from] != role) {
            from++;
        }
        const int size = hopper_int(h, hopper_blocks[from], 0);
        as.of[hopper_blocks[i]] = VALUE_OF_INT(role == GEMM_SUM ? size / FP8_UNIT : size);
    }
    as.of[FIELD_in_flight] = VALUE_OF_INT(0);
    if (v->mode == GEMM_DW) {
        as.of[FIELD_stage_rows] = VALUE_OF_INT(HOPPER_DEPTH);
        as.of[FIELD_load_warps] = VALUE_OF_INT(1);
        as.of[FIELD_l2_ahead] = VALUE_OF_INT(0);
        as.of[FIELD_store_slabs] = VALUE_OF_INT(1);
    }
    hopper_tile_of(&twin, &as, t);
    t->scales = !v->quant->sum_block ? HOPPER_SCALE_ROWS
                : v->mode == GEMM_DW ? HOPPER_SCALE_LINES
                                     : HOPPER_SCALE_BLOCKS;
    t->rows_written = 64;
    t->smem = hopper_shared_bytes(&twin, t);
    if (t->consumers > 1) { /* a producer's warp that copies scales spilled 40 registers */
        t->consumer_registers = t->gather ? 216 : 224;
        t->producer_registers = t->gather ? 72 : 56;
    }
}

void fp8_tile_make(const struct gemm *v, const struct record *config, struct hopper_tile *t)
{
    struct hopper_values h;
    hopper_values_read(config, &h);
    fp8_tile_of(v, &h, t);
}
