/* SPDX-License-Identifier: Apache-2.0 */
/* ---- sender: fp8's forward and dX, whose output a warp of the producer stores ---------------------------- */
/*
 * SENDS: TMA takes 150 to 330 cycles to accept a store of 8 KiB (H200). The thread that issues the store waits, and its
 * warpgroup with it. So consumers only write their sums to the staging buffers, and a warp of the producer, the sender,
 * stores the buffers.
 *
 * A consumer stages its part of a tile in rounds: all pieces at once, if its staging buffers hold them, else a piece. The
 * buffers of a round are a slot. A slot has two mbarriers:
 *
 *   free    the store before has read the buffers
 *   staged  each warp of the consumer has written its rows
 *
 * Both sides count rounds alike, over all tiles, whether or not the consumer has rows there.
 */
#if FP8
#if SENDS
#define ROUND (STAGING_BUFFERS < MMAS * PIECES ? 1 : MMAS * PIECES) /* pieces in a round */
#define SLOTS (STAGING_BUFFERS / ROUND)
#define SENT_AHEAD (SLOTS > 1) /* rounds whose stores may still read their buffers when the next round is stored */

INLINE u32 slot_free(u32 shared, int consumer, u32 round)
{
    return shared + OUTPUT_AT + (u32)(consumer * SLOTS + (int)(round % SLOTS)) * 16;
}

INLINE u32 slot_staged(u32 shared, int consumer, u32 round)
{
    return slot_free(shared, consumer, round) + 8;
}

INLINE u32 slot_buffer(u32 shared, int consumer, u32 round, int piece)
{
    return shared + STAGING_AT +
           (u32)(consumer * STAGING_BUFFERS + (int)(round % SLOTS) * ROUND + piece % ROUND) * BUFFER_BYTES;
}

INLINE void slots_init(u32 shared)
{
    for (int i = 0; i < CONSUMERS; i++)
        for (u32 round = 0; round < SLOTS; round++) {
            barrier_init(slot_free(shared, i, round), 1);
            barrier_init(slot_staged(shared, i, round), 4);
        }
}

/* A piece of a consumer's part of a tile: 64 rows from r on, and columns from c on. */
struct piece {
    int r, c, exists;
};

INLINE struct piece piece_of(const struct hopper_params *p, const struct tile *t, int consumer, int n)
{
    struct piece x;
    x.r = t->r0 + consumer * ROWS_EACH + n / PIECES * 64;
    x.c = t->c0 + n % PIECES * PIECE;
    x.exists = x.r < output_rows(p, t) && x.c < p->tile_cols;
    return x;
}

/* Writes a consumer's part of a tile to its staging buffers. `round` counts the consumer's rounds. */
INLINE void stage_tile(const struct hopper_params *p, const struct tile *t, int consumer, u32 shared,
                       float acc[MMAS][ACCUMULATORS], u32 *round)
{
    struct rows none; /* TMA stores rows in order, without weights */
#pragma unroll
    for (int n = 0; n < MMAS * PIECES; n++) {
        if (n % ROUND == 0) /* the first round of a slot does not wait */
            barrier_wait(slot_free(shared, consumer, *round), (*round / SLOTS & 1) ^ 1);
        if (piece_of(p, t, consumer, n).exists)
            stage_piece(slot_buffer(shared, consumer, *round, n), acc + n / PIECES, n % PIECES, &none);
        if (n % ROUND == ROUND - 1) {
            async_fence();
            warp_barrier();
            barrier_arrive(slot_staged(shared, consumer, *round), LANE == 0);
            ++*round;
        }
    }
}

/* Tells the consumers that the buffers of a round are free; called by a single thread. */
INLINE void free_round(u32 shared, u32 round)
{
#pragma unroll
    for (int i = 0; i < CONSUMERS; i++)
        barrier_arrive(slot_free(shared, i, round), 1);
}

/* Stores a round of both consumers, whose first piece is n. */
INLINE void send_round(const struct hopper_params *p, const struct tile *t, u32 shared, u32 round, int n)
{
#pragma unroll
    for (int i = 0; i < CONSUMERS; i++) {
        barrier_wait(slot_staged(shared, i, round), round / SLOTS & 1);
#pragma unroll
        for (int k = n; k < n + ROUND; k++) {
            const struct piece x = piece_of(p, t, i, k);
            if (x.exists && elected())
                send_piece(p, t, slot_buffer(shared, i, round, k), x.c, x.r);
        }
    }
    warp_barrier(); /* all lanes have seen these phases: the next phases may end from here on */
    if (elected()) {
        stores_commit();
        STORES_WAIT_READ(SENT_AHEAD);
        if (round >= SENT_AHEAD)
            free_round(shared, round - SENT_AHEAD);
    }
}

/* The loop of the sender. */
INLINE void send_tiles(const struct hopper_params *p, const struct tables *s, u32 shared, int tiles)
{
    struct walk w = walk_begin(p, tiles);
    u32 round = 0;
#pragma unroll 1
    while (w.id < tiles) {
        const struct tile t = locate_tile(p, s, w.id);
#pragma unroll 1
        for (int n = 0; n < MMAS * PIECES; n += ROUND)
            send_round(p, &t, shared, round++, n);
        walk_next(shared, &w);
    }
    if (elected())
        STORES_WAIT_READ(0);
}
#else
#define slots_init(shared) ((void)0)
#endif
#endif
