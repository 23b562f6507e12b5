/* SPDX-License-Identifier: Apache-2.0 */
/* ---- gather: operands by threads -------------------------------------------------------------------- */
/*
 * Hopper's TMA cannot gather. So all 128 threads of the producer copy the gathered operand, 16 bytes
 * ("chunk") at a time, with cp.async; its completion is 128 of the arrivals that a full barrier waits
 * for. The other operand still comes by TMA. Chunk c of a row in shared memory lies at
 * c xor (row mod 8), which is what TMA's 128-byte swizzle does.
 *
 * Thread t copies chunk t % 8 of rows t / 8 + 16 j: eight threads read 128 contiguous bytes. Where a
 * row begins is kept as a 32-bit offset in units of 16 bytes: pointers would not fit the registers.
 */
#if GATHER

#define CHUNK (THREAD & 7)
#define ROW (THREAD >> 3) /* the first of this thread's rows */
#define PASS 16           /* to the next */

INLINE u32 row_offset(const struct hopper_params *p, int g)
{
    return (u32)(GATHER_X ? token_of(p, g) : g) * p->gathered_stride;
}

INLINE const char *row_at(const char *base, u32 offset)
{
    return base + (u64)offset * 16;
}

INLINE u32 swizzled_start(void)
{
    return ROW * ROW_BYTES + ((CHUNK ^ (ROW & 7)) << 4);
}

/* The TMA part is first: it takes longest. */
INLINE void load_other(const struct hopper_params *p, const struct tile *t, const struct extent *x,
                       int d, u32 shared, u32 stage, u64 policy)
{
    if (THREAD < 32 && elected())
        load_block(p, t, x, d, shared + stage * STAGE_BYTES, full_barrier(shared, stage), policy);
}

#if MODE != MODE_DW
/* The operand's rows are the tile's, the same for all blocks. Rows past its end are not copied: what
 * they give is not written. */
#define COPIES (TILE_ROWS / PASS)
#define GATHERED_AT (GATHER_A ? 0 : A_BYTES) /* in a stage */
#define NOWHERE ~0u /* a row that does not exist */

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
    const char *base = p->gathered + (i64)column * 2;
    const int bytes = column < p->depth ? 16 : 0;
#pragma unroll
    for (int j = 0; j < COPIES; j++)
        if (offset[j] != NOWHERE)
            copy16(to + j * PASS * ROW_BYTES, row_at(base, offset[j]), bytes);
}

/* When tiles are dealt in turn, the next one's indices are fetched while this one is copied. */
#define FETCH_AHEAD (!DYNAMIC && COPIES <= 8) /* more do not fit in the registers twice */

INLINE void produce(const struct hopper_params *p, const struct tables *s, u32 shared, int tiles)
{
    struct place at = place_of(0);
    struct walk w = walk_begin(tiles);
    const int first = FIRST_BLOCK(p);
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
        const u64 policy = weight_policy(&t);
        const struct tile this_one = t;
        const struct extent x = extent_of(p, &t);
        int number = 0;
#pragma unroll
        for (int j = 0; j < COPIES; j++)
            offset[j] = index[j] < 0 ? NOWHERE : row_offset(p, index[j]);
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
            const int d = (first + block) * TILE_D;
            draw_in_time(p, block, blocks, &number);
            barrier_wait(empty_barrier(shared, stage), at.phase ^ 1);
            load_other(p, &this_one, &x, d, shared, stage, policy);
            copy_block(p, offset, d,
                       shared + stage * STAGE_BYTES + GATHERED_AT + swizzled_start());
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
}

#else /* dW: rows are the reduction, others in every block; those past the end must be zeros */
#define COPIES (TILE_D / PASS)
#define SLABS ((GATHER_A ? TILE_R : TILE_C) / 64)

INLINE void fetch_rows(const struct hopper_params *p, const struct tile *t, int d,
                       int index[COPIES])
{
#pragma unroll
    for (int j = 0; j < COPIES; j++) {
        const int r = d + ROW + j * PASS;
        index[j] = r < t->rows ? gather_index(p, t->first + r) : -1;
    }
}

INLINE void copy_block(const struct hopper_params *p, const struct tile *t,
                       const int index[COPIES], u32 to)
{
    const int column = (GATHER_A ? t->r0 : t->c0) + CHUNK * 8;
    const int columns = GATHER_A ? p->tile_rows : p->tile_cols;
    const char *base = p->gathered + (i64)column * 2;
#pragma unroll
    for (int j = 0; j < COPIES; j++) {
        const char *from = row_at(base, row_offset(p, index[j] < 0 ? 0 : index[j]));
#pragma unroll
        for (int i = 0; i < SLABS; i++)
            copy16(to + i * SLAB_BYTES + j * PASS * ROW_BYTES, from + i * 128,
                   index[j] >= 0 && column + i * 64 < columns ? 16 : 0);
    }
}

/* The next tile is found before the stage that it is loaded to comes free, where registers allow. */
#define LOCATE_AHEAD (PRODUCER_REGISTERS != 40)

/* Indices are fetched one block ahead, also across tiles. */
INLINE void produce(const struct hopper_params *p, const struct tables *s, u32 shared, int tiles)
{
    struct place at = place_of(0);
    int id = WALKER, block = 0, index[COPIES];
    if (id >= tiles)
        return;
    struct tile t = locate_tile(p, s, id), next = t;
    int known = 0; /* next is the tile after t */
    ask_experts(p, s, -1, t.expert);
    fetch_rows(p, &t, 0, index);
#pragma unroll 1
    while (id < tiles) {
        const struct tile this_one = t;
        const struct extent x = extent_of(p, &t);
        const int d = block_row(p, &this_one, block);
        int now[COPIES];
#pragma unroll
        for (int j = 0; j < COPIES; j++)
            now[j] = index[j];
        if (++block == blocks_of(p, t.rows)) {
            block = 0;
            id += WALKERS;
            if (id < tiles)
                t = known ? next : locate_tile(p, s, id);
            known = 0;
        }
        if (id < tiles)
            fetch_rows(p, &t, block_row(p, &t, block), index);

        const u32 stage = at.stage;
        barrier_wait(empty_barrier(shared, stage), at.phase ^ 1);
        load_other(p, &this_one, &x, d, shared, stage, policy_normal());
        copy_block(p, &this_one, now,
                   shared + stage * STAGE_BYTES + (GATHER_A ? 0 : A_BYTES) + swizzled_start());
        copies_arrive(full_barrier(shared, stage));
        place_next(&at);
        if (block == 0 && id < tiles)
            ask_experts(p, s, this_one.expert, t.expert);
        if (LOCATE_AHEAD && !known && id + WALKERS < tiles) {
            next = locate_tile(p, s, id + WALKERS);
            known = 1;
        }
    }
    copies_wait();
}
#endif
#endif
