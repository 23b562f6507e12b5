/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemmd-runner --warm: compiles the variants of whole spaces into the cache directory, ahead of any
 * tuning and at the lowest priority. It needs neither a device nor a driver nor a daemon, so that it
 * can run when gemmd is installed, for a GPU that is elsewhere.
 *
 * It is a mode of this program since all that compiles is here: a crash of the compiler takes no
 * client with it, and nobody else needs the compile pool.
 */
#ifndef GEMMD_RUNNER_WARM_H
#define GEMMD_RUNNER_WARM_H

#include <stdio.h>

#include "kernels/family.h"

/* A variant, and where it comes from. */
struct warm_item {
    char hash[HASH_HEX];
    uint32_t problem, rank; /* of warm_plan; its place in that problem's order, from 0 on */
    bool helper;            /* one of the device's own kernels (device_helpers), by its rank */
    struct space_point at;  /* else */
};

struct warm_problem {
    struct problem problem;
    const struct family_target *target; /* static */
    struct space space;                 /* its params only */
};

struct warm_plan {
    const char *device; /* borrowed: the setup's */
    struct device_info info;
    char compiler[96];
    uint32_t n, n_problems, room, room_problems;
    struct warm_item *items;       /* owned; the order in which to compile */
    struct warm_problem *problems; /* owned */
};

struct warm_setup { /* borrowed */
    const char *device;   /* "cuda:sm_90a", "cpu" ... */
    const char *compiler; /* its version */
    const char *target;   /* NULL: the device's choice for each problem */
    const char *modes;    /* "forward,dW"; NULL: all. Of the usual problems */
    bool all;             /* of these: all types and fusions, not just bf16 */
    FILE *problems;       /* one problem's text a line, instead of the usual ones; NULL */
    int64_t each;         /* variants of a problem, the best; 0: all */
};

int warm_plan_init(struct warm_plan *p, const struct warm_setup *s, struct error *err);
void warm_plan_deinit(struct warm_plan *p);
int warm_plan_variant(struct warm_plan *p, const struct warm_item *item, struct variant *out,
                      struct error *err);

struct warm_order {
    struct warm_setup setup;
    const char *cache_dir; /* NULL: the usual one */
    int64_t threads;       /* 0: one per core */
    int64_t seconds;       /* begin nothing after that many; 0: go on */
    int64_t max_bytes;     /* begin nothing when the cache holds as much; 0: go on */
    bool quiet, json;
};
/* Returns the exit code: 0 done, or the time is up; 1 something failed; 130 interrupted. */
int warm_run(struct warm_order *o);

#endif
