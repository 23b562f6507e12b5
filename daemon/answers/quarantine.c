/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "daemon/answers/learn.h"
#include "daemon/base/log.h"

static void quarantine_add_variant(struct daemon *d, const char *variant, const char *key,
                                   bool saved)
{
    if (quarantine_set_add(&d->quarantine_set, variant, key, saved)) {
        d->quarantine_changed(d, key);
    }
}

void quarantine_known(struct daemon *d, char (*variants)[HASH_HEX], uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        quarantine_add_variant(d, variants[i], "", true);
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

struct reading {           /* reads all rows; at most one reading runs */
    struct daemon *daemon; /* borrowed */
    int64_t offset;
    struct quarantine_set rows; /* owned */
};

/* Returns how many rows the page has. */
static size_t quarantine_learn_page(struct reading *r, const void *rows, size_t size)
{
    struct quarantine q;
    const struct wire_obj *array = NULL;
    size_t n = wire_decode(r->daemon->doc, rows, size, &array, NULL) == 0 ? wire_count(array) : 0;
    for (size_t i = 0; i < n; i++) {
        memset(&q, 0, sizeof(q));
        if (schema_decode(&quarantine_schema, SCHEMA_LENIENT, wire_at(array, i), &q, NULL) == 0) {
            quarantine_set_add(&r->rows, q.variant, q.key, true);
        }
    }
    return n;
}

static void quarantine_ask_page(struct reading *r);

/* Reports the keys of entries that `here` has and `other` lacks. */
static void quarantine_tell_changes(struct daemon *d, const struct quarantine_set *here,
                                    const struct quarantine_set *other)
{
    for (uint32_t i = 0; i < here->n; i++) {
        if (!quarantine_set_has(other, here->all[i].variant, here->all[i].key)) {
            d->quarantine_changed(d, here->all[i].key);
        }
    }
}

/* Replaces the list by the rows and the unsaved entries. */
static void quarantine_replace(struct daemon *d, struct quarantine_set *rows)
{
    struct quarantine_set before = d->quarantine_set;
    for (uint32_t i = 0; i < before.n; i++) {
        if (!before.all[i].saved) {
            quarantine_set_add(rows, before.all[i].variant, before.all[i].key, false);
        }
    }
    d->quarantine_set = *rows;
    *rows = (struct quarantine_set){0};
    quarantine_tell_changes(d, &before, &d->quarantine_set);
    quarantine_tell_changes(d, &d->quarantine_set, &before);
    quarantine_set_deinit(&before);
}

/* `all`: every row was read. */
static void end_reading(struct reading *r, bool all)
{
    struct daemon *d = r->daemon;
    d->quarantine_reads = false;
    if (!d->stopping && d->quarantine_again) {
        quarantine_read(d);
    } else if (!d->stopping && all) {
        quarantine_replace(d, &r->rows);
    }
    quarantine_set_deinit(&r->rows);
    free(r);
}

static void quarantine_on_rows(void *ctx, int status, const void *rows, size_t n, int64_t total,
                               const struct error *err)
{
    struct reading *r = ctx;
    size_t count = status == 0 && !r->daemon->stopping ? quarantine_learn_page(r, rows, n) : 0;
    if (status < 0) {
        log_warning("what is in quarantine is not known until a search begins: %s",
                    err ? err->text : error_name(status));
    }
    r->offset += (int64_t)count;
    if (count > 0 && r->offset < total) {
        quarantine_ask_page(r);
    } else {
        end_reading(r, status == 0);
    }
}

static void quarantine_ask_page(struct reading *r)
{
    enum { ROWS_BYTES = 64 * 1024 };
    struct daemon *d = r->daemon;
    struct record filter;
    record_init(&filter);
    record_put_text(&filter, "class", d->device.class);
    record_put_text(&filter, "driver", d->device.driver);
    record_put_text(&filter, "sort", "id");
    record_put_int(&filter, "offset", r->offset);
    if (d->ledger->ops->list(d->ledger, LEDGER_OURS, "quarantine", &filter, ROWS_BYTES,
                             quarantine_on_rows, r) < 0) {
        end_reading(r, false);
    }
}

/* The writer has carried out all earlier requests by now. */
static void quarantine_on_status(void *ctx, const struct ledger_status *ignored)
{
    struct reading *r = ctx;
    (void)ignored;
    quarantine_ask_page(r);
}

void quarantine_read(struct daemon *d)
{
    struct reading *r = d->quarantine_reads ? NULL : calloc(1, sizeof(*r));
    d->quarantine_again = d->quarantine_reads;
    if (!r) {
        return;
    }
    *r = (struct reading){.daemon = d};
    d->quarantine_reads = true;
    if (d->ledger->ops->status(d->ledger, quarantine_on_status, r) < 0) {
        quarantine_on_status(r, NULL);
    }
}

/* ---- changes --------------------------------------------------------------------------------- */

void quarantine_add(struct daemon *d, const struct quarantine *q)
{
    d->ledger->ops->add_quarantine(d->ledger, q);
    quarantine_add_variant(d, q->variant, q->key, false);
    quarantine_read(d); /* check that the row was written */
}

bool quarantine_remove(struct daemon *d, const char *variant)
{
    char key[HASH_HEX];
    bool any = false;
    while (quarantine_set_take(&d->quarantine_set, variant, key)) {
        d->quarantine_changed(d, key);
        any = true;
    }
    d->quarantine_again = d->quarantine_again || d->quarantine_reads; /* may still hold it */
    return any;
}
