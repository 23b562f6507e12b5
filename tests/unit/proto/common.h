/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the tests of proto/: a seeded random source (a failing seed can run again) and
 * MessagePack made from JSON. A test op has the fields and rules of the op grouped_gemm, which
 * lives in kernels/, out of reach here.
 */
#ifndef GEMMD_TESTS_UNIT_PROTO_COMMON_H
#define GEMMD_TESTS_UNIT_PROTO_COMMON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proto/limits.h"
#include "proto/problem.h"
#include "proto/scan.h"
#include "proto/wire.h"

/* ---- random (splitmix64) --------------------------------------------------------------------- */

struct rng {
    uint64_t state;
};

static inline uint64_t rng_next(struct rng *r)
{
    uint64_t z = (r->state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* low..high, both counted */
static inline int64_t rng_in(struct rng *r, int64_t low, int64_t high)
{
    return low + (int64_t)(rng_next(r) % (uint64_t)(high - low + 1));
}

/* Draws a size: small numbers are as likely as large numbers. */
static inline int64_t rng_size(struct rng *r, int64_t max)
{
    int bits = (int)rng_in(r, 0, 63 - __builtin_clzll((uint64_t)max));
    int64_t v = (INT64_C(1) << bits) + (int64_t)(rng_next(r) & ((UINT64_C(1) << bits) - 1));
    return v <= max ? v : max;
}

/* ---- an op like grouped_gemm ----------------------------------------------------------------- */

static const char *const test_modes[] = {"forward", "dX", "dW", NULL};
static const char *const test_dtypes[] = {"bf16", "fp16", "fp32", NULL};
static const char *const test_acc[] = {"fp32", NULL};
static const char *const test_none[] = {"none", NULL};

#define TEST_SIZE(field)                                                                           \
    {                                                                                              \
        .name = (field), .type = VALUE_INT, .required = true, .min = 1, .max = GEMM_SIZE_MAX,      \
        .help = "a size"                                                                           \
    }
#define TEST_COUNT(field, most)                                                                    \
    {                                                                                              \
        .name = (field), .type = VALUE_INT, .min = 1, .max = (most), .fallback = {                 \
            .type = VALUE_INT,                                                                     \
            .integer = 1                                                                           \
        }                                                                                          \
    }
#define TEST_FLAG(field)                                                                           \
    {                                                                                              \
        .name = (field), .type = VALUE_BOOL, .fallback = {.type = VALUE_BOOL }                     \
    }
#define TEST_CHOICE(field, list, value)                                                            \
    {                                                                                              \
        .name = (field), .type = VALUE_TEXT, .choices = (list), .fallback = {                      \
            .type = VALUE_TEXT,                                                                    \
            .text = (value)                                                                        \
        }                                                                                          \
    }

static const struct op_field test_fields[] = {
    {.name = "mode",
     .type = VALUE_TEXT,
     .required = true,
     .choices = test_modes,
     .help = "which product"},
    TEST_SIZE("M"),
    TEST_SIZE("N"),
    TEST_SIZE("K"),
    TEST_COUNT("experts", GEMM_EXPERTS_MAX),
    TEST_COUNT("topk", GEMM_TOPK_MAX),
    TEST_CHOICE("dtype_in", test_dtypes, "bf16"),
    TEST_CHOICE("dtype_out", test_dtypes, "bf16"),
    TEST_CHOICE("dtype_acc", test_acc, "fp32"),
    TEST_FLAG("permute_x"),
    TEST_FLAG("permute_y"),
    TEST_FLAG("fuse_mul_post"),
    TEST_FLAG("accumulate"),
    TEST_CHOICE("routing", NULL, "uniform"),
    TEST_CHOICE("quant", test_none, "none"),
    TEST_CHOICE("scale_block", test_none, "none"),
    TEST_CHOICE("family", NULL, "grouped_gemm"),
};

static int test_check(struct problem *p, struct error *err)
{
    const struct record *f = &p->fields;
    if (record_bool(f, "fuse_mul_post", false) && !record_bool(f, "permute_y", false)) {
        return error_set(err, ERROR_CONFLICT, "fuse_mul_post needs permute_y");
    }
    if (record_int(f, "M", 0) % record_int(f, "topk", 1) != 0) {
        return error_set(err, ERROR_INVALID, "M is no multiple of topk");
    }
    return 0;
}

static void test_bucket(struct problem *p, enum bucket_scheme scheme)
{
    struct record *f = &p->fields;
    int64_t m = record_int(f, "M", 1);
    int64_t topk = record_int(f, "topk", 1);
    if (scheme == BUCKET_SQRT2) {
        record_put_int(f, "M", bucket_sqrt2_rows(m, record_int(f, "experts", 1), topk));
    } else {
        record_put_int(f, "M", bucket_pow2_rows(m, topk));
        record_put_int(f, "N", bucket_pow2(record_int(f, "N", 1)));
        record_put_int(f, "K", bucket_pow2(record_int(f, "K", 1)));
    }
}

static const struct op_alias test_aliases[] = {
    {"gemm",
     {{"experts", {.type = VALUE_INT, .integer = 1}}, {"topk", {.type = VALUE_INT, .integer = 1}}}},
    {"forward_gemm", {{"mode", {.type = VALUE_TEXT, .text = "forward"}}}},
    {NULL},
};

static const struct op test_op = {
    .name = "grouped_gemm",
    .aliases = test_aliases,
    .fields = test_fields,
    .n_fields = sizeof(test_fields) / sizeof(test_fields[0]),
    .check = test_check,
    .bucket = test_bucket,
};

static inline void test_ops_set(void)
{
    static const struct op *const list[] = {&test_op, NULL};
    ops_set(list);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* True: data is exactly one object that the scan accepts. */
static inline int scan_all(const void *data, size_t n, size_t limit, struct error *err)
{
    struct scan s;
    size_t used = 0;
    scan_init(&s, limit);
    int r = scan_feed(&s, data, n, &used, err);
    return r == SCAN_DONE && used != n ? error_set(err, ERROR_MALFORMED, "more than one") : r;
}

/* Decodes JSON like bytes from the wire. The caller frees doc and b. */
static inline const struct wire_obj *wire_of(struct wire_doc *doc, struct wire_buf *b,
                                             const char *json)
{
    const struct wire_obj *o = NULL;
    struct error err = ERROR_NULL;
    wire_buf_clear(b);
    if (wire_from_json(b, json, &err) < 0 || wire_decode(doc, b->data, b->len, &o, &err) < 0) {
        fail_msg("%s", err.text);
    }
    return o;
}

#define assert_ok(err, call)                                                                       \
    do {                                                                                           \
        (err) = ERROR_NULL;                                                                        \
        int r_ = (call);                                                                           \
        if (r_ != 0) {                                                                             \
            fail_msg("%s: %d, %s", #call, r_, (err).text);                                         \
        }                                                                                          \
    } while (0)

/* Asserts that `call` fails with `code`, and that its error message contains `part`. */
#define assert_error(err, code, part, call)                                                        \
    do {                                                                                           \
        (err) = ERROR_NULL;                                                                        \
        int r_ = (call);                                                                           \
        if (r_ != (code) || !strstr((err).text, (part))) {                                         \
            fail_msg("%s: %d, '%s'; wanted %d, '%s'", #call, r_, (err).text, (code), (part));      \
        }                                                                                          \
    } while (0)

#endif
