/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request allows: its restrictions, and its list of configs where it gives one. A default,
 * which no search has chosen, is brought within it as far as that goes; by the daemon and by the
 * library alike, so that both answer the same.
 */
#ifndef GEMMD_KERNELS_ALLOWED_H
#define GEMMD_KERNELS_ALLOWED_H

#include "kernels/family.h"
#include "proto/request.h"

struct allowed_place { /* all borrowed */
    const struct problem *problem;
    const struct family_target *target;
    const struct device_info *info;
    bool (*barred)(const void *ctx, const struct record *config);
    const void *ctx;
};

/* Of a given list, those that are in it. */
bool allowed_config(const struct request *r, const struct record *config);
/* From a config that is legal there to one that is, and that the request allows: the first legal
 * one of a given list, else one parameter after the other; none that `barred` names (NULL: it names
 * none). False: that leads to none, and the config is as it was. */
bool allowed_within(const struct request *r, const struct allowed_place *at, struct record *config);

#endif
