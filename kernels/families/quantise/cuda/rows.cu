/* SPDX-License-Identifier: Apache-2.0 */
/* ---- quantise, rows: the side that keeps the rows of x ----------------------------------------- */
#if ROW_SIDE && MODE != MODE_WHOLE_ROWS

INLINE void store_row(const struct quantise_params *p, const struct tile *t, int i, const struct words *v,
                      float inverse)
{
    const int row = first_row() + i, column = t->column + first_column();
    if (row < t->rows && column < p->k)
        write8(p->q + (t->first + row) * p->q_stride + column, quantise_four(v->w[0], v->w[1], inverse),
               quantise_four(v->w[2], v->w[3], inverse));
}

#if MODE != MODE_WEIGHTS
/* The maxima of a thread's rows over the row's sixteen lanes, two in a word. */
INLINE void max_of_rows(const struct words v[RPT], int finite, u32 amax[PAIRS])
{
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        amax[i] = max_of_words(&v[2 * i], finite);
        if (2 * i + 1 < RPT)
            amax[i] |= max_of_words(&v[2 * i + 1 < RPT ? 2 * i + 1 : 0], finite) << 16;
#pragma unroll
        for (int by = LANES / 2; by > 0; by /= 2)
            amax[i] = max_pairs(amax[i], shuffle_xor(amax[i], by));
    }
}

/* True if a row of this warp has an infinity. */
INLINE int warp_has_infinity(const u32 amax[PAIRS])
{
    u32 most = 0;
#pragma unroll
    for (int i = 0; i < PAIRS; i++)
        most = larger(most, larger_of_pair(amax[i]));
    return count_lanes(most >= INFINITE) > 0;
}

/* Lane i of a row's sixteen computes and stores the scale of the thread's row i. */
INLINE float own_scale(const struct quantise_params *p, const struct tile *t, const u32 amax[PAIRS])
{
    const int lane = THREAD % LANES, row = first_row() + lane;
    u32 own = 0;
#pragma unroll
    for (int i = 0; i < RPT; i++)
        own = lane == i ? amax[i / 2] >> (i % 2 * 16) & 0xffffu : own;
    const float scale = scale_of(own, p->eps);
    if (lane < RPT && row < t->rows)
        p->scales[(t->first + row) * p->scales_row + t->column / SIDE * p->scales_block] = scale;
    return scale;
}

INLINE void quantise_rows(const struct quantise_params *p, const struct tile *t, const struct words v[RPT])
{
    u32 amax[PAIRS];
    max_of_rows(v, 0, amax);
    if (warp_has_infinity(amax))
        max_of_rows(v, 1, amax);
    const float inverse = quotient(1.0f, own_scale(p, t, amax));
#pragma unroll
    for (int i = 0; i < RPT; i++) {
        const u32 bits = (u32)shuffle_from((int)float_to_bits(inverse), THREAD % 32 / LANES * LANES + i);
        store_row(p, t, i, &v[i], bits_to_float(bits));
    }
}
#endif
#endif
