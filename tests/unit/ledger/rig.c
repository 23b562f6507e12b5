/* SPDX-License-Identifier: Apache-2.0 */
/* A ledger on a loop (rig.h). */
#include <stdio.h>

#include "tests/unit/ledger/rig.h"

struct bench *bench;

void note(int status, const struct error *err)
{
    assert_false(bench->in_call);
    bench->callbacks++;
    bench->status = status;
    snprintf(bench->text, sizeof(bench->text), "%s", err ? err->text : "");
    assert_true(status >= 0 || (err && err->text[0]));
}

static void on_notice(void *ctx, const char *kind, const char *text)
{
    (void)text;
    struct bench *b = ctx;
    assert_false(b->in_call);
    b->notices++;
    strncat(b->kinds, kind, sizeof(b->kinds) - strlen(b->kinds) - 2);
    strcat(b->kinds, " ");
}

static void on_news(void *ctx, const struct ledger_news *n)
{
    struct bench *b = ctx;
    b->news[n->kind]++;
    assert_true((n->kind == NEWS_BEST || n->kind == NEWS_LOADED) == (n->best != NULL));
    if (n->best) {
        assert_string_equal(n->key, n->best->key);
        assert_true(n->saved == (n->best->generation > 0));
        b->news_saved += n->kind == NEWS_BEST && n->saved;
        b->news_generation = n->best->generation;
    }
    if (n->key[0]) {
        snprintf(b->news_key, sizeof(b->news_key), "%s", n->key);
    }
}

void on_stopped(void *ctx)
{
    ((struct bench *)ctx)->stopped = true;
}

int begin(struct bench *b, struct fixture *f, struct error *err)
{
    struct ledger_config c = {.path = f->path, .notice = on_notice, .news = on_news, .ctx = b};
    memset(b, 0, sizeof(*b));
    b->f = f;
    bench = b;
    assert_int_equal(uv_loop_init(&b->loop), 0);
    b->in_call = true;
    int r = ledger_start(&b->l, &b->loop, &c, err);
    b->in_call = false;
    return r;
}

void end(struct bench *b)
{
    ledger_stop(b->l, on_stopped, b);
    assert_false(b->stopped);
    uv_run(&b->loop, UV_RUN_DEFAULT);
    assert_true(b->stopped);
    assert_int_equal(uv_loop_close(&b->loop), 0);
}

void wait_for(struct bench *b, int n)
{
    while (b->callbacks < n) {
        uv_run(&b->loop, UV_RUN_ONCE);
    }
}

void wait_for_news(struct bench *b, enum ledger_news_kind kind, int n)
{
    while (b->news[kind] < n) {
        uv_run(&b->loop, UV_RUN_ONCE);
    }
}

struct store *open_other(struct fixture *f)
{
    struct store_options o = fixture_options(f);
    struct error err = ERROR_NULL;
    struct store *s = NULL;
    o.owner = "11.1.1"; /* an owner in another process namespace */
    assert_ok(store_open(&o, &s, &err));
    return s;
}

void on_done(void *ctx, int status, const struct error *err)
{
    (void)ctx;
    note(status, err);
}

void on_id(void *ctx, int status, int64_t id, const struct error *err)
{
    (void)ctx;
    note(status, err);
    bench->id = id;
}

void on_best(void *ctx, int status, const struct best *b, bool saved, const struct error *err)
{
    note(status, err);
    bench->saved = saved;
    assert_true((status == 0) == (b != NULL));
    if (b) {
        bench->generation = b->generation;
        if (ctx) {
            *(struct best *)ctx = *b;
        }
    }
}

void on_status(void *ctx, const struct ledger_status *s)
{
    (void)ctx;
    note(0, NULL);
    bench->counts = *s;
}

void on_load(void *ctx, int status, const struct best *bests, size_t n, const struct error *err)
{
    (void)ctx;
    for (size_t i = 0; status == 0 && i < n; i++) {
        assert_true(bests[i].created_s > 0);
        assert_true(bench->before == 0 || bests[i].generation < bench->before);
        bench->before = bests[i].generation;
    }
    bench->loaded += status == 0 ? (int)n : 0;
    bench->pages += status == 0 && n > 0;
    assert_in_range(n, 0, LOAD_PAGE);
    note(status, err);
}

void on_history(void *ctx, int status, const struct trial *trials, uint32_t n,
                char (*avoid)[HASH_HEX], uint32_t n_avoid, const struct error *err)
{
    (void)ctx;
    note(status, err);
    bench->n_trials = n;
    bench->n_avoid = n_avoid;
    for (uint32_t i = 0; i < n; i++) {
        assert_string_equal(trials[i].status, "ok");
    }
    for (uint32_t i = 0; i < n_avoid; i++) {
        assert_int_equal(strlen(avoid[i]), HASH_HEX - 1);
    }
}

void on_list(void *ctx, int status, const void *rows, size_t n, int64_t total,
             const struct error *err)
{
    (void)ctx;
    note(status, err);
    bench->id = total;
    if (status == 0) {
        struct wire_doc *doc = wire_doc_new();
        const struct wire_obj *array;
        assert_int_equal(wire_decode(doc, rows, n, &array, NULL), 0);
        bench->loaded = (int)wire_count(array);
        wire_doc_free(doc);
    }
}

struct ledger_status counts(struct bench *b)
{
    CALL_OK(b, status, on_status, NULL);
    wait_for(b, b->callbacks + 1);
    return b->counts;
}

void fill_bests(struct fixture *f, int n)
{
    struct store *s = fixture_open(f);
    struct error err = ERROR_NULL;
    struct best *best = calloc(1, sizeof(*best));
    assert_ok(store_begin(s, &err));
    for (int i = 0; i < n; i++) {
        fixture_best(best, i, i);
        assert_ok(store_publish(s, best, &err));
    }
    assert_ok(store_commit(s, &err));
    store_close(s);
    free(best);
}

void load_all(struct bench *b)
{
    int before = -1;
    b->before = 0;
    while (b->loaded > before) {
        CALL_OK(b, load, before < 0, on_load, NULL);
        before = b->loaded;
        wait_for(b, b->callbacks + 1);
        assert_int_equal(b->status, 0);
    }
}
