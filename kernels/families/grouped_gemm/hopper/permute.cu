/* SPDX-License-Identifier: Apache-2.0 */
/* ---- permute: the other way to gather ------------------------------------------------------------------ */
/*
 * A kernel of its own, run before the main one: copies the rows that would be gathered into the
 * workspace, in expert order, so that TMA can load them. It reads and writes everything once, but
 * the main kernel's tiles, which read it N / TILE_C times, are faster for it. A warp copies a row, the last
 * rows first: those that the first tiles want are then in L2 still.
 */
#if PERMUTE_COPY
#define PERMUTE_THREADS 256
#define PERMUTE_AHEAD 4 /* loads in flight per thread */

struct permute_params { /* as in hopper_launch.c */
    const char *from;
    char *to;
    const void *gather;
    i64 from_stride;          /* bytes between rows; `to` is dense */
    int rows;
    int chunks;               /* of 16 bytes, in a row */
    u32 flags;                /* FLAG_GATHER_64 */
    u32 row_mul, row_shift;   /* row = g * mul >> shift */
    u32 reserved;
};

INLINE i64 permute_row(const struct permute_params *p, int i)
{
    const int g = p->flags & FLAG_GATHER_64 ? (int)((const i64 *)p->gather)[i]
                                            : ((const int *)p->gather)[i];
    return (i64)((u64)(u32)g * p->row_mul >> p->row_shift);
}

INLINE void permute_copy(const char *from, char *to, int chunks)
{
#pragma unroll 1
    for (int c = LANE; c < chunks; c += 32 * PERMUTE_AHEAD) {
        u32 v[PERMUTE_AHEAD][4];
#pragma unroll
        for (int i = 0; i < PERMUTE_AHEAD; i++)
            if (c + i * 32 < chunks)
                global_load16(v[i], from + (i64)(c + i * 32) * 16);
#pragma unroll
        for (int i = 0; i < PERMUTE_AHEAD; i++)
            if (c + i * 32 < chunks)
                global_store16(to + (i64)(c + i * 32) * 16, v[i]);
    }
}

KERNEL_OF(PERMUTE_THREADS, 1) grouped_gemm_permute(PARAMS(permute_params) p)
{
    const int warps = PERMUTE_THREADS / 32 * BLOCKS;
    for (int i = p.rows - 1 - BLOCK * (PERMUTE_THREADS / 32) - (THREAD >> 5); i >= 0; i -= warps)
        permute_copy(p.from + permute_row(&p, i) * p.from_stride, p.to + (i64)i * p.chunks * 16,
                     p.chunks);
}
#endif
