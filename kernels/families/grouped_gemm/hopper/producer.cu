/* SPDX-License-Identifier: Apache-2.0 */
/* ---- producer: operands by TMA ---------------------------------------------------------------------- */
/*
 * TMA reads the rows of an expert through a "ragged" map. A plain 2-D map would read on into the next expert's rows,
 * whose NaNs would poison a reduction over rows.
 *
 * Dimensions: (inner, 2^30, 2^31, 2^31); strides: (row, row, 2^35 - row). Row r of an expert with `rows` rows, the
 * last of which ends at `end`, is at (x, 2^30 - rows + r, end, 2^30). The address is row * (2^30 - rows + r + end) +
 * 2^30 * (2^35 - row), and 2^65 is 0 modulo 2^64. A row r >= rows is out of bounds of the second dimension: TMA reads
 * zeros and does not write.
 */
#define RAGGED (1 << 30)

/*
 * Loads skip rows out of bounds: TMA fills 64 of them with zeros in 0.22 microseconds, longer than a load of 64
 * existing rows takes (H200). Where a box would reach past the end, boxes of 64, 32 and 16 rows load the existing
 * rows. Old bytes stay in the rest of the stage; they enter only sums that nobody writes, because rows and columns of
 * a product do not mix. Along the reduction, where rows do mix, the rest of a part is zeros and the consumer
 * multiplies no step beyond the part.
 */
/*
 * dW has both operands transposed, in slabs of 64 columns, and tiles of few blocks. If the map has slabs as a dimension
 * ("wide"), one box loads all slabs of a tile: 1 to 3 % faster than a box for each slab (in dX it is not faster). A map
 * whose columns are no multiple of 64 is not wide. The last tile of a row also loads its slabs singly when it has
 * fewer.
 */
struct extent {
    int a, b;  /* existing rows (transposed operands: slabs) of the tile in A and in B */
    u32 bytes; /* bytes of a whole block that TMA loads */
};

INLINE int slabs_in(int width)
{
    return (width + 63) / 64;
}

/* The number of the smallest box (PARTS) with at least `rows` rows, or with a block's rows if `rows` is more: one box,
 * because each further box costs time. */
INLINE int part_of(int rows)
{
    const int last = rows > 1 ? at_most(rows, MODE == MODE_DW ? TILE_D : 64) - 1 : 0;
    return 3 - (last >> 4);
}

INLINE int part_rows(int part)
{
    return 64 - 16 * part;
}

INLINE u32 part_bytes(int part)
{
    return (u32)(part_rows(part) * ROW_BYTES);
}

INLINE u32 rows_bytes(int rows, int whole)
{
    const int rest = rows & 63;
    if (whole <= 64)
        return part_bytes(part_of(rows));
    if (rows >= whole)
        return whole * ROW_BYTES;
    return (u32)(rows - rest + (rest ? part_rows(part_of(rest)) : 0)) * ROW_BYTES;
}

INLINE struct extent extent_of(const struct hopper_params *p, const struct tile *t)
{
    struct extent x;
    const int end_r = MODE == MODE_DW ? p->tile_rows : SWAP_AB ? p->tile_cols : t->rows;
    const int end_c = SWAP_AB ? t->c0 + t->width : p->tile_cols;
    if (A_TRANSPOSED)
        x.a = at_most(slabs_in(end_r - t->r0), TILE_R / 64);
    else
        x.a = at_most(end_r - t->r0, TILE_R);
    if (B_TRANSPOSED)
        x.b = at_most(slabs_in(end_c - t->c0), TILE_C / 64);
    else
        x.b = at_most(end_c - t->c0, TILE_C);
    if (CLUSTER > 1) { /* dW: the pair loads all of a shared operand; this thread block's own operand may be empty */
        x.a = SHARE_A && MODE == MODE_DW ? TILE_R / 64 : x.a < 0 ? 0 : x.a;
        x.b = SHARE_B ? TILE_C / 64 : x.b < 0 ? 0 : x.b;
    }
    x.bytes = 0;
    if (!GATHER_A)
        x.bytes += A_TRANSPOSED ? x.a * BLOCK_SLAB_BYTES : rows_bytes(x.a, TILE_R);
    if (!GATHER_B)
        x.bytes += B_TRANSPOSED ? x.b * BLOCK_SLAB_BYTES : rows_bytes(x.b, TILE_C);
    return x;
}

/* Where TMA puts a box: into a stage, or only into L2 (cp.async.bulk.prefetch), from where a later load reads it. Each
 * caller passes a constant `only_l2`. */
struct goal {
    u32 to;  /* in shared memory */
    u32 bar; /* barrier that counts the bytes */
    int only_l2;
};

INLINE struct goal goal_stage(u32 to, u32 bar)
{
    struct goal g;
    g.to = to;
    g.bar = bar;
    g.only_l2 = 0;
    return g;
}

INLINE struct goal goal_l2(void)
{
    struct goal g;
    g.to = g.bar = 0;
    g.only_l2 = 1;
    return g;
}

INLINE struct goal goal_at(struct goal g, u32 offset)
{
    g.to += offset;
    return g;
}

INLINE void load_rows(struct goal g, const struct tensor_map *map, const struct tile *t, int x,
                      int r)
{
    const int y = RAGGED - t->rows + r, z = t->first + t->rows;
    if (g.only_l2)
        ask_4d(map, x, y, z, RAGGED);
    else
        load_4d(g.to, map, x, y, z, RAGGED, g.bar);
}

/* Loads the `rows` existing ones of `whole` rows from r on. If `whole` is 64, the largest box of PARTS is as high, so a
 * single load of the smallest box with `rows` rows is enough. */
INLINE void load_box(struct goal g, const struct tensor_map *map, const struct tensor_map *part,
                     const struct tile *t, int x, int r, int rows, int whole)
{
    if (rows >= whole || whole <= 64) {
        load_rows(g, whole <= 64 ? part + part_of(rows) : map, t, x, r);
        return;
    }
#pragma unroll 1
    for (int i = 0; i < rows; i += 64)
        load_rows(goal_at(g, i * ROW_BYTES), part + part_of(rows - i), t, x, r + i);
}

/* dW: loads 64 columns from x on, or with a wide map all slabs of the map's box. */
INLINE void load_slab(struct goal g, const struct tensor_map *map, const struct tile *t, int wide,
                      int x, int d)
{
    const int y = RAGGED - t->rows + d, z = t->first + t->rows, slab = wide ? x / 64 : 0;
    load_5d(g.to, map, wide ? 0 : x, y, z, RAGGED, slab, g.bar);
}

/* dW: loads a block's rows with box i of PARTS in `slabs` of a whole tile's `most` slabs, from column x on. A wide box
 * also loads slabs that do not exist; that is slow, and happens only for an expert's last rows, in
 * a tile that the output's edge cuts. */
INLINE void load_slabs(struct goal g, const struct tensor_map *map, const struct tensor_map *part,
                       const struct tile *t, int wide, int slabs, int most, int x, int d, int i)
{
    if (wide && (slabs == most || i > WHOLE_PART)) {
        load_slab(g, part + i, t, wide, x, d);
        return;
    }
    const struct tensor_map *one = wide ? map : part + i;
#pragma unroll 1
    for (int slab = 0; slab < slabs; slab++)
        load_slab(goal_at(g, slab * part_bytes(i)), one, t, wide, x + slab * 64, d);
}

#if CLUSTER > 1
/* dW: loads this thread block's half of a shared operand, into both; `most` slabs from column x on. */
INLINE void load_half(struct goal g, const struct tensor_map *part, const struct tile *t, int most,
                      int x, int d, int i)
{
    const int y = RAGGED - t->rows + d, z = t->first + t->rows, from = RANK * (most / CLUSTER);
    load_5d_to_all(g.to + from * part_bytes(i), part + i, 0, y, z, RAGGED, x / 64 + from, g.bar);
}
#else
#define load_half(g, part, t, most, x, d, i) ((void)0)
#endif

INLINE void load_weight_box(struct goal g, const struct tensor_map *map, int x, int y,
                            const struct tile *t, u64 policy)
{
    if (g.only_l2)
        ask_3d(map, x, y, t->expert);
#if FP8
    else if (!SWAP_AB)
        load_3d(g.to, map, x, y, t->expert, g.bar, policy);
#endif
#if CLUSTER > 1
    else
        load_3d_to_all(g.to, map, x, y, t->expert, g.bar, policy);
#else
    else
        load_3d(g.to, map, x, y, t->expert, g.bar, policy);
#endif
}

#if FP8
#define WEIGHTS_EACH (SWAP_AB ? TILE_COLS / CLUSTER : TILE_COLS) /* as below */
#else
#define WEIGHTS_EACH (TILE_COLS / CLUSTER) /* number of columns whose weights each thread block of a cluster loads */
#endif

/* Loads the weights of the output's columns from `from` on. Of these, `exist` rows of the weights exist (dX: slabs). In
 * a cluster loads this thread block's half, into both. */
INLINE void load_weights(struct goal g, const struct tensor_map *map,
                         const struct tensor_map *part, const struct tile *t, int d, int from,
                         int exist, u64 policy)
{
    if (WEIGHTS_TRANSPOSED) {
#pragma unroll
        for (int n = 0; n < WEIGHTS_EACH / 64; n++) {
            const int i = n + RANK * (WEIGHTS_EACH / 64);
            if (i < exist)
                load_weight_box(goal_at(g, i * SLAB_BYTES), map, from + i * 64, d, t, policy);
        }
        return;
    }
#if FP8
    if (CLUSTER > 1 && SWAP_AB) {
#else
    if (CLUSTER > 1) {
#endif
        from += RANK * WEIGHTS_EACH;
        exist -= RANK * WEIGHTS_EACH;
        g = goal_at(g, RANK * WEIGHTS_EACH * ROW_BYTES);
    }
    if (exist >= WEIGHTS_EACH || TILE_COLS <= 64) {
        load_weight_box(g, WEIGHTS_EACH <= 64 ? part + part_of(exist) : map, d, from, t, policy);
        return;
    }
#pragma unroll 1
    for (int i = 0; i < exist; i += 64)
        load_weight_box(goal_at(g, i * ROW_BYTES), part + part_of(exist - i), d, from + i, t, policy);
}

#if FP8
#ifndef HOPPER_EMULATED
/* Loads a box of rows to the same place in the shared memory of all thread blocks of the cluster. */
INLINE void load_4d_to_all(u32 to, const struct tensor_map *map, int x, int y, int z, int w, u32 bar)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3, %4, %5}], [%6], %7;"
                 :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(bar), "h"((u16)((1 << CLUSTER) - 1))
                 : "memory");
}
#endif

/* Pairs that are not swapped have the same rows: loads this thread block's half of the `exist` existing rows, into
 * both. */
INLINE void load_shared_rows(struct goal g, const struct tensor_map *map, const struct tensor_map *part,
                             const struct tile *t, int d, int exist)
{
    const int half = TILE_R / CLUSTER, from = RANK * half, y = RAGGED - t->rows + t->r0, z = t->first + t->rows;
    if (exist >= from + half) {
        load_4d_to_all(g.to + from * ROW_BYTES, map, d, y + from, z, RAGGED, g.bar);
        return;
    }
#pragma unroll 1
    for (int i = from; i < exist; i += 64)
        load_4d_to_all(g.to + i * ROW_BYTES, part + part_of(exist - i), d, y + i, z, RAGGED, g.bar);
}

/* dW: loads the `exist` existing rows of `whole` rows from row r on. Column d counts from the expert's first token. */
INLINE void load_tokens(struct goal g, const struct tensor_map *map, const struct tensor_map *part, const struct tile *t,
                        int d, int r, int exist, int whole)
{
    if (exist >= whole && whole > 64) {
        load_3d(g.to, map, t->first + d, r, 0, g.bar, policy_normal());
        return;
    }
#pragma unroll 1
    for (int i = 0; i < exist; i += 64)
        load_3d(g.to + i * ROW_BYTES, part + part_of(exist - i), t->first + d, r + i, 0, g.bar, policy_normal());
}
#endif

INLINE void load_a(const struct hopper_params *p, const struct tile *t, const struct extent *x,
                   int d, int part, struct goal g, u64 policy)
{
#if FP8
    if (MODE == MODE_DW) {
        load_tokens(g, &p->a, p->a_part, t, d, t->r0, x->a, TILE_R);
        return;
    }
    if (SHARE_A && !SWAP_AB) {
        load_shared_rows(g, &p->a, p->a_part, t, d, x->a);
        return;
    }
#endif
    if (SHARE_A && MODE == MODE_DW)
        load_half(g, p->a_part, t, TILE_R / 64, t->r0, d, part);
    else if (MODE == MODE_DW)
        load_slabs(g, &p->a, p->a_part, t, WIDE_A(p), x->a, TILE_R / 64, t->r0, d, part);
    else if (SWAP_AB)
        load_weights(g, &p->a, p->a_part, t, d, t->r0, x->a, policy);
    else
        load_box(g, &p->a, p->a_part, t, d, t->r0, x->a, TILE_R);
}

INLINE void load_b(const struct hopper_params *p, const struct tile *t, const struct extent *x,
                   int d, int part, struct goal g, u64 policy)
{
#if FP8
    if (MODE == MODE_DW) {
        load_tokens(g, &p->b, p->b_part, t, d, t->c0, x->b, TILE_C);
        return;
    }
#endif
    if (SHARE_B)
        load_half(g, p->b_part, t, TILE_C / 64, t->c0, d, part);
    else if (MODE == MODE_DW)
        load_slabs(g, &p->b, p->b_part, t, WIDE_B(p), x->b, TILE_C / 64, t->c0, d, part);
    else if (SWAP_AB)
        load_box(g, &p->b, p->b_part, t, d, t->c0, x->b, TILE_C);
    else
        load_weights(g, &p->b, p->b_part, t, d, t->c0, x->b, policy);
}

/* Bytes that TMA loads for dW's last block, whose slabs are only as high as box `part`. For an expert without rows TMA
 * loads a block of zeros. */
INLINE u32 last_bytes(const struct hopper_params *p, const struct extent *x, int part)
{
    u32 slabs = 0;
    if (!GATHER_A)
        slabs += WIDE_A(p) ? TILE_R / 64 : x->a;
    if (!GATHER_B)
        slabs += WIDE_B(p) ? TILE_C / 64 : x->b;
    return slabs * part_bytes(part);
}

/* Loads the boxes of a block by TMA; called by one thread. */
INLINE void load_block(const struct hopper_params *p, const struct tile *t, const struct extent *x,
                       int d, u32 stage, u32 bar, u64 policy)
{
    const int part = MODE == MODE_DW ? part_of(t->rows - d) : 0;
    barrier_expect(bar, part > WHOLE_PART ? last_bytes(p, x, part) : x->bytes);
    if (!GATHER_A)
        load_a(p, t, x, d, part, goal_stage(stage, bar), policy);
    if (!GATHER_B)
        load_b(p, t, x, d, part, goal_stage(stage + A_BYTES, bar), policy);
}

/* How long L2 keeps loaded weights; usual_w_eviction() in host/tile.c explains the choice. */
INLINE u64 weight_policy(const struct hopper_params *p)
{
    return p->flags & FLAG_W_FIRST       ? policy_evict_first()
           : p->flags & FLAG_W_UNCHANGED ? policy_evict_unchanged()
                                         : policy_normal();
}

/*
 * LOADERS warps of the producer load blocks in turn. A single warp needs about 300 cycles to see that a stage is empty,
 * compute the box and issue the load, and about 1000 to find the next tile. In dW the consumers may multiply a tile in
 * less time. (In other modes four warps were 1 % slower than one.)
 *
 * An mbarrier's parity bit tells a round of the ring only from the next round. So no warp may wait for a stage two
 * rounds before its release:
 * - If consumers release blocks in order, at most as many warps as stages suffice.
 * - In ping-pong two consumers release blocks independently, and in a cluster another thread block releases them in
 *   any order. There the warps divide the stages, and each warp has its own.
 *
 * Returns the first block of a tile that this warp loads; `from`: number of blocks of all tiles
 * before.
 */
INLINE int loader_first(u32 from)
{
    return LOADERS == 1 ? 0 : (int)(((u32)THREAD / 32 + LOADERS - from % LOADERS) % LOADERS);
}

/* Called by the warp that hands out tile numbers (tickets), for each block of a tile that it loads. At TICKET_LEAD
 * blocks before the tile's end the warp draws the next number, unless the next tile is dealt in turn. The test comes
 * before the loads, because in their loop it takes registers that the widest tiles lack. */
INLINE void draw_in_time(const struct hopper_params *p, int tiles, int block, int blocks, int *number)
{
    const int late = blocks > TICKET_LEAD ? blocks - TICKET_LEAD : 0;
    if (DRAWS && THREAD == 0 && (CLUSTER == 1 || *number < 0) && block == late)
        *number = ticket_draw(p, tiles);
}

/* Goes on to the next tile after the loads. The warp that has drawn the tile's number hands the number to all other
 * warps, through the ring of tickets; the producer's other warps read it there. */
INLINE void walk_on(u32 shared, struct walk *w, int number)
{
    if (!DRAWS) {
        walk_next(shared, w);
        return;
    }
    if (LANE == 0)
        ticket_hand(shared, w, number);
    w->id = shuffle_from(number, 0);
}

#if CLUSTER > 1
#if MODE == MODE_DW
#define HEARS_OUT 1 /* true in a warp that calls hear_out() at its end: here every loading warp */
INLINE int is_loaded_here(u32 block, u32 stage)
{
    return (GATHER ? stage / HALVES : block) % LOADERS == (u32)THREAD / 32;
}
#else
#define HEARS_OUT (THREAD < 32) /* here only the first warp: it loads all blocks, or a part of each */
#define is_loaded_here(block, stage) 1
#endif

/*
 * Called by a warp that has loaded its last block; `from` blocks were loaded in all, and `at` is the place after them.
 * Waits for the last arrivals of the cluster's other thread blocks at mbarriers of this thread block: released stages
 * and (first thread block) read tickets. An arrival at a thread block that has ended is a fault. So the warp waits as
 * if it filled all stages, and handed on all tickets, once more. A warp waits only for its own stages: it does not know
 * the round of another warp's stage, and could mistake an older round for the last.
 */
INLINE void hear_out(u32 shared, struct place at, u32 from, const struct walk *w)
{
#pragma unroll 1
    for (int i = 0; i < NUM_STAGES; i++, place_next(&at))
        if (is_loaded_here(from + (u32)i - NUM_STAGES, at.stage))
            barrier_wait(empty_barrier(shared, at.stage), at.phase ^ 1);
#pragma unroll 1
    for (u32 n = w->read; DRAWS && LANE == 0 && n < w->read + TICKETS; n++)
        ticket_wait(shared, n);
}
#else
#define HEARS_OUT 0
#define hear_out(shared, at, from, w) ((void)0)
#endif

#if MODE == MODE_DW
/*
 * p->ahead (l2_ahead): all thread blocks together request the rows of this many experts into L2, while the consumers
 * multiply the rows of as many earlier experts. Where experts have few rows, a launch writes much more than it reads,
 * and would wait for loads that queue behind writes.
 */
INLINE void ask_rows(const struct hopper_params *p, int from, int to)
{
#pragma unroll 1
    for (int r = from + BLOCK + THREAD * BLOCKS; r < to; r += 32 * LOADERS * BLOCKS) {
        const int g = GATHER ? gather_index(p, r) : r;
        const int there = GATHER_X ? token_of(p, g) : g;
        ask_bytes(p->a_rows + (u64)(GATHER_A ? there : r) * p->a_rows_stride * 16, p->a_rows_bytes);
        ask_bytes(p->b_rows + (u64)(GATHER_B ? there : r) * p->b_rows_stride * 16, p->b_rows_bytes);
    }
}

/* Before a tile of `expert` is loaded, the rows of its batch of p->ahead experts, and of the next batch, must be
 * requested. Returns the first expert after both batches. */
INLINE int ask_until(const struct hopper_params *p, int expert)
{
    return at_most(((expert >> p->ahead_shift) + 2) << p->ahead_shift, p->experts);
}

/* dW: requests the rows of X and dY of coming experts into L2. Called by the warps that load, before the loads of a
 * tile of `expert`. `before` is the expert of the previous tile, or -1. The rows up to ask_until(before) are already
 * requested. */
INLINE void ask_experts(const struct hopper_params *p, const struct tables *s, int before,
                        int expert)
{
    if (!p->ahead)
        return;
    const int from = before < 0 ? 0 : ask_until(p, before), until = ask_until(p, expert);
    if (from < until)
        ask_rows(p, s->start[from], s->start[until]);
}
#define ask_blocks(p, t, x, first, blocks, block, asked) ((void)(asked))
#else
INLINE void ask_experts(const struct hopper_params *p, const struct tables *s, int before,
                        int expert)
{
    (void)p, (void)s, (void)before, (void)expert;
}
#endif

#if !GATHER
#if MODE != MODE_DW
/*
 * p->ahead (l2_ahead): when the ring of stages is full, requests this many blocks of the same tile beyond the ring into
 * L2; called after the load of `block`. Without requests each filling of the ring waits for memory anew. 64 x 64 tiles
 * with 8 stages (K of 1024 and 8192) take 0.18 microseconds a block, so 1.5 microseconds for eight blocks.
 */
INLINE void ask_blocks(const struct hopper_params *p, const struct tile *t, const struct extent *x,
                       int first, int blocks, int block, int *asked)
{
    const int until = at_most(block + 1 + p->ahead, blocks);
    if (!p->ahead || block + 1 < NUM_STAGES || *asked >= until)
        return;
    if (elected()) {
#pragma unroll 1
        for (int i = *asked; i < until; i++) {
            load_a(p, t, x, (first + i) * TILE_D, 0, goal_l2(), 0);
            load_b(p, t, x, (first + i) * TILE_D, 0, goal_l2(), 0);
        }
    }
    *asked = until;
}
#endif

/* True for small tiles of ONE_EXPERT, which have a loop of their own for "simple" tiles. The boxes of a simple tile are
 * known beforehand: whole boxes, or of at most 64 rows one box of PARTS. The consumers multiply a block of such a tile
 * in less time than the general loop needs to issue the loads of the next. */
#define FAST_SIMPLE (ONE_EXPERT && TILE_R * TILE_C <= 128 * 64)

INLINE struct extent simple_extent(const struct extent *x)
{
    struct extent s;
    s.a = A_TRANSPOSED ? TILE_R / 64 : TILE_R > 64 ? TILE_R : x->a;
    s.b = B_TRANSPOSED ? TILE_C / 64 : TILE_C > 64 ? TILE_C : x->b;
    s.bytes = x->bytes;
    return s;
}

INLINE int is_simple(const struct hopper_params *p, const struct extent *x)
{
    const struct extent simple = simple_extent(x);
    return x->a == simple.a && x->b == simple.b && !p->ahead;
}

/* Loads this warp's blocks of a tile, from `block` on. The extent of a simple tile is constant, which leaves little
 * to compute for each block. */
INLINE void load_blocks(const struct hopper_params *p, const struct tile *t, const struct extent *x, int ask,
                        u32 shared, int tiles, u32 from, int block, int blocks, struct place *at, int *number,
                        u64 policy)
{
    const int first = FIRST_BLOCK(p);
    int asked = NUM_STAGES;
#pragma unroll 1
    for (; block < blocks; block += LOADERS) {
        if (LOADERS > 1)
            *at = place_of(from + (u32)block);
        draw_in_time(p, tiles, block, blocks, number);
        barrier_wait(empty_barrier(shared, at->stage), at->phase ^ 1);
        if (elected())
            load_block(p, t, x, MODE == MODE_DW ? block_row(p, t, block) : (first + block) * TILE_D,
                       shared + at->stage * STAGE_BYTES, full_barrier(shared, at->stage), policy);
        if (ask)
            ask_blocks(p, t, x, first, blocks, block, &asked);
        warp_barrier();
        place_next(at);
    }
}

/* The loop of the producer warpgroup: its loading warps take blocks in turn. A single loading warp computes less
 * for each block, which counts in small products. */
INLINE void produce(const struct hopper_params *p, const struct tables *s, u32 shared, int tiles, const struct tile *first)
{
    struct walk w = walk_begin(p, tiles);
    struct place at = place_of(0);
    const u64 policy = weight_policy(p);
    int before = -1; /* expert of the previous tile */
    u32 from = 0;    /* number of blocks of all tiles before this one */
    if (THREAD >= 32 * LOADERS)
        return;
    struct tile t;
    struct extent x;
    if (ONE_EXPERT) { /* this warp finds its first tile's extent while another warp makes the barriers */
        t = *first;
        x = extent_of(p, &t);
        set_up_for_loader();
    }
#pragma unroll 1
    while (w.id < tiles) {
        int blocks, block = 0, number = number_in_turn(p, &w);
        if (LOADERS > 1) {
            blocks = blocks_in(steps_at(p, s, w.id));
            block = loader_first(from);
        }
        if (!ONE_EXPERT && (LOADERS == 1 || block < blocks))
            t = locate_tile(p, s, w.id);
        if (LOADERS == 1)
            blocks = blocks_of(p, t.rows);
        if (LOADERS == 1 || block < blocks) {
            if (!ONE_EXPERT)
                x = extent_of(p, &t);
            ask_experts(p, s, before, t.expert);
            before = t.expert;
            if (FAST_SIMPLE && uniform(is_simple(p, &x))) {
                const struct extent simple = simple_extent(&x);
                load_blocks(p, &t, &simple, 0, shared, tiles, from, block, blocks, &at, &number, policy);
            } else {
                load_blocks(p, &t, &x, 1, shared, tiles, from, block, blocks, &at, &number, policy);
            }
        }
        from += (u32)blocks;
        walk_on(shared, &w, number);
        if (ONE_EXPERT && w.id < tiles) {
            t = locate_tile(p, s, w.id);
            x = extent_of(p, &t);
        }
    }
    if (HEARS_OUT)
        hear_out(shared, place_of(from), from, &w);
}
#endif
