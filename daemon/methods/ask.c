/* SPDX-License-Identifier: Apache-2.0 */
/* Answers a query (methods.h). A hit of the cache goes from ask_answer to `cache_reply`: it
 * allocates nothing, calls no SQLite, and copies the answer once, into the output. */
#include <stdio.h>
#include <string.h>

#include "daemon/answers/target.h"
#include "daemon/answers/tiers.h"
#include "daemon/cache/answer.h"
#include "daemon/methods/daemon_parts.h"
#include "daemon/methods/fleet_pins.h"
#include "daemon/methods/methods.h"

/* True when the key's entry answers the query: the entry serves, was verified under the query's
 * tolerances or tighter ones, and the query has no `again`. */
static bool ask_entry_answers(struct daemon *d, const struct cache_entry *e,
                              const struct request *r)
{
    if (!e || e->rank < CACHE_SERVES || r->query.again ||
        !cache_verified(e, r->query.atol, r->query.rtol)) {
        return false;
    }
    if (!request_is_restricted(r)) {
        return true;
    }
    /* The key's best would also win a restricted search whose restrictions it fulfils. Configs that
     * the query gives are always measured. */
    struct answer *a = &d->scratch->hint;
    return r->n_configs == 0 && cache_answer(&d->cache, e, a, NULL) == 0 &&
           request_allows(r, &a->config) && target_is_of(a, r->query.target);
}

/* False for restricted searches and queries with `again`, which belong to no generation. */
static bool ask_is_pinned(const struct ask *a)
{
    const struct request *r = &a->parts->daemon.scratch->request;
    return a->pinned >= 0 && !r->query.again && !request_is_restricted(r);
}

/* Puts the answer of a lower tier. In a pinned generation only the default may answer, since other
 * tiers change with new results. */
static int ask_put_lower(const struct ask *a, const char *why, struct error *err)
{
    struct daemon *d = &a->parts->daemon;
    struct scratch *x = d->scratch;
    int status = 0;
    if (x->request.query.again && waiters_recall(d, &x->answer)) {
        /* x->answer is the last answer of the same search */
        answer_note(&x->answer, "%s", why);
    } else {
        status =
            tiers_answer(&a->parts->tiers, &x->request, a->uid,
                         ask_is_pinned(a) ? NULL : &x->bucket, &x->key, why, &x->answer, NULL, err);
    }
    if (status == 0) {
        schema_encode(a->out, &answer_schema, &x->answer);
    }
    return status;
}

static int ask_answer_lower(const struct ask *a, const char *why, struct error *err)
{
    int status = ask_put_lower(a, why, err);
    if (status == 0) {
        const struct scratch *x = a->parts->daemon.scratch;
        daemon_count_answer(&a->parts->daemon, &x->answer);
        session_count_answer(a->session, &x->answer, x->key.id, &x->bucket);
    }
    return status;
}

/* For a query with wait=now or wait=boundary: puts the lower tier's answer at once and queues a
 * background job. When no job can be queued, the answer's note says why. */
static int ask_put_now(const struct ask *a, struct error *err)
{
    struct scratch *x = a->parts->daemon.scratch;
    struct error refused = ERROR_NULL;
    char note[120];
    const size_t before = a->out->len;
    const bool in_pauses = strcmp(x->request.query.wait, "boundary") == 0;
    int status = ask_answer_lower(
        a, in_pauses ? "being tuned while the job's GPU pauses" : "being tuned in the background",
        err);
    if (status < 0 && status != ERROR_QUARANTINED) {
        /* after ERROR_QUARANTINED go on: a tuning can find a config in place of the quarantined
         * default */
        return status;
    }
    struct joining w = {.again = x->request.query.again,
                        .background = true,
                        .in_pauses = in_pauses,
                        .account = a->account};
    const struct query asked = x->request.query;
    x->other = x->request.problem; /* waiters_join changes the request */
    if (waiters_join(&a->parts->tuning, &w, &refused) < 0) {
        a->out->len = before;
        snprintf(note, sizeof(note), "not being tuned: %.100s", refused.text);
        x->request.problem = x->other;
        x->request.query = asked;
        status = ask_put_lower(a, note, err); /* counted above */
    } else if (in_pauses && a->session) {
        pauses_hold(&a->parts->tuning, a->session);
    }
    return status;
}

/* `since`: the key got its answer after the pinned generation, so the key needs no tuning. In a
 * generation a query with a deadline does not wait: the ranks of a training job must get the same
 * answer, and a tuning may end within the deadline of one rank but not of another. */
static int ask_miss(const struct ask *a, bool since, struct error *err)
{
    struct daemon *d = &a->parts->daemon;
    struct scratch *x = d->scratch;
    struct query *q = &x->request.query;
    if (waiters_known(d, a->out)) {
        d->hits++;
        session_count_exact(a->session, 1);
        return ASK_ANSWERED;
    }
    if (ask_is_pinned(a) && q->deadline_ms && strcmp(q->wait, "tuned") == 0) {
        snprintf(q->wait, sizeof(q->wait), "now");
    }
    key_id(&x->key);
    d->misses++;
    if (strcmp(q->wait, "tuned") == 0) {
        return ASK_WAITS;
    }
    if (since) {
        return ask_answer_lower(a, "tuned after the generation that this connection is pinned to",
                                err);
    }
    return strcmp(q->wait, "cached") == 0
               ? ask_answer_lower(a, q->again ? "not tuned again" : "not tuned yet", err)
               : ask_put_now(a, err);
}

int ask_park_unread(struct call *c, char (*keys)[HASH_HEX], size_t n, struct error *err)
{
    return c->s->pinned >= FLEET_PIN ? fleet_pins_park(c, keys, n, err)
                                     : generations_park(&c->parts->generations, c, keys, n, err);
}

int ask_answer(const struct ask *a, struct cache_entry **entry, struct error *err)
{
    struct daemon *d = &a->parts->daemon;
    struct request *r = &d->scratch->request;
    struct generations *all = &a->parts->generations;
    const bool is_loaded = a->parts->loader.done;
    *entry = NULL;
    int status = generations_key(all, a->pinned, d, a->uid, err);
    if (status < 0) {
        return status;
    }
    struct cache_entry *e = *entry = cache_find(&d->cache, &d->scratch->key);
    status = target_settle(d, r, e, err);
    if (status < 0) {
        return status;
    }
    const bool custom = custom_is(&r->problem);
    if (custom && !is_loaded) { /* the caller's own row or the shared row may not be loaded yet */
        return ASK_LOADS;
    }
    if (a->pinned >= FLEET_PIN && ask_is_pinned(a) && !custom) {
        return fleet_pins_answer(a, err);
    }
    const struct moment *then;
    const enum generation_says says =
        generations_find(all, ask_is_pinned(a) ? a->pinned : -1, e, &r->query, &then);
    if (says == GENERATION_UNKNOWN) {
        key_id(&d->scratch->key);
        return ASK_READS;
    }
    const bool answers = ask_entry_answers(d, e, r);
    if (says == GENERATION_ANSWERS) {
        d->hits++;
        session_count_exact(a->session, 1);
        wire_put_raw(a->out, then->packed.data, then->packed.len);
        return ASK_ANSWERED;
    }
    if (says == GENERATION_AS_EVER && answers) {
        daemon_put_hit(d, e, a->out);
        session_count_exact(a->session, 1);
        /* The memo may hold a hit whose answer does not depend on the caller: deadlines differ
         * between queries, and answers of custom ops differ between users. */
        if (a->bytes && !r->query.deadline_ms && !custom && a->pinned < 0) {
            memo_put(&d->cache.memo, a->bytes, a->n, e);
        }
        return ASK_ANSWERED;
    }
    return is_loaded ? ask_miss(a, answers, err) : ASK_LOADS;
}
