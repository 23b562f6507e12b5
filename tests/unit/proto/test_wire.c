/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes that the writer makes, and the values that the reader gets from any bytes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/proto/common.h"

/* ---- writing --------------------------------------------------------------------------------- */

static void expect(struct wire_buf *b, const char *hex)
{
    char got[256] = "";
    for (size_t i = 0; i < b->len && i < 100; i++) {
        snprintf(got + 2 * i, 3, "%02x", b->data[i]);
    }
    assert_false(b->failed);
    assert_string_equal(got, hex);
    wire_buf_clear(b);
}

static void test_integers_shortest(void **state)
{
    (void)state;
    static const struct {
        int64_t v;
        const char *hex;
    } cases[] = {
        {0, "00"},
        {127, "7f"},
        {128, "cc80"},
        {255, "ccff"},
        {256, "cd0100"},
        {65535, "cdffff"},
        {65536, "ce00010000"},
        {UINT32_MAX, "ceffffffff"},
        {INT64_C(1) << 32, "cf0000000100000000"},
        {INT64_MAX, "cf7fffffffffffffff"},
        {-1, "ff"},
        {-32, "e0"},
        {-33, "d0df"},
        {-128, "d080"},
        {-129, "d1ff7f"},
        {-32768, "d18000"},
        {-32769, "d2ffff7fff"},
        {INT32_MIN, "d280000000"},
        {(int64_t)INT32_MIN - 1, "d3ffffffff7fffffff"},
        {INT64_MIN, "d38000000000000000"},
    };
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        wire_put_int(&b, cases[i].v);
        expect(&b, cases[i].hex);
    }
    wire_put_uint(&b, UINT64_MAX);
    expect(&b, "cfffffffffffffffff");
}

static void test_heads(void **state)
{
    (void)state;
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    wire_put_nil(&b);
    wire_put_bool(&b, true);
    wire_put_bool(&b, false);
    wire_put_real(&b, 1.5);
    wire_put_str(&b, NULL);
    wire_put_str(&b, "");
    wire_put_str(&b, "ab");
    wire_put_bin(&b, "\x00\xff", 2);
    wire_put_bin(&b, NULL, 0);
    expect(&b, "c0c3c2cb3ff8000000000000c0a0a26162c40200ffc400");
    wire_put_array(&b, 15);
    wire_put_array(&b, 16);
    wire_put_array(&b, 65536);
    wire_put_map(&b, 15);
    wire_put_map(&b, 16);
    wire_put_map(&b, 65536);
    expect(&b, "9fdc0010dd000100008fde0010df00010000");
}

static void test_text_lengths(void **state)
{
    (void)state;
    static const struct {
        size_t n, head;
    } cases[] = {{31, 1}, {32, 2}, {255, 2}, {256, 3}, {65535, 3}, {65536, 5}};
    static char text[65537];
    memset(text, 'x', sizeof(text));
    struct wire_doc *doc = wire_doc_new();
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct wire_obj *o;
        const char *s;
        const void *bin;
        size_t n;
        wire_buf_clear(&b);
        wire_put_strn(&b, text, cases[i].n);
        assert_int_equal(b.len, cases[i].n + cases[i].head);
        assert_int_equal(wire_decode(doc, b.data, b.len, &o, NULL), 0);
        assert_true(wire_get_str(o, &s, &n) && n == cases[i].n && memcmp(s, text, n) == 0);
        wire_buf_clear(&b);
        wire_put_bin(&b, text, cases[i].n);
        assert_int_equal(wire_decode(doc, b.data, b.len, &o, NULL), 0);
        assert_true(wire_get_bin(o, &bin, &n) && n == cases[i].n && memcmp(bin, text, n) == 0);
    }
    wire_doc_free(doc);
}

static void test_text_is_utf8(void **state)
{
    (void)state;
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    wire_put_str(&b, "\xc3\xa9\xe2\x82\xac"); /* well formed: unchanged */
    expect(&b, "a5c3a9e282ac");
    wire_put_str(&b, "a\xff\xc3"); /* a stray byte, and a character that is cut off */
    expect(&b, "a3613f3f");
    wire_put_str(&b, "\xed\xa0\x80\xc0\xaf\xf4\x90\x80\x80"); /* surrogate, overlong, too large */
    expect(&b, "a93f3f3f3f3f3f3f3f3f");
}

/* ---- reading --------------------------------------------------------------------------------- */

static void test_types(void **state)
{
    (void)state;
    struct wire_doc *doc = wire_doc_new();
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    const struct wire_obj *o =
        wire_of(doc, &b, "[null, true, 7, -7, 1.5, \"text\", [1], {\"k\": 2}]");
    static const enum wire_type types[] = {WIRE_NIL,  WIRE_BOOL, WIRE_INT,   WIRE_INT,
                                           WIRE_REAL, WIRE_STR,  WIRE_ARRAY, WIRE_MAP};
    assert_int_equal(wire_count(o), 8);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(wire_type_of(wire_at(o, i)), types[i]);
    }
    bool flag = false;
    int64_t integer = 0;
    double real = 0;
    char text[5];
    assert_true(wire_get_bool(wire_at(o, 1), &flag) && flag);
    assert_true(wire_get_int(wire_at(o, 3), &integer) && integer == -7);
    assert_true(wire_get_real(wire_at(o, 3), &real) && real == -7);
    assert_true(wire_get_real(wire_at(o, 2), &real) && real == 7);
    assert_true(wire_get_real(wire_at(o, 4), &real) && real == 1.5);
    assert_false(wire_get_int(wire_at(o, 4), &integer));
    assert_false(wire_get_bool(wire_at(o, 2), &flag));
    assert_true(wire_copy_str(wire_at(o, 5), text, 5));
    assert_string_equal(text, "text");
    assert_false(wire_copy_str(wire_at(o, 5), text, 4)); /* the zero at the end has no room */
    assert_true(wire_is_str(wire_at(o, 5), "text"));
    assert_false(wire_is_str(wire_at(o, 5), "texts"));
    assert_true(wire_get_int(wire_find(wire_at(o, 7), "k"), &integer) && integer == 2);
    wire_doc_free(doc);
}

static void test_absent(void **state)
{
    (void)state;
    struct wire_doc *doc = wire_doc_new();
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    const struct wire_obj *o = wire_of(doc, &b, "{\"a\": [1]}");
    const struct wire_obj *key, *value;
    int64_t i;
    const char *s;
    size_t n;
    assert_null(wire_find(o, "b"));
    assert_null(wire_find(wire_find(o, "a"), "a"));
    assert_null(wire_find(NULL, "a"));
    assert_null(wire_at(o, 0));
    assert_null(wire_at(wire_find(o, "a"), 1));
    assert_int_equal(wire_count(NULL), 0);
    assert_int_equal(wire_type_of(NULL), WIRE_NIL);
    assert_false(wire_get_int(NULL, &i) || wire_get_str(NULL, &s, &n) || wire_is_str(NULL, ""));
    wire_pair(o, 1, &key, &value);
    assert_null(key);
    assert_null(value);
    wire_doc_free(doc);
}

static void test_large_integers(void **state)
{
    (void)state;
    struct wire_doc *doc = wire_doc_new();
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    const struct wire_obj *o;
    int64_t v;
    wire_put_uint(&b, (uint64_t)INT64_MAX + 1);
    assert_int_equal(wire_decode(doc, b.data, b.len, &o, NULL), 0);
    assert_false(wire_get_int(o, &v));
    assert_true(wire_uint(o) == (uint64_t)INT64_MAX + 1);
    WIRE_BUF_AUTO again = WIRE_BUF_NULL;
    wire_put_obj(&again, o);
    assert_int_equal(again.len, b.len);
    assert_memory_equal(again.data, b.data, b.len);
    wire_doc_free(doc);
}

static void test_zero_byte_in_text(void **state)
{
    (void)state;
    struct wire_doc *doc = wire_doc_new();
    const struct wire_obj *o;
    char out[8];
    assert_int_equal(wire_decode(doc,
                                 "\xa3"
                                 "a\0b",
                                 4, &o, NULL),
                     0);
    assert_false(wire_copy_str(o, out, sizeof(out)));
    wire_doc_free(doc);
}

static void test_not_one_object(void **state)
{
    (void)state;
    struct wire_doc *doc = wire_doc_new();
    const struct wire_obj *o;
    struct error err;
    assert_error(err, ERROR_MALFORMED, "cut off", wire_decode(doc, "\x92\x01", 2, &o, &err));
    assert_error(err, ERROR_MALFORMED, "cut off", wire_decode(doc, "", 0, &o, &err));
    assert_error(err, ERROR_MALFORMED, "after 1 of 2", wire_decode(doc, "\x01\x02", 2, &o, &err));
    assert_error(err, ERROR_MALFORMED, "bad byte", wire_decode(doc, "\xc1", 1, &o, &err));
    assert_ok(err, wire_decode(doc, "\x91\x01", 2, &o, &err)); /* a doc survives errors */
    assert_int_equal(wire_count(o), 1);
    wire_doc_free(doc);
    assert_null(wire_doc_free(NULL));
}

/* Writes a random object, nested up to `depth` levels. */
static void put_random(struct wire_buf *b, struct rng *rng, int depth)
{
    char text[40];
    size_t n = (size_t)rng_in(rng, 0, depth > 0 ? 5 : 39);
    switch (rng_in(rng, 0, depth > 0 ? 7 : 5)) {
    case 0:
        wire_put_nil(b);
        break;
    case 1:
        wire_put_bool(b, rng_next(rng) & 1);
        break;
    case 2:
        wire_put_int(b, (int64_t)rng_next(rng) >> rng_in(rng, 0, 63));
        break;
    case 3:
        wire_put_real(b, (double)(int64_t)rng_next(rng) * 0x1p-40);
        break;
    case 4:
    case 5:
        for (size_t i = 0; i < n; i++) {
            text[i] = (char)rng_in(rng, 0, 127);
        }
        (rng_next(rng) & 1 ? wire_put_strn(b, text, n) : wire_put_bin(b, text, n));
        break;
    case 6:
        wire_put_array(b, n);
        for (size_t i = 0; i < n; i++) {
            put_random(b, rng, depth - 1);
        }
        break;
    default:
        wire_put_map(b, n);
        for (size_t i = 0; i < 2 * n; i++) {
            put_random(b, rng, depth - 1);
        }
        break;
    }
}

/* Asserts that the object's JSON can be read back, except JSON that our reader refuses: with a
 * repeated key, or a zero in text. */
static void expect_valid_json(const struct wire_obj *o)
{
    struct error err;
    char *json;
    assert_ok(err, wire_to_json(o, &json, &err));
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    err = ERROR_NULL;
    if (wire_from_json(&b, json, &err) < 0 && !strstr(err.text, "duplicate") &&
        !strstr(err.text, "\\u0000") && !strstr(err.text, "NUL byte")) {
        fail_msg("%s: %s", json, err.text);
    }
    free(json);
}

static void test_round_trip(void **state)
{
    (void)state;
    struct rng rng = {1};
    struct wire_doc *doc = wire_doc_new();
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    WIRE_BUF_AUTO again = WIRE_BUF_NULL;
    for (int i = 0; i < 5000; i++) {
        const struct wire_obj *o;
        struct error err;
        wire_buf_clear(&b);
        wire_buf_clear(&again);
        put_random(&b, &rng, 6);
        assert_ok(err, wire_decode(doc, b.data, b.len, &o, &err));
        wire_put_obj(&again, o);
        assert_int_equal(again.len, b.len);
        assert_memory_equal(again.data, b.data, b.len);
        expect_valid_json(o);
    }
    wire_doc_free(doc);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void expect_json(const void *data, size_t n, const char *json)
{
    struct wire_doc *doc = wire_doc_new();
    const struct wire_obj *o;
    struct error err;
    char *got;
    assert_ok(err, wire_decode(doc, data, n, &o, &err));
    assert_ok(err, wire_to_json(o, &got, &err));
    assert_string_equal(got, json);
    free(got);
    wire_doc_free(doc);
}

static void test_json(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "null",
        "true",
        "[]",
        "{}",
        "-9223372036854775808",
        "0.1",
        "1e-07",
        "1e+300",
        "3.0",
        "{\"a\":[1,2.5,\"x\"],\"b\":{\"c\":null}}",
        "\"q\\\"b\\\\n\\n\\t\\u0001\xc3\xa9\"",
    };
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct error err;
        wire_buf_clear(&b);
        assert_ok(err, wire_from_json(&b, texts[i], &err));
        expect_json(b.data, b.len, texts[i]);
    }
}

static void test_json_of_the_unsayable(void **state)
{
    (void)state;
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    wire_put_array(&b, 5);
    wire_put_bin(&b, "Man", 3);
    wire_put_bin(&b, "Ma", 2);
    wire_put_bin(&b, "M", 1);
    wire_put_real(&b, NAN);
    wire_put_uint(&b, UINT64_MAX);
    expect_json(b.data, b.len, "[\"TWFu\",\"TWE=\",\"TQ==\",null,18446744073709551615]");
    wire_buf_clear(&b);
    wire_put_map(&b, 2);
    wire_put_int(&b, 7);
    wire_put_int(&b, 1);
    wire_put_array(&b, 1);
    wire_put_str(&b, "k");
    wire_put_int(&b, 2);
    expect_json(b.data, b.len, "{\"7\":1,\"[\\\"k\\\"]\":2}");
    expect_json("\xa2\xff\x61", 3, "\"?a\""); /* foreign bytes: our own writer puts UTF-8 only */
}

static void test_json_errors(void **state)
{
    (void)state;
    struct error err;
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    assert_error(err, ERROR_INVALID, "line 2, column 1", wire_from_json(&b, "{\n]", &err));
    assert_error(err, ERROR_INVALID, "", wire_from_json(&b, "", &err));
    assert_error(err, ERROR_INVALID, "duplicate", wire_from_json(&b, "{\"a\":1,\"a\":2}", &err));
    assert_error(err, ERROR_INVALID, "too big", wire_from_json(&b, "99999999999999999999", &err));
    assert_error(err, ERROR_INVALID, "", wire_from_json(&b, "[1] x", &err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers_shortest),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_text_lengths),
        cmocka_unit_test(test_text_is_utf8),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_absent),
        cmocka_unit_test(test_large_integers),
        cmocka_unit_test(test_zero_byte_in_text),
        cmocka_unit_test(test_not_one_object),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_json_of_the_unsayable),
        cmocka_unit_test(test_json_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
