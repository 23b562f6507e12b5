/* SPDX-License-Identifier: Apache-2.0 */
/* ---- portable, fragments: from shared memory to registers ------------------------------------ */

struct fragments {
    u32 a[FR][4];     /* each an operand A of mma.sync, 16 x 16; scaled: 16 x 32 numbers of fp8 */
    u32 b[FC / 2][4]; /* each two operands B, 16 x 8; scaled: 32 x 8 */
};

/*
 * The four 8 x 8 matrices of an ldmatrix:
 *   A   (r low, d low), (r high, d low), (r low, d high), (r high, d high);
 *   B   (c low, d low), (c low, d high), (c high, d low), (c high, d high).
 * Lane l gives the address of row l % 8 of matrix l / 8, here for the warp's first fragment and the first step. Sizes
 * are powers of two, so an xor gives the chunks of other fragments and steps.
 */
INLINE int first_a(int warp_r)
{
    const int lane = THREAD & 31, r_high = lane >> 3 & 1, d_high = lane >> 4;
    if (A_TRANSPOSED)
        return chunk_at(d_high * 8 + (lane & 7), warp_r * (WR / 8) + r_high, A_CHUNKS);
    return chunk_at(warp_r * WR + r_high * 8 + (lane & 7), d_high, A_CHUNKS);
}

INLINE int first_b(int warp_c)
{
    const int lane = THREAD & 31, d_high = lane >> 3 & 1, c_high = lane >> 4;
    if (B_TRANSPOSED)
        return A_BYTES + chunk_at(d_high * 8 + (lane & 7), warp_c * (WC / 8) + c_high, B_CHUNKS);
    return A_BYTES + chunk_at(warp_c * WC + c_high * 8 + (lane & 7), d_high, B_CHUNKS);
}

INLINE void load_a(u32 a[FR][4], u32 stage, int first, int step)
{
    HIDE32(first); /* computes addresses anew at each step: saves many registers */
#pragma unroll
    for (int i = 0; i < FR; i++) {
        if (A_TRANSPOSED)
            load_matrix_transposed(a[i], stage + (first ^ i * 32) + step * 16 * A_CHUNKS * 16);
        else
            load_matrix(a[i], stage + (first ^ step * 32) + i * 16 * A_CHUNKS * 16);
    }
}

INLINE void load_b(u32 b[FC / 2][4], u32 stage, int first, int step)
{
    HIDE32(first);
#pragma unroll
    for (int i = 0; i < FC / 2; i++) {
        if (B_TRANSPOSED)
            load_matrix_transposed(b[i], stage + (first ^ i * 32) + step * 16 * B_CHUNKS * 16);
        else
            load_matrix(b[i], stage + (first ^ step * 32) + i * 16 * B_CHUNKS * 16);
    }
}

#if SCALED && FP8_MMA
#define PART_UNIT 1.0f /* a product of 1 x 1 in the sums */

INLINE void multiply_all(float acc[FR][FC][4], const struct fragments *f)
{
#pragma unroll
    for (int i = 0; i < FR; i++)
#pragma unroll
        for (int j = 0; j < FC; j++)
            multiply_fp8(acc[i][j], f->a[i], f->b[j / 2][j % 2 * 2], f->b[j / 2][j % 2 * 2 + 1]);
}
#elif SCALED
#define PART_UNIT (1.0f / 65536.0f)

/* Four numbers of fp8 (e4m3) become four of fp16, times 2^-8: the bits of exponent and mantissa of fp8, also of
 * subnormals, are those of fp16 but for the bias. NaN (all ones) becomes NaN. */
INLINE u32 decode_pair(u32 v)
{
    const u32 size = v & 0x007f007fu, nan = (size + 0x00010001u) & 0x00800080u;
    return (v & 0x00800080u) << 8 | size << 7 | ((nan << 8) - (nan >> 7));
}

/* pair[0]: the numbers in the low two bytes; pair[1]: in the high two. */
INLINE void decode_four(u32 v, u32 pair[2])
{
    pair[0] = decode_pair((v & 0xffu) | (v & 0xff00u) << 8);
    pair[1] = decode_pair((v >> 16 & 0xffu) | (v >> 24) << 16);
}

/*
 * A lane's word of an ldmatrix holds four adjacent numbers of d, of which the fragments of mma.sync take two and two
 * that are 8 apart. Which number of d goes where does not matter, as long as A and B agree. The words with d low give
 * one mma, and those with d high another.
 */
INLINE void multiply_all(float acc[FR][FC][4], const struct fragments *f)
{
#pragma unroll
    for (int high = 0; high < 2; high++) {
        u32 b[FC][2];
#pragma unroll
        for (int j = 0; j < FC; j++)
            decode_four(f->b[j / 2][j % 2 * 2 + high], b[j]);
#pragma unroll
        for (int i = 0; i < FR; i++) {
            u32 low_rows[2], high_rows[2];
            decode_four(f->a[i][high * 2], low_rows);
            decode_four(f->a[i][high * 2 + 1], high_rows);
            const u32 a[4] = {low_rows[0], high_rows[0], low_rows[1], high_rows[1]};
#pragma unroll
            for (int j = 0; j < FC; j++)
                multiply(acc[i][j], a, b[j][0], b[j][1]);
        }
    }
}
#else
INLINE void multiply_all(float acc[FR][FC][4], const struct fragments *f)
{
#pragma unroll
    for (int i = 0; i < FR; i++)
#pragma unroll
        for (int j = 0; j < FC; j++)
            multiply(acc[i][j], f->a[i], f->b[j / 2][j % 2 * 2], f->b[j / 2][j % 2 * 2 + 1]);
}
#endif
