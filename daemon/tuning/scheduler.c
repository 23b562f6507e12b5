/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which job runs, and judges the device by the ends of jobs (tuning.h). tuning.c runs a
 * job, waiters.c has the waiters. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "daemon/tuning/tuning.h"

enum {
    BEFORE_ASIDE = 3 /* at most so many other jobs with waiters run before a job that was set
                      * aside for its compiles */
};

static void on_next(uv_timer_t *timer);

void scheduler_next(struct scheduler *s)
{
    if (!s->running && s->n_queued && !s->stopping && !uv_is_active((uv_handle_t *)&s->next)) {
        uv_timer_start(&s->next, on_next, 0, 0);
    }
    if (!s->running && !s->n_queued) {
        offers_take(s->tuning);
    }
}

uint64_t scheduler_busy_ms(const struct scheduler *s)
{
    return s->busy_ms + (s->running ? uv_now(&s->tuning->daemon->loop) - s->since_ms : 0);
}

static void set_running(struct scheduler *s, struct job *j)
{
    s->busy_ms = scheduler_busy_ms(s);
    s->since_ms = uv_now(&s->tuning->daemon->loop);
    s->running = j;
    s->tuning->daemon->tuning = j != NULL;
}

static void scheduler_unqueue(struct scheduler *s, struct job *j)
{
    list_remove(&j->link);
    if (j->state == JOB_LEASED_OUT) {
        s->n_leased_out--;
    } else {
        s->n_queued--;
    }
}

void scheduler_drop(struct scheduler *s, struct job *j)
{
    scheduler_unqueue(s, j);
    j->state = JOB_QUEUED; /* the end of its own lease must not bring it back to the queue */
    offers_dropped(s->tuning, j);
    job_lease_release(s->tuning, j);
    if (j->set_aside) {
        supervisor_forget(&s->tuning->supervisor, j->id);
    }
    job_free(j);
}

static void on_next(uv_timer_t *timer)
{
    struct scheduler *s = timer->data;
    struct job *next = NULL;
    LIST_EACH(struct job, j, &s->queue, link) {
        if (!next || (j->n_waiters && !next->n_waiters)) {
            next = j;
        }
        if (next->n_waiters) {
            break;
        }
    }
    if (next && !s->running) {
        scheduler_unqueue(s, next);
        set_running(s, next);
        tuning_begin(s->tuning, next);
    }
}

bool scheduler_others_wait(const struct scheduler *s)
{
    const struct job *running = s->running;
    LIST_EACH(const struct job, j, &s->queue, link) {
        if (running && (j->n_waiters || !running->n_waiters) && !j->was_leased_out &&
            strcmp(j->key, running->key) != 0) {
            return true;
        }
    }
    return false;
}

/* Finds the place for a job that is set aside: the node before which the job goes, or the queue
 * itself for the end. */
static struct list *place_for(struct scheduler *s, const struct job *aside)
{
    unsigned n = 0;
    LIST_EACH(struct job, j, &s->queue, link) {
        if (n == BEFORE_ASIDE || strcmp(j->key, aside->key) == 0) {
            return &j->link;
        }
        n += j->n_waiters > 0;
    }
    return &s->queue;
}

/* Takes the device from the running job, and tells its waiters. */
static void scheduler_free_device(struct scheduler *s, struct job *j, enum job_state state,
                                  const char *phase)
{
    set_running(s, NULL);
    j->state = state;
    snprintf(j->progress.phase, sizeof(j->progress.phase), "%s", phase);
    job_tell(j);
    scheduler_next(s);
}

void scheduler_step_aside(struct scheduler *s, struct job *j)
{
    s->waits += !j->waited;
    j->waited = true;
    j->was_leased_out = true;
    s->n_leased_out++;
    scheduler_free_device(s, j, JOB_LEASED_OUT, "elsewhere");
}

void scheduler_set_aside(struct scheduler *s, struct job *j)
{
    j->set_aside = true;
    list_append(place_for(s, j), &j->link);
    s->n_queued++;
    scheduler_free_device(s, j, JOB_QUEUED, "queued");
}

struct job *scheduler_find_aside(struct scheduler *s, int64_t id)
{
    LIST_EACH(struct job, j, &s->jobs, all) {
        if (j->id == id && j->set_aside) {
            return j;
        }
    }
    return NULL;
}

static void scheduler_enqueue(struct scheduler *s, struct job *j)
{
    j->state = JOB_QUEUED;
    list_append(rounds_place(&s->queue, s->running, j, j->turn), &j->link);
    s->n_queued++;
}

void scheduler_come_back(struct scheduler *s, struct job *j)
{
    s->n_leased_out--;
    scheduler_enqueue(s, j);
    pauses_review(s->tuning);
}

/* Called when a job was queued, or a waiter has joined a queued job: offers the job to other
 * daemons, compiles ahead for it, and may set the running job aside. */
static void scheduler_on_queued(struct scheduler *s, struct job *j)
{
    offers_queued(s->tuning, j);
    job_lease_queued(s->tuning, j);
    precompile_queued(&s->tuning->precompiler);
    tuning_others(s->tuning);
}

void scheduler_queue(struct scheduler *s, struct job *j)
{
    j->turn = account_hold(j->account);
    list_append(&s->jobs, &j->all);
    scheduler_enqueue(s, j);
    scheduler_next(s);
    scheduler_on_queued(s, j);
}

/* Moves a queued job forward if the joining `user` has an earlier turn. A job that was set aside
 * keeps its place: it has had its turn. */
static void scheduler_join_queue(struct scheduler *s, struct job *j, struct account *user)
{
    struct list *place = rounds_place(&s->queue, s->running, j, user);
    bool moves = place != j->link.next && !j->set_aside;
    if (moves) {
        list_remove(&j->link);
        list_append(place, &j->link);
    }
    if (moves || j->n_waiters == 1) {
        account_hold(user);
        account_drop(j->turn);
        j->turn = user;
    }
}

void scheduler_wanted(struct scheduler *s, struct job *j, struct account *user)
{
    if (j != s->running && j->state == JOB_QUEUED) {
        scheduler_join_queue(s, j, user);
        scheduler_on_queued(s, j);
    }
}

void scheduler_unwanted(struct scheduler *s, struct job *j)
{
    if (j->n_waiters || j->cancelled) {
        return;
    }
    if (j->background) {
        job_lease_left(s->tuning, j);
        return;
    }
    j->cancelled = true;
    if (j == s->running) {
        tuning_cancel(s->tuning, j);
    } else {
        scheduler_drop(s, j);
        s->cancelled++;
    }
}

static bool cancel_job(struct scheduler *s, struct job *j, const char *key, const struct error *e)
{
    if (strncmp(j->key, key, strlen(key)) != 0 || j->cancelled) {
        return false;
    }
    job_fail(j, e);
    j->background = false;
    scheduler_unwanted(s, j);
    return true;
}

unsigned scheduler_cancel(struct scheduler *s, const char *key, const struct error *why)
{
    unsigned n = 0;
    LIST_EACH(struct job, j, &s->jobs, all) {
        n += cancel_job(s, j, key, why);
    }
    return n;
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void retry_later(struct scheduler *s)
{
    uint64_t first = (uint64_t)s->tuning->daemon->config->retry_ms;
    uint64_t twice = s->retry_ms > RETRY_MS_MAX / 2 ? RETRY_MS_MAX : 2 * s->retry_ms;
    s->retry_ms = s->retry_ms && first ? twice : first;
    s->retry_at_ms = s->retry_ms ? uv_now(&s->tuning->daemon->loop) + s->retry_ms : 0;
}

/* Switches tuning on again. The next job tests the device: tuning is off again if deaths of its
 * runners end that job. */
void scheduler_tick(struct scheduler *s)
{
    struct daemon *d = s->tuning->daemon;
    if (!s->off.code || !s->retry_at_ms || uv_now(&d->loop) < s->retry_at_ms ||
        s->tuning->supervisor.state != RUNNER_NONE) {
        return; /* a runner that does not end still has the device */
    }
    log_notice("tuning is tried again after %llu s", (unsigned long long)s->retry_ms / 1000);
    daemon_event(d, "tuning_on", (int64_t)geteuid(), "tried again after %llu s",
                 (unsigned long long)s->retry_ms / 1000);
    s->off = ERROR_NULL;
    s->failing = FAILING_JOBS_MAX - 1;
}

/* Fails all jobs that do not run. Returns the number of jobs. */
static unsigned fail_waiting(struct scheduler *s, const struct error *e)
{
    unsigned n = 0;
    LIST_EACH(struct job, j, &s->jobs, all) {
        if (j != s->running) {
            job_fail(j, e);
            scheduler_drop(s, j);
            n++;
        }
    }
    return n;
}

const char *scheduler_tuning(const struct scheduler *s)
{
    if (s->off.code) {
        return s->off.text;
    }
    return s->tuning->daemon->device.compiler[0]
               ? "on"
               : "off: gemmd found no compiler that it may run when it started";
}

void scheduler_switch_off(struct scheduler *s, const struct error *why)
{
    s->off = *why;
    log_error("tuning is off: %s", s->off.text);
    daemon_event(s->tuning->daemon, "tuning_off", (int64_t)geteuid(), "%s", s->off.text);
    retry_later(s);
    s->failed += fail_waiting(s, &s->off);
}

void scheduler_ended(struct scheduler *s, struct job *j, enum job_end how)
{
    set_running(s, NULL);
    s->done += how == JOB_DONE;
    s->failed += how == JOB_FAILED || how == JOB_DIED;
    s->cancelled += how == JOB_CANCELLED;
    s->shared += how == JOB_SHARED;
    s->put_off = how == JOB_PUT_OFF ? s->put_off + 1 : 0;
    if (how != JOB_CANCELLED && how != JOB_SHARED && how != JOB_PUT_OFF) {
        /* a job that ends in one of these ways says nothing about the device */
        s->failing = how == JOB_DIED ? s->failing + 1 : 0;
    }
    s->retry_ms = how == JOB_DONE ? 0 : s->retry_ms;
    job_free(j);
    if (s->failing >= FAILING_JOBS_MAX && !s->off.code) {
        struct error e = ERROR_NULL;
        error_set(
            &e, ERROR_DEVICE_LOST,
            "device unhealthy: %u jobs in a row ended by the death of their runner; answers "
            "that are known are served on; see gemmctl quarantine and check the device; tuning "
            "is tried again after a while",
            s->failing);
        scheduler_switch_off(s, &e);
    }
    scheduler_next(s);
}

void scheduler_stop(struct scheduler *s)
{
    struct error e = ERROR_NULL;
    s->stopping = true;
    error_set(&e, ERROR_SHUTTING_DOWN, "gemmd is stopping");
    if (s->running) {
        s->cancelled++;
        job_fail(s->running, &e);
        job_free(s->running);
        set_running(s, NULL);
    }
    s->cancelled += fail_waiting(s, &e);
    uv_close((uv_handle_t *)&s->next, NULL);
}
