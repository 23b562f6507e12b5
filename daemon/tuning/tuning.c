/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Beginning and middle of a running job: earlier trials, the order, trials, deaths. job_end.c has
 * its ends.
 *
 * Trials that count as done are finished trials of this key with today's stamp. A trial's stamp
 * also names tolerances other than 0.01, since a result that was right within 0.1 may be wrong
 * within 0.01. When a key is tuned again, only failures and the trials of an unfinished tuning
 * count as done. Failures of the config that answers the key now are repeated, since the config has
 * worked after them. Configs that the request gives are always measured.
 */
#include <string.h>

#include "daemon/answers/learn.h"
#include "daemon/base/log.h"
#include "daemon/tuning/tuning.h"

enum {
    LEAVING_MAX = 5,
    TELL_EVERY_MS = 100, /* time between progress messages of a request */
};

static void tuning_send_order(struct tuning *x, struct job *j);
static void ask_history(struct tuning *x, struct job *j);

/* ---- ends, and new beginnings ---------------------------------------------------------------- */

void tuning_search_anew(struct tuning *x, struct job *j, int code, const char *reason)
{
    struct daemon *d = x->daemon;
    struct query *q = &j->request->query;
    char name[JOB_NAME_MAX];
    job_name(j, name, sizeof(name));
    log_info("the known best of %s does not hold (%s): searching", name, reason);
    if (j->stale) {
        daemon_event(d, "pin", j->uid,
                     "%s: the pinned config does not hold under the new stamp: %.160s", j->key,
                     reason);
    }
    confirm_failed(x, j, code, reason);
    /* Trials that failed under tighter tolerances may pass now, and the search may be for another
     * target than the known config's. */
    char before[STAMP_MAX];
    memcpy(before, j->trial_stamp, sizeof(before));
    j->reverify = false;
    q->atol = j->atol;
    q->rtol = j->rtol;
    tuning_stamp(d, j, j->target, NULL); /* it cannot fail: the target existed when the job began */
    if (strcmp(before, j->trial_stamp) == 0) {
        tuning_send_order(x, j);
        return;
    }
    tuning_forget(j);
    ask_history(x, j);
}

void tuning_on_error(struct tuning *x, const struct error *e)
{
    struct job *j = x->scheduler.running;
    if (j->cancelled || e->code == ERROR_CANCELLED) {
        tuning_ended(x, j, JOB_CANCELLED);
    } else if (j->reverify) {
        tuning_search_anew(x, j, e->code, e->text);
    } else {
        bool nothing_lived = j->deaths >= FAVOURITES_MAX && j->n_ok == 0;
        bool just_died = e->code == ERROR_QUARANTINED && j->died;
        confirm_failed(x, j, e->code, just_died ? j->died->text : e->text);
        tuning_failed(x, j, just_died ? j->died : e, nothing_lived ? JOB_DIED : JOB_FAILED);
    }
}

/* Lets the job avoid every quarantined variant that this daemon knows, also variants that the
 * database does not list as quarantined yet: the disk may be full. */
static void avoid_quarantined(const struct daemon *d, struct job *j)
{
    for (uint32_t i = 0; i < d->quarantine_set.n; i++) {
        tuning_avoid(j, d->quarantine_set.all[i].variant);
    }
}

static void tuning_send_order(struct tuning *x, struct job *j)
{
    struct error err = ERROR_NULL;
    WIRE_BUF_AUTO order = WIRE_BUF_NULL;
    if (x->scheduler.off.code) { /* the runner got stuck meanwhile, which switched tuning off */
        tuning_failed(x, j, &x->scheduler.off, JOB_FAILED);
        return;
    }
    avoid_quarantined(x->daemon, j);
    if (tuning_order(x, j, &order, &err) < 0) {
        tuning_on_error(x, &err);
        return;
    }
    j->state = JOB_RUNNING;
    supervisor_tune(&x->supervisor, j->id, &order);
    tuning_others(x);
}

void tuning_others(struct tuning *x)
{
    const struct job *j = x->scheduler.running;
    if (j && j->state == JOB_RUNNING && scheduler_others_wait(&x->scheduler)) {
        supervisor_others_wait(&x->supervisor, j->id);
    }
}

/* ---- earlier trials -------------------------------------------------------------------------- */

/* The answer that serves this key now, or NULL. */
static const struct answer *answers_now(struct daemon *d, const struct job *j)
{
    struct answer *a = &d->scratch->answer;
    const struct cache_entry *e = cache_find_id(&d->cache, j->key, NULL);
    bool serves = e && e->rank >= CACHE_SERVES && cache_answer(&d->cache, e, a, NULL) == 0;
    return serves ? a : NULL;
}

/* True when an earlier trial must be repeated. `former`: the key's present answer when the key is
 * tuned again, else NULL. */
static bool is_repeated(const struct job *j, const struct trial *t, const struct answer *former)
{
    bool over = former && t->created_s <= former->created_s;
    if (over && record_equal(&t->config, &former->config)) {
        return true;
    }
    /* A trial that was stopped early lost against a config that the restriction may exclude. */
    bool cut = j->request->n_restrict > 0 && strcmp(t->status, "aborted") == 0;
    return tuning_worked(t) && (over || cut || j->request->n_configs > 0);
}

static void on_history(void *ctx, int status, const struct trial *trials, uint32_t n,
                       char (*quarantined)[HASH_HEX], uint32_t n_quarantined,
                       const struct error *err)
{
    struct tuning *x = ctx;
    struct daemon *d = x->daemon;
    struct job *j = x->scheduler.running;
    if (!j) {
        return;
    }
    if (j->cancelled) {
        tuning_ended(x, j, JOB_CANCELLED);
        return;
    }
    if (status < 0) {
        log_warning("the earlier trials of %s are unknown: %s", j->key, err->text);
    }
    if (status == 0) {
        quarantine_known(d, quarantined, n_quarantined);
    }
    const struct answer *former = j->again ? answers_now(d, j) : NULL;
    struct trial *t = &d->scratch->trial;
    for (uint32_t i = 0; status == 0 && i < n; i++) {
        if (!is_repeated(j, &trials[i], former)) {
            *t = trials[i];
            t->samples_us.n = 0;
            tuning_remember(j, t);
        }
    }
    if (j->n_done) {
        log_debug("job %lld: %u trials of before are not repeated", (long long)j->id, j->n_done);
    }
    tuning_send_order(x, j);
}

/* ---- beginning ------------------------------------------------------------------------------- */

static void ask_history(struct tuning *x, struct job *j)
{
    struct daemon *d = x->daemon;
    j->state = JOB_HISTORY;
    if (ledger_history(d->ledger, j->key, j->trial_stamp, d->device.class, d->device.driver,
                       on_history, x) < 0) {
        tuning_send_order(x, j);
    }
}

/* Ends the job if another tuning has published an answer meanwhile. */
static bool tuning_end_if_known(struct tuning *x, struct job *j)
{
    WIRE_BUF_AUTO answer = WIRE_BUF_NULL;
    bool known = tuning_known(x->daemon, j, &answer);
    if (known) {
        job_answer(j, answer.data, answer.len);
        tuning_ended(x, j, JOB_SHARED);
    }
    return known;
}

/* Continues a job that was set aside, with its trials. */
static void tuning_go_on(struct tuning *x, struct job *j)
{
    j->set_aside = false;
    tuning_send_order(x, j);
}

void tuning_begin(struct tuning *x, struct job *j)
{
    struct error err = ERROR_NULL;
    if (j->set_aside && j->leased) {
        tuning_go_on(x, j);
        return;
    }
    if (!j->set_aside) {
        j->state = JOB_HISTORY;
        j->began_ms = uv_now(&x->daemon->loop);
        if (tuning_unpack(x->daemon, j, &err) < 0) {
            tuning_on_error(x, &err);
            return;
        }
        if (tuning_end_if_known(x, j)) {
            return;
        }
    }
    job_lease_take(x, j);
}

void tuning_leased(struct tuning *x, struct job *j)
{
    if (j->cancelled) {
        tuning_ended(x, j, JOB_CANCELLED);
    } else if (tuning_end_if_known(x, j)) {
        return; /* an answer came while the ledger leased the key, or while the job was set aside */
    } else if (j->set_aside) {
        tuning_go_on(x, j);
    } else {
        log_debug("job %lld: tuning %s for %u clients", (long long)j->id, j->key, j->n_waiters);
        ask_history(x, j);
    }
}

void tuning_cancel(struct tuning *x, struct job *j)
{
    log_debug("job %lld: no client waits any more", (long long)j->id);
    if (j->state == JOB_RUNNING && supervisor_cancel(&x->supervisor, j->id)) {
        tuning_ended(x, j, JOB_CANCELLED);
    }
}

/* ---- while it runs --------------------------------------------------------------------------- */

void tuning_on_trial(struct tuning *x, int64_t job, struct trial *t)
{
    struct job *j = x->scheduler.running;
    if (j && j->id == job) {
        tuning_record(x, j, t);
    }
}

void tuning_on_progress(struct tuning *x, int64_t job, const struct progress *p)
{
    struct job *j = x->scheduler.running;
    if (!j || j->id != job) {
        return;
    }
    uint64_t now = uv_now(&x->daemon->loop);
    bool same_phase = strcmp(j->progress.phase, p->phase) == 0;
    j->progress = *p;
    if (!same_phase || now - j->told_ms >= TELL_EVERY_MS) {
        j->told_ms = now;
        job_tell(j);
    }
}

void tuning_on_death(struct tuning *x, const struct death *why, const struct attempt *a)
{
    struct job *j = x->scheduler.running;
    struct error err = ERROR_NULL;
    if (j->cancelled) {
        tuning_ended(x, j, JOB_CANCELLED);
        return;
    }
    if (why->leaving && ++j->refused < LEAVING_MAX) {
        tuning_send_order(x, j);
        return;
    }
    bool known = !why->outside && a->config.n && a->variant[0];
    struct job *other = known ? scheduler_find_aside(&x->scheduler, a->job) : NULL;
    if (other) {
        /* the runner died while it still compiled the kernel of another job: this job is not to
         * blame */
        tuning_blame(x, other, why, a);
        tuning_send_order(x, j);
        return;
    }
    j->deaths++;
    bool named = known && a->job == j->id;
    if (named) {
        tuning_blame(x, j, why, a);
    } else {
        /* a hang counts twice: it takes minutes */
        j->unnamed_deaths += why->code == ERROR_HUNG ? 2 : 1;
    }
    if (tuning_too_many(j, why, &err)) {
        tuning_failed(x, j, &err, JOB_DIED);
    } else if (j->reverify && named) {
        tuning_search_anew(x, j, why->code, why->reason);
    } else {
        tuning_send_order(x, j);
    }
}

/* Switches tuning off, and fails the job. The device cannot be used until its runner has ended, or
 * cannot be used by this build at all. */
void tuning_on_stuck(struct tuning *x, int64_t job, const struct error *e)
{
    struct job *j = x->scheduler.running;
    scheduler_switch_off(&x->scheduler, e);
    if (!job || !j || j->id != job) {
        return;
    }
    if (j->cancelled) {
        tuning_ended(x, j, JOB_CANCELLED);
    } else {
        tuning_failed(x, j, e, JOB_DIED);
    }
}

/* Sets the job aside, with its trials, and with its lease while it has waiters. */
static void tuning_set_aside(struct tuning *x, struct job *j, const struct tune_result *r)
{
    j->spent_device_ms = r->device_ms;
    j->spent_ms = r->wall_ms;
    j->refused = 0;
    if (!scheduler_others_wait(&x->scheduler)) { /* no other job waits any more */
        tuning_send_order(x, j);
        return;
    }
    char name[JOB_NAME_MAX];
    job_name(j, name, sizeof(name));
    log_info("the tuning of %s is set aside, %u trials so far: others wait for the device", name,
             j->n_done);
    daemon_event(x->daemon, "set_aside", j->uid, "%s: %llu ms, of these %.0f in the runner: %s",
                 j->key, (unsigned long long)(uv_now(&x->daemon->loop) - j->began_ms), r->wall_ms,
                 r->timeline);
    scheduler_set_aside(&x->scheduler, j);
    job_lease_left(x, j);
}

/* Ends a job that needs a quiet device, unless a request that does not need it has joined. The
 * attempt does not count in the key's `tries`, which limit repeated measurements (remeasure.c). */
static void put_off(struct tuning *x, struct job *j, const char *reason)
{
    struct cache_entry *e = cache_find_id(&x->daemon->cache, j->key, NULL);
    if (!j->quiet) {
        tuning_send_order(x, j);
        return;
    }
    char name[JOB_NAME_MAX];
    job_name(j, name, sizeof(name));
    log_info("the tuning of %s is put off: %s", name, reason);
    if (e && e->tries > 0) {
        e->tries--;
    }
    tuning_ended(x, j, JOB_PUT_OFF);
}

void tuning_on_result(struct tuning *x, const struct tune_result *r)
{
    struct job *j = x->scheduler.running;
    if (r->doubt[0] && !r->in_use) {
        memcpy(j->doubt, r->doubt, sizeof(j->doubt));
    }
    if (!r->set_aside && !r->in_use) {
        tuning_finish(x, j, r);
    } else if (j->cancelled) {
        tuning_ended(x, j, JOB_CANCELLED);
    } else if (r->in_use) {
        put_off(x, j, r->doubt);
    } else {
        tuning_set_aside(x, j, r);
    }
}

/* ---- opening and closing --------------------------------------------------------------------- */

void tuning_init(struct tuning *x, struct daemon *d, struct tiers *tiers, struct accounts *accounts)
{
    *x = (struct tuning){.daemon = d, .tiers = tiers, .accounts = accounts};
    x->scheduler.tuning = x;
    list_init(&x->scheduler.jobs);
    list_init(&x->scheduler.queue);
    list_init(&x->pauses.sessions);
    list_init(&x->pauses.requests);
    uv_timer_init(&d->loop, &x->scheduler.next);
    supervisor_init(&x->supervisor, x);
    precompile_init(&x->precompiler, d, &x->scheduler);
    uv_timer_init(&d->loop, &x->deadlines);
    x->scheduler.next.data = &x->scheduler;
    x->deadlines.data = x;
}

void tuning_stop(struct tuning *x, void (*stopped)(struct tuning *x))
{
    x->stopped = stopped;
    job_lease_stop(x);
    scheduler_stop(&x->scheduler);
    precompile_stop(&x->precompiler);
    uv_close((uv_handle_t *)&x->deadlines, NULL);
    supervisor_stop(&x->supervisor);
}
