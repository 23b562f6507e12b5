/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runner/base/conditions.h"
#include "runner/base/stats.h"
#include "runner/runner.h"

enum { LIMIT_MS = 60000, SAMPLES = 8 };
static const double GAP_MS = 2;

struct owed {
    char key[HASH_HEX];
    struct problem problem;
    uint64_t seed;
    double atol, rtol;
    double reference_us; /* the reference kernel's time in the tuning run */
};

void baselines_owe(struct runner *r, const struct tune_order *o, const struct tune_result *result)
{
    struct baselines *b = &r->baselines;
    bool can = r->device->ops->baseline && !b->off && b->n < BASELINES_MAX;
    struct owed *one = can ? calloc(1, sizeof(*one)) : NULL;
    if (!one) {
        return;
    }
    snprintf(one->key, sizeof(one->key), "%s", o->key);
    one->problem = o->request.problem;
    one->seed =
        conditions_drawn_seed(r->device, &o->request, conditions_seed(r->device, &o->request));
    one->atol = o->request.query.atol;
    one->rtol = o->request.query.rtol;
    one->reference_us = result->reference_us;
    b->owed[b->n++] = one;
}

static struct owed *baselines_take_owed(struct baselines *b)
{
    struct owed *one = b->owed[0];
    b->n--;
    memmove(&b->owed[0], &b->owed[1], b->n * sizeof(b->owed[0]));
    return one;
}

static void fill_trial(const struct owed *one, const struct baseline *b, const double samples[],
                       uint32_t n, struct trial *t)
{
    const struct stats s = stats_of(samples, n);
    snprintf(t->key, sizeof(t->key), "%s", one->key);
    snprintf(t->family, sizeof(t->family), "%s", b->library);
    snprintf(t->stage, sizeof(t->stage), "baseline");
    snprintf(t->status, sizeof(t->status), "baseline");
    snprintf(t->stamp, sizeof(t->stamp), "%s %d", b->library, b->version);
    record_init(&t->config);
    record_put_text(&t->config, "library", b->library);
    record_put_int(&t->config, "version", b->version);
    record_put_int(&t->config, "products", b->products);
    t->time_us = s.median;
    t->q25_us = s.q25;
    t->q75_us = s.q75;
    t->ratio = s.median / one->reference_us;
    t->max_error = b->max_error;
    t->predicted_us = t->rel_norm = NAN;
    t->samples_us.n = n;
    memcpy(t->samples_us.v, samples, n * sizeof(*samples));
    t->created_s = (int64_t)time(NULL);
}

static void baselines_send(struct runner *r, const struct owed *one, const struct baseline *b,
                           const double samples[], uint32_t n)
{
    struct trial *t = calloc(1, sizeof(*t));
    if (t) {
        fill_trial(one, b, samples, n, t);
        conditions_note(r->device, t);
        channel_notify(&r->channel, "trial", &trial_schema, t);
        free(t);
    }
}

static int baselines_measure_owed(struct runner *r, const struct owed *one, struct error *err)
{
    struct device *d = r->device;
    const struct tolerance tol = {.atol = one->atol, .rtol = one->rtol};
    const struct timing timing = {.warmup = 2, .samples = SAMPLES, .gap_ms = GAP_MS};
    struct prepared *w;
    struct baseline b;
    double samples[SAMPLES];
    uint32_t n = 0;
    int status =
        d->ops->prepare(d, family_of_problem(&one->problem), &one->problem, one->seed, &w, err);
    if (status) {
        return status;
    }
    status = d->ops->baseline(d, w, &tol, &timing, &b, samples, &n, err);
    if (status == 0 && n > 0) {
        baselines_send(r, one, &b, samples, n);
    }
    if (status != ERROR_DEVICE_LOST) {
        d->ops->release(d, w);
    }
    return status;
}

static void baselines_forget_all(struct baselines *b)
{
    while (b->n > 0) {
        free(baselines_take_owed(b));
    }
}

/* The error of a missing library turns baselines off. Any other error skips only this baseline. */
bool baselines_pay(struct runner *r)
{
    struct error err = ERROR_NULL;
    if (r->baselines.n == 0) {
        return false;
    }
    struct owed *one = baselines_take_owed(&r->baselines);
    runner_announce(r, "baseline", NULL, runner_limit(r, LIMIT_MS));
    int status = baselines_measure_owed(r, one, &err);
    if (status) {
        fprintf(stderr, "gemmd-runner: no baseline: %s\n", err.text);
    }
    if (status == ERROR_NO_DEVICE) {
        r->baselines.off = true;
        baselines_forget_all(&r->baselines);
    }
    free(one);
    if (status == ERROR_DEVICE_LOST) {
        runner_quit(RUNNER_EXIT_DEVICE_LOST);
    }
    runner_announce(r, "idle", NULL, 0);
    return true;
}
