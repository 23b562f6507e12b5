/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounding of sizes. The code computes with integers only, so every machine and compiler gives the
 * same bucket. A size stays unchanged when rounding would pass GEMM_SIZE_MAX, since a bucket must
 * be a legal problem.
 */
#include <assert.h>
#include <string.h>

#include "proto/limits.h"
#include "proto/problem.h"

static const char *const scheme_names[] = {"exact", "pow2", "sqrt2"};

const char *bucket_scheme_name(enum bucket_scheme s)
{
    return scheme_names[s];
}

int bucket_scheme_parse(const char *name, enum bucket_scheme *out, struct error *err)
{
    for (size_t i = 0; i < sizeof(scheme_names) / sizeof(scheme_names[0]); i++) {
        if (strcmp(scheme_names[i], name) == 0) {
            *out = (enum bucket_scheme)i;
            return 0;
        }
    }
    return error_set(err, ERROR_INVALID,
                     "there is no bucket scheme '%.40s'; use exact, pow2 or sqrt2", name);
}

void problem_bucket(const struct problem *p, enum bucket_scheme scheme, struct problem *out)
{
    if (out != p) {
        out->op = p->op;
        memcpy(out->op_name, p->op_name, sizeof(out->op_name));
        record_copy(&out->fields, &p->fields);
    }
    if (scheme != BUCKET_EXACT && p->op->bucket) {
        p->op->bucket(out, scheme);
    }
}

enum { CLASS_MAX = 128 };

static int64_t ceil_pow2(int64_t n)
{
    return n <= 1 ? 1 : INT64_C(1) << (64 - __builtin_clzll((uint64_t)n - 1));
}

/* Rounds up to the next power of two, and subtracts the class of n, which is the largest power of
 * two that divides n. So the class divides the result, too. The result is at least n, since n is an
 * odd multiple of the class. A class from CLASS_MAX on is not subtracted. */
int64_t bucket_pow2(int64_t n)
{
    if (n < 1 || n > GEMM_SIZE_MAX) {
        return n;
    }
    int64_t top = ceil_pow2(n);
    int64_t class = n & -n;
    return top == n || class >= CLASS_MAX ? top : top - class;
}

int64_t bucket_pow2_rows(int64_t rows, int64_t topk)
{
    assert(topk >= 1);
    if (rows < 1 || rows > GEMM_SIZE_MAX) {
        return rows;
    }
    int64_t tokens = (rows + topk - 1) / topk;
    int64_t rounded = topk * ceil_pow2(tokens);
    return rounded <= GEMM_SIZE_MAX ? rounded : rows;
}

/* floor(x * sqrt(2)) for x <= 2^31. The constant is sqrt(2) * 2^63, truncated. So the product is
 * too small by less than 2^-32, while x * sqrt(2) is above an integer by more. */
static int64_t times_sqrt2(int64_t x)
{
    __extension__ typedef unsigned __int128 wide;
    return (int64_t)(((wide)(uint64_t)x * UINT64_C(0xb504f333f9de6484)) >> 63);
}

/* Returns floor(experts * 2^(i/2)); i may be negative. A shift after rounding is exact,
 * because floor(floor(x) / 2) is floor(x / 2). */
static int64_t half_steps(int64_t experts, int i)
{
    int whole = i >> 1;
    if (!(i & 1)) {
        return whole >= 0 ? experts << whole : experts >> -whole;
    }
    return whole >= 0 ? times_sqrt2(experts << whole) : times_sqrt2(experts) >> -whole;
}

static int log2_floor(int64_t n)
{
    return 63 - __builtin_clzll((uint64_t)n);
}

int64_t bucket_sqrt2_rows(int64_t rows, int64_t experts, int64_t topk)
{
    assert(experts >= 1 && topk >= 1);
    if (rows < 1 || rows > GEMM_SIZE_MAX || experts > GEMM_SIZE_MAX) {
        return rows;
    }
    /* The smallest i. topk * ceil(m / topk) >= rows needs m > rows - topk, that is m >= least. With
     * least >= 2^a and experts < 2^(b+1), all steps before i = 2 * (a - b - 1) are below least. */
    int64_t least = rows > topk ? rows - topk + 1 : 1;
    for (int i = 2 * (log2_floor(least) - log2_floor(experts) - 1);; i++) {
        int64_t steps = half_steps(experts, i);
        int64_t rounded = (steps + topk - 1) / topk * topk;
        if (rounded >= rows) {
            return rounded <= GEMM_SIZE_MAX ? rounded : rows;
        }
    }
}
