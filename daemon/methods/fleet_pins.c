/* SPDX-License-Identifier: Apache-2.0 */
/* Answers at a number of the fleet (fleet_pins.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/answers/target.h"
#include "daemon/cache/answer.h"
#include "daemon/methods/fleet_pins.h"
#include "daemon/methods/pending.h"
#include "store/fleet.h"

/* a failed read is repeated after so long */
enum { FLEET_FAULT_MS = 2000 };

/* ---- hello ----------------------------------------------------------------------------------- */

struct fleet_hello {        /* a `hello` that waits for gemmd-fleet */
    struct pending pending; /* first member: its address is the struct's */
    struct list link;       /* node in generations->fleet_hellos */
    int64_t number;
    uint64_t until_ms;
    void (*put_hello)(struct wire_buf *b, const struct daemon *d, const struct session *s);
};

static int fleet_not_read(const struct daemon *d, int64_t number, struct error *err)
{
    return error_set(err, ERROR_BUSY,
                     "gemmd-fleet has read the fleet's rows up to number %lld, not up to %lld: "
                     "`gemmctl fleet status` says what it does; retry later",
                     (long long)d->fleet_seq, (long long)number);
}

int fleet_pins_hello(struct call *c, const struct wire_obj *number,
                     void (*put_hello)(struct wire_buf *b, const struct daemon *d,
                                       const struct session *s),
                     struct error *err)
{
    const struct daemon *d = c->d;
    int64_t n;
    if (!wire_get_int(number, &n) || n < -1 || n >= FLEET_PIN) {
        return error_set(err, ERROR_INVALID,
                         "'fleet' must be a number from 0 on, or -1: as it is now");
    }
    if (!d->fleet_known) {
        return error_set(err, ERROR_INVALID,
                         "this host has no fleet: gemmd-fleet has not run beside this database "
                         "since gemmd started");
    }
    n = n < 0 ? d->fleet_seq : n;
    if (n <= d->fleet_seq) {
        c->s->pinned = FLEET_PIN + n;
        return 0;
    }
    struct fleet_hello *x = call_later(c, sizeof(*x), err);
    if (!x) {
        return err->code;
    }
    x->number = n;
    x->put_hello = put_hello;
    x->until_ms = uv_now(&c->d->loop) + FLEET_HELLO_MS;
    list_append(&c->parts->generations.fleet_hellos, &x->link);
    return METHOD_LATER;
}

static void fleet_end_hello(struct fleet_hello *x)
{
    struct session *s = x->pending.ticket.session;
    struct error err = ERROR_NULL;
    list_remove(&x->link);
    if (x->pending.d->fleet_seq < x->number) {
        fleet_not_read(x->pending.d, x->number, &err);
        pending_fail(&x->pending, &err);
        return;
    }
    if (s) {
        s->pinned = FLEET_PIN + x->number;
        x->put_hello(pending_result(&x->pending), x->pending.d, s);
    }
    pending_drop(&x->pending);
}

void fleet_pins_read_on(struct daemon_parts *p)
{
    LIST_EACH(struct fleet_hello, x, &p->generations.fleet_hellos, link) {
        if (p->daemon.fleet_seq >= x->number) {
            fleet_end_hello(x);
        }
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

int fleet_pins_answer(const struct ask *a, struct error *err)
{
    struct daemon *d = &a->parts->daemon;
    struct generations *all = &a->parts->generations;
    const struct query *q = &d->scratch->request.query;
    key_id(&d->scratch->key);
    struct moment *m = generations_moment(all, d->scratch->key.id, a->pinned, q->atol, q->rtol);
    if (!m || (!m->found && uv_now(&d->loop) - m->read_ms >= FLEET_FAULT_MS)) {
        return ASK_READS;
    }
    if (!m->found) {
        return error_set(err, m->fault, "%.*s", (int)m->packed.len, (const char *)m->packed.data);
    }
    d->hits++;
    session_count_exact(a->session, 1);
    wire_put_raw(a->out, m->packed.data, m->packed.len);
    return ASK_ANSWERED;
}

/* ---- reading rows ---------------------------------------------------------------------------- */

struct fleet_read {       /* a request while the rows of its keys are read, key by key */
    struct parked parked; /* first member: its address is the struct's */
    struct list link;     /* node in generations->fleet_reads */
    int64_t pinned;
    double atol, rtol;
    uint64_t until_ms; /* loop time: then the request no longer waits for confirmations */
    bool asking;       /* the ledger reads the row of keys[next] */
    bool again;        /* that row has changed meanwhile */
    size_t n, next;
    char keys[][HASH_HEX];
};

static void fleet_read_key(struct fleet_read *p);

static struct daemon_parts *fleet_parts(const struct fleet_read *p)
{
    return p->parked.pending.parts;
}

static void fleet_end_read(struct fleet_read *p)
{
    list_remove(&p->link);
    parked_begin_anew(&p->parked);
}

/* Keeps the key's answer, or the error why it has none, and goes on with the next key. */
static void fleet_keep(struct fleet_read *p, const struct answer *a, const struct error *fault)
{
    struct error err = ERROR_NULL;
    struct moment *m = calloc(1, sizeof(*m));
    int status = m ? 0 : error_set(&err, ERROR_NO_MEMORY, "no memory for an answer");
    if (m) {
        *m = (struct moment){.id = id_read(p->keys[p->next]),
                             .generation = p->pinned,
                             .atol = p->atol,
                             .rtol = p->rtol,
                             .found = a ? 1 : 0,
                             .fault = fault ? fault->code : 0,
                             .read_ms = uv_now(&p->parked.pending.d->loop)};
        if (a) {
            schema_encode(&m->packed, &answer_schema, a);
        } else {
            wire_put_raw(&m->packed, fault->text, strlen(fault->text));
        }
        status = generations_keep(&fleet_parts(p)->generations, m, &err);
    }
    if (status < 0) {
        list_remove(&p->link);
        pending_fail(&p->parked.pending, &err);
        return;
    }
    p->next++;
    fleet_read_key(p);
}

static void fleet_keep_fault(struct fleet_read *p, int code, const char *why)
{
    struct error fault = ERROR_NULL;
    error_set(&fault, code, "key %.12s has no answer at the fleet's number %lld: %s",
              p->keys[p->next], (long long)(p->pinned - FLEET_PIN), why);
    fleet_keep(p, NULL, &fault);
}

/* Has the candidate b confirmed in the background. */
static int fleet_confirm(struct fleet_read *p, const struct best *b, struct error *err)
{
    struct daemon *d = p->parked.pending.d;
    struct request *r = &d->scratch->request;
    const double ratio = b->time_us / b->reference_us;
    struct joining w = {
        .background = true, .candidate = b->generation, .promised = isfinite(ratio) ? ratio : 1};
    int status = request_default(r, err);
    status = status ? status : problem_make(&r->problem, b->op, &b->problem, err);
    r->configs = status ? NULL : calloc(1, sizeof(*r->configs));
    if (status == 0 && !r->configs) {
        status = error_set(err, ERROR_NO_MEMORY, "no memory to confirm it");
    }
    if (status == 0) {
        r->n_configs = 1;
        record_copy(r->configs, &b->config);
        snprintf(r->query.strategy, sizeof(r->query.strategy), "given");
        status = waiters_join_alone(&fleet_parts(p)->tuning, &w, (uid_t)p->parked.pending.uid, err);
    }
    request_deinit(r);
    r->query = (struct query){0};
    return status;
}

/* Judges the row of the present key. */
static void fleet_judge_row(struct fleet_read *p, const struct best *b,
                            const struct store_fleet_row *row)
{
    struct daemon *d = p->parked.pending.d;
    struct scratch *x = d->scratch;
    struct error err = ERROR_NULL;
    const bool is_new = strcmp(row->state, "new") == 0;
    char why[400];
    if (row->seq == 0) {
        fleet_keep_fault(p, ERROR_NOT_FOUND,
                         "the fleet has no row of it up to there; tune it first, then take a newer "
                         "number");
        return;
    }
    if (!b || strcmp(row->state, "refused") == 0 || strcmp(row->state, "withdrawn") == 0) {
        snprintf(why, sizeof(why), "its row %lld was %s%s%.300s", (long long)row->seq, row->state,
                 row->reason[0] ? ": " : " here", row->reason);
        fleet_keep_fault(p, ERROR_CONFLICT, why);
        return;
    }
    answer_of_best(&x->hint, b, true);
    int status = problem_make(&x->learned, b->op, &b->problem, &err);
    const bool due = is_new && !d->fleet_serves && target_has_kernels(d, &x->learned, b->stamp);
    if (status == 0 && !due && target_rank(d, &x->hint, &x->learned) >= CACHE_SERVES &&
        b->atol <= p->atol && b->rtol <= p->rtol) {
        fleet_keep(p, &x->hint, NULL);
    } else if (status == 0 && !due) {
        fleet_keep_fault(p, ERROR_CONFLICT,
                         "its row is of other kernels than this host's, or verified with wider "
                         "tolerances than the query's");
    } else if (status == 0 && uv_now(&d->loop) >= p->until_ms) {
        fleet_keep_fault(p, ERROR_DEADLINE, "its row was not confirmed here in time");
    } else if (status < 0 || fleet_confirm(p, b, &err) < 0) {
        fleet_keep_fault(p, err.code, err.text);
    }
    /* else fleet_pins_changed or fleet_pins_tick reads the row again */
}

static void fleet_on_row(void *ctx, int status, const struct best *b,
                         const struct store_fleet_row *row, const struct error *err)
{
    struct fleet_read *p = ctx;
    p->asking = false;
    if (!p->parked.pending.ticket.session) {
        fleet_end_read(p);
    } else if (status < 0) {
        fleet_keep_fault(p, status == ERROR_NO_MEMORY ? ERROR_BUSY : status,
                         err ? err->text : "it could not be read");
    } else if (p->again) {
        fleet_read_key(p);
    } else {
        fleet_judge_row(p, b, row);
    }
}

/* Reads the row of the next key. After the last key the request begins anew; if its client has
 * left, it ends. */
static void fleet_read_key(struct fleet_read *p)
{
    struct daemon *d = p->parked.pending.d;
    if (p->next == p->n || !p->parked.pending.ticket.session) {
        fleet_end_read(p);
        return;
    }
    p->again = false;
    p->asking = true;
    if (ledger_fleet_find(d->ledger, p->keys[p->next], p->pinned - FLEET_PIN, fleet_on_row, p) <
        0) {
        p->asking = false;
        fleet_keep_fault(p, ERROR_BUSY, "it could not be read");
    }
}

int fleet_pins_park(struct call *c, char (*keys)[HASH_HEX], size_t n, struct error *err)
{
    const struct query *q = &c->d->scratch->request.query;
    struct fleet_read *p = call_park(c, sizeof(*p) + n * sizeof(*keys), err);
    if (!p) {
        return err->code;
    }
    asked_as(&p->parked.pending.asked, c->s, n);
    list_append(&c->parts->generations.fleet_reads, &p->link);
    p->pinned = c->s->pinned;
    p->atol = q->atol;
    p->rtol = q->rtol;
    p->until_ms = uv_now(&c->d->loop) +
                  (q->deadline_ms > 0 ? (uint64_t)q->deadline_ms : (uint64_t)FLEET_CONFIRM_MS);
    p->n = n;
    memcpy(p->keys, keys, n * sizeof(*keys));
    fleet_read_key(p);
    return METHOD_LATER;
}

/* ---- changes --------------------------------------------------------------------------------- */

static void fleet_read_again(struct fleet_read *p)
{
    if (p->asking) {
        p->again = true;
    } else {
        fleet_read_key(p);
    }
}

void fleet_pins_changed(struct daemon_parts *p, const char *key)
{
    generations_forget_fleet(&p->generations, key);
    LIST_EACH(struct fleet_read, x, &p->generations.fleet_reads, link) {
        if (x->next < x->n && strcmp(x->keys[x->next], key) == 0) {
            fleet_read_again(x);
        }
    }
}

void fleet_pins_tick(struct daemon_parts *p)
{
    LIST_EACH(struct fleet_hello, x, &p->generations.fleet_hellos, link) {
        if (uv_now(&p->daemon.loop) >= x->until_ms || !x->pending.ticket.session) {
            fleet_end_hello(x);
        }
    }
    LIST_EACH(struct fleet_read, x, &p->generations.fleet_reads, link) {
        if (!x->asking) {
            fleet_read_key(x);
        }
    }
}

void fleet_pins_close(struct daemon_parts *p)
{
    struct generations *x = &p->generations;
    while (!list_empty(&x->fleet_hellos)) {
        fleet_end_hello(LIST_OF(x->fleet_hellos.next, struct fleet_hello, link));
    }
    while (!list_empty(&x->fleet_reads)) {
        fleet_end_read(LIST_OF(x->fleet_reads.next, struct fleet_read, link));
    }
}
