/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every allocation of proto/ fails once: the first, then the second, until a run passes. Each time
 * the call must return ERROR_NO_MEMORY and leak no memory (the leak checker looks). The linker's
 * --wrap brings allocations here, and each of msgpack-c's.
 */
#include <stdlib.h>

#include <msgpack.h>

#include "proto/request.h"
#include "proto/rpc.h"
#include "tests/unit/proto/common.h"

static int countdown; /* number of allocations until one fails; 0: none fails */
static bool failed;

static bool fails(void)
{
    if (countdown > 0 && --countdown == 0) {
        failed = true;
        return true;
    }
    return false;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
char *__real_strndup(const char *s, size_t n);
msgpack_zone *__real_msgpack_zone_new(size_t chunk);
msgpack_unpack_return __real_msgpack_unpack(const char *data, size_t len, size_t *off,
                                            msgpack_zone *zone, msgpack_object *out);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strndup(const char *s, size_t n);
msgpack_zone *__wrap_msgpack_zone_new(size_t chunk);
msgpack_unpack_return __wrap_msgpack_unpack(const char *data, size_t len, size_t *off,
                                            msgpack_zone *zone, msgpack_object *out);

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

char *__wrap_strndup(const char *s, size_t n)
{
    return fails() ? NULL : __real_strndup(s, n);
}

msgpack_zone *__wrap_msgpack_zone_new(size_t chunk)
{
    return fails() ? NULL : __real_msgpack_zone_new(chunk);
}

msgpack_unpack_return __wrap_msgpack_unpack(const char *data, size_t len, size_t *off,
                                            msgpack_zone *zone, msgpack_object *out)
{
    return fails() ? MSGPACK_UNPACK_NOMEM_ERROR : __real_msgpack_unpack(data, len, off, zone, out);
}

/* Runs with the first, second ... allocation failing, until a run passes. Returns the count. */
static int fail_each(int (*run)(struct error *err))
{
    for (int nth = 1;; nth++) {
        struct error err = ERROR_NULL;
        countdown = nth;
        failed = false;
        int r = run(&err);
        countdown = 0;
        if (!failed) {
            assert_int_equal(r, 0);
            return nth - 1;
        }
        assert_int_equal(r, ERROR_NO_MEMORY);
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

static int write_buffer(struct error *err)
{
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    rpc_put_request(&b, 1, "get");
    wire_put_array(&b, 2000);
    for (int i = 0; i < 2000; i++) {
        wire_put_strn(&b, "text", 4);
        wire_put_bin(&b, "data", 4);
        wire_put_real(&b, i);
        wire_put_raw(&b, "\xc0", 1);
    }
    if (b.failed) {
        wire_put_int(&b, 1); /* the bytes are dropped, and the buffer stays failed */
        assert_true(b.failed);
        wire_buf_clear(&b); /* can be used again */
        wire_put_int(&b, 1);
        assert_false(b.failed && !failed);
        return error_set(err, ERROR_NO_MEMORY, "no memory");
    }
    wire_buf_clear(&b);
    assert_true(b.cap > 0);
    return 0;
}

static void test_write(void **state)
{
    (void)state;
    assert_true(fail_each(write_buffer) > 5);
}

static void test_sizes_beyond_messagepack(void **state)
{
    (void)state;
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    wire_put_array(&b, (size_t)UINT32_MAX + 1);
    assert_true(b.failed);
    wire_buf_clear(&b);
    wire_put_map(&b, (size_t)UINT32_MAX + 1);
    assert_true(b.failed);
    wire_buf_clear(&b);
    wire_put_strn(&b, "", (size_t)UINT32_MAX + 1);
    assert_true(b.failed);
    wire_buf_clear(&b);
    wire_put_bin(&b, "", (size_t)UINT32_MAX + 1);
    assert_true(b.failed);
    assert_int_equal(b.len, 0);
}

/* ---- reading --------------------------------------------------------------------------------- */

static const char params[] =
    "{\"problem\":{\"op\":\"gemm\",\"mode\":\"dW\",\"M\":8,\"N\":8,\"K\":8,\"routing\":[8]},"
    "\"restrict\":{\"a\":[\"x\",\"y\"],\"b\":1},\"configs\":[\"a=x b=1\",{\"a\":\"y\"}]}";
static const char order_params[] =
    "{\"request\":{\"problem\":{\"op\":\"gemm\",\"mode\":\"dW\",\"M\":8,\"N\":8,\"K\":8},"
    "\"restrict\":{\"a\":\"x\"}},\"job\":1,\"key\":\"k\",\"stamp\":\"s\",\"done\":[{},{}],"
    "\"hints\":[\"a=x\"],\"avoid\":[\"v\"]}";

/* Decodes the JSON in a doc of its own, and passes the object to `read`. */
static int with_doc(const char *json, int (*read)(const struct wire_obj *o, struct error *err),
                    struct error *err)
{
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    const struct wire_obj *o;
    int r = wire_from_json(&b, json, err);
    if (r < 0) {
        return r;
    }
    struct wire_doc *doc = wire_doc_new();
    if (!doc) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a doc");
    }
    r = wire_decode(doc, b.data, b.len, &o, err);
    r = r < 0 ? r : read(o, err);
    wire_doc_free(doc);
    return r;
}

static int read_request(const struct wire_obj *o, struct error *err)
{
    struct request r;
    int result = request_unpack(&r, o, err);
    assert_true(result == 0 || (!r.restrict_ && !r.configs && !r.text));
    request_deinit(&r);
    return result;
}

static int unpack_request(struct error *err)
{
    return with_doc(params, read_request, err);
}

static int read_order(const struct wire_obj *o, struct error *err)
{
    static struct tune_order order;
    int result = tune_order_unpack(&order, o, err);
    assert_true(result == 0 || (!order.done && !order.hints && !order.avoid));
    tune_order_deinit(&order);
    return result;
}

static int unpack_order(struct error *err)
{
    return with_doc(order_params, read_order, err);
}

static int read_as_json(const struct wire_obj *o, struct error *err)
{
    char *json = NULL;
    int r = wire_to_json(o, &json, err);
    free(json);
    return r;
}

static int to_json(struct error *err)
{
    return with_doc(params, read_as_json, err);
}

static int decode_key(struct error *err)
{
    static struct problem p;
    static struct key k;
    char class[192];
    assert_int_equal(problem_parse(&p, "gemm mode=dX M=1 N=1 K=1", NULL), 0);
    assert_int_equal(key_make(&k, &p, "c", NULL), 0);
    return key_decode(k.bytes, k.len, &p, class, err);
}

static void test_read(void **state)
{
    (void)state;
    assert_true(fail_each(unpack_request) >= 7);
    assert_true(fail_each(unpack_order) >= 8);
    assert_true(fail_each(to_json) >= 4);
    assert_true(fail_each(decode_key) >= 2);
}

/* ---- the steady path ------------------------------------------------------------------------- */

static int allocations(void)
{
    return 1000000 - countdown;
}

/* A stream of ordinary requests costs no allocation of ours once buffers are warm. */
static void test_steady_path(void **state)
{
    (void)state;
    static struct rpc_message m;
    static struct problem p, bucket;
    static struct key k;
    struct wire_doc *doc = wire_doc_new();
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    rpc_put_request(&b, 1, "get");
    assert_int_equal(wire_from_json(&b, params, NULL), 0);
    countdown = 1000000;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(rpc_decode(doc, b.data, b.len, &m, NULL), 0);
        assert_int_equal(problem_unpack(&p, wire_find(m.params, "problem"), NULL), 0);
        problem_bucket(&p, BUCKET_SQRT2, &bucket);
        assert_int_equal(key_make(&k, &bucket, "class", NULL), 0);
    }
    /* 100 calls of msgpack_unpack, each of which counts as an allocation here */
    assert_int_equal(allocations(), 100);
    countdown = 0;
    wire_doc_free(doc);
}

static int set_up(void **state)
{
    (void)state;
    test_ops_set();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write),
        cmocka_unit_test(test_sizes_beyond_messagepack),
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_steady_path),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
