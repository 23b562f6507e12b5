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

/* Of a given list, those that are in it. */
bool allowed_config(const struct request *r, const struct record *config);
/* From a config that is legal for `p` on a target to one that is, and that the request allows: the
 * first legal one of a given list, else one parameter after the other. False: that leads to none,
 * and the config is as it was. */
bool allowed_within(const struct request *r, const struct problem *p, const struct family_target *t,
                    const struct device_info *info, struct record *config);

#endif
