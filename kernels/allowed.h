/* SPDX-License-Identifier: Apache-2.0 */
/* The configs that a request allows, by its restrictions and its list of configs. The daemon and
 * the library move an analytic default to an allowed config in the same way. */
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

/* True when the restrictions allow the config, and the list, if any, has it: in a search, such a
 * config may win. */
bool allowed_config(const struct request *r, const struct record *config);
/* Changes a legal config into a legal and allowed config. Takes the first legal config of the
 * request's list; without a list, changes one parameter after the other. Skips configs for which
 * `barred` (may be NULL) is true. Returns false, and leaves `config` alone, when none is found. */
bool allowed_within(const struct request *r, const struct allowed_place *at, struct record *config);

#endif
