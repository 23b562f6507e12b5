/* SPDX-License-Identifier: Apache-2.0 */
/* ---- one expert: before the first load --------------------------------------------------------------- */
/*
 * A product of one expert is often small: its time is little more than the set-up before the first load, the latency
 * of that load, and the end. No tables are made, and the set-up is divided: one warp loads, one makes the mbarriers,
 * one fetches tensor maps. The consumers, still idle, ask L2 for the first operands of their first tile, because TMA
 * waits for its maps, and maps come from memory as slowly as operands.
 *
 * The divided set-up and the early requests together saved 3 % of the time of 12 products of 16 to 512 rows with
 * operands outside L2 (H200). They save no time in large tiles, nor in dX, whose weights lie in other lines.
 */

/* If the sums leave registers free, a tile is found before it is multiplied. */
#define LOCATE_EARLY (ONE_EXPERT && !PINGPONG && MMAS * ACCUMULATORS <= 64)
#define ASKS_FIRST (LOCATE_EARLY && !WEIGHTS_TRANSPOSED)

#if ONE_EXPERT
#define ASKED_COLS 128 /* columns of a row that are requested: two blocks of the reduction, 256 bytes */

/* Address of 16 bytes of shared memory that touch() may overwrite: only this warp uses them, later, for its output. */
INLINE u32 touched_at(u32 shared, int consumer)
{
    const int warp = THREAD >> 5 & 3;
    return shared + STAGING_AT + consumer * STAGING_BUFFERS * BUFFER_BYTES + warp * (SWAP_AB ? 32 * 16 : 16 * ROW_BYTES) +
           LANE * 16;
}

/* Requests the n-th row of a tile's rows and weights. With KSPLIT other thread blocks send sums to the touched bytes
 * and do not wait for touches, so lines are only prefetched. */
INLINE void ask_nth(const struct hopper_params *p, const struct tile *t, int n, u32 to)
{
    const int of_weights = n >= TILE_ROWS, first = FIRST_BLOCK(p) * TILE_D;
    const int row = of_weights ? (SWAP_AB ? t->r0 : t->c0) + n - TILE_ROWS : (SWAP_AB ? t->c0 : t->r0) + n;
    const u64 stride = of_weights ? p->b_rows_stride : p->a_rows_stride;
    const char *from = (of_weights ? p->b_rows : p->a_rows) + (u64)row * stride * 16 + first * 2;
    if (n >= TILE_ROWS + TILE_COLS || row >= (of_weights ? p->tile_cols : p->rows))
        return;
    if (!KSPLIT)
        touch(to, from);
    if (KSPLIT)
        ask_line(from);
    if (KSPLIT && first + ASKED_COLS / 2 < p->depth)
        ask_line(from + ASKED_COLS);
}

/* Requests the first rows, and waits until touch() has read them: until then the warp has no other work. */
INLINE void ask_first(const struct hopper_params *p, const struct tile *t, u32 to)
{
#pragma unroll
    for (int n = 0; n < TILE_ROWS + TILE_COLS; n += 128 * CONSUMERS)
        ask_nth(p, t, n + THREAD - 128, to);
    if (!KSPLIT)
        copies_wait();
}

INLINE void set_up_for_loader(void)
{
    set_up_arrive();
    group_barrier(BARRIER_LOADER, 64);
}

/* Tells the waiting warps that the mbarriers exist; called by the warp that makes them. The waiting warps have
 * found their first tile meanwhile. */
INLINE void set_up_done(void)
{
    group_arrive(BARRIER_LOADER, 64);
    group_arrive(BARRIER_CONSUMERS, 32 + 128 * CONSUMERS);
    set_up_arrive();
}

/* The part of the set-up that consumers do. `first`: the consumer's first tile, or no_tile(). */
INLINE void set_up_for_consumers(const struct hopper_params *p, const struct tile *first, u32 shared, int consumer)
{
    if (ASKS_FIRST && first->rows > 0)
        ask_first(p, first, touched_at(shared, consumer));
    set_up_arrive();
    group_barrier(BARRIER_CONSUMERS, 32 + 128 * CONSUMERS);
    set_up_everywhere();
}
#else
#define set_up_for_loader() ((void)0)

INLINE void set_up_for_consumers(const struct hopper_params *p, const struct tile *first, u32 shared, int consumer)
{
    (void)p, (void)first, (void)shared, (void)consumer;
    set_up_everywhere();
}
#endif
