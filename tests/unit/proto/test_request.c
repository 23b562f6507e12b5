/* SPDX-License-Identifier: Apache-2.0 */
/* Requests as clients send them, and orders as the runner gets them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/request.h"
#include "tests/unit/proto/common.h"

struct fixture {
    struct wire_doc *doc;
    struct wire_buf b;
    struct request r;
    struct error err;
};

static struct fixture fixture;

static int set_up(void **state)
{
    test_ops_set();
    fixture.doc = wire_doc_new();
    fixture.b = WIRE_BUF_NULL;
    memset(&fixture.r, 0, sizeof(fixture.r));
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    request_deinit(&fixture.r);
    request_deinit(&fixture.r); /* may be called twice */
    wire_doc_free(fixture.doc);
    wire_buf_deinit(&fixture.b);
    return 0;
}

#define PROBLEM "\"problem\":{\"op\":\"gemm\",\"mode\":\"forward\",\"M\":64,\"N\":64,\"K\":64}"

/* Unpacks a request that has PROBLEM and the fields `rest`. */
static int unpack(const char *rest)
{
    char json[16384];
    snprintf(json, sizeof(json), "{%s%s%s}", PROBLEM, rest[0] ? "," : "", rest);
    request_deinit(&fixture.r);
    fixture.err = ERROR_NULL;
    return request_unpack(&fixture.r, wire_of(fixture.doc, &fixture.b, json), &fixture.err);
}

#define REFUSES(code, part, call) assert_error(fixture.err, code, part, call)
#define ACCEPTS(call)             assert_ok(fixture.err, call)

/* ---- query ----------------------------------------------------------------------------------- */

static void test_defaults(void **state)
{
    (void)state;
    ACCEPTS(unpack(""));
    const struct query *q = &fixture.r.query;
    assert_string_equal(q->wait, "tuned");
    assert_string_equal(q->strategy, "ranked");
    assert_int_equal(q->deadline_ms, 0);
    assert_int_equal(q->budget, 0);
    assert_int_equal(q->budget_ms, 0);
    assert_int_equal(q->iters, 0);
    assert_int_equal(q->warmup, 0);
    assert_true(q->atol == 1e-2 && q->rtol == 1e-2);
    assert_false(q->progress || q->again);
    assert_false(request_is_restricted(&fixture.r));
    assert_string_equal(fixture.r.problem.op_name, "grouped_gemm");
}

static void test_given(void **state)
{
    (void)state;
    ACCEPTS(
        unpack("\"wait\":\"now\",\"strategy\":\"random\",\"deadline_ms\":250,\"budget\":1000000,"
               "\"iters\":100000,\"warmup\":10000,\"atol\":1,\"rtol\":1e-9,\"seed\":-7,"
               "\"progress\":true,\"again\":true,\"budget_ms\":5e3"));
    const struct query *q = &fixture.r.query;
    assert_string_equal(q->wait, "now");
    assert_string_equal(q->strategy, "random");
    assert_int_equal(q->deadline_ms, 250);
    assert_int_equal(q->budget, 1000000);
    assert_int_equal(q->budget_ms, 5000);
    assert_int_equal(q->iters, 100000);
    assert_int_equal(q->warmup, 10000);
    assert_int_equal(q->seed, -7);
    assert_true(q->atol == 1 && q->rtol == 1e-9 && q->progress && q->again);
    ACCEPTS(unpack("\"target\":\"portable\""));
    assert_string_equal(q->target, "portable");
    /* proto/ does not know the device's own target: here any `target` counts as a restriction */
    assert_true(request_is_restricted(&fixture.r));
    REFUSES(ERROR_INVALID, "target", unpack("\"target\":\"a-name-that-does-not-fit\""));
    ACCEPTS(
        unpack("\"atol\":null,\"iters\":null,\"wait\":null,\"restrict\":null,\"configs\":null"));
    assert_true(q->atol == 1e-2);
    assert_int_equal(q->iters, 0);
    assert_string_equal(q->wait, "tuned");
}

static void test_query_errors(void **state)
{
    (void)state;
    static const struct {
        const char *rest;
        int code;
        const char *part;
    } bad[] = {
        {"\"wait\":\"later\"", ERROR_INVALID,
         "wait is 'later', but takes tuned, now, cached or boundary"},
        {"\"strategy\":\"annealing\"", ERROR_INVALID,
         "takes ranked, exhaustive, random, genetic or given"},
        {"\"strategy\":\"given\"", ERROR_INVALID, "strategy 'given' needs configs"},
        {"\"strategy\":\"exhaustive\",\"configs\":[\"a=1\"]", ERROR_CONFLICT,
         "use strategy 'given'"},
        {"\"iters\":100001", ERROR_INVALID, "iters is 100001, but takes 0..100000"},
        {"\"iters\":-1", ERROR_INVALID, "iters is -1"},
        {"\"iters\":\"5\"", ERROR_INVALID, "query.iters must be an integer"},
        {"\"warmup\":10001", ERROR_INVALID, "warmup is 10001, but takes 0..10000"},
        {"\"budget\":1000001", ERROR_INVALID, "budget is 1000001, but takes 0..1000000"},
        {"\"budget_ms\":-1", ERROR_INVALID, "budget_ms is -1"},
        {"\"deadline_ms\":-1", ERROR_INVALID, "deadline_ms is -1"},
        {"\"deadline_ms\":9223372036854775807", ERROR_INVALID, "deadline_ms is"},
        {"\"atol\":1.5", ERROR_INVALID, "atol is 1.5, but takes 0..1"},
        {"\"rtol\":-0.1", ERROR_INVALID, "rtol is -0.1"},
        {"\"deadline\":5", ERROR_UNKNOWN_FIELD, "did you mean 'deadline_ms'?"},
        {"\"config\":{}", ERROR_UNKNOWN_FIELD, "did you mean 'configs'?"},
        {"\"restricted\":{}", ERROR_UNKNOWN_FIELD, "did you mean 'restrict'?"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        REFUSES(bad[i].code, bad[i].part, unpack(bad[i].rest));
    }
    REFUSES(ERROR_INVALID, "'problem' is missing", request_unpack(&fixture.r, NULL, &fixture.err));
    REFUSES(ERROR_INVALID, "query must be a map",
            request_unpack(&fixture.r, wire_of(fixture.doc, &fixture.b, "[1]"), &fixture.err));
    REFUSES(ERROR_INVALID, "a map with 'op'",
            request_unpack(&fixture.r, wire_of(fixture.doc, &fixture.b, "{\"problem\":5}"),
                           &fixture.err));
}

static int unpack_real(const char *name, double v)
{
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    const struct wire_obj *o;
    struct problem p;
    ACCEPTS(problem_parse(&p, "custom:x", &fixture.err));
    wire_put_map(&b, 2);
    wire_put_str(&b, "problem");
    problem_pack(&b, &p);
    wire_put_str(&b, name);
    if (strcmp(name, "restrict") == 0) {
        wire_put_map(&b, 1);
        wire_put_str(&b, "x");
    }
    wire_put_real(&b, v);
    ACCEPTS(wire_decode(fixture.doc, b.data, b.len, &o, &fixture.err));
    return request_unpack(&fixture.r, o, &fixture.err);
}

static void test_not_a_number(void **state)
{
    (void)state;
    ACCEPTS(unpack_real("atol", NAN)); /* "not known": the default */
    assert_true(fixture.r.query.atol == 1e-2);
    REFUSES(ERROR_INVALID, "rtol is inf", unpack_real("rtol", INFINITY));
    REFUSES(ERROR_INVALID, "iters must be an integer", unpack_real("iters", NAN));
    REFUSES(ERROR_INVALID, "restrict.x", unpack_real("restrict", NAN));
}

/* ---- restrict -------------------------------------------------------------------------------- */

static bool allows(const char *config)
{
    struct record r;
    ACCEPTS(record_parse(&r, config, &fixture.err));
    return request_allows(&fixture.r, &r);
}

static void test_restrict(void **state)
{
    (void)state;
    ACCEPTS(unpack("\"restrict\":{\"BLOCK_SIZE_M\":[64,128.0],\"flatten\":true,"
                   "\"cache\":[\"ca\",\"\",\"cg\"],\"x\":0.5}"));
    assert_true(request_is_restricted(&fixture.r));
    assert_int_equal(fixture.r.n_restrict, 4);
    assert_true(allows("BLOCK_SIZE_M=64 flatten=true cache=cg x=0.5 free=7"));
    assert_true(allows("BLOCK_SIZE_M=128 flatten=true cache=\"\" x=0.5"));
    assert_false(allows("BLOCK_SIZE_M=32 flatten=true cache=cg x=0.5"));
    assert_false(allows("BLOCK_SIZE_M=64 flatten=false cache=cg x=0.5"));
    assert_false(allows("BLOCK_SIZE_M=64 flatten=true cache=c x=0.5"));
    assert_false(allows("BLOCK_SIZE_M=\"64\" flatten=true cache=cg x=0.5"));
    /* a missing parameter has none of the allowed values */
    assert_false(allows("flatten=true cache=cg x=0.5"));
    ACCEPTS(unpack("\"restrict\":{}"));
    assert_false(request_is_restricted(&fixture.r));
    assert_true(allows(""));
}

static void test_restrict_errors(void **state)
{
    (void)state;
    char many[8192] = "\"restrict\":{\"a\":[0";
    for (int i = 0; i < RESTRICT_VALUES_MAX; i++) {
        strcat(many, ",1");
    }
    strcat(many, "]}");
    REFUSES(ERROR_INVALID, "restrict.a has 65 values; give 1 to 64", unpack(many));
    strcpy(many, "\"restrict\":{\"a\":0");
    for (int i = 0; i < RESTRICT_MAX; i++) {
        sprintf(many + strlen(many), ",\"a%d\":0", i);
    }
    strcat(many, "}");
    REFUSES(ERROR_INVALID, "at most 32 parameters", unpack(many));
    REFUSES(ERROR_INVALID, "restrict.a has 0 values", unpack("\"restrict\":{\"a\":[]}"));
    REFUSES(ERROR_INVALID, "restrict.a: values must be", unpack("\"restrict\":{\"a\":[[1]]}"));
    REFUSES(ERROR_INVALID, "restrict.a: values must be", unpack("\"restrict\":{\"a\":[1,null]}"));
    REFUSES(ERROR_INVALID, "restrict.a: values must be", unpack("\"restrict\":{\"a\":{}}"));
    REFUSES(ERROR_INVALID, "'a b' is no name", unpack("\"restrict\":{\"a b\":1}"));
    REFUSES(ERROR_INVALID, "restrict must be a map", unpack("\"restrict\":[1]"));
    assert_null(fixture.r.restrict_); /* nothing is left behind */
}

/* ---- configs --------------------------------------------------------------------------------- */

static void test_configs(void **state)
{
    (void)state;
    ACCEPTS(unpack("\"configs\":[{\"b\":1,\"a\":true},\"num_warps=4, BLOCK_SIZE_M=64\",{}]"));
    assert_string_equal(fixture.r.query.strategy, "given");
    assert_int_equal(fixture.r.n_configs, 3);
    assert_int_equal(record_int(&fixture.r.configs[1], "BLOCK_SIZE_M", 0), 64);
    assert_int_equal(fixture.r.configs[2].n, 0);
    assert_true(request_is_restricted(&fixture.r));
    REFUSES(ERROR_INVALID, "configs must be an array of 1 to 512", unpack("\"configs\":[]"));
    REFUSES(ERROR_INVALID, "configs must be an array", unpack("\"configs\":\"a=1\""));
    REFUSES(ERROR_INVALID, "configs[1]: 'warp': expected name=value",
            unpack("\"configs\":[{},\"warp 4\"]"));
    REFUSES(ERROR_INVALID, "configs[0]: a config must be a map, or text",
            unpack("\"configs\":[5]"));
    REFUSES(ERROR_CONFLICT, "configs[0]: field 'a' is given twice",
            unpack("\"configs\":[\"a=1 a=2\"]"));
    char many[16384] = "\"configs\":[{}";
    for (int i = 0; i < REQUEST_CONFIGS_MAX; i++) {
        strcat(many, ",{}");
    }
    REFUSES(ERROR_INVALID, "got 513", unpack(strcat(many, "]")));
}

/* ---- both ways ------------------------------------------------------------------------------- */

static void expect_same(const struct request *a, const struct request *b)
{
    assert_true(record_equal(&a->problem.fields, &b->problem.fields));
    assert_string_equal(a->query.strategy, b->query.strategy);
    assert_true(a->query.atol == b->query.atol && a->query.iters == b->query.iters);
    assert_int_equal(a->n_restrict, b->n_restrict);
    for (uint32_t i = 0; i < a->n_restrict; i++) {
        assert_string_equal(a->restrict_[i].name, b->restrict_[i].name);
        assert_int_equal(a->restrict_[i].n, b->restrict_[i].n);
        for (uint32_t j = 0; j < a->restrict_[i].n; j++) {
            assert_true(value_equal(&a->restrict_[i].values[j], &b->restrict_[i].values[j]));
        }
    }
    assert_int_equal(a->n_configs, b->n_configs);
    for (uint32_t i = 0; i < a->n_configs; i++) {
        assert_true(record_equal(&a->configs[i], &b->configs[i]));
    }
}

static void test_round_trip(void **state)
{
    (void)state;
    static const char *const rests[] = {
        "", "\"wait\":\"cached\",\"atol\":0.5,\"strategy\":\"exhaustive\"",
        "\"restrict\":{\"a\":[1,2.5,true,\"t\"],\"b\":\"\"}",
        "\"configs\":[\"a=1 b=2\",{\"c\":\"x y\"}],\"restrict\":{\"a\":1}"};
    for (size_t i = 0; i < sizeof(rests) / sizeof(rests[0]); i++) {
        static struct request again;
        const struct wire_obj *o;
        WIRE_BUF_AUTO b = WIRE_BUF_NULL;
        ACCEPTS(unpack(rests[i]));
        request_pack(&b, &fixture.r);
        ACCEPTS(scan_all(b.data, b.len, REQUEST_BYTES_MAX, &fixture.err));
        ACCEPTS(wire_decode(fixture.doc, b.data, b.len, &o, &fixture.err));
        ACCEPTS(request_unpack(&again, o, &fixture.err));
        expect_same(&fixture.r, &again);
        request_deinit(&again);
    }
}

static void test_order(void **state)
{
    (void)state;
    static struct tune_order order, again;
    memset(&order, 0, sizeof(order));
    ACCEPTS(unpack("\"restrict\":{\"a\":[1,2]}"));
    order.request = fixture.r;
    order.job = 5;
    strcpy(order.key, "0123456789abcdef0123456789abcdef");
    strcpy(order.stamp, "stamp");
    order.n_done = order.n_hints = order.n_avoid = 2;
    order.done = calloc(2, sizeof(order.done[0]));
    order.hints = calloc(2, sizeof(order.hints[0]));
    order.avoid = calloc(2, sizeof(order.avoid[0]));
    order.done[1].id = 77;
    order.done[1].time_us = 1.25;
    record_put_int(&order.hints[0], "a", 2);
    record_init(&order.former);
    record_put_int(&order.former, "a", 3);
    order.min_gain = 0.5;
    order.spent_device_ms = 120.5;
    order.spent_ms = 800;
    order.quiet = true;
    strcpy(order.avoid[1], "ffffffffffffffffffffffffffffffff");
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    const struct wire_obj *o;
    tune_order_pack(&b, &order);
    ACCEPTS(scan_all(b.data, b.len, RUNNER_MESSAGE_BYTES_MAX, &fixture.err));
    ACCEPTS(wire_decode(fixture.doc, b.data, b.len, &o, &fixture.err));
    ACCEPTS(tune_order_unpack(&again, o, &fixture.err));
    expect_same(&order.request, &again.request);
    assert_int_equal(again.job, 5);
    assert_string_equal(again.key, order.key);
    assert_string_equal(again.stamp, "stamp");
    assert_int_equal(again.n_done, 2);
    assert_int_equal(again.done[1].id, 77);
    assert_true(again.done[1].time_us == 1.25);
    assert_int_equal(again.n_hints, 2);
    assert_int_equal(record_int(&again.hints[0], "a", 0), 2);
    assert_int_equal(record_int(&again.former, "a", 0), 3);
    assert_true(again.min_gain == 0.5);
    assert_true(again.spent_device_ms == 120.5);
    assert_true(again.spent_ms == 800);
    assert_true(again.quiet);
    assert_int_equal(again.n_avoid, 2);
    assert_string_equal(again.avoid[1], order.avoid[1]);
    tune_order_deinit(&again);
    tune_order_deinit(&again);
    memset(&fixture.r, 0, sizeof(fixture.r)); /* moved into the order */
    tune_order_deinit(&order);
}

static void test_order_errors(void **state)
{
    (void)state;
    static struct tune_order order;
#define ORDER(rest)                                                                                \
    tune_order_unpack(&order,                                                                      \
                      wire_of(fixture.doc, &fixture.b, "{\"request\":{" PROBLEM "}" rest "}"),     \
                      &fixture.err)
    ACCEPTS(ORDER(""));
    assert_int_equal(order.former.n, 0);
    assert_false(order.quiet);
    tune_order_deinit(&order);
    REFUSES(ERROR_INVALID, "min_gain must be", ORDER(",\"min_gain\":\"1\""));
    REFUSES(ERROR_INVALID, "former", ORDER(",\"former\":5"));
    REFUSES(ERROR_INVALID, "done must be an array", ORDER(",\"done\":5"));
    REFUSES(ERROR_INVALID, "trial must be a map", ORDER(",\"done\":[{},5]"));
    REFUSES(ERROR_INVALID, "a config must be", ORDER(",\"hints\":[5]"));
    REFUSES(ERROR_INVALID, "quiet must be", ORDER(",\"quiet\":5"));
    REFUSES(ERROR_INVALID, "avoid[1]: it is no hash", ORDER(",\"avoid\":[\"a\",5]"));
    REFUSES(ERROR_UNKNOWN_FIELD, "did you mean 'hints'?", ORDER(",\"hint\":[]"));
    REFUSES(ERROR_INVALID, "'problem' is missing",
            tune_order_unpack(&order, wire_of(fixture.doc, &fixture.b, "{}"), &fixture.err));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_defaults),     TEST(test_given),      TEST(test_query_errors),
        TEST(test_not_a_number), TEST(test_restrict),   TEST(test_restrict_errors),
        TEST(test_configs),      TEST(test_round_trip), TEST(test_order),
        TEST(test_order_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
