/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU helpers of the Hopper bench: random inputs, a reference of the op in double precision (fp64 products and sums
 * of the rounded operands; the output is not rounded), comparisons, a spin. The structs match data.c, reference.c and
 * time.c.
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

#define FOR_EACH(i, n)                                                                             \
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < (n);                              \
         i += gridDim.x * (i64)blockDim.x)

/* ---- matrices: experts have `each` rows, `stride` elements apart, and lie `expert` elements apart */

struct matrix {
    void *data;
    i64 rows, cols, stride, each, expert;
    int dtype, reserved;
};

static __device__ i64 place_in(const struct matrix *m, i64 row, i64 col)
{
    return row / m->each * m->expert + row % m->each * m->stride + col;
}

static __device__ double value_in(const struct matrix *m, i64 row, i64 col)
{
    return (double)read(m->data, place_in(m, row, col), m->dtype);
}

/* ---- random */

struct random_params {
    struct matrix to;
    u64 seed;
    float scale, mean;
};

/* Sums of four uniforms: nearly normal, standard deviation `scale`, always within 3.5 deviations. */
extern "C" __global__ void tool_random(const struct random_params p)
{
    FOR_EACH(i, p.to.rows * p.to.cols) {
        const u64 r = mix(p.seed + (u64)i * 0x9e3779b97f4a7c15ull);
        const float sum = (float)(r & 65535) + (float)(r >> 16 & 65535) + (float)(r >> 32 & 65535) +
                          (float)(r >> 48);
        const float v = (sum * (1.0f / 65536) - 2.0f) * 1.7320508f * p.scale + p.mean;
        const i64 at = place_in(&p.to, i / p.to.cols, i % p.to.cols);
        if (p.to.dtype == FP32)
            ((float *)p.to.data)[at] = v;
        else
            ((u16 *)p.to.data)[at] = narrow(v, p.to.dtype);
    }
}

/* ---- reference */

struct reference_params {
    struct matrix x, w, dy;
    struct matrix before;  /* with accumulate the output before the launch; `data` is NULL without accumulate */
    struct matrix weights; /* one column */
    const i64 *start;      /* [experts + 1] */
    const int *gather;
    double *out;           /* dense, with as many rows and columns as the output */
    i64 rows, cols;        /* of the output */
    i64 n, k, experts, topk;
    int mode, gather_x, gather_dy, scatter, fuse, dtype;
};

static __device__ i64 expert_of(const struct reference_params *p, i64 row)
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

/* Callers compute the offsets of rows before their inner loops: these loops take all the time that
 * a reference takes. */
static __device__ double product(const struct matrix *a, i64 at_a, const struct matrix *b, i64 at_b)
{
    return (double)read(a->data, at_a, a->dtype) * (double)read(b->data, at_b, b->dtype);
}

static __device__ double sum_dw(const struct reference_params *p, i64 row, i64 col)
{
    const i64 e = row / p->n, n = row % p->n;
    double sum = 0;
    for (i64 i = p->start[e]; i < p->start[e + 1]; i++) {
        const i64 dy = p->gather_dy ? p->gather[i] : i;
        const i64 x = p->gather_x ? p->gather[i] / p->topk : i;
        sum += product(&p->dy, dy * p->dy.stride + n, &p->x, x * p->x.stride + col);
    }
    return sum;
}

static __device__ double sum_forward(const struct reference_params *p, i64 row, i64 col)
{
    const i64 x = place_in(&p->x, p->gather_x ? p->gather[row] / p->topk : row, 0);
    const i64 w = place_in(&p->w, expert_of(p, row) * p->n + col, 0);
    double sum = 0;
    for (i64 k = 0; k < p->k; k++)
        sum += product(&p->x, x + k, &p->w, w + k);
    return sum;
}

static __device__ double sum_dx(const struct reference_params *p, i64 row, i64 col)
{
    const i64 dy = place_in(&p->dy, p->gather_dy ? p->gather[row] : row, 0);
    const i64 w = place_in(&p->w, expert_of(p, row) * p->n, col);
    double sum = 0;
    for (i64 n = 0; n < p->n; n++)
        sum += product(&p->dy, dy + n, &p->w, w + n * p->w.stride);
    return sum;
}

static __device__ float rounded(float v, int dtype)
{
    return widen(narrow(v, dtype), dtype);
}

/* fuse_mul_post: rounds the sum, and rounds its product with the weight. A sum in single precision may be rounded up or
 * down if it lies close to the middle between two numbers. Then the mean of both results is the reference: with either
 * result alone, a right kernel could be a whole step off, which is much in a row of 8 elements. */
static __device__ double fused(double v, double weight, int dtype)
{
    const double slack = 1e-6 * (1 + fabs(v));
    const float by = rounded((float)weight, dtype);
    const float low = rounded(rounded((float)(v - slack), dtype) * by, dtype);
    const float high = rounded(rounded((float)(v + slack), dtype) * by, dtype);
    return ((double)low + (double)high) / 2;
}

extern "C" __global__ void tool_reference(const struct reference_params p)
{
    FOR_EACH(i, p.rows * p.cols) {
        const i64 row = i / p.cols, col = i % p.cols, to = p.scatter ? p.gather[row] : row;
        double v = p.mode == 0   ? sum_forward(&p, row, col)
                   : p.mode == 1 ? sum_dx(&p, row, col)
                                 : sum_dw(&p, row, col);
        if (p.before.data)
            v += value_in(&p.before, row, col);
        if (p.fuse)
            v = fused(v, value_in(&p.weights, to, 0), p.dtype);
        p.out[to * p.cols + col] = v;
    }
}

/* ---- comparison */

struct findings {
    u32 norm;  /* relative norm of the error of the worst row, as a float's bits */
    u32 wrong; /* elements beyond tolerance */
    u32 nan;   /* NaN elements that should be numbers */
    u32 row;   /* number of the first bad row, counted from 1; 0: none */
    u32 outside; /* number of 16-bit units written where no element is */
    u32 compared; /* elements */
};

struct compare_params {
    struct matrix out;
    const double *reference;
    struct findings *found;
};

static __device__ double sum_block(double v, double *shared)
{
    const int warps = (blockDim.x + 31) / 32;
    for (int by = 16; by; by >>= 1)
        v += __shfl_xor_sync(~0u, v, by);
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0;
    for (int i = 0; i < warps; i++)
        v += shared[i];
    __syncthreads();
    return v;
}

/* Compares the output with the reference, a thread block per row. Where the reference is NaN, the
 * output may have any value. */
extern "C" __global__ void tool_compare(const struct compare_params p)
{
    __shared__ double shared[32];
    for (i64 row = blockIdx.x; row < p.out.rows; row += gridDim.x) {
        double error = 0, size = 0, wrong = 0, nan = 0, compared = 0;
        for (i64 c = threadIdx.x; c < p.out.cols; c += blockDim.x) {
            const double want = p.reference[row * p.out.cols + c], got = value_in(&p.out, row, c);
            if (want != want)
                continue;
            compared += 1;
            if (got != got) {
                nan += 1;
                continue;
            }
            const double d = fabs(got - want);
            error += d * d;
            size += want * want;
            wrong += d > 1e-2 + 1e-2 * fabs(want);
        }
        error = sum_block(error, shared);
        size = sum_block(size, shared);
        wrong = sum_block(wrong, shared);
        nan = sum_block(nan, shared);
        compared = sum_block(compared, shared);
        if (threadIdx.x == 0) {
            const float norm = error == 0 ? 0.0f : size > 0 ? (float)sqrt(error / size) : 1e30f;
            atomicMax(&p.found->norm, __float_as_uint(norm));
            atomicAdd(&p.found->wrong, (u32)wrong);
            atomicAdd(&p.found->nan, (u32)nan);
            atomicAdd(&p.found->compared, (u32)compared);
            if (nan > 0 || wrong > 0 || norm > 5e-3f)
                atomicCAS(&p.found->row, 0, (u32)row + 1);
        }
    }
}

struct guard_params {
    struct matrix out; /* as 16-bit units */
    const u16 *all;    /* the whole allocation; unwritten bytes are all ones */
    i64 units, begin;  /* number of 16-bit units in `all`, and the unit where the output begins */
    struct findings *found;
};

extern "C" __global__ void tool_guard(const struct guard_params p)
{
    FOR_EACH(i, p.units) {
        i64 at = i - p.begin;
        int inside = 0;
        if (at >= 0) {
            const i64 e = p.out.expert ? at / p.out.expert : 0;
            at -= e * p.out.expert;
            const i64 row = at / p.out.stride;
            inside = row < p.out.each && e * p.out.each + row < p.out.rows &&
                     at % p.out.stride < p.out.cols;
        }
        if (!inside && p.all[i] != 0xffff)
            atomicAdd(&p.found->outside, 1);
    }
}

/* Compares the output with a saved output, then restores the output as before a launch. */
struct again_params {
    uint4 *out;
    const uint4 *saved;
    const uint4 *fresh; /* NULL: all ones */
    i64 n;
    u32 *differ; /* the number of units of 16 bytes that differ is added here */
};

extern "C" __global__ void tool_again(const struct again_params p)
{
    const uint4 ones = {~0u, ~0u, ~0u, ~0u};
    u32 count = 0;
    FOR_EACH(i, p.n) {
        const uint4 a = p.out[i], b = p.saved[i];
        count += a.x != b.x || a.y != b.y || a.z != b.z || a.w != b.w;
        p.out[i] = p.fresh ? p.fresh[i] : ones;
    }
    if (count)
        atomicAdd(p.differ, count);
}

struct read_params {
    const uint4 *data;
    u64 count;
    u32 *out;
};

/* Reads memory, which pushes all other data out of L2 and leaves L2 clean. */
extern "C" __global__ void tool_read(const struct read_params p)
{
    u32 sum = 0;
    FOR_EACH(i, (i64)p.count) {
        const uint4 v = p.data[i];
        sum ^= v.x ^ v.y ^ v.z ^ v.w;
    }
    if (sum == 0x12345678u) /* this never holds, but the compiler cannot know and keeps the reads */
        *p.out = sum;
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

/* Each thread block reports its SM, and keeps the SM until every SM has a thread block
 * (kernels/devices/cuda/order.c). */
extern "C" __global__ void tool_where(int *sm_of)
{
    int sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    sm_of[blockIdx.x] = sm;
    for (const i64 begin = clock64(); clock64() - begin < 20000;)
        ;
}
