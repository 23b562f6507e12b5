/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that access each other's shared memory in ways that a GPU leaves undefined, and a kernel
 * with allowed accesses: the emulator must tell them apart. Two blocks of a warp each: the first
 * sends, the second has the mbarrier that waits. test_emulated.c compiles them, names a kernel as
 * the entry and knows the expected error message.
 */
#include "kernels/families/grouped_gemm/hopper/params.cu"

#include "tests/unit/cuda/emulate_hopper.h"

enum { BAR_AT = 64, BYTES_AT = 128 };

static int is(const char *name)
{
    return strcmp(emulate.l.entry, name) == 0;
}

static void set_up_blocks(u32 shared)
{
    if (LANE == 0) {
        barrier_init(shared + BAR_AT, is("twice") ? 2 : 1);
        if (!is("no_fence")) {
            barrier_init_fence();
        }
    }
    warp_barrier();
    if (!is("not_begun")) {
        cluster_barrier_arrive();
        cluster_barrier_wait();
    }
}

static void send(u32 shared)
{
    const u32 there = cluster_address(shared, is("no_such_block") ? 2 : 1);
    const u32 bar = is("other_mbarrier") ? shared + BAR_AT : there + BAR_AT;
    const u32 to = is("past_the_end")  ? there + emulate.l.shared_bytes
                   : is("not_aligned") ? there + BYTES_AT + 2
                                       : there + BYTES_AT;
    if (is("their_mbarrier")) {
        barrier_wait(bar, 0);
    } else if (is("their_memory")) {
        shared_load4(to);
    } else {
        cluster_hand4(to, 7, bar);
    }
    if (is("twice")) {
        cluster_hand4(to, 7, bar);
    }
}

static void receive(u32 shared)
{
    if (is("ended")) {
        return;
    }
    if (is("not_acquired")) {
        barrier_wait(shared + BAR_AT, 0);
    } else if (!is("read_early")) {
        cluster_wait(shared + BAR_AT, 0);
    }
    /* "read_early" may read before the bytes are sent */
    if (shared_load4(shared + BYTES_AT) != 7 && !is("read_early")) {
        trap();
    }
    cluster_wait(shared + BAR_AT, 0);
}

static void emulate_entry(void)
{
    const u32 shared = shared_base();
    set_up_blocks(shared);
    if (cluster_rank() == 1) {
        receive(shared);
    } else if (LANE == 0) {
        send(shared);
    }
}
