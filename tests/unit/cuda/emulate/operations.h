/* SPDX-License-Identifier: Apache-2.0 */
/* Runs each asynchronous operation (async.h) at a moment drawn from the seed, at the latest when a
 * thread waits for it. */
#ifndef GEMMD_TESTS_EMULATE_OPERATIONS_H
#define GEMMD_TESTS_EMULATE_OPERATIONS_H

#include "tests/unit/cuda/emulate/accesses.h"
#include "tests/unit/cuda/emulate/cluster.h"
#include "tests/unit/cuda/emulate/mbarrier.h"
#include "tests/unit/cuda/emulate/tma.h"
#include "tests/unit/cuda/emulate/wgmma.h"

static void run_op(const struct emulate_op *op)
{
    if (op->kind == OP_LOAD && async_has_ended(op->bar)) {
        async_fail("a block has ended before all that is sent to it has come", op->bar);
        return;
    }
    switch (op->kind) {
    case OP_LOAD:
        each_element(op, load_element);
        mbarrier_bytes(mbarrier_at(op->bar), box_bytes(&op->map));
        break;
    case OP_STORE:
    case OP_ADD:
        if (emulate.threads[op->actor].done) {
            async_fail("a thread ended before its stores had read shared memory",
                       (uint64_t)op->actor);
        }
        each_element(op, store_element);
        break;
    case OP_COPIES:
        run_copies(op);
        break;
    case OP_WGMMA:
        run_wgmma(op);
        break;
    }
}

static void run_ops(int (*chosen)(const struct emulate_op *op, int actor, uint32_t group),
                    int actor, uint32_t group)
{
    static struct emulate_op op; /* large; not on a fiber's stack */
    uint32_t kept = 0, n = async_.n_ops;
    for (uint32_t i = 0; i < n && !emulate.failed; i++) {
        if (chosen(&async_.ops[i], actor, group)) {
            op = async_.ops[i];
            run_op(&op);
        } else {
            if (kept != i) {
                async_.ops[kept] = async_.ops[i];
            }
            kept++;
        }
    }
    async_.n_ops = kept;
}

/* Loads and stores run in any order. Copies run in order per thread, wgmmas per warpgroup: 1 holds
 * up the later operations of a thread or warpgroup, because an earlier operation has not run. */
static uint8_t blocked_copies[EMULATE_THREADS_MAX], blocked_wgmmas[EMULATE_THREADS_MAX / 128];

static int by_chance(const struct emulate_op *op, int actor, uint32_t group)
{
    (void)actor, (void)group;
    uint8_t *blocked = op->kind == OP_COPIES  ? &blocked_copies[op->actor]
                       : op->kind == OP_WGMMA ? &blocked_wgmmas[op->actor]
                                              : NULL;
    if ((blocked && *blocked) || emulate_random() % async_.laziness) {
        if (blocked) {
            *blocked = 1;
        }
        return 0;
    }
    return 1;
}

static int emulate_async(void)
{
    memset(blocked_copies, 0, sizeof(blocked_copies));
    memset(blocked_wgmmas, 0, sizeof(blocked_wgmmas));
    int any = async_.n_ops > 0;
    run_ops(by_chance, 0, 0);
    return cluster_go_on() || any;
}

static void emulate_async_end(void)
{
    if (async_.n_asked) {
        async_fail("L2 was asked in vain for boxes", async_.n_asked);
    }
}

/* The list's memory serves all launches, and is freed when dlclose unloads this kernel. */
__attribute__((destructor)) static void async_end(void)
{
    free(async_.ops);
}

static void emulate_async_begin(void)
{
    async_.ops = async_.ops ? async_.ops : malloc(EMULATE_OPS_MAX * sizeof(async_.ops[0]));
    async_.n_ops = async_.n_barriers = async_.n_dirty = async_.n_asked = 0;
    async_.laziness = (uint32_t[]){1, 2, 8, 40}[emulate_random() % 4];
    memset(async_.is_dirty, 0, sizeof(async_.is_dirty));
    memset(async_.named, 0, sizeof(async_.named));
    memset(async_.warpgroups, 0, sizeof(async_.warpgroups));
    memset(async_.stores, 0, sizeof(async_.stores));
    memset(async_.wgmmas, 0, sizeof(async_.wgmmas));
    memset(async_.memory, 0xff, (size_t)emulate.blocks * EMULATE_SHARED_MAX);
    cluster_begin();
}

#endif
