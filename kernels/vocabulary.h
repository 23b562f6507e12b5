/* SPDX-License-Identifier: Apache-2.0 */
/* Vocabulary of all kernels: data types, reasons of a rejection, random numbers. */
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
    /* The last tunable, in the target's order, that the rule looks at. A walk then drops all points
     * that differ only in later tunables. NULL: the rule may look at all tunables. */
    const char *settled_by;
};

/* Fills `why` and returns 1, so that `return rejection_set(...)` ends a check(). The text in
 * `why` must name the value, the accepted values and the remedy. */
int rejection_set(struct rejection *why, int code, const char *rule, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Sets settled_by to `tunable`, a constant, after a rejection; returns `rejected`. */
int rejection_settled(struct rejection *why, int rejected, const char *tunable);
/* Rejects for a limit of the device: code ERROR_RESOURCE, rule = resource. The text ends with
 * "<what> needs <required> ..., the device has <limit>". */
int rejection_resource(struct rejection *why, const char *resource, int64_t required, int64_t limit,
                       const char *format, ...) __attribute__((format(printf, 5, 6)));

size_t dtype_size(enum dtype t); /* bytes; 0 for DTYPE_NONE */
/* Half of the distance between the type's smallest values: the largest rounding error of a value
 * near zero. A tolerance below this would reject correct results of tiny values. */
double dtype_grain(enum dtype t);
const char *
dtype_name(enum dtype t); /* "bf16" "fp16" "fp32" "int32" "int64" "uint8", else "none" */
enum dtype dtype_find(const char *name);

/* A deterministic generator (splitmix64 steps) for routing and seeds; equal on all machines. */
uint64_t random_next(uint64_t *state);
double random_unit(uint64_t *state); /* [0, 1) */

#endif
