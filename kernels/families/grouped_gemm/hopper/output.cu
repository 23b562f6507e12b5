/* SPDX-License-Identifier: Apache-2.0 */
/* ---- output: fp8's dW that adds to its output ----------------------------------------------------------- */
/*
 * A TMA store that adds (cp.reduce.async.bulk) took as long as if L2 added two numbers a cycle in each of its slices
 * (H200), longer than memory takes for the bytes. So a warp of the producer loads the output's pieces by TMA into the
 * staging buffers, while the tile is multiplied. The consumer adds its sums to a piece there, and stores it by TMA.
 *
 * Each buffer has two mbarriers: "full" waits for TMA's bytes; "empty" for the store before, which still reads the
 * buffer. Both sides count a consumer's pieces alike, over all tiles.
 */
#if FP8
INLINE u32 output_full(u32 shared, int consumer, u32 n)
{
    return shared + OUTPUT_AT + (u32)(consumer * STAGING_BUFFERS + (int)(n % STAGING_BUFFERS)) * 16;
}

INLINE u32 output_empty(u32 shared, int consumer, u32 n)
{
    return output_full(shared, consumer, n) + 8;
}

INLINE u32 output_buffer(u32 shared, int consumer, u32 n)
{
    return shared + STAGING_AT + (u32)(consumer * STAGING_BUFFERS + (int)(n % STAGING_BUFFERS)) * BUFFER_BYTES;
}

INLINE void output_init(u32 shared)
{
    for (int i = 0; LOADS_OUTPUT && i < CONSUMERS * STAGING_BUFFERS * 2; i++)
        barrier_init(shared + OUTPUT_AT + i * 8, 1);
}

/* True if the launch adds to its output through loaded pieces. */
INLINE int output_added(const struct hopper_params *p)
{
    return LOADS_OUTPUT && (p->flags & FLAG_ACCUMULATE);
}

/* The loop of the warp that loads the output, in the order in which consumers write their pieces. */
INLINE void produce_output(const struct hopper_params *p, const struct tables *s, u32 shared, int tiles)
{
    struct walk w = walk_begin(p, tiles);
    u32 count[CONSUMERS];
#pragma unroll
    for (int i = 0; i < CONSUMERS; i++)
        count[i] = 0;
#pragma unroll 1
    while (output_added(p) && w.id < tiles) {
        const struct tile t = locate_tile(p, s, w.id);
#pragma unroll 1
        for (int n = 0; n < MMAS * PIECES; n++) {
            const int c = t.c0 + n % PIECES * PIECE;
#pragma unroll
            for (int i = 0; i < CONSUMERS; i++) {
                const int r = t.r0 + i * ROWS_EACH + n / PIECES * 64;
                if (r >= p->tile_rows || c >= p->tile_cols)
                    continue;
                const u32 full = output_full(shared, i, count[i]);
                barrier_wait(output_empty(shared, i, count[i]), (count[i] / STAGING_BUFFERS & 1) ^ 1);
                if (elected()) {
                    barrier_expect(full, BUFFER_BYTES);
                    load_3d(output_buffer(shared, i, count[i]), &p->out, c, r, t.expert, full, policy_evict_first());
                }
                warp_barrier();
                count[i]++;
            }
        }
        walk_next(shared, &w);
    }
}

/* Adds 64 rows of sums (16 of this warp) to the loaded piece at `to`, which lies as stage_32() would write it. */
INLINE void add_sums(u32 to, const float *d)
{
    const u32 row = to + (LANE >> 2) * ROW_BYTES, half = (LANE & 1) << 3;
#pragma unroll
    for (int q = 0; q < 4; q++) { /* each q: 8 columns */
        const u32 at = row + (((q * 2 + (LANE >> 1 & 1)) ^ (LANE >> 2)) << 4) + half;
        float old[4];
        shared_scales(at, &old[0], &old[1]);
        shared_scales(at + 8 * ROW_BYTES, &old[2], &old[3]);
        shared_store8(at, d[q * 4] + old[0], d[q * 4 + 1] + old[1]);
        shared_store8(at + 8 * ROW_BYTES, d[q * 4 + 2] + old[2], d[q * 4 + 3] + old[3]);
    }
}

/* Adds a consumer's sums to the loaded output, and stores it; `count` counts the consumer's pieces. */
INLINE void add_to_output(const struct hopper_params *p, const struct tile *t, int r0, int consumer, u32 shared,
                          const float d[ACCUMULATORS], u32 *count)
{
    const int warp = (THREAD >> 5) & 3;
#pragma unroll
    for (int piece = 0; piece < PIECES; piece++) {
        const int c = t->c0 + piece * PIECE;
        if (c >= p->tile_cols)
            break;
        const u32 n = *count, buffer = output_buffer(shared, consumer, n);
        barrier_wait(output_full(shared, consumer, n), n / STAGING_BUFFERS & 1);
        add_sums(buffer + warp * 16 * ROW_BYTES, d + piece * (PIECE / 2));
        async_fence();
        group_barrier(BARRIER_WRITE + consumer, 128);
        if (warp == 0 && elected()) {
            store_3d(&p->out, buffer, c, r0, t->expert, policy_evict_first());
            stores_commit();
            STORES_WAIT_READ(STAGING_BUFFERS > 1); /* of all stores but the newest, if there are several buffers */
            if (STAGING_BUFFERS == 1 || n > 0)
                barrier_arrive(output_empty(shared, consumer, n - (STAGING_BUFFERS > 1)), 1);
        }
        *count = n + 1;
    }
}
#endif
