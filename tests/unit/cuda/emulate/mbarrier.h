/* SPDX-License-Identifier: Apache-2.0 */
/* mbarriers: the expected arrivals and bytes, and the phase that a thread waits for. */
#ifndef GEMMD_TESTS_EMULATE_MBARRIER_H
#define GEMMD_TESTS_EMULATE_MBARRIER_H

#include "tests/unit/cuda/emulate/async.h"

enum { EMULATE_BYTES_MOST = (1 << 20) - 1 };

static struct emulate_mbarrier *mbarrier_at(uint32_t at)
{
    for (uint32_t i = 0; i < async_.n_barriers; i++) {
        if (async_.barriers[i].at == at) {
            return &async_.barriers[i];
        }
    }
    async_fail("no mbarrier here", at);
    return &async_.barriers[0];
}

/* Returns an mbarrier of the current thread block, for a wait or an arrival. Only the operations
 * of cluster.h reach the mbarriers of other thread blocks. */
static struct emulate_mbarrier *mbarrier_own(uint32_t at)
{
    if (at / EMULATE_SHARED_MAX != (uint32_t)emulate_rank()) {
        emulate_fail("the mbarrier of another block, at %u", at);
    }
    return mbarrier_at(at);
}

/* Returns the mbarrier at this address, for TMA or threads of other thread blocks: they see an
 * mbarrier only after the fence that follows its initialisation. */
static struct emulate_mbarrier *mbarrier_announced(uint32_t at)
{
    struct emulate_mbarrier *b = mbarrier_at(at);
    if (!b->is_announced) {
        async_fail("an mbarrier that no fence has shown to others", at);
    }
    return b;
}

static void mbarrier_changed(struct emulate_mbarrier *b)
{
    if (b->pending == 0 && b->bytes == 0) {
        b->pending = b->expected;
        b->phases.round++;
    }
}

static void mbarrier_arrive(struct emulate_mbarrier *b)
{
    if (b->pending == 0) {
        async_fail("more arrivals than expected at an mbarrier", b->at);
        return;
    }
    b->pending--;
    mbarrier_changed(b);
}

/* Counts arrived bytes. Bytes of another thread block may arrive before a thread announces
 * (expects) them. */
static void mbarrier_bytes(struct emulate_mbarrier *b, int64_t bytes)
{
    b->bytes -= bytes;
    if (b->bytes < 0 && (emulate.blocks == 1 || b->pending == 0)) {
        async_fail("more bytes than expected at an mbarrier", b->at);
    }
    mbarrier_changed(b);
}

static void barrier_init(uint32_t bar, uint32_t count)
{
    if (async_.n_barriers == EMULATE_BARRIERS_MAX) {
        emulate_fail("more than %u mbarriers", async_.n_barriers);
    }
    struct emulate_mbarrier *b = &async_.barriers[async_.n_barriers++];
    if (bar / EMULATE_SHARED_MAX != (uint32_t)emulate_rank() || bar % 8 ||
        bar % EMULATE_SHARED_MAX + 8 > emulate.l.shared_bytes) {
        async_fail("mbarrier outside shared memory", bar);
    }
    *b = (struct emulate_mbarrier){
        .at = bar, .expected = count, .pending = count, .by = emulate.current};
    snprintf(b->what, sizeof(b->what), "mbarrier %u", bar);
    b->phases.what = b->what;
}

static void barrier_init_fence(void)
{
    for (uint32_t i = 0; i < async_.n_barriers; i++) {
        async_.barriers[i].is_announced |= async_.barriers[i].by == emulate.current;
    }
}

static void mbarrier_expect(struct emulate_mbarrier *b, uint32_t bytes)
{
    b->bytes += bytes;
    if (b->bytes > EMULATE_BYTES_MOST) {
        async_fail("more bytes than an mbarrier counts", b->at);
    }
    mbarrier_arrive(b);
}

static void barrier_expect(uint32_t bar, uint32_t bytes)
{
    mbarrier_expect(mbarrier_own(bar), bytes);
    emulate_linger(EMULATE_LINGER_CHANCE, EMULATE_LINGER_MOST);
}

static void barrier_arrive(uint32_t bar, int really)
{
    if (really) {
        mbarrier_arrive(mbarrier_own(bar));
        emulate_linger(EMULATE_LINGER_CHANCE, EMULATE_LINGER_MOST);
    }
}

static struct emulate_mbarrier *mbarrier_wait(uint32_t bar, uint32_t parity)
{
    struct emulate_mbarrier *b = mbarrier_own(bar);
    struct emulate_thread *t = &emulate.threads[emulate.current];
    while ((b->phases.round & 1) == parity) {
        t->waits_for = &b->phases;
        t->round = b->phases.round;
        emulate_switch(&t->fiber, &emulate.scheduler);
    }
    emulate_linger(EMULATE_LATE_CHANCE, EMULATE_LINGER_MOST);
    return b;
}

/* Waits with acquire at the scope of the thread block: the thread may not see bytes that other
 * thread blocks sent. For these the kernel must use cluster_wait. */
static void barrier_wait(uint32_t bar, uint32_t parity)
{
    if (mbarrier_wait(bar, parity)->is_told) {
        emulate_fail("waits for bytes of other blocks at %u, but only as its own are seen", bar);
    }
}

#endif
