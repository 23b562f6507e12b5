/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part "ptx" of the hopper template for the CPU, over the fibers of emulate.h. The GPU's
 * asynchronous work becomes a list of operations. Each runs at a later moment drawn from the seed,
 * at the latest when a thread waits for the operation:
 *
 *   TMA loads     fill their box with NaNs at once. The data and the mbarrier's count come later.
 *   TMA stores    read shared memory later, at the latest when their thread waits for the read.
 *   cp.async      writes NaNs at once. Data and the mbarrier's arrival come later, in order per
 *                 thread.
 *   wgmma         reads shared memory and writes accumulators later, in order per warpgroup.
 *   clusters      bytes for another thread block come later, in no order (emulate/cluster.h).
 *
 * wgmma and TMA stores read a second copy of shared memory, which gets a thread's writes only at an
 * async_fence. Faults show as wrong results or as a wait for ever: a stage given back too early, a
 * wrong parity or byte count, a buffer written while its store is pending, a missing fence.
 * Addresses follow the hardware's documentation, from unchanged tensor maps and descriptors.
 */
#ifndef GEMMD_TESTS_EMULATE_HOPPER_H
#define GEMMD_TESTS_EMULATE_HOPPER_H

#define EMULATE_ASYNC
#define EMULATE_BLOCKS (KSPLIT ? 8 : CLUSTER)
#define copy16         emulate_copy16 /* accesses.h builds the hopper template's copy16 on this one */
#include "tests/unit/cuda/emulate.h"
#undef copy16
#undef PARAMS

#define HOPPER_EMULATED
#define LANE                       (THREAD & 31)
#define KERNEL_OF(threads, blocks) static void
#define CALLED                     static
#define PARAMS(type)               const struct type
#define EMULATE_ALIGN(n)           __attribute__((aligned(n)))

#include "tests/unit/cuda/emulate/async.h"
#include "tests/unit/cuda/emulate/cluster.h"
#include "tests/unit/cuda/emulate/mbarrier.h"
#include "tests/unit/cuda/emulate/tma.h"
#include "tests/unit/cuda/emulate/wgmma.h"
#include "tests/unit/cuda/emulate/accesses.h"
#include "tests/unit/cuda/emulate/operations.h"

static int uniform(int v)
{
    return v;
}

static i64 kept(i64 x)
{
    return x;
}

static int elected_by(u32 *leader)
{
    *leader = 0;
    return LANE == 0;
}

static int elected(void)
{
    u32 leader;
    return elected_by(&leader);
}

static void trap(void)
{
    emulate_fail("trap");
}

static const char *as_it_is(const char *at)
{
    return at;
}

static struct emulate_meeting *warp_meeting(void)
{
    return &emulate.warps[emulate.current / 32].meeting;
}

static void warp_barrier(void)
{
    emulate_meet(warp_meeting(), 32, "syncwarp");
}

static void block_barrier(void)
{
    barrier();
}

static struct emulate_meeting *named_barrier(int id)
{
    return &async_.named[emulate_rank() * EMULATE_NAMED + id];
}

static void group_barrier(int id, int threads)
{
    emulate_meet(named_barrier(id), (uint32_t)threads, "bar");
}

static void group_arrive(int id, int threads)
{
    struct emulate_meeting *m = named_barrier(id);
    m->what = m->arrived ? m->what : "bar";
    if (++m->arrived == (uint32_t)threads) {
        m->arrived = 0;
        m->round++;
    }
}

static void registers_give(void)
{
}
static void registers_take(void)
{
}

#endif
