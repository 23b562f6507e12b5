/* SPDX-License-Identifier: Apache-2.0 */
/* See fixture.h. */
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "store/inner.h"
#include "tests/unit/store/fixture.h"

int fixture_setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    /* in memory if possible: the tests make many files, each synced often */
    snprintf(f->dir, sizeof(f->dir), "%s/gemmd-store-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(f->dir)) {
        return -1;
    }
    snprintf(f->path, sizeof(f->path), "%s/cache.db", f->dir);
    *state = f;
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

int fixture_teardown(void **state)
{
    struct fixture *f = *state;
    nftw(f->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(f);
    return 0;
}

void fixture_notice(void *fixture, const char *kind, const char *text)
{
    struct fixture *f = fixture;
    f->notices++;
    snprintf(f->kind, sizeof(f->kind), "%s", kind);
    snprintf(f->text, sizeof(f->text), "%s", text);
}

struct store_options fixture_options(struct fixture *f)
{
    return (struct store_options){.path = f->path, .notice = fixture_notice, .ctx = f};
}

struct store *fixture_open_as(struct fixture *f, const char *owner)
{
    struct store_options o = fixture_options(f);
    struct error err = ERROR_NULL;
    struct store *s = NULL;
    o.owner = owner;
    assert_ok(store_open(&o, &s, &err));
    return s;
}

struct store *fixture_open(struct fixture *f)
{
    return fixture_open_as(f, NULL);
}

int64_t fixture_count(struct store *s, const char *sql)
{
    struct error err = ERROR_NULL;
    int64_t n;
    assert_ok(db_int(&s->db, sql, &n, &err));
    return n;
}

long fixture_apart(void)
{
    const char *text = getenv("GEMMD_TEST_APART");
    const long apart = text ? strtol(text, NULL, 10) : 1;
    return apart < 1 ? 1 : apart;
}

void fixture_path(const struct fixture *f, const char *suffix, char out[128])
{
    snprintf(out, 128, "%s%s", f->path, suffix);
}

void fixture_key(int i, char out[HASH_HEX])
{
    hash128_hex(&i, sizeof(i), out);
}

static void variant_of(int i, char out[HASH_HEX])
{
    fixture_key(i + 1000000, out);
}

static void config_of(struct record *r, int i)
{
    record_init(r);
    record_put_int(r, "BLOCK_SIZE_M", 64 << i % 2);
    record_put_int(r, "BLOCK_SIZE_N", 32 << i % 4);
    record_put_int(r, "BLOCK_SIZE_K", 64);
    record_put_int(r, "num_stages", 2 + i % 3);
    record_put_int(r, "num_warps", 4 << i % 2);
    record_put_int(r, "serial", i);
    record_put_bool(r, "flatten", i % 3 == 0);
    record_put_text(r, "cache_modifier", i % 2 ? ".cg" : "");
}

#define TEXT(field, value) snprintf(field, sizeof(field), "%s", value)

void fixture_device(struct device_info *d)
{
    memset(d, 0, sizeof(*d));
    TEXT(d->kind, "cuda");
    TEXT(d->name, "NVIDIA H200");
    TEXT(d->uuid, "GPU-11111111-2222-3333-4444-555555555555");
    TEXT(d->arch, "sm_90a");
    d->sm_count = 132;
    d->cc_major = 9;
    d->smem_optin = 232448;
    d->memory_bytes = INT64_C(150121545728);
    d->power_limit_w = 700;
    TEXT(d->driver, "580.159.03");
    d->peak_tflops = 790.5;
    d->peak_gbps = NAN;
    TEXT(d->compiler, "nvrtc 13.0");
    device_class_format(d);
}

void fixture_run(struct run *r)
{
    struct device_info d;
    fixture_device(&d);
    memset(r, 0, sizeof(*r));
    TEXT(r->device, d.uuid);
    TEXT(r->driver, d.driver);
    TEXT(r->compiler, d.compiler);
    TEXT(r->build, "0.1.0-abc");
    r->pid = 4711;
    r->started_s = time(NULL) - 100;
}

void fixture_trial(struct trial *t, int64_t run, int key, int i)
{
    memset(t, 0, sizeof(*t));
    t->run = run;
    fixture_key(key, t->key);
    TEXT(t->family, "grouped_gemm");
    config_of(&t->config, i);
    variant_of(i, t->variant);
    fixture_key(i + 2000000, t->module);
    TEXT(t->stage, i % 2 ? "measure" : "final");
    TEXT(t->status, "ok");
    t->time_us = 100 + i / 7.0;
    t->ratio = 0.5 + i / 100.0;
    t->q25_us = 99.5;
    t->q75_us = 101.25;
    t->predicted_us = i % 2 ? NAN : 90;
    t->compile_ms = 0;
    t->max_error = 1e-3;
    t->rel_norm = 2e-4;
    t->reference = i == 0;
    t->samples_us.n = (uint32_t)(i % 5 + 1);
    for (uint32_t k = 0; k < t->samples_us.n; k++) {
        t->samples_us.v[k] = t->time_us + 0.1 * k;
    }
    TEXT(t->stamp, "grouped_gemm/1/src-abc/nvrtc 13.0");
    t->created_s = time(NULL) - 50;
}

void fixture_failed_trial(struct trial *t, int64_t run, int key, int i)
{
    fixture_trial(t, run, key, i);
    TEXT(t->status, "resource");
    TEXT(t->resource, "shared_memory");
    t->required = 262144;
    t->limit_value = 232448;
    TEXT(t->reason, "needs 262144 bytes of shared memory, the device gives 232448");
    t->time_us = t->ratio = t->q25_us = t->q75_us = NAN;
    t->samples_us.n = 0;
}

void fixture_best(struct best *b, int key, int i)
{
    struct device_info d;
    fixture_device(&d);
    memset(b, 0, sizeof(*b));
    fixture_key(key, b->key);
    TEXT(b->op, "grouped_gemm");
    TEXT(b->family, "grouped_gemm");
    record_init(&b->problem);
    record_put_text(&b->problem, "mode", key % 3 == 0 ? "forward" : key % 3 == 1 ? "dX" : "dW");
    record_put_int(&b->problem, "M", 1024 * (key + 1));
    record_put_int(&b->problem, "N", 768);
    record_put_int(&b->problem, "K", 2048);
    record_put_int(&b->problem, "experts", 128);
    record_put_int(&b->problem, "topk", 8);
    record_put_bool(&b->problem, "permute_x", true);
    TEXT(b->class, d.class);
    TEXT(b->source, "tuned");
    config_of(&b->config, i);
    fixture_key(i + 2000000, b->module);
    b->time_us = 100 + i / 7.0;
    b->spread = 0.012;
    b->reference_us = 200;
    b->flops = 2.0 * 1024 * (key + 1) * 768 * 2048;
    b->bytes = 4.5e8;
    b->floor_us = 80;
    b->atol = b->rtol = 1e-2;
    b->measured = 48;
    TEXT(b->stamp, "grouped_gemm/1/src-abc/nvrtc 13.0");
    b->uid = 1000;
    b->created_s = time(NULL) - 86400 * (key % 40);
}

void fixture_module(struct module *m, int i)
{
    memset(m, 0, sizeof(*m));
    fixture_key(i + 2000000, m->id);
    variant_of(i, m->variant);
    TEXT(m->family, "grouped_gemm");
    TEXT(m->target, "sm_90a");
    TEXT(m->compiler, "nvrtc 13.0");
    TEXT(m->flags, "-DBLOCK_SIZE_M=64 -O3");
    fixture_key(77, m->source);
    TEXT(m->entry, "grouped_gemm");
    m->registers = 128 + i;
    m->spill_bytes = i % 4 == 3 ? 64 : 0;
    m->size = 40000 + i;
    m->compile_ms = 812.5;
    m->created_s = time(NULL) - 1000;
    m->used_s = time(NULL) - 86400 * i;
}

void fixture_quarantine(struct quarantine *q, int i)
{
    struct device_info d;
    fixture_device(&d);
    memset(q, 0, sizeof(*q));
    variant_of(i, q->variant);
    fixture_key(i + 2000000, q->module);
    TEXT(q->family, "grouped_gemm");
    config_of(&q->config, i);
    fixture_key(i, q->key);
    TEXT(q->class, d.class);
    TEXT(q->driver, d.driver);
    TEXT(q->status, i % 2 ? "hung" : "crashed");
    TEXT(q->reason, "the runner was silent for 5000 ms while timing");
    q->created_s = time(NULL) - 10;
}

void fixture_event(struct event *e, int i)
{
    memset(e, 0, sizeof(*e));
    e->created_s = time(NULL) - i;
    TEXT(e->kind, i % 2 ? "stop" : "start");
    e->uid = 1000;
    TEXT(e->text, "gemmd 0.1.0");
}

void fixture_served(struct served_row *row, int i)
{
    memset(row, 0, sizeof(*row));
    row->uid = 1000;
    TEXT(row->job, "slurm:4711");
    TEXT(row->tier, i ? "default" : "exact");
    record_init(&row->problem);
    record_init(&row->config);
    if (i) {
        fixture_key(i, row->key);
        config_of(&row->config, i);
    }
    row->answers = 8;
    row->first_s = time(NULL) - 60;
    row->last_s = time(NULL);
}

int fixture_fill_served(struct store *s, struct error *err)
{
    WIRE_BUF_AUTO rows = WIRE_BUF_NULL;
    struct wire_doc *doc = wire_doc_new();
    const struct wire_obj *list;
    struct served_row row;
    wire_put_array(&rows, 3);
    for (int i = 0; i < 3; i++) {
        fixture_served(&row, i);
        schema_encode(&rows, &served_row_schema, &row);
    }
    int r = doc && !rows.failed ? wire_decode(doc, rows.data, rows.len, &list, err)
                                : error_set(err, ERROR_NO_MEMORY, "no memory for a fixture");
    r = r ? r : store_add_served(s, list, err);
    wire_doc_free(doc);
    return r;
}

void fixture_fill(struct store *s)
{
    struct error err = ERROR_NULL;
    struct device_info d;
    struct run r;
    struct module m;
    struct quarantine q;
    struct event e;
    struct trial *t = malloc(sizeof(*t));
    struct best *b = malloc(sizeof(*b));
    fixture_device(&d);
    assert_ok(store_put_device(s, &d, &err));
    fixture_run(&r);
    assert_ok(store_add_run(s, &r, &err));
    for (int i = 0; i < 4; i++) {
        fixture_module(&m, i);
        assert_ok(store_add_module(s, &m, &err));
        fixture_quarantine(&q, i);
        assert_ok(store_add_quarantine(s, &q, &err));
        fixture_event(&e, i);
        assert_ok(store_add_event(s, &e, &err));
    }
    for (int key = 0; key < 12; key++) {
        for (int i = 0; i < 8; i++) {
            if (i == 5) {
                fixture_failed_trial(t, r.id, key, i);
            } else {
                fixture_trial(t, r.id, key, i);
            }
            assert_ok(store_add_trial(s, t, &err));
        }
        fixture_best(b, key, 3);
        b->time_us = 80.0 + key;
        if (key == 0) {
            TEXT(b->stamp, "grouped_gemm/1/src-old/nvrtc 12.9");
        }
        assert_ok(store_publish(s, b, &err));
    }
    fixture_best(b, 1, 2);
    TEXT(b->source, "manual");
    assert_ok(store_publish(s, b, &err));
    assert_ok(fixture_fill_served(s, &err));
    free(t);
    free(b);
}

static bool field_equal(const struct schema_field *f, const char *a, const char *b)
{
    switch (f->kind) {
    case SCHEMA_INT:
        return *(const int64_t *)a == *(const int64_t *)b;
    case SCHEMA_FLAG:
        return *(const bool *)a == *(const bool *)b;
    case SCHEMA_REAL: {
        double x = *(const double *)a, y = *(const double *)b;
        return x == y || (isnan(x) && isnan(y));
    }
    case SCHEMA_TEXT:
        return strcmp(a, b) == 0;
    case SCHEMA_RECORD:
        return record_equal((const struct record *)a, (const struct record *)b);
    default: {
        const struct {
            uint32_t n;
            double v[SAMPLES_MAX];
        } *x = (const void *)a, *y = (const void *)b;
        return x->n == y->n && memcmp(x->v, y->v, x->n * sizeof(x->v[0])) == 0;
    }
    }
}

bool fixture_equal(const struct schema *s, const void *a, const void *b)
{
    for (size_t i = 0; i < s->n; i++) {
        size_t at = s->fields[i].offset;
        if (!field_equal(&s->fields[i], (const char *)a + at, (const char *)b + at)) {
            return false;
        }
    }
    return true;
}

int fixture_each_best(struct store *s, int (*row)(void *ctx, const struct best *b), void *ctx,
                      struct error *err)
{
    struct store_load *l;
    struct best *b = malloc(sizeof(*b));
    uint32_t n;
    int r = b ? 0 : error_set(err, ERROR_NO_MEMORY, "no memory for a best");
    r = r ? r : store_load_begin(s, &l, err);
    if (r == 0) {
        while ((r = store_load_page(l, b, 1, &n, err)) == 0 && n > 0 && !row(ctx, b)) {
        }
        store_load_end(l);
    }
    free(b);
    return r;
}

struct wanted {
    char key[HASH_HEX];
    struct best *out; /* borrowed */
    bool there;
};

static int keep_wanted(void *ctx, const struct best *b)
{
    struct wanted *w = ctx;
    if (strcmp(w->key, b->key) == 0) {
        *w->out = *b;
        w->there = true;
    }
    return 0;
}

int fixture_find_best(struct store *s, int key, struct best *out)
{
    struct wanted w = {.out = out};
    fixture_key(key, w.key);
    assert_int_equal(fixture_each_best(s, keep_wanted, &w, NULL), 0);
    return w.there ? 0 : STORE_MISS;
}
