/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A portfolio: few configs, so that each shape has one among them that takes at most (1 + bound) as
 * long as the best known for it. Finding the smallest such set is set cover, which is hard; this is
 * the greedy way (the config that covers most of what is left, again and again), which is at most
 * 1 + ln(shapes) times larger, and then whatever the others make superfluous is dropped. The
 * outcome depends on nothing but the numbers: ties go to the smaller sum of regrets, then to the
 * lower index.
 */
#ifndef GEMMD_PROTO_COVER_H
#define GEMMD_PROTO_COVER_H

#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

/* What a config takes for a shape, in any unit that is one for that shape. Above 0. */
struct cover_pair {
    uint32_t shape, config;
    double time;
};

struct cover_choice {
    uint32_t config; /* the member that is best for the shape */
    uint32_t place;  /* of that member, by how many shapes it covered when it was chosen; from 0 */
    double regret;   /* its time / the best time - 1; at most the bound */
    double time;     /* as the pair has it */
};

/* choices: one for each shape 0..n_shapes-1, each of which has a pair; no (shape, config) stands
 * twice. *members: how many configs are in the set. ERROR_NO_MEMORY. */
int cover_make(const struct cover_pair *pairs, size_t n, uint32_t n_shapes, uint32_t n_configs,
               double bound, struct cover_choice *choices, uint32_t *members, struct error *err);

#endif
