/* SPDX-License-Identifier: Apache-2.0 */
/* ---- portable, experts: their rows, and tiles ------------------------------------------------ */

INLINE int m_sizes_at(const struct portable_params *p, int e)
{
    if (p->flags & FLAG_M_SIZES_64)
        return (int)((const i64 *)p->m_sizes)[e];
    return ((const int *)p->m_sizes)[e];
}

INLINE int expert_size(const struct portable_params *p, int e)
{
    if (!p->m_sizes)
        return p->rows;
    return m_sizes_at(p, e) - (p->flags & FLAG_ENDS && e ? m_sizes_at(p, e - 1) : 0);
}

/* start[e]: first row of expert e; start[experts]: the end of the last. ends[e]: number of tiles along r of experts
 * 0..e; in dW of scaled operands, the end of expert e's columns, in units of COLUMN_ALIGN. The first warp calls this
 * function. Sizes are cut at `rows`, so that wrong sizes cannot reach memory outside
 * the tensors. */
INLINE void scan_experts(const struct portable_params *p, int *start, int *ends)
{
    const int lane = THREAD;
    int rows = 0, tiles = 0;
    for (int base = 0; base < p->experts; base += 32) {
        const int e = base + lane;
        const int m = e < p->experts ? expert_size(p, e) : 0;
        u32 sum = m < 0 ? 0 : m; /* the next line cuts it to at most 2^30: a sum of two fits */
        sum = sum < (u32)p->rows ? sum : (u32)p->rows;
        for (int by = 1; by < 32; by <<= 1) {
            const u32 before = (u32)shuffle_up((int)sum, by);
            if (lane >= by)
                sum = sum + before < (u32)p->rows ? sum + before : (u32)p->rows;
        }
        const int last = rows + sum < (u32)p->rows ? (int)(rows + sum) : p->rows;
        int first = shuffle_up(last, 1);
        first = lane ? first : rows;
        const int unit = SCALED && MODE == MODE_DW ? COLUMN_ALIGN : TR;
        int count = (last - first + unit - 1) / unit;
        for (int by = 1; by < 32; by <<= 1) {
            const int before = shuffle_up(count, by);
            if (lane >= by)
                count += before;
        }
        if (e < p->experts) {
            start[e] = first;
            start[e + 1] = last;
            ends[e] = tiles + count;
        }
        rows = shuffle_from(last, 31);
        tiles += shuffle_from(count, 31);
    }
}

/* The expert of the q-th row of tiles: the number of entries of ends[] that are at most q. */
INLINE int find_expert(const int *ends, int experts, int q)
{
    const int lane = THREAD & 31;
    int base = 0;
    if (experts > 32) {
        const int last = lane * 32 + 31;
        base = 32 * count_lanes(last < experts && ends[last < experts ? last : 0] <= q);
    }
    const int e = base + lane;
    return base + count_lanes(e < experts && ends[e < experts ? e : 0] <= q);
}

struct tile {
    int expert;
    int r0, c0; /* the tile's first r and c, within the expert */
    int first;  /* first row of the expert */
    int rows;   /* rows of the expert */
    int column; /* dW of scaled operands: the column of the expert's first row */
};

INLINE struct tile locate_tile(const struct portable_params *p, const int *start, const int *ends,
                               int id)
{
    int col_tiles = (p->tile_cols + TC - 1) / TC, group = p->group;
    struct tile t;
    int row_tiles;
    /* hides the divisors from the compiler, which would keep their reciprocals in registers through the main loop */
    HIDE32(col_tiles);
    HIDE32(group);
#if MODE == MODE_DW
    row_tiles = (p->tile_rows + TR - 1) / TR;
    t.expert = id / (row_tiles * col_tiles);
    id -= t.expert * row_tiles * col_tiles;
#else
    t.expert = find_expert(ends, p->experts, id / col_tiles);
    const int before = t.expert ? ends[t.expert - 1] : 0;
    row_tiles = ends[t.expert] - before;
    id -= before * col_tiles;
#endif
    const int band = id / (group * col_tiles);
    const int left = row_tiles - band * group;
    const int height = left < group ? left : group;
    id -= band * group * col_tiles;
    t.c0 = id / height * TC;
    t.r0 = (band * group + id % height) * TR;
    t.first = start[t.expert];
    t.rows = start[t.expert + 1] - t.first;
    t.column = SCALED && MODE == MODE_DW && t.expert ? ends[t.expert - 1] * COLUMN_ALIGN : 0;
    return t;
}

/* Number of blocks of a tile's reduction. In dW an expert without rows has one block, of zeros. */
INLINE int tile_blocks(const struct portable_params *p, const int *start, int id)
{
#if MODE == MODE_DW
    int tiles = (p->tile_rows + TR - 1) / TR * ((p->tile_cols + TC - 1) / TC);
    HIDE32(tiles);
    const int expert = id / tiles, rows = start[expert + 1] - start[expert];
    return rows > TD ? (rows + TD - 1) / TD : 1;
#else
    (void)start;
    (void)id;
    return (p->depth + TD - 1) / TD;
#endif
}
