/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemmd-runner --precompile: compiles the variants of whole spaces into the cache directory, ahead
 * of any tuning and at the lowest priority. It needs neither a device nor a driver nor a daemon, so
 * that it can run when gemmd is installed, for a GPU that is elsewhere.
 *
 * It is a mode of this program since all that compiles is here: a crash of the compiler takes no
 * client with it, and the compile pool is the same.
 *
 *   search.c      the variants of a search, in its order
 *   problems.c    which searches
 *   precompile.c  the mode
 */
#ifndef GEMMD_RUNNER_PRECOMPILE_PRECOMPILE_H
#define GEMMD_RUNNER_PRECOMPILE_PRECOMPILE_H

#include "kernels/device.h"
#include "proto/request.h"

struct precompile_setup {    /* borrowed */
    const char *device;      /* "cuda:sm_90a", "cpu" ... */
    struct device_info info; /* what it is */
    const char *compiler;    /* its version */
    const char *target;      /* NULL: the device's choice for each problem */
    int64_t each;            /* variants of a search, the first; 0: all */
    uint32_t look;           /* the same of its configs, which may share variants; 0: all */
    bool openings;           /* of a search only what it asks for before it has measured anything */
    const char *cache_dir;   /* looked into for what a search prefers, since it is compiled; NULL */
    unsigned threads;        /* to build spaces on */
    /* Is given the variants of a search in its order: first the device's own kernels (config NULL),
     * then others by their place, from 0 on. */
    int (*want)(void *ctx, const struct variant *v, const char *hash, const struct record *config,
                uint32_t place, struct error *err);
    void *ctx;
};

/* ERROR_NO_CONFIG: no target of the device takes the problem, or not the one that is asked for, or
 * nothing is left of the space. */
int precompile_add_search(const struct precompile_setup *s, const struct request *r,
                          struct error *err);

struct precompile_order {
    struct precompile_setup setup;
    const char *modes;     /* "forward,dW"; NULL: all. Of the usual problems */
    bool all;              /* of these: all types and fusions, not just bf16 */
    bool problems;         /* instead of the usual ones, from stdin: a problem's text a line, or a
                              search as JSON, with restrictions and all */
    const char *cache_dir; /* NULL: the usual one */
    int64_t threads;       /* 0: one per core */
    int64_t seconds;       /* begin no compile after that many of compiling; 0: go on */
    int64_t max_mib;       /* begin nothing when the cache holds as much; 0: go on */
    int64_t with_parent;   /* a process: when it ends, this one is killed; 0: none */
    bool quiet, json;
};
/* All searches of an order. */
int precompile_add_problems(const struct precompile_order *o, struct error *err);
/* Returns the exit code: 0 done, or the time is up; 1 something failed; 130 interrupted. */
int precompile_run(struct precompile_order *o);

#endif
