/* SPDX-License-Identifier: Apache-2.0 */
/* Results in pieces: listings in pages, modules in chunks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/gemmd.h"
#include "proto/hash.h"
#include "tests/unit/client/fake.h"

enum { IMAGE_BYTES = 600 * 1024, CHUNK = 256 * 1024 };

static struct {
    int64_t rows; /* number of rows of the listing */
    bool stuck;   /* each page names itself as the next page */
    bool deaf;    /* the fake ignores `after` */
    int delay_ms; /* pause of the fake before each chunk */
    int64_t lie;  /* added to the reported size of the image from the second chunk on */
    uint8_t image[IMAGE_BYTES];
    char id[HASH_HEX];
    char *seen;
} script;

static int64_t int_at(const struct wire_obj *map, const char *name, int64_t fallback)
{
    wire_get_int(wire_find(map, name), &fallback);
    return fallback;
}

static void give_page(int fd, const struct rpc_message *m)
{
    const struct wire_obj *filter = wire_find(m->params, "filter");
    int64_t offset = int_at(filter, "offset", 0), limit = int_at(filter, "limit", 256);
    int64_t first = script.deaf ? 0 : int_at(filter, "after", -1) + 1, total = script.rows - first;
    int64_t n = total - offset;
    n = n < 0 ? 0 : n > limit ? limit : n;
    n = n > 100 ? 100 : n; /* as when rows are long: a page has fewer rows than `limit` */
    struct wire_buf b = WIRE_BUF_NULL;
    rpc_put_result(&b, m->id);
    wire_put_map(&b, 3);
    wire_put_str(&b, "rows");
    wire_put_array(&b, (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        wire_put_map(&b, 1);
        wire_put_kv_int(&b, "id", first + offset + i);
    }
    wire_put_kv_int(&b, "total", total);
    wire_put_str(&b, "next");
    if (offset + n < total) {
        wire_put_int(&b, script.stuck ? offset : offset + n);
    } else {
        wire_put_nil(&b);
    }
    fake_send(fd, &b);
}

static void give_chunk(int fd, const struct rpc_message *m)
{
    fake_sleep_ms(script.delay_ms);
    int64_t offset = int_at(m->params, "offset", 0);
    size_t n = IMAGE_BYTES - (size_t)offset;
    n = n > CHUNK ? CHUNK : n;
    struct wire_buf b = WIRE_BUF_NULL;
    rpc_put_result(&b, m->id);
    wire_put_map(&b, 3);
    wire_put_kv_int(&b, "size", IMAGE_BYTES + (offset > 0 ? script.lie : 0));
    wire_put_str(&b, "data");
    wire_put_bin(&b, script.image + offset, n);
    wire_put_kv_str(&b, "suffix", "so");
    fake_send(fd, &b);
}

static void serve(struct fake *f, int fd, const struct rpc_message *m)
{
    struct error e;
    (void)f;
    free(script.seen);
    wire_to_json(m->params, &script.seen, &e);
    if (strcmp(m->method, "list") == 0) {
        give_page(fd, m);
    } else if (strcmp(m->method, "module") == 0) {
        give_chunk(fd, m);
    } else if (strcmp(m->method, "why") == 0) {
        fake_result_int(fd, m->id, "trials", 7);
    } else {
        fake_error(fd, m->id, ERROR_UNKNOWN_METHOD, m->method);
    }
}

static struct gemmd *g;

static int setup(void **state)
{
    struct fake *f = calloc(1, sizeof(*f));
    fake_path(f->path);
    f->handler = serve;
    fake_start(f);
    struct gemmd_options o = GEMMD_OPTIONS_INIT;
    o.socket = f->path;
    *state = f;
    script.rows = 0;
    script.lie = 0;
    script.stuck = script.deaf = false;
    script.delay_ms = 0;
    uint64_t x = 1;
    for (size_t i = 0; i < IMAGE_BYTES; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        script.image[i] = (uint8_t)(x >> 56);
    }
    hash128_hex(script.image, IMAGE_BYTES, script.id);
    return gemmd_connect(&g, &o, NULL);
}

static int teardown(void **state)
{
    struct fake *f = *state;
    g = gemmd_close(g);
    fake_stop(f);
    fake_path_remove(f->path);
    free(f);
    free(script.seen);
    script.seen = NULL;
    return 0;
}

/* "[{"id":from},...,{"id":to-1}]" */
static char *rows_text(int64_t from, int64_t to)
{
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    fputc('[', out);
    for (int64_t i = from; i < to; i++) {
        fprintf(out, "%s{\"id\":%lld}", i > from ? "," : "", (long long)i);
    }
    fputc(']', out);
    fclose(out);
    return text;
}

static void check_list(const char *filter, int64_t from, int64_t to)
{
    struct gemmd_error e;
    char *rows = NULL, *want = rows_text(from, to);
    if (gemmd_list(g, "trials", filter, &rows, &e)) {
        fail_msg("%s", e.text);
    }
    assert_string_equal(rows, want);
    gemmd_free(rows);
    free(want);
}

static void test_pages(void **state)
{
    struct fake *f = *state;
    check_list(NULL, 0, 0);
    assert_int_equal(f->requests, 1);
    script.rows = 250;
    check_list(NULL, 0, 250);
    assert_int_equal(f->requests, 4);
    check_list("{\"limit\": 120, \"sort\": \"-id\"}", 0, 120); /* the fake does not sort */
    assert_string_equal(script.seen, "{\"what\":\"trials\",\"filter\":{\"limit\":20,"
                                     "\"sort\":\"-id\",\"offset\":100}}");
    check_list("{\"offset\": 10, \"limit\": 120}", 10, 130);
    assert_string_equal(script.seen, "{\"what\":\"trials\",\"filter\":{\"offset\":0,"
                                     "\"limit\":20,\"after\":109}}");
    check_list("{\"offset\": 40, \"limit\": 7}", 40, 47);
    check_list("{\"offset\": 240}", 240, 250);
    int before = f->requests;
    check_list("{\"limit\": 0}", 0, 0);
    assert_int_equal(f->requests, before);
}

static void test_bad_pages(void **state)
{
    (void)state;
    struct gemmd_error e;
    char *rows = NULL;
    script.rows = 250;
    script.stuck = true;
    assert_int_equal(gemmd_list(g, "trials", NULL, &rows, &e), GEMMD_MALFORMED);
    assert_null(rows);
    script.stuck = false;
    script.deaf = true;
    assert_int_equal(gemmd_list(g, "trials", NULL, &rows, &e), GEMMD_MALFORMED);
    assert_non_null(strstr(e.text, "do not advance"));
    script.deaf = false;
    assert_int_equal(gemmd_list(g, "best", NULL, &rows, &e), GEMMD_MALFORMED);
    assert_non_null(strstr(e.text, "has no key"));
    const char *const bad[] = {"[1]", "{\"a\":", "{\"limit\": -1}", "{\"offset\": \"x\"}", ""};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(gemmd_list(g, "trials", bad[i], &rows, &e), GEMMD_INVALID);
    }
    assert_int_equal(gemmd_list(g, NULL, NULL, &rows, &e), GEMMD_INVALID);
}

static void test_module_in_chunks(void **state)
{
    struct fake *f = *state;
    struct gemmd_error e;
    void *data = NULL;
    size_t size = 0;
    assert_int_equal(gemmd_module(g, script.id, &data, &size, &e), 0);
    assert_int_equal(size, IMAGE_BYTES);
    assert_memory_equal(data, script.image, IMAGE_BYTES);
    assert_int_equal(f->requests, 3);
    gemmd_free(data);
}

static void test_damaged_module(void **state)
{
    (void)state;
    struct gemmd_error e;
    void *data = NULL;
    size_t size;
    script.image[IMAGE_BYTES / 2] ^= 1;
    assert_int_equal(gemmd_module(g, script.id, &data, &size, &e), GEMMD_STORE);
    assert_non_null(strstr(e.text, script.id));
    assert_null(data);
    script.image[IMAGE_BYTES / 2] ^= 1;
    script.lie = 5;
    assert_int_equal(gemmd_module(g, script.id, &data, &size, &e), GEMMD_STORE);
    script.lie = -IMAGE_BYTES;
    assert_int_equal(gemmd_module(g, script.id, &data, &size, &e), GEMMD_STORE);
    assert_int_equal(gemmd_module(g, "short", &data, &size, &e), GEMMD_INVALID);
    assert_int_equal(gemmd_module(g, NULL, &data, &size, &e), GEMMD_INVALID);
}

static void test_unknown_method(void **state)
{
    (void)state;
    struct gemmd_error e;
    char *json;
    assert_int_equal(gemmd_call(g, "dance", "{}", 0, &json, NULL, NULL, &e), GEMMD_UNKNOWN_METHOD);
    assert_string_equal(e.text, "dance");
}

static void test_why(void **state)
{
    (void)state;
    struct gemmd_problem p = GEMMD_PROBLEM_INIT;
    struct gemmd_query q = GEMMD_QUERY_INIT;
    struct gemmd_error e;
    char *json = NULL;
    p.m = p.n = p.k = 64;
    assert_int_equal(gemmd_why(g, &p, NULL, &json, &e), 0);
    assert_string_equal(json, "{\"trials\":7}");
    assert_null(strstr(script.seen, "atol"));
    gemmd_free(json);
    q.atol = 0.5;
    q.target = "portable";
    q.budget = 3; /* a budget applies to tunings only: `why` does not send it */
    assert_int_equal(gemmd_why(g, &p, &q, &json, &e), 0);
    assert_non_null(strstr(script.seen, "\"target\":\"portable\",\"atol\":0.5}"));
    gemmd_free(json);
    assert_int_equal(gemmd_why(g, NULL, NULL, &json, &e), GEMMD_INVALID);
    assert_null(json);
    assert_int_equal(gemmd_why(g, &p, NULL, NULL, &e), GEMMD_INVALID);
    assert_int_equal(gemmd_why(NULL, &p, NULL, &json, &e), GEMMD_INVALID);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* A single deadline covers all chunks. */
static void test_a_slow_module_ends_by_its_deadline(void **state)
{
    struct gemmd_options o = GEMMD_OPTIONS_INIT;
    struct gemmd *slow = NULL;
    struct gemmd_error e;
    void *data = NULL;
    size_t size = 0;
    o.socket = ((struct fake *)*state)->path;
    o.deadline_ms = 250;
    assert_int_equal(gemmd_connect(&slow, &o, &e), 0);
    script.delay_ms = 120;
    double began = fake_ms();
    assert_int_equal(gemmd_module(slow, script.id, &data, &size, &e), GEMMD_DEADLINE);
    double took = fake_ms() - began;
    assert_true(took >= 245 && took < 250 + 100);
    assert_null(data);
    gemmd_close(slow);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_pages),
        TEST(test_bad_pages),
        TEST(test_module_in_chunks),
        TEST(test_damaged_module),
        TEST(test_unknown_method),
        TEST(test_why),
        TEST(test_a_slow_module_ends_by_its_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
