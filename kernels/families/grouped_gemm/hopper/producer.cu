/* SPDX-License-Identifier: Apache-2.0 */
/* ---- producer: operands by TMA ---------------------------------------------------------------------- */
/*
 * Rows of one expert are read through a "ragged" map: a plain 2-D map would read on into the next
 * expert's rows, whose NaNs would poison a reduction over rows. Its dimensions are (inner, 2^30,
 * 2^31, 2^31) with strides (row, row, 2^35 - row); row r of an expert whose last row ends at `end`
 * and which has `rows` rows is at (x, 2^30 - rows + r, end, 2^30): the address is
 * row * (2^30 - rows + r + end) + 2^30 * (2^35 - row), and 2^65 is 0 modulo 2^64; r >= rows is out of
 * bounds of the second dimension, and so is read as zeros and not written.
 */
#define RAGGED (1 << 30)

INLINE void load_rows(u32 to, const struct tensor_map *map, const struct tile *t, int x, int r,
                      u32 bar)
{
    load_4d(to, map, x, RAGGED - t->rows + r, t->first + t->rows, RAGGED, bar);
}

INLINE void load_a(const struct hopper_params *p, const struct tile *t, int d, u32 to, u32 bar)
{
    if (!A_TRANSPOSED) {
        load_rows(to, &p->a, t, d, t->r0, bar);
        return;
    }
#pragma unroll
    for (int i = 0; i < TILE_R / 64; i++)
        load_rows(to + i * SLAB_BYTES, &p->a, t, t->r0 + i * 64, d, bar);
}

INLINE void load_b(const struct hopper_params *p, const struct tile *t, int d, u32 to, u32 bar,
                   u64 policy)
{
    if (!B_TRANSPOSED) {
        load_3d(to, &p->b, d, t->c0, t->expert, bar, policy);
        return;
    }
#pragma unroll
    for (int i = 0; i < TILE_C / 64; i++) {
        if (MODE == MODE_DX)
            load_3d(to + i * SLAB_BYTES, &p->b, t->c0 + i * 64, d, t->expert, bar, policy);
        else
            load_rows(to + i * SLAB_BYTES, &p->b, t, t->c0 + i * 64, d, bar);
    }
}

/* By one thread: what TMA brings of a block. */
INLINE void load_block(const struct hopper_params *p, const struct tile *t, int d, u32 stage,
                       u32 bar, u64 policy)
{
    barrier_expect(bar, TMA_BYTES);
    if (!GATHER_A)
        load_a(p, t, d, stage, bar);
    if (!GATHER_B)
        load_b(p, t, d, stage + A_BYTES, bar, policy);
}

/* A weight tile that only one row tile needs should not push others out of L2. */
INLINE u64 weight_policy(const struct tile *t)
{
    return t->row_tiles == 1 ? policy_evict_first() : policy_normal();
}

#if !GATHER
/* By the first warp of the producer warpgroup. */
INLINE void produce(const struct hopper_params *p, const struct tables *s, u32 shared, int tiles)
{
    struct place at = place_of(0);
    if (THREAD >= 32)
        return;
#pragma unroll 1
    for (int id = BLOCK; id < tiles; id += BLOCKS) {
        const struct tile t = locate_tile(p, s, id);
        const int blocks = blocks_of(p, t.rows);
        const u64 policy = weight_policy(&t);
#pragma unroll 1
        for (int block = 0; block < blocks; block++) {
            barrier_wait(empty_barrier(shared, at.stage), at.phase ^ 1);
            if (LANE == 0)
                load_block(p, &t, block * TILE_D, shared + at.stage * STAGE_BYTES,
                           full_barrier(shared, at.stage), policy);
            warp_barrier();
            place_next(&at);
        }
    }
}
#endif
