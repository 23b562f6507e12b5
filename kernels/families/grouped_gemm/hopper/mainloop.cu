/* SPDX-License-Identifier: Apache-2.0 */
/* ---- mainloop: multiplication ------------------------------------------------------------------------ */
/*
 * For each block of the reduction: wait until the stage is full, issue the block's wgmmas as a group, and give back the
 * stage of the finished group. With IN_FLIGHT 1 the finished group is the previous group, so that the tensor cores
 * never run dry between groups; with IN_FLIGHT 0 it is the block's own group.
 *
 * A descriptor tells wgmma where an operand lies, in units of 16 bytes: the start, the distance between groups of 8
 * rows of 128 bytes (1024) and, for transposed operands, between slabs. Per step the start moves by 16 elements of d:
 * 32 bytes within rows where d is contiguous, otherwise 16 rows. For the consumer's next 64 rows the start moves by 8
 * KiB in both layouts.
 */
/* The address bits that a descriptor can hold. In a cluster, higher bits of a shared address hold the thread block's
 * rank; in a descriptor they would fall into the field of the distance of slabs. */
#define DESCRIPTOR_ADDRESS 0x3ffff
#define DESCRIPTOR_HIGH (1u << 30 | 1024 >> 4) /* 128-byte swizzle, distance of groups */
#define DESCRIPTOR_LOW(transposed, slab) (((transposed) ? (slab) >> 4 : 1u) << 16)
#define STEP_UNITS(transposed) (((transposed) ? 16 * ROW_BYTES : 32) >> 4)

INLINE u64 descriptor(u32 low)
{
    return (u64)DESCRIPTOR_HIGH << 32 | low;
}

/* Waits until a stage is full. wgmma sees gathered operands, which threads have written, only after
 * fence.proxy.async. */
INLINE void wait_full(u32 shared, const struct place *at)
{
    barrier_wait(full_barrier(shared, at->stage), at->phase);
    if (GATHER)
        async_fence();
}

/*
 * `mmas` times 64 rows (with SKIP_ROWS only existing rows) and `width` columns (with SWAP_AB) of a tile are
 * multiplied. Callers pass both as constants, not in a struct. Otherwise the compiler copies the wgmmas of all widths
 * into each width's loop.
 */

/* Multiplies a step (16 of d). `slab`: bytes between groups of 64 rows of A. */
INLINE void multiply_step(float acc[MMAS][ACCUMULATORS], int mmas, int width, u32 low_a, u32 low_b,
                          int step, int first, u32 slab)
{
#pragma unroll
    for (int i = 0; i < mmas; i++)
        wgmma(acc, i, descriptor(low_a + i * (slab >> 4) + step * STEP_UNITS(A_TRANSPOSED)),
              descriptor(low_b + step * STEP_UNITS(B_TRANSPOSED)), !first, width);
}

INLINE void multiply_block(float acc[MMAS][ACCUMULATORS], int mmas, int width, u32 consumer_a,
                           u32 b, int first)
{
    const u32 low_a = DESCRIPTOR_LOW(A_TRANSPOSED, BLOCK_SLAB_BYTES) | consumer_a >> 4;
    const u32 low_b = DESCRIPTOR_LOW(B_TRANSPOSED, BLOCK_SLAB_BYTES) | b >> 4;
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < STEPS; step++)
        multiply_step(acc, mmas, width, low_a, low_b, step, step == 0 && first, BLOCK_SLAB_BYTES);
    wgmma_commit();
}

/* Multiplies dW's last block, `steps` times 16 rows. Slabs that TMA loaded are only as high as the box (PARTS),
 * gathered slabs are whole. Each step is a wgmma group: in a single group ptxas would serialise the steps. */
INLINE void multiply_rest(float acc[MMAS][ACCUMULATORS], int mmas, int width, u32 stage,
                          int consumer, int first, int steps)
{
    const u32 slab = part_bytes(part_of(steps * 16));
    const u32 slab_a = GATHER_A ? BLOCK_SLAB_BYTES : slab, slab_b = GATHER_B ? BLOCK_SLAB_BYTES : slab;
    const u32 a = stage + (PINGPONG ? 0 : consumer * (ROWS_EACH / 64) * slab_a);
    const u32 low_a = DESCRIPTOR_LOW(A_TRANSPOSED, slab_a) | a >> 4;
    const u32 low_b = DESCRIPTOR_LOW(B_TRANSPOSED, slab_b) | (stage + A_BYTES) >> 4;
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        wgmma_fence();
        multiply_step(acc, mmas, width, low_a, low_b, step, step == 0 && first, slab_a);
        wgmma_commit();
    }
}

/* Gives a stage back to the producers (mbarrier.arrive). Each warp arrives once: it knows only that its own part of the
 * wgmmas is done. */
INLINE void give_stage(u32 shared, u32 stage)
{
    give_to_all(empty_barrier(shared, stage));
}

/* In ping-pong the consumers multiply in turn. Without turns a consumer could wait for a stage one round of the ring
 * too early, where the mbarrier's parity bit looks right though the stage holds older operands. */
INLINE void wait_turn(int consumer)
{
    if (PINGPONG)
        group_barrier(BARRIER_TURN + consumer, 256);
}

INLINE void give_turn(int consumer, int wanted)
{
    if (PINGPONG && wanted)
        group_arrive(BARRIER_TURN + (consumer ^ 1), 256);
}

/* Ping-pong: lets the other consumer multiply the next tile, if any tile is left. */
INLINE void pass_turn(int consumer, u32 shared, struct walk *w)
{
    if (PINGPONG) {
        walk_next(shared, w);
        give_turn(consumer, w->id < w->tiles);
    }
}

/* The compiler keeps values that are known to be the same in all lanes in uniform registers, from which wgmma takes
 * descriptors. `uniform` states this once a tile. In dW with one consumer, whose tiles are short, that costs more than
 * it saves. Where accumulators fill a thread's registers, no register is left for the value. */
#define UNIFORM_RING (MMAS * ACCUMULATORS <= 64 && (MODE != MODE_DW || CONSUMERS > 1))

/* A single consumer that looks for its next tile keeps the tensor cores busy only with wgmmas already issued, and in
 * dW these are few. So in dW the consumer looks for its next tile as soon as the tile's last wgmmas are issued. It does
 * not wait for the block before, and gives two stages back at the end. This is off for tiles of 64 rows, which lose
 * time, and in clusters, where a tile may have no rows and hold no stages. */
#define REST_LATE (MODE == MODE_DW && CONSUMERS == 1 && CLUSTER == 1 && MMAS > 1 && IN_FLIGHT && !STAGGERED)

#if FP8 /* fp8.cu */
/* LOCATE_EARLY: finds the next tile; called while the tile's last wgmmas run. */
INLINE void walk_ahead(u32 shared, struct walk *w)
{
    if (LOCATE_EARLY) {
        walk_next(shared, w);
        if (w->id < w->tiles)
            w->tile = locate_tile(w->p, w->s, w->id);
    }
}

INLINE u32 mainloop_of(float acc[MMAS][ACCUMULATORS], int mmas, int width, u32 shared, int consumer, u32 from, int steps,
                       struct walk *w);
INLINE u32 mainloop_idle(u32 shared, u32 from, int blocks, struct walk *w);
#else
/* Leaves the last group running (REST_LATE: also the group before); mainloop_end waits. Returns the last block's
 * stage. In dW the existing rows of the last block are multiplied; in other modes a rest is rare. */
INLINE u32 mainloop_of(float acc[MMAS][ACCUMULATORS], int mmas, int width, u32 shared,
                       int consumer, u32 from, int steps, struct walk *w)
{
    struct place at = place_of(UNIFORM_RING ? (u32)uniform((int)from) : from);
    const u32 operands = KSPLIT || CLUSTER > 1 ? shared & DESCRIPTOR_ADDRESS : shared;
    const u32 consumer_a = operands + (PINGPONG ? 0 : consumer * ROWS_EACH * TILE_D * 2);
    const int whole = steps / STEPS, rest = MODE == MODE_DW ? steps % STEPS : 0;
    u32 last = 0;
#pragma unroll 1
    for (int block = 0; block < whole; block++) {
        wait_full(shared, &at);
        multiply_block(acc, mmas, width, consumer_a + at.stage * STAGE_BYTES,
                       operands + at.stage * STAGE_BYTES + A_BYTES, block == 0);
        if (block == whole - 1 && !rest)
            pass_turn(consumer, shared, w);
        if (IN_FLIGHT) {
            WGMMA_WAIT(1);
            if (block > 0)
                give_stage(shared, last);
        } else if (block < whole - 1 || rest) {
            WGMMA_WAIT(0);
            give_stage(shared, at.stage);
        }
        last = at.stage;
        place_next(&at);
    }
    if (rest) {
        wait_full(shared, &at);
        multiply_rest(acc, mmas, width, operands + at.stage * STAGE_BYTES, consumer, whole == 0, rest);
        pass_turn(consumer, shared, w);
        if (IN_FLIGHT && whole > 0 && !REST_LATE) {
            WGMMA_WAIT(1);
            give_stage(shared, last);
        }
        last = at.stage;
    }
    return last;
}

INLINE u32 stage_before(u32 stage)
{
    return stage ? stage - 1 : NUM_STAGES - 1;
}

/* mainloop_of() for a consumer without rows in the tile. One lane gives a stage back for all lanes, and the others
 * must not read the barrier after the stage is filled anew: so the lanes meet at each block. (After a named barrier
 * the compiler would no longer know that the lanes are together: SAY_TOGETHER.) */
INLINE u32 mainloop_idle(u32 shared, u32 from, int blocks)
{
    struct place at = place_of(from);
    u32 last = 0;
#pragma unroll 1
    for (int block = 0; any_lane(block < blocks); block++) {
        if (block > 0)
            give_stage(shared, last);
        barrier_wait(full_barrier(shared, at.stage), at.phase);
        last = at.stage;
        place_next(&at);
    }
    return last;
}
#endif

struct work {
    int steps; /* number of wgmmas along the reduction; 0: no tile is left */
    int mmas, width; /* 64-row groups and columns that are multiplied (mainloop_of) */
    int row;         /* SWAP_AB: the first routed row */
};

INLINE int width_of(int exist)
{
    return GRAIN < 16               ? round_up(exist > WIDTH_ABOVE ? exist : WIDTH_ABOVE + 1, GRAIN)
           : exist <= WIDTH_QUARTER ? WIDTH_QUARTER
           : exist <= WIDTH_HALF    ? WIDTH_HALF
                                    : round_up(exist > WIDTH_ABOVE ? exist : WIDTH_ABOVE + 1, GRAIN);
}

#if FP8 /* `found`: the tile, with LOCATE_EARLY */
INLINE struct work work_at(const struct hopper_params *p, const struct tables *s, int id, int tiles, int consumer,
                           const struct tile *found)
#else
INLINE struct work work_at(const struct hopper_params *p, const struct tables *s, int id, int tiles,
                           int consumer)
#endif
{
    struct work w;
    w.steps = id < tiles ? steps_at(p, s, id) : 0;
    w.mmas = MMAS;
    w.width = TILE_C;
    w.row = 0;
    if ((SKIP_ROWS || SWAP_AB) && id < tiles) {
#if FP8
        const struct tile t = LOCATE_EARLY ? *found : locate_tile(p, s, id);
#else
        const struct tile t = locate_tile(p, s, id);
#endif
        const int left = output_rows(p, &t) - t.r0 - (PINGPONG ? 0 : consumer * ROWS_EACH);
        w.row = t.first + t.c0;
        if (SWAP_AB)
            w.width = width_of(t.width);
        else
            w.mmas = left > 64 ? MMAS : left > 0;
    }
    return w;
}

/*
 * If the compiler knows that a warp's lanes are together, it computes descriptors once for the warp, in the registers
 * that wgmma reads. Otherwise it refills these registers from a lane's own before every wgmma: a kernel takes 1 to 3
 * % longer, in ping-pong 6 %. tests/gpu/descriptors.py lists the kernels concerned.
 *
 * A barrier states that lanes are together, but not after a loop over lanes' own numbers, unless a called function
 * has the loop (order_experts). Ping-pong already has a barrier. 64 x 64 tiles of one expert need no barrier; larger
 * tiles of one expert also need a uniform step count. dW with one consumer takes 1 % longer with the barrier.
 */
#define SAY_TOGETHER                                                                               \
    (!PINGPONG && !(ONE_EXPERT && MMAS * ACCUMULATORS <= 32) && (MODE != MODE_DW || CONSUMERS > 1))

/* Multiplies a tile. In ping-pong the call advances `w` to the other consumer's tile. */
INLINE u32 mainloop(float acc[MMAS][ACCUMULATORS], u32 shared, int consumer, u32 from,
                    const struct work *work, struct walk *w)
{
    wait_turn(consumer);
    if (SAY_TOGETHER)
        warp_barrier();
    const int steps = SAY_TOGETHER && ONE_EXPERT ? uniform(work->steps) : work->steps;
#define OF(n)                                                                                      \
    if (SWAP_AB && HAS_WIDTH(n) && n < TILE_C && work->width == n)                                 \
        return mainloop_of(acc, MMAS, n, shared, consumer, from, steps, w);
    EACH_WIDTH(OF)
#undef OF
#if FP8
    if (SKIP_ROWS && work->mmas == 0)
        return mainloop_idle(shared, from, blocks_in(steps), w);
#else
    if (SKIP_ROWS && !PINGPONG && work->mmas == 0)
        return mainloop_idle(shared, from, blocks_in(steps));
#endif
    if (SKIP_ROWS && MMAS > 1 && work->mmas == 1)
        return mainloop_of(acc, 1, TILE_C, shared, consumer, from, steps, w);
    return mainloop_of(acc, MMAS, TILE_C, shared, consumer, from, steps, w);
}

#if !FP8
/* Waits for the tile's last wgmmas. `steps`: number of the tile's steps that were multiplied. */
INLINE void mainloop_end(float acc[MMAS][ACCUMULATORS], u32 shared, u32 last, int steps)
{
    WGMMA_WAIT(0);
#pragma unroll
    for (int i = 0; i < MMAS; i++)
        wgmma_settle(acc, i);
    if (REST_LATE && steps > STEPS && steps % STEPS)
        give_stage(shared, stage_before(last));
    if (!KSPLIT) /* KSPLIT keeps the last stage, because the sums are sent through it */
        give_stage(shared, last);
}
#endif
