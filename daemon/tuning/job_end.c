/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a job: by a result, which is made durable before any answer; by an error; by
 * cancellation.
 *
 * Not every winner becomes the key's answer. A pin outlives any tuning. The winner of a restricted
 * search does not replace the winner of a whole search, nor does a winner that was verified with
 * looser tolerances than the key's row. Then the winner answers only its own search
 * (cache/partials.c); the trials are kept.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/answers/learn.h"
#include "daemon/answers/target.h"
#include "daemon/base/log.h"
#include "daemon/cache/answer.h"
#include "daemon/tuning/tuning.h"

/* ---- the line of the log --------------------------------------------------------------------- */

/* True when the winner is a person's choice: pinned now, or a pin that was verified again. */
static bool is_pin(const struct job *j)
{
    return j->pin || (j->reverify && j->manual);
}

/* Logs a tuned problem and its result. The comparison with the former best ends the line. */
static void job_end_log_result(const struct job *j, const char *name, double s)
{
    const struct best *b = j->best;
    char ratio[48] = "";
    if (b->time_us > 0 && b->reference_us > 0) {
        snprintf(ratio, sizeof(ratio), ", %.2fx the default", b->reference_us / b->time_us);
    }
    log_info("%s %s: %.*f us%s, %lld config%s, %lld failed, %.1f s%s%s",
             is_pin(j)     ? "pinned"
             : j->confirms ? "confirmed"
                           : "tuned",
             name, b->time_us < 100 ? 2 : 1, b->time_us, ratio, (long long)b->measured,
             b->measured == 1 ? "" : "s", (long long)j->progress.failed, s, j->gate ? "; " : "",
             j->gate ? j->gate : "");
}

static void job_end_log(struct tuning *x, const struct job *j, enum job_end how,
                        const struct error *e)
{
    static const char *const words[] = {
        [JOB_CANCELLED] = "was cancelled",
        [JOB_SHARED] = "was answered by another tuning",
    };
    const double s = (double)(uv_now(&x->daemon->loop) - j->began_ms) * 1e-3;
    char name[JOB_NAME_MAX];
    job_name(j, name, sizeof(name));
    if (e) {
        log_warning("cannot tune %s: %s; gave up after %.1f s", name, e->text, s);
    } else if (how == JOB_DONE) {
        job_end_log_result(j, name, s);
    } else if (how != JOB_PUT_OFF) { /* logged with the reason, by tuning.c */
        log_info("the tuning of %s %s after %.1f s", name, words[how], s);
    }
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void job_end_finish(struct tuning *x, struct job *j, enum job_end how)
{
    if (how == JOB_CANCELLED) {
        struct error e = ERROR_NULL;
        error_set(&e, ERROR_CANCELLED, "cancelled");
        /* answers the waiters that joined after the cancelled job's last waiter had left */
        job_fail(j, &e);
    }
    offers_dropped(x, j); /* before the lease, whose end brings other daemons to the offer */
    job_lease_release(x, j);
    if (j->set_aside) {
        supervisor_forget(&x->supervisor, j->id);
    }
    scheduler_ended(&x->scheduler, j, how);
}

void tuning_ended(struct tuning *x, struct job *j, enum job_end how)
{
    job_end_log(x, j, how, NULL);
    job_end_finish(x, j, how);
}

void tuning_failed(struct tuning *x, struct job *j, const struct error *e, enum job_end how)
{
    job_end_log(x, j, how, e);
    job_fail(j, e);
    job_end_finish(x, j, how);
}

/* ---- a result -------------------------------------------------------------------------------- */

/* The number of configs that the best was compared with. A verification compares with no others, so
 * the number of the key's row stays when it is larger. */
static int64_t job_end_count_measured(struct daemon *d, const struct job *j,
                                      const struct tune_result *r)
{
    struct answer *a = &d->scratch->hint;
    const struct cache_entry *e = j->reverify ? cache_find_id(&d->cache, j->key, NULL) : NULL;
    bool before = e && cache_answer(&d->cache, e, a, NULL) == 0 && a->measured > r->measured;
    return before ? a->measured : r->measured;
}

static void fill_best(struct daemon *d, const struct job *j, const struct tune_result *r,
                      struct best *b)
{
    const struct problem *bucket = &j->request->problem;
    const struct family *f = family_of_problem(bucket);
    memcpy(b->key, j->key, sizeof(b->key));
    snprintf(b->op, sizeof(b->op), "%s", bucket->op_name);
    snprintf(b->family, sizeof(b->family), "%s", f->name);
    record_copy(&b->problem, &bucket->fields);
    memcpy(b->class, d->device.class, sizeof(b->class));
    snprintf(b->source, sizeof(b->source), "%s",
             is_pin(j)       ? "manual"
             : j->confirms   ? "fleet"
             : j->restricted ? "partial"
                             : "tuned");
    record_copy(&b->config, &r->config);
    memcpy(b->module, r->module, sizeof(b->module));
    b->time_us = r->time_us;
    b->spread = r->spread;
    b->reference_us = r->reference_us;
    best_work(b, f, bucket, &d->device);
    b->atol = j->request->query.atol;
    b->rtol = j->request->query.rtol;
    b->measured = job_end_count_measured(d, j, r);
    memcpy(b->stamp, j->stamp, sizeof(b->stamp));
    b->uid = j->uid;
    b->created_s = time(NULL);
    memcpy(b->doubt, j->doubt, sizeof(b->doubt));
    char says[DOUBT_MAX];
    confidence_is_low(b, says);
    snprintf(b->doubt, sizeof(b->doubt), "%s", says);
}

/* True when a pin must give way: its verification failed, or its kernel was quarantined at its
 * key. */
static bool pin_gives_way(struct daemon *d, const struct job *j, const struct cache_entry *e)
{
    struct answer *a = &d->scratch->hint;
    return e->rank < CACHE_SERVES &&
           (j->stale || (cache_answer(&d->cache, e, a, NULL) == 0 &&
                         target_is_quarantined(d, j->key, a, &j->request->problem)));
}

/* True when the row that serves the key was verified under tighter tolerances than the winner. */
static bool job_end_is_looser(struct daemon *d, const struct job *j)
{
    const struct cache_entry *e = cache_find_id(&d->cache, j->key, NULL);
    return !is_pin(j) && e && e->rank >= CACHE_SERVES &&
           (j->best->atol > e->atol || j->best->rtol > e->rtol);
}

/* Returns the reason that keeps this winner from becoming the key's answer; NULL: no reason. */
static const char *kept_apart(struct daemon *d, const struct job *j)
{
    const struct cache_entry *e = cache_find_id(&d->cache, j->key, NULL);
    if (j->pin || (j->confirms && e)) {
        return NULL; /* the ledger ranks a row of the fleet below the better rows of its key */
    }
    if (is_pin(j)) {
        return e && e->manual ? NULL : "its pin was taken back meanwhile";
    }
    if (!e) {
        return j->reverify ? "its key was evicted meanwhile" : NULL;
    }
    if (e->manual && !pin_gives_way(d, j, e)) {
        return "a pinned config answers this key; unpin it, then tune";
    }
    if (j->restricted && e->rank >= CACHE_SERVES) {
        return "winner of a restricted search; the key keeps its own answer";
    }
    if (job_end_is_looser(d, j)) {
        return "verified less tightly than the key's own row, which stays its answer";
    }
    return NULL;
}

/* True when the answer may be stored for later requests of the same search (cache/partials.c). An
 * answer says whether its row is saved, so the answer of a row that is not saved yet is not
 * stored. */
static bool answers_again(struct daemon *d, const struct job *j, bool saved)
{
    return (j->restricted || job_end_is_looser(d, j)) && !j->pin && !j->closing &&
           j->request->n_configs == 0 && (saved || j->state != JOB_PUBLISHING);
}

static void job_end_answer_all(struct tuning *x, struct job *j, const struct best *b, bool saved,
                               const char *note)
{
    struct answer *a = &x->daemon->scratch->answer;
    WIRE_BUF_AUTO packed = WIRE_BUF_NULL;
    answer_of_best(a, b, saved);
    if (note[0]) {
        answer_note(a, "%s", note);
    }
    schema_encode(&packed, &answer_schema, a);
    if (answers_again(x->daemon, j, saved)) {
        partials_put(&x->daemon->cache.partials, j->key, &j->search, &packed);
    }
    x->daemon->answers[TIER_EXACT] += j->n_waiters;
    job_answer(j, packed.data, packed.len);
    tuning_ended(x, j, JOB_DONE);
}

static void on_published(void *ctx, int status, const struct best *b, bool saved,
                         const struct error *err)
{
    struct tuning *x = ctx;
    struct daemon *d = x->daemon;
    struct job *j = x->scheduler.running;
    if (!j) {
        return;
    }
    if (status == ERROR_CONFLICT) {
        /* a row of another daemon, unknown here until now, stays the key's answer */
        job_end_answer_all(x, j, j->best, false, err ? err->text : error_name(status));
        return;
    }
    if (!saved) {
        log_error("the best of %s is not saved: %s", j->key, err ? err->text : error_name(status));
    }
    const struct best *known = b ? b : j->best;
    learn_best(d, known, saved);
    x->fleet.confirmed += j->confirms;
    if (is_pin(j)) {
        daemon_event(d, "pin", j->uid, "%s: %s", j->key,
                     j->pin ? "pinned" : "the pin was verified again");
    }
    char note[GATE_TEXT_MAX] = "";
    if (j->closing) {
        snprintf(note, sizeof(note),
                 "the search ended early: the runner died %u times; see "
                 "quarantine",
                 j->deaths);
    } else if (j->gate && !known->doubt[0]) {
        snprintf(note, sizeof(note), "%s", j->gate);
    }
    job_end_answer_all(x, j, known, saved, note);
}

/* Publishes the best with the generation of the key's row that this daemon knows: only the ledger's
 * transaction sees whether another daemon has published a newer row. A new pin replaces any row. */
static int job_end_publish_best(struct tuning *x, struct job *j)
{
    struct daemon *d = x->daemon;
    const struct cache_entry *e = j->pin ? NULL : cache_find_id(&d->cache, j->key, NULL);
    j->best->generation = j->confirms ? j->candidate : e ? e->generation : 0;
    int status = ledger_publish(d->ledger, j->best, on_published, x);
    j->best->generation = 0; /* the best itself has no generation yet */
    return status;
}

/* Keeps the text of the decision between the former best and the winner, and adds an event. */
static void note_gate(struct daemon *d, struct job *j, const char *sentence)
{
    if (sentence[0]) {
        daemon_event(d, "gate", j->uid, "%s: %s", j->key, sentence);
        free(j->gate);
        j->gate = strdup(sentence);
    }
}

void tuning_finish(struct tuning *x, struct job *j, const struct tune_result *r)
{
    struct daemon *d = x->daemon;
    struct error err = ERROR_NULL;
    if (confirm_judge_result(j, r, &err) < 0) {
        if (j->reverify) {
            tuning_search_anew(x, j, err.code, err.text);
        } else {
            tuning_on_error(x, &err);
        }
        return;
    }
    j->best = calloc(1, sizeof(*j->best));
    if (!j->best) {
        error_set(&err, ERROR_NO_MEMORY, "no memory to keep the result");
        tuning_failed(x, j, &err, JOB_FAILED);
        return;
    }
    fill_best(d, j, r, j->best);
    daemon_event(d, "tuned", j->uid, "%s: %llu ms, of these %.0f in the runner: %s", j->key,
                 (unsigned long long)(uv_now(&d->loop) - j->began_ms), r->wall_ms, r->timeline);
    note_gate(d, j, r->gate);
    memcpy(x->supervisor.disturbed, j->doubt, sizeof(x->supervisor.disturbed));
    if (j->doubt[0]) {
        char name[JOB_NAME_MAX];
        job_name(j, name, sizeof(name));
        log_warning("tuning %s: %s", name, j->doubt);
        daemon_event(d, "disturbed", j->uid, "%s: %s", j->key, j->doubt);
    }
    const char *apart = kept_apart(d, j);
    if (apart) {
        job_end_answer_all(x, j, j->best, false, apart);
        return;
    }
    j->state = JOB_PUBLISHING;
    if (job_end_publish_best(x, j) < 0) {
        on_published(x, ERROR_DISK_FULL, NULL, false, NULL);
    }
}
