/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiled variants, wanted by name: each is looked for in the module cache, else compiled on the
 * pool, and never twice: neither in a job (configs that differ only at run time share a build) nor
 * across jobs, runners and restarts (the cache on disk, kernels/modules.h; failures that are not
 * the variant's fault are remembered for the life of the runner only).
 *
 * One thread wants, collects and releases. The image of a build is there between BUILD_READY and
 * the last release.
 */
#ifndef GEMMD_RUNNER_COMPILE_BUILDS_H
#define GEMMD_RUNNER_COMPILE_BUILDS_H

#include "kernels/modules.h"
#include "runner/compile/tasks.h"

struct builds;

enum { COMPILE_NICENESS = 10 };
enum build_state { BUILD_PENDING, BUILD_READY, BUILD_FAILED };

struct work; /* what its thread does */

struct build {
    char hash[HASH_HEX]; /* variant_hash */
    enum build_state state;
    struct image image; /* owned; when ready */
    bool found;         /* it was in the cache, or its refusal was: nothing was compiled */
    bool refused;       /* when failed: the variant is at fault, and the cache knows it now */
    double compile_ms;  /* when it was compiled */
    struct error error; /* when failed */
    /* The rest is the table's own. */
    struct build *next;
    struct work *work; /* owned while pending; lost with its thread when given up */
    uint32_t refs;
    bool unsaved; /* not on disk: kept in memory, and tried again when it is wanted again */
};

struct builds_setup {
    struct compiler *compiler; /* borrowed */
    const char *cache_dir;     /* borrowed */
    unsigned threads;
    int niceness;   /* of the threads; 0: COMPILE_NICENESS */
    bool impatient; /* a variant that another process compiles fails with ERROR_BUSY at once */
    int note_fd;    /* where the note of a compile that kills us goes; -1: nowhere */
};

int builds_new(const struct builds_setup *setup, struct builds **out, struct error *err);
struct builds *builds_free(struct builds *b); /* no build may be held */

/* Takes a reference to the build of a variant and starts it when needed; where all threads are
 * busy, what is in the cache is ready at once. `note`: copied. */
int builds_want(struct builds *b, const struct variant *v, const char *hash, const void *note,
                size_t note_size, struct build **out, struct error *err);
void builds_hold(struct build *build); /* one more reference */
/* Gives the reference back; a build that nobody wants and that has not begun is not begun. */
void builds_release(struct builds *b, struct build *build);

/* Gives the reference back only if that means that it is never begun: true, and it is gone. */
bool builds_withdraw(struct builds *b, struct build *build);

/* Brings states up to date. Returns how many builds became ready or failed. */
uint32_t builds_collect(struct builds *b);
double builds_ran_ms(const struct builds *b,
                     const struct build *build); /* so far; 0: it has not begun */
int builds_fd(const struct builds *b); /* readable when builds_collect has something to do */
/* The wanted build that has compiled longest and for how long; -1 when none compiles. */
int64_t builds_longest(struct builds *b, struct build **build);
/* Gives up a build that never ends: it fails with ERROR_HUNG, and its thread is lost. */
void builds_give_up(struct builds *b, struct build *build, int64_t after_ms);
uint32_t builds_lost(const struct builds *b); /* threads lost so far */

#endif
