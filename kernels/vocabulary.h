/* SPDX-License-Identifier: Apache-2.0 */
/* The words that all kernels share: types of data, reasons of a rejection, random numbers. */
#ifndef GEMMD_KERNELS_VOCABULARY_H
#define GEMMD_KERNELS_VOCABULARY_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/abi.h"

/* Why a config cannot be used. */
struct rejection {
    int code;          /* ERROR_INVALID, ERROR_CONFLICT, ERROR_RESOURCE */
    char resource[32]; /* of ERROR_RESOURCE: "shared_memory" ... */
    int64_t required, limit;
    char rule[32]; /* short stable name of the rule, for counting: "unroll_rows_divides" */
    char text[320];
    /* The last tunable, in the target's order, that the rule looks at: who walks a space drops the
     * points that differ in later ones only with this one. NULL: it may look at all. */
    const char *settled_by;
};

/* Fills `why` and returns 1, so that `return rejection_set(...)` ends a check(). The sentence names
 * the value, what is accepted and what to do. */
int rejection_set(struct rejection *why, int code, const char *rule, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Names the tunable that settles it, a constant; returns what rejection_set() did. */
int rejection_settled(struct rejection *why, int rejected, const char *tunable);
/* The same for a device limit: code ERROR_RESOURCE, rule = resource, "<what> needs <required> ...,
 * the device has <limit>" as the sentence's end. */
int rejection_resource(struct rejection *why, const char *resource, int64_t required, int64_t limit,
                       const char *format, ...) __attribute__((format(printf, 5, 6)));

size_t dtype_size(enum dtype t); /* bytes; 0 for DTYPE_NONE */
/* Half of the type's smallest step: what rounding may do to a value near zero, whatever its size.
 * A row of tiny values cannot be held to a part of its own norm more closely than this. */
double dtype_grain(enum dtype t);
const char *dtype_name(enum dtype t); /* "bf16" "fp16" "fp32" "int32" "int64", else "none" */

/* A deterministic generator (splitmix64 steps) for routing and seeds; same everywhere. */
uint64_t random_next(uint64_t *state);
double random_unit(uint64_t *state); /* [0, 1) */

#endif
