/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the Hopper bench does on the GPU beside the kernels it tests: random inputs, a naive
 * reference of the op, comparisons, a spin. Structs are those of bench.c.
 */
typedef unsigned short u16;
typedef unsigned u32;
typedef unsigned long long u64;
typedef long long i64;

enum { BF16 = 1, FP16 = 2, FP32 = 3 };

static __device__ float widen(u16 v, int dtype)
{
    float r;
    if (dtype == BF16)
        return __uint_as_float((u32)v << 16);
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v));
    return r;
}

static __device__ u16 narrow(float v, int dtype)
{
    u16 r;
    if (dtype == BF16)
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(v));
    else
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(v));
    return r;
}

static __device__ float read(const void *p, i64 at, int dtype)
{
    return dtype == FP32 ? ((const float *)p)[at] : widen(((const u16 *)p)[at], dtype);
}

static __device__ u64 mix(u64 z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* ---- random ---- */

struct random_params {
    void *to;
    i64 rows, cols, stride;
    u64 seed;
    float scale;
    int dtype;
};

/* Sums of four uniforms: near enough to normal, standard deviation `scale`. */
extern "C" __global__ void tool_random(const struct random_params p)
{
    const i64 n = p.rows * p.cols;
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (i64)blockDim.x) {
        const u64 r = mix(p.seed + (u64)i * 0x9e3779b97f4a7c15ull);
        const float sum = (float)(r & 65535) + (float)(r >> 16 & 65535) + (float)(r >> 32 & 65535) +
                          (float)(r >> 48);
        const float v = (sum * (1.0f / 65536) - 2.0f) * 1.7320508f * p.scale;
        const i64 at = i / p.cols * p.stride + i % p.cols;
        if (p.dtype == FP32)
            ((float *)p.to)[at] = v;
        else
            ((u16 *)p.to)[at] = narrow(v, p.dtype);
    }
}

/* ---- reference ---- */

struct naive_params {
    const void *x, *w, *dy;
    const float *before; /* accumulate: what was in the output; dense */
    const float *weights;
    const i64 *start;    /* [experts + 1] */
    const int *gather;
    float *out;          /* dense, as many rows and columns as the output */
    i64 x_stride, w_stride, w_expert, dy_stride;
    i64 rows, n, k, experts, topk;
    int mode, dtype, gather_x, gather_dy, scatter, fuse;
};

static __device__ i64 expert_of(const struct naive_params *p, i64 row)
{
    i64 low = 0, high = p->experts - 1;
    while (low < high) {
        const i64 middle = (low + high) / 2;
        if (p->start[middle + 1] > row)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static __device__ float naive(const struct naive_params *p, i64 row, i64 col, i64 *out_row)
{
    double sum = 0;
    if (p->mode == 2) {
        const i64 e = row / p->n, n = row % p->n;
        *out_row = row;
        for (i64 i = p->start[e]; i < p->start[e + 1]; i++) {
            const i64 dy = p->gather_dy ? p->gather[i] : i, x = p->gather_x ? p->gather[i] / p->topk : i;
            sum += (double)read(p->dy, dy * p->dy_stride + n, p->dtype) *
                   (double)read(p->x, x * p->x_stride + col, p->dtype);
        }
        return (float)sum + (p->before ? p->before[row * p->k + col] : 0.0f);
    }
    const i64 e = expert_of(p, row);
    *out_row = p->scatter ? p->gather[row] : row;
    if (p->mode == 0) {
        const i64 x = p->gather_x ? p->gather[row] / p->topk : row;
        for (i64 k = 0; k < p->k; k++)
            sum += (double)read(p->x, x * p->x_stride + k, p->dtype) *
                   (double)read(p->w, e * p->w_expert + col * p->w_stride + k, p->dtype);
    } else {
        const i64 dy = p->gather_dy ? p->gather[row] : row;
        for (i64 n = 0; n < p->n; n++)
            sum += (double)read(p->dy, dy * p->dy_stride + n, p->dtype) *
                   (double)read(p->w, e * p->w_expert + n * p->w_stride + col, p->dtype);
    }
    if (p->fuse) {
        const float a = widen(narrow((float)sum, p->dtype), p->dtype);
        const float b = widen(narrow(p->weights[*out_row], p->dtype), p->dtype);
        return widen(narrow(a * b, p->dtype), p->dtype);
    }
    return (float)sum;
}

extern "C" __global__ void tool_reference(const struct naive_params p)
{
    const i64 rows = p.mode == 2 ? p.experts * p.n : p.rows, cols = p.mode == 0 ? p.n : p.k;
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < rows * cols;
         i += gridDim.x * (i64)blockDim.x) {
        i64 out_row;
        const float v = naive(&p, i / cols, i % cols, &out_row);
        p.out[out_row * cols + i % cols] = v;
    }
}

/* ---- comparison ---- */

struct compare_params {
    const void *out;
    const float *reference;
    i64 rows, cols, stride, rows_each, expert_stride; /* dW: rows of an expert; else all, 0 */
    u32 *result; /* relative norm (as bits), elements wrong, elements NaN, first wrong row + 1 */
    int dtype;
};

static __device__ float sum_block(float v, float *shared)
{
    for (int by = 16; by; by >>= 1)
        v += __shfl_xor_sync(~0u, v, by);
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0;
    for (int i = 0; i < (int)blockDim.x / 32; i++)
        v += shared[i];
    __syncthreads();
    return v;
}

/* A block per row of the output. Where the reference is NaN, anything may be. */
extern "C" __global__ void tool_compare(const struct compare_params p)
{
    __shared__ float shared[32];
    for (i64 row = blockIdx.x; row < p.rows; row += gridDim.x) {
        const i64 begin = row / p.rows_each * p.expert_stride + row % p.rows_each * p.stride;
        float error = 0, size = 0, wrong = 0, nan = 0;
        for (i64 c = threadIdx.x; c < p.cols; c += blockDim.x) {
            const float want = p.reference[row * p.cols + c], got = read(p.out, begin + c, p.dtype);
            if (want != want)
                continue;
            if (got != got) {
                nan += 1;
                continue;
            }
            const float d = fabsf(got - want);
            error += d * d;
            size += want * want;
            wrong += d > 1e-2f + 1e-2f * fabsf(want);
        }
        error = sum_block(error, shared);
        size = sum_block(size, shared);
        wrong = sum_block(wrong, shared);
        nan = sum_block(nan, shared);
        if (threadIdx.x == 0) {
            const float norm = error == 0 ? 0.0f : size > 0 ? sqrtf(error / size) : 1e30f;
            atomicMax(&p.result[0], __float_as_uint(norm));
            atomicAdd(&p.result[1], (u32)wrong);
            atomicAdd(&p.result[2], (u32)nan);
            if (nan > 0 || wrong > 0 || norm > 5e-3f)
                atomicCAS(&p.result[3], 0, (u32)row + 1);
        }
    }
}

struct guard_params {
    const u16 *all;   /* the whole allocation, in 16-bit units */
    i64 units, begin; /* of it, and where the output begins */
    i64 rows, row_units, stride, rows_each, expert_stride;
    u32 *result;      /* units outside the output's rows that are not 0xffff */
};

extern "C" __global__ void tool_guard(const struct guard_params p)
{
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < p.units;
         i += gridDim.x * (i64)blockDim.x) {
        i64 at = i - p.begin;
        int inside = 0;
        if (at >= 0) {
            i64 e = p.expert_stride ? at / p.expert_stride : 0;
            at -= e * p.expert_stride;
            const i64 row = at / p.stride;
            inside = row < p.rows_each && e * p.rows_each + row < p.rows &&
                     at % p.stride < p.row_units;
        }
        if (!inside && p.all[i] != 0xffff)
            atomicAdd(p.result, 1);
    }
}

struct diff_params {
    const uint4 *a, *b;
    i64 n;
    u32 *result; /* [0] units of 16 bytes that differ */
};

extern "C" __global__ void tool_diff(const struct diff_params p)
{
    u32 count = 0;
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < p.n; i += gridDim.x * (i64)blockDim.x) {
        const uint4 a = p.a[i], b = p.b[i];
        count += a.x != b.x || a.y != b.y || a.z != b.z || a.w != b.w;
    }
    if (count)
        atomicAdd(p.result, count);
}

struct spin_params {
    u64 ns;
};

extern "C" __global__ void tool_spin(const struct spin_params p)
{
    u64 begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - begin < p.ns);
}
