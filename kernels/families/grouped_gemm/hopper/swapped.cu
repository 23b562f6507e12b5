/* SPDX-License-Identifier: Apache-2.0 */
/* ---- swapped: the epilogue where columns of the tile are rows of the output -------------------------- */
/*
 * SWAP_AB: a thread's accumulators lie along rows of the output. 64 columns become contiguous in memory only when
 * stmatrix turns them on the way to the staging buffer. A piece has up to 64 rows and 64
 * columns of the output, the columns of a wgmma. Each warp has 16 of the columns, so a store waits for all four warps.
 *
 *   TMA_STORE 1  boxes of 16 rows, or of 8 where tiles are cut to 8. A box must not reach into the rows of the
 *                expert's next tile; TMA clips rows past the expert's end
 *   TMA_STORE 0  each warp writes 16 of the 64 rows to their places, eight threads a row
 */
#if SWAP_AB

#define TURNED 16 /* rows of the output that stmatrix transposes at a time */

struct rows { /* the places and weights of a tile's rows, in shared memory; each consumer has its own copy */
    int *to;     /* SCATTER: row of the output */
    u16 *weight; /* FUSE_MUL_POST */
};

/*
 * SCATTER: requests the output rows of a tile's routed rows, from `row` on, as soon as the tile before has been
 * written. A load from memory takes as long as a block or two, and find_rows() would wait where no other multiplication
 * is left. The last loaded rows may belong to other tiles. No thread still reads the output rows of the tile before:
 * find_written() comes before the last barrier of that tile's last piece.
 */
INLINE void ask_for_rows(const struct hopper_params *p, int row, u32 shared, int consumer)
{
    const u32 to = shared + ROWS_AT + consumer * ROWS_BYTES;
    if (!SCATTER)
        return;
#pragma unroll
    for (int c = THREAD & 127; c < TILE_C; c += 128) /* copies four bytes: of a 64-bit index the lower half */
        if (row + c < p->rows)
            copy4(to + c * 4, (const char *)p->gather + ((i64)(row + c) << (p->flags & FLAG_GATHER_64 ? 3 : 2)));
}

/* Finds the places and weights of a tile's rows, while the last wgmmas still run. */
INLINE void find_rows(const struct hopper_params *p, const struct tile *t, int r0, int consumer,
                      struct rows *rows)
{
    char *at = shared_memory + ROWS_AT + consumer * ROWS_BYTES;
    rows->to = (int *)at;
    rows->weight = (u16 *)(at + (SCATTER ? TILE_C * 4 : 0));
    if (!SCATTER && !FUSE_MUL_POST)
        return;
    if (SCATTER)
        copies_wait();
    else /* waits until no warp still writes the previous tile, whose weights would be overwritten */
        group_barrier(BARRIER_WRITE + consumer, 128);
#pragma unroll
    for (int c = THREAD & 127; FUSE_MUL_POST && c < TILE_C; c += 128) /* reads what it copied itself */
        rows->weight[c] = (u16)weight_pair(p, c >= t->width ? -1 : SCATTER ? rows->to[c] : t->first + t->c0 + c);
}

/* The weights of rows c and c + 1, as a pair. */
INLINE u32 weights_of(const struct rows *rows, int c)
{
    return rows->weight[c] | (u32)rows->weight[c + 1] << 16;
}

#define NULL_PAIRS ((const u32 *)0)

/* The i-th pair that a thread writes: of sums, or of pairs rounded before (deferred.cu). */
INLINE u32 pair_of(const float *sums, const u32 *kept, int i)
{
    return kept ? kept[i] : round_pair(sums[i * 2], sums[i * 2 + 1]);
}

/* Writes this warp's 16 columns of the rows c to c + 15 into the buffer, from its row `row` on. Each lane has sums of
 * columns lane / 4 and lane / 4 + 8: in each column two of every 8 rows. */
INLINE void stage_swapped(u32 buffer, int row, const float *d, const u32 *kept, const struct rows *rows, int c)
{
    const int warp = (THREAD >> 5) & 3;
    const u32 chunk = (u32)(warp * 2 + (LANE >> 3 & 1)) ^ (LANE & 7);
    const u32 at = buffer + (row + (LANE >> 4) * 8 + (LANE & 7)) * ROW_BYTES + (chunk << 4);
    u32 v[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[i] = pair_of(d, kept, i);
        if (FUSE_MUL_POST)
            v[i] = multiply_pair(v[i], weights_of(rows, c + (i >> 1) * 8 + (LANE & 3) * 2));
    }
    store_matrices_transposed(at, v[0], v[1], v[2], v[3]);
}

/* Stores `exist` rows from c on; called by a single thread of the consumer. */
INLINE void send_swapped(const struct hopper_params *p, const struct tile *t, u32 buffer, int column,
                         int c, int exist)
{
#pragma unroll 1
    for (int row = 0; row < exist; row += TURNED)
        store_4d(GRAIN < TURNED && exist - row <= GRAIN ? &p->out_wide : &p->out, buffer + row * ROW_BYTES, column,
                 RAGGED - t->rows + t->c0 + c + row, t->first + t->rows, RAGGED);
    stores_commit();
}

#define WRITES (PIECE_ROWS / 16) /* how many rows of a piece each thread writes */
#define WRITTEN_ROW(j) ((((j) * 4 + ((THREAD >> 5) & 3)) * 4) + (LANE >> 3))

/* Finds the rows of the output that this thread writes of the piece from row c on; -1: no row. Called before the
 * piece's barrier. */
INLINE void find_written(const struct tile *t, int c, int exist, const struct rows *rows, int to[WRITES])
{
#pragma unroll
    for (int j = 0; j < WRITES; j++)
        to[j] = WRITTEN_ROW(j) >= exist ? -1 : SCATTER ? rows->to[c + WRITTEN_ROW(j)] : t->first + t->c0 + c + WRITTEN_ROW(j);
}

INLINE void write_swapped(const struct hopper_params *p, u32 buffer, int column, const int to[WRITES])
{
    const int chunk = LANE & 7, at = column + chunk * 8;
    char *const out = p->out_data + (i64)at * OUT_SIZE;
#pragma unroll
    for (int j = 0; j < WRITES; j++) {
        const int row = WRITTEN_ROW(j);
        u32 v[4];
        shared_load16(v, buffer + row * ROW_BYTES + ((chunk ^ (row & 7)) << 4));
        if (to[j] >= 0 && at < p->tile_cols)
            global_store16(out + to[j] * p->out_stride, v);
    }
}

/* Stores a piece: 64 columns and the rows from c on, of the sums at `d` or of the `kept` pairs. All threads call it.
 * `ring` counts this consumer's pieces modulo the staging buffers. */
INLINE void store_piece(const struct hopper_params *p, const struct tile *t, u32 shared, int column, int c, int consumer,
                        const float *d, const u32 *kept, const struct rows *rows, u32 *ring)
{
    const u32 staging = shared + STAGING_AT + consumer * STAGING_BUFFERS * BUFFER_BYTES;
    const u32 buffer = staging + *ring * BUFFER_BYTES;
    const int exist = at_most(t->width - c, PIECE_ROWS);
    if (TMA_STORE && first_warp() && elected())
        STORES_WAIT_READ(STAGING_BUFFERS - 1);
    group_barrier(BARRIER_WRITE + consumer, 128);
#pragma unroll
    for (int row = 0; row < PIECE_ROWS && c + row < TILE_C; row += TURNED)
        if (row < exist)
            stage_swapped(buffer, row, d + row / 2, kept ? kept + row / 4 : kept, rows, c + row);
    int to[WRITES];
    if (TMA_STORE)
        async_fence();
    else
        find_written(t, c, exist, rows, to);
    group_barrier(BARRIER_WRITE + consumer, 128);
    if (!TMA_STORE)
        write_swapped(p, buffer, column, to);
    else if (first_warp() && elected())
        send_swapped(p, t, buffer, column, c, exist);
    *ring = *ring + 1 == STAGING_BUFFERS ? 0 : *ring + 1;
}

INLINE void store_tile(const struct hopper_params *p, const struct tile *t, int r0, int consumer,
                       u32 shared, float acc[MMAS][ACCUMULATORS], const struct rows *rows,
                       u32 *ring)
{
#pragma unroll
    for (int i = 0; i < MMAS; i++) {
        const int column = r0 + i * 64;
#pragma unroll
        for (int c = 0; c < TILE_C; c += PIECE_ROWS) {
            if (column >= p->tile_cols || c >= t->width)
                break;
            store_piece(p, t, shared, column, c, consumer, acc[i] + c / 2, NULL_PAIRS, rows, ring);
        }
    }
}
#endif
