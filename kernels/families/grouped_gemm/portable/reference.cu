/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The independent reference of grouped_gemm: a thread per element, sums in double. It shares with portable/ only the
 * definition of the op (grouped_gemm.h). It computes the check rows of a workload, once per problem. A tuning waits
 * for it, so a thread reads eight adjacent elements at once.
 *
 * A thread block has a check row (blockIdx.y), a run of `length` elements within a row of the output, and COLUMNS of
 * the run's columns (blockIdx.x, because the grid may have more than 65535). First the thread block finds the row in
 * expert order that belongs to the check row; then each thread sums its own elements.
 *
 * The text includes no headers (NVRTC), and only the section "hardware" is not common to C and C++: a test runs it on
 * the CPU.
 */
#define COLUMNS 256 /* as in portable/launch.c */
#define THREADS 256

enum { FORWARD, DX, DW };
enum { BF16 = 1, FP16 = 2, FP8 = 6 };

struct reference_params { /* as in portable/launch.c; strides in elements */
    const void *x, *w, *dy, *m_sizes, *gather, *weights;
    const long long *check_at;
    double *out;
    long long x_stride, w_stride, w_stride_expert, dy_stride;
    long long rows, n, k, experts, topk, out_cols, length;
    int mode, dtype_in, dtype_out;
    int m_sizes_64, gather_64, weights_fp32;
    int gather_x, gather_dy, scatter, fuse_mul_post;
    int scale_sum, scale_w, column_align; /* of scaled operands (fp8); scale_sum 0: the whole sum */
    const float *x_scale, *w_scale, *dy_scale;
    long long x_scale_stride, x_scale_block, w_scale_stride, w_scale_block, w_scale_expert;
    long long dy_scale_stride, dy_scale_block;
};

/* ---- hardware ------------------------------------------------------------------------------- */
#ifndef REFERENCE_EMULATED
#define DEVICE static __device__
#define SHARED __shared__
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)
#define THREAD ((int)threadIdx.x)
#define CHECK ((long long)blockIdx.y)
#define PART ((long long)blockIdx.x)
#define BARRIER() __syncthreads()

DEVICE float half_to_float(unsigned short v)
{
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v));
    return r;
}

DEVICE unsigned short float_to_half(float v)
{
    unsigned short r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(v));
    return r;
}

DEVICE float bits_to_float(unsigned v)
{
    return __uint_as_float(v);
}

DEVICE unsigned float_to_bits(float v)
{
    return __float_as_uint(v);
}
#endif

/* ---- elements ------------------------------------------------------------------------------- */

DEVICE double element(const void *data, long long at, int dtype)
{
    const unsigned short v = ((const unsigned short *)data)[at];
    return dtype == BF16 ? bits_to_float((unsigned)v << 16) : half_to_float(v);
}

struct eight {
    unsigned short v[8];
} __attribute__((aligned(16)));

/* True if eight elements from any multiple of eight on can be read at once. */
DEVICE int in_eights(const void *data, long long offset, long long length)
{
    return ((unsigned long long)data % 16 == 0) && offset % 8 == 0 && length % 8 == 0;
}

DEVICE double sum_of_eights(const struct eight *a, const struct eight *b, long long n, int dtype)
{
    double sum = 0;
    for (long long i = 0; i < n; i++) {
        const struct eight x = a[i], y = b[i];
        for (int j = 0; j < 8; j++)
            sum += element(x.v, j, dtype) * element(y.v, j, dtype);
    }
    return sum;
}

/* The sum of x[i] * w[i]; `x` and `w` are the offsets of the first elements. */
DEVICE double dot(const struct reference_params *p, long long x, long long w)
{
    const unsigned short *xs = (const unsigned short *)p->x + x;
    const unsigned short *ws = (const unsigned short *)p->w + w;
    if (in_eights(p->x, x, p->k) && in_eights(p->w, w, p->k))
        return sum_of_eights((const struct eight *)xs, (const struct eight *)ws, p->k / 8,
                             p->dtype_in);
    double sum = 0;
    for (long long k = 0; k < p->k; k++)
        sum += element(xs, k, p->dtype_in) * element(ws, k, p->dtype_in);
    return sum;
}

/* Rounds a value to a 16-bit type, to nearest, ties to even. */
DEVICE double rounded(double value, int dtype)
{
    const float v = (float)value;
    if (dtype == FP16)
        return half_to_float(float_to_half(v));
    const unsigned bits = float_to_bits(v);
    if (v != v)
        return v;
    return bits_to_float((bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u);
}

DEVICE long long index_at(const void *data, long long at, int wide)
{
    return wide ? ((const long long *)data)[at] : ((const int *)data)[at];
}

/* ---- rows ----------------------------------------------------------------------------------- */

DEVICE long long rows_of(const struct reference_params *p, long long expert)
{
    return p->m_sizes ? index_at(p->m_sizes, expert, p->m_sizes_64) : p->rows;
}

DEVICE long long x_row(const struct reference_params *p, long long i)
{
    return p->gather_x ? index_at(p->gather, i, p->gather_64) / p->topk : i;
}

DEVICE long long dy_row(const struct reference_params *p, long long i)
{
    return p->gather_dy ? index_at(p->gather, i, p->gather_64) : i;
}

/* The result of routed row `out_row` of the output times its routing weight. */
DEVICE double weighed(const struct reference_params *p, double sum, long long out_row)
{
    if (!p->fuse_mul_post)
        return sum;
    const double weight = p->weights_fp32
                              ? rounded(((const float *)p->weights)[out_row], p->dtype_out)
                              : element(p->weights, out_row, p->dtype_out);
    return rounded(rounded(sum, p->dtype_out) * weight, p->dtype_out);
}

DEVICE double forward(const struct reference_params *p, long long i, long long expert,
                      long long out_row, long long n)
{
    const long long x = x_row(p, i) * p->x_stride;
    const long long w = expert * p->w_stride_expert + n * p->w_stride;
    return weighed(p, dot(p, x, w), out_row);
}

DEVICE double d_x(const struct reference_params *p, long long i, long long expert, long long k)
{
    const long long dy = dy_row(p, i) * p->dy_stride, w = expert * p->w_stride_expert + k;
    double sum = 0;
    for (long long n = 0; n < p->n; n++)
        sum += element(p->dy, dy + n, p->dtype_in) *
               element(p->w, w + n * p->w_stride, p->dtype_in);
    return sum;
}

DEVICE double d_w(const struct reference_params *p, long long first, long long last, long long n,
                  long long k)
{
    double sum = 0;
    for (long long i = first; i < last; i++)
        sum += element(p->dy, dy_row(p, i) * p->dy_stride + n, p->dtype_in) *
               element(p->x, x_row(p, i) * p->x_stride + k, p->dtype_in);
    return sum;
}

/* ---- scaled operands ------------------------------------------------------------------------- */

/* A number of fp8 (e4m3), exactly. */
DEVICE double fp8(unsigned char v)
{
    const float size = bits_to_float((v & 0x7fu) << 20) * bits_to_float(247u << 23); /* 2^120 */
    return (v & 0x7f) == 0x7f ? bits_to_float(0x7fc00000u) : v & 0x80 ? -size : size;
}

/* A row of an operand, from the sum's first term on, and its scales. */
struct scaled {
    const unsigned char *data;
    const float *scale;
    long long block; /* stride of the scales along the sum */
};

/* The sum over `length` terms. `first`: the terms' first column; `sum`: the number of the scale where the whole sum
 * shares one. */
DEVICE double scaled_dot(const struct reference_params *p, struct scaled a, struct scaled b,
                         long long first, long long length, long long sum)
{
    const long long step = p->scale_sum ? p->scale_sum : length;
    double total = 0;
    for (long long at = 0; at < length; at += step) {
        const long long end = at + step < length ? at + step : length;
        const long long block = p->scale_sum ? (first + at) / p->scale_sum : sum;
        double part = 0;
        for (long long i = at; i < end; i++)
            part += fp8(a.data[i]) * fp8(b.data[i]);
        total += part * ((double)a.scale[block * a.block] * (double)b.scale[block * b.block]);
    }
    return total;
}

DEVICE struct scaled scaled_x(const struct reference_params *p, long long row, long long first)
{
    const struct scaled s = {(const unsigned char *)p->x + row * p->x_stride + first,
                             p->x_scale + row * p->x_scale_stride, p->x_scale_block};
    return s;
}

DEVICE struct scaled scaled_dy(const struct reference_params *p, long long row, long long first)
{
    const struct scaled s = {(const unsigned char *)p->dy + row * p->dy_stride + first,
                             p->dy_scale + row * p->dy_scale_stride, p->dy_scale_block};
    return s;
}

DEVICE struct scaled scaled_w(const struct reference_params *p, long long expert, long long row)
{
    const struct scaled s = {
        (const unsigned char *)p->w + expert * p->w_stride_expert + row * p->w_stride,
        p->w_scale + expert * p->w_scale_expert + row / p->scale_w * p->w_scale_stride,
        p->w_scale_block};
    return s;
}

/* Element (row i of expert `expert`, column c) of forward and dX; `row`: its row of the output. */
DEVICE double scaled_element(const struct reference_params *p, long long i, long long expert,
                             long long row, long long c)
{
    if (p->mode == FORWARD)
        return weighed(p, scaled_dot(p, scaled_x(p, x_row(p, i), 0), scaled_w(p, expert, c), 0,
                                     p->k, 0),
                       row);
    return scaled_dot(p, scaled_dy(p, dy_row(p, i), 0), scaled_w(p, expert, c), 0, p->n, 0);
}

/* ---- the kernel ----------------------------------------------------------------------------- */

KERNEL grouped_gemm_reference(const struct reference_params p)
{
    /* row: in expert order; first: the expert's first row; column: of that row, in dW of scaled operands */
    SHARED long long row, expert, first, column;
    const long long out_row = p.check_at[CHECK] / p.out_cols;
    const long long out_col = p.check_at[CHECK] % p.out_cols;

    if (THREAD == 0)
        row = p.scatter ? -1 : out_row;
    BARRIER();
    if (p.scatter) {
        for (long long i = THREAD; i < p.rows; i += THREADS)
            if (index_at(p.gather, i, p.gather_64) == out_row)
                row = i; /* the indices are a permutation, so only one thread finds the row */
    }
    BARRIER();
    if (THREAD == 0) {
        first = 0;
        column = 0;
        expert = 0;
        if (p.mode == DW) {
            for (; expert < out_row / p.n; expert++) {
                const long long rows = rows_of(&p, expert);
                first += rows;
                if (p.dtype_in == FP8)
                    column += (rows + p.column_align - 1) / p.column_align * p.column_align;
            }
        } else {
            for (; expert < p.experts && row >= first + rows_of(&p, expert); expert++)
                first += rows_of(&p, expert);
        }
    }
    BARRIER();
    const long long end = (PART + 1) * COLUMNS < p.length ? (PART + 1) * COLUMNS : p.length;
    for (long long j = PART * COLUMNS + THREAD; j < end; j += THREADS) {
        double value;
        if (row < 0)
            /* no index names this row, because gather_indices are wrong: the result is NaN */
            value = bits_to_float(0x7fc00000u);
        else if (p.dtype_in == FP8 && p.mode == DW)
            value = scaled_dot(&p, scaled_dy(&p, out_row % p.n, column),
                               scaled_x(&p, out_col + j, column), column, rows_of(&p, expert), expert);
        else if (p.dtype_in == FP8)
            value = scaled_element(&p, row, expert, out_row, out_col + j);
        else if (p.mode == FORWARD)
            value = forward(&p, row, expert, out_row, out_col + j);
        else if (p.mode == DX)
            value = d_x(&p, row, expert, out_col + j);
        else
            value = d_w(&p, first, first + rows_of(&p, expert), out_row % p.n, out_col + j);
        p.out[CHECK * p.length + j] = value;
    }
}
