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

/* acc += part * scales, for the part that ends with block `block` of the reduction; clears the part. Without
 * promotion part is acc, which is multiplied. The numbers of A and B were 2^-8 of their values each. */
INLINE void promote(const struct portable_params *p, const struct tile *t, int block,
                    float part[FR][FC][4], float acc[FR][FC][4], int warp_r, int warp_c)
{
    const int lane = THREAD & 31, r = t->r0 + warp_r * WR + lane / 4;
    const int c = t->c0 + warp_c * WC + (lane & 3) * 2;
    const int b = PROMOTES ? (t->column + block * TD) / (PROMOTES ? SCALE_SUM : 1)
                           : MODE == MODE_DW ? t->expert : 0;
    float left[FR * 2];
#pragma unroll
    for (int i = 0; i < FR * 2; i++)
        left[i] = a_scale(p, t, r + i * 8, b);
#pragma unroll
    for (int j = 0; j < FC; j++) {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const float right = b_scale(p, t, c + j * 8 + k, b);
#pragma unroll
            for (int i = 0; i < FR * 2; i++) {
                float *from = &part[i / 2][j][i % 2 * 2 + k], *to = &acc[i / 2][j][i % 2 * 2 + k];
                const float sum = left[i] * right * (*from * 65536.0f);
                *to = PROMOTES ? *to + sum : sum;
                if (PROMOTES)
                    *from = 0.0f;
            }
        }
    }
}
#endif
