/* SPDX-License-Identifier: Apache-2.0 */
/* What can be known to fail before a runner is troubled with it. */
#ifndef GEMMD_DAEMON_PRECHECK_H
#define GEMMD_DAEMON_PRECHECK_H

#include "proto/request.h"

struct daemon;

/* ERROR_NO_CONFIG: nobody tunes this op here, or no config is valid; ERROR_NO_COMPILER; what is wrong
 * with the given configs when all are; ERROR_UNKNOWN_FIELD: a restriction on no tunable. */
int precheck(struct daemon *d, const struct request *r, const struct problem *bucket,
             struct error *err);

#endif
