/* SPDX-License-Identifier: Apache-2.0 */
/* ---- gather: operands by threads -------------------------------------------------------------------- */
/*
 * Hopper's TMA cannot gather. So the producer's threads copy the gathered operand with cp.async, 16 bytes ("chunk")
 * at a time; each thread arrives at the stage's "full" mbarrier when its copies are complete
 * (cp.async.mbarrier.arrive.noinc). TMA still loads the second operand. Chunk c of a row in shared memory lies at
 * c xor (row mod 8), as TMA's 128-byte swizzle puts it. The begin of a row is kept as a 32-bit offset in units of 16
 * bytes, because pointers would not fit the registers.
 */
#if GATHER

#define CHUNK (THREAD & 7)

INLINE u32 row_offset(const struct hopper_params *p, int g)
{
    return (u32)(GATHER_X ? token_of(p, g) : g) * p->gathered_stride;
}

INLINE const char *row_at(const char *base, u32 offset)
{
    return base + (u64)offset * 16;
}

#if MODE != MODE_DW
/*
 * All 128 threads copy a block: thread t chunk t % 8 of rows t / 8 + 16 j, so that eight threads read 128 contiguous
 * bytes.
 */
#define ROW (THREAD >> 3) /* the first row that this thread copies */
#define PASS 16           /* a thread copies every 16th row from ROW on */

INLINE u32 swizzled_start(void)
{
    return ROW * ROW_BYTES + ((CHUNK ^ (ROW & 7)) << 4);
}

/* Loads the operand that is not gathered by TMA. Called before the copies, because TMA's bytes take longest to come. */
INLINE void load_other(const struct hopper_params *p, const struct tile *t, const struct extent *x,
                       int d, u32 shared, u32 stage, u64 policy)
{
    if (THREAD < 32 && elected())
        load_block(p, t, x, d, shared + stage * STAGE_BYTES, full_barrier(shared, stage), policy);
}

/* The gathered rows are the tile's rows, the same for all its blocks of the reduction. Rows past the tile's end are not
 * copied: their results are not written. */
#define COPIES (TILE_ROWS / PASS)
#define GATHERED_AT (GATHER_A ? 0 : A_BYTES) /* where the gathered operand begins in a stage */
#define NOWHERE ~0u /* the offset of a row that does not exist */

INLINE void fetch_rows(const struct hopper_params *p, const struct tile *t, int index[COPIES])
{
#pragma unroll
    for (int j = 0; j < COPIES; j++) {
        const int r = (SWAP_AB ? t->c0 : t->r0) + ROW + j * PASS;
        const int end = SWAP_AB ? t->c0 + t->width : t->rows;
        index[j] = r < end ? gather_index(p, t->first + r) : -1;
    }
}

INLINE void copy_block(const struct hopper_params *p, const u32 offset[COPIES], int d, u32 to)
{
    const int column = d + CHUNK * 8;
    const char *base = as_it_is(p->gathered + (i64)column * 2);
    const int bytes = column < p->depth ? 16 : 0;
#pragma unroll
    for (int j = 0; j < COPIES; j++)
        if (offset[j] != NOWHERE)
            copy16(to + j * PASS * ROW_BYTES, row_at(base, offset[j]), bytes);
}

/* Fetches the next tile's gather indices while this tile is copied: without DYNAMIC it is known which tile is next. */
#define FETCH_AHEAD (!DYNAMIC && COPIES <= 8) /* indices of two tiles must fit into the registers */

INLINE void produce(const struct hopper_params *p, const struct tables *s, u32 shared, int tiles, const struct tile *first)
{
    (void)first;
    struct place at = place_of(0);
    struct walk w = walk_begin(p, tiles);
    const int first_block = FIRST_BLOCK(p);
    const u64 policy = weight_policy(p);
    int index[COPIES];
    u32 offset[COPIES];
    if (w.id >= tiles)
        return;
    struct tile t = locate_tile(p, s, w.id);
    if (FETCH_AHEAD)
        fetch_rows(p, &t, index);
#pragma unroll 1
    while (w.id < tiles) {
        if (!FETCH_AHEAD)
            fetch_rows(p, &t, index);
        const int blocks = blocks_of(p, t.rows);
        const struct tile this_one = t;
        const struct extent x = extent_of(p, &t);
        int number = number_in_turn(p, &w);
#pragma unroll
        for (int j = 0; j < COPIES; j++)
            offset[j] = index[j] < 0 ? NOWHERE : row_offset(p, index[j]);
#if FP8
        struct lines lines = lines_of(p, &t);
        struct carried scales;
        find_tokens(p, index, &lines);
        load_scales(p, &lines, &scales);
#endif
        if (FETCH_AHEAD) {
            walk_on(shared, &w, number);
            if (w.id < tiles) {
                t = locate_tile(p, s, w.id);
                fetch_rows(p, &t, index);
            }
        }
#pragma unroll 1
        for (int block = 0; block < blocks; block++) {
            const u32 stage = at.stage;
            const int d = (first_block + block) * TILE_D;
            draw_in_time(p, tiles, block, blocks, &number);
            barrier_wait(empty_barrier(shared, stage), at.phase ^ 1);
            load_other(p, &this_one, &x, d, shared, stage, policy);
            copy_block(p, offset, d,
                       shared + stage * STAGE_BYTES + GATHERED_AT + swizzled_start());
#if FP8
            give_scales(&scales, scales_at(shared, stage), full_barrier(shared, stage));
            if (block + 1 < blocks)
                load_scales(p, &lines, &scales);
#endif
            copies_arrive(full_barrier(shared, stage));
            place_next(&at);
        }
        if (!FETCH_AHEAD) {
            walk_on(shared, &w, number);
            if (w.id < tiles)
                t = locate_tile(p, s, w.id);
        }
    }
    copies_wait();
    if (HEARS_OUT)
        hear_out(shared, at, 0, &w); /* 0: where threads gather, hear_out() does not use the number of blocks */
}

#else
/*
 * dW: the reduction runs over rows, so each block of the reduction has new rows, and tiles have few blocks. If all four
 * warps shared a block's rows, each would still need longer to find the tile, read indices and issue copies than the
 * consumers need to multiply the block. So each warp copies 64 rows alone, and four times as many rows are under way.
 * Each warp has stages of its own. A warp that shared them could reach a stage one round of the ring too early, where
 * the mbarrier's parity bit looks right. Where 64 rows are two blocks, the warp copies both and reads the indices of
 * both at once.
 *
 * Lane l knows where rows l and l + 32 begin. The eight lanes that copy 128 bytes of a row get its offset by a shuffle.
 */
#define ROW (LANE >> 3) /* this lane's row among the rows copied at a time */
#define PASS 4
#define OFFSETS 2 /* number of offsets that each of 32 lanes holds, for 64 rows */
#define SLABS ((GATHER_A ? TILE_R : TILE_C) / 64)
#define NOWHERE ~0u /* the offset of a row that does not exist; such a row is filled with zeros */

/* Reads the indices of 64 rows from d on, and makes them offsets. FLAG_GATHER_64 (type of the indices) is tested once
 * for all, so that all index loads are under way at the same time. */
INLINE void find_gathered(const struct hopper_params *p, const struct tile *t, int d, u32 offset[OFFSETS])
{
    const int left = t->rows - d - LANE, first = t->first + d + LANE;
    int index[OFFSETS];
    if (p->flags & FLAG_GATHER_64) {
#pragma unroll
        for (int i = 0; i < OFFSETS; i++)
            index[i] = i * 32 < left ? (int)((const i64 *)p->gather)[first + i * 32] : -1;
    } else {
#pragma unroll
        for (int i = 0; i < OFFSETS; i++)
            index[i] = i * 32 < left ? ((const int *)p->gather)[first + i * 32] : -1;
    }
#pragma unroll
    for (int i = 0; i < OFFSETS; i++)
        offset[i] = index[i] < 0 ? NOWHERE : row_offset(p, index[i]);
}

/* Returns the offset of the row that this lane copies in a pass; another lane holds it. */
INLINE u32 offset_in(const u32 offset[TILE_D / 32], int pass)
{
    return (u32)shuffle_from((int)offset[pass * PASS / 32], pass * PASS % 32 + ROW);
}

INLINE u32 chunk_at(u32 start, int pass)
{
    return (start ^ (pass & 1) << 6) + pass * PASS * ROW_BYTES;
}

/* Copies a block's rows of the gathered operand, which begins at `to` in its stage. The copies take most of the time
 * that a warp has for a block. So where all rows and columns exist, no row or column is tested. */
INLINE void copy_block(const struct hopper_params *p, const struct tile *t, int d, const u32 offset[TILE_D / 32], u32 to)
{
    const int first = GATHER_A ? t->r0 : t->c0, columns = GATHER_A ? p->tile_rows : p->tile_cols;
    const int column = first + CHUNK * 8;
    const char *base = as_it_is(p->gathered + (i64)column * 2);
    const u32 start = to + ROW * ROW_BYTES + ((CHUNK ^ ROW) << 4);
    if (uniform(t->rows - d >= TILE_D && first + SLABS * 64 <= columns)) {
#pragma unroll
        for (int pass = 0; pass < TILE_D / PASS; pass++) {
            const char *at = row_at(base, offset_in(offset, pass));
#pragma unroll
            for (int i = 0; i < SLABS; i++)
                copy16_whole(chunk_at(start, pass) + i * BLOCK_SLAB_BYTES, at + i * 128);
        }
        return;
    }
#pragma unroll
    for (int pass = 0; pass < TILE_D / PASS; pass++) {
        const u32 from = offset_in(offset, pass);
        const char *at = row_at(base, from == NOWHERE ? 0 : from);
#pragma unroll
        for (int i = 0; i < SLABS; i++)
            copy16(chunk_at(start, pass) + i * BLOCK_SLAB_BYTES, at + i * 128,
                   from != NOWHERE && column + i * 64 < columns ? 16 : 0);
    }
}

/* True if this warp copies into the stage: the four warps take 64 rows in turn. With three stages of 64 rows the fourth
 * warp has no stage. */
INLINE int is_own(u32 stage)
{
    return stage / HALVES % LOADERS == (u32)THREAD / 32;
}

/* True if this warp has copied the first half of the same 64 rows for the same tile, and so holds the offsets of the
 * block's rows. */
INLINE int goes_on(u32 stage, int block)
{
    return HALVES > 1 && block > 0 && stage % HALVES != 0;
}

INLINE void produce(const struct hopper_params *p, const struct tables *s, u32 shared, int tiles, const struct tile *first)
{
    (void)first;
    struct place at = place_of(0);
    struct walk w = walk_begin(p, tiles);
    int before = -1; /* expert of the previous tile */
    struct tile t = no_tile();
    struct extent x = extent_of(p, &t);
    u32 offset[OFFSETS];
#pragma unroll 1
    while (w.id < tiles) {
        const int blocks = blocks_in(steps_at(p, s, w.id));
        int found = 0;
#pragma unroll 1
        for (int block = 0; block < blocks; block++, place_next(&at)) {
            if (!is_own(at.stage))
                continue;
            if (!found) {
                t = locate_tile(p, s, w.id);
                x = extent_of(p, &t);
                ask_experts(p, s, before, t.expert);
                before = t.expert;
                found = 1;
            }
            const int d = block_row(p, &t, block);
            const u32 stage = shared + at.stage * STAGE_BYTES, full = full_barrier(shared, at.stage);
            const int second = goes_on(at.stage, block);
            if (!second)
                find_gathered(p, &t, d, offset);
            u32 begins[TILE_D / 32];
#pragma unroll
            for (int i = 0; i < TILE_D / 32; i++)
                begins[i] = HALVES > 1 && second ? offset[1] : offset[i];
            barrier_wait(empty_barrier(shared, at.stage), at.phase ^ 1);
            if (elected()) /* before the copies, because TMA takes longest */
                load_block(p, &t, &x, d, stage, full, policy_normal());
            copy_block(p, &t, d, begins, stage + (GATHER_A ? 0 : A_BYTES));
            copies_arrive(full);
        }
        walk_next(shared, &w);
    }
    copies_wait();
    if (HEARS_OUT)
        hear_out(shared, at, 0, &w); /* 0: where threads gather, hear_out() does not use the number of blocks */
}
#endif
#endif
