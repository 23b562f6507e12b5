/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target "hopper": the tensor maps of a launch. hopper/producer.cu explains the maps of an
 * expert's rows.
 */
#include <string.h>

#include "kernels/families/grouped_gemm/hopper/host/params.h"

/* Adds a map of `rank` dimensions, the contiguous first; stride[i] is of dimension i + 1. */
static struct tensor_map *add_map(struct launch *l, size_t offset, enum dtype dtype,
                                  const void *base, uint32_t rank, const uint64_t size[],
                                  const uint64_t stride[], const uint32_t box[])
{
    struct tensor_map *m = &l->maps[l->n_maps++];
    *m = (struct tensor_map){.offset = (uint32_t)offset,
                             .dtype = dtype,
                             .base = base,
                             .rank = rank,
                             .swizzle = 128,
                             .l2_promotion = 256};
    memcpy(m->size, size, rank * sizeof(*size));
    memcpy(m->stride, stride, (rank - 1) * sizeof(*stride));
    memcpy(m->box, box, rank * sizeof(*box));
    return m;
}

enum { SLAB = 64 }; /* columns of a slab of dW's operands, adjacent in shared memory */

bool hopper_is_wide(uint64_t cols)
{
    return cols % SLAB == 0;
}

/* Columns of a box: 128 bytes of a row. */
static uint32_t maps_box_cols(enum dtype dtype)
{
    return 128 / (uint32_t)dtype_size(dtype);
}

/* Adds a map of an expert's rows (explained in hopper/producer.cu). */
static struct tensor_map *add_ragged(struct launch *l, size_t offset, enum dtype dtype,
                                     const void *base, uint64_t cols, int64_t stride, int box_rows)
{
    const uint64_t row = (uint64_t)stride;
    return add_map(l, offset, dtype, base, 4, (uint64_t[]){cols, 1u << 30, 1u << 31, 1u << 31},
                   (uint64_t[]){row, row, (UINT64_C(1) << 35) - row},
                   (uint32_t[]){maps_box_cols(dtype), (uint32_t)box_rows, 1, 1});
}

/* Adds a map of an expert's rows for dW. A box has `slabs` slabs, or one if the map is not wide. */
static void add_ragged_slabs(struct launch *l, size_t offset, enum dtype dtype, const void *base,
                             uint64_t cols, int64_t stride, int box_rows, int slabs)
{
    const bool wide = hopper_is_wide(cols);
    struct tensor_map *m = add_ragged(l, offset, dtype, base, wide ? SLAB : cols, stride, box_rows);
    m->rank = 5;
    m->size[4] = wide ? cols / SLAB : 1;
    m->stride[3] = SLAB * dtype_size(dtype);
    m->box[4] = wide ? (uint32_t)slabs : 1;
}

/* Adds a map of the experts' matrices, stacked: of W, or of dW's output. */
static void hopper_map_experts(struct launch *l, size_t offset, enum dtype dtype, const void *base,
                               const struct gemm *v, int64_t stride, int64_t expert, int box_rows)
{
    add_map(l, offset, dtype, base, 3,
            (uint64_t[]){(uint64_t)v->k, (uint64_t)v->n, (uint64_t)v->experts},
            (uint64_t[]){(uint64_t)stride, (uint64_t)expert},
            (uint32_t[]){maps_box_cols(dtype), (uint32_t)box_rows, 1});
}

/* Adds a map of dW's output in pairs of slabs: rows of both slabs are adjacent in shared memory. */
static void add_expert_slabs(struct launch *l, size_t offset, const struct gemm *v,
                             const struct hopper_tile *t, void *base, int64_t stride,
                             int64_t expert)
{
    enum { PAIR = 2 };
    const uint64_t cols = (uint64_t)hopper_slab_cols(v), k = (uint64_t)v->k;
    add_map(l, offset, v->out, base, 4,
            (uint64_t[]){cols, k / cols, (uint64_t)v->n, (uint64_t)v->experts},
            (uint64_t[]){cols * dtype_size(v->out), (uint64_t)stride, (uint64_t)expert},
            (uint32_t[]){(uint32_t)cols, PAIR, (uint32_t)t->rows_written, 1});
}

/* An operand has a map for whole boxes, number WHOLE, and a map for each of PARTS in
 * hopper/params.cu, with boxes of fewer rows. */
enum { WHOLE = -1 };

/* The map's offset in struct hopper_params; b: of the operand b, else of a. */
static size_t maps_find_place(bool b, int map)
{
    if (map == WHOLE) {
        return b ? offsetof(struct hopper_params, b) : offsetof(struct hopper_params, a);
    }
    return (b ? offsetof(struct hopper_params, b_part) : offsetof(struct hopper_params, a_part)) +
           (size_t)map * TENSOR_MAP_BYTES;
}

static int maps_box_rows(int map, int whole)
{
    return map == WHOLE ? whole : 64 - 16 * map;
}

/* dW of fp8: adds the maps of an operand whose columns are tokens; `rows`: number of its rows. Two
 * elements count as one of 16 bits. */
static void add_tokens(struct launch *l, bool b, const void *base, uint64_t rows, int64_t stride,
                       int whole)
{
    const uint64_t row = (uint64_t)stride;
    for (int i = WHOLE; i < HOPPER_PARTS; i++) {
        add_map(l, maps_find_place(b, i), DTYPE_BF16, base, 3, (uint64_t[]){row / 2, rows, 1},
                (uint64_t[]){row, row}, (uint32_t[]){SLAB, (uint32_t)maps_box_rows(i, whole), 1});
    }
}

/* Adds the maps of wgmma's operand A. The usual box is a block of a whole tile, or the share of it
 * that a thread block of a cluster loads. Other maps have boxes of a single slab, for tiles with
 * fewer slabs, and boxes of fewer rows, where a whole box would pass the expert's last row. */
static void add_a(const struct gemm *v, const struct hopper_tile *t,
                  const struct hopper_operands *o, struct launch *l)
{
    const bool dw = v->mode == GEMM_DW;
    const int whole = dw ? t->stage_rows : t->swap_ab ? t->c : t->r / hopper_sharers(t);
    for (int i = WHOLE; i < HOPPER_PARTS && !o->gather_a; i++) {
        const size_t at = maps_find_place(t->swap_ab, i);
        if (dw) {
            add_ragged_slabs(l, at, v->in, o->a, o->a_cols, o->a_stride, maps_box_rows(i, whole),
                             i == WHOLE ? 1 : t->r / SLAB / t->cluster_c);
        } else {
            add_ragged(l, at, v->in, o->a, o->a_cols, o->a_stride, maps_box_rows(i, whole));
        }
    }
}

static void add_b(const struct gemm *v, const struct hopper_tile *t,
                  const struct hopper_operands *o, struct launch *l)
{
    const bool dw = v->mode == GEMM_DW;
    const int shared = hopper_tile_cols(t) / (t->swap_ab ? hopper_sharers(t) : 1);
    const int whole = dw ? t->stage_rows : v->mode == GEMM_FORWARD ? shared : HOPPER_DEPTH;
    const int parts = v->mode == GEMM_DX ? 0 : HOPPER_PARTS;
    for (int i = WHOLE; i < parts && !o->gather_b; i++) {
        const size_t at = maps_find_place(!t->swap_ab, i);
        if (dw) {
            add_ragged_slabs(l, at, v->in, o->b, o->b_cols, o->b_stride, maps_box_rows(i, whole),
                             i == WHOLE ? 1 : t->c / SLAB / t->cluster_r);
        } else {
            hopper_map_experts(l, at, v->in, o->b, v, o->b_stride, o->b_expert,
                               maps_box_rows(i, whole));
        }
    }
}

void hopper_add_maps(const struct gemm *v, const struct hopper_tile *t,
                     const struct hopper_operands *o, const struct grouped_gemm_args *a,
                     struct launch *l)
{
    const size_t at_out = offsetof(struct hopper_params, out);
    int64_t size = (int64_t)dtype_size(v->out);
    if (v->mode == GEMM_DW && t->scales != HOPPER_NO_SCALES) {
        add_tokens(l, false, o->a, (uint64_t)v->n, o->a_stride, t->r);
        add_tokens(l, true, o->b, (uint64_t)v->k, o->b_stride, t->c);
    } else {
        add_a(v, t, o, l);
        add_b(v, t, o, l);
    }
    /* fp8's dW also reads the output by its map, ahead of an addition by threads. */
    if (!t->tma_store && (v->mode != GEMM_DW || t->scales == HOPPER_NO_SCALES)) {
        return;
    }
    /* The kernel reads `out` or `out_wide`, as it was compiled for the tuned problem's rows. This
     * problem may have other rows, so both maps are filled in. */
    if (hopper_can_pair(v, t)) {
        add_expert_slabs(l, offsetof(struct hopper_params, out_wide), v, t, a->out,
                         a->out_stride * size, a->out_stride_expert * size);
    }
    if (v->mode == GEMM_DW) {
        hopper_map_experts(l, at_out, v->out, a->out, v, a->out_stride * size,
                           a->out_stride_expert * size, t->rows_written);
    } else {
        add_ragged(l, at_out, v->out, a->out, (uint64_t)v->out_cols, a->out_stride * size,
                   t->swap_ab ? HOPPER_GRAIN : t->rows_written);
        if (t->swap_ab && hopper_grain(t) < HOPPER_GRAIN) {
            add_ragged(l, offsetof(struct hopper_params, out_wide), v->out, a->out,
                       (uint64_t)v->out_cols, a->out_stride * size, hopper_grain(t));
        }
    }
}
