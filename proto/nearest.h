/* SPDX-License-Identifier: Apache-2.0 */
/* The known name nearest to one that is not known: offer all of them, then ask. For sentences such
 * as "there is no field 'top_k'; did you mean 'topk'?". Internal to proto/. */
#ifndef GEMMD_PROTO_NEAREST_H
#define GEMMD_PROTO_NEAREST_H

#include <stddef.h>

struct nearest {
    const char *given; /* borrowed */
    size_t n;
    const char *best; /* borrowed */
    unsigned distance;
};
void nearest_begin(struct nearest *t, const char *given, size_t n);
void nearest_offer(struct nearest *t, const char *known);
const char *nearest_end(const struct nearest *t); /* NULL: none is near */

#endif
