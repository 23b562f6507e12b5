/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's asynchronous operations (TMA, cp.async, wgmma) as a list, and a second copy of shared
 * memory, which TMA and wgmma read. A thread's writes reach this copy only at an async_fence; until
 * then the copy holds NaNs there. */
#ifndef GEMMD_TESTS_EMULATE_ASYNC_H
#define GEMMD_TESTS_EMULATE_ASYNC_H

#include <stddef.h>

#include "tests/unit/cuda/emulate/block.h"
#include "tests/unit/cuda/emulate/numbers.h"

enum {
    EMULATE_OPS_MAX = 65536,
    EMULATE_BARRIERS_MAX = 64 * EMULATE_BLOCKS,
    EMULATE_ASKED_MAX = 4096,
    EMULATE_NAMED = 16, /* barriers of a thread block */
    EMULATE_PIECES = EMULATE_BLOCKS * EMULATE_SHARED_MAX / 16
};

struct EMULATE_ALIGN(64) tensor_map { /* in place of a CUtensorMap: a description by the test */
    struct emulate_map map;
    char rest[128 - sizeof(struct emulate_map)];
};

enum emulate_kind { OP_LOAD, OP_STORE, OP_ADD, OP_COPIES, OP_WGMMA };

struct emulate_op {
    enum emulate_kind kind;
    int actor; /* number of the issuing thread (STORE, COPIES) or warpgroup (WGMMA); LOAD: unused */
    uint32_t group;
    uint32_t shared, bar;
    struct emulate_map map;
    int at[5];
    uint64_t a, b;
    int scale, columns;
    float *d[128];
};

struct emulate_asked { /* a box that a thread prefetched into L2 */
    struct emulate_map map;
    int at[5];
};

struct emulate_mbarrier {
    uint32_t at, expected, pending;
    int64_t bytes;
    int by;           /* the thread that initialised the mbarrier */
    int is_announced; /* a fence made it visible to TMA and to the cluster's other thread blocks */
    int is_told;      /* 1: has counted bytes that other thread blocks sent */
    struct emulate_meeting phases;
    char what[40];
};

static struct {
    struct emulate_op *ops;
    uint32_t n_ops, laziness; /* in each round an operation runs with a chance of 1 in `laziness` */
    struct emulate_mbarrier barriers[EMULATE_BARRIERS_MAX];
    uint32_t n_barriers;
    struct emulate_asked asked[EMULATE_ASKED_MAX]; /* prefetched boxes that no load has read yet */
    uint32_t n_asked;
    struct emulate_meeting named[EMULATE_BLOCKS * EMULATE_NAMED];
    struct emulate_meeting warpgroups[EMULATE_THREADS_MAX / 128];
    float *d[EMULATE_THREADS_MAX];
    uint32_t stores[EMULATE_THREADS_MAX], wgmmas[EMULATE_THREADS_MAX]; /* committed groups */
    uint32_t n_dirty, dirty[EMULATE_PIECES]; /* pieces of 16 bytes that threads wrote */
    uint8_t is_dirty[EMULATE_PIECES];
    float temporary[2][EMULATE_THREADS_MAX]
                   [128]; /* fp8: registers of each thread that wgmma writes */
    char memory[EMULATE_BLOCKS * EMULATE_SHARED_MAX]; /* shared memory as TMA and wgmma see it */
} async_;

/* Notes a fault without a switch of fibers, so that code outside any fiber may call it. */
static void async_fail(const char *what, uint64_t value)
{
    if (!emulate.failed) {
        snprintf(emulate_error, sizeof(emulate_error), "block %d: %s (0x%llx)", emulate.block[0],
                 what, (unsigned long long)value);
    }
    emulate.failed = 1;
}

/* A thread wrote these bytes. On a GPU, TMA and wgmma may see the old or the new bytes until a
 * fence; here they see NaNs. */
static void async_dirty(uint32_t at)
{
    memset(async_.memory + at / 16 * 16, 0xff, 16);
    if (!async_.is_dirty[at / 16]) {
        async_.is_dirty[at / 16] = 1;
        async_.dirty[async_.n_dirty++] = at / 16;
    }
}

static void async_fence(void)
{
    for (uint32_t i = 0; i < async_.n_dirty; i++) {
        const uint32_t piece = async_.dirty[i];
        memcpy(async_.memory + piece * 16, emulate_memory + piece * 16, 16);
        async_.is_dirty[piece] = 0;
    }
    async_.n_dirty = 0;
}

/* True: the thread block with this place in shared memory has ended: it may get no more bytes. */
static int async_has_ended(uint32_t at)
{
    const uint32_t first = at / EMULATE_SHARED_MAX * emulate.l.threads;
    for (uint32_t i = first; i < first + emulate.l.threads; i++) {
        if (!emulate.threads[i].done) {
            return 0;
        }
    }
    return 1;
}

/* Fails unless `to` is in a thread block that has not ended, and `bar`, which counts the bytes, in
 * the same. */
static void async_check_place(uint32_t to, uint32_t bar)
{
    const uint32_t rank = to / EMULATE_SHARED_MAX;
    if (rank >= (uint32_t)emulate.blocks || bar / EMULATE_SHARED_MAX != rank) {
        emulate_fail("sends to %u of block %u of %d, counted by %u of block %u",
                     to % EMULATE_SHARED_MAX, rank, emulate.blocks, bar % EMULATE_SHARED_MAX,
                     bar / EMULATE_SHARED_MAX);
    }
    if (async_has_ended(to)) {
        emulate_fail("sends to %u of block %u of the cluster, which has ended",
                     to % EMULATE_SHARED_MAX, rank);
    }
}

EMULATE_FAST
static uint32_t swizzle_128(uint32_t at)
{
    return at ^ (at >> 7 & 7) << 4;
}
EMULATE_FAST_END

static struct emulate_op *new_op(enum emulate_kind kind, int actor, uint32_t group)
{
    static struct emulate_op none;
    if (async_.n_ops == EMULATE_OPS_MAX) {
        async_fail("too many operations", 0);
        return &none;
    }
    struct emulate_op *op = &async_.ops[async_.n_ops++];
    memset(op, 0, offsetof(struct emulate_op, d));
    op->kind = kind;
    op->actor = actor;
    op->group = group;
    return op;
}

/* Runs the operations that `chosen` accepts, in the order of issue (operations.h). */
static void run_ops(int (*chosen)(const struct emulate_op *op, int actor, uint32_t group),
                    int actor, uint32_t group);

#endif
