/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One candidate on the device, from image to trial:
 *
 *   load     the image, once.
 *   warm up  before the job's first kernel: launches until two agree within 1 %, at most 16.
 *   look     a warm-up, then a sample. A sample above 1.25 x the best time so far, or two above
 *            1.04 x, end the candidate: `aborted`. Once the scatter of launches is known
 *            (base/stats.h), a sample above 1.04 x (1 + 8 standard deviations) needs no second.
 *            Launches of half a millisecond or more need no warm-up: the first costs 20 us more.
 *   verify   before the candidate counts as ok. A wrong result is a failed trial, and its reason
 *            names the error.
 *
 * Then the candidate is timed by more single launches. Samples in all, the look's included:
 *
 *   GPU      as many as take 3 ms with their idle times, at most 5. When that is less than three:
 *            until the error of the mean is below a tie (0.3 %), or three while that is unknown.
 *   host     as many as take 100 ms, from 3 to 20.
 *   --iters  that number, or as many as take a second when that is less, but at least three.
 *
 * Finals (finals.c) take more. On a GPU, the device idles before a launch for the time of the
 * launch (0.3 to 4 ms), in finals twice as long. So each launch finds the same clocks, and no
 * launch is slowed by the previous launch.
 *
 * Each step is announced with its longest silence, after which gemmd kills the runner. A load has
 * 20 s. Other steps have 10 s, or 50 times the expected time of all launches when that is longer,
 * but at most 10 minutes. A launch is expected to take the time of this candidate's earlier
 * launches, or the prediction times the largest error of the model in this run. Before the first
 * launch of a run, a step may take as long as the slow reference would need for the whole problem.
 * The step `prepare` and each compile have 120 s.
 *
 * Long series of launches are timed in pieces; messages on the socket are handled between
 * pieces.
 */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "runner/base/stats.h"
#include "runner/job_inner.h"

enum {
    SAMPLES_MIN = 3,
    LOAD_LIMIT_MS = 20000,
    STEP_LIMIT_MS = 10000,
    STEP_LIMIT_MAX_MS = 600000,
    WARM_UPS_MOST = 16
};
static const double SAMPLING_US = 3e3, SAMPLING_HOST_US = 1e5, SAMPLING_ASKED_US = 1e6,
                    PIECE_US = 1e5;
static const double HANG_FACTOR = 50, HOPELESS = 1.25, BEHIND = 1.04, FAR = 8;
static const double GAP_LEAST_MS = 0.3, GAP_MOST_MS = 4, GAP_UNKNOWN_US = 1e3, WARM_US = 500,
                    WARM_UP_US = 2e4, AGREE = 0.01;

/* ---- trials ---------------------------------------------------------------------------------- */

void trial_begin(struct trial *t, const struct job *j, const struct candidate *c, const char *stage)
{
    memset(t, 0, sizeof(*t));
    snprintf(t->key, sizeof(t->key), "%s", j->order->key);
    snprintf(t->family, sizeof(t->family), "%s", j->family->name);
    record_copy(&t->config, &c->config);
    snprintf(t->variant, sizeof(t->variant), "%s", c->hash);
    snprintf(t->stage, sizeof(t->stage), "%s", stage);
    snprintf(t->stamp, sizeof(t->stamp), "%s", j->order->stamp);
    t->predicted_us = isfinite(c->predicted_us) ? c->predicted_us : NAN;
    t->time_us = t->ratio = t->q25_us = t->q75_us = t->max_error = t->rel_norm = NAN;
    t->created_s = (int64_t)time(NULL);
    t->reference = c->reference;
    if (c->build && c->build->state == BUILD_READY) {
        snprintf(t->module, sizeof(t->module), "%s", c->build->image.meta.id);
        t->compile_ms = c->build->compile_ms;
    }
}

void trial_fail(struct trial *t, const struct error *e)
{
    snprintf(t->status, sizeof(t->status), "%s", error_name(e->code));
    snprintf(t->reason, sizeof(t->reason), "%.*s", (int)sizeof(t->reason) - 1, e->text);
}

void trial_reject(struct trial *t, const struct rejection *why)
{
    snprintf(t->status, sizeof(t->status), "%s", error_name(why->code));
    snprintf(t->reason, sizeof(t->reason), "%s", why->text);
    snprintf(t->resource, sizeof(t->resource), "%s", why->resource);
    t->required = why->required;
    t->limit_value = why->limit;
}

void trial_samples(struct trial *t, double reference_us, const double *samples, uint32_t n)
{
    struct stats s = stats_of(samples, n);
    t->time_us = s.median;
    t->q25_us = s.q25;
    t->q75_us = s.q75;
    t->ratio = s.median / reference_us;
    t->samples_us.n = n < SAMPLES_MAX ? n : SAMPLES_MAX;
    memcpy(t->samples_us.v, samples, t->samples_us.n * sizeof(*samples));
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Fails the trial with the error of a device call. ERROR_DEVICE_LOST: the process must end, too. */
static int measure_judge_error(struct trial *t, const struct error *e)
{
    trial_fail(t, e);
    return e->code == ERROR_DEVICE_LOST ? ERROR_DEVICE_LOST : MEASURE_FAILED;
}

static double device_clock(const struct job *j)
{
    return j->runner->device->ops->clock_ms(j->runner->device);
}

/* Time in ms that the slow, independent reference would need for the whole problem; 0: unknown. */
static double reference_ms(const struct job *j)
{
    double flops, bytes;
    j->family->work(&j->order->request.problem, &flops, &bytes);
    return j->reference_rate > 0 ? flops / 2 / j->reference_rate / 1e3 : 0;
}

/* The longest silence in ms of a step with `launches` launches. seen_us: the time of an earlier
 * launch of this candidate; NaN: none. */
static int64_t step_limit(const struct job *j, const struct candidate *c, double seen_us,
                          double launches, double gap_ms)
{
    const double slowdown = j->runner->slowdown;
    double us = fmax(isfinite(c->predicted_us) ? c->predicted_us * fmax(slowdown, 1) : 0,
                     isfinite(seen_us) ? seen_us : 0);
    double each = fmax(HANG_FACTOR * us / 1e3, slowdown > 0 ? 0 : reference_ms(j));
    double ms = launches * (each + 2 * gap_ms);
    return runner_limit(j->runner, fmin(fmax(ms, STEP_LIMIT_MS), STEP_LIMIT_MAX_MS));
}

int measure_load(struct job *j, struct measuring *m, struct error *err)
{
    struct device *d = j->runner->device;
    struct rejection why = {0};
    if (pauses_wait(j, err)) {
        return ERROR_CANCELLED;
    }
    enum phase before = timeline_step(&j->runner->timeline, PHASE_LOAD);
    runner_announce(j->runner, "load", m->c, runner_limit(j->runner, LOAD_LIMIT_MS));
    double began = device_clock(j);
    int r = d->ops->load(d, &m->c->build->image, &m->c->variant, &m->kernel, &why, err);
    j->device_ms += device_clock(j) - began;
    timeline_enter(&j->runner->timeline, before);
    if (r == ERROR_RESOURCE && why.text[0]) {
        trial_reject(m->t, &why);
        return MEASURE_FAILED;
    }
    return r ? measure_judge_error(m->t, err) : 0;
}

void measure_unload(struct job *j, struct kernel *k)
{
    j->runner->device->ops->unload(j->runner->device, k);
}

int measure_verify(struct job *j, struct measuring *m, double seen_us, struct error *err)
{
    struct device *d = j->runner->device;
    const struct query *q = &j->order->request.query;
    struct tolerance tol = {.atol = q->atol, .rtol = q->rtol};
    struct verdict v = {0};
    if (pauses_wait(j, err)) {
        return ERROR_CANCELLED;
    }
    enum phase before = timeline_step(&j->runner->timeline, PHASE_VERIFY);
    runner_announce(j->runner, "verify", m->c, step_limit(j, m->c, seen_us, 1, 0));
    double began = device_clock(j);
    int r = d->ops->verify(d, j->prepared, m->kernel, &m->c->config, &tol, &v, err);
    j->device_ms += device_clock(j) - began;
    timeline_enter(&j->runner->timeline, before);
    if (r) {
        return measure_judge_error(m->t, err);
    }
    m->t->max_error = v.max_error;
    m->t->rel_norm = v.rel_norm;
    if (!v.right) {
        error_set(err, ERROR_WRONG_RESULT, "%s", v.text);
        return measure_judge_error(m->t, err);
    }
    return 0;
}

static void note_slowdown(struct job *j, const struct candidate *c, const double samples[],
                          uint32_t n)
{
    double *slowdown = &j->runner->slowdown;
    for (uint32_t i = 0; c->predicted_us > 0 && i < n; i++) {
        *slowdown = fmax(*slowdown, samples[i] / c->predicted_us);
    }
}

int measure_time(struct job *j, struct measuring *m, const struct timing *timing, double seen_us,
                 struct error *err)
{
    struct device *d = j->runner->device;
    if (job_poll(j, err) || pauses_wait(j, err)) {
        return ERROR_CANCELLED;
    }
    enum phase before = timeline_step(&j->runner->timeline, PHASE_TIME);
    runner_announce(j->runner, "time", m->c,
                    step_limit(j, m->c, seen_us, timing->warmup + timing->samples, timing->gap_ms));
    double began = device_clock(j);
    double *samples = m->samples + m->n;
    uint32_t got = 0;
    int r = d->ops->time(d, j->prepared, m->kernel, &m->c->config, timing, samples, &got, err);
    j->device_ms += device_clock(j) - began;
    timeline_enter(&j->runner->timeline, before);
    if (r == 0 && got == 0) {
        r = error_set(err, ERROR_INTERNAL, "the device gave no samples");
    }
    if (r) {
        return measure_judge_error(m->t, err);
    }
    note_slowdown(j, m->c, samples, got);
    m->n += got;
    return 0;
}

double measure_gap_ms(const struct job *j, double expected_us, double launches)
{
    double us = isfinite(expected_us) ? expected_us : GAP_UNKNOWN_US;
    double ms = launches * fmin(us / 1e3, GAP_MOST_MS);
    return j->idles ? fmax(ms, GAP_LEAST_MS) : 0;
}

/* How many samples give a mean with an error below TIE. */
static double samples_needed(const struct job *j)
{
    double part = scatter_of(&j->scatter) / TIE;
    return j->idles ? fmin(fmax(ceil(part * part), 1), SAMPLES_MIN) : SAMPLES_MIN;
}

/* Samples to take in all, for launches of `us`. GPU events are more exact than a host's clock, so a
 * GPU takes fewer. */
static uint32_t sample_count(const struct job *j, double us)
{
    const int64_t iters = j->order->request.query.iters;
    double n;
    if (iters > 0) {
        n = fmin((double)iters, fmax(SAMPLES_MIN, SAMPLING_ASKED_US / us));
    } else {
        double each = us + measure_gap_ms(j, us, 1) * 1e3;
        n = (j->idles ? SAMPLING_US : SAMPLING_HOST_US) / each;
        n = fmin(fmax(n, samples_needed(j)), j->idles ? VISIT_USUAL : ITERS_DEFAULT);
    }
    return (uint32_t)fmin(n, SAMPLES_MAX);
}

bool measure_is_long(double expected_us)
{
    return expected_us >= WARM_US;
}

/* Runs the query's `warmup` launches, for a second at most, in pieces of a tenth of a second. In a
 * single step, ten thousand launches would be silent for longer than the step's limit, and gemmd
 * would quarantine the variant. */
static int warm_as_asked(struct job *j, struct measuring *m, struct error *err)
{
    struct timing piece = {.samples = 1};
    double us = NAN, spent_us = 0;
    int r = 0;
    for (int64_t left = j->order->request.query.warmup;
         r == 0 && left > 0 && spent_us < SAMPLING_ASKED_US;) {
        piece.warmup = isnan(us) ? 0 : (uint32_t)fmin((double)left - 1, PIECE_US / us);
        r = measure_time(j, m, &piece, us, err);
        us = m->samples[0];
        m->n = 0;
        spent_us += r ? 0 : us * (piece.warmup + 1);
        left -= piece.warmup + 1;
    }
    return r;
}

/* Before the job's first kernel the device was idle, and its clocks rise during the first launches.
 * Launches until two successive times agree within 1 %, or 16 launches or 20 ms are over. */
static int measure_warm_up(struct job *j, struct measuring *m, struct error *err)
{
    const struct timing one = {.samples = 1, .gap_ms = GAP_LEAST_MS};
    double us = NAN, spent_us = 0;
    int r = 0;
    for (bool agree = false; r == 0 && !agree && m->n < WARM_UPS_MOST && spent_us < WARM_UP_US;) {
        const double before_us = us;
        r = measure_time(j, m, &one, us, err);
        us = r ? us : m->samples[m->n - 1];
        spent_us += r ? 0 : us;
        agree = r == 0 && fabs(us - before_us) <= AGREE * us;
    }
    m->n = 0;
    j->warm = r == 0;
    return r;
}

/* A first sample above this multiple of the best time ends the candidate without a second
 * sample. */
static double measure_hopeless_ratio(const struct job *j)
{
    return fmin(HOPELESS, BEHIND * (1 + FAR * scatter_of(&j->scatter)));
}

/* Takes a sample, or two when the first does not decide. *slow: the candidate is too slow to go
 * on. */
static int measure_take_look(struct job *j, struct measuring *m, double best_us, bool *slow,
                             struct error *err)
{
    const double expected_us = m->c->predicted_us;
    const bool asked = j->order->request.query.warmup > 0;
    struct timing one = {.warmup = asked || measure_is_long(expected_us) ? 0 : WARMUP_DEFAULT,
                         .samples = 1,
                         .gap_ms = measure_gap_ms(j, expected_us, 1)};
    int r = asked ? warm_as_asked(j, m, err) : 0;
    r = r ? r : measure_time(j, m, &one, NAN, err);
    *slow = r == 0 && best_us > 0 && m->samples[0] > BEHIND * best_us;
    if (r == 0 && *slow && m->samples[0] <= measure_hopeless_ratio(j) * best_us) {
        one.warmup = 0;
        r = measure_time(j, m, &one, m->samples[0], err);
        *slow = r == 0 && m->samples[1] > BEHIND * best_us;
    }
    return r;
}

static void abort_slow(const struct measuring *m, double best_us)
{
    struct trial *t = m->t;
    snprintf(t->status, sizeof(t->status), "aborted");
    snprintf(t->reason, sizeof(t->reason), "its first %s took %.1f us; the best takes %.1f us",
             m->n > 1 ? "samples" : "sample", t->time_us, best_us);
}

/* Takes samples until there are `wanted` in all, in pieces of a tenth of a second. */
static int measure_take_samples(struct job *j, struct measuring *m, uint32_t wanted,
                                struct error *err)
{
    const double seen_us = stats_median(m->samples, m->n);
    const uint32_t piece = (uint32_t)fmin(fmax(PIECE_US / seen_us, 1), SAMPLES_MAX);
    int r = 0;
    while (r == 0 && m->n < wanted) {
        struct timing more = {.samples = wanted - m->n < piece ? wanted - m->n : piece,
                              .gap_ms = measure_gap_ms(j, seen_us, 1)};
        r = measure_time(j, m, &more, seen_us, err);
    }
    return r;
}

/* Takes the first samples of a loaded kernel, verifies its result, and takes the other samples. */
static int measure_loaded(struct job *j, struct measuring *m, double best_us, struct error *err)
{
    bool slow = false;
    int r = j->idles && !j->warm ? measure_warm_up(j, m, err) : 0;
    r = r ? r : measure_take_look(j, m, best_us, &slow, err);
    if (r == 0 && !slow) {
        double seen_us = stats_median(m->samples, m->n);
        r = measure_verify(j, m, seen_us, err);
        r = r ? r : measure_take_samples(j, m, sample_count(j, seen_us), err);
    }
    if (r) {
        return r;
    }
    scatter_add(&j->scatter, m->samples, m->n);
    trial_samples(m->t, j->reference_us, m->samples, m->n);
    if (slow) {
        abort_slow(m, best_us);
    } else {
        snprintf(m->t->status, sizeof(m->t->status), "ok");
    }
    return 0;
}

int measure_candidate(struct job *j, struct candidate *c, const char *stage, double best_us,
                      struct trial *t, struct error *err)
{
    assert(c->build && c->build->state != BUILD_PENDING);
    trial_begin(t, j, c, stage);
    if (c->build->state == BUILD_FAILED) {
        trial_fail(t, &c->build->error);
        return 0;
    }
    struct measuring m = {.c = c, .t = t};
    int r = measure_load(j, &m, err);
    if (r == 0) {
        r = measure_loaded(j, &m, best_us, err);
        if (r != ERROR_DEVICE_LOST) {
            measure_unload(j, m.kernel);
        }
    }
    return r == MEASURE_FAILED ? 0 : r;
}
