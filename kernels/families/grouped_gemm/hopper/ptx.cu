/* SPDX-License-Identifier: Apache-2.0 */
/* ---- ptx: the instructions ---------------------------------------------------------------------- */
/*
 * PTX instructions, a function each. `at` and `to` (shared memory) are byte addresses in the shared window; `bar` is
 * the address of an mbarrier.
 */
#ifndef HOPPER_EMULATED
#pragma nv_diag_suppress 128 /* no warning about loops that a variant's options make empty */
#pragma nv_diag_suppress 177 /* no warning about functions that a variant does not use */

#define THREAD ((int)threadIdx.x)
#define BLOCK ((int)blockIdx.x)
#define BLOCKS ((int)gridDim.x)
#define LANE (THREAD & 31)
#define INLINE static __device__ __forceinline__
#define CALLED static __device__ __noinline__
#define KERNEL_OF(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)
#define PARAMS(type) const __grid_constant__ struct type

struct __align__(64) tensor_map {
    u64 opaque[16];
};

extern __shared__ __align__(1024) char shared_memory[];

INLINE u32 shared_base(void)
{
    return (u32)__cvta_generic_to_shared(shared_memory);
}

/* Returns v, and tells the compiler that v is the same in all lanes. */
INLINE int uniform(int v)
{
    return __shfl_sync(~0u, v, 0);
}

/* True in one lane of the whole warp, which is the same lane at every call; *leader is its
 * number. The compiler knows that code under this test runs once, and passes arguments of TMA
 * straight to uniform registers. Under a test of LANE the compiler would write a loop over lanes
 * that takes 0.1 microseconds for each box. */
INLINE int elected_by(u32 *leader)
{
    u32 one;
    asm volatile("{\n\t.reg .pred p;\n\t"
                 "elect.sync %1|p, 0xffffffff;\n\t"
                 "selp.u32 %0, 1, 0, p;\n\t}" : "=r"(one), "=r"(*leader));
    return one != 0;
}

INLINE int elected(void)
{
    u32 leader;
    return elected_by(&leader);
}

INLINE void trap(void)
{
    __trap();
}

/* -- lanes -- */

INLINE int shuffle_up(int v, int by)
{
    return __shfl_up_sync(~0u, v, by);
}

INLINE int shuffle_from(int v, int lane)
{
    return __shfl_sync(~0u, v, lane);
}

/* The number of the warp's lanes in which `yes` is true. */
INLINE int count_lanes(int yes)
{
    return __popc(__ballot_sync(~0u, yes));
}

/* True in all lanes if `yes` is true in any lane. All lanes meet here. */
INLINE int any_lane(int yes)
{
    return __any_sync(~0u, yes);
}

INLINE void warp_barrier(void)
{
    __syncwarp();
}

INLINE void block_barrier(void)
{
    __syncthreads();
}

/* Named barriers: `threads` counts the threads that wait (bar.sync) and that only arrive (bar.arrive). */
INLINE void group_barrier(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory");
}

INLINE void group_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(threads) : "memory");
}

#if CONSUMER_REGISTERS
INLINE void registers_give(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(PRODUCER_REGISTERS));
}

INLINE void registers_take(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(CONSUMER_REGISTERS));
}
#else
INLINE void registers_give(void) {}
INLINE void registers_take(void) {}
#endif

/* -- mbarriers -- */

INLINE void barrier_init(u32 bar, u32 count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(count) : "memory");
}

/* Makes the initialised barriers visible to TMA. */
INLINE void barrier_init_fence(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Arrives at the barrier once, and makes its phase wait for `bytes` more bytes. */
INLINE void barrier_expect(u32 bar, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;"
                 :: "r"(bar), "r"(bytes) : "memory");
}

INLINE void barrier_arrive(u32 bar, int really)
{
    asm volatile("{\n\t.reg .pred p;\n\t"
                 "setp.ne.b32 p, %1, 0;\n\t"
                 "@p mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];\n\t}"
                 :: "r"(bar), "r"(really) : "memory");
}

/* Waits until the mbarrier's phase of this parity (0, 1, 0, ...) has ended. */
INLINE void barrier_wait(u32 bar, u32 parity)
{
    asm volatile("{\n\t.reg .pred p;\n\t"
                 "again:\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n\t"
                 "@p bra done;\n\t"
                 "bra again;\n\t"
                 "done:\n\t}"
                 :: "r"(bar), "r"(parity) : "memory");
}

/* -- clusters -- */

#if KSPLIT || CLUSTER > 1
/* The number of this thread block in its cluster, and the size of the cluster. */
INLINE u32 cluster_rank(void)
{
    u32 r;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

INLINE u32 cluster_size(void)
{
    u32 r;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(r));
    return r;
}

/* Divides v by the cluster's size, a power of two. */
INLINE u32 divide_by_size(u32 v)
{
    return v >> (31 - __clz((int)cluster_size()));
}

/* Barrier of all threads of the cluster: each arrives, then each waits for all. Other thread blocks must see only
 * mbarriers, which barrier_init_fence publishes; a release would wait for all memory. */
INLINE void cluster_barrier_arrive(void)
{
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}

INLINE void cluster_barrier_wait(void)
{
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

/* The address of the same byte of shared memory in another thread block of the cluster. */
INLINE u32 cluster_address(u32 at, u32 rank)
{
    u32 r;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(at), "r"(rank));
    return r;
}

/* Stores 16 bytes in the shared memory of any thread block of the cluster; a barrier of that thread block counts
 * the bytes. */
INLINE void cluster_store16(u32 to, const u32 v[4], u32 bar)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];"
                 :: "r"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]), "r"(bar) : "memory");
}

/* Stores four bytes in the same way, and arrives at their mbarrier, whose phase has no other bytes. */
INLINE void cluster_hand4(u32 to, int v, u32 bar)
{
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cluster.b64 _, [%0], 4;" :: "r"(bar) : "memory");
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
                 :: "r"(to), "r"(v), "r"(bar) : "memory");
}

/* Arrives at the barrier of any thread block of the cluster; for threads that have only read. Their loads are
 * complete, because the values have been used. PTX's memory model would need a release at cluster scope, but that
 * becomes MEMBAR.ALL.GPU, which waits until the output has reached L2. */
INLINE void cluster_arrive_read(u32 bar)
{
    asm volatile("mbarrier.arrive.release.cta.shared::cluster.b64 _, [%0];" :: "r"(bar) : "memory");
}

INLINE void cluster_wait(u32 bar, u32 parity)
{
    asm volatile("{\n\t.reg .pred p;\n\t"
                 "again:\n\t"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n\t"
                 "@p bra done;\n\t"
                 "bra again;\n\t"
                 "done:\n\t}"
                 :: "r"(bar), "r"(parity) : "memory");
}
#endif

/* -- TMA -- */

INLINE void map_prefetch(const struct tensor_map *map)
{
    asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory");
}

INLINE u64 policy_normal(void)
{
    u64 r;
    asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(r));
    return r;
}

INLINE u64 policy_evict_first(void)
{
    u64 r;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(r));
    return r;
}

INLINE u64 policy_evict_unchanged(void)
{
    u64 r;
    asm("createpolicy.fractional.L2::evict_unchanged.b64 %0, 1.0;" : "=l"(r));
    return r;
}

INLINE void load_3d(u32 to, const struct tensor_map *map, int x, int y, int z, u32 bar, u64 policy)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;"
                 :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(bar), "l"(policy) : "memory");
}

INLINE void load_4d(u32 to, const struct tensor_map *map, int x, int y, int z, int w, u32 bar)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3, %4, %5}], [%6];"
                 :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(bar) : "memory");
}

INLINE void load_5d(u32 to, const struct tensor_map *map, int x, int y, int z, int w, int v,
                    u32 bar)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3, %4, %5, %6}], [%7];"
                 :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "r"(bar)
                 : "memory");
}

#if CLUSTER > 1
/* Loads a box to the same place in the shared memory of all thread blocks of the cluster; the barrier of each
 * counts the bytes. */
INLINE void load_3d_to_all(u32 to, const struct tensor_map *map, int x, int y, int z, u32 bar, u64 policy)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6, %7;"
                 :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(bar), "h"((u16)((1 << CLUSTER) - 1)), "l"(policy)
                 : "memory");
}

INLINE void load_5d_to_all(u32 to, const struct tensor_map *map, int x, int y, int z, int w, int v,
                           u32 bar)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;"
                 :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "r"(bar),
                    "h"((u16)((1 << CLUSTER) - 1))
                 : "memory");
}
#endif

/* Loads a box, like the functions above, but only into L2; no barrier counts its bytes. */
INLINE void ask_3d(const struct tensor_map *map, int x, int y, int z)
{
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global [%0, {%1, %2, %3}];"
                 :: "l"(map), "r"(x), "r"(y), "r"(z) : "memory");
}

INLINE void ask_4d(const struct tensor_map *map, int x, int y, int z, int w)
{
    asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global [%0, {%1, %2, %3, %4}];"
                 :: "l"(map), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}

/* Requests into L2 the line of 128 bytes around `of`. */
INLINE void ask_line(const char *of)
{
    asm volatile("prefetch.global.L2 [%0];" :: "l"(of) : "memory");
}

/* Requests `bytes` bytes, a multiple of 16, into L2. */
INLINE void ask_bytes(const char *from, u32 bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" :: "l"(from), "r"(bytes) : "memory");
}

INLINE void store_3d(const struct tensor_map *map, u32 from, int x, int y, int z, u64 policy)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group.L2::cache_hint "
                 "[%0, {%2, %3, %4}], [%1], %5;"
                 :: "l"(map), "r"(from), "r"(x), "r"(y), "r"(z), "l"(policy) : "memory");
}

/* Stores a box like the function above, but adds to the destination. */
INLINE void add_3d(const struct tensor_map *map, u32 from, int x, int y, int z)
{
    asm volatile("cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group "
                 "[%0, {%2, %3, %4}], [%1];"
                 :: "l"(map), "r"(from), "r"(x), "r"(y), "r"(z) : "memory");
}

INLINE void add_4d(const struct tensor_map *map, u32 from, int x, int y, int z, int w)
{
    asm volatile("cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group "
                 "[%0, {%2, %3, %4, %5}], [%1];"
                 :: "l"(map), "r"(from), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}

INLINE void store_4d_hinted(const struct tensor_map *map, u32 from, int x, int y, int z, int w, u64 policy)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group.L2::cache_hint "
                 "[%0, {%2, %3, %4, %5}], [%1], %6;"
                 :: "l"(map), "r"(from), "r"(x), "r"(y), "r"(z), "r"(w), "l"(policy) : "memory");
}

INLINE void store_4d(const struct tensor_map *map, u32 from, int x, int y, int z, int w)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group "
                 "[%0, {%2, %3, %4, %5}], [%1];"
                 :: "l"(map), "r"(from), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}

INLINE void stores_commit(void)
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Waits until all of this thread's stores, except the newest `pending`, have read their shared memory. */
#define STORES_WAIT_READ(pending)                                                                  \
    asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(pending) : "memory")

/* Makes this thread's writes to shared memory, and writes that it saw, visible to TMA and wgmma. */
INLINE void async_fence(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* -- copies by threads -- */

/* Returns the same address, with its origin hidden from the compiler. Each later sum is a single multiply-add;
 * otherwise the compiler would add up the parts of the address each time. */
INLINE const char *as_it_is(const char *at)
{
    asm("" : "+l"(at));
    return at;
}

/* Copies 16 bytes from global to shared memory; when `bytes` is 0, reads nothing and writes zeros. */
INLINE void copy16(u32 to, const char *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :: "r"(to), "l"(from), "r"(bytes) : "memory");
}

INLINE void copy16_whole(u32 to, const char *from)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" :: "r"(to), "l"(from) : "memory");
}

INLINE void copy4(u32 to, const char *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(from) : "memory");
}

/* Copies 16 bytes, so that memory brings the 256 bytes around them to L2. Products without KSPLIT took 2 % longer with
 * ask_line instead, and 3 % longer with ask_bytes. */
INLINE void touch(u32 to, const char *from)
{
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" :: "r"(to), "l"(from) : "memory");
}

/* Arrives at the barrier when all earlier copies of this thread are done. */
INLINE void copies_arrive(u32 bar)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(bar) : "memory");
}

INLINE void copies_wait(void)
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

INLINE void global_load16(u32 v[4], const char *from)
{
    const uint4 r = *(const uint4 *)from;
    v[0] = r.x;
    v[1] = r.y;
    v[2] = r.z;
    v[3] = r.w;
}

INLINE void global_store16(char *to, const u32 v[4])
{
    *(uint4 *)to = make_uint4(v[0], v[1], v[2], v[3]);
}

INLINE void global_store16_hinted(char *to, const u32 v[4], u64 policy)
{
    asm volatile("st.global.L2::cache_hint.v4.b32 [%0], {%1, %2, %3, %4}, %5;"
                 :: "l"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]), "l"(policy) : "memory");
}

INLINE void shared_load16(u32 v[4], u32 at)
{
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(at) : "memory");
}

INLINE int shared_load4(u32 at)
{
    int r;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(r) : "r"(at) : "memory");
    return r;
}

INLINE void shared_store4(u32 at, int v)
{
    asm volatile("st.shared.b32 [%0], %1;" :: "r"(at), "r"(v) : "memory");
}

/* Adds v at `at`, atomically. Returns the value before the addition. */
INLINE u32 global_add(u32 *at, u32 v)
{
    return atomicAdd(at, v);
}

INLINE void shared_store8(u32 at, float a, float b)
{
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" :: "r"(at), "f"(a), "f"(b) : "memory");
}

/* Stores four 8 x 8 matrices of 16-bit elements (stmatrix); lane l gives the address of row l % 8 of matrix l / 8. */
INLINE void store_matrices(u32 at, u32 a, u32 b, u32 c, u32 d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 :: "r"(at), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

/* Stores the matrices transposed: rows of the stored matrix are columns of the lanes' matrix. */
INLINE void store_matrices_transposed(u32 at, u32 a, u32 b, u32 c, u32 d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 :: "r"(at), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

/* -- numbers -- */

#if IN_BF16
#define IN_TYPE "bf16"
#else
#define IN_TYPE "f16"
#endif

/* Two floats rounded to the input type, the first in the low half. */
INLINE u32 round_pair(float low, float high)
{
    u32 r;
    asm("cvt.rn." IN_TYPE "x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

/* Products of pairs, each rounded once. */
INLINE u32 multiply_pair(u32 a, u32 b)
{
    u32 r;
    asm("mul.rn." IN_TYPE "x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

INLINE u32 float_bits(float v)
{
    return __float_as_uint(v);
}

INLINE float bits_float(u32 v)
{
    return __uint_as_float(v);
}
#endif
