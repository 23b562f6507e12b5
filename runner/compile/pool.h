/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compile pool: the only place that starts compiles. A caller wants a variant with a rank, and
 * gets a build: a counted reference to the compile and its result. The pool finds the variant in
 * the module cache or compiles the variant on one of its threads, lowest rank first. A variant is
 * never compiled twice: neither in a job (configs that differ only at run time share a build) nor
 * across jobs, runners and restarts (kernels/modules.h). Failures that are not the variant's fault
 * are remembered only for the life of the runner.
 *
 * Only one thread, the owner's, calls the pool. The image of a build is valid from BUILD_READY to
 * the last release. The pool gives up a compile that never ends: it stops the compiler where
 * possible; else the thread is lost, and gemmd-runner exits when idle.
 */
#ifndef GEMMD_RUNNER_COMPILE_POOL_H
#define GEMMD_RUNNER_COMPILE_POOL_H

#include "kernels/modules.h"

struct compile_pool;
struct work; /* a compile (pool.c) */

enum build_state { BUILD_PENDING, BUILD_READY, BUILD_FAILED };

/* Ranks of wanted variants, the most urgent first. */
enum rank {
    RANK_HELPER,    /* the device's own kernels: every search waits for them; kept for good */
    RANK_CANDIDATE, /* a search waits for the variant */
    RANK_OPENING,   /* a search will soon want the variant; kept until compile_pool_drop_unheld() */
    /* no search waits for the variant (--precompile). While another process compiles the variant,
     * the build goes to the end of the queue. */
    RANK_SPACE,
};

struct build {
    char hash[HASH_HEX]; /* variant_hash */
    enum build_state state;
    struct image image; /* owned; when ready */
    bool found;         /* the cache had the image or the refusal: nothing was compiled */
    bool refused;       /* when failed: the variant is at fault, and the cache has recorded that */
    /* the image could not be written and is only in memory; compile_pool_want() tries again */
    bool unsaved;
    double compile_ms;  /* compile time; 0: found in the cache */
    struct error error; /* when failed */
    /* The rest is private to the pool. */
    struct build *next;
    /* owned while the build is pending; when the build is given up, the thread owns the work */
    struct work *work;
    uint32_t refs; /* references that callers hold */
    enum rank rank;
    /* order within the rank: the lower turn goes first, with equal turns the older build (lower
     * number) */
    uint32_t turn, number;
    uint32_t place; /* index in the heap of waiting builds; PLACE_NONE: the build has begun */
};

struct compile_pool_setup {
    struct compiler *compiler; /* borrowed */
    const char *cache_dir;     /* borrowed */
    unsigned threads;
    bool paused; /* no compile begins before compile_pool_resume */
    /* Called in the owner's thread when a build is ready or has failed; may be NULL. */
    void (*done)(void *ctx, const struct build *b);
    void *ctx;
};

int compile_pool_new(const struct compile_pool_setup *setup, struct compile_pool **out,
                     struct error *err);
void compile_pool_resume(struct compile_pool *p);
/* Waits for the running compiles and frees the pool. No caller may hold a build. Returns NULL. */
struct compile_pool *compile_pool_free(struct compile_pool *p);

struct compile_pool_want { /* all borrowed */
    const struct variant *variant;
    const char *hash; /* variant_hash */
    enum rank rank;
    uint32_t turn; /* lower turns go first within the rank */
};
/* Takes a reference to the build of a variant (`out` NULL: takes none). Starts the build when
 * needed, or raises its rank. When all threads are busy, a variant in the cache is ready at once,
 * unless its rank is RANK_SPACE. */
int compile_pool_want(struct compile_pool *p, const struct compile_pool_want *w, struct build **out,
                      struct error *err);
void compile_pool_hold(struct build *b); /* adds a reference */
/* Drops a reference. A compile that has not begun is cancelled with the last reference. */
void compile_pool_release(struct compile_pool *p, struct build *b);
/* Cancels the waiting compiles, and forgets the results, of all builds without references, except
 * those of RANK_HELPER. */
void compile_pool_drop_unheld(struct compile_pool *p);

uint32_t compile_pool_pending(const struct compile_pool *p); /* builds that wait or compile */
/* Updates the states of builds whose compiles have ended. Returns how many became ready or
 * failed. */
uint32_t compile_pool_collect(struct compile_pool *p);
int compile_pool_fd(const struct compile_pool *p); /* readable when compile_pool_collect has work */
/* How long the build's compile has run, or ran, in ms; 0: not begun, or found in the cache. */
double compile_pool_ran_ms(struct compile_pool *p, const struct build *b);
/* The running compile that began first: returns its time so far in ms, and its build; -1: no
 * compile runs. */
int64_t compile_pool_longest(struct compile_pool *p, struct build **b);
/* Gives up a build whose compile does not end: the build fails with ERROR_HUNG. */
void compile_pool_give_up(struct compile_pool *p, struct build *b, int64_t after_ms);
/* Sleeps until a build may be done, at most most_ms. Gives up a build that has compiled for longer
 * than limit_ms. */
void compile_pool_wait(struct compile_pool *p, int most_ms, int64_t limit_ms);
uint32_t compile_pool_lost(const struct compile_pool *p); /* builds given up so far */

/* ---- helpers.c ------------------------------------------------------------------------------- */

/* The device's own kernels (device_ops.helpers), as builds: from the module cache, else compiled on
 * the pool while the device is being opened. The pool keeps these builds for the life of the
 * process. */
struct helpers {           /* all borrowed */
    struct device *device; /* helpers_init sets its supply */
    struct compiler *compiler;
    struct compile_pool *pool;
    void (*wait)(void *ctx); /* sleeps; returns when some build may be done */
    void *ctx;
};

/* `h` must not move while the device is open. */
void helpers_init(struct helpers *h);
/* Starts the builds that the device needs for problems of a target. */
int helpers_want(struct helpers *h, const struct family_target *t, struct error *err);
/* The same, and waits until the builds are done. */
int helpers_wait(struct helpers *h, const struct family_target *t, struct error *err);

#endif
