/* SPDX-License-Identifier: Apache-2.0 */
/* What can be known to fail before a runner is troubled with it. */
#ifndef GEMMD_DAEMON_ANSWERS_PRECHECK_H
#define GEMMD_DAEMON_ANSWERS_PRECHECK_H

#include "proto/request.h"

struct daemon;

/* ERROR_NO_CONFIG: nobody tunes this op here, or no config is valid; ERROR_NO_COMPILER; what is
 * wrong with the given configs when all are; ERROR_UNKNOWN_FIELD: a restriction on no tunable;
 * ERROR_INVALID: one to values of another type. */
int precheck(struct daemon *d, const struct request *r /* problem = bucket */, struct error *err);
/* The dear part of it: whether any config is valid at all. For background jobs, of which hundreds
 * may be asked for at once, it is enough to know when they begin. */
int precheck_space(struct daemon *d, const struct request *r, struct error *err);

#endif
