/* SPDX-License-Identifier: Apache-2.0 */
/* Problems: any request becomes the same canonical record, or an error that tells the remedy. */
#include <stdio.h>
#include <stdlib.h>

#include "proto/op.h"
#include "tests/unit/proto/common.h"

struct fixture {
    struct wire_doc *doc;
    struct wire_buf b;
    struct problem p;
    struct error err;
};

static struct fixture fixture;

static int set_up(void **state)
{
    test_ops_set();
    fixture.doc = wire_doc_new();
    fixture.b = WIRE_BUF_NULL;
    memset(&fixture.p, 0xee, sizeof(fixture.p));
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    wire_doc_free(fixture.doc);
    wire_buf_deinit(&fixture.b);
    return 0;
}

static int unpack(const char *json)
{
    fixture.err = ERROR_NULL;
    return problem_unpack(&fixture.p, wire_of(fixture.doc, &fixture.b, json), &fixture.err);
}

static int parse(const char *text)
{
    fixture.err = ERROR_NULL;
    return problem_parse(&fixture.p, text, &fixture.err);
}

static const char *format(void)
{
    static char text[2 * RECORD_TEXT_MAX];
    assert_true(problem_format(&fixture.p, text, sizeof(text)) < sizeof(text));
    return text;
}

#define REFUSES(code, part, call) assert_error(fixture.err, code, part, call)
#define ACCEPTS(call)             assert_ok(fixture.err, call)

static const char canonical[] =
    "grouped_gemm K=2048 M=32768 N=1536 accumulate=false dtype_acc=fp32 dtype_in=bf16 "
    "dtype_out=bf16 experts=128 family=grouped_gemm fuse_mul_post=false mode=forward "
    "permute_x=true permute_y=false quant=none routing=uniform scale_block=none topk=8";

/* ---- canonical ------------------------------------------------------------------------------- */

static void test_defaults_are_filled_in(void **state)
{
    (void)state;
    ACCEPTS(
        unpack("{\"op\":\"grouped_gemm\",\"mode\":\"forward\",\"M\":32768,\"N\":1536,\"K\":2048,"
               "\"experts\":128,\"topk\":8,\"permute_x\":true}"));
    assert_string_equal(format(), canonical);
    assert_ptr_equal(fixture.p.op, &test_op);
    ACCEPTS(parse(
        "grouped_gemm mode=forward, M=32768 N=1536 K=2048 experts=128 topk=8 permute_x=True"));
    assert_string_equal(format(), canonical);
    ACCEPTS(parse(canonical));
    assert_string_equal(format(), canonical);
}

/* Fields in any order, with or without defaults, give the same record by each way in. */
static void test_any_order(void **state)
{
    (void)state;
    struct rng rng = {1};
    static const char *const given[] = {
        "\"mode\":\"forward\"", "\"M\":32768", "\"N\":1536.0",       "\"K\":2048",
        "\"experts\":128",      "\"topk\":8",  "\"permute_x\":true", "\"op\":\"grouped_gemm\"",
        "\"routing\":null"};
    static const char *const implied[] = {"\"permute_y\":false", "\"quant\":\"none\"",
                                          "\"dtype_acc\":\"fp32\"", "\"dtype_in\":\"bf16\""};
    enum { GIVEN = 9, IMPLIED = 4 };
    for (int i = 0; i < 500; i++) {
        const char *parts[GIVEN + IMPLIED];
        size_t n = GIVEN;
        memcpy(parts, given, sizeof(given));
        for (size_t j = 0; j < IMPLIED; j++) {
            parts[n] = implied[j];
            n += rng_next(&rng) & 1;
        }
        char json[600] = "{";
        for (size_t j = 0; j < n; j++) {
            size_t pick = (size_t)rng_in(&rng, (int64_t)j, (int64_t)n - 1);
            const char *part = parts[pick];
            parts[pick] = parts[j];
            strcat(strcat(json, j > 0 ? "," : ""), part);
        }
        ACCEPTS(unpack(strcat(json, "}")));
        assert_string_equal(format(), canonical);
    }
}

static void test_make(void **state)
{
    (void)state;
    struct record r;
    ACCEPTS(record_parse(&r, "topk=8 permute_x=true mode=forward M=32768 N=1536 K=2048 experts=128",
                         &fixture.err));
    ACCEPTS(problem_make(&fixture.p, "grouped_gemm", &r, &fixture.err));
    assert_string_equal(format(), canonical);
}

static void test_pack(void **state)
{
    (void)state;
    static struct problem again;
    ACCEPTS(parse(canonical));
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    const struct wire_obj *o;
    problem_pack(&b, &fixture.p);
    ACCEPTS(wire_decode(fixture.doc, b.data, b.len, &o, &fixture.err));
    ACCEPTS(problem_unpack(&again, o, &fixture.err));
    assert_true(record_equal(&again.fields, &fixture.p.fields));
    assert_string_equal(again.op_name, fixture.p.op_name);
}

static void test_format_is_cut(void **state)
{
    (void)state;
    char out[16];
    ACCEPTS(parse(canonical));
    assert_int_equal(problem_format(&fixture.p, NULL, 0), strlen(canonical));
    assert_int_equal(problem_format(&fixture.p, out, sizeof(out)), strlen(canonical));
    assert_string_equal(out, "grouped_gemm K=");
    assert_int_equal(problem_format(&fixture.p, out, 5), strlen(canonical));
    assert_string_equal(out, "grou");
}

/* ---- gemm, custom ---------------------------------------------------------------------------- */

static void test_gemm(void **state)
{
    (void)state;
    const struct op_alias *alias;
    ACCEPTS(parse("gemm mode=forward M=64 N=64 K=64"));
    assert_string_equal(fixture.p.op_name, "grouped_gemm");
    assert_int_equal(record_int(&fixture.p.fields, "experts", 0), 1);
    assert_int_equal(record_int(&fixture.p.fields, "topk", 0), 1);
    ACCEPTS(unpack(
        "{\"op\":\"gemm\",\"mode\":\"dW\",\"M\":1,\"N\":1,\"K\":1,\"experts\":1.0,\"topk\":1}"));
    REFUSES(ERROR_CONFLICT, "experts is given otherwise; use op grouped_gemm",
            parse("gemm mode=forward M=64 N=64 K=64 experts=8"));
    REFUSES(ERROR_CONFLICT, "topk", parse("gemm mode=forward M=64 N=64 K=64 topk=true"));
    assert_ptr_equal(op_find_n("gemm", strlen("gemm"), &alias), &test_op);
    assert_string_equal(alias->name, "gemm");
    assert_ptr_equal(op_find_n("grouped_gemm", strlen("grouped_gemm"), &alias), &test_op);
    assert_null(alias);
    static const struct op *const none[] = {NULL};
    ops_set(none);
    assert_null(op_find_n("gemm", strlen("gemm"), &alias));
}

static void test_an_alias_sets_texts_too(void **state)
{
    (void)state;
    ACCEPTS(parse("forward_gemm M=64 N=64 K=64"));
    assert_string_equal(record_text(&fixture.p.fields, "mode", ""), "forward");
    ACCEPTS(parse("forward_gemm mode=forward M=64 N=64 K=64 experts=2"));
    REFUSES(ERROR_CONFLICT,
            "forward_gemm has mode=forward, but mode is given otherwise; use op grouped_gemm",
            parse("forward_gemm mode=dX M=64 N=64 K=64"));
    REFUSES(ERROR_CONFLICT, "mode", parse("forward_gemm mode=1 M=64 N=64 K=64"));
    REFUSES(ERROR_UNKNOWN_OP, "grouped_gemm, gemm, forward_gemm, custom:", parse("gem M=1"));
}

static void test_custom(void **state)
{
    (void)state;
    ACCEPTS(unpack("{\"op\":\"custom:my.op-1_X\",\"shape\":\"4x4\",\"a\":1,\"b\":2.5,\"c\":true}"));
    assert_string_equal(format(), "custom:my.op-1_X a=1 b=2.5 c=true shape=4x4");
    ACCEPTS(parse("custom:x"));
    assert_string_equal(format(), "custom:x");
    const struct op_alias *alias;
    assert_non_null(op_find_n("custom:x", strlen("custom:x"), &alias));
    static const char *const bad[] = {
        "custom:",
        "custom",
        "Custom:x",
        "custom:a b",
        "custom:a/b",
        "custom:\xc3\xa9",
        "custom:x234567890123456789012345678901234567890123456789" /* 49 */};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct record none;
        record_init(&none);
        assert_null(op_find_n(bad[i], strlen(bad[i]), &alias));
        REFUSES(ERROR_UNKNOWN_OP, "custom:<name>",
                problem_make(&fixture.p, bad[i], &none, &fixture.err));
    }
    REFUSES(ERROR_INVALID, "cannot be called 'op'", parse("custom:x op=1"));
    REFUSES(ERROR_INVALID, "'rows' must be", unpack("{\"op\":\"custom:x\",\"rows\":[1]}"));
    REFUSES(ERROR_INVALID, "no field name", unpack("{\"op\":\"custom:x\",\"a b\":1}"));
}

/* ---- refused --------------------------------------------------------------------------------- */

static void test_op_errors(void **state)
{
    (void)state;
    REFUSES(ERROR_UNKNOWN_OP,
            "there is no op 'conv2d'; known: grouped_gemm, gemm, forward_gemm, "
            "custom:<name>",
            parse("conv2d M=1"));
    REFUSES(ERROR_UNKNOWN_OP, "there is no op ''", unpack("{\"op\":\"\"}"));
    REFUSES(ERROR_INVALID, "a map with 'op'", unpack("{\"M\":1}"));
    REFUSES(ERROR_INVALID, "a map with 'op'", unpack("{\"op\":5}"));
    REFUSES(ERROR_INVALID, "a map with 'op'", unpack("[]"));
    REFUSES(ERROR_INVALID, "a map with 'op'", problem_unpack(&fixture.p, NULL, &fixture.err));
    REFUSES(ERROR_INVALID, "'M=1' is no op", parse("M=1 N=2"));
    REFUSES(ERROR_INVALID, "'' is no op", parse("  "));
}

#define BASE "grouped_gemm mode=forward M=64 N=64 K=64 "

static void test_field_errors(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int code;
        const char *part;
    } bad[] = {
        {"grouped_gemm M=1 N=1 K=1", ERROR_INVALID,
         "needs mode: forward, dX or dW (which product)"},
        {"grouped_gemm mode=forward N=1 K=1", ERROR_INVALID,
         "grouped_gemm needs M: an integer 1..1073741824 (a size)"},
        {"grouped_gemm mode=fwd M=1 N=1 K=1", ERROR_INVALID,
         "mode is 'fwd', but takes forward, dX or dW"},
        {"grouped_gemm mode=for M=1 N=1 K=1", ERROR_INVALID, "'for'"},
        {"grouped_gemm mode=\"\" M=1 N=1 K=1", ERROR_INVALID, "mode is ''"},
        {"grouped_gemm mode=forward M=0 N=1 K=1", ERROR_INVALID,
         "M is 0, but takes an integer 1..1073741824"},
        {"grouped_gemm mode=forward M=-5 N=1 K=1", ERROR_INVALID, "M is -5"},
        {"grouped_gemm mode=forward M=1073741825 N=1 K=1", ERROR_INVALID, "M is 1073741825"},
        {"grouped_gemm mode=forward M=1.5 N=1 K=1", ERROR_INVALID, "M is 1.5"},
        {"grouped_gemm mode=forward M=1e300 N=1 K=1", ERROR_INVALID, "M is 1e+300"},
        {"grouped_gemm mode=forward M=\"64\" N=1 K=1", ERROR_INVALID, "M is '64'"},
        {"grouped_gemm mode=forward M=true N=1 K=1", ERROR_INVALID, "M is true"},
        {BASE "permute_x=1", ERROR_INVALID, "permute_x is 1, but takes true or false"},
        {BASE "permute_x=yes", ERROR_INVALID, "permute_x is 'yes'"},
        {BASE "routing=5", ERROR_INVALID, "routing is 5, but takes text"},
        {BASE "dtype_acc=fp16", ERROR_INVALID, "dtype_acc is 'fp16', but takes fp32"},
        {BASE "permutex=true", ERROR_UNKNOWN_FIELD, "'permutex'; did you mean 'permute_x'?"},
        {BASE "top_k=2", ERROR_UNKNOWN_FIELD, "did you mean 'topk'?"},
        {BASE "expert=2", ERROR_UNKNOWN_FIELD, "did you mean 'experts'?"},
        {BASE "m=2", ERROR_UNKNOWN_FIELD, "did you mean 'M'?"},
        {BASE "hidden_dimension=2", ERROR_UNKNOWN_FIELD, "it takes mode, M, N, K, experts"},
        {BASE "fuse_mul_post=true", ERROR_CONFLICT, "needs permute_y"},
        {BASE "topk=6", ERROR_INVALID, "multiple of topk"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        REFUSES(bad[i].code, bad[i].part, parse(bad[i].text));
    }
}

static void test_wire_errors(void **state)
{
    (void)state;
#define WITH(rest) "{\"op\":\"grouped_gemm\",\"mode\":\"dW\",\"M\":6,\"N\":1,\"K\":1," rest "}"
    REFUSES(ERROR_INVALID, "experts takes an integer 1..1024", unpack(WITH("\"experts\":[1]")));
    REFUSES(ERROR_INVALID, "mode is 'x?y'",
            unpack("{\"op\":\"grouped_gemm\",\"mode\":\"x\\ny\",\"M\":6,\"N\":1,\"K\":1}"));
    REFUSES(ERROR_INVALID, "routing takes text", unpack(WITH("\"routing\":{}")));
    REFUSES(ERROR_INVALID, "dtype_in takes bf16", unpack(WITH("\"dtype_in\":[1]")));
    REFUSES(ERROR_UNKNOWN_FIELD, "has no field 'opp'", unpack(WITH("\"opp\":1")));
}

static int unpack_raw(const char *name, size_t name_n, int64_t value)
{
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    const struct wire_obj *o;
    wire_put_map(&b, 6);
    wire_put_kv_str(&b, "op", "grouped_gemm");
    wire_put_kv_str(&b, "mode", "dX");
    wire_put_kv_int(&b, "M", 6);
    wire_put_kv_int(&b, "N", 6);
    wire_put_kv_int(&b, "K", 6);
    wire_put_strn(&b, name, name_n);
    wire_put_int(&b, value);
    ACCEPTS(wire_decode(fixture.doc, b.data, b.len, &o, &fixture.err));
    return problem_unpack(&fixture.p, o, &fixture.err);
}

static void test_names_on_the_wire(void **state)
{
    (void)state;
    char longer[300];
    memset(longer, 'x', sizeof(longer));
    ACCEPTS(unpack_raw("topk", 4, 1));
    REFUSES(ERROR_CONFLICT, "field 'M' is given twice", unpack_raw("M", 1, 6));
    REFUSES(ERROR_CONFLICT, "field 'op' is given twice", unpack_raw("op", 2, 6));
    REFUSES(ERROR_UNKNOWN_FIELD, "has no field 'M?'", unpack_raw("M\0", 2, 6));
    REFUSES(ERROR_UNKNOWN_FIELD, "has no field 'topk?'", unpack_raw("topk\0", 5, 6));
    REFUSES(ERROR_UNKNOWN_FIELD, "has no field 'permute_'", unpack_raw("permute_", 8, 6));
    REFUSES(ERROR_UNKNOWN_FIELD, "xxx...", unpack_raw(longer, sizeof(longer), 6));
    REFUSES(ERROR_UNKNOWN_FIELD, "has no field ''", unpack_raw("", 0, 6));
}

/* Text with a zero byte inside is no allowed value, even if the text before the zero byte is. */
static void test_zero_in_text(void **state)
{
    (void)state;
    static const char *const fields[] = {"dtype_in", "routing"};
    for (size_t i = 0; i < 2; i++) {
        WIRE_BUF_AUTO b = WIRE_BUF_NULL;
        const struct wire_obj *o;
        wire_put_map(&b, 2);
        wire_put_kv_str(&b, "op", "grouped_gemm");
        wire_put_str(&b, fields[i]);
        wire_put_strn(&b, "bf16\0and so on and on and on", 29);
        ACCEPTS(wire_decode(fixture.doc, b.data, b.len, &o, &fixture.err));
        struct record r;
        REFUSES(ERROR_INVALID, "plain UTF-8", record_unpack(&r, o, &fixture.err));
        WIRE_BUF_AUTO whole = WIRE_BUF_NULL;
        wire_put_map(&whole, 6);
        wire_put_kv_str(&whole, "mode", "dW");
        wire_put_kv_int(&whole, "M", 6);
        wire_put_kv_int(&whole, "N", 6);
        wire_put_kv_int(&whole, "K", 6);
        wire_put_raw(&whole, b.data + 1, b.len - 1);
        ACCEPTS(wire_decode(fixture.doc, whole.data, whole.len, &o, &fixture.err));
        REFUSES(ERROR_INVALID, " is 'bf16?and so on", problem_unpack(&fixture.p, o, &fixture.err));
    }
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void test_list_for_text(void **state)
{
    (void)state;
    ACCEPTS(unpack(WITH("\"routing\":[1,2,3]")));
    assert_string_equal(record_text(&fixture.p.fields, "routing", ""), "rows:1,2,3");
    ACCEPTS(unpack(WITH("\"routing\":[-9223372036854775808],\"family\":[7]")));
    assert_string_equal(record_text(&fixture.p.fields, "routing", ""), "rows:-9223372036854775808");
    assert_string_equal(record_text(&fixture.p.fields, "family", ""), "rows:7");
    ACCEPTS(unpack(WITH("\"routing\":[]")));
    assert_string_equal(record_text(&fixture.p.fields, "routing", ""), "rows:");
    REFUSES(ERROR_INVALID, "element 1 of the array", unpack(WITH("\"routing\":[1,\"2\"]")));
    REFUSES(ERROR_INVALID, "element 0 of the array", unpack(WITH("\"routing\":[1.5]")));
}

static int unpack_list(size_t n)
{
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    const struct wire_obj *o;
    wire_put_map(&b, 6);
    wire_put_kv_str(&b, "op", "grouped_gemm");
    wire_put_kv_str(&b, "mode", "dX");
    wire_put_kv_int(&b, "M", 6);
    wire_put_kv_int(&b, "N", 6);
    wire_put_kv_int(&b, "K", 6);
    wire_put_str(&b, "routing");
    wire_put_array(&b, n);
    for (size_t i = 0; i < n; i++) {
        wire_put_int(&b, 100000);
    }
    ACCEPTS(wire_decode(fixture.doc, b.data, b.len, &o, &fixture.err));
    return problem_unpack(&fixture.p, o, &fixture.err);
}

static void test_long_lists(void **state)
{
    (void)state;
    ACCEPTS(unpack_list(GEMM_EXPERTS_MAX)); /* 7 bytes each: fits */
    assert_int_equal(strlen(record_text(&fixture.p.fields, "routing", "")), 5 + 7 * 1024 - 1);
    REFUSES(ERROR_INVALID, "routing", unpack_list(1168)); /* would fit if it were the only text */
    REFUSES(ERROR_INVALID, "routing", unpack_list(1200));
    REFUSES(ERROR_INVALID, "routing", unpack_list(60000));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_defaults_are_filled_in),
        TEST(test_any_order),
        TEST(test_make),
        TEST(test_pack),
        TEST(test_format_is_cut),
        TEST(test_gemm),
        TEST(test_an_alias_sets_texts_too),
        TEST(test_custom),
        TEST(test_op_errors),
        TEST(test_field_errors),
        TEST(test_wire_errors),
        TEST(test_names_on_the_wire),
        TEST(test_zero_in_text),
        TEST(test_list_for_text),
        TEST(test_long_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
