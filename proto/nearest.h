/* SPDX-License-Identifier: Apache-2.0 */
/* The known name nearest to one that is not known: offer all of them, then ask. For sentences such
 * as "there is no field 'top_k'; did you mean 'topk'?". Internal to proto/. */
#ifndef GEMMD_PROTO_NEAREST_H
#define GEMMD_PROTO_NEAREST_H

#include <stddef.h>

#include "proto/error.h"

struct nearest {
    const char *given; /* borrowed */
    size_t n;
    const char *best; /* borrowed */
    unsigned distance;
    char known[320]; /* the names that were offered, as many as fit */
};
void nearest_begin(struct nearest *t, const char *given, size_t n);
void nearest_offer(struct nearest *t, const char *known);
const char *nearest_end(const struct nearest *t); /* NULL: none is near */
/* ERROR_UNKNOWN_FIELD: `what` has no such field, but the near one, or all these. */
int nearest_refuse(const struct nearest *t, const char *what, struct error *err);

#endif
