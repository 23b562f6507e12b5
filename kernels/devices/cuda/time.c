/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timing single launches: idle for a while (so that every candidate meets the same power budget and
 * none is charged for its neighbours), then a spin kernel, an event, the launch, an event, all
 * queued while the GPU spins: the host's path is not in the time.
 *
 * L2 is cold: a call's launches rotate over copies of the operands, and before each other memory is
 * read, as much as L2 holds twice. It is read, for lines that were written would have to be stored
 * by whoever comes next: where a launch was preceded by the one before alone, kernels that take all
 * of memory's time paid for that one's output, up to 7 % of 150 microseconds, and others did not
 * (tests/gpu/results/2026-11-25-h100-w_eviction.txt, 5).
 */
#include <stdlib.h>
#include <time.h>

#include "kernels/devices/cuda/gpu.h"

/* Longer than queueing four launches and two events takes, and what a library's call may. */
static const double SPIN_US = 60, SPIN_EACH_US = 12;

static void cuda_time_idle(double ms)
{
    if (ms <= 0) {
        return;
    }
    struct timespec t = {.tv_sec = (time_t)(ms / 1000)};
    t.tv_nsec = (long)((ms - (double)t.tv_sec * 1000) * 1e6);
    nanosleep(&t, NULL);
}

static int elapsed_us(struct cuda_device *d, double *us, struct error *err)
{
    const struct cuda_driver *cu = d->cu;
    float ms = 0;
    int r = cuda_check(cu, cu->event_wait(d->end), err, "running the candidate");
    r = r ? r
          : cuda_check(cu,
                       (cu->event_elapsed_v2 ? cu->event_elapsed_v2
                                             : cu->event_elapsed)(&ms, d->begin, d->end),
                       err, "reading the time");
    *us = (double)ms * 1e3;
    return r;
}

static int cuda_time_take_sample(struct cuda_device *d, const struct cuda_work *work, uint32_t copy,
                                 double gap_ms, double *us, struct error *err)
{
    const struct cuda_driver *cu = d->cu;
    cuda_time_idle(gap_ms);
    int r = cuda_sweep_l2(d, err);
    r = r ? r : cuda_spin(d, SPIN_US + SPIN_EACH_US * work->launches, err);
    r = r ? r : cuda_check(cu, cu->event_record(d->begin, d->stream), err, "recording an event");
    r = r ? r : work->queue(work->ctx, copy, err);
    r = r ? r : cuda_check(cu, cu->event_record(d->end, d->stream), err, "recording an event");
    return r ? r : elapsed_us(d, us, err);
}

/* ---- a candidate ----------------------------------------------------------------------------- */

struct candidate {
    struct cuda_device *d;
    struct kernel *kernel;
    struct launch_plan *plans; /* owned; one for each copy */
};

static int cuda_time_queue(void *ctx, uint32_t copy, struct error *err)
{
    struct candidate *c = ctx;
    const struct launch_plan *plan = &c->plans[copy];
    int r = 0;
    for (uint32_t i = 0; i < plan->n && r == 0; i++) {
        r = cuda_module_launch(&c->kernel->module, &plan->steps[i], c->d->stream, err);
    }
    return r;
}

static int cuda_time_plan_copies(struct cuda_device *d, struct prepared *w, const struct kernel *k,
                                 const struct record *config, struct launch_plan *plans,
                                 struct error *err)
{
    int r = 0;
    /* The workspace may grow with the first plan and is the same for all: plan that one again. */
    for (uint32_t i = 0; i < w->n_copies + 1 && r == 0; i++) {
        r = cuda_plan(d, w, k, config, i % w->n_copies, &plans[i % w->n_copies], err);
    }
    return r;
}

int cuda_samples(struct cuda_device *d, const struct cuda_work *work, const struct timing *t,
                 double *samples_us, uint32_t *n, struct error *err)
{
    double us = 0;
    int r = 0;
    *n = 0;
    for (uint32_t i = 0; i < t->warmup + t->samples && r == 0; i++) {
        bool warm = i < t->warmup;
        r = cuda_time_take_sample(d, work, i % work->prepared->n_copies, warm ? 0 : t->gap_ms, &us,
                                  err);
        if (r == 0 && !warm) {
            samples_us[(*n)++] = us;
        }
        if (t->stop_after_us > 0 && i == t->warmup && us > t->stop_after_us) {
            break;
        }
    }
    return r;
}

int cuda_time(struct device *base, struct prepared *w, struct kernel *k,
              const struct record *config, const struct timing *t, double *samples_us, uint32_t *n,
              struct error *err)
{
    struct cuda_device *d = (struct cuda_device *)base;
    struct candidate c = {d, k, calloc(w->n_copies, sizeof(*c.plans))};
    const struct cuda_work work = {.prepared = w, .queue = cuda_time_queue, .ctx = &c};
    *n = 0;
    if (!c.plans) {
        return error_set(err, ERROR_NO_MEMORY, "no memory to plan launches");
    }
    int r = cuda_time_plan_copies(d, w, k, config, c.plans, err);
    r = r ? r : cuda_samples(d, &work, t, samples_us, n, err);
    free(c.plans);
    return r;
}
