/* SPDX-License-Identifier: Apache-2.0 */
/* Records: order, replacing, limits, and every form they travel in, with random content. */
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/record.h"
#include "tests/unit/proto/common.h"

static struct error err;

static const char *format(const struct record *r)
{
    static char text[4 * RECORD_TEXT_MAX];
    assert_true(record_format(r, text, sizeof(text)) < sizeof(text));
    return text;
}

/* ---- fields ---------------------------------------------------------------------------------- */

static void test_sorted_and_typed(void **state)
{
    (void)state;
    struct record r;
    record_init(&r);
    record_put_int(&r, "num_warps", 8);
    record_put_bool(&r, "flatten", true);
    record_put_text(&r, "cache", ".ca");
    assert_ok(err, record_set(&r, "BLOCK_SIZE_M", VALUE_OF_INT(64), &err));
    assert_ok(err, record_set(&r, "num_warp", VALUE_OF_REAL(0.5), &err));
    assert_string_equal(format(&r),
                        "BLOCK_SIZE_M=64 cache=.ca flatten=true num_warp=0.5 num_warps=8");
    assert_int_equal(record_int(&r, "num_warps", -1), 8);
    assert_int_equal(record_int(&r, "flatten", -1), -1);
    assert_int_equal(record_int(&r, "absent", -1), -1);
    assert_true(record_bool(&r, "flatten", false));
    assert_string_equal(record_text(&r, "cache", ""), ".ca");
    assert_string_equal(record_text(&r, "num_warps", "other"), "other");
    assert_true(record_remove(&r, "cache"));
    assert_false(record_remove(&r, "cache"));
    assert_string_equal(format(&r), "BLOCK_SIZE_M=64 flatten=true num_warp=0.5 num_warps=8");
}

static void test_replace(void **state)
{
    (void)state;
    struct record r, before;
    record_init(&r);
    record_put_text(&r, "a", "long text");
    record_put_text(&r, "a", "short");
    assert_string_equal(format(&r), "a=short");
    record_put_text(&r, "a", "a much longer text");
    /* the new text lies in the record's own memory, which the call changes */
    record_put_text(&r, "b", record_text(&r, "a", ""));
    record_put_text(&r, "a", record_text(&r, "b", "") + 2);
    record_put_int(&r, "b", 1);
    assert_string_equal(format(&r), "a=\"much longer text\" b=1");
    record_put_text(&r, "b", "text again");
    record_copy(&before, &r);
    assert_true(record_equal(&r, &before));
    record_put_text(&r, "b", "other");
    assert_false(record_equal(&r, &before));
}

static void test_names(void **state)
{
    (void)state;
    struct record r;
    record_init(&r);
    static const char *const good[] = {"a", "_", "A9_.:-", "x23456789012345678901234567890"};
    static const char *const bad[] = {"",   "9a",       ".a",  "a b",
                                      "a=", "\xc3\xa9", "a\n", "x2345678901234567890123456789012"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_ok(err, record_set(&r, good[i], VALUE_OF_INT(1), &err));
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_error(err, ERROR_INVALID, "is no field name",
                     record_set(&r, bad[i], VALUE_OF_INT(1), &err));
    }
}

static void test_values_refused(void **state)
{
    (void)state;
    struct record r;
    record_init(&r);
    assert_error(err, ERROR_INVALID, "finite", record_set(&r, "a", VALUE_OF_REAL(NAN), &err));
    assert_error(err, ERROR_INVALID, "finite", record_set(&r, "a", VALUE_OF_REAL(-INFINITY), &err));
    assert_error(err, ERROR_INVALID, "UTF-8", record_set(&r, "a", VALUE_OF_TEXT("\xff"), &err));
    assert_error(err, ERROR_INVALID, "no value", record_set(&r, "a", (struct value){0}, &err));
    assert_int_equal(r.n, 0);
}

static void test_one_zero(void **state)
{
    (void)state;
    struct record a, b;
    WIRE_BUF_AUTO pa = WIRE_BUF_NULL;
    WIRE_BUF_AUTO pb = WIRE_BUF_NULL;
    record_init(&a);
    record_init(&b);
    assert_ok(err, record_set(&a, "x", VALUE_OF_REAL(0.0), &err));
    assert_ok(err, record_set(&b, "x", VALUE_OF_REAL(-0.0), &err));
    record_pack(&pa, &a);
    record_pack(&pb, &b);
    assert_true(record_equal(&a, &b));
    assert_int_equal(pa.len, pb.len);
    assert_memory_equal(pa.data, pb.data, pa.len);
}

static void test_limits(void **state)
{
    (void)state;
    static struct record r, before;
    static char text[RECORD_TEXT_MAX + 1];
    record_init(&r);
    memset(text, 'x', sizeof(text) - 1);
    assert_error(err, ERROR_INVALID, "8192", record_set(&r, "a", VALUE_OF_TEXT(text), &err));
    assert_ok(err, record_set(&r, "a", VALUE_OF_TEXT(text + 1), &err)); /* just fits, with its 0 */
    assert_error(err, ERROR_INVALID, "'b'", record_set(&r, "b", VALUE_OF_TEXT(""), &err));
    assert_ok(err, record_set(&r, "b", VALUE_OF_INT(1), &err));
    record_copy(&before, &r);
    assert_error(err, ERROR_INVALID, "'b'", record_set(&r, "b", VALUE_OF_TEXT("t"), &err));
    assert_true(record_equal(&r, &before)); /* a failure changes nothing */
    assert_ok(err, record_set(&r, "a", VALUE_OF_TEXT("a"), &err));
    assert_ok(err, record_set(&r, "b", VALUE_OF_TEXT(text + 3), &err));
    record_init(&r);
    for (int i = 0; i < RECORD_FIELDS_MAX; i++) {
        char name[8];
        snprintf(name, sizeof(name), "f%d", i);
        record_put_int(&r, name, i);
    }
    assert_error(err, ERROR_INVALID, "40 fields", record_set(&r, "g", VALUE_OF_INT(1), &err));
    assert_ok(err, record_set(&r, "f7", VALUE_OF_TEXT("seven"), &err));
    assert_int_equal(r.n, RECORD_FIELDS_MAX);
}

/* Thousands of replacements fit: the arena removes unused text. */
static void test_arena_is_packed(void **state)
{
    (void)state;
    struct record r;
    struct rng rng = {1};
    char text[400], expected[8][400];
    record_init(&r);
    memset(expected, 0, sizeof(expected));
    for (int i = 0; i < 20000; i++) {
        int at = (int)rng_in(&rng, 0, 7);
        size_t n = (size_t)rng_in(&rng, 0, 399);
        const char name[] = {(char)('a' + at), 0};
        memset(text, 'a' + i % 26, n);
        text[n] = 0;
        if (rng_next(&rng) % 10 == 0) {
            record_remove(&r, name);
            text[0] = 0;
        } else {
            record_put_text(&r, name, text);
        }
        strcpy(expected[at], text);
        assert_string_equal(record_text(&r, name, ""), text);
    }
    for (int at = 0; at < 8; at++) {
        const char name[] = {(char)('a' + at), 0};
        assert_string_equal(record_text(&r, name, ""), expected[at]);
    }
}

/* ---- one-line text --------------------------------------------------------------------------- */

static void test_parse(void **state)
{
    (void)state;
    struct record r;
    assert_ok(err, record_parse(&r,
                                " b=True,a=-5\tc=FALSE  d=1e3 e=.5 f=text g=\"two \\\"words\\\"\" "
                                "h=\"64\"\n i=\"\\x0a\\\\\" j=2x1 k=- l=1e",
                                &err));
    assert_string_equal(format(&r),
                        "a=-5 b=true c=false d=1000.0 e=0.5 f=text g=\"two \\\"words\\\"\" "
                        "h=\"64\" i=\"\\x0a\\\\\" j=2x1 k=- l=1e");
    assert_string_equal(record_text(&r, "i", ""), "\n\\");
    assert_ok(err, record_parse(&r, "", &err));
    assert_int_equal(r.n, 0);
    assert_ok(err, record_parse(&r, " , ,", &err));
    assert_int_equal(r.n, 0);
}

static void test_parse_errors(void **state)
{
    (void)state;
    struct record r;
    static const struct {
        const char *text, *part;
    } bad[] = {
        {"a=1 flatten b=2", "'flatten': expected name=value"},
        {"a=", "'a=': the value is missing"},
        {"=5", "'' is no field name"},
        {"a=\"x", "no end"},
        {"a=\"x\"y", "space after the closing quote"},
        {"a=\"\\n\"", "bad escape"},
        {"a=\"\\x0\"", "bad escape"},
        {"a=\"\\x00\"", "bad escape"},
        {"a=\"\\", "no end"},
        {"a=b=c", "double quotes"},
        {"a=9223372036854775808", "out of range"},
        {"a=1e999", "out of range"},
        {"a b=1", "'a': expected"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_error(err, ERROR_INVALID, bad[i].part, record_parse(&r, bad[i].text, &err));
    }
    assert_error(err, ERROR_CONFLICT, "'a' is given twice", record_parse(&r, "a=1 a=1", &err));
}

static void test_format_is_cut(void **state)
{
    (void)state;
    struct record r;
    char out[8];
    record_init(&r);
    record_put_int(&r, "abc", 12345);
    assert_int_equal(record_format(&r, out, sizeof(out)), 9);
    assert_string_equal(out, "abc=123");
    assert_int_equal(record_format(&r, NULL, 0), 9);
    assert_int_equal(record_to_json(&r, out, sizeof(out)), 13);
    assert_string_equal(out, "{\"abc\":");
    struct value v = VALUE_OF_TEXT("a b");
    assert_int_equal(value_format(&v, out, 3), 2);
    assert_string_equal(out, "\"a");
    assert_int_equal(value_format(&v, out, sizeof(out)), 5);
}

/* Numbers are written and read the same in every locale of the process. */
static void test_locale(void **state)
{
    (void)state;
    struct record r, again;
    record_init(&r);
    assert_ok(err, record_set(&r, "x", VALUE_OF_REAL(0.1), &err));
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8")) {
        setlocale(LC_NUMERIC, ""); /* that locale is not installed: use the user's locale */
    }
    const char *text = format(&r);
    assert_string_equal(text, "x=0.1");
    assert_ok(err, record_parse(&again, text, &err));
    setlocale(LC_NUMERIC, "C");
    assert_true(record_equal(&r, &again));
}

/* ---- JSON and MessagePack -------------------------------------------------------------------- */

static void test_json(void **state)
{
    (void)state;
    struct record r;
    static const char json[] = "{\"b\":true,\"a\":-5,\"c\":1.5,\"d\":\"\\u00e9\\\"\",\"e\":null}";
    assert_ok(err, record_from_json(&r, json, strlen(json), &err));
    char out[100];
    record_to_json(&r, out, sizeof(out));
    assert_string_equal(out, "{\"a\":-5,\"b\":true,\"c\":1.5,\"d\":\"\xc3\xa9\\\"\"}");
}

static void test_json_errors(void **state)
{
    (void)state;
    struct record r;
    static const struct {
        const char *text, *part;
    } bad[] = {
        {"{\"a\":[1]}", "'a' must be"},
        {"{\"a\":{}}", "'a' must be"},
        {"[]", "JSON object"},
        {"5", "column 1"},
        {"{\"a\":1,\"a\":2}", "duplicate"},
        {"{\"a\":1", "line 1"},
        {"{\"a b\":1}", "no field name"},
        {"{\"a\":\"\\u0000\"}", "\\u0000"},
        {"", "line 1"},
        {"{\"a\":\"\xff\"}", "0xff"},
        {"{\"a\":1e999}", "number"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_error(err, ERROR_INVALID, bad[i].part,
                     record_from_json(&r, bad[i].text, strlen(bad[i].text), &err));
    }
}

static int unpack(const char *json, struct record *r)
{
    struct wire_doc *doc = wire_doc_new();
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    err = ERROR_NULL;
    int result = record_unpack(r, wire_of(doc, &b, json), &err);
    wire_doc_free(doc);
    return result;
}

static void test_unpack(void **state)
{
    (void)state;
    struct record r;
    assert_int_equal(unpack("{\"z\":1,\"a\":\"t\",\"n\":null,\"m\":false}", &r), 0);
    assert_string_equal(format(&r), "a=t m=false z=1");
    assert_int_equal(unpack("{\"a\":[1]}", &r), ERROR_INVALID);
    assert_non_null(strstr(err.text, "'a' must be a number"));
    assert_int_equal(unpack("{\"a\":{}}", &r), ERROR_INVALID);
    assert_int_equal(unpack("[1]", &r), ERROR_INVALID);
    assert_int_equal(unpack("{\"1\":2}", &r), ERROR_INVALID);
}

static void test_unpack_raw(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        int code;
    } cases[] = {
        {"\x82\xa1"
         "a\x01\xa1"
         "a\x02",
         7, ERROR_CONFLICT}, /* the same name twice */
        {"\x81\xa1"
         "a\xc4\x01x",
         6, ERROR_INVALID},                 /* binary */
        {"\x81\x01\x01", 3, ERROR_INVALID}, /* the field's name is a number */
        {"\x81\xa2"
         "a\0\x01",
         5, ERROR_INVALID}, /* the field's name contains a zero byte */
        {"\x81\xa1"
         "a\xa1\0",
         5, ERROR_INVALID}, /* the field's text contains a zero byte */
        {"\x81\xa1"
         "a\xa1\xff",
         5, ERROR_INVALID}, /* not UTF-8 */
        {"\x81\xa1"
         "a\xcb\x7f\xf8\0\0\0\0\0\0",
         12, ERROR_INVALID}, /* NaN */
        {"\x81\xa1"
         "a\xcf\x80\0\0\0\0\0\0\0",
         12, ERROR_INVALID}, /* 2^63 */
        {"\x81\xa1"
         "a\xca\x3f\x80\0\0",
         8, 0}, /* float32 */
    };
    struct wire_doc *doc = wire_doc_new();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct wire_obj *o;
        struct record r;
        assert_ok(err, wire_decode(doc, cases[i].bytes, cases[i].n, &o, &err));
        assert_int_equal(record_unpack(&r, o, &err), cases[i].code);
    }
    wire_doc_free(doc);
}

/* ---- all forms, random records --------------------------------------------------------------- */

static void random_text(struct rng *rng, char *out, size_t max)
{
    static const char *const pieces[] = {
        "a",
        "Z",
        "7",
        " ",
        "\"",
        "\\",
        "=",
        ",",
        "\n",
        "\t",
        "\x01",
        "\x7f",
        "true",
        "1e5",
        "-",
        ".",
        "\xc3\xa9",
        "\xe2\x82\xac",
        "\xf0\x9f\x98\x80",
        "{",
        "'",
        "#",
        "\\x41",
        "nan",
    };
    out[0] = 0;
    for (int64_t n = rng_in(rng, 0, 12); n > 0; n--) {
        const char *piece = pieces[rng_in(rng, 0, sizeof(pieces) / sizeof(pieces[0]) - 1)];
        if (strlen(out) + strlen(piece) < max) {
            strcat(out, piece);
        }
    }
}

static double random_real(struct rng *rng)
{
    static const double special[] = {0.0,  -0.0, 1.0,  0.1,         DBL_MAX, DBL_MIN, 0x1p-1074,
                                     1e15, 1e16, 1e17, 123456789.0, 1e-5,    5e-324,  -1.5};
    double v;
    if (rng_next(rng) % 3 == 0) {
        return special[rng_in(rng, 0, sizeof(special) / sizeof(special[0]) - 1)];
    }
    do {
        uint64_t bits = rng_next(rng);
        memcpy(&v, &bits, sizeof(v));
    } while (!isfinite(v));
    return v;
}

static int64_t random_int(struct rng *rng)
{
    static const int64_t special[] = {0, -1, INT64_MIN, INT64_MAX, 127, 128, -32, -33};
    return rng_next(rng) & 1 ? (int64_t)rng_next(rng) >> rng_in(rng, 0, 63)
                             : special[rng_in(rng, 0, 7)];
}

static void random_record(struct rng *rng, struct record *r)
{
    record_init(r);
    for (int64_t n = rng_in(rng, 0, RECORD_FIELDS_MAX); n > 0; n--) {
        char name[RECORD_NAME_MAX], text[200];
        snprintf(name, sizeof(name), "%c%llx", "abcXYZ_"[rng_in(rng, 0, 6)],
                 (unsigned long long)(rng_next(rng) >> rng_in(rng, 20, 60)));
        struct value v = VALUE_OF_TEXT(text);
        switch (rng_in(rng, 0, 4)) {
        case 0:
            v = VALUE_OF_BOOL(rng_next(rng) & 1);
            break;
        case 1:
            v = VALUE_OF_INT(random_int(rng));
            break;
        case 2:
            v = VALUE_OF_REAL(random_real(rng));
            break;
        default:
            random_text(rng, text, sizeof(text));
            break;
        }
        assert_ok(err, record_set(r, name, v, &err));
    }
}

static void expect_equal(const struct record *a, const struct record *b, const char *form)
{
    if (!record_equal(a, b)) {
        fail_msg("%s gives %s", form, format(b));
    }
}

static void test_round_trips(void **state)
{
    (void)state;
    static char text[4 * RECORD_TEXT_MAX];
    struct rng rng = {20261121};
    struct wire_doc *doc = wire_doc_new();
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    for (int i = 0; i < 2000; i++) {
        struct record r, again;
        const struct wire_obj *o;
        random_record(&rng, &r);
        record_format(&r, text, sizeof(text));
        assert_ok(err, record_parse(&again, text, &err));
        expect_equal(&r, &again, text);
        size_t n = record_to_json(&r, text, sizeof(text));
        assert_ok(err, record_from_json(&again, text, n, &err));
        expect_equal(&r, &again, text);
        wire_buf_clear(&b);
        record_pack(&b, &r);
        assert_ok(err, scan_all(b.data, b.len, 1 << 20, &err));
        assert_ok(err, wire_decode(doc, b.data, b.len, &o, &err));
        assert_ok(err, record_unpack(&again, o, &err));
        expect_equal(&r, &again, "MessagePack");
        for (size_t at = 1; at < r.n; at++) {
            assert_true(strcmp(r.fields[at - 1].name, r.fields[at].name) < 0);
        }
    }
    wire_doc_free(doc);
}

static void test_reals_are_short(void **state)
{
    (void)state;
    static const struct {
        double v;
        const char *text;
    } cases[] = {{0.1, "0.1"},
                 {1, "1.0"},
                 {1e22, "1e+22"},
                 {1.0 / 3, "0.3333333333333333"},
                 {-2.5, "-2.5"},
                 {5e-324, "5e-324"},
                 {DBL_MAX, "1.7976931348623157e+308"},
                 {100, "100.0"},
                 {1e15, "1000000000000000.0"},
                 {123456789, "123456789.0"},
                 {1e-5, "1e-05"},
                 {0.30000000000000004, "0.30000000000000004"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char out[40];
        struct value v = VALUE_OF_REAL(cases[i].v);
        value_format(&v, out, sizeof(out));
        assert_string_equal(out, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sorted_and_typed),
        cmocka_unit_test(test_replace),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_values_refused),
        cmocka_unit_test(test_one_zero),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_arena_is_packed),
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_parse_errors),
        cmocka_unit_test(test_format_is_cut),
        cmocka_unit_test(test_locale),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_json_errors),
        cmocka_unit_test(test_unpack),
        cmocka_unit_test(test_unpack_raw),
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_reals_are_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
