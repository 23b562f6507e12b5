/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ---- quantise, whole rows: a scale for each row ---------------------------------------------------
 *
 * A row has LANES threads. Each thread loads up to PIECES pieces of 8 columns at once and keeps them in registers. Where
 * a row is longer, the threads read the rest twice: for the maximum, and again for the bytes. The second read finds
 * most of the row in L2.
 */
#if MODE == MODE_WHOLE_ROWS

/* The maximum over the row's threads. All threads of the block must call the function. */
INLINE u32 max_of_lanes(u32 own)
{
#pragma unroll
    for (int by = 16; by > 0; by /= 2)
        own = larger(own, shuffle_xor(own, by));
#if LANES > 32
    u32 *partial = (u32 *)shared_memory;
    if (THREAD % 32 == 0)
        partial[THREAD / 32] = own;
    barrier();
#pragma unroll
    for (int w = 0; w < LANES / 32; w++)
        own = larger(own, partial[THREAD / LANES * (LANES / 32) + w]);
    barrier();
#endif
    return own;
}

/* The maximum of the thread's pieces: `held`, and those of the row behind them. */
INLINE u32 max_of_pieces(const struct words held[PIECES], const char *x, int pieces, int finite)
{
    u32 own = 0;
#pragma unroll
    for (int i = 0; i < PIECES; i++)
        own = larger(own, max_of_words(&held[i], finite));
    for (int at = THREAD % LANES + PIECES * LANES; at < pieces; at += LANES) {
        const struct words v = read16(x + (i64)at * 16);
        own = larger(own, max_of_words(&v, finite));
    }
    return own;
}

INLINE void store_piece(char *q, int at, const struct words *v, float inverse)
{
    write8(q + at * 8, quantise_four(v->w[0], v->w[1], inverse), quantise_four(v->w[2], v->w[3], inverse));
}

KERNEL quantise_portable(PARAMS p)
{
    const int row = BLOCK * TILE_ROWS + THREAD / LANES, lane = THREAD % LANES;
    const int pieces = row < p.rows ? p.k / 8 : 0;
    const char *x = pieces ? p.x + source_row(&p, row) * p.x_stride : p.x;
    struct words held[PIECES];
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        held[i].w[0] = held[i].w[1] = held[i].w[2] = held[i].w[3] = 0;
        if (lane + i * LANES < pieces)
            held[i] = read16(x + (i64)(lane + i * LANES) * 16);
    }
    u32 amax = max_of_lanes(max_of_pieces(held, x, pieces, 0));
    if (barrier_any(amax >= INFINITE))
        amax = max_of_lanes(max_of_pieces(held, x, pieces, 1));
    const float scale = scale_of(amax, p.eps), inverse = quotient(1.0f, scale);
    if (lane == 0 && pieces)
        p.scales[row * p.scales_row] = scale;
    char *q = p.q + row * p.q_stride;
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        if (lane + i * LANES < pieces)
            store_piece(q, lane + i * LANES, &held[i], inverse);
    }
    for (int at = lane + PIECES * LANES; at < pieces; at += LANES) {
        const struct words v = read16(x + (i64)at * 16);
        store_piece(q, at, &v, inverse);
    }
}
#endif
