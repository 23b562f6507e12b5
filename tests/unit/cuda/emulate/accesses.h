/* SPDX-License-Identifier: Apache-2.0 */
/* Reads, copies and writes of memory by the hopper template's threads: TMA and wgmma see a thread's
 * writes to shared memory only after a fence, and a copy ends with an arrival at an mbarrier. */
#ifndef GEMMD_TESTS_EMULATE_ACCESSES_H
#define GEMMD_TESTS_EMULATE_ACCESSES_H

#include "tests/unit/cuda/emulate/async.h"
#include "tests/unit/cuda/emulate/cluster.h"
#include "tests/unit/cuda/emulate/mbarrier.h"
#include "tests/unit/cuda/emulate/memory.h"
#include "tests/unit/cuda/emulate/tma.h"
#include "tests/unit/cuda/emulate/warp.h"

static void copy16(uint32_t to, const char *from, int bytes)
{
    emulate_copy16(to, from, bytes);
    memset(async_.memory + to, 0xff, 16);
}

static void copy16_whole(uint32_t to, const char *from)
{
    copy16(to, from, 16);
}

/* cp.async of four bytes, which arrive as copies_arrive() says, at the latest at the thread's next
 * copies_wait(). */
static void copy4(uint32_t to, const char *from)
{
    struct emulate_thread *t = &emulate.threads[emulate.current];
    emulate_shared(to / 16 * 16, "copy of 4 bytes");
    emulate_allowed(from, 4, "copy of 4 bytes");
    if (to % 4 || t->n_copies4 == EMULATE_COPIES4_MAX) {
        emulate_fail("copy of 4 bytes to %u, %u in flight", to, t->n_copies4);
    }
    memset(emulate_memory + to, 0xff, 4);
    t->copies4[t->n_copies4++] = (struct emulate_copy){to, from, 4, t->groups};
}

/* Ends a thread's copies of four bytes up to a group. */
static void copies4_arrive(struct emulate_thread *t, int group)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < t->n_copies4; i++) {
        const struct emulate_copy *c = &t->copies4[i];
        if (c->group > group) {
            t->copies4[kept++] = *c;
        } else {
            memcpy(emulate_memory + c->to, c->from, 4);
        }
    }
    t->n_copies4 = kept;
}

/* A copy that only brings the source into L2: no thread reads the copied bytes, which are NaNs
 * here. */
static void touch(uint32_t to, const char *from)
{
    emulate_shared(to, "touch");
    emulate_allowed(from, 16, "touch");
    memset(emulate_memory + to, 0xff, 16);
    memset(async_.memory + to, 0xff, 16);
}

static void copies_arrive(uint32_t bar)
{
    struct emulate_thread *t = &emulate.threads[emulate.current];
    struct emulate_op *op = new_op(OP_COPIES, emulate.current, (uint32_t)t->groups);
    op->bar = bar;
    t->groups++;
}

/* cp.async.wait_all. Here it ends copies of 4 bytes only: copies of 16 bytes end by
 * copies_arrive(). */
static void copies_wait(void)
{
    struct emulate_thread *t = &emulate.threads[emulate.current];
    copies4_arrive(t, t->groups);
}

static void run_copies(const struct emulate_op *op)
{
    struct emulate_thread *t = &emulate.threads[op->actor];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < t->n_copies; i++) {
        struct emulate_copy *c = &t->copies[i];
        if ((uint32_t)c->group > op->group) {
            t->copies[kept++] = *c;
            continue;
        }
        if (c->bytes) {
            memcpy(emulate_memory + c->to, c->from, 16);
        } else {
            memset(emulate_memory + c->to, 0, 16);
        }
        async_dirty(c->to);
    }
    t->n_copies = kept;
    copies4_arrive(t, (int)op->group);
    mbarrier_arrive(mbarrier_at(op->bar));
}

static void global_load16(uint32_t v[4], const char *from)
{
    emulate_allowed(from, 16, "load");
    memcpy(v, from, 16);
}

static void global_store16(char *to, const uint32_t v[4])
{
    store16(to, v[0], v[1], v[2], v[3]);
}

static void global_store16_hinted(char *to, const uint32_t v[4], uint64_t policy)
{
    policy_check(policy);
    global_store16(to, v);
}

static void shared_load16(uint32_t v[4], uint32_t at)
{
    emulate_shared(at, "load");
    cluster_must_have_come(at, 16, "load");
    memcpy(v, emulate_memory + at, 16);
}

static int shared_load4(uint32_t at)
{
    int v;
    emulate_shared(at & ~15u, "load");
    cluster_must_have_come(at, 4, "load");
    memcpy(&v, emulate_memory + at, 4);
    return v;
}

static void shared_store4(uint32_t at, int v)
{
    emulate_shared(at & ~15u, "store");
    cluster_must_have_come(at, 4, "store");
    memcpy(emulate_memory + at, &v, 4);
}

static uint32_t global_add(uint32_t *at, uint32_t v)
{
    const uint32_t before = *at;
    emulate_allowed((const char *)at, 4, "add");
    *at += v;
    return before;
}

static void shared_store8(uint32_t at, float a, float b)
{
    emulate_shared(at & ~15u, "store");
    cluster_must_have_come(at, 8, "store");
    memcpy(emulate_memory + at, (float[]){a, b}, 8);
    async_dirty(at);
}

static void emulate_stmatrix(struct emulate_warp *w)
{
    for (int m = 0; m < 4; m++) {
        for (int row = 0; row < 8; row++) {
            const uint32_t at = w->in[m * 8 + row][0];
            for (int i = 0; i < 4; i++) {
                memcpy(emulate_memory + at + i * 4, &w->in[row * 4 + i][1 + m], 4);
            }
            async_dirty(at);
        }
    }
}

static void store_matrices(uint32_t at, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    emulate_shared(at, "stmatrix");
    emulate_exchange("stmatrix", (uint32_t[]){at, a, b, c, d}, 5, emulate_stmatrix);
}

static void emulate_stmatrix_trans(struct emulate_warp *w)
{
    for (int m = 0; m < 4; m++) {
        for (int row = 0; row < 8; row++) {
            const uint32_t at = w->in[m * 8 + row][0];
            for (int i = 0; i < 8; i++) {
                const uint16_t v = (uint16_t)(w->in[i * 4 + row / 2][1 + m] >> (row % 2 * 16));
                memcpy(emulate_memory + at + i * 2, &v, 2);
            }
            async_dirty(at);
        }
    }
}

static void store_matrices_transposed(uint32_t at, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    emulate_shared(at, "stmatrix.trans");
    emulate_exchange("stmatrix.trans", (uint32_t[]){at, a, b, c, d}, 5, emulate_stmatrix_trans);
}

static uint32_t multiply_pair(uint32_t a, uint32_t b)
{
    return round_pair(widen((uint16_t)a) * widen((uint16_t)b),
                      widen((uint16_t)(a >> 16)) * widen((uint16_t)(b >> 16)));
}

static uint32_t float_bits(float v)
{
    return float_to_bits(v);
}

static float bits_float(uint32_t v)
{
    return bits_to_float(v);
}

#endif
