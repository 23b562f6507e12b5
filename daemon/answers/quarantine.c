/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

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

struct reading {              /* a reading of all rows from the ledger; at most one runs */
    struct learn_pages pages; /* first member: its address is the struct's */
    struct quarantine_set rows, doubts; /* owned */
};

static void quarantine_filter(struct learn_pages *x, struct record *filter)
{
    record_put_text(filter, "class", x->daemon->device.class);
    record_put_text(filter, "driver", x->daemon->device.driver);
    record_put_text(filter, "sort", "id");
}

static int quarantine_learn_row(struct learn_pages *x, const struct wire_obj *row)
{
    struct quarantine q = {0};
    if (schema_decode(&quarantine_schema, SCHEMA_LENIENT, row, &q, NULL) == 0) {
        struct reading *r = (struct reading *)x;
        quarantine_set_add(q.deaths > 0 ? &r->rows : &r->doubts, q.variant, q.key, true);
    }
    return 0;
}

/* Calls quarantine_changed for the key of each entry that `here` has and `other` lacks. */
static void quarantine_tell_changes(struct daemon *d, const struct quarantine_set *here,
                                    const struct quarantine_set *other)
{
    for (uint32_t i = 0; i < here->n; i++) {
        if (!quarantine_set_has(other, here->all[i].variant, here->all[i].key)) {
            d->quarantine_changed(d, here->all[i].key);
        }
    }
}

/* Replaces the daemon's list by the rows that were read and its own entries that are not saved
 * yet. */
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

static void quarantine_end_reading(struct learn_pages *x, int status, const struct error *err)
{
    struct daemon *d = x->daemon;
    struct reading *r = (struct reading *)x;
    d->quarantine_reads = false;
    if (status < 0 && !d->stopping) {
        log_warning("the quarantine could not be read; the next search reads it again: %s",
                    err->text);
    }
    if (!d->stopping && d->quarantine_again) {
        quarantine_read(d);
    } else if (status == 0) {
        quarantine_replace(d, &r->rows);
        quarantine_set_deinit(&d->doubts);
        d->doubts = r->doubts;
        r->doubts = (struct quarantine_set){0};
    }
    quarantine_set_deinit(&r->rows);
    quarantine_set_deinit(&r->doubts);
    free(r);
}

/* The ledger's status has come, so its writer thread has carried out all earlier requests, and the
 * list that is read now has the rows that these wrote. */
static void quarantine_on_status(void *ctx, const struct ledger_status *ignored)
{
    learn_pages(ctx);
}

void quarantine_read(struct daemon *d)
{
    struct reading *r = d->quarantine_reads ? NULL : calloc(1, sizeof(*r));
    d->quarantine_again = d->quarantine_reads;
    if (!r) {
        return;
    }
    r->pages = (struct learn_pages){.daemon = d,
                                    .what = "quarantine",
                                    .uid = LEDGER_OURS,
                                    .filter = quarantine_filter,
                                    .row = quarantine_learn_row,
                                    .end = quarantine_end_reading};
    d->quarantine_reads = true;
    if (ledger_status(d->ledger, quarantine_on_status, &r->pages) < 0) {
        learn_pages(&r->pages);
    }
}

/* ---- changes --------------------------------------------------------------------------------- */

void quarantine_add(struct daemon *d, const struct quarantine *q)
{
    ledger_add_quarantine(d->ledger, q);
    quarantine_add_variant(d, q->variant, q->key, false);
    quarantine_read(d); /* marks the entry as saved when its row is read */
}

bool quarantine_remove(struct daemon *d, const char *variant)
{
    char key[HASH_HEX];
    bool any = false;
    while (quarantine_set_take(&d->quarantine_set, variant, key)) {
        d->quarantine_changed(d, key);
        any = true;
    }
    /* a running reading may still have the variant: read once more */
    d->quarantine_again = d->quarantine_again || d->quarantine_reads;
    return any;
}
