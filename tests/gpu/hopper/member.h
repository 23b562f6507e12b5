/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member of the space as a runnable case. The variant's hash and the seed draw the values that
 * the variant leaves open: run-time tunables, accumulation, types of indices. So a whole run meets
 * all values.
 */
#ifndef GEMMD_TESTS_GPU_HOPPER_MEMBER_H
#define GEMMD_TESTS_GPU_HOPPER_MEMBER_H

#include "tests/gpu/hopper/cases.h"

struct member {
    int kind;         /* index into kinds[] */
    bool one_expert;  /* needs kernels for one expert */
    bool delicate;    /* as case_is_delicate() */
    uint64_t random;  /* drawn from the hash and --seed: decides the values left open */
    const char *hash; /* borrowed, static */
    const char *config;
    int load_warps, store_slabs; /* compile-time values of the variant that the config leaves out */
    char name[600];
};

/* Returns 0, or -1 if kinds[] lacks the member's kind, which is a fault of kinds[]. */
int member_at(int i, struct member *m);
/* Makes the member's config for a problem of its kind. Returns false with *why if no such config is
 * legal. */
bool member_config(const struct member *m, const struct problem *p, const struct device_info *info,
                   struct record *config, struct rejection *why);

#endif
