/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that the cuda device needs beside candidates: filling operands, counting unwritten
 * elements, comparing check rows, keeping the GPU busy while a launch is queued, sweeping L2. No
 * headers (NVRTC).
 */
typedef unsigned long long u64;
typedef unsigned u32;
typedef unsigned short u16;

#define GLOBAL extern "C" __global__ void __launch_bounds__(256)

enum { BF16 = 1, FP16 = 2, FP32 = 3, FP8 = 6, UINT8 = 7 }; /* enum dtype */

static __device__ __forceinline__ u64 first_index(void)
{
    return (u64)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ __forceinline__ u64 all_threads(void)
{
    return (u64)gridDim.x * blockDim.x;
}

/* Draws as random_next() of kernels/vocabulary.c and as the cpu device do. Depends on seed and
 * position only. */
static __device__ __forceinline__ u64 random_bits(u64 seed, u64 i)
{
    u64 z = seed + (i + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* Nearly normal, mean 0, deviation 1: the sum of four 16-bit uniform numbers. */
static __device__ __forceinline__ float random_value(u64 z)
{
    const int sum = (int)(z & 0xffff) + (int)(z >> 16 & 0xffff) + (int)(z >> 32 & 0xffff) +
                    (int)(z >> 48);
    return (float)(sum - 2 * 0xffff) * (1.7320508f / 65536.0f);
}

/* An octave from 2^-2 to 2^1, and a place within the octave. */
static __device__ __forceinline__ float random_scale(u64 z)
{
    return (1 + (float)(u32)(z >> 41) / 8388608.0f) * (0.25f * (float)(1 << (int)(z & 3)));
}

/* The bits of fp8_encode() of kernels/fp8.c, for finite v. sm_80 lacks the instruction. */
static __device__ __forceinline__ unsigned char fp8_code(float v)
{
    const u32 sign = __float_as_uint(v) >> 24 & 0x80;
    const float size = fabsf(v);
    if (size >= 448.0f)
        return (unsigned char)(sign | 0x7e);
    if (size < 0.015625f) /* adding 2^14 rounds to a multiple of 2^-9 */
        return (unsigned char)(sign | (u32)(__fadd_rn(__fadd_rn(size, 16384.0f), -16384.0f) * 512.0f));
    const u32 bits = __float_as_uint(size);
    return (unsigned char)(sign | (((bits + 0x7ffffu + (bits >> 20 & 1)) >> 20) - (120 << 3)));
}

struct fill_params {
    void *to;
    u64 count, seed;
    const unsigned char *columns; /* NULL, or a byte for each column: columns of 0 hold zeros */
    u64 n_columns;
    float scale;
    int dtype, scales, reserved;
};

GLOBAL cuda_fill(const struct fill_params p)
{
    for (u64 i = first_index(); i < p.count; i += all_threads()) {
        const u64 z = random_bits(p.seed, i);
        float v = (p.scales ? random_scale(z) : random_value(z)) * p.scale;
        if (p.columns && !p.columns[i % p.n_columns])
            v = 0;
        if (p.dtype == FP32) {
            ((float *)p.to)[i] = v;
        } else if (p.dtype == FP8) {
            ((unsigned char *)p.to)[i] = fp8_code(v);
        } else if (p.dtype == BF16) {
            u16 r;
            asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(v));
            ((u16 *)p.to)[i] = r;
        } else {
            u16 r;
            asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(v));
            ((u16 *)p.to)[i] = r;
        }
    }
}

/* Adds the number of poisoned elements (all bits ones; 1, 2 or 4 bytes) to *out. */
struct count_params {
    const void *data;
    u64 count;
    u64 *out;
    int size, reserved;
};

GLOBAL cuda_count_poison(const struct count_params p)
{
    u32 n = 0;
    for (u64 i = first_index(); i < p.count; i += all_threads()) {
        if (p.size == 1)
            n += ((const unsigned char *)p.data)[i] == 0xff;
        else if (p.size == 2)
            n += ((const u16 *)p.data)[i] == 0xffff;
        else
            n += ((const u32 *)p.data)[i] == 0xffffffffu;
    }
    for (int by = 16; by > 0; by >>= 1)
        n += __shfl_xor_sync(~0u, n, by);
    if (threadIdx.x % 32 == 0 && n)
        atomicAdd(p.out, (u64)n);
}

/* The error of a check row: `length` elements from at[check] on. One thread block per row. */
struct row_error {
    double max_error;
    /* sums of squares of the row's error and of the reference; `difference` counts only the part of
     * each error above compare_params.grain, the rounding of tiny values */
    double difference, norm;
    /* excess of the worst element's error over its tolerance; 0: no element exceeds its
     * tolerance */
    double excess;
    /* the index of the worst element; of equally bad elements, the first */
    long long worst;
    double got, expected;    /* values of the worst element */
};

struct compare_params {
    const void *data;
    const long long *at;
    const double *expected;
    struct row_error *out;
    u64 length;
    double atol, rtol, grain;
    int dtype, reserved;
};

static __device__ __forceinline__ double element(const void *data, u64 i, int dtype)
{
    float v;
    if (dtype == FP32)
        v = ((const float *)data)[i];
    else if (dtype == BF16)
        v = __uint_as_float((u32)((const u16 *)data)[i] << 16);
    else if (dtype == UINT8)
        v = (float)((const unsigned char *)data)[i];
    else
        asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(((const u16 *)data)[i]));
    return v;
}

static __device__ __forceinline__ double not_nan(double v)
{
    return v == v ? v : __longlong_as_double(0x7ff0000000000000ll);
}

static __device__ void add_element(struct row_error *e, const struct compare_params *p, u64 j,
                                   double got, double expected)
{
    const double size = expected < 0 ? -expected : expected;
    const double by = got - expected, x = not_nan(by < 0 ? -by : by);
    const double over = not_nan(x - (p->atol + p->rtol * size));
    const double beyond = x > p->grain ? x - p->grain : 0;
    if (over > e->excess) {
        e->excess = over;
        e->worst = (long long)j;
        e->got = got;
        e->expected = expected;
    }
    e->max_error = x > e->max_error ? x : e->max_error;
    e->difference += beyond * beyond;
    e->norm += expected * expected;
}

static __device__ void merge(struct row_error *to, const struct row_error *e)
{
    if (e->excess > to->excess || (e->excess == to->excess && e->worst < to->worst)) {
        to->excess = e->excess;
        to->worst = e->worst;
        to->got = e->got;
        to->expected = e->expected;
    }
    to->max_error = e->max_error > to->max_error ? e->max_error : to->max_error;
    to->difference += e->difference;
    to->norm += e->norm;
}

GLOBAL cuda_compare(const struct compare_params p)
{
    __shared__ struct row_error part[256];
    const u64 check = blockIdx.x;
    struct row_error e = {0, 0, 0, 0, (long long)p.length, 0, 0};
    for (u64 j = threadIdx.x; j < p.length; j += blockDim.x)
        add_element(&e, &p, j, element(p.data, (u64)p.at[check] + j, p.dtype),
                    p.expected[check * p.length + j]);
    part[threadIdx.x] = e;
    for (u32 by = 128; by > 0; by >>= 1) {
        __syncthreads();
        if (threadIdx.x < by)
            merge(&part[threadIdx.x], &part[threadIdx.x + by]);
    }
    if (threadIdx.x == 0)
        p.out[check] = part[0];
}

/* Adds the check rows' initial content to their expected values: for a kernel that adds its result
 * to the output. */
struct add_params {
    const void *data;
    const long long *at;
    double *expected;
    u64 length;
    int dtype, reserved;
};

GLOBAL cuda_add_rows(const struct add_params p)
{
    const u64 check = blockIdx.x;
    for (u64 j = threadIdx.x; j < p.length; j += blockDim.x)
        p.expected[check * p.length + j] += element(p.data, (u64)p.at[check] + j, p.dtype);
}

/* Spins while the timed work is queued behind, so that the time excludes the host's path. */
struct spin_params {
    long long cycles;
};

GLOBAL cuda_spin(const struct spin_params p)
{
    const long long begin = clock64();
    while (clock64() - begin < p.cycles) {
    }
}

/* Reads memory to push all other data out of L2; leaves clean lines. */
struct sweep_params {
    const uint4 *data;
    u64 count;
    u32 *out;
};

GLOBAL cuda_sweep(const struct sweep_params p)
{
    u32 sum = 0;
    for (u64 i = first_index(); i < p.count; i += all_threads()) {
        const uint4 v = p.data[i];
        sum ^= v.x ^ v.y ^ v.z ^ v.w;
    }
    if (sum == 0x12345678u) /* never true, but the compiler cannot know that and keeps the reads */
        *p.out = sum;
}
