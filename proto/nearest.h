/* SPDX-License-Identifier: Apache-2.0 */
/* The known name nearest to an unknown name: offer all known names, then read the result. For error
 * messages such as "there is no field 'top_k'; did you mean 'topk'?". */
#ifndef GEMMD_PROTO_NEAREST_H
#define GEMMD_PROTO_NEAREST_H

#include <stddef.h>

#include "proto/error.h"

struct nearest {
    const char *given; /* borrowed */
    size_t n;
    const char *best; /* borrowed */
    unsigned distance;
    char known[320]; /* the offered names, as many as fit */
};
void nearest_begin(struct nearest *t, const char *given, size_t n);
void nearest_offer(struct nearest *t, const char *known);
const char *nearest_end(const struct nearest *t); /* NULL: no name is near */
/* ERROR_UNKNOWN_FIELD; the error message has the nearest name, or all names. */
int nearest_refuse(const struct nearest *t, const char *what, struct error *err);

#endif
