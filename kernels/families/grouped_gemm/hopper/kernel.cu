/* SPDX-License-Identifier: Apache-2.0 */
/* ---- kernel ------------------------------------------------------------------------------------------- */

INLINE void init_barriers(u32 shared)
{
    for (int i = 0; i < NUM_STAGES; i++) {
        /* arrivals per phase: full: the thread that announces TMA's bytes, and each gathering thread; empty: each warp
         * of the tile's consumers, in all thread blocks of the cluster */
#if FP8
        if (i == 0) {
            slots_init(shared);
            output_init(shared);
        }
        barrier_init(full_barrier(shared, i), 1 + GATHERERS + (SCALES == SCALES_ROWS ? 0 : SCALERS));
#else
        barrier_init(full_barrier(shared, i), 1 + GATHERERS);
#endif
        barrier_init(empty_barrier(shared, i), 4 * (PINGPONG ? 1 : CONSUMERS) * CLUSTER);
    }
    for (int i = 0; DYNAMIC && i < TICKETS; i++) {
        barrier_init(ticket_full(shared, i), 1);
        barrier_init(ticket_empty(shared, i), TICKET_WARPS);
    }
    split_init(shared);
    barrier_init_fence();
}

#if ONE_EXPERT
/* The set-up that waits for nothing: the kernel begins with it. The loading warp asks for the tensor maps of its first
 * loads, which come from memory; another warp makes the mbarriers. */
INLINE void set_up_first(const struct hopper_params *p)
{
    if (THREAD == 0) {
        const int rows = at_most(p->rows, SWAP_AB ? TILE_C : TILE_R);
        map_prefetch(TILE_R <= 64 && !A_TRANSPOSED ? p->a_part + part_of(SWAP_AB ? TILE_R : rows) : &p->a);
        map_prefetch(TILE_C <= 64 && !B_TRANSPOSED ? p->b_part + part_of(SWAP_AB ? rows : TILE_C) : &p->b);
        if (TILE_ROWS > 64 && rows < TILE_ROWS) /* no whole box exists */
            map_prefetch((SWAP_AB ? p->b_part : p->a_part) + part_of(rows));
    }
}

/* The part of the set-up done by those warps of the producer that do not load. */
INLINE void set_up_for_others(const struct hopper_params *p, u32 shared)
{
    if (THREAD >> 5 == 1) {
        if (LANE == 0)
            init_barriers(shared);
        warp_barrier(); /* a whole warp must arrive at set_up_done(), not single lanes */
        set_up_done();
        if (TMA_STORE && LANE == 0)
            map_prefetch(STORE_SLABS > 1 ? &p->out_wide : &p->out);
    } else {
        set_up_arrive();
    }
}

#define set_up(p, s, shared) ((void)0)
#else
#define set_up_for_others(p, shared) ((void)0)
#define set_up_first(p) ((void)0)

/* Prefetches the tensor maps, beginning with the maps of the first loads. Called by a single thread. */
INLINE void prefetch_maps(const struct hopper_params *p)
{
    if (!GATHER_A && !(TILE_R == 64 && !A_TRANSPOSED)) /* otherwise load_box uses only a_part */
        map_prefetch(&p->a);
    if (!GATHER_B && !(TILE_C == 64 && !B_TRANSPOSED))
        map_prefetch(&p->b);
    for (int i = 0; i < PARTS && !GATHER_A && !(SWAP_AB && WEIGHTS_TRANSPOSED); i++)
        map_prefetch(&p->a_part[i]);
    for (int i = 0; i < PARTS && !GATHER_B && (SWAP_AB || !WEIGHTS_TRANSPOSED); i++)
        map_prefetch(&p->b_part[i]);
    if (TMA_STORE)
        map_prefetch(STORE_SLABS > 1 ? &p->out_wide : &p->out);
}

/* The set-up before the first load; each warp does a part. */
INLINE void set_up(const struct hopper_params *p, const struct tables *s, u32 shared)
{
    const int warp = THREAD >> 5;
    if (warp == 2 && LANE == 0)
        prefetch_maps(p);
    if (warp == 1 && LANE == 0)
        init_barriers(shared);
    if (warp == 0)
        make_tables(p, s);
    warp_barrier(); /* a whole warp must arrive at the barriers below, not single lanes */
    set_up_arrive();
    block_barrier();
    if (MODE == MODE_DW) {
        order_experts(p, s->start, s->ends);
        block_barrier();
    }
}
#endif

#if !STAGGERED && !DEFERRED /* else staggered.cu, deferred.cu */
/* In ping-pong the consumers take tiles alternately. With DYNAMIC the number of the next tile (its ticket) comes late,
 * so the consumer waits for the number only after write_tile(), not while wgmmas run. */
#define NEXT_LATE (PINGPONG && DYNAMIC)

/* LOCATE_EARLY: finds a tile's place before its wgmmas, the first one's while operands load. Else returns no_tile(). */
INLINE struct tile tile_early(const struct hopper_params *p, const struct tables *s, int id, int tiles)
{
    return LOCATE_EARLY && id < tiles ? locate_tile(p, s, id) : no_tile();
}

#if FP8
/* Finished sums are in registers of their own, in which no wgmma runs: nothing is left to wait for before they are written. */
INLINE void consume(const struct hopper_params *p, const struct tables *s, u32 shared, int tiles, int consumer,
                    const struct tile *first)
{
    struct walk w = walk_begin(p, tiles);
    /* from: number of blocks of all tiles before this one; ring: the next staging buffer (KSPLIT: number of tiles, SENDS: of
     * rounds) */
    u32 from = 0, ring = 0;
    struct tile t = ONE_EXPERT ? *first : tile_early(p, s, w.id, tiles);
    w.s = s;
    w.tile = no_tile();
    set_up_for_consumers(p, &t, shared, consumer);
    struct work work = work_at(p, s, w.id, tiles, consumer, &t);
#pragma unroll 1
    while (w.id < tiles) {
        float acc[MMAS][ACCUMULATORS];
        const int id = w.id;
        ask_for_rows(p, work.row, shared, consumer);
        const u32 last = mainloop(acc, shared, consumer, from, &work, &w);
        from += blocks_in(work.steps);
        if (!LOCATE_EARLY) {
            t = locate_tile(p, s, id);
            walk_next(shared, &w);
        }
        const struct tile next = w.tile;
        work = work_at(p, s, w.id, tiles, consumer, &next);
        const int r0 = t.r0 + consumer * ROWS_EACH;
#if SENDS
#pragma unroll
        for (int i = 0; i < MMAS; i++)
            scale_rows(p, &t, r0 + i * 64, acc[i]);
        stage_tile(p, &t, consumer, shared, acc, &ring);
#else
#pragma unroll
        for (int i = 0; i < (KSPLIT || SWAP_AB ? 1 : MMAS); i++) {
            struct rows rows;
            scale_rows(p, &t, r0 + i * 64, acc[i]);
            find_rows(p, &t, r0 + i * 64, consumer, &rows);
            write_tile(p, &t, r0 + i * 64, consumer, shared, acc + i, &rows, &ring, last, w.id < tiles);
        }
#endif
        if (LOCATE_EARLY)
            t = next;
    }
    if (!KSPLIT && !SENDS)
        stores_end();
}
#else
INLINE void consume(const struct hopper_params *p, const struct tables *s, u32 shared, int tiles, int consumer,
                    const struct tile *first)
{
    struct walk w = walk_begin(p, tiles);
    /* from: number of blocks of all tiles before this one; ring: the next staging buffer (KSPLIT: number of tiles) */
    u32 from = 0, ring = 0;
    struct tile t = ONE_EXPERT ? *first : tile_early(p, s, w.id, tiles);
    set_up_for_consumers(p, &t, shared, consumer);
    if (PINGPONG && consumer == 1) {
        give_turn(consumer, w.id < tiles);
        from = w.id < tiles ? blocks_in(steps_at(p, s, w.id)) : 0;
        walk_next(shared, &w);
    }
    struct work work = work_at(p, s, w.id, tiles, consumer);
#pragma unroll 1
    while (w.id < tiles) {
        float acc[MMAS][ACCUMULATORS]; /* the first wgmma of a tile overwrites them */
        const int id = w.id, steps = work.steps;
        ask_for_rows(p, work.row, shared, consumer);
        const u32 last = mainloop(acc, shared, consumer, from, &work, &w);

        /* While the last group of wgmmas runs, finds where this tile goes and where the next begins. */
        if (!LOCATE_EARLY)
            t = locate_tile(p, s, id);
        const int r0 = t.r0 + (PINGPONG ? 0 : consumer * ROWS_EACH);
        struct rows rows;
        find_rows(p, &t, r0, consumer, &rows);
        from += blocks_in(work.steps);
        if (PINGPONG && w.id < tiles)
            from += blocks_in(steps_at(p, s, w.id));
        if (!NEXT_LATE) {
            walk_next(shared, &w);
            work = work_at(p, s, w.id, tiles, consumer);
        }
        const struct tile next = tile_early(p, s, w.id, tiles);

        mainloop_end(acc, shared, last, steps);
        write_tile(p, &t, r0, consumer, shared, acc, &rows, &ring, last, w.id < tiles);
        if (NEXT_LATE) {
            walk_next(shared, &w);
            work = work_at(p, s, w.id, tiles, consumer);
        }
        if (LOCATE_EARLY)
            t = next;
    }
    if (!KSPLIT)
        stores_end();
}
#endif

#endif

KERNEL_OF(THREADS, RESIDENT) grouped_gemm_hopper(PARAMS(hopper_params) p)
{
    wgmma_declare();
#if FP8
    const u32 shared = (u32)uniform((int)shared_base()); /* else the compiler would compute it anew for each block */
#else
    const u32 shared = shared_base();
#endif
    const int warpgroup = uniform(THREAD >> 7);
    const struct tables s = tables_at(shared_memory, &p);
    if (shared & 1023)
        trap(); /* stages must begin at multiples of 1024 bytes, or TMA and wgmma swizzle differently */
    set_up_first(&p);
    set_up(&p, &s, shared);
    const int tiles = count_tiles(&p, &s);
    /* One copy of this code for all warps: a small product waits for instructions, too. */
    const struct walk begin = walk_begin(&p, tiles);
    const struct tile first = ONE_EXPERT && begin.id < tiles ? locate_tile(&p, &s, begin.id) : no_tile();
    if (warpgroup == 0) {
        registers_give();
        /* With KSPLIT each thread block loads its own operands, so the wait for the cluster comes after the loads. */
        if (CLUSTER > 1)
            set_up_everywhere();
#if FP8
        if (SCALE_WARPS && uniform(THREAD >> 5) >= 4 - SCALE_WARPS)
            produce_scales(&p, &s, shared, tiles, &first);
        else if (LOADS_OUTPUT && uniform(THREAD >> 5) == 1)
            produce_output(&p, &s, shared, tiles);
#if SENDS
        else if (uniform(THREAD >> 5) == 1) {
            set_up_for_others(&p, shared);
            send_tiles(&p, &s, shared, tiles);
        }
#endif
        else
#endif
        if (!ONE_EXPERT || uniform(THREAD >> 5) == 0)
            produce(&p, &s, shared, tiles, &first);
        else
            set_up_for_others(&p, shared);
        if (CLUSTER == 1)
            set_up_everywhere();
    } else {
        registers_take();
        consume(&p, &s, shared, tiles, warpgroup - 1, &first);
    }
}
