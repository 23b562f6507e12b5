/* SPDX-License-Identifier: Apache-2.0 */
/* Bests and rows of quarantine that are in memory only (inner.h). */
#include <string.h>

#include "daemon/ledger/inner.h"

/* Keeps a copy of the request's row, with the texts of inner.h: text[0] is the row's name. `text`
 * NULL: the row cannot be decoded, so it is lost. */
static struct request *unsaved_push(struct ledger *l, struct queue *q, const struct request *r,
                                    const char *const text[4])
{
    struct request *kept = text ? request_new(r->verb, NULL, text) : NULL;
    if (kept) {
        kept->argument = r->argument;
        wire_put_raw(&kept->row, r->row.data, r->row.len);
    }
    if (!kept || kept->row.failed) {
        writer_notice(l, "lost", "a row of table %s could not be saved, nor kept in memory: %s",
                      r->verb->row->name, r->err->text);
        request_free(kept);
        return NULL;
    }
    queue_push(q, kept);
    return kept;
}

/* Drops the oldest unsaved best of a key that clients have brought, beyond the number that the
 * store would keep (store_offer). */
static void unsaved_trim_key(struct ledger *l, const char *key)
{
    struct request **oldest = NULL;
    int n = 0;
    for (struct request **at = &l->unsaved.first; *at; at = &(*at)->next) {
        if ((*at)->text[1][0] && strcmp((*at)->text[0], key) == 0) {
            oldest = oldest ? oldest : at;
            n++;
        }
    }
    if (n > STORE_IMPORTED_PER_KEY) {
        request_free(queue_remove(&l->unsaved, oldest));
    }
}

void unsaved_keep(struct ledger *l, struct request *r)
{
    struct best *b = &l->object->best;
    struct error ignored;
    int status = writer_decode(l, &r->row, &best_schema, l->object, &ignored);
    if (status == 0 && r->verb == &verb_publish) {
        b->generation = 0;
        wire_buf_clear(&r->row);
        schema_encode(&r->row, &best_schema, b);
        status = r->row.failed ? ERROR_NO_MEMORY : 0;
    }
    bool brought = status == 0 && best_is_brought(b);
    if (unsaved_push(l, &l->unsaved, r, status ? NULL : TEXTS(b->key, brought ? "brought" : "")) &&
        brought) {
        unsaved_trim_key(l, b->key);
    }
}

const struct request *unsaved_newest(const struct ledger *l, const char *key)
{
    const struct request *newest = NULL;
    for (const struct request *u = l->unsaved.first; u; u = u->next) {
        newest = strcmp(u->text[0], key) == 0 ? u : newest;
    }
    return newest;
}

void unsaved_keep_quarantine(struct ledger *l, struct request *r)
{
    struct error ignored;
    int status = writer_decode(l, &r->row, &quarantine_schema, l->object, &ignored);
    unsaved_push(l, &l->quarantined, r, status ? NULL : TEXTS(l->object->quarantine.variant));
}

bool unsaved_any(const struct ledger *l)
{
    return l->unsaved.first || l->quarantined.first;
}

/* Tells the loop that the first best of the queue is saved, and the generation that it got. */
static void tell_first(struct ledger *l)
{
    struct best *b = &l->object->best;
    struct request *r = request_new(&verb_saved, NULL, NO_TEXT);
    for (struct request *u = l->unsaved.first->next; u; u = u->next) {
        if (strcmp(u->text[0], b->key) == 0 && u->argument < b->generation) {
            u->argument = b->generation; /* the caller of u knew this best: u may replace it */
        }
    }
    if (r) {
        schema_encode(&r->row, &best_schema, b);
        ledger_respond(l, r);
    }
}

static int save_first(struct ledger *l, struct error *err)
{
    const struct request *u = l->unsaved.first;
    struct best *b = &l->object->best;
    int r = writer_decode(l, &u->row, &best_schema, l->object, err);
    if (r == 0 && u->verb == &verb_restore) {
        return store_publish_again(l->store, b, err);
    }
    b->generation = u->argument;
    return r ? r : store_offer(l->store, b, err);
}

static int save_bests(struct ledger *l, struct error *err)
{
    while (l->unsaved.first) {
        int r = save_first(l, err);
        if (r == ERROR_CONFLICT) { /* the file has a newer best, which this best may not replace */
            writer_notice(l, "lost", "a best was never saved: %s", err->text);
            request_free(queue_pop(&l->unsaved));
            continue;
        }
        writer_note_disk(l, r, err->text);
        if (r < 0) {
            return r;
        }
        l->dirty = true;
        tell_first(l);
        request_free(queue_pop(&l->unsaved));
    }
    return 0;
}

static int save_quarantine(struct ledger *l, struct error *err)
{
    while (l->quarantined.first) {
        int r = writer_decode(l, &l->quarantined.first->row, &quarantine_schema, l->object, err);
        r = r ? r : store_add_quarantine(l->store, &l->object->quarantine, err);
        writer_note_disk(l, r, err->text);
        if (writer_fault_of_store(r)) {
            return r;
        }
        if (r < 0) {
            writer_notice(l, "lost", "a row of quarantine was never saved: %s", err->text);
        }
        verbs_respond_news(l, NEWS_QUARANTINE, ""); /* the loop's entry is unsaved */
        l->dirty = true;
        request_free(queue_pop(&l->quarantined));
    }
    return 0;
}

int unsaved_save(struct ledger *l, struct error *err)
{
    int r = save_bests(l, err);
    return r ? r : save_quarantine(l, err);
}
