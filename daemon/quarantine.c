/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/quarantine.h"

static void add(struct daemon *d, const char *variant, const char *key)
{
    if (barred_add(&d->barred, variant, key)) {
        d->barred_changed(d, key);
    }
}

static bool take_out(struct daemon *d, const char *variant)
{
    char key[HASH_HEX];
    bool any = false;
    while (barred_take(&d->barred, variant, key)) {
        d->barred_changed(d, key);
        any = true;
    }
    return any;
}

void quarantine_known(struct daemon *d, char (*variants)[HASH_HEX], uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        add(d, variants[i], "");
    }
}

/* ---- what the ledger has --------------------------------------------------------------------- */

struct reading {
    struct daemon *daemon; /* borrowed */
    int64_t offset;
    bool again;      /* what is not there any more, is not here either */
    uint32_t rounds; /* of the list in memory, when it began */
};

static void read_again(struct daemon *d);

/* Returns how many rows the page has. */
static size_t learn_page(struct daemon *d, const void *rows, size_t size)
{
    struct quarantine q;
    const struct wire_obj *array = NULL;
    size_t n = wire_decode(d->doc, rows, size, &array, NULL) == 0 ? wire_count(array) : 0;
    for (size_t i = 0; i < n; i++) {
        memset(&q, 0, sizeof(q));
        if (schema_decode(&quarantine_schema, SCHEMA_LENIENT, wire_at(array, i), &q, NULL) == 0) {
            add(d, q.variant, q.key);
        }
    }
    return n;
}

static void ask(struct reading *r);

/* All rows were read. */
static void end_reading(struct reading *r)
{
    struct daemon *d = r->daemon;
    char key[HASH_HEX];
    if (r->again && r->rounds != d->barred.rounds) {
        read_again(d);
        return;
    }
    while (r->again && barred_sweep(&d->barred, key)) {
        d->barred_changed(d, key);
    }
}

static void on_rows(void *ctx, int status, const void *rows, size_t n, int64_t total,
                    const struct error *err)
{
    struct reading *r = ctx;
    size_t count = status == 0 && !r->daemon->stopping ? learn_page(r->daemon, rows, n) : 0;
    if (status < 0) {
        log_warning("what is in quarantine is not known until a search begins: %s",
                    err ? err->text : error_name(status));
    }
    r->offset += (int64_t)count;
    if (count > 0 && r->offset < total) {
        ask(r);
        return;
    }
    if (status == 0 && !r->daemon->stopping) {
        end_reading(r);
    }
    free(r);
}

static void ask(struct reading *r)
{
    enum { ROWS_BYTES = 64 * 1024 };
    struct daemon *d = r->daemon;
    struct record filter;
    record_init(&filter);
    record_put_text(&filter, "class", d->device.class);
    record_put_text(&filter, "driver", d->device.driver);
    record_put_text(&filter, "sort", "id");
    record_put_int(&filter, "offset", r->offset);
    if (d->ledger->ops->list(d->ledger, LEDGER_OURS, "quarantine", &filter, ROWS_BYTES, on_rows,
                             r) < 0) {
        free(r);
    }
}

static struct reading *reading_new(struct daemon *d, bool again)
{
    struct reading *r = calloc(1, sizeof(*r));
    if (r) {
        *r = (struct reading){.daemon = d, .again = again};
    }
    return r;
}

void quarantine_read(struct daemon *d)
{
    struct reading *r = reading_new(d, false);
    if (r) {
        ask(r);
    }
}

/* Who writes the database has carried out by now what it was asked before. A row that it has only
 * in memory is none that was taken out. */
static void on_status(void *ctx, const struct ledger_status *s)
{
    struct reading *r = ctx;
    struct daemon *d = r->daemon;
    if (d->stopping) {
        free(r);
        return;
    }
    r->again = s && s->unsaved_quarantine == 0 && s->keeper_silent_ms == 0;
    if (r->again) {
        barred_unmeet(&d->barred);
        r->rounds = d->barred.rounds;
    }
    ask(r);
}

static void read_again(struct daemon *d)
{
    struct reading *r = reading_new(d, true);
    if (r && d->ledger->ops->status(d->ledger, on_status, r) < 0) {
        free(r);
    }
}

void quarantine_read_again(struct daemon *d)
{
    read_again(d);
}

/* ---- among daemons --------------------------------------------------------------------------- */

static void tell(struct daemon *d, const char *say, const char *class, const char *driver,
                 const char *variant, const char *key)
{
    WIRE_BUF_AUTO said = WIRE_BUF_NULL;
    wire_put_map(&said, 5);
    wire_put_kv_str(&said, "say", say);
    wire_put_kv_str(&said, "class", class);
    wire_put_kv_str(&said, "driver", driver);
    wire_put_kv_str(&said, "variant", variant);
    wire_put_kv_str(&said, "key", key);
    if (!said.failed && d->ledger) {
        d->ledger->ops->tell(d->ledger, &said, true);
    }
}

void quarantine_add(struct daemon *d, const struct quarantine *q)
{
    d->ledger->ops->add_quarantine(d->ledger, q);
    add(d, q->variant, q->key);
    tell(d, "barred", q->class, q->driver, q->variant, q->key);
}

bool quarantine_remove(struct daemon *d, const char *variant)
{
    bool any = take_out(d, variant); /* before it is told: this daemon hears it, too */
    tell(d, "unbarred", "", "", variant, "");
    return any;
}

void quarantine_heard(struct daemon *d, const struct wire_obj *said)
{
    char variant[HASH_HEX], key[HASH_HEX];
    const struct wire_obj *say = wire_find(said, "say");
    if (d->stopping || !wire_copy_str(wire_find(said, "variant"), variant, sizeof(variant)) ||
        !wire_copy_str(wire_find(said, "key"), key, sizeof(key))) {
        return;
    }
    if (wire_is_str(say, "unbarred")) {
        take_out(d, variant);
    } else if (wire_is_str(say, "barred") &&
               wire_is_str(wire_find(said, "class"), d->device.class) &&
               wire_is_str(wire_find(said, "driver"), d->device.driver)) {
        add(d, variant, key);
    }
}
