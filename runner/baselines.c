/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runner/base/conditions.h"
#include "runner/job_inner.h"

enum { LIMIT_MS = 60000, SAMPLES = 8 };
static const double GAP_MS = 2;

void baselines_owe(struct runner *r, const struct tune_order *o, const struct tune_result *result)
{
    struct baselines *b = &r->baselines;
    const struct request *q = &o->request;
    if (!r->device->ops->baseline || b->off || b->n == BASELINES_MAX) {
        return;
    }
    struct baseline_key *one = &b->owed[b->n++];
    *one = (struct baseline_key){
        .problem = q->problem,
        .seed = conditions_drawn_seed(r->device, q, conditions_seed(r->device, q)),
        .tolerance = {.atol = q->query.atol, .rtol = q->query.rtol},
        .reference_us = result->reference_us,
    };
    snprintf(one->key, sizeof(one->key), "%s", o->key);
}

static void baselines_send(struct runner *r, const struct baseline_key *one,
                           const struct baseline *b, const double samples[], uint32_t n)
{
    struct trial *t = calloc(1, sizeof(*t));
    if (t) {
        snprintf(t->key, sizeof(t->key), "%s", one->key);
        snprintf(t->family, sizeof(t->family), "%s", b->library);
        snprintf(t->stage, sizeof(t->stage), "baseline");
        snprintf(t->status, sizeof(t->status), "baseline");
        snprintf(t->stamp, sizeof(t->stamp), "%s %d", b->library, b->version);
        record_init(&t->config);
        record_put_text(&t->config, "library", b->library);
        record_put_int(&t->config, "version", b->version);
        record_put_int(&t->config, "products", b->products);
        trial_samples(t, one->reference_us, samples, n);
        t->max_error = b->max_error;
        t->predicted_us = t->rel_norm = NAN;
        t->created_s = (int64_t)time(NULL);
        conditions_note(r->device, t);
        channel_notify(&r->channel, "trial", &trial_schema, t);
        free(t);
    }
}

static int baselines_measure_owed(struct runner *r, const struct baseline_key *one,
                                  struct error *err)
{
    struct device *d = r->device;
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
    status = d->ops->baseline(d, w, &one->tolerance, &timing, &b, samples, &n, err);
    if (status == 0 && n > 0) {
        baselines_send(r, one, &b, samples, n);
    }
    if (status != ERROR_DEVICE_LOST) {
        d->ops->release(d, w);
    }
    return status;
}

/* The error of a missing library turns baselines off. A message that came before the measurement
 * puts the baseline off. Any other error skips only this baseline. */
bool baselines_pay(struct runner *r)
{
    struct error err = ERROR_NULL;
    struct baselines *b = &r->baselines;
    if (b->n == 0) {
        return false;
    }
    runner_announce(r, "baseline", NULL, runner_limit(r, LIMIT_MS));
    int status = baselines_measure_owed(r, &b->owed[0], &err);
    if (status && status != ERROR_CANCELLED) {
        fprintf(stderr, "gemmd-runner: no baseline: %s\n", err.text);
    }
    b->off = b->off || status == ERROR_NO_DEVICE;
    if (status != ERROR_CANCELLED) {
        b->n = b->off ? 0 : b->n - 1;
        memmove(&b->owed[0], &b->owed[1], b->n * sizeof(b->owed[0]));
    }
    if (status == ERROR_DEVICE_LOST) {
        runner_quit(RUNNER_EXIT_DEVICE_LOST);
    }
    runner_announce(r, "idle", NULL, 0);
    return true;
}
