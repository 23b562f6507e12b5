/* SPDX-License-Identifier: Apache-2.0 */
/* Items pulled from bytes equal the items of a decoded tree, in all forms; cut-off items are
 * refused. */
#include <math.h>
#include <stdlib.h>

#include "proto/message.h"
#include "proto/pull.h"
#include "proto/rpc.h"
#include "tests/unit/proto/common.h"

#define BYTES(...) {__VA_ARGS__}, sizeof((uint8_t[]){__VA_ARGS__})

static const struct {
    uint8_t bytes[16];
    size_t n;
} scalars[] = {
    {BYTES(0xc0)},
    {BYTES(0xc2)},
    {BYTES(0xc3)},
    {BYTES(0)},
    {BYTES(0x7f)},
    {BYTES(0xe0)},
    {BYTES(0xff)},
    {BYTES(0xcc, 0xff)},
    {BYTES(0xcd, 0xff, 0xfe)},
    {BYTES(0xce, 0xff, 0, 0, 1)},
    {BYTES(0xcf, 0, 0, 0, 0, 0, 0, 0, 9)},
    {BYTES(0xcf, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)},
    {BYTES(0xcf, 0x80, 0, 0, 0, 0, 0, 0, 0)},
    {BYTES(0xd0, 0x80)},
    {BYTES(0xd0, 5)},
    {BYTES(0xd1, 0x80, 0)},
    {BYTES(0xd2, 0x80, 0, 0, 0)},
    {BYTES(0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0)},
    {BYTES(0xd3, 0, 0, 0, 0, 0, 0, 0, 1)},
    {BYTES(0xca, 0x3f, 0xc0, 0, 0)},
    {BYTES(0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0)},
    {BYTES(0xa0)},
    {BYTES(0xa2, 'h', 'i')},
    {BYTES(0xd9, 2, 'h', 'i')},
    {BYTES(0xda, 0, 2, 'h', 'i')},
    {BYTES(0xdb, 0, 0, 0, 2, 'h', 'i')},
    {BYTES(0xc4, 1, 'b')},
    {BYTES(0x90)},
    {BYTES(0x80)},
    {BYTES(0x91, 1)},
    {BYTES(0x81, 1, 2)},
    {BYTES(0xdc, 0, 1, 7)},
    {BYTES(0xdd, 0, 0, 0, 1, 7)},
    {BYTES(0xde, 0, 1, 7, 8)},
    {BYTES(0xdf, 0, 0, 0, 1, 7, 8)},
};

static void as_a_tree_has_it(struct pull item, const struct wire_obj *o)
{
    struct pull p = item;
    bool flag = false, flag2 = false;
    int64_t number = 0, number2 = 0;
    double real = 0, real2 = 0;
    const char *text = NULL, *text2 = NULL;
    size_t n = 0, n2 = 0;
    assert_int_equal(pull_nil(&p), wire_type_of(o) == WIRE_NIL);
    p = item;
    assert_int_equal(pull_bool(&p, &flag), wire_get_bool(o, &flag2));
    assert_true(p.at == item.at || flag == flag2);
    p = item;
    assert_int_equal(pull_int(&p, &number), wire_get_int(o, &number2));
    assert_true(p.at == item.at || number == number2);
    p = item;
    assert_int_equal(pull_real(&p, &real), wire_get_real(o, &real2));
    assert_true(p.at == item.at || real == real2);
    p = item;
    assert_int_equal(pull_str(&p, &text, &n), wire_get_str(o, &text2, &n2));
    assert_true(p.at == item.at || (n == n2 && memcmp(text, text2, n) == 0));
    p = item;
    assert_int_equal(pull_array(&p, &n), wire_type_of(o) == WIRE_ARRAY);
    assert_true(p.at == item.at || n == wire_count(o));
    p = item;
    assert_int_equal(pull_map(&p, &n), wire_type_of(o) == WIRE_MAP);
    assert_true(p.at == item.at || n == wire_count(o));
    p = item;
    assert_true(pull_skip(&p) && p.at == item.end);
}

/* An item cut off at any place has no kind, and nothing behind the cut is read: ASan checks. */
static void cut_off(struct pull item)
{
    for (size_t cut = 0; cut < pull_left(&item); cut++) {
        uint8_t *part = malloc(cut ? cut : 1);
        memcpy(part, item.at, cut);
        struct pull p = {part, part + cut}, inner;
        bool flag;
        int64_t number;
        double real;
        const char *text;
        size_t n;
        assert_false(pull_nil(&p) || pull_bool(&p, &flag) || pull_int(&p, &number) ||
                     pull_real(&p, &real) || pull_str(&p, &text, &n) || pull_skip(&p) ||
                     pull_item(&p, &inner) || pull_find(&p, "x"));
        assert_ptr_equal(p.at, part);
        free(part);
    }
}

static void test_items(void **state)
{
    (void)state;
    struct wire_doc *doc = wire_doc_new();
    for (size_t i = 0; i < sizeof(scalars) / sizeof(scalars[0]); i++) {
        struct pull item = {scalars[i].bytes, scalars[i].bytes + scalars[i].n};
        const struct wire_obj *o;
        struct error err;
        assert_ok(err, wire_decode(doc, item.at, scalars[i].n, &o, &err));
        as_a_tree_has_it(item, o);
        cut_off(item);
    }
    wire_doc_free(doc);
}

static struct pull pull_of(struct wire_buf *b, const char *json)
{
    struct error err;
    wire_buf_clear(b);
    assert_ok(err, wire_from_json(b, json, &err));
    return (struct pull){b->data, b->data + b->len};
}

static void test_find(void **state)
{
    (void)state;
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    int64_t v;
    struct pull p = pull_of(&b, "{\"a\":{\"b\":1},\"\":5,\"b\":2,\"bb\":3}");
    const uint8_t *begin = p.at;
    assert_false(pull_find(&p, "c"));
    assert_ptr_equal(p.at, begin);
    assert_true(pull_find(&p, "b") && pull_int(&p, &v) && v == 2);
    p.at = begin;
    assert_true(pull_find(&p, "") && pull_int(&p, &v) && v == 5);
    p.at = begin;
    assert_true(pull_find(&p, "a") && pull_find(&p, "b") && pull_int(&p, &v) && v == 1);
    p = pull_of(&b, "[\"b\",1]");
    assert_false(pull_find(&p, "b"));
}

/* ---- schemas --------------------------------------------------------------------------------- */

#define PULLED_FIELDS(X, T)                                                                        \
    X(T, INT, count, 0)                                                                            \
    X(T, REAL, time_us, 0)                                                                         \
    X(T, FLAG, saved, 0)                                                                           \
    X(T, TEXT, name, 8)                                                                            \
    X(T, TEXT, long_name, 40)
SCHEMA_STRUCT(pulled, PULLED_FIELDS);
SCHEMA_DEFINE(pulled, PULLED_FIELDS);

struct told {
    int times;
    int64_t value;
};

static bool beside(void *ctx, struct pull *p)
{
    struct told *t = ctx;
    t->times++;
    return pull_int(p, &t->value);
}

static bool take(const char *json, struct pulled *out, struct told *t)
{
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    struct pull p = pull_of(&b, json);
    const uint8_t *begin = p.at;
    memset(out, 0xee, sizeof(*out));
    *t = (struct told){0, 0};
    bool taken = pull_schema(&p, &pulled_schema, "other", beside, t, out);
    assert_ptr_equal(p.at, taken ? p.end : begin);
    return taken;
}

static void test_schema(void **state)
{
    (void)state;
    struct pulled v;
    struct told t;
    static const char *const orders[] = {
        "{\"count\":5,\"time_us\":1.5,\"saved\":true,\"name\":\"seven77\",\"other\":7,\"long_"
        "name\":\"of "
        "more than sixteen\"}",
        "{\"long_name\":\"of more than "
        "sixteen\",\"other\":7,\"more\":[1,{\"count\":6}],\"time_us\":1.5,"
        "\"name\":\"seven77\",\"count\":5,\"saved\":true}"};
    for (int i = 0; i < 4; i++) {
        assert_true(take(orders[i / 2 % 2], &v, &t));
        assert_int_equal(v.count, 5);
        assert_true(v.time_us == 1.5 && v.saved);
        assert_string_equal(v.name, "seven77");
        assert_string_equal(v.long_name, "of more than sixteen");
        assert_int_equal(t.times, 1);
        assert_int_equal(t.value, 7);
    }
}

static void test_absent_and_nil(void **state)
{
    (void)state;
    struct pulled v;
    struct told t;
    assert_true(take("{}", &v, &t));
    assert_true(v.count == 0 && v.time_us == 0 && !v.saved && !v.name[0] && !v.long_name[0]);
    assert_int_equal(t.times, 0);
    assert_true(take("{\"name\":null,\"time_us\":null,\"count\":null,\"saved\":null}", &v, &t));
    assert_true(v.count == 0 && isnan(v.time_us) && !v.saved && !v.name[0]);
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    /* each field comes twice, the second time as nil: the result is that of schema_decode */
    wire_put_map(&b, 4);
    wire_put_kv_str(&b, "name", "a");
    wire_put_kv_str(&b, "name", NULL);
    wire_put_kv_int(&b, "time_us", 1);
    wire_put_kv_str(&b, "time_us", NULL);
    struct pull p = {b.data, b.data + b.len};
    assert_true(pull_schema(&p, &pulled_schema, NULL, NULL, NULL, &v));
    assert_string_equal(v.name, "a");
    assert_true(isnan(v.time_us));
}

static void test_for_the_tree(void **state)
{
    (void)state;
    static const char *const maps[] = {
        "[]",
        "7",
        "{\"count\":1.0}",
        "{\"count\":\"1\"}",
        "{\"saved\":1}",
        "{\"time_us\":true}",
        "{\"name\":\"eight888\"}",
        "{\"name\":5}",
        "{\"other\":\"x\"}",
        "{\"long_name\":\"a text of more than forty bytes, and so too long\"}"};
    struct pulled v;
    struct told t;
    for (size_t i = 0; i < sizeof(maps) / sizeof(maps[0]); i++) {
        assert_false(take(maps[i], &v, &t));
    }
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    wire_put_map(&b, 1);
    wire_put_str(&b, "name");
    wire_put_strn(&b, "a\0b", 3);
    struct pull p = {b.data, b.data + b.len};
    assert_false(pull_schema(&p, &pulled_schema, NULL, NULL, NULL, &v));
    wire_buf_clear(&b);
    wire_put_map(&b, 2);
    wire_put_kv_int(&b, "other", 1);
    wire_put_kv_int(&b, "other", 2);
    p = (struct pull){b.data, b.data + b.len};
    assert_false(pull_schema(&p, &pulled_schema, "other", beside, &t, &v));
    /* The text fills its member, and ends at the last byte of the message. */
    assert_true(take("{\"name\":\"seven77\"}", &v, &t));
    assert_string_equal(v.name, "seven77");
}

static void test_result(void **state)
{
    (void)state;
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    struct pull p = pull_of(&b, "[1,4294967295,null,{\"x\":1}]"), result;
    uint32_t id = 0;
    assert_true(rpc_pull_result(p.at, pull_left(&p), &id, &result));
    assert_int_equal(id, UINT32_MAX);
    assert_true(result.end == p.end && pull_find(&result, "x"));
    static const char *const others[] = {"[1,1,{\"name\":\"x\"},null]",
                                         "[0,1,null,1]",
                                         "[2,\"progress\",{}]",
                                         "[1,1,null]",
                                         "[1,-1,null,1]",
                                         "[1,4294967296,null,1]",
                                         "[1,1,null,1,1]",
                                         "{}",
                                         "1",
                                         "[1,\"1\",null,1]",
                                         "[1,1.0,null,1]"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        p = pull_of(&b, others[i]);
        assert_false(rpc_pull_result(p.at, pull_left(&p), &id, &result));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_items),        cmocka_unit_test(test_find),
        cmocka_unit_test(test_schema),       cmocka_unit_test(test_absent_and_nil),
        cmocka_unit_test(test_for_the_tree), cmocka_unit_test(test_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
