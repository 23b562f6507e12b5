/* SPDX-License-Identifier: Apache-2.0 */
/* ---- staggered: half of a consumer's rows is written while the other half is multiplied ------------- */
/*
 * LEAD: a consumer that has twice 64 rows of a tile begins with LEAD blocks of the first 64 and ends with LEAD
 * blocks of the second; in between it multiplies both side by side. wgmma runs on its own meanwhile, so that
 * the tensor cores need not wait for what is written. Of a tile with n blocks, LEAD 2:
 *
 *   multiplied             written
 *   both 2 ... n - 3
 *   first n - 2, n - 1
 *   second n - 2, n - 1    first 64 rows
 *   first 0, 1 of the next second 64 rows
 *   second 0, 1
 *
 * LEAD stages of a tile's end are held while as many of the next one's beginning are needed: there must be
 * 2 * LEAD stages, and as many blocks in a sum. With SKIP_ROWS a consumer may have 64 rows of a tile, or
 * none: these it multiplies as elsewhere.
 *
 * The compiler must see which wgmmas are over where a half is read, or it runs all of them one after the
 * other: so all that was begun is waited for between the two halves, and what begins wgmmas is not under a
 * condition.
 */
#if LEAD

/* A consumer's operands in the first stage. */
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

/* LEAD blocks of a half from `at` on; `first`: the tile's first. Returns where they end. */
INLINE struct place multiply_ahead(float acc[MMAS][ACCUMULATORS], int i, const struct operands *o,
                                   struct place at, int first)
{
#pragma unroll
    for (int block = 0; block < LEAD; block++) {
        if (i == 0)
            wait_full(o->shared, &at);
        wgmma_fence();
        multiply_half(acc, i, o, at.stage, first && block == 0);
        place_next(&at);
    }
    wgmma_commit();
    return at;
}

INLINE u32 stage_before(struct place at)
{
    return at.stage ? at.stage - 1 : NUM_STAGES - 1;
}

/* The stages of the LEAD blocks that end with `last`. */
INLINE void give_ahead(u32 shared, u32 last)
{
    if (LEAD > 1)
        give_stage(shared, last ? last - 1 : NUM_STAGES - 1);
    give_stage(shared, last);
}

/* A tile of which both halves have been begun, up to `at`. Leaves the last blocks of the second running, and
 * returns where they end. */
INLINE struct place multiply_tile(float acc[MMAS][ACCUMULATORS], const struct operands *o,
                                  struct place at, int blocks)
{
    u32 last = stage_before(at);
    int held = LEAD;
#pragma unroll 1
    for (int block = 2 * LEAD; block < blocks; block++) {
        wait_full(o->shared, &at);
        wgmma_fence();
        multiply_half(acc, 0, o, at.stage, 0);
        multiply_half(acc, 1, o, at.stage, 0);
        wgmma_commit();
        WGMMA_WAIT(1);
        if (held > 1)
            give_ahead(o->shared, last);
        else
            give_stage(o->shared, last);
        held = 1;
        last = at.stage;
        place_next(&at);
    }
    multiply_ahead(acc, 0, o, at, 0);
    WGMMA_WAIT(1);
    if (held > 1)
        give_ahead(o->shared, last);
    else
        give_stage(o->shared, last);
    return multiply_ahead(acc, 1, o, at, 0);
}

/* A consumer that has 64 rows of a tile, or none: nothing is ahead of anything. */
INLINE u32 multiply_less(float acc[MMAS][ACCUMULATORS], u32 shared, int consumer, u32 from,
                         const struct work *work, struct walk *w)
{
    if (work->mmas == 0)
        return mainloop_idle(shared, from, blocks_in(work->steps));
    return mainloop_of(acc, 1, TILE_C, shared, consumer, from, work->steps, w);
}

INLINE void write_half(const struct hopper_params *p, const struct tile *t, int r0, int consumer,
                       u32 shared, float acc[MMAS][ACCUMULATORS], int i, const struct rows *rows,
                       u32 *ring)
{
    wgmma_settle(acc, i);
    store_tile(p, t, r0 + i * 64, consumer, shared, acc + i, rows, ring);
}

INLINE void consume(const struct hopper_params *p, const struct tables *s, u32 shared, int tiles,
                    int consumer)
{
    const struct operands o = {shared, shared + consumer * ROWS_EACH * ROW_BYTES, shared + A_BYTES};
    struct walk w = walk_begin(tiles);
    struct work work = work_at(p, s, w.id, tiles, consumer);
    u32 from = 0, ring = 0; /* blocks and pieces before this tile */
    float acc[MMAS][ACCUMULATORS];
    struct rows rows;
#pragma unroll 1
    while (w.id < tiles) {
        if (SKIP_ROWS && work.mmas < MMAS) {
            const int id = w.id;
            const u32 last = multiply_less(acc, shared, consumer, from, &work, &w);
            const struct tile t = locate_tile(p, s, id);
            const int r0 = t.r0 + consumer * ROWS_EACH;
            find_rows(p, &t, r0, consumer, &rows);
            from += blocks_in(work.steps);
            walk_next(shared, &w);
            work = work_at(p, s, w.id, tiles, consumer);
            WGMMA_WAIT(0);
            give_stage(shared, last);
            write_half(p, &t, r0, consumer, shared, acc, 0, &rows, &ring);
            continue;
        }
        multiply_ahead(acc, 0, &o, place_of(from), 1);
        struct place at = multiply_ahead(acc, 1, &o, place_of(from), 1);
#pragma unroll 1
        for (;;) { /* tiles of which this consumer has both halves */
            const int id = w.id;
            at = multiply_tile(acc, &o, at, blocks_in(work.steps));
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
            give_ahead(shared, stage_before(at));
            if (w.id >= tiles || (SKIP_ROWS && work.mmas < MMAS)) {
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
