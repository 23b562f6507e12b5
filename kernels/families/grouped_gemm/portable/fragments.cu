/* SPDX-License-Identifier: Apache-2.0 */
/* ---- portable, fragments: from shared memory to registers ------------------------------------ */

struct fragments {
    u32 a[FR][4];     /* each an operand A of mma.sync, 16 x 16 */
    u32 b[FC / 2][4]; /* each two operands B, 16 x 8 */
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

INLINE void multiply_all(float acc[FR][FC][4], const struct fragments *f)
{
#pragma unroll
    for (int i = 0; i < FR; i++)
#pragma unroll
        for (int j = 0; j < FC; j++)
            multiply(acc[i][j], f->a[i], f->b[j / 2][j % 2 * 2], f->b[j / 2][j % 2 * 2 + 1]);
}
