/* SPDX-License-Identifier: Apache-2.0 */
/* Messages by their lists of fields: values survive encoding and decoding, misfits are refused. */
#include <math.h>
#include <stdlib.h>

#include "proto/device.h"
#include "proto/message.h"
#include "tests/unit/proto/common.h"

#define SAMPLE_FIELDS(X, T)                                                                        \
    X(T, INT, count, 0)                                                                            \
    X(T, REAL, time_us, 0)                                                                         \
    X(T, FLAG, saved, 0)                                                                           \
    X(T, TEXT, name, 8)                                                                            \
    X(T, RECORD, config, 0)                                                                        \
    X(T, REALS, samples, 3)
SCHEMA_STRUCT(sample, SAMPLE_FIELDS);
SCHEMA_DEFINE(sample, SAMPLE_FIELDS);

struct fixture {
    struct wire_doc *doc;
    struct wire_buf b;
    struct sample s;
    struct error err;
};

static int set_up(void **state)
{
    static struct fixture f;
    f.doc = wire_doc_new();
    f.b = WIRE_BUF_NULL;
    memset(&f.s, 0xee, sizeof(f.s)); /* decoding does not count on zeroed memory */
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    wire_doc_free(f->doc);
    wire_buf_deinit(&f->b);
    return 0;
}

static int decode(struct fixture *f, enum schema_strictness strict, const char *json)
{
    f->err = ERROR_NULL;
    return schema_decode(&sample_schema, strict, wire_of(f->doc, &f->b, json), &f->s, &f->err);
}

static void test_table(void **state)
{
    (void)state;
    assert_string_equal(sample_schema.name, "sample");
    assert_int_equal(sample_schema.n, 6);
    assert_int_equal(sample_schema.size, sizeof(struct sample));
    assert_string_equal(sample_schema.fields[3].name, "name");
    assert_int_equal(sample_schema.fields[3].size, 8);
    assert_int_equal(sample_schema.fields[5].offset, offsetof(struct sample, samples));
    static const struct schema *const all[] = {
        &query_schema,      &answer_schema,       &progress_schema, &run_schema,
        &trial_schema,      &module_schema,       &best_schema,     &quarantine_schema,
        &event_schema,      &runner_hello_schema, &attempt_schema,  &tune_result_schema,
        &device_info_schema};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        assert_true(all[i]->n >= 1 && all[i]->n <= 64);
    }
}

static void test_all_kinds(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(decode(f, SCHEMA_STRICT,
                            "{\"count\":5,\"time_us\":1.5,\"saved\":true,\"name\":\"seven77\","
                            "\"config\":{\"b\":1,\"a\":\"x\"},\"samples\":[1,2.5,-3]}"),
                     0);
    assert_int_equal(f->s.count, 5);
    assert_true(f->s.time_us == 1.5);
    assert_true(f->s.saved);
    assert_string_equal(f->s.name, "seven77");
    assert_string_equal(record_text(&f->s.config, "a", ""), "x");
    assert_int_equal(f->s.samples.n, 3);
    assert_true(f->s.samples.v[0] == 1 && f->s.samples.v[1] == 2.5 && f->s.samples.v[2] == -3);
    wire_buf_clear(&f->b);
    schema_encode(&f->b, &sample_schema, &f->s);
    const struct wire_obj *o;
    char *json;
    assert_ok(f->err, wire_decode(f->doc, f->b.data, f->b.len, &o, &f->err));
    assert_ok(f->err, wire_to_json(o, &json, &f->err));
    assert_string_equal(json, "{\"count\":5,\"time_us\":1.5,\"saved\":true,\"name\":\"seven77\","
                              "\"config\":{\"a\":\"x\",\"b\":1},\"samples\":[1.0,2.5,-3.0]}");
    free(json);
}

static void expect_zero(const struct sample *s)
{
    assert_int_equal(s->count, 0);
    assert_true(s->time_us == 0);
    assert_false(s->saved);
    assert_string_equal(s->name, "");
    assert_int_equal(s->config.n, 0);
    assert_int_equal(s->samples.n, 0);
}

static void test_absent_is_zero(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(decode(f, SCHEMA_STRICT, "{}"), 0);
    expect_zero(&f->s);
    memset(&f->s, 0xee, sizeof(f->s));
    assert_int_equal(schema_decode(&sample_schema, SCHEMA_STRICT, NULL, &f->s, &f->err), 0);
    expect_zero(&f->s);
    assert_int_equal(decode(f, SCHEMA_STRICT,
                            "{\"count\":null,\"name\":null,\"config\":null,"
                            "\"samples\":null,\"saved\":null,\"time_us\":0}"),
                     0);
    expect_zero(&f->s);
}

static void test_not_known_is_nil(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(decode(f, SCHEMA_STRICT, "{\"time_us\":null}"), 0);
    assert_true(isnan(f->s.time_us));
    wire_buf_clear(&f->b);
    schema_encode(&f->b, &sample_schema, &f->s);
    const struct wire_obj *o;
    assert_ok(f->err, wire_decode(f->doc, f->b.data, f->b.len, &o, &f->err));
    assert_non_null(wire_find(o, "time_us"));
    assert_int_equal(wire_type_of(wire_find(o, "time_us")), WIRE_NIL);
}

static void test_any_order(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(decode(f, SCHEMA_STRICT, "{\"samples\":[],\"name\":\"n\",\"count\":-1}"), 0);
    assert_int_equal(f->s.count, -1);
    assert_string_equal(f->s.name, "n");
}

static void test_integers(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(decode(f, SCHEMA_STRICT, "{\"count\":-20.0}"),
                     0); /* languages with a single number type send whole numbers so */
    assert_int_equal(f->s.count, -20);
    assert_int_equal(decode(f, SCHEMA_STRICT, "{\"count\":1.5}"), ERROR_INVALID);
    assert_int_equal(decode(f, SCHEMA_STRICT, "{\"count\":1e19}"), ERROR_INVALID);
    assert_int_equal(decode(f, SCHEMA_STRICT, "{\"count\":9223372036854775808.0}"), ERROR_INVALID);
    assert_int_equal(decode(f, SCHEMA_STRICT, "{\"count\":-9223372036854775808.0}"), 0);
    assert_true(f->s.count == INT64_MIN);
}

static void test_wrong_types(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *json, *part;
    } bad[] = {
        {"[]", "sample must be a map"},
        {"{\"count\":\"5\"}", "sample.count must be an integer"},
        {"{\"time_us\":\"5\"}", "sample.time_us must be a number"},
        {"{\"saved\":1}", "sample.saved must be true or false"},
        {"{\"name\":1}", "sample.name must be text"},
        {"{\"name\":\"eight888\"}", "at most 7 bytes without zeros, got 8: 'eight888'"},
        {"{\"config\":{\"a\":[1]}}", "sample.config: field 'a'"},
        {"{\"config\":7}", "sample.config: expected a map"},
        {"{\"samples\":[1,2,3,4]}", "sample.samples must be an array of at most 3"},
        {"{\"samples\":[1,\"2\"]}", "sample.samples must be an array of numbers"},
        {"{\"samples\":{}}", "sample.samples must be an array"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_error(f->err, ERROR_INVALID, bad[i].part, decode(f, SCHEMA_LENIENT, bad[i].json));
    }
}

static void test_unknown_fields(void **state)
{
    struct fixture *f = *state;
    static const char json[] = "{\"newer\":[1,{}],\"count\":3}";
    assert_int_equal(decode(f, SCHEMA_LENIENT, json), 0);
    assert_int_equal(f->s.count, 3);
    assert_error(f->err, ERROR_UNKNOWN_FIELD,
                 "sample has no field 'newer'; it takes count, time_us",
                 decode(f, SCHEMA_STRICT, json));
    assert_error(f->err, ERROR_UNKNOWN_FIELD, "'cuont'; did you mean 'count'?",
                 decode(f, SCHEMA_STRICT, "{\"cuont\":1}"));
    assert_error(f->err, ERROR_UNKNOWN_FIELD, "did you mean 'time_us'?",
                 decode(f, SCHEMA_STRICT, "{\"TIME_US\":1}"));
    assert_error(f->err, ERROR_UNKNOWN_FIELD, "has no field ''",
                 decode(f, SCHEMA_STRICT, "{\"\":1}"));
}

static void test_given_twice(void **state)
{
    struct fixture *f = *state;
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    const struct wire_obj *o;
    wire_put_map(&b, 2);
    wire_put_kv_int(&b, "count", 1);
    wire_put_kv_int(&b, "count", 2);
    assert_ok(f->err, wire_decode(f->doc, b.data, b.len, &o, &f->err));
    assert_error(f->err, ERROR_CONFLICT, "sample.count is given twice",
                 schema_decode(&sample_schema, SCHEMA_STRICT, o, &f->s, &f->err));
    wire_buf_clear(&b);
    wire_put_map(&b, 1);
    wire_put_int(&b, 1);
    wire_put_int(&b, 1);
    assert_ok(f->err, wire_decode(f->doc, b.data, b.len, &o, &f->err));
    assert_error(f->err, ERROR_INVALID, "must be text",
                 schema_decode(&sample_schema, SCHEMA_LENIENT, o, &f->s, &f->err));
}

/* A name with a zero byte is not the field's name, wherever the zero byte stands. */
static void test_zero_in_name(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *name;
        size_t n;
    } names[] = {
        {"count\0", 6}, {"\0", 1}, {"count\0xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", 40}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        WIRE_BUF_AUTO b = WIRE_BUF_NULL;
        const struct wire_obj *o;
        wire_put_map(&b, 1);
        wire_put_strn(&b, names[i].name, names[i].n);
        wire_put_int(&b, 5);
        assert_ok(f->err, wire_decode(f->doc, b.data, b.len, &o, &f->err));
        assert_int_equal(schema_decode(&sample_schema, SCHEMA_STRICT, o, &f->s, &f->err),
                         ERROR_UNKNOWN_FIELD);
        assert_ok(f->err, schema_decode(&sample_schema, SCHEMA_LENIENT, o, &f->s, &f->err));
        assert_int_equal(f->s.count, 0);
    }
}

static void test_beside(void **state)
{
    struct fixture *f = *state;
    static const char *const others[] = {"problem", "keys", NULL};
    const struct wire_obj *o = wire_of(f->doc, &f->b, "{\"problem\":{},\"count\":1,\"keys\":2}");
    assert_ok(f->err,
              schema_decode_beside(&sample_schema, SCHEMA_STRICT, o, others, &f->s, &f->err));
    assert_int_equal(f->s.count, 1);
    WIRE_BUF_AUTO twice = WIRE_BUF_NULL;
    wire_put_map(&twice, 2);
    wire_put_kv_int(&twice, "keys", 1);
    wire_put_kv_int(&twice, "keys", 2);
    assert_ok(f->err, wire_decode(f->doc, twice.data, twice.len, &o, &f->err));
    assert_error(f->err, ERROR_CONFLICT, "sample.keys is given twice",
                 schema_decode_beside(&sample_schema, SCHEMA_STRICT, o, others, &f->s, &f->err));
    o = wire_of(f->doc, &f->b, "{\"problm\":{}}");
    assert_error(f->err, ERROR_UNKNOWN_FIELD, "did you mean 'problem'?",
                 schema_decode_beside(&sample_schema, SCHEMA_STRICT, o, others, &f->s, &f->err));
}

/* A trial with all fields, as the runner sends it to the store. */
static void test_trial_round_trip(void **state)
{
    struct fixture *f = *state;
    static struct trial t, again;
    memset(&t, 0, sizeof(t));
    t.id = 7;
    t.limit_value = 232448;
    t.time_us = NAN;
    t.ratio = 0.97;
    t.reference = true;
    strcpy(t.status, "resource");
    strcpy(t.reason, "shared_memory needs 300000 bytes, the device has 232448");
    record_put_int(&t.config, "BLOCK_SIZE_M", 256);
    t.samples_us.n = SAMPLES_MAX;
    for (int i = 0; i < SAMPLES_MAX; i++) {
        t.samples_us.v[i] = 100 + i * 0.1;
    }
    schema_encode(&f->b, &trial_schema, &t);
    const struct wire_obj *o;
    assert_ok(f->err, wire_decode(f->doc, f->b.data, f->b.len, &o, &f->err));
    assert_ok(f->err, schema_decode(&trial_schema, SCHEMA_STRICT, o, &again, &f->err));
    assert_int_equal(again.limit_value, 232448);
    assert_true(isnan(again.time_us));
    assert_string_equal(again.reason, t.reason);
    assert_true(record_equal(&again.config, &t.config));
    assert_memory_equal(&again.samples_us, &t.samples_us, sizeof(t.samples_us));
}

static void test_device_class(void **state)
{
    (void)state;
    struct device_info info = {.sm_count = 132,
                               .smem_optin = 232448,
                               .memory_bytes = INT64_C(150754820096),
                               .power_limit_w = 700};
    strcpy(info.name, "NVIDIA H200");
    strcpy(info.arch, "sm_90a");
    device_class_format(&info);
    assert_string_equal(info.class, "NVIDIA H200/sm_90a/sm132/smem232448/mem140/mig-/pl700");
    memset(info.name, 'n', sizeof(info.name) - 1); /* the rest must stay */
    memset(info.arch, 'a', sizeof(info.arch) - 1);
    memset(info.mig, 'm', sizeof(info.mig) - 1);
    device_class_format(&info);
    assert_non_null(strstr(info.class, "/pl700"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_table),        TEST(test_all_kinds),        TEST(test_absent_is_zero),
        TEST(test_any_order),    TEST(test_not_known_is_nil), TEST(test_integers),
        TEST(test_wrong_types),  TEST(test_unknown_fields),   TEST(test_given_twice),
        TEST(test_zero_in_name), TEST(test_beside),           TEST(test_trial_round_trip),
        TEST(test_device_class),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
