/* SPDX-License-Identifier: Apache-2.0 */
/* ---- split: one tile by several blocks of threads ----------------------------------------------- */
/*
 * KSPLIT: the blocks of a cluster have the same tile, and each has summed over its own part of the
 * reduction. Now each writes all its sums to its own shared memory. When all have, each adds up,
 * for its rows, what all of them wrote, always in the order of their ranks, so that results do not
 * depend on who is first; rounds once, and stores. Rows are dealt in turn (rank, rank + size, ...):
 * a tile with few rows is shared out, too. Nothing goes through global memory.
 *
 * Two barriers in each block, on which every consumer warp of the cluster arrives once a tile:
 * "full" (all have written) and "free" (all have read). Nobody writes again, or ends, before its
 * own "free": after this one nobody reads its sums or arrives at its barriers any more. Producers
 * take no part, and may be a tile ahead or gone.
 *
 * Sums lie in rows of TILE_C, each four of them (16 bytes) at a place of their row that keeps banks
 * apart. Half a warp writes 32 bytes in each of 4 rows: the row goes into bits 1 and 2. Eight lanes
 * read every other 16 bytes of 256: bit 3 goes into bit 0.
 */
#if KSPLIT
#define SPLIT_THREADS (128 * CONSUMERS)
#define SUMS_ROW (TILE_C * 4) /* bytes */
#define CHUNKS (TILE_C / 8)   /* of output, 16 bytes of 8 sums, in a row of the tile */
#define SPLIT_MOST 8          /* blocks in a cluster */

INLINE u32 sums_full(u32 shared)
{
    return shared + SPLIT_AT;
}

INLINE u32 sums_free(u32 shared)
{
    return shared + SPLIT_AT + 8;
}

INLINE void split_init(u32 shared)
{
    barrier_init(sums_full(shared), 4 * CONSUMERS * cluster_size());
    barrier_init(sums_free(shared), 4 * CONSUMERS * cluster_size());
}

/* By whole warps, at the barrier of every block: their sums can be read, and those of others have
 * been. */
INLINE void sums_written(u32 shared)
{
    warp_barrier();
    if (LANE < (int)cluster_size())
        cluster_arrive(cluster_address(sums_full(shared), LANE));
}

INLINE void sums_read(u32 shared)
{
    warp_barrier();
    if (LANE < (int)cluster_size())
        cluster_arrive_read(cluster_address(sums_free(shared), LANE));
}

INLINE u32 sums_at(int row, int four)
{
    return STAGING_AT + row * SUMS_ROW + ((four ^ (four >> 3 & 1) ^ (row & 3) << 1) << 4);
}

/* Of rows that exist. A thread has, of every 8 columns, two of row lane / 4 and two of row
 * lane / 4 + 8. */
INLINE void write_sums(u32 shared, int consumer, int rows, float acc[MMAS][ACCUMULATORS])
{
#pragma unroll
    for (int i = 0; i < MMAS; i++) {
        const int first = consumer * ROWS_EACH + i * 64 + (THREAD >> 5 & 3) * 16;
        const int row = first + (LANE >> 2);
        if (first < rows) {
#pragma unroll
            for (int j = 0; j < TILE_C / 8; j++) {
                const float *d = acc[i] + j * 4;
                const u32 at = shared + sums_at(row, j * 2 + (LANE >> 1 & 1)) + ((LANE & 1) << 3);
                shared_store8(at, d[0], d[1]);
                shared_store8(at + 8 * SUMS_ROW, d[2], d[3]);
            }
        }
    }
}

/* 16 bytes of the output, and where they go. */
struct share {
    int row;    /* of the tile; it exists when below the tile's rows */
    int chunk;
    int to;     /* row of the output */
    u32 weight; /* FUSE_MUL_POST */
};

/* The n-th of this block. */
INLINE struct share share_at(const struct hopper_params *p, const struct tile *t, int rows, int n)
{
    struct share s;
    s.row = (int)cluster_rank() + n / CHUNKS * (int)cluster_size();
    s.chunk = n % CHUNKS;
    s.to = 0;
    s.weight = 0;
    if (s.row < rows) {
        const int i = t->first + t->r0 + s.row;
        s.to = SCATTER ? gather_index(p, i) : i;
        if (FUSE_MUL_POST)
            s.weight = weight_pair(p, s.to);
    }
    return s;
}

/* `size` is a constant: all loads are under way before the first is waited for. */
INLINE void add_up(float sum[8], u32 shared, const struct share *s, int size)
{
    const u32 low = sums_at(s->row, s->chunk * 2), high = sums_at(s->row, s->chunk * 2 + 1);
    float v[SPLIT_MOST][8];
#pragma unroll
    for (int r = 0; r < size; r++) {
        const u32 there = cluster_address(shared, r);
        cluster_load16(v[r], there + low);
        cluster_load16(v[r] + 4, there + high);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        sum[i] = v[0][i];
#pragma unroll
        for (int r = 1; r < size; r++)
            sum[i] += v[r][i];
    }
}

INLINE void store_share(const struct hopper_params *p, const struct tile *t, u32 shared,
                        const struct share *s, int size)
{
    const int column = t->c0 + s->chunk * 8;
    float sum[8];
    u32 v[4];
    if (column >= p->tile_cols)
        return;
    add_up(sum, shared, s, size);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[i] = round_pair(sum[i * 2], sum[i * 2 + 1]);
        if (FUSE_MUL_POST)
            v[i] = multiply_pair(v[i], s->weight);
    }
    global_store16(p->out_data + s->to * p->out_stride + (i64)column * OUT_SIZE, v);
}

INLINE void store_shares(const struct hopper_params *p, const struct tile *t, u32 shared, int rows,
                         struct share s, int size)
{
#pragma unroll 1
    for (int n = THREAD - 128; s.row < rows; s = share_at(p, t, rows, n)) {
        store_share(p, t, shared, &s, size);
        n += SPLIT_THREADS;
    }
}

/* `done` counts tiles. */
INLINE void write_tile(const struct hopper_params *p, const struct tile *t, int r0, int consumer,
                       u32 shared, float acc[MMAS][ACCUMULATORS], const struct rows *unused,
                       u32 *done)
{
    const int rows = at_most(t->rows - t->r0, TILE_R), size = (int)cluster_size();
    if (*done > 0)
        cluster_wait(sums_free(shared), (*done - 1) & 1);
    write_sums(shared, consumer, rows, acc);
    sums_written(shared);
    const struct share first = share_at(p, t, rows, THREAD - 128); /* loads, while others write */
    cluster_wait(sums_full(shared), *done & 1);
    if (size == 2)
        store_shares(p, t, shared, rows, first, 2);
    else if (size == 4)
        store_shares(p, t, shared, rows, first, 4);
    else
        store_shares(p, t, shared, rows, first, 8);
    sums_read(shared);
    ++*done;
}

INLINE void writes_end(u32 shared, u32 done)
{
    if (done > 0)
        cluster_wait(sums_free(shared), (done - 1) & 1);
}

#else
INLINE void split_init(u32 shared)
{
    (void)shared;
}

INLINE void write_tile(const struct hopper_params *p, const struct tile *t, int r0, int consumer,
                       u32 shared, float acc[MMAS][ACCUMULATORS], const struct rows *rows,
                       u32 *ring)
{
    store_tile(p, t, r0, consumer, shared, acc, rows, ring);
}

INLINE void writes_end(u32 shared, u32 ring)
{
    (void)shared;
    (void)ring;
    stores_end();
}
#endif
