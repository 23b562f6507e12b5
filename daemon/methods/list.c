/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the ledger: `list` (pages of any table) and `show` (all about a key). */
#include <string.h>

#include "daemon/daemon.h"
#include "daemon/answers/learn.h"
#include "daemon/methods/daemon_parts.h"
#include "daemon/methods/methods.h"
#include "daemon/methods/pending.h"
#include "proto/limits.h"
#include "proto/span.h"

enum { REPLY_FRAME_BYTES = 4096, ROW_BYTES = 16384, SHOW_BYTES = 2 * ROW_BYTES };

struct paging {
    struct listing listing; /* first member: its address is the struct's */
    int64_t offset;
};

static void list_put_page(struct listing *l, struct wire_buf *b)
{
    const struct part *page = &l->parts[LISTED_PAGE];
    size_t n = 0;
    span_array(page->rows.data, page->rows.len, &n);
    const int64_t next = ((struct paging *)l)->offset + (int64_t)n;
    wire_put_map(b, 3);
    wire_put_str(b, "rows");
    wire_put_raw(b, page->rows.data, page->rows.len);
    wire_put_kv_int(b, "total", page->total);
    call_put_int(b, "next", next < page->total && n, next);
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

static size_t page_bytes(const struct record *filter)
{
    int64_t limit = record_int(filter, "limit", PAGE_ROWS_MAX);
    return limit > 0 && limit < RESPONSE_BYTES_MAX / ROW_BYTES ? (size_t)limit * ROW_BYTES
                                                               : RESPONSE_BYTES_MAX;
}

int method_list(struct call *c, struct error *err)
{
    struct daemon *d = c->d;
    struct record *filter = &d->scratch->config;
    char what[32] = "";
    int status = listing_read_filter(c, filter, err);
    if (status < 0) {
        return status;
    }
    if (!wire_copy_str(wire_find(c->params, "what"), what, sizeof(what))) {
        return error_set(err, ERROR_INVALID,
                         "'what' must be one of best, history, trials, modules, quarantine, runs, "
                         "devices, events, jobs, served, portfolio, fleet, fleet_rows");
    }
    if (strcmp(what, "jobs") == 0 || strcmp(what, "served") == 0) {
        served_send(c->parts); /* a list shows the writes that were sent before it */
    }
    struct paging *x = listing_begin(c, sizeof(*x), page_bytes(filter), err);
    if (!x) {
        return err->code;
    }
    x->listing.put = list_put_page;
    x->offset = record_int(filter, "offset", 0);
    listing_ask(&x->listing, LISTED_PAGE, what, filter, RESPONSE_BYTES_MAX - REPLY_FRAME_BYTES);
    return listing_wait(&x->listing);
}

/* ---- show ------------------------------------------------------------------------------------ */

struct showing {
    struct listing listing; /* first member: its address is the struct's */
    char key[HASH_HEX];
};

static const struct cache_entry *show_find_entry(const struct listing *l)
{
    return cache_find_id(&l->pending.d->cache, ((const struct showing *)l)->key, NULL);
}

static void show_on_listed(struct listing *l, enum listed part)
{
    const char *key = ((struct showing *)l)->key;
    if (part == LISTED_ALL && !show_find_entry(l) && !l->parts[LISTED_BEST].total &&
        !l->parts[LISTED_TRIALS].total) {
        error_set(&l->error, ERROR_NOT_FOUND, "nothing is known of key %s", key);
    }
}

/* Puts the key's newest row: a row in memory that the database does not have yet, else the
 * database's. */
static void show_put_best(struct listing *l, struct wire_buf *b, const struct cache_entry *e)
{
    struct daemon *d = l->pending.d;
    struct best *row = &d->scratch->best;
    const struct wire_buf *rows = &l->parts[LISTED_BEST].rows;
    size_t n = 0;
    bool there = listing_read_row(l, LISTED_BEST, &best_schema, row);
    if (learned_only(e, there ? row : NULL) && learned_row(d, e, row, NULL) == 0) {
        schema_encode(b, &best_schema, row);
    } else if (span_array(rows->data, rows->len, &n) && n > 0) {
        /* the only row of the list as it was read, without the head of the array, which is one
         * byte */
        wire_put_raw(b, rows->data + 1, rows->len - 1);
    } else {
        wire_put_nil(b);
    }
}

static void show_put_result(struct listing *l, struct wire_buf *b)
{
    const struct cache_entry *e = show_find_entry(l);
    wire_put_map(b, 6);
    wire_put_kv_str(b, "key", ((struct showing *)l)->key);
    wire_put_str(b, "best");
    show_put_best(l, b, e);
    call_put_problem(b, l->pending.d, e);
    wire_put_str(b, "answer");
    if (e && e->rank >= CACHE_SERVES) {
        cache_reply(e, b);
    } else {
        wire_put_nil(b);
    }
    listing_put_counts(l, b);
}

int method_show(struct call *c, struct error *err)
{
    char key[HASH_HEX];
    int status = call_key(c, key, err);
    struct showing *x = status ? NULL : listing_begin(c, sizeof(*x), SHOW_BYTES, err);
    if (!x) {
        return err->code;
    }
    struct listing *l = &x->listing;
    l->listed = show_on_listed;
    l->put = show_put_result;
    memcpy(x->key, key, sizeof(key));
    listing_ask_row(l, LISTED_BEST, "best", "key", VALUE_OF_TEXT(key));
    listing_ask_counts(l, key);
    return listing_wait(l);
}
