/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of keys in a generation (generations.h). */
#include <stdlib.h>
#include <string.h>

#include "daemon/daemon.h"
#include "daemon/answers/learn.h"
#include "daemon/answers/target.h"
#include "daemon/base/log.h"
#include "daemon/cache/answer.h"
#include "daemon/methods/generations.h"
#include "daemon/methods/pending.h"

/* ---- the cache ------------------------------------------------------------------------------- */

void generations_init(struct generations *x)
{
    x->moments.hash_at = offsetof(struct moment, id.front);
    list_init(&x->used);
    list_init(&x->parked);
    list_init(&x->fleet_reads);
    list_init(&x->fleet_hellos);
}

static void moment_free(struct moment *m)
{
    if (m) {
        wire_buf_deinit(&m->packed);
        free(m);
    }
}

static size_t moment_bytes(const struct moment *m)
{
    return sizeof(*m) + m->packed.cap;
}

static bool is_moment(const void *object, const void *wanted)
{
    const struct moment *m = object, *w = wanted;
    return m->id.back == w->id.back && m->generation == w->generation && m->atol == w->atol &&
           m->rtol == w->rtol;
}

static bool is_moment_of(const void *object, const void *id)
{
    return ((const struct moment *)object)->id.back == ((const struct id *)id)->back;
}

static bool is_fleet_moment(const void *object, const void *id)
{
    return is_moment_of(object, id) && ((const struct moment *)object)->generation >= FLEET_PIN;
}

static void drop_moment(struct generations *x, struct moment *m)
{
    hash_table_remove(&x->moments, m);
    list_remove(&m->link);
    x->bytes -= moment_bytes(m);
    moment_free(m);
}

/* Keeps m (a key's answer in a generation) in place of an older m of the same key, generation and
 * tolerances. Owns m then, except after ERROR_NO_MEMORY. */
static int put_moment(struct generations *x, struct moment *m, struct error *err)
{
    if (hash_table_reserve(&x->moments, x->moments.n + 1, err) < 0) {
        return ERROR_NO_MEMORY;
    }
    struct moment *known = hash_table_find(&x->moments, m->id.front, is_moment, m);
    if (known) {
        drop_moment(x, known);
    }
    hash_table_put(&x->moments, m);
    list_append(&x->used, &m->link);
    x->bytes += moment_bytes(m);
    while (x->bytes > GENERATIONS_BYTES_MAX) {
        drop_moment(x, LIST_OF(x->used.next, struct moment, link));
    }
    return 0;
}

int generations_keep(struct generations *x, struct moment *m, struct error *err)
{
    int status = m->packed.failed ? error_set(err, ERROR_NO_MEMORY, "no memory for an answer")
                                  : put_moment(x, m, err);
    if (status < 0) {
        moment_free(m);
    }
    return status;
}

struct moment *generations_moment(struct generations *x, const char *key, int64_t generation,
                                  double atol, double rtol)
{
    const struct moment wanted = {
        .id = id_read(key), .generation = generation, .atol = atol, .rtol = rtol};
    return hash_table_find(&x->moments, wanted.id.front, is_moment, &wanted);
}

void generations_deinit(struct generations *x)
{
    LIST_EACH(struct moment, m, &x->used, link) {
        moment_free(m);
    }
    hash_table_deinit(&x->moments);
}

/* ---- finding --------------------------------------------------------------------------------- */

enum generation_says generations_find(struct generations *x, int64_t pinned,
                                      const struct cache_entry *e, const struct query *q,
                                      const struct moment **out)
{
    *out = NULL;
    if (pinned < 0 || !e || (e->generation && e->generation <= pinned)) {
        return GENERATION_AS_EVER;
    }
    const struct moment wanted = {
        .id = e->id, .generation = pinned, .atol = q->atol, .rtol = q->rtol};
    struct moment *m = hash_table_find(&x->moments, wanted.id.front, is_moment, &wanted);
    if (!m) {
        return GENERATION_UNKNOWN;
    }
    list_remove(&m->link);
    list_append(&x->used, &m->link);
    bool waits = strcmp(q->wait, "tuned") == 0 && !q->deadline_ms;
    if (m->found && (waits || m->found <= pinned)) {
        *out = m;
        return GENERATION_ANSWERS;
    }
    return waits && !m->found && m->newest < e->generation ? GENERATION_UNKNOWN
                                                           : GENERATION_NOTHING;
}

/* Returns the generation of the row that answers the key, if that row is newer than the pinned
 * generation; 0 when an older row answers; INT64_MAX when no row answers. A key that must still be
 * read counts as 0, so that ask_answer reads the key. */
static int64_t generation_came(struct generations *x, int64_t pinned, const struct cache_entry *e,
                               const struct query *q)
{
    const struct moment *m;
    enum generation_says says = generations_find(x, pinned, e, q, &m);
    if (says == GENERATION_NOTHING) {
        return INT64_MAX;
    }
    return m && m->found > pinned ? m->found : 0;
}

int generations_key(struct generations *x, int64_t pinned, struct daemon *d, int64_t uid,
                    struct error *err)
{
    struct scratch *s = d->scratch;
    struct record *fields = &s->request.problem.fields;
    struct value user;
    bool named = record_get(fields, CUSTOM_USER, &user);
    int status = custom_key(d, uid, CUSTOM_READ, err);
    if (status < 0 || pinned < 0 || named || !custom_is(&s->request.problem)) {
        return status;
    }
    const struct cache_entry *own = cache_find(&d->cache, &s->key);
    if (!own || !custom_share(&s->request.problem)) {
        return 0;
    }
    status = daemon_key(d, err);
    const struct cache_entry *shared = status == 0 ? cache_find(&d->cache, &s->key) : NULL;
    const struct query *q = &s->request.query;
    if (status < 0 ||
        (shared && generation_came(x, pinned, shared, q) < generation_came(x, pinned, own, q))) {
        return status;
    }
    status = record_set(fields, CUSTOM_USER, VALUE_OF_INT(uid), err);
    return status ? status : daemon_key(d, err);
}

/* ---- reading rows ---------------------------------------------------------------------------- */

struct reading {             /* a request while the rows of its keys are read, key by key */
    struct parked parked;    /* first member: its address is the struct's */
    struct list link;        /* node in generations->parked */
    struct generations *all; /* borrowed */
    struct learn_pages pages;
    struct moment *moment; /* owned: the answer of keys[next], from the rows read so far */
    int64_t generation;
    double atol, rtol;
    bool stale; /* the key's rows changed while `moment` was being read */
    size_t n, next;
    char keys[][HASH_HEX];
};

void generations_forget(struct generations *x, const char *key)
{
    const struct id id = id_read(key);
    for (struct moment *m; (m = hash_table_find(&x->moments, id.front, is_moment_of, &id));) {
        drop_moment(x, m);
    }
    LIST_EACH(struct reading, p, &x->parked, link) {
        p->stale = p->stale || strcmp(p->keys[p->next], key) == 0;
    }
}

void generations_forget_fleet(struct generations *x, const char *key)
{
    const struct id id = id_read(key);
    for (struct moment *m; (m = hash_table_find(&x->moments, id.front, is_fleet_moment, &id));) {
        drop_moment(x, m);
    }
}

/* All daemons must give the same answer for a key in a generation. So the request fails when not
 * all of a key's rows could be read. */
static void fail_parked(struct reading *p, int status, const char *text)
{
    bool passes = status == ERROR_NO_MEMORY || status == ERROR_CANCELLED;
    struct error fault = ERROR_NULL;
    error_set(&fault, passes ? ERROR_BUSY : status,
              "the answer of key %.12s in generation %lld could not be read; retry: %s",
              p->keys[p->next], (long long)p->generation, text);
    log_warning("%s", fault.text);
    list_remove(&p->link);
    moment_free(p->moment);
    pending_fail(&p->parked.pending, &fault);
}

/* Called for each row of a key, in the order of the rows' generations. */
static int generations_learn_row(struct learn_pages *x, const struct wire_obj *row)
{
    struct daemon *d = x->daemon;
    struct moment *m = LIST_OF(x, struct reading, pages)->moment;
    struct scratch *s = d->scratch;
    struct best *b = &s->best;
    struct error err = ERROR_NULL;
    int status = schema_decode(&best_schema, SCHEMA_LENIENT, row, b, &err);
    status = status ? status : problem_make(&s->learned, b->op, &b->problem, &err);
    if (status < 0) {
        log_warning("a row of key %.12s is not read: %s", b->key, err.text);
        return 0;
    }
    m->newest = b->generation > m->newest ? b->generation : m->newest;
    answer_of_best(&s->hint, b, true);
    bool serves = target_rank(d, &s->hint, &s->learned) >= CACHE_SERVES;
    if (b->generation <= m->generation &&
        (serves || target_is_quarantined(d, b->key, &s->hint, &s->learned))) {
        m->found = 0; /* the newest row up to the pinned generation decides */
    }
    if (serves && !m->found && b->atol <= m->atol && b->rtol <= m->rtol) {
        m->found = b->generation;
        m->packed.len = 0;
        schema_encode(&m->packed, &answer_schema, &s->hint);
    }
    return m->packed.failed ? ERROR_NO_MEMORY : 0;
}

static void generations_filter(struct learn_pages *x, struct record *filter)
{
    const struct reading *p = LIST_OF(x, struct reading, pages);
    record_put_text(filter, "key", p->keys[p->next]);
    record_put_text(filter, "sort", "generation");
}

static void read_next(struct reading *p);

static void generations_on_read(struct learn_pages *x, int status, const struct error *err)
{
    struct reading *p = LIST_OF(x, struct reading, pages);
    struct error met = *err;
    if (status == 0 && p->stale) {
        moment_free(p->moment);
    } else if (status == 0) {
        status = put_moment(p->all, p->moment, &met);
    }
    if (status < 0) {
        fail_parked(p, status, met.text);
    } else {
        p->next++;
        read_next(p);
    }
}

/* Reads the rows of the next key. After the last key the request begins anew; if its client has
 * left, it ends. Another request may have read the same key meanwhile; the moment read last
 * stays. */
static void read_next(struct reading *p)
{
    p->stale = false;
    p->pages.offset = 0;
    p->moment = NULL;
    if (p->next == p->n || !p->parked.pending.ticket.session) {
        list_remove(&p->link);
        parked_begin_anew(&p->parked);
        return;
    }
    p->moment = calloc(1, sizeof(*p->moment));
    if (!p->moment) {
        fail_parked(p, ERROR_NO_MEMORY, "no memory for its rows");
        return;
    }
    /* The generation of the cache's row counts as read: else a query would wait without end for a
     * row that the cache has and the file has lost. */
    const char *id = p->keys[p->next];
    const struct cache_entry *e = cache_find_id(&p->parked.pending.d->cache, id, NULL);
    *p->moment = (struct moment){.id = id_read(id),
                                 .generation = p->generation,
                                 .newest = e ? e->generation : 0,
                                 .atol = p->atol,
                                 .rtol = p->rtol};
    learn_pages(&p->pages);
}

int generations_park(struct generations *x, struct call *c, char (*keys)[HASH_HEX], size_t n,
                     struct error *err)
{
    struct reading *p = call_park(c, sizeof(*p) + n * sizeof(*keys), err);
    if (!p) {
        return err->code;
    }
    asked_as(&p->parked.pending.asked, c->s, n);
    list_append(&x->parked, &p->link);
    p->all = x;
    p->pages = (struct learn_pages){.daemon = c->d,
                                    .what = "history",
                                    .uid = p->parked.pending.uid,
                                    .filter = generations_filter,
                                    .row = generations_learn_row,
                                    .end = generations_on_read};
    p->generation = c->s->pinned;
    p->atol = c->d->scratch->request.query.atol;
    p->rtol = c->d->scratch->request.query.rtol;
    p->n = n;
    memcpy(p->keys, keys, n * sizeof(*keys));
    read_next(p);
    return METHOD_LATER;
}
