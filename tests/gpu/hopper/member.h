/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member of the space as a case to run. What the variant leaves open is drawn by its hash and the
 * seed, so that all of it is met somewhere: run-time tunables, accumulation, types of indices.
 */
#ifndef GEMMD_TESTS_GPU_HOPPER_MEMBER_H
#define GEMMD_TESTS_GPU_HOPPER_MEMBER_H

#include "tests/gpu/hopper/cases.h"

struct member {
    int kind;         /* of kinds[] */
    bool one_expert;  /* it has kernels of its own for that */
    bool delicate;    /* as case_is_delicate() */
    uint64_t random;  /* its own */
    const char *hash; /* borrowed, static */
    const char *config;
    int load_warps, store_slabs; /* what a config leaves out is chosen by sizes, and compiled in */
    char name[600];
};

/* 0; -1: no kind is as this one, which is a fault of kinds[]. */
int member_at(int i, struct member *m);
/* For a problem of the member's kind. False: not legal, and why. */
bool member_config(const struct member *m, const struct problem *p, const struct device_info *info,
                   struct record *config, struct rejection *why);

#endif
