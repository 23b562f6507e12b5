/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemmd-runner --precompile: compiles the variants of whole spaces into the cache directory, ahead
 * of any tuning and at the lowest priority. It needs neither a device nor a driver nor a daemon, so
 * that it can run when gemmd is installed, for a GPU that is elsewhere.
 *
 * It is a mode of this program since all that compiles is here: a crash of the compiler takes no
 * client with it, and nobody else needs the compile pool.
 */
#ifndef GEMMD_RUNNER_PRECOMPILE_PRECOMPILE_H
#define GEMMD_RUNNER_PRECOMPILE_PRECOMPILE_H

#include <stdio.h>

#include "kernels/space.h"

/* HELPER: one of the device's own kernels. CONFIG: one that need not be in the space. */
enum precompile_origin { PRECOMPILE_HELPER, PRECOMPILE_POINT, PRECOMPILE_CONFIG };

/* A variant, and where it comes from. */
struct precompile_item {
    char hash[HASH_HEX];
    uint32_t problem, rank; /* of precompile_plan; its place in that search's order, from 0 on */
    enum precompile_origin origin;
    uint32_t number;       /* HELPER: of device_helpers; CONFIG: of the plan's configs */
    struct space_point at; /* POINT: of the problem's space */
};

struct precompile_problem {
    struct problem problem;
    const struct family_target *target; /* static */
    struct space space;                 /* its params only */
};

struct precompile_plan {
    const char *device; /* borrowed: the setup's */
    struct device_info info;
    char compiler[96];
    uint32_t n, n_problems, n_configs, room, room_problems, room_configs;
    struct precompile_item *items;       /* owned; the order in which to compile */
    struct precompile_problem *problems; /* owned */
    struct record *configs;              /* owned */
};

struct precompile_setup { /* borrowed */
    const char *device;   /* "cuda:sm_90a", "cpu" ... */
    const struct device_info
        *expected;         /* what it is, for who knows; NULL or of no kind: not known */
    const char *compiler;  /* its version */
    const char *target;    /* NULL: the device's choice for each problem */
    const char *modes;     /* "forward,dW"; NULL: all. Of the usual problems */
    bool all;              /* of these: all types and fusions, not just bf16 */
    FILE *problems;        /* instead of the usual ones: a problem's text a line, or a search as
                              JSON, with restrictions and all; NULL */
    int64_t each;          /* variants of a search, the first; 0: all */
    uint32_t look;         /* the same of its configs, which may share variants; 0: all */
    bool openings;         /* of a search only what it asks for before it has measured anything, and
                              the searches one after the other, not by turns */
    const char *cache_dir; /* looked into for what a search prefers, since it is compiled; NULL */
    unsigned threads;      /* to build spaces on */
};

int precompile_plan_init(struct precompile_plan *p, const struct precompile_setup *s,
                         struct error *err);
void precompile_plan_deinit(struct precompile_plan *p);
int precompile_plan_variant(struct precompile_plan *p, const struct precompile_item *item,
                            struct variant *out, struct error *err);
/* The config that a variant was taken from; of a HELPER there is none. */
void precompile_plan_config(struct precompile_plan *p, const struct precompile_item *item,
                            struct record *out);

struct precompile_order {
    struct precompile_setup setup;
    const char *cache_dir; /* NULL: the usual one */
    int64_t threads;       /* 0: one per core */
    int64_t seconds;       /* begin no compile after that many of compiling; 0: go on */
    int64_t max_bytes;     /* begin nothing when the cache holds as much; 0: go on */
    int64_t with_parent;   /* a process: when it ends, this one is killed; 0: none */
    bool quiet, json;
};
/* Returns the exit code: 0 done, or the time is up; 1 something failed; 130 interrupted. */
int precompile_run(struct precompile_order *o);

#endif
