/* SPDX-License-Identifier: Apache-2.0 */
/* ---- quantise, hardware: the instructions of the GPU ------------------------------------------ */
#define THREAD ((int)threadIdx.x)
#define BLOCK ((int)blockIdx.x)
#define BLOCKS ((int)gridDim.x)
#define INLINE static __device__ __forceinline__
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
#define PARAMS const __grid_constant__ struct quantise_params

extern __shared__ __align__(128) char shared_memory[];

/* Hides the origin of v from the compiler. */
#define HIDE32(v) asm volatile("" : "+r"(v))

struct words {
    u32 w[4];
};

INLINE struct words read16(const char *from)
{
    struct words r;
#if STREAM
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r.w[0]), "=r"(r.w[1]), "=r"(r.w[2]), "=r"(r.w[3]) : "l"(from));
#else
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r.w[0]), "=r"(r.w[1]), "=r"(r.w[2]), "=r"(r.w[3]) : "l"(from));
#endif
    return r;
}

INLINE void write16(char *to, struct words v)
{
#if STREAM
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};"
                 :: "l"(to), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3]) : "memory");
#else
    *(uint4 *)to = make_uint4(v.w[0], v.w[1], v.w[2], v.w[3]);
#endif
}

INLINE void write8(char *to, u32 a, u32 b)
{
#if STREAM
    asm volatile("st.global.cs.v2.u32 [%0], {%1, %2};" :: "l"(to), "r"(a), "r"(b) : "memory");
#else
    *(uint2 *)to = make_uint2(a, b);
#endif
}

INLINE void barrier(void)
{
    __syncthreads();
}

/* A barrier that also tells each thread if `yes` holds for any thread of the block. */
INLINE int barrier_any(int yes)
{
    return __syncthreads_or(yes);
}

INLINE u32 shuffle_xor(u32 v, int mask)
{
    return __shfl_xor_sync(~0u, v, mask);
}

INLINE int shuffle_up(int v, int by)
{
    return __shfl_up_sync(~0u, v, by);
}

INLINE int shuffle_from(int v, int lane)
{
    return __shfl_sync(~0u, v, lane);
}

INLINE int count_lanes(int yes)
{
    return __popc(__ballot_sync(~0u, yes));
}

INLINE int sum_lanes(int v)
{
    return (int)__reduce_add_sync(~0u, (u32)v);
}

INLINE float bits_to_float(u32 v)
{
    return __uint_as_float(v);
}

INLINE u32 float_to_bits(float v)
{
    return __float_as_uint(v);
}

/* The larger of two pairs of bf16. A NaN loses against a number. */
INLINE u32 max_pairs(u32 a, u32 b)
{
    u32 r;
    asm("max.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

/* Rounded to nearest, never contracted with another operation. */
INLINE float product(float a, float b)
{
    return __fmul_rn(a, b);
}

INLINE float quotient(float a, float b)
{
    return __fdiv_rn(a, b);
}

/* Two floats as e4m3, the first in the low byte: nearest even, clamped to +-448, NaN becomes 0x7f. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define HAS_E4M3 1
INLINE u32 to_e4m3_pair(float low, float high)
{
    u16 r;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(high), "f"(low));
    return r;
}
#else
#define HAS_E4M3 0
#endif
