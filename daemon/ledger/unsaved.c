/* SPDX-License-Identifier: Apache-2.0 */
/* Bests and rows of quarantine that are in memory only (inner.h). */
#include <stdlib.h>
#include <string.h>

#include "daemon/ledger/inner.h"

static void unsaved_forget_row(struct ledger *l, struct unsaved **at)
{
    struct unsaved *u = *at;
    *at = u->next;
    if (l->unsaved_last == &u->next) {
        l->unsaved_last = at;
    }
    wire_buf_deinit(&u->row);
    free(u);
    l->n_unsaved--;
}

/* Limits the imported bests of a key to the number that the store would keep (store_offer). */
static void unsaved_trim_key(struct ledger *l, const char *key)
{
    struct unsaved **oldest = NULL;
    int n = 0;
    for (struct unsaved **at = &l->unsaved; *at; at = &(*at)->next) {
        if ((*at)->imported && strcmp((*at)->key, key) == 0) {
            oldest = oldest ? oldest : at;
            n++;
        }
    }
    if (n > STORE_IMPORTED_PER_KEY) {
        unsaved_forget_row(l, oldest);
    }
}

void unsaved_keep(struct ledger *l, struct request *r)
{
    struct best *b = &l->object->best;
    struct error ignored;
    struct unsaved *u = calloc(1, sizeof(*u));
    int status = u ? writer_decode(l, &r->row, &best_schema, l->object, &ignored) : ERROR_NO_MEMORY;
    if (status == 0 && r->verb == &verb_publish) {
        b->generation = 0;
        wire_buf_clear(&r->row);
        schema_encode(&r->row, &best_schema, b);
        status = r->row.failed ? ERROR_NO_MEMORY : 0;
    }
    if (status || (wire_put_raw(&u->row, r->row.data, r->row.len), u->row.failed)) {
        writer_notice(l, "lost", "a best could not be saved, nor kept in memory: %s", r->err->text);
        if (u) {
            wire_buf_deinit(&u->row);
        }
        free(u);
        return;
    }
    memcpy(u->key, b->key, sizeof(u->key));
    u->generation = b->generation;
    u->known = r->argument;
    u->imported = best_is_brought(b);
    *l->unsaved_last = u;
    l->unsaved_last = &u->next;
    l->n_unsaved++;
    if (u->imported) {
        unsaved_trim_key(l, u->key);
    }
}

const struct unsaved *unsaved_newest(const struct ledger *l, const char *key)
{
    const struct unsaved *newest = NULL;
    for (const struct unsaved *u = l->unsaved; u; u = u->next) {
        newest = strcmp(u->key, key) == 0 ? u : newest;
    }
    return newest;
}

int64_t unsaved_drop(struct ledger *l, const char *key)
{
    int64_t n = 0;
    struct unsaved **at = &l->unsaved;
    while (*at && !(key == NULL && n == 1)) {
        struct unsaved *u = *at;
        if (key && strcmp(u->key, key) != 0) {
            at = &u->next;
            continue;
        }
        unsaved_forget_row(l, at);
        n++;
    }
    return n;
}

void unsaved_keep_quarantine(struct ledger *l, struct request *r)
{
    struct request *kept = request_new(r->verb, NULL, NO_TEXT);
    if (!kept) {
        writer_notice(l, "lost", "a row of quarantine could not be saved, nor kept in memory: %s",
                      r->err->text);
        return;
    }
    kept->row = r->row;
    r->row = WIRE_BUF_NULL;
    queue_push(&l->quarantined, kept);
}

int64_t unsaved_drop_quarantine(struct ledger *l, const char *variant)
{
    int64_t n = 0;
    struct error ignored;
    struct queue all;
    queue_init(&all);
    queue_move(&all, &l->quarantined);
    for (struct request *r; (r = queue_pop(&all));) {
        bool goes =
            !variant || (writer_decode(l, &r->row, &quarantine_schema, l->object, &ignored) == 0 &&
                         strcmp(l->object->quarantine.variant, variant) == 0);
        if (goes) {
            request_free(r);
            n++;
        } else {
            queue_push(&l->quarantined, r);
        }
    }
    return n;
}

int64_t unsaved_count_quarantine(const struct ledger *l)
{
    int64_t n = 0;
    for (const struct request *r = l->quarantined.first; r; r = r->next) {
        n++;
    }
    return n;
}

bool unsaved_any(const struct ledger *l)
{
    return l->unsaved || l->quarantined.first;
}

/* Tells the loop that the first best is saved, and its generation. */
static void tell_first(struct ledger *l)
{
    struct best *b = &l->object->best;
    struct request *r = request_new(&verb_saved, NULL, NO_TEXT);
    for (struct unsaved *u = l->unsaved->next; u; u = u->next) {
        if (strcmp(u->key, b->key) == 0 && u->known < b->generation) {
            u->known = b->generation; /* the caller of u knew this best */
        }
    }
    if (r) {
        schema_encode(&r->row, &best_schema, b);
        ledger_respond(l, r);
    }
}

static int save_first(struct ledger *l, struct error *err)
{
    const struct unsaved *u = l->unsaved;
    struct best *b = &l->object->best;
    int r = writer_decode(l, &u->row, &best_schema, l->object, err);
    if (r == 0 && u->generation) {
        return store_publish_again(l->store, b, err);
    }
    b->generation = u->known;
    return r ? r : store_offer(l->store, b, err);
}

static int save_bests(struct ledger *l, struct error *err)
{
    while (l->unsaved) {
        int r = save_first(l, err);
        if (r == ERROR_CONFLICT) { /* another best has replaced this best */
            writer_notice(l, "lost", "a best was never saved: %s", err->text);
            unsaved_drop(l, NULL);
            continue;
        }
        writer_note_disk(l, r, err->text);
        if (r < 0) {
            return r;
        }
        l->dirty = true;
        tell_first(l);
        unsaved_drop(l, NULL);
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
