/* SPDX-License-Identifier: Apache-2.0 */
/* ---- deferred: a tile is written while the next one is multiplied ----------------------------------- */
/*
 * DEFERRED, with SWAP_AB: a consumer warpgroup does not write a finished tile while the tensor cores idle. The consumer
 * rounds the sums, which halves their registers, keeps them as pieces of 64 x 64, and begins the next tile. After each
 * of the next tile's first blocks of the reduction, while wgmma runs, the consumer writes a kept piece. Pieces that do
 * not fit into registers beside the next tile's sums are written before: pieces of the first 64 columns while the other
 * columns of the last block are multiplied.
 *
 * A single loop over blocks serves with and without pieces to write. The next piece to write is always in
 * kept.pairs[0]: after each piece the others move down by one.
 */
#if DEFERRED

/* A tile's pieces are numbered by 64 columns of the output, whose wgmmas finish in that order. Of the pieces of the
 * same 64 columns, the piece of the tile's last rows, which may be less than 64, comes first. */
#define PARTS_EACH ((TILE_C + 63) / 64) /* number of pieces with the same 64 columns */
#define ALL_PIECES (MMAS * PARTS_EACH)
#define PIECE_MMA(n) ((n) / PARTS_EACH)
#define PIECE_PART(n) (PARTS_EACH - 1 - (n) % PARTS_EACH)

struct kept {
    u32 pairs[KEPT][PIECE_PAIRS]; /* rounded sums of the pieces from `next` on */
    struct tile t;
    int r0; /* first column of the output (r) in the consumer's part of tile t */
    /* the next piece to write; above ALL_PIECES: the destinations of the next tile's rows have been requested */
    int next;
    struct rows rows;
};

/* Writes piece n of a tile, if the output has rows and columns there: from the sums `acc`, or from `kept`, if given. */
INLINE void write_nth(const struct hopper_params *p, const struct tile *t, int r0, int consumer, u32 shared, int n,
                      float acc[MMAS][ACCUMULATORS], const u32 *kept, const struct rows *rows, u32 *ring)
{
    const int i = PIECE_MMA(n), c = PIECE_PART(n) * 64, r = r0 + i * 64;
    if (r < p->tile_cols && c < t->width)
        store_piece(p, t, shared, r, c, consumer, kept ? 0 : acc[i] + c / 2, kept, rows, ring);
}

INLINE void write_next(const struct hopper_params *p, int consumer, u32 shared, float acc[MMAS][ACCUMULATORS], struct kept *k,
                       u32 *ring)
{
    write_nth(p, &k->t, k->r0, consumer, shared, k->next, acc, k->pairs[0], &k->rows, ring);
    k->next++;
#pragma unroll
    for (int n = 0; n + 1 < KEPT; n++)
#pragma unroll
        for (int i = 0; i < PIECE_PAIRS; i++)
            k->pairs[n][i] = k->pairs[n + 1][i];
}

/* SCATTER: after the last piece of the kept tile, starts to load the numbers of the next tile's output rows, once. */
INLINE void ask_once(const struct hopper_params *p, int row, u32 shared, int consumer, struct kept *k)
{
    if (SCATTER && k->next == ALL_PIECES) {
        ask_for_rows(p, row, shared, consumer);
        k->next++;
    }
}

/* Writes those pieces of a tile's i-th 64 columns for which no registers are left. */
INLINE void write_others(const struct hopper_params *p, const struct tile *t, int r0, int consumer, u32 shared, int i,
                         float acc[MMAS][ACCUMULATORS], const struct rows *rows, u32 *ring)
{
    wgmma_settle(acc, i);
#pragma unroll
    for (int n = i * PARTS_EACH; n < (i + 1) * PARTS_EACH && n < ALL_PIECES - KEPT; n++)
        write_nth(p, t, r0, consumer, shared, n, acc, NULL_PAIRS, rows, ring);
}

/* Rounds the sums of a tile's last KEPT pieces (64 x 64 of the output each) into k->pairs. write_others() has written
 * the other pieces. */
INLINE void keep(const struct tile *t, int r0, float acc[MMAS][ACCUMULATORS], struct kept *k)
{
#pragma unroll
    for (int n = 0; n < KEPT; n++) {
        const int piece = ALL_PIECES - KEPT + n;
        const float *sums = acc[PIECE_MMA(piece)] + PIECE_PART(piece) * 2 * PIECE_PAIRS;
#pragma unroll
        for (int i = 0; i < PIECE_PAIRS; i++)
            k->pairs[n][i] = pair_of(sums, NULL_PAIRS, i);
    }
    k->t = *t;
    k->r0 = r0;
    k->next = ALL_PIECES - KEPT;
}

/* Multiplies a block. The wgmmas of each 64 columns are a group of their own (wgmma.commit_group), so that finished
 * columns of the last block are written while the others run. */
INLINE void multiply_columns(float acc[MMAS][ACCUMULATORS], int width, u32 consumer_a, u32 b, int first)
{
    const u32 low_a = DESCRIPTOR_LOW(A_TRANSPOSED, SLAB_BYTES) | consumer_a >> 4;
    const u32 low_b = DESCRIPTOR_LOW(B_TRANSPOSED, SLAB_BYTES) | b >> 4;
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < MMAS; i++) {
#pragma unroll
        for (int step = 0; step < STEPS; step++)
            wgmma(acc, i, descriptor(low_a + i * (SLAB_BYTES >> 4) + step * STEP_UNITS(A_TRANSPOSED)),
                  descriptor(low_b + step * STEP_UNITS(B_TRANSPOSED)), !(step == 0 && first), width);
        wgmma_commit();
    }
}

/* Multiplies as mainloop_of() (mainloop.cu) does, and after each block writes a piece of the previous tile. */
INLINE u32 multiply_and_write_of(const struct hopper_params *p, float acc[MMAS][ACCUMULATORS], int width, u32 shared,
                                 int consumer, u32 from, int row, int blocks, struct kept *k, u32 *ring)
{
    struct place at = place_of(from);
    const u32 operands = CLUSTER > 1 ? shared & DESCRIPTOR_ADDRESS : shared;
    const u32 consumer_a = operands + consumer * ROWS_EACH * ROW_BYTES;
    u32 last = 0;
#pragma unroll 1
    for (int block = 0; block < blocks; block++) {
        warp_barrier(); /* tells the compiler that the warp's lanes run together (SAY_TOGETHER in mainloop.cu) */
        wait_full(shared, &at);
        multiply_columns(acc, width, consumer_a + at.stage * STAGE_BYTES, operands + at.stage * STAGE_BYTES + A_BYTES,
                         block == 0);
        if (IN_FLIGHT) {
            WGMMA_WAIT(MMAS);
            if (block > 0)
                give_stage(shared, last);
        }
        if (k->next < ALL_PIECES)
            write_next(p, consumer, shared, acc, k, ring);
        else
            ask_once(p, row, shared, consumer, k);
        if (!IN_FLIGHT && block < blocks - 1) {
            WGMMA_WAIT(0);
            give_stage(shared, at.stage);
        }
        last = at.stage;
        place_next(&at);
    }
    return last;
}

/* Multiplies a tile and leaves the last block's groups running, a group for each 64 columns. Returns the last
 * block's stage. */
INLINE u32 multiply_and_write(const struct hopper_params *p, float acc[MMAS][ACCUMULATORS], u32 shared, int consumer, u32 from,
                              const struct tile *t, int blocks, struct kept *k, u32 *ring)
{
    const int width = width_of(t->width), row = t->first + t->c0;
#define OF(n)                                                                                      \
    if (HAS_WIDTH(n) && n < TILE_C && width == n)                                                  \
        return multiply_and_write_of(p, acc, n, shared, consumer, from, row, blocks, k, ring);
    EACH_WIDTH(OF)
#undef OF
    return multiply_and_write_of(p, acc, TILE_C, shared, consumer, from, row, blocks, k, ring);
}

INLINE struct tile tile_at(const struct hopper_params *p, const struct tables *s, int id, int tiles)
{
    return id < tiles ? locate_tile(p, s, id) : no_tile();
}

INLINE void consume(const struct hopper_params *p, const struct tables *s, u32 shared, int tiles, int consumer,
                    const struct tile *first)
{
    (void)first;
    const int blocks = blocks_of(p, 0); /* number of blocks of every tile */
    struct walk w = walk_begin(p, tiles);
    u32 from = 0, ring = 0; /* blocks of earlier tiles; the next staging buffer */
    struct tile t = tile_at(p, s, w.id, tiles);
    struct kept k;
    float acc[MMAS][ACCUMULATORS];
    set_up_for_consumers(p, &t, shared, consumer);
    k.next = ALL_PIECES;
#pragma unroll 1
    while (w.id < tiles) {
        const u32 last = multiply_and_write(p, acc, shared, consumer, from, &t, blocks, &k, &ring);
        const int r0 = t.r0 + consumer * ROWS_EACH;
#pragma unroll 1
        while (k.next < ALL_PIECES) /* writes the rest: the previous tile had more pieces than this tile has blocks */
            write_next(p, consumer, shared, acc, &k, &ring);
        ask_once(p, t.first + t.c0, shared, consumer, &k);
        find_rows(p, &t, r0, consumer, &k.rows);
        from += blocks;
        walk_next(shared, &w);
        const struct tile next = tile_at(p, s, w.id, tiles);
#define WRITE_FROM_LAST(n) /* n: number of wgmma groups that still run */                        \
    if (MMAS > n) {                                                                                \
        WGMMA_WAIT(n);                                                                             \
        write_others(p, &t, r0, consumer, shared, MMAS - 1 - n, acc, &k.rows, &ring);              \
    }
        WRITE_FROM_LAST(3)
        WRITE_FROM_LAST(2)
        WRITE_FROM_LAST(1)
#undef WRITE_FROM_LAST
        WGMMA_WAIT(0);
        give_stage(shared, last);
        write_others(p, &t, r0, consumer, shared, MMAS - 1, acc, &k.rows, &ring);
        keep(&t, r0, acc, &k);
        t = next;
    }
#pragma unroll 1
    while (k.next < ALL_PIECES)
        write_next(p, consumer, shared, acc, &k, &ring);
    stores_end();
}
#endif
