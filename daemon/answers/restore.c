/* SPDX-License-Identifier: Apache-2.0 */
/* Writes lost rows back to the database (learn.h). */
#include <unistd.h>

#include "daemon/answers/learn.h"
#include "daemon/base/log.h"

/* the most rows in the queue of the ledger's writer at a time, so that other writes need not wait
 * long */
enum { FLYING_MAX = 64 };

static void restore_end_pass(struct restore *x)
{
    x->running = false;
    if (x->n) {
        log_notice("the database lacked %zu keys: they are written again from memory", x->n);
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

static void restore_go_on(struct restore *x);

static void on_written(void *ctx, int status, const struct best *b, bool saved,
                       const struct error *err)
{
    struct restore *x = ctx;
    /* else the file has the row already, or the writer keeps it in memory as unsaved */
    x->n += status == 0 && saved;
    if (status < 0) {
        log_warning("a key that the database has lost is not written again: %s", err->text);
    }
    if (--x->flying == 0 && x->running && !x->daemon->stopping) {
        restore_go_on(x);
    }
}

/* Hands an entry's row to the ledger; a failure does not stop the other entries. */
static void write_again(struct restore *x, const struct cache_entry *e)
{
    struct daemon *d = x->daemon;
    struct error err = ERROR_NULL;
    int status = learned_row(d, e, &d->scratch->best, &err);
    if (status == 0) {
        d->scratch->best.uid = e->uid == CACHE_NOBODY ? (int64_t)geteuid() : (int64_t)e->uid;
        status = ledger_restore(d->ledger, &d->scratch->best, on_written, x);
        status = status < 0 ? ledger_refused(status, &err) : 0;
    }
    if (status < 0) {
        log_warning("a key that the database has lost stays only in memory: %s", err.text);
    }
    x->flying += status == 0;
}

/* Hands rows of saved entries to the ledger until `most` are being written, each entry once. */
static void write_some(struct restore *x, size_t most)
{
    const struct hash_table *keys = &x->daemon->cache.keys;
    for (size_t i = 0; i < keys->capacity && x->flying < most; i++) {
        struct cache_entry *e = keys->slots[x->at++ & (keys->capacity - 1)];
        if (e && e->saved && !e->restored) { /* the writer itself writes the unsaved entries */
            e->restored = true;
            write_again(x, e);
        }
    }
}

static void restore_go_on(struct restore *x)
{
    write_some(x, FLYING_MAX);
    if (x->flying == 0) {
        restore_end_pass(x);
    }
}

void restore_begin(struct restore *x)
{
    const struct hash_table *keys = &x->daemon->cache.keys;
    for (size_t i = 0; i < keys->capacity; i++) {
        struct cache_entry *e = keys->slots[i];
        if (e) {
            e->restored = false;
        }
    }
    x->due = false;
    x->n = x->running ? x->n : 0;
    x->running = true;
    if (x->flying == 0) {
        restore_go_on(x);
    }
}

void restore_finish(struct restore *x)
{
    if (x->running || x->due) {
        write_some(x, SIZE_MAX);
    }
}
