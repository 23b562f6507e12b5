/* SPDX-License-Identifier: Apache-2.0 */
/* ---- split: one tile by several thread blocks ----------------------------------------------- */
/*
 * KSPLIT: the thread blocks of a cluster have the same tile, and each has summed over its own part of the reduction.
 * Rows are dealt in turn (rank, rank + size, ...), so that a tile with few rows is shared out, too. Each thread block
 * sends its sums of a row to the shared memory of the row's owner. The owner adds all sums in the order of ranks, so
 * that results do not depend on arrival, rounds once, and stores. No sum goes through global memory.
 *
 * A warp first lays its sums out in rows, in the stage that was multiplied last. Sent straight from the accumulators,
 * 8 or 16 bytes a lane with rows between them, the sums took up to 0.6 microseconds longer.
 *
 * Each thread block has two mbarriers: "full" (all bytes of a tile have come) and "free" (all thread blocks have read
 * their sums). Every consumer warp of the cluster arrives at "free", except after the last tile: no sums follow, and
 * a thread block that has received all its bytes may end. Producers take no part, and may be a tile ahead or gone.
 *
 * The place in a row of four sums (16 bytes) avoids bank conflicts. Eight lanes read every other 16 bytes of 256, so
 * bit 3 of the place is xored into bit 0. Each four writing lanes have the same row, so the row's number is xored into
 * bits 1 and 2.
 */
#if KSPLIT
#define SPLIT_THREADS (128 * CONSUMERS)
#define SUMS_ROW (TILE_C * 4) /* bytes of a row of sums */
#define SENT_COLS 32          /* columns of sums that a warp lays out at a time */
#define SENT_ROW (SENT_COLS * 4)
#define CHUNKS (TILE_C / 8)   /* number of chunks (16 bytes of output, from 8 sums) in a row of the tile */
#define SPLIT_MOST 8          /* most thread blocks in a cluster */

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
    barrier_init(sums_full(shared), 1);
    barrier_init(sums_free(shared), 4 * CONSUMERS * cluster_size());
}

/* Tells all thread blocks that the sums sent to this thread block have been read. Called by whole warps. */
INLINE void sums_read(u32 shared)
{
    warp_barrier();
    if (LANE < (int)cluster_size())
        cluster_arrive_read(cluster_address(sums_free(shared), LANE));
}

/* Bytes of the sums that are sent: rows are sent in whole groups of 16, a group per warp. */
INLINE u32 sums_bytes(int rows)
{
    return (u32)round_up(rows, 16) * SUMS_ROW;
}

INLINE u32 sums_at(u32 line, int four)
{
    return STAGING_AT + line * SUMS_ROW + ((four ^ (four >> 3 & 1) ^ (line & 3) << 1) << 4);
}

/* Where the owner of `row` receives the sums of thread block `rank`: the sums of rank 0 come first, for all rows. */
INLINE u32 received_at(u32 rank, u32 row, int four)
{
    return sums_at(divide_by_size(rank * TILE_R + row), four);
}

/* Writes SENT_COLS columns of the sums of a warp's 16 rows to `to`, in the last stage. Each lane has sums of rows
 * lane / 4 and lane / 4 + 8: in each row two of every 8 columns. Half a warp writes 32 bytes in each of 4 rows. */
INLINE void lay_out(u32 to, const float *sums)
{
    const int row = LANE >> 2;
#pragma unroll
    for (int j = 0; j < SENT_COLS / 8; j++) {
        const float *d = sums + j * 4;
        const int four = (j * 2 + (LANE >> 1 & 1)) ^ (row & 3) << 1;
        const u32 at = to + row * SENT_ROW + (four << 4) + ((LANE & 1) << 3);
        shared_store8(at, d[0], d[1]);
        shared_store8(at + 8 * SENT_ROW, d[2], d[3]);
    }
}

/* Sends the sums that lay_out() wrote to `laid_out`: 16 rows of the tile from row `first` on, SENT_COLS columns from
 * column `from` on. Eight lanes send a row. */
INLINE void send(u32 shared, u32 laid_out, int first, int from)
{
    const u32 rank = cluster_rank(), ranks = cluster_size() - 1;
    const int four = LANE & 7;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = i * 4 + (LANE >> 3);
        const u32 there = cluster_address(shared, (u32)(first + row) & ranks);
        u32 v[4];
        shared_load16(v, laid_out + row * SENT_ROW + ((four ^ (row & 3) << 1) << 4));
        cluster_store16(there + received_at(rank, first + row, from / 4 + four), v, sums_full(there));
    }
}

/* Sends sums through `stage`, which all consumers have read; each warp has a part of the stage. */
INLINE void send_tile(u32 shared, u32 stage, int consumer, int rows, float acc[MMAS][ACCUMULATORS])
{
    const u32 mine = stage + (THREAD / 32 - 4) * 16 * SENT_ROW;
    group_barrier(BARRIER_WRITE, SPLIT_THREADS);
#pragma unroll
    for (int i = 0; i < MMAS; i++) {
        const int first = consumer * ROWS_EACH + i * 64 + (THREAD >> 5 & 3) * 16;
#pragma unroll
        for (int from = 0; from < TILE_C && first < rows; from += SENT_COLS) {
            lay_out(mine, acc[i] + from / 2);
            warp_barrier();
            send(shared, mine, first, from);
            warp_barrier();
        }
    }
    async_fence();
}

/* 16 bytes of the output that a thread adds up, and their destination. */
struct share {
    int row;    /* row of the tile; the row exists if it is below the tile's rows */
    int chunk;
    int to;     /* row of the output */
    u32 weight; /* FUSE_MUL_POST */
};

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

/* Adds the sums of `size` thread blocks. `size` is a constant, so that the compiler issues all loads before it uses the
 * first value. */
INLINE void add_up(float sum[8], u32 shared, const struct share *s, int size)
{
    u32 v[SPLIT_MOST][8];
#pragma unroll
    for (int r = 0; r < size; r++) {
        shared_load16(v[r], shared + received_at(r, s->row, s->chunk * 2));
        shared_load16(v[r] + 4, shared + received_at(r, s->row, s->chunk * 2 + 1));
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        sum[i] = bits_float(v[0][i]);
#pragma unroll
        for (int r = 1; r < size; r++)
            sum[i] += bits_float(v[r][i]);
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

/* Sums up and writes this thread block's rows of a tile. `done` counts the tiles written before. */
INLINE void write_tile(const struct hopper_params *p, const struct tile *t, int r0, int consumer,
                       u32 shared, float acc[MMAS][ACCUMULATORS], const struct rows *unused,
                       u32 *done, u32 last, int more)
{
    const int rows = at_most(t->rows - t->r0, TILE_R), size = (int)cluster_size();
    if (*done > 0)
        cluster_wait(sums_free(shared), (*done - 1) & 1);
    if (THREAD == 128)
        barrier_expect(sums_full(shared), sums_bytes(rows));
    send_tile(shared, shared + last * STAGE_BYTES, consumer, rows, acc);
    give_stage(shared, last);
    const struct share first = share_at(p, t, rows, THREAD - 128); /* loads, while sums are sent */
    cluster_wait(sums_full(shared), *done & 1);
    if (size == 2)
        store_shares(p, t, shared, rows, first, 2);
    else if (size == 4)
        store_shares(p, t, shared, rows, first, 4);
    else
        store_shares(p, t, shared, rows, first, 8);
    if (more)
        sums_read(shared);
    ++*done;
}

#else
INLINE void split_init(u32 shared)
{
    (void)shared;
}

INLINE void write_tile(const struct hopper_params *p, const struct tile *t, int r0, int consumer,
                       u32 shared, float acc[MMAS][ACCUMULATORS], const struct rows *rows,
                       u32 *ring, u32 last, int more)
{
    (void)last, (void)more;
    store_tile(p, t, r0, consumer, shared, acc, rows, ring);
}
#endif
