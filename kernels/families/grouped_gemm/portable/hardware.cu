/* SPDX-License-Identifier: Apache-2.0 */
/* ---- portable, hardware: the instructions of the GPU ----------------------------------------- */
#define THREAD ((int)threadIdx.x)
#define BLOCK ((int)blockIdx.x)
#define BLOCKS ((int)gridDim.x)
#define INLINE static __device__ __forceinline__

extern __shared__ __align__(128) char shared_memory[];

INLINE u32 shared_base(void)
{
    return (u32)__cvta_generic_to_shared(shared_memory);
}

/* Hides the origin of v from the compiler, which would otherwise keep j * v of every unrolled j in registers. */
#define HIDE32(v) asm volatile("" : "+r"(v))
#define HIDE64(v) asm volatile("" : "+l"(v))

INLINE void barrier(void)
{
    __syncthreads();
}

/* Copies 16 bytes from global to shared memory, asynchronously; when `bytes` is 0, reads nothing and writes zeros. */
INLINE void copy16(u32 to, const char *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :: "r"(to), "l"(from), "r"(bytes) : "memory");
}

INLINE void copy_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until all of this thread's groups of cp.async, except the newest NUM_STAGES - 2, are complete. */
INLINE void copy_wait(void)
{
    asm volatile("cp.async.wait_group %0;" :: "n"(NUM_STAGES - 2) : "memory");
}

INLINE void load_matrix(u32 r[4], u32 at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

INLINE void load_matrix_transposed(u32 r[4], u32 at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

/* d (16 x 8, fp32) += a (16 x 16) b (16 x 8) */
INLINE void multiply(float d[4], const u32 a[4], u32 b0, u32 b1)
{
#if IN_BF16 && !SCALED
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

#if SCALED && FP8_MMA
/* d (16 x 8, fp32) += a (16 x 32) b (32 x 8), numbers of fp8 */
INLINE void multiply_fp8(float d[4], const u32 a[4], u32 b0, u32 b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

/* Two floats rounded to the 16-bit type of the output, the first in the low half. */
INLINE u32 round_pair(float low, float high)
{
    u32 r;
#if IN_BF16
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
#else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
#endif
    return r;
}

INLINE float widen(u16 v)
{
    float r;
#if IN_BF16
    r = __uint_as_float((u32)v << 16);
#else
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v));
#endif
    return r;
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

/* The number of lanes of the warp in which `yes` is true. */
INLINE int count_lanes(int yes)
{
    return __popc(__ballot_sync(~0u, yes));
}

INLINE void store16(char *to, u32 a, u32 b, u32 c, u32 d)
{
    *(uint4 *)to = make_uint4(a, b, c, d);
}

INLINE void store8(char *to, float a, float b)
{
    *(float2 *)to = make_float2(a, b);
}
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
#define PARAMS const __grid_constant__ struct portable_params
