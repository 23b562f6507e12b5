/* SPDX-License-Identifier: Apache-2.0 */
/* ---- portable, store: from registers to global memory ---------------------------------------- */

/* Each of four threads holds two columns (a word) of a row of four fragments. Afterwards thread t holds all eight
 * columns of fragment t. */
INLINE void transpose_quad(u32 v[4])
{
    const int odd = THREAD & 1, high = THREAD & 2;
    const u32 r0 = shuffle_xor(odd ? v[0] : v[1], 1);
    const u32 r1 = shuffle_xor(odd ? v[2] : v[3], 1);
    const u32 a0 = odd ? r0 : v[0], a1 = odd ? v[1] : r0;
    const u32 a2 = odd ? r1 : v[2], a3 = odd ? v[3] : r1;
    const u32 s0 = shuffle_xor(high ? a0 : a2, 2);
    const u32 s1 = shuffle_xor(high ? a1 : a3, 2);
    v[0] = high ? s0 : a0;
    v[1] = high ? s1 : a1;
    v[2] = high ? a2 : s0;
    v[3] = high ? a3 : s1;
}

/* Multiplies both rounded values of a pair by the weight w, and rounds once more: the product of two 16-bit values is
 * exact in fp32. */
INLINE u32 scale_pair(u32 pair, float w)
{
    return round_pair(widen((u16)pair) * w, widen((u16)(pair >> 16)) * w);
}

INLINE float weight_of(const struct portable_params *p, int g)
{
    if (p->flags & FLAG_WEIGHTS_FP32)
        return widen((u16)round_pair(((const float *)p->weights)[g], 0.0f));
    return widen(((const u16 *)p->weights)[g]);
}

/* Stores two adjacent columns of a row, which a thread holds. Used only in dW, for fp32 output or when the kernel adds
 * to the output. */
INLINE void store_pair(char *to, float a, float b, int add)
{
#if OUT_FP32
    if (add) {
        a += ((const float *)to)[0];
        b += ((const float *)to)[1];
    }
    store8(to, a, b);
#else
    (void)add;
    *(u32 *)to = round_pair(a + widen(((const u16 *)to)[0]), b + widen(((const u16 *)to)[1]));
#endif
}

/* Stores a row of a warp's part: the columns from c on of the output row that begins at `to`, if the row exists. */
INLINE void store_pairs(const struct portable_params *p, float acc[FC][4], int half, char *to,
                        int c, int exists, int add)
{
#pragma unroll
    for (int j = 0; j < FC; j++) {
        const int column = c + j * 8 + (THREAD & 3) * 2;
        if (exists && column < p->tile_cols)
            store_pair(to + (i64)column * (OUT_FP32 ? 4 : 2), acc[j][half * 2],
                       acc[j][half * 2 + 1], add);
    }
}

/* Stores a row of a warp's part, rounded, 16 bytes at a time. All lanes must call this function, because the lanes
 * exchange values. */
INLINE void store_chunks(const struct portable_params *p, float acc[FC][4], int half, char *to,
                         int c, int exists, float weight)
{
#pragma unroll
    for (int j = 0; j < FC; j += 4) {
        const int column = c + (j + (THREAD & 3)) * 8;
        u32 v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[i] = round_pair(acc[j + i][half * 2], acc[j + i][half * 2 + 1]);
            if (FUSE_MUL_POST)
                v[i] = scale_pair(v[i], weight);
        }
        transpose_quad(v);
        if (exists && column < p->tile_cols)
            store16(to + (i64)column * 2, v[0], v[1], v[2], v[3]);
    }
}

INLINE void store_tile(const struct portable_params *p, const struct tile *t,
                       float acc[FR][FC][4], int warp_r, int warp_c)
{
    const int lane = THREAD & 31, c = t->c0 + warp_c * WC;
    const int add = MODE == MODE_DW && p->flags & FLAG_ACCUMULATE;
#pragma unroll
    for (int i = 0; i < FR * 2; i++) {
        const int r = t->r0 + warp_r * WR + i * 8 + lane / 4;
        float weight = 1.0f;
#if MODE == MODE_DW
        const int exists = r < p->tile_rows;
        char *to = p->out + t->expert * p->out_expert + r * p->out_stride;
#else
        const int exists = r < t->rows;
        int row = t->first + r;
        if (SCATTER)
            row = exists ? gather_index(p, row) : 0;
        if (FUSE_MUL_POST)
            weight = exists ? weight_of(p, row) : 0.0f;
        char *to = p->out + row * p->out_stride;
#endif
        if (OUT_FP32 || add)
            store_pairs(p, acc[i / 2], i % 2, to, c, exists, add);
        else
            store_chunks(p, acc[i / 2], i % 2, to, c, exists, weight);
    }
}
