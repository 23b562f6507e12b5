/* SPDX-License-Identifier: Apache-2.0 */
/* ---- scales: the producer's part of fp8 ---------------------------------------------------------------- */
/*
 * Scales come through shared memory, in each stage beside the operands: those of A's rows, then those of B (SCALES in
 * params.cu). A warp of the producer copies four bytes for each scale (cp.async), so scales may have any strides. fp8.cu
 * says what a scale is for.
 */
#if FP8
#if TILE_D != 64 || MODE == MODE_DX || PINGPONG || STAGGERED || DEFERRED || GATHER_DY || (CLUSTER > 1 && !SWAP_AB)
#error "fp8 has cooperative tiles, in forward (also for dX) and dW"
#endif
#if SWAP_AB && SCALES != SCALES_BLOCKS
#error "swapped tiles are for weights with scales of 128 x 128"
#endif
#if MODE == MODE_DW && (GATHER || SCALES == SCALES_BLOCKS || LOADERS > 3)
#error "in dW both operands have a scale for each row, and come by TMA"
#endif
#if MODE != MODE_DW && SCALES == SCALES_LINES
#error "in forward the weights have scales of 128 x 128 or of rows"
#endif

#ifndef HOPPER_EMULATED
/* Requests a box of the output into L2. */
INLINE void ask_output(const struct tensor_map *map, int x, int y, int z)
{
    ask_3d(map, x, y, z);
}
#endif

INLINE u32 scales_at(u32 shared, u32 stage)
{
    return shared + SCALES_AT + stage * SCALES_BYTES;
}

/* Copies the scales of `exist` rows from `row` on, of block `block` of the reduction, to `to`. Called by a warp. */
INLINE void copy_line_scales(const struct scales *s, int row, int exist, int most, int block, u32 to)
{
    const char *from = s->data + (i64)(row + LANE) * s->row + (i64)block * s->block;
#pragma unroll
    for (int i = 0; i < most; i += 32)
        if (i + LANE < exist)
            copy4(to + (i + LANE) * 4, from + i * s->row);
}

/* Copies the scale of each group of the tile's weights: of GROUP columns, with SWAP_AB of 64 rows. */
INLINE void copy_block_scales(const struct hopper_params *p, const struct tile *t, int block, int group, u32 to)
{
    const struct scales *s = &p->b_scales;
    const int c = SWAP_AB ? t->r0 + group * 64 : t->c0 + group * GROUP;
    if (group < (SWAP_AB ? TILE_R / 64 : GROUPS) && c < p->tile_cols)
        copy4(to + group * 4, s->data + t->expert * s->expert + (i64)(c / 128) * s->row + (i64)block * s->block);
}

/* Where a stage keeps the scales of the tile's rows of x or dy, and of the groups of weights. */
#define LINES_AT (SWAP_AB ? SCALES_A * 4 : 0)
#define BLOCKS_AT (SWAP_AB ? 0 : SCALES_A * 4)

/* dW that threads add to the output: requests the tile's output into L2, while the tile is multiplied. An addition by
 * TMA took as long as if L2 added two numbers a cycle in each of its slices (H200). */
INLINE void ask_for_output(const struct hopper_params *p, const struct tile *t)
{
    if (MODE != MODE_DW || !OUT_FP32 || TMA_STORE || !(p->flags & FLAG_ACCUMULATE) || !elected())
        return;
#pragma unroll 1
    for (int r = t->r0; r < t->r0 + TILE_R && r < p->tile_rows; r += 64)
#pragma unroll 1
        for (int c = t->c0; c < t->c0 + TILE_C && c < p->tile_cols; c += SLAB_COLS)
            ask_output(&p->out, c, r, t->expert);
}

/* The loop of the warp that copies scales: a stage's "full" mbarrier waits for each of its lanes. */
INLINE void produce_scales(const struct hopper_params *p, const struct tables *s, u32 shared, int tiles)
{
    struct walk w = walk_begin(p, tiles);
    struct place at = place_of(0);
    set_up_for_loader();
#pragma unroll 1
    while (w.id < tiles) {
        const struct tile t = locate_tile(p, s, w.id);
        const int blocks = blocks_of(p, t.rows);
        const int first = MODE == MODE_DW ? t.first / TILE_D : FIRST_BLOCK(p);
        const int row = MODE == MODE_DW ? t.r0 : t.first + (SWAP_AB ? t.c0 : t.r0);
        const int exist = SWAP_AB ? t.width : at_most(output_rows(p, &t) - t.r0, TILE_ROWS);
#pragma unroll 1
        for (int block = 0; block < blocks; block++) {
            const u32 to = scales_at(shared, at.stage);
            barrier_wait(empty_barrier(shared, at.stage), at.phase ^ 1);
            copy_line_scales(&p->a_scales, row, exist, TILE_ROWS, first + block, to + LINES_AT);
            if (SCALES == SCALES_BLOCKS)
                copy_block_scales(p, &t, first + block, LANE, to + BLOCKS_AT);
            else
                copy_line_scales(&p->b_scales, t.c0, at_most(p->tile_cols - t.c0, TILE_C), TILE_C, first + block,
                                 to + SCALES_A * 4);
            copies_arrive(full_barrier(shared, at.stage));
            place_next(&at);
            if (block == 0)
                ask_for_output(p, &t);
        }
        walk_next(shared, &w);
    }
    copies_wait();
}

/* ---- gathered rows: the threads that copy A's rows also copy the rows' scales ---- */

#if GATHER
#define SCALED ((TILE_ROWS + 127) / 128) /* rows whose scale a thread copies: of eight threads with the same rows, each other rows */

/* `index`: gather indices of this thread's rows, THREAD / 8 + 16 j. Finds the tokens of the rows j = THREAD % 8 + 8 n. */
INLINE void find_scaled(const struct hopper_params *p, const int *index, int token[SCALED])
{
#pragma unroll
    for (int j = 0; j < TILE_ROWS / 16; j++)
        if ((THREAD & 7) == (j & 7))
            token[j / 8] = index[j] < 0 ? -1 : token_of(p, index[j]);
}

INLINE void copy_gathered_scales(const struct hopper_params *p, const struct tile *t, const int token[SCALED], int block,
                                 u32 to)
{
    const struct scales *s = &p->a_scales;
    if (SCALES == SCALES_ROWS)
        return;
#pragma unroll
    for (int n = 0; n < SCALED; n++) {
        const int r = (THREAD >> 3) + 16 * ((THREAD & 7) + 8 * n);
        if (r < TILE_ROWS && token[n] >= 0)
            copy4(to + LINES_AT + r * 4, s->data + (i64)token[n] * s->row + (i64)block * s->block);
    }
    copy_block_scales(p, t, block, THREAD, to + BLOCKS_AT);
}
#endif
#endif
