/* SPDX-License-Identifier: Apache-2.0 */
/* Lists: filters, order, pages, and refused requests. */
#include <math.h>
#include <stdio.h>

#include "proto/limits.h"
#include "store/inner.h"
#include "tests/unit/store/fixture.h"

struct page {
    struct wire_buf bytes;
    struct wire_doc *doc;
    const struct wire_obj *rows;
    size_t n;
    int64_t total;
    int status;
    struct error err;
    char filter[512];
};

static void page_free(struct page *p)
{
    wire_buf_deinit(&p->bytes);
    p->doc = wire_doc_free(p->doc);
}

static void list(struct store *s, struct page *p, const char *what, const char *filter,
                 size_t max_bytes)
{
    struct record *r = calloc(1, sizeof(*r));
    *p = (struct page){.doc = wire_doc_new(), .total = -1};
    assert_int_equal(record_parse(r, filter, &p->err), 0);
    p->status = store_list(s, what, r, max_bytes, &p->bytes, &p->total, &p->err);
    if (p->status == 0) {
        assert_int_equal(wire_decode(p->doc, p->bytes.data, p->bytes.len, &p->rows, &p->err), 0);
        assert_int_equal(wire_type_of(p->rows), WIRE_ARRAY);
        p->n = wire_count(p->rows);
    }
    free(r);
}

/* A record's text has no commas, so this filter is a record. */
static void list_columns(struct store *s, struct page *p, const char *what, struct value columns)
{
    struct record *r = calloc(1, sizeof(*r));
    *p = (struct page){.doc = wire_doc_new(), .total = -1};
    record_init(r);
    assert_int_equal(record_set(r, "columns", columns, &p->err), 0);
    p->status = store_list(s, what, r, RESPONSE_BYTES_MAX, &p->bytes, &p->total, &p->err);
    if (p->status == 0) {
        assert_int_equal(wire_decode(p->doc, p->bytes.data, p->bytes.len, &p->rows, &p->err), 0);
        p->n = wire_count(p->rows);
    }
    free(r);
}

static int64_t int_of(const struct page *p, size_t row, const char *column)
{
    int64_t v = -1;
    const struct wire_obj *o = wire_find(wire_at(p->rows, row), column);
    assert_non_null(o);
    assert_true(wire_get_int(o, &v));
    return v;
}

static double real_of(const struct page *p, size_t row, const char *column)
{
    double v = NAN;
    wire_get_real(wire_find(wire_at(p->rows, row), column), &v);
    return v;
}

/* Returns how many rows match, over all pages. */
static int64_t matching(struct store *s, const char *what, const char *filter)
{
    struct page p;
    list(s, &p, what, filter, RESPONSE_BYTES_MAX);
    if (p.status) {
        fail_msg("%s %s: %s", what, filter, p.err.text);
    }
    int64_t n = p.total;
    page_free(&p);
    return n;
}

static void every_list_has_its_rows(void **state)
{
    static const struct {
        const char *what;
        int64_t rows;
        const char *column;
    } all[] = {
        {"best", 12, "config"},       {"history", 13, "generation"}, {"trials", 96, "limit_value"},
        {"modules", 4, "flags"},      {"quarantine", 4, "deaths"},   {"runs", 1, "build"},
        {"devices", 1, "cuda_index"}, {"events", 4, "text"},         {"served", 3, "lost_us"},
        {"jobs", 1, "defaults"},
    };
    struct store *s = fixture_open(*state);
    fixture_fill(s);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct page p;
        list(s, &p, all[i].what, "", RESPONSE_BYTES_MAX);
        assert_int_equal(p.status, 0);
        assert_int_equal(p.total, all[i].rows);
        assert_int_equal(p.n, all[i].rows);
        assert_non_null(wire_find(wire_at(p.rows, 0), all[i].column));
        assert_null(wire_find(wire_at(p.rows, 0), "checksum"));
        page_free(&p);
    }
    store_close(s);
}

static void rows_are_as_clients_see_them(void **state)
{
    struct store *s = fixture_open(*state);
    struct page p;
    fixture_fill(s);
    list(s, &p, "trials", "status=resource limit=1", RESPONSE_BYTES_MAX);
    assert_int_equal(p.n, 1);
    assert_int_equal(p.total, 12);
    const struct wire_obj *row = wire_at(p.rows, 0);
    assert_int_equal(wire_type_of(wire_find(row, "config")), WIRE_MAP);
    assert_int_equal(wire_type_of(wire_find(row, "samples_us")), WIRE_ARRAY);
    assert_int_equal(wire_type_of(wire_find(row, "time_us")), WIRE_NIL);
    assert_int_equal(wire_type_of(wire_find(row, "reference")), WIRE_BOOL);
    assert_int_equal(int_of(&p, 0, "limit_value"), 232448);
    assert_int_equal(wire_type_of(wire_find(row, "speedup")), WIRE_NIL);
    page_free(&p);

    list(s, &p, "best", "problem.M=3072", RESPONSE_BYTES_MAX);
    assert_int_equal(p.n, 1);
    double us = real_of(&p, 0, "time_us");
    assert_float_equal(us, 82, 0);
    assert_float_equal(real_of(&p, 0, "tflops"), real_of(&p, 0, "flops") / us * 1e-6, 1e-9);
    assert_float_equal(real_of(&p, 0, "gbps"), real_of(&p, 0, "bytes") / us * 1e-3, 1e-9);
    assert_float_equal(real_of(&p, 0, "floor_percent"), 100 * 80 / us, 1e-9);
    assert_float_equal(real_of(&p, 0, "speedup"), 200 / us, 1e-9);
    page_free(&p);

    list(s, &p, "trials", "status=ok limit=1", RESPONSE_BYTES_MAX);
    assert_float_equal(real_of(&p, 0, "speedup"), 1 / real_of(&p, 0, "ratio"), 1e-9);
    assert_true(real_of(&p, 0, "tflops") > 0); /* flops of the key's best */
    page_free(&p);

    enum { NO_BEST = 50 };
    struct error err;
    struct device_info device;
    struct trial t;
    char filter[128];
    fixture_device(&device);
    fixture_failed_trial(&t, 1, NO_BEST, 1);
    assert_ok(store_add_trial(s, &t, &err));
    snprintf(filter, sizeof(filter), "key=%s sort=class", t.key);
    list(s, &p, "trials", filter, RESPONSE_BYTES_MAX);
    assert_int_equal(p.n, 1);
    assert_true(wire_is_str(wire_find(wire_at(p.rows, 0), "class"), device.class)); /* of its run */
    page_free(&p);
    store_close(s);
}

static void filters(void **state)
{
    struct store *s = fixture_open(*state);
    char key[HASH_HEX], text[128];
    fixture_fill(s);
    fixture_key(3, key);
    snprintf(text, sizeof(text), "key=%s", key);
    assert_int_equal(matching(s, "trials", text), 8);
    snprintf(text, sizeof(text), "key=~%.8s status=ok", key);
    assert_int_equal(matching(s, "trials", text), 7);
    assert_int_equal(matching(s, "best", "source=manual"), 1);
    assert_int_equal(matching(s, "history", "source=tuned"), 12);
    assert_int_equal(matching(s, "best", "class=~h200"), 12); /* case does not matter */
    assert_int_equal(matching(s, "best", "class=~h100"), 0);
    assert_int_equal(matching(s, "best", "problem.mode=dX"), 4);
    assert_int_equal(matching(s, "best", "problem.permute_x=true"), 12);
    assert_int_equal(matching(s, "best", "problem.permute_x=false"), 0);
    assert_int_equal(matching(s, "best", "problem.batch_invariant=true"), 0);
    assert_int_equal(matching(s, "best", "problem.batch_invariant=false"), 12); /* without it */
    assert_int_equal(matching(s, "trials", "config.BLOCK_SIZE_M=64"), 48);
    assert_int_equal(matching(s, "trials", "config.cache_modifier=.cg"), 48);
    assert_int_equal(matching(s, "trials", "config=~serial"), 96);
    assert_int_equal(matching(s, "trials", "config.serial=3"), 12);
    assert_int_equal(matching(s, "trials", "reference=true"), 12);
    assert_int_equal(matching(s, "trials", "ratio=0.5"), 12);
    assert_int_equal(matching(s, "trials", "speedup=2"), 12);
    assert_int_equal(matching(s, "trials", "class=~h200"), 96); /* the class of the trials' keys */
    assert_int_equal(matching(s, "trials", "class=~h100"), 0);
    assert_int_equal(matching(s, "trials", "status=ok run=1 family=grouped_gemm stage=final"), 48);
    store_close(s);
}

static void names_and_values_that_are_wrong(void **state)
{
    static const struct {
        const char *what, *filter;
        int status;
        const char *says;
    } rows[] = {
        {"pets", "", ERROR_INVALID, "there is no list 'pets': it is one of best, history"},
        {"trials", "colour=red", ERROR_UNKNOWN_FIELD,
         "trials has no column 'colour'; it has id, run, key"},
        {"trials", "limit_=5", ERROR_UNKNOWN_FIELD, "limit_value"},
        {"trials", "checksum=5", ERROR_UNKNOWN_FIELD, "no column 'checksum'"},
        {"trials", "sort=wave", ERROR_UNKNOWN_FIELD, "no column 'wave'"},
        {"trials", "sort=-wave", ERROR_UNKNOWN_FIELD, "no column 'wave'"},
        {"trials", "sort=5", ERROR_INVALID, "sort must name a column"},
        {"trials", "limit=0", ERROR_INVALID, "limit must be an integer of 1 or more"},
        {"trials", "limit=many", ERROR_INVALID, "limit must be an integer"},
        {"trials", "offset=-1", ERROR_INVALID, "offset must be an integer of 0 or more"},
        {"trials", "id=first", ERROR_INVALID, "column id of trials holds numbers, not 'first'"},
        {"trials", "status.x=1", ERROR_UNKNOWN_FIELD, "no column 'status.x'"},
        {"runs", "config.x=1", ERROR_UNKNOWN_FIELD, "no column 'config.x'"},
    };
    struct store *s = fixture_open(*state);
    fixture_fill(s);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct page p;
        list(s, &p, rows[i].what, rows[i].filter, RESPONSE_BYTES_MAX);
        if (p.status != rows[i].status) {
            fail_msg("%s %s: %d (%s)", rows[i].what, rows[i].filter, p.status, p.err.text);
        }
        assert_says(p.err, rows[i].says);
        assert_int_equal(p.bytes.len, 0);
        page_free(&p);
    }
    store_close(s);
}

/* Any text that a client writes into a value stays a value. */
static void values_are_no_sql(void **state)
{
    static const char *const values[] = {"'; DROP TABLE best; --", "~' OR 1=1 --", "\") --", "%",
                                         "_"};
    struct store *s = fixture_open(*state);
    struct record *r = calloc(1, sizeof(*r));
    struct error err = ERROR_NULL;
    int64_t total;
    fixture_fill(s);
    for (size_t i = 0; i < 5; i++) {
        WIRE_BUF_AUTO out = WIRE_BUF_NULL;
        record_init(r);
        record_put_text(r, "status", values[i]);
        record_put_text(r, "config.x", values[i]);
        assert_ok(store_list(s, "trials", r, RESPONSE_BYTES_MAX, &out, &total, &err));
        assert_int_equal(total, 0);
    }
    assert_int_equal(matching(s, "best", ""), 12);
    free(r);
    store_close(s);
}

static void order(void **state)
{
    struct store *s = fixture_open(*state);
    struct page p;
    fixture_fill(s);
    list(s, &p, "trials", "sort=time_us", RESPONSE_BYTES_MAX);
    for (size_t i = 1; i < p.n; i++) {
        double a = real_of(&p, i - 1, "time_us"), b = real_of(&p, i, "time_us");
        assert_true(isnan(b) || a <= b); /* not known: last */
        assert_true(a != b || int_of(&p, i - 1, "id") < int_of(&p, i, "id"));
    }
    assert_true(isnan(real_of(&p, 95, "time_us")));
    page_free(&p);
    list(s, &p, "trials", "sort=-time_us", RESPONSE_BYTES_MAX);
    for (size_t i = 1; i < p.n; i++) {
        double a = real_of(&p, i - 1, "time_us"), b = real_of(&p, i, "time_us");
        assert_true(isnan(b) || a >= b);
    }
    assert_true(isnan(real_of(&p, 95, "time_us")));
    page_free(&p);
    list(s, &p, "trials", "sort=-id", RESPONSE_BYTES_MAX);
    assert_int_equal(int_of(&p, 0, "id"), 96);
    page_free(&p);
    list(s, &p, "best", "sort=-tflops", RESPONSE_BYTES_MAX);
    assert_true(real_of(&p, 0, "tflops") > real_of(&p, 11, "tflops"));
    page_free(&p);
    list(s, &p, "best", "sort=-problem.M", RESPONSE_BYTES_MAX);
    assert_float_equal(real_of(&p, 0, "flops"), 2.0 * 1024 * 12 * 768 * 2048, 0);
    page_free(&p);
    store_close(s);
}

/* Reads all pages, which must have each id only once. Returns how many pages have rows. */
static int read_pages(struct store *s, size_t max_bytes, int limit, bool seen[97])
{
    int64_t offset = 0;
    int pages = 0;
    for (;;) {
        struct page p;
        char filter[64];
        snprintf(filter, sizeof(filter), "sort=-id offset=%d limit=%d", (int)offset, limit);
        list(s, &p, "trials", filter, max_bytes);
        assert_int_equal(p.status, 0);
        assert_true(p.bytes.len <= max_bytes);
        for (size_t i = 0; i < p.n; i++) {
            int64_t id = int_of(&p, i, "id");
            assert_false(seen[id]);
            seen[id] = true;
        }
        pages += p.n > 0;
        offset += (int64_t)p.n;
        bool more = offset < p.total;
        assert_true(p.n > 0 || !more);
        page_free(&p);
        if (!more) {
            return pages;
        }
    }
}

static void pages(void **state)
{
    struct store *s = fixture_open(*state);
    fixture_fill(s);
    bool seen[97] = {false};
    assert_int_equal(read_pages(s, RESPONSE_BYTES_MAX, 10, seen), 10);
    memset(seen, 0, sizeof(seen));
    assert_true(read_pages(s, 8000, 1000, seen) > 5); /* cut by bytes */
    for (int id = 1; id <= 96; id++) {
        assert_true(seen[id]);
    }
    struct page p;
    list(s, &p, "trials", "offset=1000", RESPONSE_BYTES_MAX);
    assert_int_equal(p.n, 0);
    assert_int_equal(p.total, 96);
    page_free(&p);
    list(s, &p, "trials", "", 200);
    assert_int_equal(p.status, ERROR_TOO_LARGE);
    assert_says(p.err, "more than");
    page_free(&p);
    store_close(s);
}

static void pages_leave_out_bad_rows(void **state)
{
    struct fixture *f = *state;
    struct store *s = fixture_open(f);
    struct error err = ERROR_NULL;
    fixture_fill(s);
    assert_ok(db_exec(&s->db, "UPDATE trial SET time_us = 1 WHERE id % 7 = 0", &err));
    bool seen[97] = {false};
    read_pages(s, RESPONSE_BYTES_MAX, 10, seen);
    for (int id = 1; id <= 96; id++) {
        assert_int_equal(seen[id], id % 7 != 0);
    }
    assert_int_equal(f->notices, 13);
    assert_int_equal(matching(s, "trials", ""), 83);
    store_close(s);
}

static void a_reader_chooses_columns(void **state)
{
    struct store *s = fixture_open(*state);
    struct page p;
    fixture_fill(s);
    list_columns(s, &p, "best", VALUE_OF_TEXT("speedup,time_us"));
    assert_int_equal(p.status, 0);
    assert_true(p.n > 0);
    const struct wire_obj *row = wire_at(p.rows, 0);
    assert_int_equal(wire_count(row), 3);
    assert_int_equal(wire_type_of(wire_find(row, "key")), WIRE_STR); /* the order's column, too */
    assert_float_equal(real_of(&p, 0, "speedup"), 200 / real_of(&p, 0, "time_us"), 1e-9);
    page_free(&p);
    list_columns(s, &p, "best", VALUE_OF_TEXT("time_us,colour"));
    assert_int_equal(p.status, ERROR_UNKNOWN_FIELD);
    assert_says(p.err, "best has no column 'colour'; it has");
    page_free(&p);
    list_columns(s, &p, "best", VALUE_OF_INT(7));
    assert_int_equal(p.status, ERROR_INVALID);
    page_free(&p);
    store_close(s);
}

static void at_most_256_rows(void **state)
{
    struct store *s = fixture_open(*state);
    struct error err = ERROR_NULL;
    struct event e;
    struct page p;
    assert_ok(store_begin(s, &err));
    for (int i = 0; i < 600; i++) {
        fixture_event(&e, i);
        assert_ok(store_add_event(s, &e, &err));
    }
    assert_ok(store_commit(s, &err));
    list(s, &p, "events", "limit=100000", RESPONSE_BYTES_MAX);
    assert_int_equal(p.n, PAGE_ROWS_MAX);
    assert_int_equal(p.total, 600);
    page_free(&p);
    list(s, &p, "events", "after=10", RESPONSE_BYTES_MAX);
    assert_int_equal(p.n, PAGE_ROWS_MAX);
    assert_int_equal(p.total, PAGE_ROWS_MAX + 1); /* there are more: 590 */
    page_free(&p);
    list(s, &p, "events", "after=500 offset=40", RESPONSE_BYTES_MAX);
    assert_int_equal(p.n, 60);
    assert_int_equal(p.total, 100);
    page_free(&p);
    store_close(s);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(every_list_has_its_rows),
        T(rows_are_as_clients_see_them),
        T(filters),
        T(names_and_values_that_are_wrong),
        T(values_are_no_sql),
        T(order),
        T(pages),
        T(pages_leave_out_bad_rows),
        T(a_reader_chooses_columns),
        T(at_most_256_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
