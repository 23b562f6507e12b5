/* SPDX-License-Identifier: Apache-2.0 */
/* ---- staggered: half of a consumer's rows is written while the other half is multiplied ------------- */
/*
 * STAGGERED: a consumer warpgroup has twice 64 rows of a tile. It begins with a block of the reduction of the first 64
 * rows, ends with a block of the second 64, and in between multiplies both side by side. wgmma runs asynchronously, so
 * the tensor cores need not wait for writes. For a tile with n blocks:
 *
 *   multiplied           written
 *   both 1 ... n - 2
 *   first n - 1
 *   second n - 1         first 64 rows
 *   first 0 of the next  second 64 rows
 *   second 0.
 *
 * More blocks ahead would hide more, but hold stages that other loads need: with two of four stages the kernel was
 * slower than without staggering (H200). Shorter sums (dW), and tiles with 64 rows or none for a consumer
 * (SKIP_ROWS), use the plain loop.
 *
 * The compiler must see which wgmmas are complete where a half is read; otherwise it serialises all wgmmas. So the
 * consumer waits for all wgmmas between the two halves, and issues wgmmas unconditionally.
 */
#if STAGGERED

struct operands {
    u32 shared, a, b;
};

INLINE void multiply_half(float acc[MMAS][ACCUMULATORS], int i, const struct operands *o, u32 stage,
                          int first)
{
    const u32 a = o->a + stage * STAGE_BYTES + i * SLAB_BYTES, b = o->b + stage * STAGE_BYTES;
    const u32 low_a = DESCRIPTOR_LOW(A_TRANSPOSED, SLAB_BYTES) | a >> 4;
    const u32 low_b = DESCRIPTOR_LOW(B_TRANSPOSED, SLAB_BYTES) | b >> 4;
#pragma unroll
    for (int step = 0; step < STEPS; step++)
        wgmma(acc, i, descriptor(low_a + step * STEP_UNITS(A_TRANSPOSED)),
              descriptor(low_b + step * STEP_UNITS(B_TRANSPOSED)), !(step == 0 && first), TILE_C);
}

/* Multiplies a block of a half; `first`: the tile's first block. Returns the next block's place. */
INLINE struct place multiply_ahead(float acc[MMAS][ACCUMULATORS], int i, const struct operands *o,
                                   struct place at, int first)
{
    if (i == 0)
        wait_full(o->shared, &at);
    wgmma_fence();
    multiply_half(acc, i, o, at.stage, first);
    wgmma_commit();
    place_next(&at);
    return at;
}

/* Multiplies a tile whose first block's wgmmas have been issued; `at` is the next place in the ring. Leaves the wgmmas
 * of the second half's last block running, and returns the place after that block. In dW the block with fewer rows is
 * the second (block_row). */
INLINE struct place multiply_tile(float acc[MMAS][ACCUMULATORS], const struct operands *o,
                                  struct place at, int consumer, int steps)
{
    u32 last = stage_before(at.stage); /* IN_FLIGHT: the stage is given back when the next block has been begun */
    if (!IN_FLIGHT) {
        WGMMA_WAIT(0);
        give_stage(o->shared, last);
    }
    if (MODE == MODE_DW && steps % STEPS) {
        wait_full(o->shared, &at);
        multiply_rest(acc, MMAS, TILE_C, o->b - A_BYTES + at.stage * STAGE_BYTES, consumer, 0,
                      steps % STEPS);
        WGMMA_WAIT(0);
        give_stage(o->shared, IN_FLIGHT ? last : at.stage);
        last = at.stage;
        place_next(&at);
    }
#pragma unroll 1
    for (int block = 2; block < steps / STEPS; block++) {
        wait_full(o->shared, &at);
        wgmma_fence();
        multiply_half(acc, 0, o, at.stage, 0);
        multiply_half(acc, 1, o, at.stage, 0);
        wgmma_commit();
        WGMMA_WAIT(IN_FLIGHT);
        give_stage(o->shared, IN_FLIGHT ? last : at.stage);
        last = at.stage;
        place_next(&at);
    }
    multiply_ahead(acc, 0, o, at, 0);
    if (IN_FLIGHT) {
        WGMMA_WAIT(1);
        give_stage(o->shared, last);
    }
    return multiply_ahead(acc, 1, o, at, 0);
}

/* True if a tile is multiplied without staggering: the consumer has at most 64 of its rows, or the sum is too short.
 * In dW a longer sum has its blocks in another order, so both halves are multiplied even for 64 rows. */
INLINE int is_plain(const struct work *work)
{
    if (MODE == MODE_DW)
        return (SKIP_ROWS && work->mmas == 0) || !is_staggered(work->steps);
    return SKIP_ROWS && work->mmas < MMAS;
}

INLINE u32 multiply_plain(float acc[MMAS][ACCUMULATORS], u32 shared, int consumer, u32 from,
                          const struct work *work, struct walk *w)
{
    if (SKIP_ROWS && work->mmas == 0)
        return mainloop_idle(shared, from, blocks_in(work->steps));
    if (MODE != MODE_DW || (SKIP_ROWS && work->mmas == 1))
        return mainloop_of(acc, 1, TILE_C, shared, consumer, from, work->steps, w);
    return mainloop_of(acc, MMAS, TILE_C, shared, consumer, from, work->steps, w);
}

INLINE void write_half(const struct hopper_params *p, const struct tile *t, int r0, int consumer,
                       u32 shared, float acc[MMAS][ACCUMULATORS], int i, const struct rows *rows,
                       u32 *ring)
{
    wgmma_settle(acc, i);
    store_tile(p, t, r0 + i * 64, consumer, shared, acc + i, rows, ring);
}

INLINE void consume(const struct hopper_params *p, const struct tables *s, u32 shared, int tiles, int consumer,
                    const struct tile *first)
{
    (void)first;
    const struct operands o = {shared, shared + consumer * ROWS_EACH * ROW_BYTES, shared + A_BYTES};
    struct walk w = walk_begin(p, tiles);
    struct work work = work_at(p, s, w.id, tiles, consumer);
    u32 from = 0, ring = 0; /* blocks of earlier tiles; the next staging buffer */
    float acc[MMAS][ACCUMULATORS];
    struct rows rows;
    const struct tile none = no_tile();
    set_up_for_consumers(p, &none, shared, consumer);
#pragma unroll 1
    while (w.id < tiles) {
        if ((SKIP_ROWS || MODE == MODE_DW) && is_plain(&work)) {
            const int id = w.id;
            const u32 last = multiply_plain(acc, shared, consumer, from, &work, &w);
            const struct tile t = locate_tile(p, s, id);
            const int r0 = t.r0 + consumer * ROWS_EACH;
            find_rows(p, &t, r0, consumer, &rows);
            from += blocks_in(work.steps);
            walk_next(shared, &w);
            work = work_at(p, s, w.id, tiles, consumer);
            WGMMA_WAIT(0);
            give_stage(shared, last);
            write_half(p, &t, r0, consumer, shared, acc, 0, &rows, &ring);
            if (MODE == MODE_DW) { /* in other modes a plain tile (is_plain) has no rows in this half */
                find_rows(p, &t, r0 + 64, consumer, &rows);
                write_half(p, &t, r0, consumer, shared, acc, 1, &rows, &ring);
            }
            continue;
        }
        multiply_ahead(acc, 0, &o, place_of(from), 1);
        struct place at = multiply_ahead(acc, 1, &o, place_of(from), 1);
#pragma unroll 1
        for (;;) { /* loops over tiles of which the consumer has both halves */
            const int id = w.id;
            at = multiply_tile(acc, &o, at, consumer, work.steps);
            const struct tile t = locate_tile(p, s, id);
            const int r0 = t.r0 + consumer * ROWS_EACH;
            find_rows(p, &t, r0, consumer, &rows);
            from += blocks_in(work.steps);
            walk_next(shared, &w);
            work = work_at(p, s, w.id, tiles, consumer);
            WGMMA_WAIT(1);
            write_half(p, &t, r0, consumer, shared, acc, 0, &rows, &ring);

            find_rows(p, &t, r0 + 64, consumer, &rows);
            WGMMA_WAIT(0);
            give_stage(shared, stage_before(at.stage));
            if (w.id >= tiles || is_plain(&work)) {
                write_half(p, &t, r0, consumer, shared, acc, 1, &rows, &ring);
                break;
            }
            multiply_ahead(acc, 0, &o, at, 1);
            write_half(p, &t, r0, consumer, shared, acc, 1, &rows, &ring);
            at = multiply_ahead(acc, 1, &o, at, 1);
        }
    }
    stores_end();
}
#endif
