/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target "hopper": the tensor maps of a launch. hopper/producer.cu explains the maps of an
 * expert's rows.
 */
#include <string.h>

#include "kernels/families/grouped_gemm/hopper/host/params.h"

static struct tensor_map *add_map(struct launch *l, size_t offset, enum dtype dtype,
                                  const void *base)
{
    struct tensor_map *m = &l->maps[l->n_maps++];
    *m = (struct tensor_map){.offset = (uint32_t)offset,
                             .dtype = dtype,
                             .base = base,
                             .swizzle = 128,
                             .l2_promotion = 256};
    return m;
}

enum { SLAB = 64 }; /* columns of a slab of dW's operands, adjacent in shared memory */

/* Rows of a box that loads a part of 64 rows (PARTS in hopper/params.cu). */
static int part_rows(int part)
{
    return 64 - 16 * part;
}

bool hopper_is_wide(uint64_t cols)
{
    return cols % SLAB == 0;
}

/* Adds a map of an expert's rows (explained in hopper/producer.cu). */
static struct tensor_map *add_ragged(struct launch *l, size_t offset, enum dtype dtype,
                                     const void *base, uint64_t cols, int64_t stride, int box_rows)
{
    const uint64_t row = (uint64_t)stride;
    struct tensor_map *m = add_map(l, offset, dtype, base);
    m->rank = 4;
    memcpy(m->size, (uint64_t[]){cols, 1u << 30, 1u << 31, 1u << 31}, 4 * sizeof(uint64_t));
    memcpy(m->stride, (uint64_t[]){row, row, (UINT64_C(1) << 35) - row}, 3 * sizeof(uint64_t));
    memcpy(m->box, (uint32_t[]){128 / (uint32_t)dtype_size(dtype), (uint32_t)box_rows, 1, 1},
           4 * sizeof(uint32_t));
    return m;
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
    struct tensor_map *m = add_map(l, offset, dtype, base);
    m->rank = 3;
    memcpy(m->size, (uint64_t[]){(uint64_t)v->k, (uint64_t)v->n, (uint64_t)v->experts},
           3 * sizeof(uint64_t));
    memcpy(m->stride, (uint64_t[]){(uint64_t)stride, (uint64_t)expert}, 2 * sizeof(uint64_t));
    memcpy(m->box, (uint32_t[]){128 / (uint32_t)dtype_size(dtype), (uint32_t)box_rows, 1},
           3 * sizeof(uint32_t));
}

enum { PAIR = 2 };

/* Adds a map of dW's output in pairs of slabs: rows of both slabs are adjacent in shared memory. */
static void add_expert_slabs(struct launch *l, size_t offset, const struct gemm *v,
                             const struct hopper_tile *t, void *base, int64_t stride,
                             int64_t expert)
{
    const uint64_t cols = (uint64_t)hopper_slab_cols(v);
    struct tensor_map *m = add_map(l, offset, v->out, base);
    m->rank = 4;
    memcpy(m->size, (uint64_t[]){cols, (uint64_t)v->k / cols, (uint64_t)v->n, (uint64_t)v->experts},
           4 * sizeof(uint64_t));
    memcpy(m->stride, (uint64_t[]){cols * dtype_size(v->out), (uint64_t)stride, (uint64_t)expert},
           3 * sizeof(uint64_t));
    memcpy(m->box, (uint32_t[]){(uint32_t)cols, PAIR, (uint32_t)t->rows_written, 1},
           4 * sizeof(uint32_t));
}

/* Offsets in struct hopper_params: of an operand's whole map, and of its maps for PARTS. */
struct places {
    size_t whole, part;
};

static struct places places_of(bool b)
{
    return b ? (struct places){offsetof(struct hopper_params, b),
                               offsetof(struct hopper_params, b_part)}
             : (struct places){offsetof(struct hopper_params, a),
                               offsetof(struct hopper_params, a_part)};
}

/* dW of fp8: adds the maps of an operand whose columns are tokens; `rows`: number of its rows. Two
 * elements count as one of 16 bits. */
static void add_tokens(struct launch *l, const struct places *at, const void *base, uint64_t rows,
                       int64_t stride, int box_rows)
{
    for (int i = -1; i < HOPPER_PARTS; i++) {
        const size_t offset = i < 0 ? at->whole : at->part + (size_t)i * TENSOR_MAP_BYTES;
        struct tensor_map *m = add_map(l, offset, DTYPE_BF16, base);
        m->rank = 3;
        memcpy(m->size, (uint64_t[]){(uint64_t)stride / 2, rows, 1}, 3 * sizeof(uint64_t));
        memcpy(m->stride, (uint64_t[]){(uint64_t)stride, (uint64_t)stride}, 2 * sizeof(uint64_t));
        memcpy(m->box, (uint32_t[]){SLAB, (uint32_t)(i < 0 ? box_rows : part_rows(i)), 1},
               3 * sizeof(uint32_t));
    }
}

/* Adds the maps of wgmma's operand A. The usual box is a block of a whole tile, or the share of it
 * that a thread block of a cluster loads. Other maps have boxes of a single slab, for tiles with
 * fewer slabs, and boxes of fewer rows, where a whole box would pass the expert's last row. */
static void add_a(const struct gemm *v, const struct hopper_tile *t,
                  const struct hopper_operands *o, struct launch *l)
{
    const struct places at = places_of(t->swap_ab);
    const bool dw = v->mode == GEMM_DW;
    if (o->gather_a) {
        return;
    }
    if (dw) {
        add_ragged_slabs(l, at.whole, v->in, o->a, o->a_cols, o->a_stride, t->stage_rows, 1);
    } else {
        add_ragged(l, at.whole, v->in, o->a, o->a_cols, o->a_stride,
                   t->swap_ab ? t->c : t->r / hopper_sharers(t));
    }
    for (int i = 0; i < HOPPER_PARTS; i++) {
        const size_t part = at.part + (size_t)i * TENSOR_MAP_BYTES;
        if (dw) {
            add_ragged_slabs(l, part, v->in, o->a, o->a_cols, o->a_stride, part_rows(i),
                             t->r / SLAB / t->cluster_c);
        } else {
            add_ragged(l, part, v->in, o->a, o->a_cols, o->a_stride, part_rows(i));
        }
    }
}

static void add_weights(const struct gemm *v, const struct hopper_operands *o, size_t offset,
                        int box_rows, struct launch *l)
{
    hopper_map_experts(l, offset, v->in, o->b, v, o->b_stride, o->b_expert, box_rows);
}

static void add_b(const struct gemm *v, const struct hopper_tile *t,
                  const struct hopper_operands *o, struct launch *l)
{
    const struct places at = places_of(!t->swap_ab);
    if (o->gather_b) {
        return;
    }
    if (v->mode == GEMM_DW) {
        add_ragged_slabs(l, at.whole, v->in, o->b, o->b_cols, o->b_stride, t->stage_rows, 1);
    } else {
        const int shared = hopper_tile_cols(t) / (t->swap_ab ? hopper_sharers(t) : 1);
        const int rows = v->mode == GEMM_FORWARD ? shared : HOPPER_DEPTH;
        add_weights(v, o, at.whole, rows, l);
    }
    for (int i = 0; i < HOPPER_PARTS && v->mode != GEMM_DX; i++) {
        const size_t part = at.part + (size_t)i * TENSOR_MAP_BYTES;
        if (v->mode == GEMM_DW) {
            add_ragged_slabs(l, part, v->in, o->b, o->b_cols, o->b_stride, part_rows(i),
                             t->c / SLAB / t->cluster_r);
        } else {
            add_weights(v, o, part, part_rows(i), l);
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
        const struct places at_a = places_of(false), at_b = places_of(true);
        add_tokens(l, &at_a, o->a, (uint64_t)v->n, o->a_stride, t->r);
        add_tokens(l, &at_b, o->b, (uint64_t)v->k, o->b_stride, t->c);
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
