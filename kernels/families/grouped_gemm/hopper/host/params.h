/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arguments of the template's kernels, field by field, with their tensor maps.
 * hopper/host/launch.c fills them in; hopper/host/tensor_maps.c describes the maps.
 */
#ifndef GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_HOPPER_HOST_PARAMS_H
#define GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_HOPPER_HOST_PARAMS_H

#include <stddef.h>

#include "kernels/families/grouped_gemm/hopper/host/hopper.h"
#include "kernels/families/grouped_gemm/portable/portable.h"
#include "kernels/launch_order.h"

/* Bits of hopper_params.flags, above the bits that all cuda targets share (portable/portable.h). */
enum {
    HOPPER_RASTER_COLUMNS = CUDA_FLAGS_NEXT,
    HOPPER_SORT = CUDA_FLAGS_NEXT << 1,
    HOPPER_WIDE_A = CUDA_FLAGS_NEXT << 2,
    HOPPER_WIDE_B = CUDA_FLAGS_NEXT << 3,
    HOPPER_STORE_FIRST = CUDA_FLAGS_NEXT << 4,
    HOPPER_W_FIRST = CUDA_FLAGS_NEXT << 5,
    HOPPER_W_UNCHANGED = CUDA_FLAGS_NEXT << 6,
};

struct hopper_scale_layout { /* struct scales in hopper/scheduler.cu; strides in bytes */
    const void *data;
    int64_t row, block, expert;
};

struct hopper_params { /* as in hopper/scheduler.cu; strides in bytes */
    void *out_data;
    int64_t out_stride;
    int32_t rows, experts, tile_cols, depth, group;
    uint32_t flags;
    uint32_t cols_mul, cols_shift, group_mul, group_shift;
    int32_t cols, ahead, walkers;
    int32_t ahead_shift; /* dW: log2 of ahead */
    const void *a_rows, *b_rows;
    uint32_t a_rows_stride, b_rows_stride; /* bytes between rows, divided by 16 */
    uint32_t a_rows_bytes, b_rows_bytes;
    struct { /* kernels of fp8 operands only */
        struct hopper_scale_layout a, b;
    } scales;
    const void *gathered;
    const void *m_sizes, *gather, *weights;
    uint32_t *counter;
    int64_t out_expert;
    uint32_t gathered_stride; /* bytes between rows, divided by 16 */
    int32_t tile_rows;
    uint32_t topk_mul, topk_shift;
    int32_t height;
    uint32_t height_mul, height_shift;
    _Alignas(TENSOR_MAP_ALIGN) uint8_t a[TENSOR_MAP_BYTES];
    uint8_t b[TENSOR_MAP_BYTES];
    uint8_t out[TENSOR_MAP_BYTES];
    uint8_t a_part[HOPPER_PARTS][TENSOR_MAP_BYTES], b_part[HOPPER_PARTS][TENSOR_MAP_BYTES];
    uint8_t out_wide[TENSOR_MAP_BYTES];
    uint8_t order[LAUNCH_ORDER_MAX];
    int32_t last_rounds;
};
_Static_assert(sizeof(struct hopper_params) == 1920 &&
                   offsetof(struct hopper_params, a_rows) == 72 &&
                   offsetof(struct hopper_params, scales) == 104 &&
                   offsetof(struct hopper_params, gathered) == 168 &&
                   offsetof(struct hopper_params, height_shift) == 240 &&
                   offsetof(struct hopper_params, a) == 256 &&
                   offsetof(struct hopper_params, order) == 1792 &&
                   offsetof(struct hopper_params, last_rounds) == 1888,
               "hopper/scheduler.cu counts on this layout");
_Static_assert(sizeof(struct hopper_params) <= LAUNCH_PARAMS_MAX, "params must fit a launch");

struct permute_params { /* as in hopper/permute.cu */
    const void *from;
    void *to;
    const void *gather;
    int32_t *places; /* [tokens * topk], by slot: the routed row whose gather index is the slot */
    int64_t from_stride;
    int32_t rows, chunks;
    uint32_t flags;
    uint32_t row_mul, row_shift;
    int32_t topk; /* rows of a token, for copies by token; 0: the kernel does not read `places` */
};
_Static_assert(sizeof(struct permute_params) == 64, "hopper/permute.cu counts on this layout");

/* x, w and dy of each mode as the template's operands, without swap_ab. With swap_ab, a's maps
 * become the maps of the template's B. Strides in bytes. */
struct hopper_operands {
    const void *a, *b;
    int64_t a_stride, b_stride, b_expert;
    uint64_t a_cols, b_cols; /* elements of a row in memory */
    bool gather_a, gather_b;
};

/* True if one box of dW's maps can load several slabs of 64 columns: the last slab must not reach
 * into the next row. */
bool hopper_is_wide(uint64_t cols);

/* Makes the variant of a tile. */
void hopper_variant_of(const struct gemm *v, const struct hopper_tile *t, const char *source,
                       const char *arch, struct variant *out);
/* hopper_plan() with the problem, the config and the args already read. The last step is the main
 * kernel's. */
int hopper_plan_tile(const struct gemm *v, const struct hopper_tile *t, struct grouped_gemm_args *a,
                     const struct device_info *info, struct launch_plan *out, struct error *err);

void hopper_add_maps(const struct gemm *v, const struct hopper_tile *t,
                     const struct hopper_operands *o, const struct grouped_gemm_args *a,
                     struct launch *l);

#endif
