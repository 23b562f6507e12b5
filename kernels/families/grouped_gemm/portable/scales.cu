/* SPDX-License-Identifier: Apache-2.0 */
/* ---- portable, scales: of scaled operands ---------------------------------------------------- */

#if SCALED
/* Row r of the tile's A: its scale in block b of the sum. Rows that do not exist have 0. */
INLINE float a_scale(const struct portable_params *p, const struct tile *t, int r, int b)
{
#if MODE == MODE_DW
    const int exists = r < p->tile_rows && t->rows > 0;
    i64 row = r;
#else
    const int exists = r < t->rows;
    i64 row = t->first + r;
    if (GATHER_A && exists)
        row = MODE == MODE_FORWARD ? token_of(p, gather_index(p, (int)row)) : gather_index(p, (int)row);
#endif
    return exists ? p->a_scale[row * p->a_scale_stride + b * p->a_scale_block] : 0.0f;
}

INLINE float b_scale(const struct portable_params *p, const struct tile *t, int c, int b)
{
    const int block = MODE == MODE_DW ? c : c / SCALE_W;
    return c < p->tile_cols && t->rows > 0 ? p->b_scale[t->expert * p->b_scale_expert + block * p->b_scale_stride +
                                         b * p->b_scale_block]
                            : 0.0f;
}

/* The scales of a thread's rows and columns in block b of the sum. */
INLINE void fetch_scales(const struct portable_params *p, const struct tile *t, int b, int warp_r,
                         int warp_c, float left[FR * 2], float right[FC][2])
{
    const int lane = THREAD & 31, r = t->r0 + warp_r * WR + lane / 4;
    const int c = t->c0 + warp_c * WC + (lane & 3) * 2;
#pragma unroll
    for (int i = 0; i < FR * 2; i++)
        left[i] = a_scale(p, t, r + i * 8, b);
#pragma unroll
    for (int j = 0; j < FC * 2; j++)
        right[j / 2][j % 2] = b_scale(p, t, c + j / 2 * 8 + j % 2, b);
}

/* Adds the part that ends with block `block` of the reduction to the tile's sums, and clears the part. */
INLINE void promote(const struct portable_params *p, const struct tile *t, int block,
                    float part[FR][FC][4], float acc[FR][FC][4], int warp_r, int warp_c)
{
    float left[FR * 2], right[FC][2];
    if (SCALE_SUM)
        fetch_scales(p, t, (t->column + block * TD) / PROMOTE_SUM, warp_r, warp_c, left, right);
#pragma unroll
    for (int i = 0; i < FR * FC * 4; i++) {
        const int row = i / (FC * 4), col = i / 4 % FC, at = i % 4;
        const float sum = part[row][col][at] * (1.0f / PART_UNIT);
        acc[row][col][at] += SCALE_SUM ? left[row * 2 + at / 2] * right[col][at % 2] * sum : sum;
        part[row][col][at] = 0.0f;
    }
}

/* Multiplies the whole sums by their scales, when they were not scaled as they were promoted. */
INLINE void scale_sums(const struct portable_params *p, const struct tile *t,
                       float acc[FR][FC][4], int warp_r, int warp_c)
{
    float left[FR * 2], right[FC][2];
    if (SCALE_SUM)
        return;
    fetch_scales(p, t, MODE == MODE_DW ? t->expert : 0, warp_r, warp_c, left, right);
#pragma unroll
    for (int i = 0; i < FR * FC * 4; i++)
        acc[i / (FC * 4)][i / 4 % FC][i % 4] *=
            left[i / (FC * 4) * 2 + i % 4 / 2] * right[i / 4 % FC][i % 2];
}
#endif
