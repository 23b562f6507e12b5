/* SPDX-License-Identifier: Apache-2.0 */
/* Leases of keys, and jobs whose keys other daemons have leased (tuning.h). */
#include <string.h>

#include "daemon/base/log.h"
#include "daemon/tuning/tuning.h"
#include "store/store.h"

void job_lease_stop(struct tuning *x)
{
    LIST_EACH(struct job, j, &x->scheduler.jobs, all) {
        job_lease_release(x, j);
    }
}

/* ---- the fleet ------------------------------------------------------------------------------- */

/* True for a search whose result the fleet may have or want: a whole search for a key's answer.
 * `again` asks for a measurement here. A job that verifies a known config need not be spared. */
static bool is_shared(const struct tuning *x, const struct job *j)
{
    return !j->pin && !j->restricted && !j->again && !j->reverify && j->kernels[0] &&
           x->daemon->config->fleet_ms > 0;
}

static struct ledger_share share_of(const struct tuning *x, const struct job *j)
{
    return (struct ledger_share){.key = j->key,
                                 .class = x->daemon->device.class,
                                 .stamp = j->kernels,
                                 .fleet_ms = x->daemon->config->fleet_ms};
}

static void ask_fleet(struct tuning *x, struct job *j)
{
    const struct cache_entry *e = cache_find_id(&x->daemon->cache, j->key, NULL);
    if (is_shared(x, j) && !j->asked && !j->set_aside && !(e && e->candidate)) {
        const struct ledger_share w = share_of(x, j);
        ledger_ask_fleet(x->daemon->ledger, &w);
        j->asked = true;
    }
}

void job_lease_queued(struct tuning *x, struct job *j)
{
    if (x->fleet.answers && x->scheduler.running) {
        ask_fleet(x, j);
    }
}

/* Notes what the attempt to lease a key says about the fleet. When it was asked, asks for the whole
 * queue: the fleet answers all keys together, and the device would wait for each. */
static void note_fleet(struct tuning *x, struct job *j, int status)
{
    j->asked = j->asked || status == STORE_ASKED;
    x->fleet.waits += status == STORE_ASKED;
    x->fleet.alone += status == STORE_ALONE;
    if (status == STORE_ASKED || status == STORE_ALONE || (status == 0 && !j->asked)) {
        x->fleet.answers = status == STORE_ASKED;
    }
    if (status != STORE_ASKED) {
        return;
    }
    LIST_EACH(struct job, queued, &x->scheduler.queue, link) {
        ask_fleet(x, queued);
    }
}

/* ---- leasing --------------------------------------------------------------------------------- */

static void step_aside(struct tuning *x, struct job *j)
{
    log_debug("job %lld: another gemmd has %s", (long long)j->id, j->key);
    if (!j->set_aside) {
        job_reset(j);
    }
    scheduler_step_aside(&x->scheduler, j);
}

static void job_lease_on_leased(void *ctx, int status, const struct error *err)
{
    struct tuning *x = ctx;
    struct job *j = x->scheduler.running;
    if (!j) {
        return;
    }
    j->leased = status == 0 || status == STORE_ALONE;
    j->was_leased_out = false;
    note_fleet(x, j, status);
    if (status > 0 && !j->leased && !j->cancelled) {
        step_aside(x, j);
        return;
    }
    if (status < 0) { /* without the ledger go on: tuning a key twice is better than no tuning */
        log_warning("job %lld: its key is not leased: %s", (long long)j->id, err->text);
    }
    tuning_leased(x, j);
}

void job_lease_take(struct tuning *x, struct job *j)
{
    struct daemon *d = x->daemon;
    const struct ledger_share w = share_of(x, j);
    j->state = JOB_LEASING;
    if (j->pin || j->restricted || d->config->offline) {
        tuning_leased(x, j);
        return;
    }
    int status = is_shared(x, j)
                     ? ledger_share(d->ledger, &w, job_lease_on_leased, x)
                     : ledger_lease(d->ledger, j->key, LEASE_LEDGER_MS, job_lease_on_leased, x);
    if (status < 0) {
        tuning_leased(x, j);
    }
}

void job_lease_release(struct tuning *x, struct job *j)
{
    struct daemon *d = x->daemon;
    if ((j->leased || j->asked) && d->ledger) {
        ledger_unlease(d->ledger, j->key);
    }
    j->leased = j->asked = false;
}

void job_lease_left(struct tuning *x, struct job *j)
{
    if (j->set_aside && !j->n_waiters) {
        job_lease_release(x, j);
    }
}

static void on_renewed(void *ctx, int status, const struct error *err)
{
    if (status == STORE_HELD) {
        log_warning("another gemmd tunes the same key: this one did not answer for a while");
    }
}

/* ---- coming back ----------------------------------------------------------------------------- */

void job_lease_freed(struct tuning *x, const char *key)
{
    LIST_EACH(struct job, j, &x->scheduler.jobs, all) {
        if (j->state == JOB_LEASED_OUT && (!key[0] || strcmp(j->key, key) == 0)) {
            scheduler_come_back(&x->scheduler, j);
        }
    }
    scheduler_next(&x->scheduler);
}

/* Answers the waiters of a job that does not run, after its key's answer was published. A job that
 * was set aside and still has its lease goes on later, as a running job does. */
static void answer_waiting(struct tuning *x, struct job *j, bool searched)
{
    WIRE_BUF_AUTO answer = WIRE_BUF_NULL;
    struct error err = ERROR_NULL;
    if (j->set_aside && j->leased) {
        return;
    }
    if (searched && j->state == JOB_LEASED_OUT && !j->restricted && !j->pin) {
        /* another daemon has just tuned the key, so its answer is new enough for `again` */
        j->again = false;
    }
    bool known = (j->set_aside || tuning_unpack(x->daemon, j, &err) == 0) &&
                 tuning_known(x->daemon, j, &answer);
    if (!j->set_aside) {
        job_reset(j); /* it has not begun */
    }
    if (known) {
        x->daemon->answers[TIER_EXACT] += j->n_waiters;
        job_answer(j, answer.data, answer.len);
        scheduler_drop(&x->scheduler, j);
        x->scheduler.shared++;
    }
}

void job_lease_learned(struct tuning *x, const char *key, bool searched)
{
    LIST_EACH(struct job, j, &x->scheduler.jobs, all) {
        if (j != x->scheduler.running && strcmp(j->key, key) == 0) {
            answer_waiting(x, j, searched);
        }
    }
}

static void job_lease_renew_key(struct tuning *x, struct job *j)
{
    struct daemon *d = x->daemon;
    if (pauses_are_overdue(x, j)) {
        job_lease_release(x, j);
    }
    if (j->leased && d->ledger) {
        ledger_lease(d->ledger, j->key, LEASE_LEDGER_MS, on_renewed, d);
    }
}

/* Brings a few jobs back, from the job after `from` on. Returns how many. The device needs only one
 * key, and each attempt is a transaction. */
static unsigned job_lease_retry(struct tuning *x, int64_t from, int64_t to, unsigned most)
{
    unsigned n = 0;
    LIST_EACH(struct job, j, &x->scheduler.jobs, all) {
        if (n < most && j->state == JOB_LEASED_OUT && j->id > from && j->id <= to) {
            scheduler_come_back(&x->scheduler, j);
            x->last_retried = j->id;
            n++;
        }
    }
    return n;
}

void job_lease_tick(struct tuning *x)
{
    enum { RETRIED_MOST = 16 };
    const int64_t last = x->last_retried;
    LIST_EACH(struct job, j, &x->scheduler.jobs, all) {
        job_lease_renew_key(x, j);
    }
    if (x->scheduler.n_leased_out) {
        unsigned n = job_lease_retry(x, last, INT64_MAX, RETRIED_MOST);
        job_lease_retry(x, 0, last, RETRIED_MOST - n);
        scheduler_next(&x->scheduler);
    }
}
