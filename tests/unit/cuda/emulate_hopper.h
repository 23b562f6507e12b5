/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part "ptx" of the hopper template for the CPU, over the fibers of emulate.h. What the GPU
 * does beside the threads becomes a list of operations, each run at some later moment drawn from
 * the seed, at the latest when somebody waits for it:
 *
 *   TMA loads     poison their box at once; the data and the barrier's bytes come later
 *   TMA stores    read shared memory later, at the latest when its thread waits for that
 *   cp.async      poison at once; data and the barrier's arrival come later, in order per thread
 *   wgmma         reads shared memory and writes accumulators later, in order per warpgroup
 *
 * wgmma and TMA stores read a second copy of shared memory: what threads wrote is not in it before
 * an async_fence. So a stage given back too early, a wrong parity or byte count, a buffer written
 * while its store is pending, a missing fence show as wrong results or as a wait for ever.
 * Addresses are computed as the hardware's documentation says, from tensor maps and descriptors as
 * they are.
 */
#ifndef GEMMD_TESTS_EMULATE_HOPPER_H
#define GEMMD_TESTS_EMULATE_HOPPER_H

#include <stddef.h>

#define EMULATE_ASYNC
#define copy16 emulate_copy16 /* here a copy ends otherwise */
#include "tests/unit/cuda/emulate.h"
#undef copy16
#undef PARAMS

#define HOPPER_EMULATED
#define LANE               (THREAD & 31)
#define KERNEL_OF(threads) static void
#define PARAMS(type)       const struct type
#define EMULATE_ALIGN(n)   __attribute__((aligned(n)))

enum {
    EMULATE_OPS_MAX = 65536,
    EMULATE_BARRIERS_MAX = 64,
    EMULATE_PIECES = EMULATE_SHARED_MAX / 16
};

struct EMULATE_ALIGN(64) tensor_map { /* who launches puts the description here */
    struct emulate_map map;
    char rest[128 - sizeof(struct emulate_map)];
};

enum emulate_kind { OP_LOAD, OP_STORE, OP_ADD, OP_COPIES, OP_WGMMA };

struct emulate_op {
    enum emulate_kind kind;
    int actor; /* LOAD: none; STORE, COPIES: thread; WGMMA: warpgroup */
    uint32_t group;
    uint32_t shared, bar;
    struct emulate_map map;
    int at[5];
    uint64_t a, b;
    int scale;
    float *d[128];
};

struct emulate_mbarrier {
    uint32_t at, expected, pending;
    int64_t bytes;
    struct emulate_meeting phases;
    char what[40];
};

static struct {
    struct emulate_op *ops;
    uint32_t n_ops, laziness; /* an operation is run with 1 : laziness */
    struct emulate_mbarrier barriers[EMULATE_BARRIERS_MAX];
    uint32_t n_barriers;
    struct emulate_meeting named[16];
    struct emulate_meeting warpgroups[EMULATE_THREADS_MAX / 128];
    float *d[EMULATE_THREADS_MAX];
    uint32_t stores[EMULATE_THREADS_MAX], wgmmas[EMULATE_THREADS_MAX]; /* committed groups */
    uint32_t n_dirty, dirty[EMULATE_PIECES]; /* pieces of 16 bytes that threads wrote */
    uint8_t is_dirty[EMULATE_PIECES];
    char memory[EMULATE_SHARED_MAX]; /* as the async proxy sees it */
} async_;

/* May be called outside any fiber: does not switch. */
static void async_fail(const char *what, uint64_t value)
{
    if (!emulate.failed) {
        snprintf(emulate_error, sizeof(emulate_error), "block %d: %s (0x%llx)", emulate.block[0],
                 what, (unsigned long long)value);
    }
    emulate.failed = 1;
}

static void async_dirty(uint32_t at)
{
    if (!async_.is_dirty[at / 16]) {
        async_.is_dirty[at / 16] = 1;
        async_.dirty[async_.n_dirty++] = at / 16;
    }
}

static void async_fence(void)
{
    for (uint32_t i = 0; i < async_.n_dirty; i++) {
        const uint32_t piece = async_.dirty[i];
        memcpy(async_.memory + piece * 16, shared_memory + piece * 16, 16);
        async_.is_dirty[piece] = 0;
    }
    async_.n_dirty = 0;
}

/* ---- mbarriers
 * ------------------------------------------------------------------------------------- */

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

static void mbarrier_bytes(struct emulate_mbarrier *b, int64_t bytes)
{
    b->bytes -= bytes;
    if (b->bytes < 0) {
        async_fail("more bytes than expected at an mbarrier", b->at);
    }
    mbarrier_changed(b);
}

static void barrier_init(uint32_t bar, uint32_t count)
{
    struct emulate_mbarrier *b = &async_.barriers[async_.n_barriers++];
    if (bar % 8 || bar + 8 > emulate.l.shared_bytes) {
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

/* ---- TMA
 * ------------------------------------------------------------------------------------------- */

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

static uint32_t swizzle_128(uint32_t at)
{
    return at ^ (at >> 7 & 7) << 4;
}

/* Calls each for every element of the box: its address or NULL, and where it is in shared memory.
 */
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
        memset(shared_memory + shared, 0, op->map.element);
    } else if (!async_allowed(global, op->map.element)) {
        async_fail("TMA load outside the operands", (uintptr_t)global);
    } else {
        memcpy(shared_memory + shared, global, op->map.element);
    }
    memcpy(async_.memory + shared, shared_memory + shared, op->map.element);
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

/* ---- wgmma
 * ------------------------------------------------------------------------------------------ */

static float operand(uint64_t desc, int mn, int k, int transposed)
{
    const uint32_t start = (uint32_t)(desc & 0x3fff) << 4, lead = (uint32_t)(desc >> 16 & 0x3fff)
                                                                  << 4;
    const uint32_t stride = (uint32_t)(desc >> 32 & 0x3fff) << 4;
    uint32_t at = transposed ? start + (uint32_t)(mn / 64) * lead + (uint32_t)(k / 8) * stride +
                                   (uint32_t)(k % 8) * 128 + (uint32_t)(mn % 64) * 2
                             : start + (uint32_t)(mn / 8) * stride + (uint32_t)(mn % 8) * 128 +
                                   (uint32_t)k * 2;
    uint16_t v;
    if (desc >> 62 != 1 || (desc >> 49 & 7) || at + 2 > emulate.l.shared_bytes) {
        async_fail("a wgmma descriptor", desc);
        return 0;
    }
    memcpy(&v, async_.memory + swizzle_128(at), 2);
    return widen(v);
}

static void run_wgmma(const struct emulate_op *op)
{
    static float a[64][16], b[16][TILE_C];
    for (int k = 0; k < 16; k++) {
        for (int m = 0; m < 64; m++) {
            a[m][k] = operand(op->a, m, k, A_TRANSPOSED);
        }
        for (int n = 0; n < TILE_C; n++) {
            b[k][n] = operand(op->b, n, k, B_TRANSPOSED);
        }
    }
    for (int m = 0; m < 64; m++) {
        float sum[TILE_C] = {0};
        for (int k = 0; k < 16; k++) {
            for (int n = 0; n < TILE_C; n++) {
                sum[n] += a[m][k] * b[k][n];
            }
        }
        for (int n = 0; n < TILE_C; n++) {
            float *d =
                op->d[m / 16 * 32 + m % 8 * 4 + n % 8 / 2] + n / 8 * 4 + m / 8 % 2 * 2 + n % 2;
            *d = (op->scale ? *d : 0) + sum[n];
        }
    }
}

/* ---- the operations
 * -------------------------------------------------------------------------------- */

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
            memcpy(shared_memory + c->to, c->from, 16);
        } else {
            memset(shared_memory + c->to, 0, 16);
        }
        async_dirty(c->to);
    }
    t->n_copies = kept;
    mbarrier_arrive(mbarrier_at(op->bar));
}

static void run_op(const struct emulate_op *op)
{
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

/* Runs what `chosen` says, in the order of issue. */
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

/* Loads and stores in any order; copies and wgmmas only after those before them. */
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
    return any;
}

static int stores_until(const struct emulate_op *op, int actor, uint32_t group)
{
    return (op->kind == OP_STORE || op->kind == OP_ADD) && op->actor == actor && op->group < group;
}

static int wgmmas_until(const struct emulate_op *op, int actor, uint32_t group)
{
    return op->kind == OP_WGMMA && op->actor == actor && op->group < group;
}

/* ---- ptx
 * -------------------------------------------------------------------------------------------- */

static int uniform(int v)
{
    return v;
}

static int elected(void)
{
    return LANE == 0;
}

static void trap(void)
{
    emulate_fail("trap");
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

static void group_barrier(int id, int threads)
{
    emulate_meet(&async_.named[id], (uint32_t)threads, "bar");
}

static void group_arrive(int id, int threads)
{
    struct emulate_meeting *m = &async_.named[id];
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
    if (shared + box_bytes(&op->map) > emulate.l.shared_bytes) {
        emulate_fail("TMA past the end of shared memory, at %u", shared);
    }
    if (kind == OP_LOAD) {
        memset(shared_memory + shared, 0xff, box_bytes(&op->map));
        memset(async_.memory + shared, 0xff, box_bytes(&op->map));
    }
}

static void load_3d(uint32_t to, const struct tensor_map *map, int x, int y, int z, uint32_t bar,
                    uint64_t policy)
{
    if (policy != 1 && policy != 2) {
        emulate_fail("an L2 policy that is none");
    }
    issue(OP_LOAD, to, map, (int[5]){x, y, z}, bar);
}

static void load_4d(uint32_t to, const struct tensor_map *map, int x, int y, int z, int w,
                    uint32_t bar)
{
    issue(OP_LOAD, to, map, (int[5]){x, y, z, w}, bar);
}

static void load_5d(uint32_t to, const struct tensor_map *map, int x, int y, int z, int w, int v,
                    uint32_t bar)
{
    issue(OP_LOAD, to, map, (int[5]){x, y, z, w, v}, bar);
}

static void store_3d(const struct tensor_map *map, uint32_t from, int x, int y, int z)
{
    issue(OP_STORE, from, map, (int[5]){x, y, z}, 0);
}

static void add_3d(const struct tensor_map *map, uint32_t from, int x, int y, int z)
{
    issue(OP_ADD, from, map, (int[5]){x, y, z}, 0);
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

static void copy16(uint32_t to, const char *from, int bytes)
{
    emulate_copy16(to, from, bytes);
    memset(async_.memory + to, 0xff, 16);
}

static void copies_arrive(uint32_t bar)
{
    struct emulate_thread *t = &emulate.threads[emulate.current];
    struct emulate_op *op = new_op(OP_COPIES, emulate.current, (uint32_t)t->groups);
    op->bar = bar;
    t->groups++;
}

static void copies_wait(void)
{
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

static void shared_load16(uint32_t v[4], uint32_t at)
{
    emulate_shared(at, "load");
    memcpy(v, shared_memory + at, 16);
}

static int shared_load4(uint32_t at)
{
    int v;
    emulate_shared(at & ~15u, "load");
    memcpy(&v, shared_memory + at, 4);
    return v;
}

static void shared_store4(uint32_t at, int v)
{
    emulate_shared(at & ~15u, "store");
    memcpy(shared_memory + at, &v, 4);
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
    memcpy(shared_memory + at, (float[]){a, b}, 8);
    async_dirty(at);
}

static void emulate_stmatrix(struct emulate_warp *w)
{
    for (int m = 0; m < 4; m++) {
        for (int row = 0; row < 8; row++) {
            const uint32_t at = w->in[m * 8 + row][0];
            for (int i = 0; i < 4; i++) {
                memcpy(shared_memory + at + i * 4, &w->in[row * 4 + i][1 + m], 4);
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

/* The last of 128 threads to come issues for all. */
static void wgmma(float *d, uint64_t a, uint64_t b, int scale)
{
    const int wg = emulate.current / 128;
    struct emulate_meeting *m = &async_.warpgroups[wg];
    async_.d[emulate.current] = d;
    if (m->arrived == 127) {
        struct emulate_op *op = new_op(OP_WGMMA, wg, async_.wgmmas[emulate.current]);
        op->a = a;
        op->b = b;
        op->scale = scale;
        memcpy(op->d, &async_.d[wg * 128], sizeof(op->d));
    }
    emulate_meet(m, 128, "wgmma");
}

static void wgmma_fence(void)
{
}

static void wgmma_commit(void)
{
    async_.wgmmas[emulate.current]++;
}

/* Each warp waits for itself: only its own part need be done, but all is. */
#define WGMMA_WAIT(pending)                                                                        \
    run_ops(wgmmas_until, emulate.current / 128,                                                   \
            async_.wgmmas[emulate.current] < (pending)                                             \
                ? 0                                                                                \
                : async_.wgmmas[emulate.current] - (pending))

static void wgmma_settle(float *d)
{
    (void)d;
}

/* Kept from launch to launch; the module goes when it is closed. */
__attribute__((destructor)) static void async_end(void)
{
    free(async_.ops);
}

static void emulate_async_begin(void)
{
    async_.ops = async_.ops ? async_.ops : malloc(EMULATE_OPS_MAX * sizeof(async_.ops[0]));
    async_.n_ops = async_.n_barriers = async_.n_dirty = 0;
    async_.laziness = (uint32_t[]){1, 2, 8, 40}[emulate_random() % 4];
    memset(async_.is_dirty, 0, sizeof(async_.is_dirty));
    memset(async_.named, 0, sizeof(async_.named));
    memset(async_.warpgroups, 0, sizeof(async_.warpgroups));
    memset(async_.stores, 0, sizeof(async_.stores));
    memset(async_.wgmmas, 0, sizeof(async_.wgmmas));
    memset(async_.memory, 0xff, sizeof(async_.memory));
}

#endif
