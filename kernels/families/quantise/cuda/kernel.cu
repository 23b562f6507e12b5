/* SPDX-License-Identifier: Apache-2.0 */
/* ---- quantise, the kernel ----------------------------------------------------------------------- */

#if MODE != MODE_WHOLE_ROWS
/* Makes the compiler compute anew what it has computed from the values. It would otherwise keep each value as a float,
 * or as a byte, from one side to the other, and spill registers. */
INLINE void forget_results(struct words v[RPT])
{
#pragma unroll
    for (int i = 0; i < RPT; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++)
            HIDE32(v[i].w[j]);
    }
}

#if MODE == MODE_ROWS
INLINE void quantise_tile(const struct quantise_params *p, const struct tile *t, struct words v[RPT])
{
    quantise_rows(p, t, v);
}
#elif MODE == MODE_WEIGHTS
INLINE void quantise_tile(const struct quantise_params *p, const struct tile *t, struct words v[RPT])
{
    float inverse[8];
    put_maxima(v);
    inverse[0] = quotient(1.0f, weight_scale(p, t));
#pragma unroll
    for (int j = 1; j < 8; j++)
        inverse[j] = inverse[0];
    turn_values(v, inverse);
    forget_results(v);
#pragma unroll
    for (int i = 0; i < RPT; i++)
        store_row(p, t, i, &v[i], inverse[0]);
    barrier();
    store_turned(p, t, t->rows);
}
#else
INLINE void quantise_tile(const struct quantise_params *p, const struct tile *t, struct words v[RPT])
{
    put_maxima(v);
    put_column_scales(p, t);
#if MODE == MODE_BOTH
    quantise_rows(p, t, v);
    forget_results(v);
#endif
    barrier();
    turn_values(v, INVERSE + first_column());
    barrier();
    store_turned(p, t, SIDE);
}
#endif

KERNEL quantise_portable(PARAMS p)
{
    const int tiles = p.row_tiles * p.column_tiles;
    struct words now[RPT];
    struct tile t = find_tile(&p, BLOCK);
    load_tile(&p, &t, now);
#if PREFETCH
#pragma unroll 1
    for (int id = BLOCK; id < tiles; id += BLOCKS) {
        struct words next[RPT];
        struct tile after = t;
        if (id + BLOCKS < tiles) {
            after = find_tile(&p, id + BLOCKS);
            load_tile(&p, &after, next);
        }
        if (t.rows > 0)
            quantise_tile(&p, &t, now); /* its barriers also separate it from the next tile */
        t = after;
#pragma unroll
        for (int i = 0; i < RPT; i++)
            now[i] = next[i];
    }
#else
    if (BLOCK < tiles && t.rows > 0)
        quantise_tile(&p, &t, now);
#endif
}
#endif
