/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TMA: loads, stores and additions of boxes by tensor maps, with the 128-byte swizzle.
 */
#ifndef GEMMD_TESTS_EMULATE_TMA_H
#define GEMMD_TESTS_EMULATE_TMA_H

#include "tests/unit/cuda/emulate/async.h"
#include "tests/unit/cuda/emulate/mbarrier.h"

static int async_allowed(const char *at, size_t bytes)
{
    for (uint32_t i = 0; i < emulate.l.n_ranges; i++) {
        if (at >= emulate.l.ranges[i].begin && at + bytes <= emulate.l.ranges[i].end) {
            return 1;
        }
    }
    return 0;
}

static uint32_t box_bytes(const struct emulate_map *m)
{
    uint32_t n = m->element;
    for (uint32_t i = 0; i < m->rank; i++) {
        n *= m->box[i];
    }
    return n;
}

/* Calls `each` for every element of the box, with the element's address (NULL outside the matrix)
 * and its place in shared memory. */
static void each_element(const struct emulate_op *op,
                         void (*each)(const struct emulate_op *op, char *global, uint32_t shared))
{
    const struct emulate_map *m = &op->map;
    uint32_t n = box_bytes(m) / m->element, index[5] = {0};
    for (uint32_t i = 0; i < n; i++) {
        uint64_t address = (uint64_t)(uintptr_t)m->base;
        int inside = 1;
        for (uint32_t d = 0; d < m->rank; d++) {
            int64_t c = (int64_t)op->at[d] + index[d];
            inside = inside && c >= 0 && (uint64_t)c < m->size[d];
            address += (uint64_t)c * (d ? m->stride[d - 1] : m->element);
        }
        each(op, inside ? (char *)(uintptr_t)address : NULL,
             swizzle_128(op->shared + i * m->element));
        for (uint32_t d = 0; d < m->rank && ++index[d] == m->box[d]; d++) {
            index[d] = 0;
        }
    }
}

static void load_element(const struct emulate_op *op, char *global, uint32_t shared)
{
    if (!global) {
        memset(emulate_memory + shared, 0, op->map.element);
    } else if (!async_allowed(global, op->map.element)) {
        async_fail("TMA load outside the operands", (uintptr_t)global);
    } else {
        memcpy(emulate_memory + shared, global, op->map.element);
    }
    memcpy(async_.memory + shared, emulate_memory + shared, op->map.element);
}

static void store_element(const struct emulate_op *op, char *global, uint32_t shared)
{
    if (!global) {
        return;
    }
    if (!async_allowed(global, op->map.element)) {
        async_fail("TMA store outside the output", (uintptr_t)global);
    } else if (op->kind == OP_ADD) {
        float old, more;
        memcpy(&old, global, 4);
        memcpy(&more, async_.memory + shared, 4);
        old += more;
        memcpy(global, &old, 4);
    } else {
        memcpy(global, async_.memory + shared, op->map.element);
    }
}

static void map_prefetch(const struct tensor_map *map)
{
    if (!map->map.base) {
        emulate_fail("a tensor map that the plan did not ask for");
    }
}

static uint64_t policy_normal(void)
{
    return 1;
}

static uint64_t policy_evict_first(void)
{
    return 2;
}

static uint64_t policy_evict_unchanged(void)
{
    return 3;
}

/* Notes a prefetch, which has no effect: the same thread block must load the same box later. */
static void ask(const struct tensor_map *map, const int at[5])
{
    if (!map->map.base || async_.n_asked == EMULATE_ASKED_MAX) {
        emulate_fail("L2 is asked with a map of %p, for box %u", map->map.base, async_.n_asked);
    }
    struct emulate_asked *a = &async_.asked[async_.n_asked++];
    a->map = map->map;
    memcpy(a->at, at, sizeof(a->at));
}

static void no_longer_asked(const struct tensor_map *map, const int at[5])
{
    for (uint32_t i = 0; i < async_.n_asked; i++) {
        struct emulate_asked *a = &async_.asked[i];
        if (memcmp(&a->map, &map->map, sizeof(a->map)) == 0 &&
            memcmp(a->at, at, sizeof(a->at)) == 0) {
            *a = async_.asked[--async_.n_asked];
            return;
        }
    }
}

static void policy_check(uint64_t policy)
{
    if (policy < 1 || policy > 3) {
        emulate_fail("an L2 policy that is none");
    }
}

/* Fails on writes of threads without a fence: they might land after the bytes of TMA. */
static void check_clean(uint32_t shared, uint32_t bytes)
{
    if (memchr(&async_.is_dirty[shared / 16], 1, (bytes + 15) / 16)) {
        emulate_fail("TMA load to %u, where threads wrote without a fence", shared);
    }
}

static void issue(enum emulate_kind kind, uint32_t shared, const struct tensor_map *map,
                  const int at[5], uint32_t bar)
{
    if (!map->map.base || shared % 1024) {
        emulate_fail("TMA with a map of %p, shared memory at %u", map->map.base, shared);
    }
    const int thread = emulate.current;
    struct emulate_op *op =
        new_op(kind, kind == OP_LOAD ? -1 : thread, kind == OP_LOAD ? 0 : async_.stores[thread]);
    op->shared = shared;
    op->bar = bar;
    op->map = map->map;
    memcpy(op->at, at, sizeof(op->at));
    if (shared % EMULATE_SHARED_MAX + box_bytes(&op->map) > emulate.l.shared_bytes) {
        emulate_fail("TMA past the end of shared memory, at %u", shared);
    }
    if (kind != OP_LOAD && shared / EMULATE_SHARED_MAX != (uint32_t)emulate_rank()) {
        emulate_fail("TMA stores what another block has, at %u", shared);
    }
    if (kind == OP_LOAD) {
        async_check_place(shared, bar);
        mbarrier_announced(bar);
        check_clean(shared, box_bytes(&op->map));
        no_longer_asked(map, at);
        memset(emulate_memory + shared, 0xff, box_bytes(&op->map));
        memset(async_.memory + shared, 0xff, box_bytes(&op->map));
    }
}

/* Loads a box into the thread block's own shared memory. */
static void load(uint32_t to, const struct tensor_map *map, const int at[5], uint32_t bar)
{
    if (to / EMULATE_SHARED_MAX != (uint32_t)emulate_rank()) {
        emulate_fail("TMA load for another block, to %u", to);
    }
    issue(OP_LOAD, to, map, at, bar);
}

static void load_3d(uint32_t to, const struct tensor_map *map, int x, int y, int z, uint32_t bar,
                    uint64_t policy)
{
    policy_check(policy);
    load(to, map, (int[5]){x, y, z}, bar);
}

static void load_4d(uint32_t to, const struct tensor_map *map, int x, int y, int z, int w,
                    uint32_t bar)
{
    load(to, map, (int[5]){x, y, z, w}, bar);
}

static void load_5d(uint32_t to, const struct tensor_map *map, int x, int y, int z, int w, int v,
                    uint32_t bar)
{
    load(to, map, (int[5]){x, y, z, w, v}, bar);
}

/* Loads a box to the same place of all thread blocks of the cluster, whose mbarriers count bytes.
 */
static void issue_to_all(uint32_t shared, const struct tensor_map *map, const int at[5],
                         uint32_t bar)
{
    for (uint32_t rank = 0; rank < (uint32_t)emulate.blocks; rank++) {
        const uint32_t there = rank * EMULATE_SHARED_MAX;
        issue(OP_LOAD, there + shared % EMULATE_SHARED_MAX, map, at,
              there + bar % EMULATE_SHARED_MAX);
    }
}

static void load_3d_to_all(uint32_t to, const struct tensor_map *map, int x, int y, int z,
                           uint32_t bar, uint64_t policy)
{
    policy_check(policy);
    issue_to_all(to, map, (int[5]){x, y, z}, bar);
}

static void load_4d_to_all(uint32_t to, const struct tensor_map *map, int x, int y, int z, int w,
                           uint32_t bar)
{
    issue_to_all(to, map, (int[5]){x, y, z, w}, bar);
}

static void load_5d_to_all(uint32_t to, const struct tensor_map *map, int x, int y, int z, int w,
                           int v, uint32_t bar)
{
    issue_to_all(to, map, (int[5]){x, y, z, w, v}, bar);
}

static void ask_3d(const struct tensor_map *map, int x, int y, int z)
{
    ask(map, (int[5]){x, y, z});
}

static void ask_4d(const struct tensor_map *map, int x, int y, int z, int w)
{
    ask(map, (int[5]){x, y, z, w});
}

static void ask_line(const char *of)
{
    emulate_allowed(of, 1, "prefetch");
}

static void ask_bytes(const char *from, uint32_t bytes)
{
    if (bytes % 16) {
        emulate_fail("a prefetch of %u bytes, no multiple of 16", bytes);
    }
    for (uint32_t at = 0; at < bytes; at += 16) {
        emulate_allowed(from + at, 16, "prefetch");
    }
}

static void store_3d(const struct tensor_map *map, uint32_t from, int x, int y, int z,
                     uint64_t policy)
{
    policy_check(policy);
    issue(OP_STORE, from, map, (int[5]){x, y, z}, 0);
}

static void add_3d(const struct tensor_map *map, uint32_t from, int x, int y, int z)
{
    issue(OP_ADD, from, map, (int[5]){x, y, z}, 0);
}

static void add_4d(const struct tensor_map *map, uint32_t from, int x, int y, int z, int w)
{
    issue(OP_ADD, from, map, (int[5]){x, y, z, w}, 0);
}

static void store_4d_hinted(const struct tensor_map *map, uint32_t from, int x, int y, int z, int w,
                            uint64_t policy)
{
    policy_check(policy);
    issue(OP_STORE, from, map, (int[5]){x, y, z, w}, 0);
}

static void store_4d(const struct tensor_map *map, uint32_t from, int x, int y, int z, int w)
{
    issue(OP_STORE, from, map, (int[5]){x, y, z, w}, 0);
}

static void stores_commit(void)
{
    async_.stores[emulate.current]++;
}

#define STORES_WAIT_READ(pending)                                                                  \
    run_ops(stores_until, emulate.current,                                                         \
            async_.stores[emulate.current] < (pending)                                             \
                ? 0                                                                                \
                : async_.stores[emulate.current] - (pending))

static int stores_until(const struct emulate_op *op, int actor, uint32_t group)
{
    return (op->kind == OP_STORE || op->kind == OP_ADD) && op->actor == actor && op->group < group;
}

#endif
