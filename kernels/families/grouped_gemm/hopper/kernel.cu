/* SPDX-License-Identifier: Apache-2.0 */
/* ---- kernel ------------------------------------------------------------------------------------------- */

INLINE void set_up(const struct hopper_params *p, const struct tables *s, u32 shared)
{
    const int warp = THREAD >> 5;
    if (warp == 0)
        scan_experts(p, s);
    if (warp == 1 && LANE == 0) {
        if (!GATHER_A) {
            map_prefetch(&p->a);
            map_prefetch(&p->a_part);
        }
        if (!GATHER_B) {
            map_prefetch(&p->b);
            if (MODE != MODE_DX)
                map_prefetch(&p->b_part);
        }
        if (TMA_STORE)
            map_prefetch(&p->out);
        for (int i = 0; i < NUM_STAGES; i++) {
            /* TMA's own arrival, and one of every gathering thread; one of every multiplying warp */
            barrier_init(full_barrier(shared, i), 1 + (GATHER ? 128 : 0));
            barrier_init(empty_barrier(shared, i), 4 * (PINGPONG ? 1 : CONSUMERS));
        }
        barrier_init_fence();
    }
    block_barrier();
    if (MODE == MODE_DW) {
        order_experts(p, s);
        block_barrier();
    }
}

INLINE void consume(const struct hopper_params *p, const struct tables *s, u32 shared, int tiles,
                    int consumer)
{
    const int step = PINGPONG ? 2 * BLOCKS : BLOCKS;
    u32 from = 0, ring = 0; /* blocks and pieces before this tile */
    int id = BLOCK;
    if (PINGPONG && consumer == 1) {
        give_turn(consumer, id < tiles);
        from = id < tiles ? blocks_in(steps_at(p, s, id)) : 0;
        id += BLOCKS;
    }
    struct work work = work_at(p, s, id, tiles, consumer);
#pragma unroll 1
    while (id < tiles) {
        float acc[MMAS][ACCUMULATORS]; /* the first wgmma of a tile ignores what is in it */
        const u32 last = mainloop(acc, shared, consumer, from, &work, id + BLOCKS < tiles);

        /* While the last group runs: where this tile goes, and where the next one begins. */
        const struct tile t = locate_tile(p, s, id);
        const int r0 = t.r0 + (PINGPONG ? 0 : consumer * ROWS_EACH);
        struct rows rows;
        find_rows(p, &t, r0, &rows);
        from += blocks_in(work.steps);
        if (PINGPONG && id + BLOCKS < tiles)
            from += blocks_in(steps_at(p, s, id + BLOCKS));
        id += step;
        work = work_at(p, s, id, tiles, consumer);

        mainloop_end(acc, shared, last);
        store_tile(p, &t, r0, consumer, shared, acc, &rows, &ring);
    }
    stores_end();
}

KERNEL_OF(THREADS) grouped_gemm_hopper(PARAMS(hopper_params) p)
{
    const u32 shared = shared_base();
    const int warpgroup = uniform(THREAD >> 7);
    const struct tables s = tables_at(shared_memory, &p);
    if (shared & 1023)
        trap(); /* swizzles would be off */
    set_up(&p, &s, shared);
    const int tiles = count_tiles(&p, &s);
    if (warpgroup == 0) {
        registers_give();
        produce(&p, &s, shared, tiles);
    } else {
        registers_take();
        consume(&p, &s, shared, tiles, warpgroup - 1);
    }
}
