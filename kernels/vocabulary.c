/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kernels/vocabulary.h"
#include "proto/error.h"

static int vocabulary_reject(struct rejection *why, int code, const char *rule, const char *format,
                             va_list args) __attribute__((format(printf, 4, 0)));

static int vocabulary_reject(struct rejection *why, int code, const char *rule, const char *format,
                             va_list args)
{
    *why = (struct rejection){.code = code};
    snprintf(why->rule, sizeof(why->rule), "%s", rule);
    vsnprintf(why->text, sizeof(why->text), format, args);
    return 1;
}

int rejection_set(struct rejection *why, int code, const char *rule, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vocabulary_reject(why, code, rule, format, args);
    va_end(args);
    return 1;
}

int rejection_resource(struct rejection *why, const char *resource, int64_t required, int64_t limit,
                       const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vocabulary_reject(why, ERROR_RESOURCE, resource, format, args);
    va_end(args);
    snprintf(why->resource, sizeof(why->resource), "%s", resource);
    why->required = required;
    why->limit = limit;
    return 1;
}

int rejection_settled(struct rejection *why, int rejected, const char *tunable)
{
    if (rejected) {
        why->settled_by = tunable;
    }
    return rejected;
}

double dtype_grain(enum dtype t)
{
    /* bf16 and fp32 share an exponent range whose end no value here comes near. */
    return t == DTYPE_FP16 ? 0x1p-25 : 0;
}

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    [DTYPE_NONE] = {"none", 0},         [DTYPE_BF16] = {"bf16", 2},   [DTYPE_FP16] = {"fp16", 2},
    [DTYPE_FP32] = {"fp32", 4},         [DTYPE_INT32] = {"int32", 4}, [DTYPE_INT64] = {"int64", 8},
    [DTYPE_FP8_E4M3] = {"fp8_e4m3", 1}, [DTYPE_UINT8] = {"uint8", 1},
};
enum { DTYPES = sizeof(dtypes) / sizeof(dtypes[0]) };

size_t dtype_size(enum dtype t)
{
    return (unsigned)t < DTYPES ? dtypes[t].size : 0;
}

const char *dtype_name(enum dtype t)
{
    return dtypes[(unsigned)t < DTYPES ? t : DTYPE_NONE].name;
}

enum dtype dtype_find(const char *name)
{
    unsigned t = DTYPE_BF16;
    while (t < DTYPES && (!dtypes[t].name || strcmp(dtypes[t].name, name) != 0)) {
        t++;
    }
    return t < DTYPES ? (enum dtype)t : DTYPE_NONE;
}

uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

double random_unit(uint64_t *state)
{
    return (double)(random_next(state) >> 11) * 0x1p-53;
}
