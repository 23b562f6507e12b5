/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemmd-runner --precompile: compiles the variants of whole spaces into the cache directory, before
 * any tuning and at the lowest priority. This mode needs no device, driver or daemon, so it can run
 * when gemmd is installed, also for an absent GPU.
 *
 * The mode is part of gemmd-runner because this program has the compile pool, and a crash of the
 * compiler does not affect clients.
 *
 *   search.c      gives the pool the variants of a search, in the order of that search.
 *   problems.c    the searches: usual problems, or lines of stdin.
 *   precompile.c  the mode: opens the pool, compiles, reports progress.
 */
#ifndef GEMMD_RUNNER_PRECOMPILE_PRECOMPILE_H
#define GEMMD_RUNNER_PRECOMPILE_PRECOMPILE_H

#include "proto/request.h"
#include "runner/base/mode.h"
#include "runner/compile/pool.h"

struct precompile_setup { /* borrowed */
    const char *device;   /* "cuda:sm_90a", "cpu" ... */
    struct device_info info;
    struct compiler *compiler;
    struct compile_pool *pool; /* compiles the variants */
    enum rank rank;            /* of the variants */
    const char *target;        /* NULL: the device's choice for each problem */
    int64_t each;              /* most variants of each search to compile; 0: all */
    uint32_t look;             /* most proposals to ask a search's strategy for; 0: all */
    bool openings;             /* only the variants that a search proposes before it has measured */
    /* module cache whose compiled variants come first, as in a search; NULL: no preference */
    const char *cache_dir;
    unsigned threads; /* of the pool */
};

/* ERROR_NO_CONFIG: no target of the device takes the problem, the requested target does not, or the
 * space is empty. */
int precompile_add_search(const struct precompile_setup *s, const struct request *r,
                          struct error *err);

struct precompile_order {
    struct precompile_setup setup;
    const char *modes;   /* modes of the usual problems, as "forward,dW"; NULL: all modes */
    bool all;            /* usual problems: all types and fusions, not only bf16 */
    bool problems;       /* read stdin instead of the usual problems: a line has a problem's text
                          * or a search as JSON */
    int64_t max_mib;     /* begin no compile when the cache directory is larger; 0: no limit */
    int64_t with_parent; /* process whose end kills this process; 0: no process */
};
int precompile_add_problems(const struct precompile_order *o, struct error *err);
/* Returns the exit code: 0 done, or the time is up; 1 a failure; 130 interrupted. */
int precompile_run(const struct mode_order *mode, struct precompile_order *o);

#endif
