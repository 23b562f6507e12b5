/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread block (in this folder also: block) as fibers: its state, meetings of a warp or of the
 * whole block, and the choice of the next warp, drawn from a seed. Or a cluster of up to
 * EMULATE_BLOCKS blocks, each with its own shared memory: an address is EMULATE_SHARED_MAX beyond
 * the same address of the block before. Blocks need not begin together, and a block may stand still
 * while the rest goes on, until the rest must wait. A warp whose lanes meet in different
 * instructions, or that waits for ever, ends the run with a message in emulate_error.
 */
#ifndef GEMMD_TESTS_EMULATE_BLOCK_H
#define GEMMD_TESTS_EMULATE_BLOCK_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/cuda/emulate/fiber.h"
#include "tests/unit/cuda/emulate_launch.h"

#ifndef EMULATE_BLOCKS
#define EMULATE_BLOCKS 1 /* the largest number of blocks in a cluster */
#endif

enum {
    EMULATE_THREADS_MAX = 512 * EMULATE_BLOCKS,
    EMULATE_SHARED_MAX = 256 * 1024,
    EMULATE_WORDS = 12,
    EMULATE_COPIES_MAX = 1024,
    EMULATE_COPIES4_MAX = 256,
    EMULATE_LINGER_CHANCE = 16, /* a thread that signals other threads pauses: 1 in 16 times */
    EMULATE_LATE_CHANCE = 256, /* a thread that has waited for an mbarrier pauses: 1 in 256 times */
    EMULATE_LINGER_MOST = 16,  /* both pauses are shorter than 16 rounds (of all warps) */
    EMULATE_BEGUN_CHANCE =
        4, /* a thread that signals its thread block's begin pauses: 1 in 4 times */
    EMULATE_BEGUN_MOST = 64,   /* this pause is shorter than 64 rounds */
    EMULATE_PAUSE_CHANCE = 64, /* a thread block stands still with a chance of 1 in 64 each round */
};

struct emulate_copy {
    uint32_t to;
    const char *from;
    int bytes;
    int group;
};

/* A place where threads wait for each other: an instruction of a warp's 32 lanes, or a barrier. */
struct emulate_meeting {
    uint32_t arrived, round;
    const char *what;
};

struct emulate_thread {
    struct emulate_fiber fiber;
    char *stack;
    int done;
    const struct emulate_meeting *waits_for; /* NULL: the thread can run */
    uint32_t round; /* the thread waits until waits_for has left this round */
    int groups;     /* number of copy groups that the thread committed */
    uint32_t n_copies, n_copies4;
    struct emulate_copy copies[EMULATE_COPIES_MAX], copies4[EMULATE_COPIES4_MAX];
};

struct emulate_warp {
    struct emulate_meeting meeting;
    uint32_t in[32][EMULATE_WORDS], out[32][EMULATE_WORDS];
};

static struct {
    struct emulate_launch l;
    struct emulate_thread *threads;
    struct emulate_warp warps[EMULATE_THREADS_MAX / 32];
    struct emulate_meeting barrier[EMULATE_BLOCKS];
    struct emulate_fiber scheduler;
    int current;
    int block[3], blocks;           /* the cluster's first block, by grid index; number of blocks */
    uint32_t pause[EMULATE_BLOCKS]; /* rounds that each thread block still pauses */
    struct emulate_meeting rounds;
    uint64_t random;
    int failed;
} emulate;

char emulate_error[256];
static char emulate_memory[EMULATE_BLOCKS * EMULATE_SHARED_MAX] __attribute__((aligned(128)));

/* Rank of the current thread block in its cluster. */
static int emulate_rank(void)
{
    return EMULATE_BLOCKS > 1 ? emulate.current / (int)emulate.l.threads : 0;
}

/* Asynchronous work beside the threads (copy engines), called between rounds of the warps. Returns
 * true while work may remain. */
#ifdef EMULATE_ASYNC
static void emulate_async_begin(void);
static int emulate_async(void);
static void emulate_async_end(void); /* called when no thread of a thread block runs any more */
#else
static void emulate_async_begin(void)
{
}
static int emulate_async(void)
{
    return 0;
}
static void emulate_async_end(void)
{
}
#endif

#define THREAD        (EMULATE_BLOCKS > 1 ? emulate.current % (int)emulate.l.threads : emulate.current)
#define BLOCK         (emulate.block[0] + emulate_rank())
#define shared_memory (emulate_memory + emulate_rank() * EMULATE_SHARED_MAX)
#define BLOCKS        ((int)emulate.l.grid[0])
#define INLINE        static inline
#define HIDE32(v)     ((void)(v))
#define HIDE64(v)     ((void)(v))
#define KERNEL        void
#define PARAMS        struct portable_params

static void emulate_fail(const char *format, ...)
{
    if (!emulate.failed) {
        va_list args;
        va_start(args, format);
        int n =
            snprintf(emulate_error, sizeof(emulate_error), "block %d thread %d: ", BLOCK, THREAD);
        vsnprintf(emulate_error + n, sizeof(emulate_error) - (size_t)n, format, args);
        va_end(args);
    }
    emulate.failed = 1;
    emulate_switch(&emulate.threads[emulate.current].fiber, &emulate.scheduler); /* never back */
}

static void emulate_meet(struct emulate_meeting *m, uint32_t members, const char *what)
{
    struct emulate_thread *t = &emulate.threads[emulate.current];
    if (m->arrived == 0) {
        m->what = what;
    } else if (m->what != what) {
        emulate_fail("meets in %s while others are in %s", what, m->what);
    }
    m->arrived++;
    if (m->arrived == members) {
        m->arrived = 0;
        m->round++;
        return; /* the last thread to arrive does not wait; the other threads go on later */
    }
    t->waits_for = m;
    t->round = m->round;
    emulate_switch(&t->fiber, &emulate.scheduler);
}

/* Each lane gives `n` words. The last lane to arrive computes the words that each lane gets. */
static uint32_t *emulate_exchange(const char *what, const uint32_t *in, int n,
                                  void (*compute)(struct emulate_warp *w))
{
    struct emulate_warp *w = &emulate.warps[emulate.current / 32];
    int lane = emulate.current % 32;
    memcpy(w->in[lane], in, (size_t)n * sizeof(in[0]));
    if (w->meeting.arrived == 31 && w->meeting.what == what) {
        compute(w);
    }
    emulate_meet(&w->meeting, 32, what);
    return w->out[lane];
}

static uint64_t emulate_random(void)
{
    emulate.random = emulate.random * 6364136223846793005u + 1442695040888963407u;
    return emulate.random >> 33;
}

/* Delays a thread after a signal: other threads may see the signal long before the thread goes on.
 * Also delays a thread after a wait: lanes of a warp need not go on together. */
static void emulate_linger(uint64_t chance, uint64_t most)
{
    struct emulate_thread *t = &emulate.threads[emulate.current];
    for (uint64_t n = emulate_random() % chance ? 0 : emulate_random() % most; n > 0; n--) {
        t->waits_for = &emulate.rounds;
        t->round = emulate.rounds.round;
        emulate_switch(&t->fiber, &emulate.scheduler);
    }
}

static int emulate_can_run(int i)
{
    struct emulate_thread *t = &emulate.threads[i];
    return !t->done && (!t->waits_for || t->waits_for->round != t->round);
}

static void emulate_resume(int i)
{
    emulate.current = i;
    emulate.threads[i].waits_for = NULL;
    emulate_switch(&emulate.scheduler, &emulate.threads[i].fiber);
}

/* Runs a warp until all its lanes wait. Returns true if a lane ran. */
static int emulate_run_warp(int warp)
{
    int ran = 0;
    for (int again = 1; again && !emulate.failed;) {
        again = 0;
        for (int i = warp * 32; i < warp * 32 + 32 && !emulate.failed; i++) {
            if (emulate_can_run(i)) {
                emulate_resume(i);
                again = ran = 1;
            }
        }
    }
    return ran;
}

static void emulate_entry(void); /* calls the kernel with emulate.l.params */

static void emulate_begin(void)
{
    emulate_entry();
    emulate.threads[emulate.current].done = 1;
    emulate_switch(&emulate.threads[emulate.current].fiber, &emulate.scheduler);
}

static uint32_t emulate_pause(void)
{
    return (uint32_t[]){0, 4, 64, UINT32_MAX}[emulate_random() % 4];
}

static void emulate_begin_apart(void)
{
    for (int i = 0; i < emulate.blocks; i++) {
        emulate.pause[i] = emulate.blocks > 1 ? emulate_pause() : 0;
    }
}

/* Ends the pauses of all thread blocks, when no other can go on. Returns true if one was paused. */
static int emulate_end_pauses(void)
{
    int any = 0;
    for (int i = 0; i < emulate.blocks; i++) {
        any |= emulate.pause[i] > 0;
        emulate.pause[i] = 0;
    }
    return any;
}

/* Runs a round; true if a thread ran, an operation may remain, or a pause ended. */
static int emulate_round(int warps)
{
    int ran = emulate_async();
    emulate.rounds.round++;
    const int first = (int)(emulate_random() % (uint64_t)warps), back = (int)(emulate_random() & 1);
    if (emulate.blocks > 1 && emulate_random() % EMULATE_PAUSE_CHANCE == 0) {
        emulate.pause[emulate_random() % (uint64_t)emulate.blocks] = emulate_pause();
    }
    for (int i = 0; i < warps && !emulate.failed; i++) {
        const int warp = (back ? first + warps - i : first + i) % warps;
        if (emulate.pause[warp / (warps / emulate.blocks)] == 0) {
            ran |= emulate_run_warp(warp);
        }
    }
    if (!ran) {
        return emulate_end_pauses();
    }
    for (int i = 0; i < emulate.blocks; i++) {
        emulate.pause[i] -= emulate.pause[i] > 0;
    }
    return 1;
}

static void emulate_block(void)
{
    int n = (int)emulate.l.threads * emulate.blocks, warps = n / 32;
    memset(emulate_memory, 0xff, (size_t)emulate.blocks * EMULATE_SHARED_MAX);
    memset(emulate.warps, 0, sizeof(emulate.warps));
    memset(emulate.barrier, 0, sizeof(emulate.barrier));
    emulate_async_begin();
    for (int i = 0; i < n; i++) {
        struct emulate_thread *t = &emulate.threads[i];
        t->done = t->groups = 0;
        t->n_copies = t->n_copies4 = 0;
        t->waits_for = NULL;
        emulate_make(&t->fiber, t->stack, emulate_begin);
    }
    emulate_begin_apart();
    while (!emulate.failed && emulate_round(warps)) {
    }
    for (int i = 0; i < n && !emulate.failed; i++) {
        if (!emulate.threads[i].done) {
            emulate.failed = 1;
            snprintf(emulate_error, sizeof(emulate_error),
                     "block %d thread %d waits for ever in %s",
                     emulate.block[0] + i / (int)emulate.l.threads, i % (int)emulate.l.threads,
                     emulate.threads[i].waits_for->what);
        }
    }
    if (!emulate.failed) {
        emulate_async_end();
    }
}

int emulate_launch(const struct emulate_launch *l)
{
    emulate.l = *l;
    emulate.failed = 0;
    emulate.random = l->seed;
    emulate.blocks = l->cluster ? (int)l->cluster : 1;
    if (emulate.blocks > EMULATE_BLOCKS || l->grid[0] % (uint32_t)emulate.blocks) {
        snprintf(emulate_error, sizeof(emulate_error), "%u blocks in clusters of %d", l->grid[0],
                 emulate.blocks);
        return -1;
    }
    const uint32_t threads = l->threads * (uint32_t)emulate.blocks;
    emulate.threads = calloc(threads, sizeof(emulate.threads[0]));
    for (uint32_t i = 0; i < threads; i++) {
        emulate.threads[i].stack = malloc(EMULATE_STACK);
    }
    for (uint32_t y = 0; y < l->grid[1] && !emulate.failed; y++) {
        for (uint32_t x = 0; x < l->grid[0] && !emulate.failed; x += (uint32_t)emulate.blocks) {
            emulate.block[0] = (int)x;
            emulate.block[1] = (int)y;
            emulate_block();
        }
    }
    for (uint32_t i = 0; i < threads; i++) {
        free(emulate.threads[i].stack);
    }
    free(emulate.threads);
    return emulate.failed ? -1 : 0;
}

static void barrier(void)
{
    emulate_meet(&emulate.barrier[emulate_rank()], emulate.l.threads, "barrier");
}

#endif
