/* SPDX-License-Identifier: Apache-2.0 */
/* ---- portable, copies: from global to shared memory ------------------------------------------ */

/* Byte offset in shared memory of a chunk (16 bytes) of a tile whose rows have `chunks` chunks. */
INLINE int chunk_at(int row, int chunk, int chunks)
{
    const int rows_per_line = chunks < 8 ? 8 / chunks : 1; /* a line: 128 bytes, one word of each bank */
    const int mask = chunks < 8 ? chunks - 1 : 7;
    return (row * chunks + (chunk ^ (row / rows_per_line & mask))) * 16;
}

INLINE int gather_index(const struct portable_params *p, int i)
{
    if (p->flags & FLAG_GATHER_64)
        return (int)((const i64 *)p->gather)[i];
    return ((const int *)p->gather)[i];
}

INLINE int token_of(const struct portable_params *p, int g)
{
    return (int)((u64)(u32)g * p->topk_mul >> p->topk_shift);
}

/* Given the offset `at` of a chunk, returns the offset of the same chunk `passed` rows below. `passed` is a multiple of
 * a power of two above the first row, so the swizzle of the sum of both rows is the xor of their swizzles. */
INLINE int chunk_below(int at, int passed, int chunks)
{
    const int rows_per_line = chunks < 8 ? 8 / chunks : 1, mask = chunks < 8 ? chunks - 1 : 7;
    return (at ^ (passed / rows_per_line & mask) * 16) + passed * chunks * 16;
}

/* A thread copies chunk THREAD % chunks of rows THREAD / chunks + j * (THREADS / chunks). `from` is the begin of the
 * first of these rows, `step` the bytes to the next. `rows_left` rows of the tile exist. Other rows, and columns that
 * do not exist, become zeros. */
INLINE void copy_tile(u32 to, const char *from, i64 step, int rows_left, int column_exists,
                      int rows, int chunks)
{
    const int row = THREAD / chunks, pass = THREADS / chunks;
    int at = chunk_at(row, THREAD % chunks, chunks);
    HIDE32(at);
    HIDE64(step);
#pragma unroll
    for (int j = 0; j * pass < rows; j++) {
        const int r = row + j * pass;
        if (rows % pass == 0 || r < rows)
            copy16(to + chunk_below(at, j * pass, chunks), from,
                   column_exists && r < rows_left ? 16 : 0);
        from += step;
    }
}

/* Copies a tile whose rows lie apart: row j is row index[j] of the operand, or the token of that index. */
INLINE void copy_gathered(const struct portable_params *p, u32 to, const char *from, i64 stride,
                          const int index[], int tokens, int rows_left, int column_exists,
                          int rows, int chunks)
{
    const int row = THREAD / chunks, pass = THREADS / chunks;
    int at = chunk_at(row, THREAD % chunks, chunks);
    HIDE32(at);
#pragma unroll
    for (int j = 0; j * pass < rows; j++) {
        const int r = row + j * pass;
        const i64 source = tokens ? token_of(p, index[j]) : index[j];
        if (rows % pass == 0 || r < rows)
            copy16(to + chunk_below(at, j * pass, chunks), from + source * stride,
                   column_exists && r < rows_left ? 16 : 0);
    }
}

/* Reads ahead the indices of the rows that this thread will copy. */
INLINE void fetch_indices(const struct portable_params *p, int index[], int first, int rows_left,
                          int rows, int chunks)
{
    const int row = THREAD / chunks, pass = THREADS / chunks;
#pragma unroll
    for (int j = 0; j * pass < rows; j++) {
        const int r = row + j * pass;
        index[j] = r < rows_left ? gather_index(p, first + r) : 0;
    }
}

/* Where the copies are: a block of a tile, up to NUM_STAGES - 1 ahead of the multiplication. */
struct cursor {
    int id;         /* number of the tile; when id >= tiles, no tile is left to copy */
    /* the next block's place in the reduction and the reduction's end; in dW both count rows over all experts */
    int at, end;
    int a_left;     /* rows of a's tile that exist; a transposed: columns of a from this thread's first column on */
    int b_left;
    const char *a, *b; /* where this thread's first copy reads; a gathered row adds its offset */
    int a_index[A_COPIES], b_index[B_COPIES];
};

INLINE void cursor_indices(struct cursor *c, const struct portable_params *p)
{
    if (MODE == MODE_DW && GATHER_A)
        fetch_indices(p, c->a_index, c->at, c->end - c->at, A_ROWS, A_CHUNKS);
    if (MODE == MODE_DW && GATHER_B)
        fetch_indices(p, c->b_index, c->at, c->end - c->at, B_ROWS, B_CHUNKS);
}

INLINE void cursor_enter(struct cursor *c, const struct portable_params *p, const int *start,
                         const int *ends, int id)
{
    const int a_row = THREAD / A_CHUNKS, a_column = THREAD % A_CHUNKS * CE;
    const int b_row = THREAD / B_CHUNKS, b_column = THREAD % B_CHUNKS * CE;
    const struct tile t = locate_tile(p, start, ends, id);
    c->id = id;
    c->a = p->a + a_column * EB;
    c->b = p->b + b_column * EB;
#if MODE == MODE_DW && SCALED
    c->at = 0;
    c->end = t.rows;
    c->a_left = p->tile_rows - t.r0;
    c->b_left = p->tile_cols - t.c0;
    c->a += (i64)(t.r0 + a_row) * p->a_stride + t.column;
    c->b += (i64)(t.c0 + b_row) * p->b_stride + t.column;
#elif MODE == MODE_DW
    c->at = t.first;
    c->end = t.first + t.rows;
    c->a_left = p->tile_rows - t.r0 - a_column;
    c->b_left = p->tile_cols - t.c0 - b_column;
    c->a += (i64)t.r0 * 2;
    c->b += (i64)t.c0 * 2;
    if (!GATHER_A)
        c->a += (i64)(t.first + a_row) * p->a_stride;
    if (!GATHER_B)
        c->b += (i64)(t.first + b_row) * p->b_stride;
#else
    c->at = 0;
    c->end = p->depth;
    c->a_left = t.rows - t.r0;
    if (GATHER_A)
        fetch_indices(p, c->a_index, t.first + t.r0, c->a_left, A_ROWS, A_CHUNKS);
    else
        c->a += (i64)(t.first + t.r0 + a_row) * p->a_stride;
    c->b += t.expert * p->b_expert;
#if !B_TRANSPOSED
    c->b_left = p->tile_cols - t.c0;
    c->b += (i64)(t.c0 + b_row) * p->b_stride;
#else
    c->b_left = p->tile_cols - t.c0 - b_column;
    c->b += (i64)b_row * p->b_stride + (i64)t.c0 * 2;
#endif
#endif
    cursor_indices(c, p);
}

INLINE void cursor_next(struct cursor *c, const struct portable_params *p, const int *start,
                        const int *ends, int tiles)
{
    c->at += TD;
    if (c->at < c->end) {
        if (!A_TRANSPOSED)
            c->a += TD * EB;
        else if (!GATHER_A)
            c->a += TD * p->a_stride;
        if (!B_TRANSPOSED)
            c->b += TD * EB;
        else if (!GATHER_B)
            c->b += TD * p->b_stride;
        cursor_indices(c, p);
    } else if (c->id + BLOCKS < tiles) {
        cursor_enter(c, p, start, ends, c->id + BLOCKS);
    } else {
        c->id = tiles;
    }
}

INLINE void copy_block(const struct cursor *c, const struct portable_params *p, u32 stage)
{
    const int left = c->end - c->at;
    const int a_exists = A_TRANSPOSED ? c->a_left > 0 : THREAD % A_CHUNKS * CE < left;
    const int b_exists = B_TRANSPOSED ? c->b_left > 0 : THREAD % B_CHUNKS * CE < left;
    if (GATHER_A)
        copy_gathered(p, stage, c->a, p->a_stride, c->a_index, MODE == MODE_FORWARD,
                      A_TRANSPOSED ? left : c->a_left, a_exists, A_ROWS, A_CHUNKS);
    else
        copy_tile(stage, c->a, THREADS / A_CHUNKS * p->a_stride, A_TRANSPOSED ? left : c->a_left,
                  a_exists, A_ROWS, A_CHUNKS);
    if (GATHER_B)
        copy_gathered(p, stage + A_BYTES, c->b, p->b_stride, c->b_index, 1, left, b_exists,
                      B_ROWS, B_CHUNKS);
    else
        copy_tile(stage + A_BYTES, c->b, THREADS / B_CHUNKS * p->b_stride,
                  B_TRANSPOSED ? left : c->b_left, b_exists, B_ROWS, B_CHUNKS);
}
