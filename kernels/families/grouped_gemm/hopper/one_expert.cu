/* SPDX-License-Identifier: Apache-2.0 */
/* ---- one expert: before the first load --------------------------------------------------------------- */
/*
 * A product of one expert is often small: its time is little more than the set-up before the first load, the latency
 * of that load, and the end. No tables are made, and the set-up is divided: one warp asks for the tensor maps of its
 * first loads, and loads; another makes the mbarriers. The consumers, still idle, request the first operands of their
 * first tile into L2. TMA's own loads begin later, when its maps have come from memory, which takes as long as operands
 * take.
 *
 * The divided set-up and the early requests together saved 3 % of the time of 12 products of 16 to 512 rows with
 * operands outside L2 (H200). They save no time in large tiles, nor in dX, whose weights lie in other lines.
 */

/* True if the sums leave registers free, so that a consumer finds a tile's place before it multiplies the tile. */
#if FP8
/* No wgmma runs between the last promotion and the output, so a consumer finds each tile while the tile before is
 * multiplied. Where column scales or gathering take the registers, it finds the tile after. */
#define SUMS_FEW (ONE_EXPERT && MMAS * ACCUMULATORS <= 64)
#define LOCATE_EARLY                                                                               \
    (SUMS_FEW || (!COLUMN_SCALES && MODE != MODE_DW && !GATHER && !KSPLIT))
#define ASKS_FIRST SUMS_FEW
#else
#define LOCATE_EARLY (ONE_EXPERT && !PINGPONG && MMAS * ACCUMULATORS <= 64)
#define ASKS_FIRST (LOCATE_EARLY && !WEIGHTS_TRANSPOSED)
#endif

#if ONE_EXPERT
#define ASKED_COLS 128 /* columns of a row that are requested: two blocks of the reduction, 256 bytes */

/* Address of 16 bytes of shared memory that touch() may overwrite: only this warp uses them, later, for its output. */
INLINE u32 touched_at(u32 shared, int consumer)
{
    const int warp = THREAD >> 5 & 3;
    return shared + STAGING_AT + consumer * STAGING_BUFFERS * BUFFER_BYTES + warp * (SWAP_AB ? 32 * 16 : 16 * ROW_BYTES) +
           LANE * 16;
}

/* Requests row n of a tile's operands: the tile's rows, then its weights. touch() copies 16 bytes of each line to
 * shared memory at `to`. With KSPLIT other thread blocks may send sums there meanwhile, so it only prefetches lines. */
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

/* Requests the operands of the consumer's first tile, and waits until touch() has read them: the warp has no other work
 * until then. */
INLINE void ask_first(const struct hopper_params *p, const struct tile *t, u32 to)
{
#pragma unroll
    for (int n = 0; n < TILE_ROWS + TILE_COLS; n += 128 * CONSUMERS)
        ask_nth(p, t, n + THREAD - 128, to);
    if (!KSPLIT)
        copies_wait();
}

#if FP8
#define THREADS_OF_SCALES (32 * SCALE_WARPS)
#else
#define THREADS_OF_SCALES 0
#endif
#define MEET_CONSUMERS (32 + THREADS_OF_SCALES + 128 * CONSUMERS)

INLINE void set_up_for_loader(void)
{
    set_up_arrive();
    group_barrier(BARRIER_LOADER, 64);
}

/* A warp that brings scales waits with the consumers: the loading warp does not wait for its first loads. */
INLINE void set_up_for_scales(void)
{
    set_up_arrive();
    warp_barrier(); /* a whole warp must arrive, not single lanes */
    group_barrier(BARRIER_CONSUMERS, MEET_CONSUMERS);
}

/* bar.arrive: tells the loading warp, the consumers and the warps that bring scales that the mbarriers exist. The warp
 * that makes them calls this. */
INLINE void set_up_done(void)
{
    group_arrive(BARRIER_LOADER, 64);
    group_arrive(BARRIER_CONSUMERS, MEET_CONSUMERS);
    set_up_arrive();
}

/* The part of the set-up that consumers do. `first`: the consumer's first tile, or no_tile(). */
INLINE void set_up_for_consumers(const struct hopper_params *p, const struct tile *first, u32 shared, int consumer)
{
    if (ASKS_FIRST && first->rows > 0)
        ask_first(p, first, touched_at(shared, consumer));
    set_up_arrive();
    group_barrier(BARRIER_CONSUMERS, MEET_CONSUMERS);
    set_up_everywhere();
}
#else
#define set_up_for_loader() ((void)0)
#define set_up_for_scales() ((void)0)

INLINE void set_up_for_consumers(const struct hopper_params *p, const struct tile *first, u32 shared, int consumer)
{
    (void)p, (void)first, (void)shared, (void)consumer;
    set_up_everywhere();
}
#endif
