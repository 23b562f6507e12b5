/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the ledger: `list` (pages of any table) and `show` (all about one key). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/daemon.h"
#include "daemon/answers/learn.h"
#include "daemon/methods/methods.h"
#include "daemon/methods/pending.h"
#include "proto/limits.h"

enum { REPLY_FRAME_BYTES = 4096, ROW_BYTES = 16384, SHOW_BYTES = 2 * ROW_BYTES };

/* Elements of a packed array, from its header. */
static uint32_t array_count(const uint8_t *p, size_t n)
{
    if (n >= 1 && (p[0] & 0xf0) == 0x90) {
        return p[0] & 0x0f;
    }
    if (n >= 3 && p[0] == 0xdc) {
        return (uint32_t)p[1] << 8 | p[2];
    }
    return n >= 5 && p[0] == 0xdd
               ? (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4]
               : 0;
}

struct listing {
    struct pending pending; /* first */
    int64_t offset;
};

static void on_list(void *ctx, int status, const void *rows, size_t n, int64_t total,
                    const struct error *err)
{
    struct pending *p = ctx;
    if (status < 0) {
        pending_fail(p, err);
        return;
    }
    struct wire_buf *b = pending_result(p);
    if (b) {
        int64_t next = ((struct listing *)p)->offset + array_count(rows, n);
        wire_put_map(b, 3);
        wire_put_str(b, "rows");
        wire_put_raw(b, rows, n);
        wire_put_kv_int(b, "total", total);
        wire_put_str(b, "next");
        if (next < total && array_count(rows, n)) {
            wire_put_int(b, next);
        } else {
            wire_put_nil(b);
        }
    }
    pending_drop(p);
}

static int listing_read_filter(struct call *c, struct record *filter, struct error *err)
{
    const struct wire_obj *map = wire_find(c->params, "filter");
    record_init(filter);
    if (!map) {
        return 0;
    }
    if (wire_type_of(map) != WIRE_MAP) {
        return error_set(err, ERROR_INVALID, "'filter' must be a map of column to value");
    }
    int status = record_unpack(filter, map, err);
    return status ? error_prefix(err, "filter") : 0;
}

/* What a page takes at most. */
static size_t page_bytes(const struct record *filter)
{
    int64_t limit = record_int(filter, "limit", PAGE_ROWS_MAX);
    return limit > 0 && limit < RESPONSE_BYTES_MAX / ROW_BYTES ? (size_t)limit * ROW_BYTES
                                                               : RESPONSE_BYTES_MAX;
}

int method_list(struct call *c, struct error *err)
{
    static const char *const names[] = {"what", "filter", NULL};
    struct daemon *d = c->d;
    struct record *filter = &d->scratch->config;
    struct pending *p;
    char what[32] = "";
    int status = call_only(c, names, err);
    status = status ? status : listing_read_filter(c, filter, err);
    if (status < 0) {
        return status;
    }
    if (!wire_copy_str(wire_find(c->params, "what"), what, sizeof(what))) {
        return error_set(err, ERROR_INVALID,
                         "'what' must be one of best, history, trials, modules, quarantine, runs, "
                         "devices, events, portfolio");
    }
    status = call_later(c, sizeof(struct listing), &p, err);
    if (status < 0) {
        return status;
    }
    pending_reserve(p, page_bytes(filter));
    pending_lists(p);
    ((struct listing *)p)->offset = record_int(filter, "offset", 0);
    status = d->ledger->ops->list(d->ledger, p->uid, what, filter,
                                  RESPONSE_BYTES_MAX - REPLY_FRAME_BYTES, on_list, p);
    if (status < 0) {
        pending_drop(p);
        return error_set(err, status, "the list cannot be made now");
    }
    return METHOD_LATER;
}

/* ---- show ------------------------------------------------------------------------------------ */

/* Four lists of one key, gathered: its best, and how many trials there are in all, good, and
 * stopped early. */
struct showing {
    struct pending pending; /* first */
    char key[HASH_HEX];
    unsigned left;
    int64_t trials, ok, aborted;
    struct wire_buf best; /* owned: an array of at most one row */
    struct error error;
};

/* The key's row that is not written yet, into scratch->best, which an older one of the database
 * (or none) stands for. */
static bool find_unsaved(const struct showing *x, const struct cache_entry *e)
{
    struct daemon *d = x->pending.d;
    struct best *row = &d->scratch->best;
    const struct wire_obj *page;
    bool there = wire_decode(d->doc, x->best.data, x->best.len, &page, NULL) == 0 &&
                 wire_count(page) == 1 &&
                 schema_decode(&best_schema, SCHEMA_LENIENT, wire_at(page, 0), row, NULL) == 0;
    return learned_only(e, there ? row : NULL) && learned_row(d, e, row, NULL) == 0;
}

static void finish_show(struct showing *x)
{
    struct daemon *d = x->pending.d;
    struct problem *problem = &d->scratch->other;
    bool many;
    const struct cache_entry *e = cache_find_id(&d->cache, x->key, &many);
    bool known = array_count(x->best.data, x->best.len) > 0;
    bool unsaved = !x->error.code && find_unsaved(x, e);
    if (!x->error.code && !known && !e && !x->trials) {
        error_set(&x->error, ERROR_NOT_FOUND, "nothing is known of key %s", x->key);
    }
    struct wire_buf best = x->best;
    if (x->error.code) {
        struct error err = x->error;
        pending_fail(&x->pending, &err);
        wire_buf_deinit(&best);
        return;
    }
    struct wire_buf *b = pending_result(&x->pending);
    if (b) {
        wire_put_map(b, 6);
        wire_put_kv_str(b, "key", x->key);
        wire_put_str(b, "best");
        if (unsaved) {
            schema_encode(b, &best_schema, &d->scratch->best);
        } else if (known) {
            wire_put_raw(b, best.data + 1, best.len - 1); /* without the head of its array */
        } else {
            wire_put_nil(b);
        }
        wire_put_str(b, "problem");
        if (e && cache_problem(&d->cache, e, d->device.class, problem, NULL) == 0) {
            problem_pack(b, problem);
        } else {
            wire_put_nil(b);
        }
        wire_put_str(b, "answer");
        if (e && e->rank >= CACHE_SERVES) {
            cache_reply(e, b);
        } else {
            wire_put_nil(b);
        }
        wire_put_kv_int(b, "trials", x->trials);
        wire_put_kv_int(b, "failed", x->trials - x->ok - x->aborted);
    }
    pending_drop(&x->pending);
    wire_buf_deinit(&best);
}

static void show_part(struct showing *x, int status, const struct error *err)
{
    if (status < 0) {
        x->error = *err;
    }
    if (--x->left == 0) {
        finish_show(x);
    }
}

static void listing_on_best(void *ctx, int status, const void *rows, size_t n, int64_t total,
                            const struct error *err)
{
    struct showing *x = ctx;
    (void)total;
    wire_put_raw(&x->best, rows, n);
    show_part(x, status, err);
}

static void listing_on_trials(void *ctx, int status, const void *rows, size_t n, int64_t total,
                              const struct error *err)
{
    struct showing *x = ctx;
    (void)rows;
    (void)n;
    x->trials = total;
    show_part(x, status, err);
}

static void listing_on_ok(void *ctx, int status, const void *rows, size_t n, int64_t total,
                          const struct error *err)
{
    struct showing *x = ctx;
    (void)rows;
    (void)n;
    x->ok = total;
    show_part(x, status, err);
}

static void listing_on_aborted(void *ctx, int status, const void *rows, size_t n, int64_t total,
                               const struct error *err)
{
    struct showing *x = ctx;
    (void)rows;
    (void)n;
    x->aborted = total;
    show_part(x, status, err);
}

static void listing_ask_ledger(struct showing *x, const char *what, const char *status,
                               ledger_list_cb cb)
{
    struct daemon *d = x->pending.d;
    struct record *filter = &d->scratch->config;
    record_init(filter);
    record_put_text(filter, "key", x->key);
    record_put_int(filter, "limit", 1);
    if (status) {
        record_put_text(filter, "status", status);
    }
    x->left++;
    int failed = d->ledger->ops->list(d->ledger, x->pending.uid, what, filter,
                                      RESPONSE_BYTES_MAX / 4, cb, x);
    if (failed < 0) {
        x->left--;
        error_set(&x->error, failed, "the ledger cannot be read now");
    }
}

int method_show(struct call *c, struct error *err)
{
    static const char *const names[] = {"key", "problem", NULL};
    char key[HASH_HEX];
    struct pending *p;
    int status = call_only(c, names, err);
    status = status ? status : call_key(c, key, err);
    status = status ? status : call_later(c, sizeof(struct showing), &p, err);
    if (status < 0) {
        return status;
    }
    struct showing *x = (struct showing *)p;
    pending_lists(p);
    memcpy(x->key, key, sizeof(x->key));
    pending_reserve(p, SHOW_BYTES);
    x->left = 1; /* held until all are asked */
    listing_ask_ledger(x, "best", NULL, listing_on_best);
    listing_ask_ledger(x, "trials", NULL, listing_on_trials);
    listing_ask_ledger(x, "trials", "ok", listing_on_ok);
    listing_ask_ledger(x, "trials", "aborted", listing_on_aborted);
    if (--x->left == 0) {
        finish_show(x);
    }
    return METHOD_LATER;
}
