/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compile pool: the only place that starts compiles. A caller wants a variant with a rank. The
 * pool finds the variant in the module cache or compiles the variant on one of its threads, lowest
 * rank first. A variant is never compiled twice: neither in a job (configs that differ only at run
 * time share a build) nor across jobs, runners and restarts (kernels/modules.h). Failures that are
 * not the variant's fault are remembered only for the life of the runner.
 *
 * Only one thread calls want, collect and release. The image of a build is valid between
 * BUILD_READY and the last release. A compile that never ends is given up: the pool stops the
 * compiler where possible; else the thread is lost, and gemmd-runner exits when idle.
 */
#ifndef GEMMD_RUNNER_COMPILE_POOL_H
#define GEMMD_RUNNER_COMPILE_POOL_H

#include "kernels/modules.h"

struct compile_pool;
struct work; /* the data of a thread */

enum build_state { BUILD_PENDING, BUILD_READY, BUILD_FAILED };

/* Ranks of wanted variants, the most urgent first. */
enum rank {
    RANK_HELPER,    /* the device's own kernels: every search waits for them; kept for good */
    RANK_CANDIDATE, /* a search waits for the variant */
    RANK_OPENING,   /* a search will soon want the variant; kept until compile_pool_drop_unheld */
    /* no search waits for the variant; moved to the end of the queue while another process
     * compiles the variant */
    RANK_SPACE,
};

struct build {
    char hash[HASH_HEX]; /* variant_hash */
    enum build_state state;
    struct image image; /* owned; when ready */
    bool found;         /* the cache had the image or the refusal: nothing was compiled */
    bool refused;       /* when failed: the variant is at fault, and the cache has recorded that */
    /* the image is not on disk but kept in memory; written when the build is wanted again */
    bool unsaved;
    double compile_ms;  /* compile time; 0: found in the cache */
    struct error error; /* when failed */
    /* The rest is private to the pool. */
    struct build *next;
    /* owned while the build is pending; when the build is given up, the thread owns the work */
    struct work *work;
    uint32_t refs;
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
/* Waits for running compiles. No build may be held. */
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
/* Drops a reference. An unheld build that has not begun is withdrawn. */
void compile_pool_release(struct compile_pool *p, struct build *b);
/* Withdraws and forgets all unheld builds, except helpers. */
void compile_pool_drop_unheld(struct compile_pool *p);

uint32_t compile_pool_pending(const struct compile_pool *p); /* builds that wait or compile */
/* Updates the states of builds. Returns how many builds became ready or failed. */
uint32_t compile_pool_collect(struct compile_pool *p);
int compile_pool_fd(const struct compile_pool *p); /* readable when compile_pool_collect has work */
/* Compile time so far, in ms; 0: not begun. */
double compile_pool_ran_ms(struct compile_pool *p, const struct build *b);
/* The build that has compiled longest, and its time in ms; -1 when no build compiles. */
int64_t compile_pool_longest(struct compile_pool *p, struct build **b);
/* Gives up a build that never ends: it fails with ERROR_HUNG. */
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
    void (*wait)(void *ctx); /* called to wait; returns when some build may be done */
    void *ctx;
};

/* `h` must not move while the device is open. */
void helpers_init(struct helpers *h);
/* Starts the builds that the device needs for problems of a target. */
int helpers_want(struct helpers *h, const struct family_target *t, struct error *err);

#endif
