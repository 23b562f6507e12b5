/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The independent reference of quantise: a byte of the output from the definition in quantise.h, in
 * double. Doubles hold quotients and products of two fp32 values so exactly that rounding them to
 * fp32 gives the correctly rounded result. It shares only the definition with the kernels.
 *
 * A thread block has a check run (blockIdx.x), a thread a byte of it. The output is that of
 * op/workload.c: the parts q, q_t, scales, scales_t, one behind the other, all dense.
 *
 * The text includes no headers (NVRTC), and only the section "hardware" is not common to C and C++:
 * the cpu target compiles it as well (cpu/reference.c).
 */
typedef long long ref_int;

struct reference_params { /* struct quantise_reference of quantise.h */
    const void *x, *m_sizes, *gather;
    const long long *check_at;
    double *out;
    ref_int m, k, experts, topk, padded, length;
    double eps;
    int mode, pow2;
    /* the last block whose scale was computed; memo_r1 is 0 at first */
    ref_int memo_r0, memo_r1, memo_c0, memo_c1;
    double memo_scale;
};

enum { REF_ROWS, REF_COLUMNS, REF_BOTH, REF_WEIGHTS, REF_WHOLE_ROWS };

/* ---- hardware ------------------------------------------------------------------------------- */
#ifndef REFERENCE_ON_CPU
#define DEVICE static __device__ __forceinline__

DEVICE float bits_to_float(unsigned v)
{
    return __uint_as_float(v);
}

DEVICE unsigned float_to_bits(float v)
{
    return __float_as_uint(v);
}

/* The nearest integer of 0 <= v < 2^31; half way between two, the even one. */
DEVICE int nearest_even(double v)
{
    const int below = (int)v;
    const double rest = v - below;
    return rest > 0.5 || (rest == 0.5 && below % 2) ? below + 1 : below;
}

/* e4m3: 3 bits of mantissa, least normal 2^-6, multiples of 2^-9 below, at most 448. */
DEVICE unsigned to_e4m3(float value)
{
    const unsigned sign = float_to_bits(value) >> 31 << 7;
    double units = 512.0 * (value < 0 ? -value : value); /* multiples of 2^-9 */
    int exponent = 0;
    if (value != value)
        return 0x7fu;
    if (units > 512.0 * 448)
        units = 512.0 * 448;
    while (nearest_even(units) >= 16) { /* the unit doubles */
        units /= 2;
        exponent++;
    }
    /* 0..7: subnormal; 8..15: normal, with the exponent field exponent + 1 */
    return sign | (unsigned)(nearest_even(units) + exponent * 8);
}
#endif

/* ---- numbers -------------------------------------------------------------------------------- */

DEVICE int is_finite(double v)
{
    return v - v == 0;
}

DEVICE double scale_of(double amax, double eps, int pow2)
{
    const double least = 1.0 / 1024 / 1024 / 1024 / 1024 / 1024 / 1024 / 1024 / 1024 / 1024 / 1024 /
                         1024 / 1024 / 64; /* 2^-126 */
    const double scale = (float)((amax > eps ? amax : eps) / 448.0);
    if (scale < least)
        return 1;
    if (!pow2)
        return scale;
    double power = least;
    while (power < scale)
        power *= 2;
    return power;
}

/* ---- x -------------------------------------------------------------------------------------- */

DEVICE ref_int source_row(struct reference_params *p, ref_int row)
{
    return p->gather ? ((const int *)p->gather)[row] / p->topk : row;
}

DEVICE unsigned x_bits(struct reference_params *p, ref_int row, ref_int column)
{
    return (unsigned)((const unsigned short *)p->x)[source_row(p, row) * p->k + column] << 16;
}

/* The scale of the block of rows [r0, r1) and columns [c0, c1). */
DEVICE double block_scale(struct reference_params *p, ref_int r0, ref_int r1, ref_int c0,
                          ref_int c1)
{
    if (p->memo_r0 == r0 && p->memo_r1 == r1 && p->memo_c0 == c0 && p->memo_c1 == c1)
        return p->memo_scale;
    double amax = 0;
    for (ref_int r = r0; r < r1; r++) {
        for (ref_int c = c0; c < c1; c++) {
            const double v = bits_to_float(x_bits(p, r, c)), size = v < 0 ? -v : v;
            if (is_finite(v) && size > amax)
                amax = size;
        }
    }
    p->memo_r0 = r0;
    p->memo_r1 = r1;
    p->memo_c0 = c0;
    p->memo_c1 = c1;
    return p->memo_scale = scale_of(amax, p->eps, p->pow2);
}

DEVICE unsigned quantised(struct reference_params *p, ref_int row, ref_int column,
                          double scale)
{
    const unsigned bits = x_bits(p, row, column);
    const double inverse = (float)(1.0 / scale);
    return to_e4m3((float)(bits_to_float(bits) * inverse));
}

/* ---- blocks --------------------------------------------------------------------------------- */

DEVICE ref_int least(ref_int a, ref_int b)
{
    return a < b ? a : b;
}

/* The rows of q_t's token block: [*first, *last). */
DEVICE void token_block(struct reference_params *p, ref_int block, ref_int *first,
                        ref_int *last)
{
    ref_int row = 0;
    for (ref_int e = 0; e < p->experts; e++) {
        const ref_int rows = ((const int *)p->m_sizes)[e], blocks = (rows + 127) / 128;
        if (block < blocks) {
            *first = row + block * 128;
            *last = least(row + rows, *first + 128);
            return;
        }
        block -= blocks;
        row += rows;
    }
    *first = *last = 0;
}

/* The 128x128 block that row n of an expert's W [N, K] and column c lie in. */
DEVICE double weight_scale(struct reference_params *p, ref_int expert, ref_int n, ref_int c)
{
    const ref_int first = expert * p->padded, r0 = n / 128 * 128, c0 = c / 128 * 128;
    return block_scale(p, first + r0, first + least(p->padded, r0 + 128), c0,
                       least(p->k, c0 + 128));
}

/* The block of the row that `column` lies in. A single call of block_scale, which is inlined: two
 * would spill registers. */
DEVICE double row_scale(struct reference_params *p, ref_int row, ref_int column)
{
    const ref_int width = p->mode == REF_WHOLE_ROWS ? p->k : 128, begin = column / width * width;
    return block_scale(p, row, row + 1, begin, least(p->k, begin + width));
}

DEVICE double column_scale(struct reference_params *p, ref_int block, ref_int column)
{
    ref_int first, last;
    token_block(p, block, &first, &last);
    return block_scale(p, first, last, column, column + 1);
}

/* ---- bytes of the output -------------------------------------------------------------------- */

DEVICE unsigned byte_of_q(struct reference_params *p, ref_int at)
{
    const ref_int row = at / p->k, c = at % p->k, n = p->padded;
    return quantised(p, row, c,
                     p->mode == REF_WEIGHTS ? weight_scale(p, row / n, row % n, c)
                                            : row_scale(p, row, c));
}

DEVICE unsigned byte_of_q_t(struct reference_params *p, ref_int at)
{
    const ref_int line = at / p->padded, t = at % p->padded, column = line % p->k;
    ref_int first, last;
    if (p->mode == REF_WEIGHTS) {
        const ref_int expert = line / p->k;
        return quantised(p, expert * p->padded + t, column, weight_scale(p, expert, t, column));
    }
    token_block(p, t / 128, &first, &last);
    if (first + t % 128 >= last)
        return 0;
    return quantised(p, first + t % 128, column, column_scale(p, t / 128, column));
}

DEVICE double scale_at(struct reference_params *p, ref_int at)
{
    const ref_int blocks = (p->k + 127) / 128, high = (p->padded + 127) / 128;
    if (p->mode == REF_WEIGHTS)
        return weight_scale(p, at / blocks / high, at / blocks % high * 128, at % blocks * 128);
    return row_scale(p, at % p->m, at / p->m * 128);
}

DEVICE unsigned byte_of_float(double v, ref_int byte)
{
    return float_to_bits((float)v) >> (8 * byte) & 0xffu;
}

DEVICE unsigned byte_at(struct reference_params *p, ref_int at)
{
    const int weights = p->mode == REF_WEIGHTS;
    const ref_int q = p->mode == REF_COLUMNS ? 0 : p->m * p->k;
    const int only_rows = p->mode == REF_ROWS || p->mode == REF_WHOLE_ROWS;
    const ref_int q_t = only_rows ? 0 : weights ? q : p->k * p->padded;
    const ref_int rows = weights ? p->experts * ((p->padded + 127) / 128) : p->m;
    const ref_int blocks = p->mode == REF_WHOLE_ROWS ? 1 : (p->k + 127) / 128;
    const ref_int scales = q ? 4 * rows * blocks : 0;
    if (at < q)
        return byte_of_q(p, at);
    at -= q;
    if (at < q_t)
        return byte_of_q_t(p, at);
    at -= q_t;
    if (at < scales)
        return byte_of_float(scale_at(p, at / 4), at % 4);
    at -= scales;
    return byte_of_float(column_scale(p, at / 4 / p->k, at / 4 % p->k), at % 4);
}

#ifndef REFERENCE_ON_CPU
#ifndef REFERENCE_ENTRY
#define REFERENCE_ENTRY extern "C" __global__ void __launch_bounds__(128)
#endif

REFERENCE_ENTRY quantise_reference(const struct reference_params p)
{
    struct reference_params mine = p;
    const ref_int check = blockIdx.x;
    for (ref_int i = threadIdx.x; i < p.length; i += 128)
        p.out[check * p.length + i] = (double)byte_at(&mine, p.check_at[check] + i);
}
#endif
