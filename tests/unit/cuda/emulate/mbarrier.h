/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mbarriers: arrivals and bytes that are expected, and the phase that a thread waits for.
 */
#ifndef GEMMD_TESTS_EMULATE_MBARRIER_H
#define GEMMD_TESTS_EMULATE_MBARRIER_H

#include "tests/unit/cuda/emulate/async.h"

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

/* What another block of a cluster sends may come before it is expected. */
static void mbarrier_bytes(struct emulate_mbarrier *b, int64_t bytes)
{
    b->bytes -= bytes;
    if (b->bytes < 0 && (EMULATE_BLOCKS == 1 || b->pending == 0)) {
        async_fail("more bytes than expected at an mbarrier", b->at);
    }
    mbarrier_changed(b);
}

static void barrier_init(uint32_t bar, uint32_t count)
{
    struct emulate_mbarrier *b = &async_.barriers[async_.n_barriers++];
    if (bar % 8 || bar % EMULATE_SHARED_MAX + 8 > emulate.l.shared_bytes) {
        async_fail("mbarrier outside shared memory", bar);
    }
    *b = (struct emulate_mbarrier){.at = bar, .expected = count, .pending = count};
    snprintf(b->what, sizeof(b->what), "mbarrier %u", bar);
    b->phases.what = b->what;
}

static void barrier_init_fence(void)
{
}

static void barrier_expect(uint32_t bar, uint32_t bytes)
{
    struct emulate_mbarrier *b = mbarrier_at(bar);
    b->bytes += bytes;
    mbarrier_arrive(b);
}

static void barrier_arrive(uint32_t bar, int really)
{
    if (really) {
        mbarrier_arrive(mbarrier_at(bar));
    }
}

static void barrier_wait(uint32_t bar, uint32_t parity)
{
    struct emulate_mbarrier *b = mbarrier_at(bar);
    struct emulate_thread *t = &emulate.threads[emulate.current];
    while ((b->phases.round & 1) == parity) {
        t->waits_for = &b->phases;
        t->round = b->phases.round;
        emulate_switch(&t->fiber, &emulate.scheduler);
    }
}

#endif
