/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A running job's beginning and middle: what was measured before, the order, trials, deaths.
 * tuning_end.c has its ends.
 *
 * What counts as measured before ("done"): finished trials of this key whose stamp is today's. A
 * trial's stamp also names the tolerances when they are not the usual ones, since a result that was
 * right at 0.1 says nothing about 0.01. When a tuning is asked for again, only what an
 * unfinished tuning left, and failures, are not repeated. A config that somebody gives by name is
 * always measured.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/daemon.h"
#include "daemon/elsewhere.h"
#include "daemon/log.h"
#include "daemon/precheck.h"
#include "daemon/tiers.h"
#include "daemon/tuning.h"
#include "daemon/tuning_end.h"
#include "proto/limits.h"

enum { HINTS_MAX = 4, LEAVING_MAX = 5 };
static const double USUAL_TOLERANCE = 1e-2;

static struct job *running(struct daemon *d)
{
    return d->scheduler.running;
}

/* ---- the order ------------------------------------------------------------------------------------- */

/* Packed trials, back as structs. They are large: for the moment of packing only. */
static uint32_t unpack_done(const struct job *j, struct wire_doc *doc, struct trial **out)
{
    struct trial *trials = j->n_done ? malloc(j->n_done * sizeof(*trials)) : NULL;
    struct scan scan;
    size_t at = 0;
    uint32_t n = 0;
    scan_init(&scan, RUNNER_MESSAGE_BYTES_MAX);
    while (trials && n < j->n_done && at < j->done.len) {
        const struct wire_obj *map;
        size_t used = 0;
        if (scan_feed(&scan, j->done.data + at, j->done.len - at, &used, NULL) != SCAN_DONE ||
            wire_decode(doc, j->done.data + at, used, &map, NULL) < 0) {
            break;
        }
        n += schema_decode(&trial_schema, SCHEMA_LENIENT, map, &trials[n], NULL) == 0;
        at += used;
    }
    *out = trials;
    return n;
}

static bool was_ok(const struct tune_order *o, const struct record *config)
{
    for (uint32_t i = 0; i < o->n_done; i++) {
        if (strcmp(o->done[i].status, "ok") == 0 && record_equal(&o->done[i].config, config)) {
            return true;
        }
    }
    return false;
}

/* No new candidates: a search has used up its budget, of a list only what worked is left. The winner
 * is verified and measured by the runner's finals, so an answer still says what was seen. */
static void close_search(struct tune_order *o)
{
    struct request *r = &o->request;
    uint32_t n = 0;
    r->query.budget = 1;
    for (uint32_t i = 0; i < r->n_configs; i++) {
        if (was_ok(o, &r->configs[i])) {
            struct record kept = r->configs[n]; /* the list is the job's: nothing of it is lost */
            r->configs[n++] = r->configs[i];
            r->configs[i] = kept;
        }
    }
    r->n_configs = n;
}

static int pack_order(struct daemon *d, struct job *j, struct tune_order *o, struct wire_buf *b,
                      struct error *err)
{
    o->job = j->id;
    memcpy(o->key, j->key, sizeof(o->key));
    memcpy(o->stamp, j->trial_stamp, sizeof(o->stamp));
    o->request = *j->request; /* its lists stay the job's */
    if (j->reverify) {
        snprintf(o->request.query.strategy, sizeof(o->request.query.strategy), "given");
        memcpy(o->request.query.target, j->known_target, sizeof(j->known_target));
        o->request.n_configs = 1;
        o->request.configs = j->known;
    } else {
        o->n_done = unpack_done(j, d->doc, &o->done);
        o->hints = malloc(HINTS_MAX * sizeof(*o->hints));
        if (o->hints) {
            struct key *k = &d->scratch->key;
            key_make(k, &j->request->problem, d->device.class, NULL);
            o->n_hints = (uint32_t)tiers_hints(d, &j->request->problem, k, j->target, HINTS_MAX,
                                               o->hints);
        }
    }
    if (j->closing) {
        close_search(o);
    } else if (j->deaths >= FAVOURITES_MAX && j->n_ok == 0 && j->request->n_configs == 0) {
        /* what the model likes has a common flaw */
        snprintf(o->request.query.strategy, sizeof(o->request.query.strategy), "random");
    }
    o->avoid = j->avoid;
    o->n_avoid = j->n_avoid;
    tune_order_pack(b, o);
    return b->failed ? error_set(err, ERROR_NO_MEMORY, "no memory for the order of a tuning") : 0;
}

/* Thousands of old trials: they would rather be measured again than not at all. False: there are
 * none to forget, so that the order does not get smaller by it. */
static bool forget_done(struct job *j)
{
    bool any = j->n_done > 0;
    wire_buf_deinit(&j->done);
    j->n_done = j->n_ok = 0;
    return any;
}

static void send_order(struct daemon *d, struct job *j)
{
    struct error err = ERROR_NULL;
    struct wire_buf b = WIRE_BUF_NULL;
    struct tune_order *o = calloc(1, sizeof(*o));
    int status = o ? pack_order(d, j, o, &b, &err)
                   : error_set(&err, ERROR_NO_MEMORY, "no memory for the order of a tuning");
    if (o) {
        free(o->done);
        free(o->hints);
        free(o);
    }
    if (status == 0 && b.len > RUNNER_MESSAGE_BYTES_MAX - 4096) {
        wire_buf_deinit(&b);
        if (forget_done(j)) {
            send_order(d, j);
            return;
        }
        status = error_set(&err, ERROR_TOO_LARGE, "the order of this tuning is too large: give fewer "
                                                  "configs");
    }
    if (status < 0) {
        wire_buf_deinit(&b);
        tuning_error(d, &err);
        return;
    }
    j->state = JOB_RUNNING;
    supervisor_tune(&d->supervisor, j->id, &b);
}

/* ---- what was measured before ---------------------------------------------------------------------- */

static void remember(struct job *j, const struct trial *t)
{
    struct wire_buf *b = &j->done;
    size_t before = b->len;
    if (before > RUNNER_MESSAGE_BYTES_MAX) {
        return; /* no order has room for more */
    }
    schema_encode(b, &trial_schema, t);
    if (b->failed) { /* measured again after a death: no harm */
        b->failed = false;
        b->len = before;
    } else {
        j->n_done++;
        j->n_ok += strcmp(t->status, "ok") == 0;
    }
}

static bool worked(const struct trial *t)
{
    return strcmp(t->status, "ok") == 0 || strcmp(t->status, "aborted") == 0;
}

static void avoid(struct job *j, const char *variant)
{
    char(*grown)[HASH_HEX] = realloc(j->avoid, (j->n_avoid + 1) * sizeof(*grown));
    if (grown) {
        j->avoid = grown;
        snprintf(j->avoid[j->n_avoid++], HASH_HEX, "%s", variant);
    }
}

/* When the search that answers this key now ended; 0: none has. */
static int64_t finished_s(struct daemon *d, const struct job *j)
{
    struct answer *a = &d->scratch->answer;
    bool many;
    const struct cache_entry *e = cache_find_id(&d->cache, j->key, &many);
    bool serves = e && e->rank >= CACHE_SERVES && cache_answer(&d->cache, e, a, NULL) == 0;
    return serves ? a->created_s : 0;
}

static void on_history(void *ctx, int status, const struct trial *trials, uint32_t n,
                       char (*quarantined)[HASH_HEX], uint32_t n_quarantined,
                       const struct error *err)
{
    struct daemon *d = ctx;
    struct job *j = running(d);
    if (!j) {
        return;
    }
    if (j->cancelled) {
        tuning_ended(d, j, JOB_CANCELLED);
        return;
    }
    if (status < 0) {
        log_warning("what was measured before for %s is not known: %s", j->key, err->text);
    }
    bool given = j->request->n_configs > 0;
    int64_t finished = j->again ? finished_s(d, j) : 0;
    struct trial *t = &d->scratch->trial;
    for (uint32_t i = 0; status == 0 && i < n; i++) {
        bool old = worked(&trials[i]) && (given || (finished && trials[i].created_s <= finished));
        if (!old) {
            *t = trials[i];
            t->samples_us.n = 0;
            remember(j, t);
        }
    }
    for (uint32_t i = 0; status == 0 && i < n_quarantined; i++) {
        avoid(j, quarantined[i]);
    }
    if (j->n_done) {
        log_info("job %lld: %u trials of before are not repeated", (long long)j->id, j->n_done);
    }
    send_order(d, j);
}

/* ---- beginning --------------------------------------------------------------------------------------- */

/* What is measured now is of this target, and right within the tolerances of the request. */
static int stamp_job(struct daemon *d, struct job *j, const char *target, struct error *err)
{
    const struct query *q = &j->request->query;
    const struct problem *p = &j->request->problem;
    const struct family_target *t;
    int status = daemon_target(d, p, target, &t, err);
    if (status < 0) {
        return status;
    }
    snprintf(j->stamp, sizeof(j->stamp), "%s", daemon_stamp(d, family_of_problem(p), t));
    memcpy(j->trial_stamp, j->stamp, sizeof(j->stamp));
    if (q->atol != USUAL_TOLERANCE || q->rtol != USUAL_TOLERANCE) {
        size_t n = strlen(j->stamp);
        snprintf(j->trial_stamp + n, sizeof(j->trial_stamp) - n, " atol=%g rtol=%g", q->atol,
                 q->rtol);
    }
    return 0;
}

static int unpack(struct daemon *d, struct job *j, struct error *err)
{
    const struct wire_obj *map;
    j->request = calloc(1, sizeof(*j->request));
    if (!j->request) {
        return error_set(err, ERROR_NO_MEMORY, "no memory to tune");
    }
    int status = wire_decode(d->doc, j->search.data, j->search.len, &map, err);
    status = status ? status : request_unpack(j->request, map, err);
    if (status) {
        return status;
    }
    struct query *q = &j->request->query;
    q->budget = q->budget ? q->budget : d->config->budget;
    q->budget_ms = q->budget_ms ? q->budget_ms : d->config->budget_ms;
    j->atol = q->atol;
    j->rtol = q->rtol;
    status = stamp_job(d, j, j->target, err);
    return status ? status : precheck_space(d, j->request, err);
}

/* The tighter of both. The cache keeps floats: the shortest decimal is what was asked for then. */
static double tighter(double asked, float before)
{
    char text[32];
    if (before >= (float)asked) {
        return asked;
    }
    snprintf(text, sizeof(text), "%.7g", (double)before);
    return strtod(text, NULL);
}

/* The known config is looked at alone, and keeps what it was verified with. */
static void look_again(struct daemon *d, struct job *j, const struct cache_entry *e)
{
    struct answer *a = &d->scratch->answer;
    struct query *q = &j->request->query;
    j->known = j->known ? j->known : malloc(sizeof(*j->known));
    if (!j->known || cache_answer(&d->cache, e, a, NULL) < 0) {
        return;
    }
    family_stamp_target(a->stamp, j->known_target);
    q->atol = tighter(q->atol, e->atol);
    q->rtol = tighter(q->rtol, e->rtol);
    if (stamp_job(d, j, j->known_target, NULL) < 0) { /* there is no such target any more */
        q->atol = j->atol;
        q->rtol = j->rtol;
        return;
    }
    record_copy(j->known, &a->config);
    j->reverify = true;
    j->manual = e->manual;
    j->stale = e->rank < CACHE_SERVES;
}

/* What is known already: the answer (while the job was queued another one found it), or a config to
 * look at first: under the tighter tolerances now asked for, or a pin made under another stamp. */
static bool known_already(struct daemon *d, struct job *j, struct wire_buf *answer)
{
    if (j->again || j->pin || j->restricted) {
        return false;
    }
    bool many;
    const struct query *q = &j->request->query;
    const struct cache_entry *e = cache_find_id(&d->cache, j->key, &many);
    if (!e || (e->rank < CACHE_SERVES && !e->manual)) {
        return false;
    }
    if (e->rank >= CACHE_SERVES && cache_verified(e, q->atol, q->rtol)) {
        cache_reply(e, answer);
        return true;
    }
    look_again(d, j, e);
    return false;
}

static void ask_history(struct daemon *d, struct job *j)
{
    j->state = JOB_HISTORY;
    if (d->ledger->ops->history(d->ledger, j->key, j->trial_stamp, d->device.class,
                                d->device.driver, on_history, d) < 0) {
        send_order(d, j);
    }
}

void tuning_begin(struct daemon *d, struct job *j)
{
    struct error err = ERROR_NULL;
    WIRE_BUF_AUTO answer = WIRE_BUF_NULL;
    j->state = JOB_HISTORY;
    j->began_ms = uv_now(&d->loop);
    int status = unpack(d, j, &err);
    if (status < 0) {
        tuning_error(d, &err);
        return;
    }
    if (known_already(d, j, &answer)) {
        job_answer(j, answer.data, answer.len);
        tuning_ended(d, j, JOB_SHARED);
        return;
    }
    elsewhere_lease(d, j);
}

void tuning_leased(struct daemon *d, struct job *j)
{
    WIRE_BUF_AUTO answer = WIRE_BUF_NULL;
    if (j->cancelled) {
        tuning_ended(d, j, JOB_CANCELLED);
        return;
    }
    if (known_already(d, j, &answer)) { /* published while the ledger was asked */
        job_answer(j, answer.data, answer.len);
        tuning_ended(d, j, JOB_SHARED);
        return;
    }
    log_info("job %lld: tuning %s for %u clients", (long long)j->id, j->key, j->n_waiters);
    ask_history(d, j);
}

void tuning_reset(struct job *j)
{
    if (j->request) {
        request_deinit(j->request);
        free(j->request);
    }
    free(j->known);
    j->request = NULL;
    j->known = NULL;
    j->reverify = j->manual = j->stale = false;
}

bool tuning_known(struct daemon *d, struct job *j, struct wire_buf *answer)
{
    struct error err = ERROR_NULL;
    bool known = unpack(d, j, &err) == 0 && known_already(d, j, answer);
    tuning_reset(j);
    return known;
}

void tuning_cancel(struct daemon *d, struct job *j)
{
    log_info("job %lld: nobody waits any more", (long long)j->id);
    if (j->state == JOB_RUNNING && supervisor_cancel(&d->supervisor, j->id)) {
        tuning_ended(d, j, JOB_CANCELLED);
    }
}

/* ---- while it runs --------------------------------------------------------------------------------- */

static void record_trial(struct daemon *d, struct job *j, struct trial *t)
{
    memcpy(t->key, j->key, sizeof(t->key));
    memcpy(t->stamp, j->trial_stamp, sizeof(t->stamp));
    t->created_s = time(NULL);
    d->ledger->ops->add_trial(d->ledger, t);
    if (!worked(t)) {
        memcpy(j->failed_variant, t->variant, sizeof(j->failed_variant));
    } else {
        j->failed_variant[0] = 0;
    }
    t->samples_us.n = 0;
    remember(j, t);
}

void tuning_trial(struct daemon *d, int64_t job, struct trial *t)
{
    struct job *j = running(d);
    if (j && j->id == job) {
        record_trial(d, j, t);
    }
}

void tuning_baseline(struct daemon *d, struct trial *t)
{
    t->created_s = time(NULL);
    d->ledger->ops->add_trial(d->ledger, t);
}

void tuning_module(struct daemon *d, const struct module *m)
{
    d->ledger->ops->add_module(d->ledger, m);
}

void tuning_progress(struct daemon *d, int64_t job, const struct progress *p)
{
    struct job *j = running(d);
    if (!j || j->id != job) {
        return;
    }
    uint64_t now = uv_now(&d->loop);
    bool same_phase = strcmp(j->progress.phase, p->phase) == 0;
    j->progress = *p;
    if (!same_phase || now - j->told_ms >= TELL_EVERY_MS) {
        j->told_ms = now;
        job_tell(j);
    }
}

/* The candidate that was running when the runner died: a failed trial, and never again. */
static void blame(struct daemon *d, struct job *j, const struct death *why,
                  const struct attempt *a)
{
    struct trial *t = &d->scratch->trial;
    if (strcmp(j->failed_variant, a->variant) != 0) { /* else it has been said */
        memset(t, 0, sizeof(*t));
        t->run = d->supervisor.run.id;
        record_copy(&t->config, &a->config);
        memcpy(t->variant, a->variant, sizeof(t->variant));
        memcpy(t->module, a->module, sizeof(t->module));
        const struct family *f = family_of_problem(&j->request->problem);
        snprintf(t->family, sizeof(t->family), "%s", f->name);
        snprintf(t->stage, sizeof(t->stage), "%s", j->pin ? "pin" : "measure");
        snprintf(t->status, sizeof(t->status), "%s", why->status);
        snprintf(t->reason, sizeof(t->reason), "%s", why->reason);
        trial_times_unknown(t);
        record_trial(d, j, t);
    }
    struct quarantine *q = calloc(1, sizeof(*q));
    if (q) {
        memcpy(q->variant, a->variant, sizeof(q->variant));
        memcpy(q->module, a->module, sizeof(q->module));
        snprintf(q->family, sizeof(q->family), "%s", family_of_problem(&j->request->problem)->name);
        record_copy(&q->config, &a->config);
        memcpy(q->key, j->key, sizeof(q->key));
        memcpy(q->class, d->device.class, sizeof(q->class));
        memcpy(q->driver, d->device.driver, sizeof(q->driver));
        snprintf(q->status, sizeof(q->status), "%s", why->status);
        snprintf(q->reason, sizeof(q->reason), "%s", why->reason);
        q->deaths = 1;
        q->created_s = time(NULL);
        d->ledger->ops->add_quarantine(d->ledger, q);
        free(q);
    }
    avoid(j, a->variant);
}

/* A death with a candidate to blame is progress: it is not tried again. So many of them end the
 * search early, with the best of what worked. The device is to blame when nobody else is: no
 * candidate was named, none has worked, or what worked before does not work now. True: the job is
 * over. */
static bool too_many(struct job *j, const struct death *why, struct error *err)
{
    if (j->unnamed_deaths >= UNNAMED_DEATHS_MAX) {
        error_set(err, ERROR_CRASHED, "the runner died %u times with no candidate to blame; last: %s",
                  j->unnamed_deaths, why->reason);
        return true;
    }
    if (j->deaths < DEATHS_MAX) {
        return false;
    }
    if (j->n_ok == 0 || j->deaths >= DEATHS_MAX + CLOSING_DEATHS_MAX) {
        error_set(err, ERROR_CRASHED, "the runner died %u times in this tuning; last: %s", j->deaths,
                  why->reason);
        return true;
    }
    if (!j->closing) {
        log_warning("job %lld: the runner died %u times: the best of %u that worked ends the search",
                    (long long)j->id, j->deaths, j->n_ok);
        j->closing = true;
    }
    return false;
}

void tuning_death(struct daemon *d, const struct death *why, const struct attempt *a)
{
    struct job *j = running(d);
    struct error err = ERROR_NULL;
    if (!j) {
        return;
    }
    if (j->cancelled) {
        tuning_ended(d, j, JOB_CANCELLED);
        return;
    }
    if (why->leaving && ++j->refused < LEAVING_MAX) {
        send_order(d, j);
        return;
    }
    j->deaths++;
    bool named = !why->outside && a->config.n && a->variant[0] && a->job == j->id;
    if (named) {
        blame(d, j, why, a);
    } else {
        j->unnamed_deaths++;
    }
    if (too_many(j, why, &err)) {
        tuning_died(d, j, &err);
    } else if (j->reverify && named) {
        tuning_search(d, j, why->reason);
    } else {
        send_order(d, j);
    }
}

void tuning_search(struct daemon *d, struct job *j, const char *reason)
{
    struct query *q = &j->request->query;
    log_info("job %lld: the known best does not hold (%s): searching", (long long)j->id, reason);
    if (j->stale) {
        daemon_event(d, "pin", j->uid, "%s: the pinned config does not hold under the new stamp: %.160s",
                     j->key, reason);
    }
    /* What failed under tighter tolerances than those asked for may do now; and what is searched may
     * be another target than the known one's. */
    char before[STAMP_MAX];
    memcpy(before, j->trial_stamp, sizeof(before));
    j->reverify = false;
    q->atol = j->atol;
    q->rtol = j->rtol;
    stamp_job(d, j, j->target, NULL); /* it was there when the job began */
    if (strcmp(before, j->trial_stamp) == 0) {
        send_order(d, j);
        return;
    }
    forget_done(j);
    ask_history(d, j);
}
