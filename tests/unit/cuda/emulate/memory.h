/* SPDX-License-Identifier: Apache-2.0 */
/* Reads, copies and writes of global and shared memory by a thread. An address outside shared
 * memory or outside the allowed ranges ends the run. */
#ifndef GEMMD_TESTS_EMULATE_MEMORY_H
#define GEMMD_TESTS_EMULATE_MEMORY_H

#include "tests/unit/cuda/emulate/block.h"

static void emulate_allowed(const char *at, size_t bytes, const char *what)
{
    for (uint32_t i = 0; i < emulate.l.n_ranges; i++) {
        if (at >= emulate.l.ranges[i].begin && at + bytes <= emulate.l.ranges[i].end) {
            if ((uintptr_t)at % bytes != 0) {
                emulate_fail("%s of %zu bytes is not aligned: %p", what, bytes, (const void *)at);
            }
            return;
        }
    }
    emulate_fail("%s of %zu bytes outside the operands: %p", what, bytes, (const void *)at);
}

static uint32_t shared_base(void)
{
    return (uint32_t)emulate_rank() * EMULATE_SHARED_MAX;
}

/* The thread block's own memory; cluster.h has accesses to that of other thread blocks. */
static void emulate_shared(uint32_t at, const char *what)
{
    if (at % 16 || at / EMULATE_SHARED_MAX != (uint32_t)emulate_rank() ||
        at % EMULATE_SHARED_MAX + 16 > emulate.l.shared_bytes) {
        emulate_fail("%s at %u of %u bytes of shared memory", what, at, emulate.l.shared_bytes);
    }
}

static void copy16(uint32_t to, const char *from, int bytes)
{
    struct emulate_thread *t = &emulate.threads[emulate.current];
    emulate_shared(to, "copy");
    if (bytes) {
        emulate_allowed(from, 16, "copy");
    }
    if (t->n_copies == EMULATE_COPIES_MAX) {
        emulate_fail("too many copies in flight");
    }
    memset(emulate_memory + to, 0xff, 16);
    t->copies[t->n_copies++] = (struct emulate_copy){to, from, bytes, t->groups};
}

static void copy_commit(void)
{
    emulate.threads[emulate.current].groups++;
}

/* Waits until all copy groups of the thread but the newest `pending` have arrived. */
static void emulate_wait(int pending)
{
    struct emulate_thread *t = &emulate.threads[emulate.current];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < t->n_copies; i++) {
        struct emulate_copy *c = &t->copies[i];
        if (c->group >= t->groups - pending) {
            t->copies[kept++] = *c;
        } else if (c->bytes) {
            memcpy(emulate_memory + c->to, c->from, 16);
        } else {
            memset(emulate_memory + c->to, 0, 16);
        }
    }
    t->n_copies = kept;
}

static void store16(char *to, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    emulate_allowed(to, 16, "store");
    memcpy(to, (uint32_t[]){a, b, c, d}, 16);
}

static void store8(char *to, float a, float b)
{
    emulate_allowed(to, 8, "store");
    memcpy(to, (float[]){a, b}, 8);
}

#endif
