/* SPDX-License-Identifier: Apache-2.0 */
/* ---- quantise, columns: the side that turns columns into rows ---------------------------------- */
#if COLUMN_SIDE
#define INVERSE ((float *)(shared_memory + TURNED_BYTES))
#define PARTIAL (shared_memory + TURNED_BYTES + INVERSE_BYTES)

/* The maxima of a thread's eight columns over its own rows. */
INLINE struct words max_of_columns(const struct words v[RPT], int finite)
{
    struct words r = {{0, 0, 0, 0}};
#pragma unroll
    for (int i = 0; i < RPT; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++)
            r.w[j] = max_pairs(r.w[j], sizes(v[i].w[j], finite));
    }
    return r;
}

INLINE u32 max_of_pairs(const struct words *v)
{
    return larger_of_pair(max_pairs(max_pairs(v->w[0], v->w[1]), max_pairs(v->w[2], v->w[3])));
}

/* Writes the maxima of the warp's rows: for each column, or in mode weights for all columns in one word. Returns true if
 * this thread's values have an infinity. */
INLINE int put_warp_maxima(const struct words v[RPT], int finite)
{
    struct words r = max_of_columns(v, finite);
    const int infinite = max_of_pairs(&r) >= INFINITE;
#if MODE == MODE_WEIGHTS
    u32 most = max_of_pairs(&r);
#pragma unroll
    for (int by = 16; by > 0; by /= 2)
        most = larger(most, shuffle_xor(most, by));
    if (THREAD % 32 == 0)
        ((u32 *)PARTIAL)[THREAD / 32] = most;
#else
#pragma unroll
    for (int j = 0; j < 4; j++)
        r.w[j] = max_pairs(r.w[j], shuffle_xor(r.w[j], LANES));
    if (THREAD % 32 < LANES)
        *(struct words *)(PARTIAL + (THREAD / 32 * SIDE + first_column()) * 2) = r;
#endif
    return infinite;
}

/* After this, PARTIAL has the maxima over finite values. */
INLINE void put_maxima(const struct words v[RPT])
{
    if (barrier_any(put_warp_maxima(v, 0))) {
        put_warp_maxima(v, 1);
        barrier();
    }
}

/* The scale of each column, by a thread for each. */
INLINE void put_column_scales(const struct quantise_params *p, const struct tile *t)
{
    for (int c = THREAD; c < SIDE; c += THREADS) {
        u32 amax = 0;
        for (int w = 0; w < WARPS; w++)
            amax = larger(amax, ((const u16 *)PARTIAL)[w * SIDE + c]);
        const float scale = scale_of(amax, p->eps);
        INVERSE[c] = quotient(1.0f, scale);
        if (t->column + c < p->k)
            p->scales_t[t->at / SIDE * p->scales_t_stride + t->column + c] = scale;
    }
}

INLINE float weight_scale(const struct quantise_params *p, const struct tile *t)
{
    u32 amax = 0;
    for (int w = 0; w < WARPS; w++)
        amax = larger(amax, ((const u32 *)PARTIAL)[w]);
    const float scale = scale_of(amax, p->eps);
    const int row = t->expert * (((int)p->padded + SIDE - 1) / SIDE) + (int)(t->at / SIDE);
    if (THREAD == 0)
        p->scales[row * p->scales_row + t->column / SIDE * p->scales_block] = scale;
    return scale;
}

/* The place of four rows of a column of the turned tile. Pieces of 16 bytes change places with the column's group of
 * eight, so that the lanes of a warp hit different banks. */
INLINE char *turned_piece(int column, int piece)
{
    return shared_memory + column * SIDE + ((piece ^ (column / 8 % 8)) * 16);
}

/* Four rows of a column as four bytes. */
INLINE u32 column_of_four(const struct words v[4], int column, float inverse)
{
    float x[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const u32 pair = v[i].w[column / 2];
        x[i] = product(column % 2 ? high_float(pair) : low_float(pair), inverse);
    }
    return to_e4m3_pair(x[0], x[1]) | to_e4m3_pair(x[2], x[3]) << 16;
}

/* Turns this thread's values; inverse: of its eight columns. */
INLINE void turn_values(const struct words v[RPT], const float inverse[8])
{
#pragma unroll
    for (int i = 0; i < RPT; i += 4) {
        const int row = first_row() + i;
#pragma unroll
        for (int j = 0; j < 8; j++)
            *(u32 *)(turned_piece(first_column() + j, row / 16) + row % 16) = column_of_four(v + i, j, inverse[j]);
    }
}

/* Stores the turned tile: eight threads for each column. q_t has `length` bytes for the tile's rows. */
INLINE void store_turned(const struct quantise_params *p, const struct tile *t, int length)
{
    char *to = p->q_t + ((i64)t->expert * p->k + t->column) * p->q_t_stride + t->at;
#pragma unroll
    for (int i = THREAD; i < SIDE * 8; i += THREADS) {
        const int column = i / 8, piece = i % 8;
        if (t->column + column < p->k && piece * 16 < length)
            write16(to + column * p->q_t_stride + piece * 16, *(const struct words *)turned_piece(column, piece));
    }
}
#endif
