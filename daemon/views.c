/* SPDX-License-Identifier: Apache-2.0 */
/* What a key answered in a generation (views.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/answer.h"
#include "daemon/daemon.h"
#include "daemon/log.h"
#include "daemon/pending.h"
#include "daemon/target.h"
#include "daemon/views.h"
#include "proto/limits.h"

/* A row that serves, as an answer. */
struct view_answer {
    struct wire_buf packed; /* owned; empty: there is none */
    double atol, rtol;      /* verified with */
};

struct view_key {
    struct view_key *next;
    char id[HASH_HEX];
    struct view_answer before, after; /* the newest up to the generation; the oldest after it */
};

/* ---- life
 * ---------------------------------------------------------------------------------------- */

struct view *view_hold(struct list *views, int64_t generation)
{
    LIST_EACH(node, views)
    {
        struct view *v = LIST_OF(node, struct view, link);
        if (v->generation == generation) {
            v->holders++;
            return v;
        }
    }
    struct view *v = calloc(1, sizeof(*v));
    if (v) {
        v->generation = generation;
        v->holders = 1;
        list_append(views, &v->link);
    }
    return v;
}

static void key_free(struct view_key *k)
{
    wire_buf_deinit(&k->before.packed);
    wire_buf_deinit(&k->after.packed);
    free(k);
}

struct view *view_drop(struct view *v)
{
    if (!v || --v->holders > 0) {
        return NULL;
    }
    for (size_t i = 0; i < VIEW_SLOTS; i++) {
        for (struct view_key *k; (k = v->keys[i]);) {
            v->keys[i] = k->next;
            key_free(k);
        }
    }
    list_remove(&v->link);
    free(v);
    return NULL;
}

/* ---- finding
 * ------------------------------------------------------------------------------------- */

static size_t slot_of(const char *id)
{
    char front[3] = {id[0], id[1], 0};
    return strtoul(front, NULL, 16) % VIEW_SLOTS;
}

static struct view_key *find(const struct view *v, const char *id)
{
    for (struct view_key *k = v->keys[slot_of(id)]; k; k = k->next) {
        if (strcmp(k->id, id) == 0) {
            return k;
        }
    }
    return NULL;
}

static bool is_verified(const struct view_answer *a, const struct query *q)
{
    return a->packed.len && a->atol <= q->atol && a->rtol <= q->rtol;
}

enum view_says view_find(const struct view *v, const struct cache_entry *e, const struct query *q,
                         const struct wire_buf **answer)
{
    if (!v || !e || (e->generation && e->generation <= v->generation)) {
        return VIEW_AS_EVER;
    }
    char id[HASH_HEX];
    cache_entry_id(e, id);
    const struct view_key *k = find(v, id);
    if (!k) {
        return VIEW_UNKNOWN;
    }
    bool waits = strcmp(q->wait, "now") != 0 && strcmp(q->wait, "cached") != 0;
    const struct view_answer *a = k->before.packed.len || !waits ? &k->before : &k->after;
    *answer = &a->packed;
    return is_verified(a, q) ? VIEW_ANSWERS : VIEW_NOTHING;
}

/* Of a key that had no answer at all, the first one is its answer. */
static void forget_empty(struct view *v, const char *id)
{
    for (struct view_key **at = &v->keys[slot_of(id)]; *at; at = &(*at)->next) {
        struct view_key *k = *at;
        if (strcmp(k->id, id) == 0 && !k->before.packed.len && !k->after.packed.len) {
            *at = k->next;
            key_free(k);
            return;
        }
    }
}

void views_learned(struct list *views, const char *key)
{
    LIST_EACH(node, views)
    {
        forget_empty(LIST_OF(node, struct view, link), key);
    }
}

/* ---- reading rows
 * -------------------------------------------------------------------------------- */

struct parked {
    struct pending pending; /* first */
    struct view *view;      /* a holder */
    size_t left;            /* keys that the ledger has not told of */
    size_t len;
    uint8_t message[];
};

struct reading { /* one key's rows, page by page */
    struct parked *parked;
    struct view_key *key; /* owned until it is put into the view */
    int64_t offset;
};

static void resume(struct parked *p)
{
    struct session *s = p->pending.ticket.session;
    if (--p->left > 0) {
        return;
    }
    view_drop(p->view);
    pending_end(&p->pending);
    if (s) {
        session_again(s, p->message, p->len);
    }
    free(p);
}

static void keep(struct view_answer *a, const struct best *b, struct answer *scratch)
{
    wire_buf_clear(&a->packed);
    answer_of_best(scratch, b, true);
    schema_encode(&a->packed, &answer_schema, scratch);
    a->atol = b->atol;
    a->rtol = b->rtol;
    if (a->packed.failed) {
        wire_buf_deinit(&a->packed);
    }
}

/* Rows come in the order of their generations. */
static void learn(struct reading *r, const struct wire_obj *row)
{
    struct daemon *d = r->parked->pending.d;
    struct best *b = &d->scratch->best;
    struct view_key *k = r->key;
    struct error err = ERROR_NULL;
    int status = schema_decode(&best_schema, SCHEMA_LENIENT, row, b, &err);
    status = status ? status : problem_make(&d->scratch->learned, b->op, &b->problem, &err);
    if (status < 0) {
        log_warning("a row of key %s is not read: %s", k->id, err.text);
    } else if (target_rank(d, b, &d->scratch->learned) < CACHE_SERVES) {
        return;
    } else if (b->generation <= r->parked->view->generation) {
        keep(&k->before, b, &d->scratch->hint);
    } else if (!k->after.packed.len) {
        keep(&k->after, b, &d->scratch->hint);
    }
}

static void finish(struct reading *r)
{
    struct parked *p = r->parked;
    struct view_key *k = r->key;
    if (!find(p->view, k->id)) {
        struct view_key **slot = &p->view->keys[slot_of(k->id)];
        k->next = *slot;
        *slot = k;
    } else { /* somebody else has read it */
        key_free(k);
    }
    free(r);
    resume(p);
}

static int ask(struct reading *r);

static void on_rows(void *ctx, int status, const void *rows, size_t n, int64_t total,
                    const struct error *err)
{
    struct reading *r = ctx;
    struct daemon *d = r->parked->pending.d;
    const struct wire_obj *array = NULL;
    if (status < 0) {
        log_warning("what key %s answered before is not known: %s", r->key->id, err->text);
    }
    size_t count = 0;
    if (status == 0 && wire_decode(d->doc, rows, n, &array, NULL) == 0) {
        count = wire_count(array);
    }
    for (size_t i = 0; i < count; i++) {
        learn(r, wire_at(array, i));
    }
    r->offset += (int64_t)count;
    if (count == 0 || r->offset >= total || ask(r) < 0) {
        finish(r);
    }
}

static int ask(struct reading *r)
{
    enum { ROWS_BYTES = 256 * 1024 };
    struct daemon *d = r->parked->pending.d;
    struct record *filter = &d->scratch->config;
    record_init(filter);
    record_put_text(filter, "key", r->key->id);
    record_put_text(filter, "sort", "generation");
    record_put_int(filter, "offset", r->offset);
    return d->ledger ? d->ledger->ops->list(d->ledger, "history", filter, ROWS_BYTES, on_rows, r)
                     : ERROR_SHUTTING_DOWN;
}

static void read_key(struct parked *p, const char *id)
{
    struct reading *r = calloc(1, sizeof(*r));
    struct view_key *k = calloc(1, sizeof(*k));
    if (!r || !k) {
        free(r);
        free(k);
        resume(p);
        return;
    }
    r->parked = p;
    r->key = k;
    memcpy(k->id, id, sizeof(k->id));
    if (ask(r) < 0) {
        finish(r);
    }
}

int view_park(struct call *c, char (*keys)[HASH_HEX], size_t n, struct error *err)
{
    struct pending *pending;
    int status = call_later(c, sizeof(struct parked) + c->len, &pending, err);
    if (status < 0) {
        return status;
    }
    struct parked *p = (struct parked *)pending;
    p->view = c->s->view;
    p->view->holders++;
    p->left = n + 1; /* held until all are asked for */
    p->len = c->len;
    memcpy(p->message, c->data, c->len);
    for (size_t i = 0; i < n; i++) {
        read_key(p, keys[i]);
    }
    resume(p);
    return METHOD_LATER;
}
