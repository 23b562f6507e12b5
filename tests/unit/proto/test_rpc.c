/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/rpc.h"
#include "tests/unit/proto/common.h"

struct fixture {
    struct wire_doc *doc;
    struct wire_buf b;
    struct rpc_message m;
    struct error err;
};

static int set_up(void **state)
{
    static struct fixture f;
    f = (struct fixture){.doc = wire_doc_new()};
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

static int decode(struct fixture *f, const char *json)
{
    wire_buf_clear(&f->b);
    assert_int_equal(wire_from_json(&f->b, json, NULL), 0);
    return rpc_decode(f->doc, f->b.data, f->b.len, &f->m, &f->err);
}

static void test_request(void **state)
{
    struct fixture *f = *state;
    rpc_put_request(&f->b, UINT32_MAX, "get");
    wire_put_map(&f->b, 1);
    wire_put_kv_int(&f->b, "x", 5);
    assert_ok(f->err, rpc_decode(f->doc, f->b.data, f->b.len, &f->m, &f->err));
    int64_t x = 0;
    assert_int_equal(f->m.type, RPC_REQUEST);
    assert_true(f->m.id == UINT32_MAX);
    assert_string_equal(f->m.method, "get");
    assert_true(wire_get_int(wire_find(f->m.params, "x"), &x) && x == 5);
}

static void test_forms_of_params(void **state)
{
    struct fixture *f = *state;
    static const char *const with[] = {"[0,1,\"m\",{\"a\":1}]", "[0,1,\"m\",[{\"a\":1}]]",
                                       "[2,\"m\",{\"a\":1}]", "[2,\"m\",[{\"a\":1}]]"};
    static const char *const without[] = {"[0,1,\"m\",[]]", "[0,1,\"m\",{}]", "[0,1,\"m\",null]",
                                          "[0,1,\"m\",[{}]]", "[2,\"m\",[]]"};
    for (size_t i = 0; i < sizeof(with) / sizeof(with[0]); i++) {
        assert_ok(f->err, decode(f, with[i]));
        assert_non_null(wire_find(f->m.params, "a"));
    }
    for (size_t i = 0; i < sizeof(without) / sizeof(without[0]); i++) {
        assert_ok(f->err, decode(f, without[i]));
        assert_null(f->m.params);
    }
}

/* The connection goes on, so the error's id must be the request's: the caller waits for that id. */
static void test_bad_params_keep_the_id(void **state)
{
    struct fixture *f = *state;
    static const char *const bad[] = {"[0,9,\"m\",5]", "[0,9,\"m\",[1]]", "[0,9,\"m\",[{},{}]]",
                                      "[0,9,\"m\",\"x\"]"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_error(f->err, ERROR_INVALID, "params of 'm'", decode(f, bad[i]));
        assert_int_equal(f->m.type, RPC_REQUEST);
        assert_int_equal(f->m.id, 9);
    }
    assert_error(
        f->err, ERROR_UNKNOWN_METHOD, "aaaaaaaaa",
        decode(f, "[0,9,\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\",{}]"));
    assert_int_equal(f->m.id, 9);
    assert_error(f->err, ERROR_UNKNOWN_METHOD, "a?b",
                 decode(f, "[0,9,\"a\\nbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\",{}]"));
}

static void test_not_rpc(void **state)
{
    struct fixture *f = *state;
    static const char *const bad[] = {
        "5",
        "{}",
        "[]",
        "[0]",
        "[0,1,\"m\"]",
        "[3,1,\"m\",{}]",
        "[-1,1,1]",
        "[2,\"m\"]",
        "[1,1,null]",
        "[\"0\",1,1,1]",
        "[0,-1,\"m\",{}]",
        "[0,4294967296,\"m\",{}]",
        "[0,1.5,\"m\",{}]",
        "[0,1,5,{}]",
        "[2,5,{}]",
        "[1,\"1\",null,null]",
        "[0,1,\"m\",{},1]",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_error(f->err, ERROR_MALFORMED, "", decode(f, bad[i]));
        assert_false(error_survives(f->err.code));
    }
}

static void test_result(void **state)
{
    struct fixture *f = *state;
    rpc_put_result(&f->b, 3);
    wire_put_str(&f->b, "fine");
    assert_ok(f->err, rpc_decode(f->doc, f->b.data, f->b.len, &f->m, &f->err));
    assert_int_equal(f->m.type, RPC_RESPONSE);
    assert_int_equal(f->m.id, 3);
    assert_null(f->m.error);
    assert_true(wire_is_str(f->m.result, "fine"));
}

static void test_error(void **state)
{
    struct fixture *f = *state;
    struct error sent = ERROR_NULL, got = ERROR_NULL;
    error_set(&sent, ERROR_NO_CONFIG, "none of 7 configs fits");
    rpc_put_error(&f->b, 4, &sent);
    assert_ok(f->err, rpc_decode(f->doc, f->b.data, f->b.len, &f->m, &f->err));
    assert_int_equal(f->m.id, 4);
    assert_int_equal(rpc_get_error(f->m.error, &got), ERROR_NO_CONFIG);
    assert_string_equal(got.text, "none of 7 configs fits");
    bool survives = false;
    assert_true(wire_get_bool(wire_find(f->m.error, "survives"), &survives) && survives);
}

static void test_errors_of_others(void **state)
{
    struct fixture *f = *state;
    struct error got = ERROR_NULL;
    assert_ok(f->err, decode(f, "[1,1,\"plain text\",null]"));
    assert_int_equal(rpc_get_error(f->m.error, &got), ERROR_INTERNAL);
    assert_string_equal(got.text, "plain text");
    assert_ok(f->err, decode(f, "[1,1,{\"name\":\"newer\",\"message\":\"m\"},null]"));
    assert_int_equal(rpc_get_error(f->m.error, &got), ERROR_INTERNAL);
    assert_ok(f->err, decode(f, "[1,1,\"\",null]"));
    assert_int_equal(rpc_get_error(f->m.error, &got), ERROR_INTERNAL);
    assert_string_equal(got.text, "the peer gave no reason");
    assert_ok(f->err, decode(f, "[1,1,17,null]"));
    assert_int_equal(rpc_get_error(f->m.error, &got), ERROR_INTERNAL);
    assert_string_equal(got.text, "the peer gave no reason");
}

static void test_notify(void **state)
{
    struct fixture *f = *state;
    rpc_put_notify(&f->b, "progress");
    wire_put_map(&f->b, 0);
    assert_ok(f->err, rpc_decode(f->doc, f->b.data, f->b.len, &f->m, &f->err));
    assert_int_equal(f->m.type, RPC_NOTIFY);
    assert_string_equal(f->m.method, "progress");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_request),          TEST(test_forms_of_params), TEST(test_bad_params_keep_the_id),
        TEST(test_not_rpc),          TEST(test_result),          TEST(test_error),
        TEST(test_errors_of_others), TEST(test_notify),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
