/* SPDX-License-Identifier: Apache-2.0 */
/* ---- epilogue: from registers to global memory --------------------------------------------------------- */
/*
 * A consumer warpgroup writes its part of the tile in pieces of 128 bytes of every row, in tiles of 32 columns of 64:
 * registers -> staging buffer (swizzled like the stages of operands) -> global memory. Unless AT_ONCE, it takes its staging
 * buffers in a ring that runs on over tiles. If the ring began anew with every tile, an odd number of pieces would make two pieces in sequence use
 * the same buffer. The first piece's store still reads from it.
 *
 *   TMA_STORE 1  a thread stores the piece by TMA, which clips rows and columns that do not exist;
 *   TMA_STORE 0  each warp writes its own 16 of 64 rows to their places, eight threads a row (four of 64 bytes).
 *
 * With STORE_SLABS 2 a piece has 256 adjacent bytes of every row. In launches that mostly write (dW of few rows),
 * memory takes these up to a tenth faster than two stores of 128 bytes.
 *
 * fp8's SENDS: the consumer only stages pieces; a warp of the producer stores them (sender.cu).
 */

/* A pair (two 16-bit values) with the weight of an output row in both; 0 for a row that does not exist. */
INLINE u32 weight_pair(const struct hopper_params *p, int row)
{
    u32 one;
    if (row < 0)
        return 0;
    if (p->flags & FLAG_WEIGHTS_FP32)
        one = round_pair(((const float *)p->weights)[row], 0.0f);
    else
        one = ((const u16 *)p->weights)[row];
    return (one & 0xffff) | one << 16;
}

/* True in the consumer's first warp, which stores by TMA. */
INLINE int first_warp(void)
{
    return (THREAD & 96) == 0;
}

/* cp.async.bulk.wait_group.read: waits until TMA has read the staging buffers. A thread block that ended before would
 * free them. */
INLINE void stores_end(void)
{
    if (TMA_STORE && first_warp() && elected())
        STORES_WAIT_READ(0);
}

#if !SWAP_AB /* else swapped.cu */
/* The rows that this lane writes or weights: of every 64 rows a warp has 16, and a lane has row lane % 16. */
struct rows {
    int to[WRITTEN];          /* rows of the output; -1: the row does not exist. TMA_STORE: unused */
    u32 weight[WRITTEN][2];   /* FUSE_MUL_POST: weight_pair() of rows lane / 4 and lane / 4 + 8 */
};

#define ask_for_rows(p, row, shared, consumer) ((void)(row))

/* Finds this lane's rows of a tile, while the last wgmmas still run. r0 is the consumer's first row. */
INLINE void find_rows(const struct hopper_params *p, const struct tile *t, int r0, int consumer,
                      struct rows *rows)
{
    const int warp = (THREAD >> 5) & 3;
    if (TMA_STORE || KSPLIT)
        return;
#pragma unroll
    for (int i = 0; i < WRITTEN; i++) {
        const int r = r0 + i * 64 + warp * 16 + (LANE & 15);
        rows->to[i] = -1;
        if (r < output_rows(p, t))
            rows->to[i] = MODE == MODE_DW ? r : SCATTER ? gather_index(p, t->first + r)
                                                        : t->first + r;
        if (FUSE_MUL_POST) {
            const u32 weight = weight_pair(p, rows->to[i]);
            rows->weight[i][0] = (u32)shuffle_from((int)weight, LANE >> 2);
            rows->weight[i][1] = (u32)shuffle_from((int)weight, (LANE >> 2) + 8);
        }
    }
}

/*
 * Writes a slab of 64 rows (16 of this warp) to shared memory. Of every 8 columns a thread has two of row lane / 4
 * and two of row lane / 4 + 8. With STORE_SLABS 2 a row is two lines of 128 bytes, and rows r and r + 4 have the same
 * swizzle. To avoid bank conflicts, lanes whose row number has bit 2 store their second chunk of 16 bytes first.
 */
#define NEIGHBOUR_FIRST(row) (STORE_SLABS > 1 ? (row) >> 2 & 1 : 0)
#define SWIZZLE_OF(row, slab) (((row) * STORE_SLABS + (slab)) & 7)

INLINE void swap_if(int yes, u32 *a, u32 *b)
{
    const u32 was = *a;
    *a = yes ? *b : was;
    *b = yes ? was : *b;
}

INLINE void stage_16(u32 to, const float *d, int slab, const u32 weight[2])
{
    const u32 row = to + ((LANE & 15) * STORE_SLABS + slab) * ROW_BYTES;
    const u32 chunk = ((LANE >> 4) ^ NEIGHBOUR_FIRST(LANE) ^ SWIZZLE_OF(LANE, slab)) << 4;
#pragma unroll
    for (int q = 0; q < 4 && q * 16 < PIECE; q++) { /* each q: 16 columns, which are two chunks */
        u32 v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[i] = round_pair(d[q * 8 + i * 2], d[q * 8 + i * 2 + 1]);
            if (FUSE_MUL_POST)
                v[i] = multiply_pair(v[i], weight[i & 1]);
        }
        swap_if(NEIGHBOUR_FIRST(LANE >> 2), &v[0], &v[2]);
        swap_if(NEIGHBOUR_FIRST(LANE >> 2), &v[1], &v[3]);
        store_matrices(row + (chunk ^ q << 5), v[0], v[1], v[2], v[3]);
    }
}

INLINE void stage_32(u32 to, const float *d, int slab)
{
    const u32 row = to + ((LANE >> 2) * STORE_SLABS + slab) * ROW_BYTES, half = (LANE & 1) << 3;
#pragma unroll
    for (int q = 0; q < 4; q++) { /* each q: 8 columns, which are two chunks; this lane writes a part of one */
        const u32 at = row + (((q * 2 + (LANE >> 1 & 1)) ^ SWIZZLE_OF(LANE >> 2, slab)) << 4) + half;
        shared_store8(at, d[q * 4], d[q * 4 + 1]);
        shared_store8(at + 8 * STORE_SLABS * ROW_BYTES, d[q * 4 + 2], d[q * 4 + 3]);
    }
}

INLINE void stage_piece(u32 buffer, float acc[WRITTEN][ACCUMULATORS], int piece,
                        const struct rows *rows)
{
    const int warp = (THREAD >> 5) & 3;
#pragma unroll
    for (int i = 0; i < WRITTEN; i++) {
        const u32 to = buffer + i * STORE_SLABS * SLAB_BYTES + warp * 16 * STORE_SLABS * ROW_BYTES;
#pragma unroll
        for (int slab = 0; slab < STORE_SLABS; slab++) {
            const float *d = acc[i] + piece * (PIECE / 2) + slab * (SLAB_COLS / 2);
            if (OUT_FP32)
                stage_32(to, d, slab);
            else
                stage_16(to, d, slab, rows->weight[i]);
        }
    }
}

/* dW's output is most of dW's traffic, and is not read again: with evict_first it leaves L2 before the operands do. */
INLINE u64 store_policy(const struct hopper_params *p)
{
    return p->flags & FLAG_STORE_FIRST ? policy_evict_first() : policy_normal();
}

INLINE void send_sums(const struct hopper_params *p, const struct tile *t, u32 buffer, int c, int r)
{
    const int slab = c / SLAB_COLS, add = (p->flags & FLAG_ACCUMULATE) != 0;
    if (STORE_SLABS > 1 && add)
        add_4d(&p->out_wide, buffer, 0, slab, r, t->expert);
    else if (STORE_SLABS > 1)
        store_4d_hinted(&p->out_wide, buffer, 0, slab, r, t->expert, store_policy(p));
    else if (add)
        add_3d(&p->out, buffer, c, r, t->expert);
    else
        store_3d(&p->out, buffer, c, r, t->expert, store_policy(p));
}

/* Stores a piece by TMA; called by a single thread: of the consumer, or of the sender (sender.cu). */
INLINE void send_piece(const struct hopper_params *p, const struct tile *t, u32 buffer, int c, int r)
{
    if (MODE == MODE_DW)
        send_sums(p, t, buffer, c, r);
    else
        store_4d(&p->out, buffer, c, RAGGED - t->rows + r, t->first + t->rows, RAGGED);
#if FP8
    if (SENDS)
        return; /* the sender commits the pieces of a round together */
#endif
    stores_commit();
}

INLINE void add_16(u32 v[4], const char *to)
{
    u32 old[4];
    global_load16(old, to);
#pragma unroll
    for (int i = 0; i < 4; i++)
        v[i] = float_bits(bits_float(v[i]) + bits_float(old[i]));
}

#if FP8
#define READ_AHEAD (MMAS > 1 ? 2 : 4) /* as registers allow */
#endif

/* Writes the rows of this warp, four rows at a time. */
INLINE void write_piece(const struct hopper_params *p, const struct tile *t, u32 buffer, int c,
                        const struct rows *rows)
{
    const int warp = (THREAD >> 5) & 3, chunk = LANE & 7;
    const int column = c + chunk * (16 / OUT_SIZE);
    char *out = p->out_data + (i64)column * OUT_SIZE;
    if (MODE == MODE_DW)
        out += t->expert * p->out_expert;
#pragma unroll
    for (int i = 0; i < WRITTEN; i++) {
#if FP8
        u32 old[READ_AHEAD][4];
        const int adds = OUT_FP32 && (p->flags & FLAG_ACCUMULATE);
#endif
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int row = j * 4 + (LANE >> 3);
            const int to = shuffle_from(rows->to[i], row);
            u32 v[4];
#if FP8
            /* Reads of several rows before the first write, so that a warp waits for memory once. */
#pragma unroll
            for (int n = 0; n < READ_AHEAD && OUT_FP32 && j % READ_AHEAD == 0; n++) {
                const int from = shuffle_from(rows->to[i], row + n * 4);
                if (adds && from >= 0 && column < p->tile_cols)
                    global_load16(old[n], out + from * p->out_stride);
            }
#endif
            shared_load16(v, buffer + i * SLAB_BYTES + (warp * 16 + row) * ROW_BYTES +
                             ((chunk ^ (row & 7)) << 4));
            if (to >= 0 && column < p->tile_cols) {
                char *at = out + to * p->out_stride;
#if FP8
#pragma unroll
                for (int k = 0; k < 4 && OUT_FP32; k++)
                    v[k] = adds ? float_bits(bits_float(v[k]) + bits_float(old[j % READ_AHEAD][k])) : v[k];
#else
                if (OUT_FP32 && (p->flags & FLAG_ACCUMULATE))
                    add_16(v, at);
#endif
                if (MODE == MODE_DW)
                    global_store16_hinted(at, v, store_policy(p));
                else
                    global_store16(at, v);
            }
        }
    }
}

#if FP8
#define ROW_LANES (PIECE / 8)           /* lanes that write a row of a piece, 16 bytes each */
#define LANE_ROWS (16 * ROW_LANES / 32) /* rows of the warp's 16 that a lane writes a part of */

/* Where this lane writes 16 bytes of each piece, for each of its rows: the place in the tile's first piece. Found once
 * for all pieces of 64 rows. */
struct row_places {
    char *at[LANE_ROWS];
    u32 exist; /* bit j: row j exists */
};

/* The jth row of this lane. */
INLINE int lane_row(int j)
{
    return j * (32 / ROW_LANES) + LANE / ROW_LANES;
}

INLINE struct row_places find_places(const struct hopper_params *p, const struct tile *t, const struct rows *rows)
{
    struct row_places w;
    char *out = p->out_data + (i64)(t->c0 + LANE % ROW_LANES * 8) * 2;
    w.exist = 0;
#pragma unroll
    for (int j = 0; j < LANE_ROWS; j++) {
        const int to = shuffle_from(rows->to[0], lane_row(j));
        w.at[j] = out + to * p->out_stride;
        w.exist |= (u32)(to >= 0) << j;
    }
    return w;
}

INLINE void write_places(const struct hopper_params *p, const struct row_places *w, u32 buffer, int c, int piece)
{
    const int warp = (THREAD >> 5) & 3, chunk = LANE % ROW_LANES;
    const u32 exist = c + chunk * 8 < p->tile_cols ? w->exist : 0;
    u32 v[LANE_ROWS][4];
#pragma unroll
    for (int j = 0; j < LANE_ROWS; j++) {
        const int row = lane_row(j);
        shared_load16(v[j], buffer + (warp * 16 + row) * ROW_BYTES + ((chunk ^ (row & 7)) << 4));
    }
#pragma unroll
    for (int j = 0; j < LANE_ROWS; j++)
        if (exist >> j & 1)
            global_store16(w->at[j] + piece * ROW_BYTES, v[j]);
}
#endif

#if FP8
/* The staging buffers hold a consumer's part of a tile: two barriers for all pieces. */
#define AT_ONCE (TMA_STORE && MODE != MODE_DW && MMAS == 1 && STAGING_BUFFERS == PIECES)

INLINE void store_pieces(const struct hopper_params *p, const struct tile *t, int r0, int consumer, u32 staging,
                         float acc[WRITTEN][ACCUMULATORS], const struct rows *rows)
{
    if (first_warp() && elected())
        STORES_WAIT_READ(0);
    group_barrier(BARRIER_WRITE + consumer, 128);
#pragma unroll
    for (int piece = 0; piece < PIECES; piece++)
        stage_piece(staging + piece * BUFFER_BYTES, acc, piece, rows);
    async_fence();
    group_barrier(BARRIER_WRITE + consumer, 128);
#pragma unroll
    for (int piece = 0; piece < PIECES; piece++)
        if (t->c0 + piece * PIECE < p->tile_cols && first_warp() && elected())
            send_piece(p, t, staging + piece * BUFFER_BYTES, t->c0 + piece * PIECE, r0);
}
#endif

/* Writes a consumer's part of a tile. `ring` counts this consumer's pieces modulo the staging buffers. */
INLINE void store_tile(const struct hopper_params *p, const struct tile *t, int r0, int consumer,
                       u32 shared, float acc[WRITTEN][ACCUMULATORS], const struct rows *rows,
                       u32 *ring)
{
    const u32 staging = shared + STAGING_AT + consumer * STAGING_BUFFERS * BUFFER_BYTES;
    if (r0 >= output_rows(p, t))
        return;
#if FP8
    if (output_added(p)) {
        add_to_output(p, t, r0, consumer, shared, acc[0], ring);
        return;
    }
#endif
#if FP8
    if (AT_ONCE) {
        store_pieces(p, t, r0, consumer, staging, acc, rows);
        return;
    }
    struct row_places places;
    if (!TMA_STORE && MODE != MODE_DW)
        places = find_places(p, t, rows);
#endif
#pragma unroll
    for (int piece = 0; piece < PIECES; piece++) {
        const int c = t->c0 + piece * PIECE;
        if (c >= p->tile_cols)
            break;
        const u32 buffer = staging + *ring * BUFFER_BYTES;
        if (TMA_STORE) {
            if (first_warp() && elected())
                STORES_WAIT_READ(STAGING_BUFFERS - 1);
            group_barrier(BARRIER_WRITE + consumer, 128);
            stage_piece(buffer, acc, piece, rows);
            async_fence();
            group_barrier(BARRIER_WRITE + consumer, 128);
            if (first_warp() && elected())
                send_piece(p, t, buffer, c, r0);
        } else {
            stage_piece(buffer, acc, piece, rows);
            warp_barrier();
#if FP8
            if (MODE != MODE_DW)
                write_places(p, &places, buffer, c, piece);
            else
                write_piece(p, t, buffer, c, rows);
#else
            write_piece(p, t, buffer, c, rows);
#endif
            warp_barrier();
        }
        *ring = *ring + 1 == STAGING_BUFFERS ? 0 : *ring + 1;
    }
}
#endif
