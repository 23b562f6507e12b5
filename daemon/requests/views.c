/* SPDX-License-Identifier: Apache-2.0 */
/* What a key answered in a generation (views.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/answers/daemon.h"
#include "daemon/answers/target.h"
#include "daemon/base/log.h"
#include "daemon/cache/answer.h"
#include "daemon/requests/pending.h"
#include "daemon/requests/views.h"
#include "proto/limits.h"

/* A row that serves, as an answer. */
struct view_answer {
    struct view_answer *next;
    int64_t generation;
    float atol, rtol;       /* verified with */
    struct wire_buf packed; /* owned */
};

struct view_key {
    struct view_key *next;
    char id[HASH_HEX];
    struct view_answer *before; /* the newest up to the generation; NULL: there is none */
    struct view_answer *after;  /* those after it, oldest first; each is for tighter tolerances */
    bool cut;                   /* there are more of these, which are read when one is asked for */
    bool lost;                  /* and the ledger cannot tell of all of them yet: not */
    int64_t lost_until;         /* before it has this one */
    struct account *account;    /* a holder: the view's */
    size_t charged;             /* to it */
};

/* ---- life ------------------------------------------------------------------------------------ */

struct view *view_hold(struct list *views, int64_t generation, struct account *account)
{
    LIST_EACH(node, views) {
        struct view *v = LIST_OF(node, struct view, link);
        if (v->generation == generation && v->account == account) {
            v->holders++;
            return v;
        }
    }
    struct view *v = calloc(1, sizeof(*v));
    if (v) {
        v->generation = generation;
        v->account = account_hold(account);
        v->holders = 1;
        list_append(views, &v->link);
    }
    return v;
}

static struct view_answer *answer_free(struct view_answer *a)
{
    if (a) {
        wire_buf_deinit(&a->packed);
        free(a);
    }
    return NULL;
}

static size_t answer_bytes(const struct view_answer *a)
{
    size_t bytes = 0;
    for (; a; a = a->next) {
        bytes += sizeof(*a) + a->packed.cap;
    }
    return bytes;
}

static void charge(struct view_key *k)
{
    size_t bytes = sizeof(*k) + answer_bytes(k->before) + answer_bytes(k->after);
    account_charge(k->account, ACCOUNT_PINNED, &k->charged, bytes);
}

static void key_free(struct view_key *k)
{
    if (!k) {
        return;
    }
    account_charge(k->account, ACCOUNT_PINNED, &k->charged, 0);
    account_drop(k->account);
    answer_free(k->before);
    for (struct view_answer *a; (a = k->after);) {
        k->after = a->next;
        answer_free(a);
    }
    free(k);
}

static void forget_keys(struct view *v)
{
    for (size_t i = 0; i < VIEW_SLOTS; i++) {
        for (struct view_key *k; (k = v->keys[i]);) {
            v->keys[i] = k->next;
            key_free(k);
        }
    }
}

struct view *view_drop(struct view *v)
{
    if (!v || --v->holders > 0) {
        return NULL;
    }
    forget_keys(v);
    account_drop(v->account);
    list_remove(&v->link);
    free(v);
    return NULL;
}

/* ---- finding --------------------------------------------------------------------------------- */

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

static bool is_verified(const struct view_answer *a, double atol, double rtol)
{
    return a->atol <= (float)atol && a->rtol <= (float)rtol;
}

static const struct view_answer *first_verified(const struct view_answer *a, double atol,
                                                double rtol)
{
    while (a && !is_verified(a, atol, rtol)) {
        a = a->next;
    }
    return a;
}

const char view_since[] = "tuned after the generation that this connection is pinned to";

static enum view_says look(const struct view *v, const struct cache_entry *e, const struct query *q,
                           const struct view_answer **answer)
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
    const struct view_answer *a = first_verified(k->before, q->atol, q->rtol);
    bool waits = strcmp(q->wait, "now") != 0 && strcmp(q->wait, "cached") != 0 && !q->deadline_ms;
    if (!a && waits) {
        a = first_verified(k->after, q->atol, q->rtol);
    }
    if (!a && (k->lost || (waits && k->cut))) {
        return VIEW_UNKNOWN;
    }
    *answer = a;
    return a ? VIEW_ANSWERS : VIEW_NOTHING;
}

enum view_says view_find(const struct view *v, const struct cache_entry *e, const struct query *q,
                         const struct wire_buf **answer)
{
    const struct view_answer *a = NULL;
    enum view_says says = look(v, e, q, &a);
    *answer = a ? &a->packed : NULL;
    return says;
}

/* When what it answers came: 0: in the view's generation or before; INT64_MAX: it has none. One
 * that the ledger is to be asked of is as good as one that has: then it is known. */
static int64_t came(const struct view *v, const struct cache_entry *e, const struct query *q)
{
    const struct view_answer *a = NULL;
    switch (look(v, e, q, &a)) {
    case VIEW_NOTHING:
        return INT64_MAX;
    case VIEW_ANSWERS:
        return a->generation <= v->generation ? 0 : a->generation;
    default:
        return 0;
    }
}

int view_key(const struct view *v, struct daemon *d, int64_t uid, struct error *err)
{
    struct scratch *x = d->scratch;
    struct record *fields = &x->request.problem.fields;
    struct value user;
    bool named = record_get(fields, CUSTOM_USER, &user);
    int status = custom_key(d, uid, CUSTOM_READ, err);
    if (status < 0 || !v || named || !custom_is(&x->request.problem)) {
        return status;
    }
    const struct cache_entry *own = cache_find(&d->cache, &x->key);
    if (!own || !custom_share(&x->request.problem)) {
        return 0;
    }
    status = daemon_key(d, err);
    const struct cache_entry *shared = status == 0 ? cache_find(&d->cache, &x->key) : NULL;
    const struct query *q = &x->request.query;
    if (status < 0 || (shared && came(v, shared, q) < came(v, own, q))) {
        return status;
    }
    status = record_set(fields, CUSTOM_USER, VALUE_OF_INT(uid), err);
    return status ? status : daemon_key(d, err);
}

/* ---- answers of a key ------------------------------------------------------------------------ */

/* In its place among the others of its key; else it is freed. */
static void put_answer(const struct view *v, struct view_key *k, struct view_answer *a)
{
    struct view_answer **at = &k->after;
    if (a->generation <= v->generation) {
        if (k->before && k->before->generation >= a->generation) {
            answer_free(a);
        } else {
            answer_free(k->before);
            k->before = a;
        }
        return;
    }
    while (*at && (*at)->generation < a->generation && !is_verified(*at, a->atol, a->rtol)) {
        at = &(*at)->next;
    }
    if (*at) { /* what is there is the older one, and does for all that this one does for */
        answer_free(a);
    } else {
        *at = a;
    }
}

/* NULL: no memory for it. */
static struct view_answer *answer_new(int64_t generation, double atol, double rtol)
{
    struct view_answer *a = calloc(1, sizeof(*a));
    if (a) {
        a->generation = generation;
        a->atol = (float)atol;
        a->rtol = (float)rtol;
    }
    return a;
}

/* False: no memory for it. */
static bool put_best(const struct view *v, struct view_key *k, const struct best *b, bool saved,
                     struct answer *scratch)
{
    struct view_answer *a = answer_new(b->generation, b->atol, b->rtol);
    if (!a) {
        return false;
    }
    answer_of_best(scratch, b, saved);
    schema_encode(&a->packed, &answer_schema, scratch);
    if (a->packed.failed) {
        answer_free(a);
        return false;
    }
    put_answer(v, k, a);
    return true;
}

/* False: no memory for it. */
static bool put_entry(const struct view *v, struct view_key *k, const struct cache_entry *e)
{
    struct view_answer *a = answer_new(e->generation, e->atol, e->rtol);
    if (!a) {
        return false;
    }
    cache_reply(e, &a->packed);
    if (a->packed.failed) {
        answer_free(a);
        return false;
    }
    put_answer(v, k, a);
    return true;
}

static struct view_key *key_new(const char *id, struct account *account)
{
    struct view_key *k = calloc(1, sizeof(*k));
    if (k) {
        snprintf(k->id, sizeof(k->id), "%s", id);
        k->account = account_hold(account);
    }
    return k;
}

static void put_key(struct view *v, struct view_key *k)
{
    struct view_key **slot = &v->keys[slot_of(k->id)];
    k->next = *slot;
    *slot = k;
    charge(k);
}

static void forget(struct view *v, const char *id)
{
    for (struct view_key **at = &v->keys[slot_of(id)], *k; (k = *at);) {
        if (strcmp(k->id, id) == 0) {
            *at = k->next;
            key_free(k);
        } else {
            at = &k->next;
        }
    }
}

static bool has_room(const struct account *a)
{
    struct error full;
    return account_check_pinned(a, &full) == 0;
}

/* What the key answered so far, while the cache still has it. NULL: the ledger can tell, or will be
 * able to when the rows are saved: until then the view is `lost`. */
static struct view_key *begin_key(struct view *v, const struct cache_entry *e, const char *id)
{
    bool usable =
        !e || (e->generation && e->generation <= v->generation && e->rank >= CACHE_SERVES);
    if (!usable) {
        return NULL;
    }
    struct view_key *k = has_room(v->account) ? key_new(id, v->account) : NULL;
    if (k && e && !put_entry(v, k, e)) {
        key_free(k);
        k = NULL;
    }
    if (k) {
        put_key(v, k);
    } else {
        v->lost = true;
    }
    return k;
}

/* Its newest row is saved, and an older one is not, and is not here either: that the newest is
 * there no longer says that all are. */
static void lose_key(struct view *v, struct view_key *k, const char *id, int64_t missing)
{
    if (k ? !k->cut : !v->lost) {
        return;
    }
    if (!k && (k = key_new(id, v->account))) {
        put_key(v, k);
    }
    if (k) {
        k->cut = k->lost = true;
        k->lost_until = missing;
    }
}

/* Whether what the key answered is neither here nor, for now, in the ledger. What is saved late is
 * saved in its order. */
static bool is_lost(const struct view *v, const struct daemon *d, const char *id)
{
    bool many;
    const struct cache_entry *e = cache_find_id(&d->cache, id, &many);
    const struct view_key *k = find(v, id);
    bool missing = k ? k->cut : v->lost;
    return (k && k->lost) || (missing && e && !e->saved);
}

/* What its user has no room for is read when somebody asks for it, if it can be. */
static void learn_more(const struct view *v, struct view_key *k, const struct best *b, bool saved,
                       bool readable, struct answer *scratch)
{
    bool room = has_room(k->account);
    k->cut = k->cut || (readable && !room);
    if (!k->cut) {
        k->cut = !put_best(v, k, b, saved, scratch);
        charge(k);
    }
}

void views_learning(struct list *views, struct daemon *d, const struct cache_entry *known,
                    const struct best *b, bool saved)
{
    bool serves = b->generation && target_rank(d, b, &d->scratch->learned) >= CACHE_SERVES;
    /* One without a number gets it now: it is the same row. */
    bool behind =
        saved && known && !known->saved && known->generation && known->generation != b->generation;
    bool unsaved = b->generation && (!saved || (known && !known->saved));
    LIST_EACH(node, views) {
        struct view *v = LIST_OF(node, struct view, link);
        struct view_key *k = find(v, b->key);
        k = !k && unsaved ? begin_key(v, known, b->key) : k;
        if (behind) {
            lose_key(v, k, b->key, known->generation);
        }
        if (k && serves) {
            learn_more(v, k, b, saved, !unsaved, &d->scratch->hint);
        }
    }
}

void views_evicted(struct list *views, const char *key)
{
    LIST_EACH(node, views) {
        forget(LIST_OF(node, struct view, link), key);
    }
}

void views_saved(struct list *views, const char *key, int64_t generation)
{
    LIST_EACH(node, views) {
        struct view_key *k = find(LIST_OF(node, struct view, link), key);
        if (k && k->lost && generation >= k->lost_until) {
            k->lost = false; /* it is still `cut`: the ledger is asked, and can tell by now */
        }
    }
}

/* ---- reading rows ---------------------------------------------------------------------------- */

enum { READING_MAX = 32 }; /* keys of one request that the ledger is asked for at a time */

struct parked {
    struct pending pending; /* first */
    struct view *view;      /* a holder */
    struct error fault;     /* a key was not read: the view does not know it, nor is it answered */
    char (*keys)[HASH_HEX]; /* in `message`, behind it */
    size_t n, next;         /* keys, and the one that the ledger is asked for next */
    size_t reading;         /* that it has not told of */
    size_t len;
    uint8_t message[];
};

struct reading { /* one key's rows, page by page */
    struct parked *parked;
    struct view_key *key; /* owned until it is put into the view */
    int64_t offset;
    bool failed; /* not all of them are known */
};

static void end(struct parked *p)
{
    struct session *s = p->pending.ticket.session;
    view_drop(p->view);
    if (p->fault.code) {
        struct error fault = p->fault;
        pending_fail(&p->pending, &fault);
        return;
    }
    pending_end(&p->pending);
    if (s) {
        session_again(s, p->message, p->len);
    }
    free(p);
}

static void read_key(struct parked *p, const char *id);

static bool is_known(const struct view *v, const char *id)
{
    const struct view_key *k = find(v, id);
    return k && !k->cut;
}

/* Asks for some more, or ends. Not for all at once: each would be held here, and at the ledger. */
static void go_on(struct parked *p)
{
    p->reading++; /* held until they are asked for: what fails at once comes back here */
    while (p->next < p->n && p->reading <= READING_MAX && !p->fault.code &&
           p->pending.ticket.session) {
        const char *id = p->keys[p->next++];
        if (!is_known(p->view, id)) { /* nobody has read it meanwhile */
            read_key(p, id);
        }
    }
    if (--p->reading == 0) {
        end(p);
    }
}

static void fail(struct parked *p, int status, const char *text)
{
    bool passes = status == ERROR_NO_MEMORY || status == ERROR_CANCELLED;
    if (!p->fault.code) {
        error_set(&p->fault, passes ? ERROR_BUSY : status,
                  "what a key answered in generation %lld could not be read; ask again: %s",
                  (long long)p->view->generation, text);
    }
}

static void fail_reading(struct reading *r, int status, const char *text)
{
    r->failed = true;
    fail(r->parked, status, text);
}

/* Rows come in the order of their generations. */
static void learn(struct reading *r, const struct wire_obj *row)
{
    struct daemon *d = r->parked->pending.d;
    struct best *b = &d->scratch->best;
    struct error err = ERROR_NULL;
    int status = schema_decode(&best_schema, SCHEMA_LENIENT, row, b, &err);
    status = status ? status : problem_make(&d->scratch->learned, b->op, &b->problem, &err);
    if (status < 0) {
        log_warning("a row of key %s is not read: %s", r->key->id, err.text);
        return;
    }
    const struct view *v = r->parked->view;
    if (b->generation <= v->generation && target_row_is_barred(d, b, &d->scratch->learned)) {
        r->key->before = answer_free(r->key->before); /* the newest decides */
    } else if (target_rank(d, b, &d->scratch->learned) >= CACHE_SERVES &&
               !put_best(v, r->key, b, true, &d->scratch->hint)) {
        fail_reading(r, ERROR_NO_MEMORY, "no memory for its rows");
    }
}

static int check_kept(const struct view *v, const struct daemon *d, const char *id,
                      struct error *err)
{
    return is_lost(v, d, id)
               ? error_set(err, ERROR_BUSY,
                           "what key %.12s answered in generation %lld is in no database yet, and "
                           "there was no room to remember it (--user-mib); make room on the disk "
                           "of %s, and ask again",
                           id, (long long)v->generation, d->database)
               : 0;
}

/* Only what was read to its end is known: a view is for good, and the same at all daemons. */
static void finish(struct reading *r)
{
    struct parked *p = r->parked;
    struct view_key *k = r->key;
    struct error full;
    if (!r->failed && check_kept(p->view, p->pending.d, k->id, &full) < 0) {
        fail_reading(r, full.code, full.text);
    }
    if (!r->failed && !is_known(p->view, k->id)) {
        forget(p->view, k->id);
        put_key(p->view, k);
    } else { /* somebody else has read it, or nobody has */
        key_free(k);
    }
    free(r);
    if (account_check_pinned(p->pending.asked.account, &full) < 0) {
        fail(p, full.code, full.text);
    }
    p->reading--;
    go_on(p);
}

static int ask(struct reading *r);

/* Returns how many rows the page has. */
static size_t learn_page(struct reading *r, const void *rows, size_t size)
{
    struct error err = ERROR_NULL;
    const struct wire_obj *array = NULL;
    int status = wire_decode(r->parked->pending.d->doc, rows, size, &array, &err);
    size_t n = status == 0 ? wire_count(array) : 0;
    for (size_t i = 0; i < n; i++) {
        learn(r, wire_at(array, i));
    }
    if (status < 0) {
        fail_reading(r, status, err.text);
    }
    return n;
}

static void on_rows(void *ctx, int status, const void *rows, size_t n, int64_t total,
                    const struct error *err)
{
    struct reading *r = ctx;
    size_t count = 0;
    if (status < 0) {
        fail_reading(r, status, err ? err->text : "no memory");
        log_warning("what key %s answered before is not known: %s", r->key->id,
                    err ? err->text : "no memory");
    } else {
        count = learn_page(r, rows, n);
    }
    r->offset += (int64_t)count;
    if (r->failed || count == 0 || r->offset >= total || ask(r) < 0) {
        finish(r);
    }
}

/* On a fault the request fails, too. */
static int ask(struct reading *r)
{
    enum { ROWS_BYTES = 256 * 1024 };
    struct daemon *d = r->parked->pending.d;
    struct record *filter = &d->scratch->config;
    struct error err = ERROR_NULL;
    record_init(filter);
    record_put_text(filter, "key", r->key->id);
    record_put_text(filter, "sort", "generation");
    record_put_int(filter, "offset", r->offset);
    int status = d->ledger ? d->ledger->ops->list(d->ledger, r->parked->pending.uid, "history",
                                                  filter, ROWS_BYTES, on_rows, r)
                           : ERROR_SHUTTING_DOWN;
    if (status < 0) {
        ledger_refused(status, &err);
        fail_reading(r, status, err.text);
    }
    return status;
}

static void read_key(struct parked *p, const char *id)
{
    struct reading *r = calloc(1, sizeof(*r));
    struct view_key *k = key_new(id, p->view->account);
    if (!r || !k) {
        free(r);
        key_free(k);
        fail(p, ERROR_NO_MEMORY, "no memory for its rows");
        return;
    }
    r->parked = p;
    r->key = k;
    p->reading++;
    if (ask(r) < 0) {
        finish(r);
    }
}

/* Its rows are on their way; nobody is answered then. */
static void cancel(struct ticket *t, const struct error *e)
{
    pending_cancel(&LIST_OF(t, struct parked, pending.ticket)->pending, e);
}

int view_park(struct call *c, char (*keys)[HASH_HEX], size_t n, struct error *err)
{
    struct pending *pending;
    int status = account_check_pinned(c->s->account, err);
    for (size_t i = 0; status == 0 && i < n; i++) {
        status = check_kept(c->s->view, c->d, keys[i], err);
    }
    if (status == 0) {
        status = call_later(c, sizeof(struct parked) + c->len + n * sizeof(*keys), &pending, err);
    }
    if (status < 0) {
        return status;
    }
    struct parked *p = (struct parked *)pending;
    p->pending.ticket.cancel = cancel;
    asked_as(&p->pending.asked, c->s, n);
    p->view = c->s->view;
    p->view->holders++;
    p->len = c->len;
    memcpy(p->message, c->data, c->len);
    p->keys = (char(*)[HASH_HEX])(p->message + c->len);
    p->n = n;
    memcpy(p->keys, keys, n * sizeof(*keys));
    go_on(p);
    return METHOD_LATER;
}
