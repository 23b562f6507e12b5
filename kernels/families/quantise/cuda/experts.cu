/* SPDX-License-Identifier: Apache-2.0 */
/* ---- quantise, experts: the rows of a tile ---------------------------------------------------- */

INLINE int least(int a, int b)
{
    return a < b ? a : b;
}

INLINE int list_at(const void *list, int i, u32 wide)
{
    return wide ? (int)((const i64 *)list)[i] : ((const int *)list)[i];
}

/* The rows of expert e. Cut to 0..most, so that wrong sizes reach no memory outside the tensors. The difference is
 * unsigned, because that of wrong ends may overflow. */
INLINE int rows_of_expert(const struct quantise_params *p, int e, int most)
{
    if (e >= p->experts)
        return 0;
    const u32 wide = p->flags & FLAG_M_SIZES_64, size = (u32)list_at(p->m_sizes, e, wide);
    const u32 before = p->flags & FLAG_ENDS && e > 0 ? (u32)list_at(p->m_sizes, e - 1, wide) : 0;
    const int rows = (int)(size - before);
    return rows < 0 ? 0 : least(rows, most);
}

/* The sum of v over the lanes up to this one, cut at `most`. */
INLINE int scan_lanes(int v, int most)
{
    for (int by = 1; by < 32; by *= 2) {
        const int below = shuffle_up(v, by);
        v += THREAD % 32 >= by ? least(below, most - v) : 0;
    }
    return v;
}

#define SUM_MOST (1 << 26) /* 32 sizes below it have no sum that overflows */

/* Token block `number` of the experts' blocks of 128 rows. All warps do the same work: 32 experts at a time, and a scan
 * only for the experts that the block lies in, or whose sizes must be cut. */
INLINE void find_token_block(const struct quantise_params *p, int number, struct tile *t)
{
    int block = 0, row = 0;
    t->rows = 0;
    t->at = (i64)number * SIDE;
    if (!p->m_sizes) {
        t->first = number * SIDE;
        t->rows = least(SIDE, p->rows - t->first);
        return;
    }
#pragma unroll 1
    for (int e = 0; e < p->experts; e += 32) {
        const int most = p->rows - row;
        int rows = rows_of_expert(p, e + THREAD % 32, most), sum = sum_lanes(rows);
        if (most >= SUM_MOST || sum > most) {
            const int cut = scan_lanes(rows, most), before = shuffle_up(cut, 1);
            rows = cut - (THREAD % 32 ? before : 0);
            sum = shuffle_from(cut, 31);
        }
        const int blocks = (rows + SIDE - 1) / SIDE, all = sum_lanes(blocks);
        if (number < block + all) {
            const int blocks_to = block + scan_lanes(blocks, all), rows_to = scan_lanes(rows, most);
            const int lane = count_lanes(number >= blocks_to); /* experts that end before */
            const int own = shuffle_from(number - blocks_to + blocks, lane);
            const int start = row + shuffle_from(rows_to - rows, lane), end = row + shuffle_from(rows_to, lane);
            t->first = start + own * SIDE;
            t->rows = least(SIDE, end - t->first);
            return;
        }
        block += all;
        row += sum;
    }
}

/* Tile `id`: `group` row tiles come before the next 128 columns. */
INLINE struct tile find_tile(const struct quantise_params *p, int id)
{
    struct tile t;
    const int in_group = p->group * p->column_tiles, group = id / in_group, first = group * p->group;
    const int high = least(p->group, p->row_tiles - first), rest = id - group * in_group;
    const int number = first + rest % high;
    t.column = rest / high * SIDE;
    t.expert = 0;
#if !COLUMN_SIDE
    t.first = number * TILE_ROWS;
    t.rows = least(TILE_ROWS, p->rows - t.first);
    t.at = 0;
#elif MODE == MODE_WEIGHTS
    const int n = (int)p->padded, tiles = (n + SIDE - 1) / SIDE;
    t.expert = number / tiles;
    t.at = number % tiles * SIDE;
    t.first = t.expert * n + (int)t.at;
    t.rows = least(SIDE, n - (int)t.at);
#else
    find_token_block(p, number, &t);
    if (t.at + SIDE > p->padded)
        t.rows = 0;
#endif
    return t;
}

/* The row of x that a routed row reads. */
INLINE i64 source_row(const struct quantise_params *p, int row)
{
#if PERMUTE_X
    const u32 g = (u32)list_at(p->gather, row, p->flags & FLAG_GATHER_64);
    return (i64)((u64)g * p->topk_mul >> p->topk_shift);
#else
    return row;
#endif
}

/* This thread's rows begin at row first_row() of the tile, its columns at column first_column(). */
INLINE int first_row(void)
{
    return THREAD / LANES * RPT;
}

INLINE int first_column(void)
{
    return THREAD % LANES * 8;
}

/* Loads this thread's part of a tile; zeros outside of x. */
INLINE void load_tile(const struct quantise_params *p, const struct tile *t, struct words v[RPT])
{
    const int column = t->column + first_column();
#pragma unroll
    for (int i = 0; i < RPT; i++) {
        const int row = first_row() + i;
        v[i].w[0] = v[i].w[1] = v[i].w[2] = v[i].w[3] = 0;
        if (row < t->rows && column < p->k)
            v[i] = read16(p->x + source_row(p, t->first + row) * p->x_stride + (i64)column * 2);
    }
}
