/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compile pool: the one place that begins compiles. Whoever wants a variant puts it with a
 * rank; the pool finds it in the module cache or compiles it on one of its threads, the lower rank
 * first. A variant is never compiled twice: neither in a job (configs that differ only at run time
 * share a build) nor across jobs, runners and restarts (kernels/modules.h; failures that are not
 * the variant's fault are remembered for the life of the runner only).
 *
 * One thread wants, collects and releases. The image of a build is there between BUILD_READY and
 * the last release. A compile that never ends is given up: it is stopped where the compiler can be,
 * else its thread has no end, and gemmd-runner leaves when it is idle.
 */
#ifndef GEMMD_RUNNER_COMPILE_POOL_H
#define GEMMD_RUNNER_COMPILE_POOL_H

#include "kernels/modules.h"

struct compile_pool;
struct work; /* what a thread does */

enum build_state { BUILD_PENDING, BUILD_READY, BUILD_FAILED };

/* Who wants a variant, the most urgent first. */
enum rank {
    RANK_HELPER,    /* the device's own kernels: every search waits for them; kept for good */
    RANK_CANDIDATE, /* a search waits for it */
    RANK_OPENING,   /* a search will want it in a moment; kept until compile_pool_drop_unheld */
    RANK_SPACE,     /* nobody waits; one that another process compiles is put off to the end */
};

struct build {
    char hash[HASH_HEX]; /* variant_hash */
    enum build_state state;
    struct image image; /* owned; when ready */
    bool found;         /* it was in the cache, or its refusal was: nothing was compiled */
    bool refused;       /* when failed: the variant is at fault, and the cache knows it now */
    bool unsaved;       /* not on disk: kept in memory, and tried again when it is wanted again */
    double compile_ms;  /* when it was compiled */
    struct error error; /* when failed */
    /* The rest is the pool's own. */
    struct build *next;
    struct work *work; /* owned while pending; lost with its thread when given up */
    uint32_t refs;
    enum rank rank;
    uint32_t turn, number; /* within the rank; of two with the same turn the older goes first */
    uint32_t place;        /* in the heap; PLACE_NONE: it has begun */
};

struct compile_pool_setup {
    struct compiler *compiler; /* borrowed */
    const char *cache_dir;     /* borrowed */
    unsigned threads;
    bool paused; /* nothing begins before compile_pool_resume */
    /* In the owner's thread, when a build is ready or has failed; NULL: nobody. */
    void (*done)(void *ctx, const struct build *b);
    void *ctx;
};

int compile_pool_new(const struct compile_pool_setup *setup, struct compile_pool **out,
                     struct error *err);
void compile_pool_resume(struct compile_pool *p);
/* Waits for compiles that run; no build may be held. */
struct compile_pool *compile_pool_free(struct compile_pool *p);

struct compile_pool_want { /* all borrowed */
    const struct variant *variant;
    const char *hash; /* variant_hash */
    enum rank rank;
    uint32_t turn; /* the lower goes first within the rank */
};
/* Takes a reference to the build of a variant (out NULL: none) and starts it when needed, or raises
 * its rank. What a search waits for and the cache has is ready at once where all threads are busy.
 */
int compile_pool_want(struct compile_pool *p, const struct compile_pool_want *w, struct build **out,
                      struct error *err);
void compile_pool_hold(struct build *b); /* one more reference */
/* Gives the reference back; a build that nobody wants and that has not begun is not begun. */
void compile_pool_release(struct compile_pool *p, struct build *b);
/* What nobody holds is not begun, and not kept. */
void compile_pool_drop_unheld(struct compile_pool *p);

uint32_t compile_pool_pending(const struct compile_pool *p); /* builds that wait or compile */
/* Brings states up to date. Returns how many builds became ready or failed. */
uint32_t compile_pool_collect(struct compile_pool *p);
int compile_pool_fd(
    const struct compile_pool *p); /* readable when compile_pool_collect has something to do */
/* So far, in ms; 0: it has not begun. */
double compile_pool_ran_ms(struct compile_pool *p, const struct build *b);
/* The build that has compiled longest and for how long, in ms; -1 when none compiles. */
int64_t compile_pool_longest(struct compile_pool *p, struct build **b);
/* Gives up a build that never ends: it fails with ERROR_HUNG. */
void compile_pool_give_up(struct compile_pool *p, struct build *b, int64_t after_ms);
/* Sleeps until a build may be done, or for so long; gives up one that has compiled for longer than
 * the limit. */
void compile_pool_wait(struct compile_pool *p, int most_ms, int64_t limit_ms);
uint32_t compile_pool_lost(const struct compile_pool *p); /* given up so far */

#endif
