/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPU's state. While a problem is prepared, a separate thread calls NVML, because a call may
 * take milliseconds and measuring must not wait for it.
 *
 * NVML counts processes and the load of all of them together. Until this process has a
 * context, all are other users; afterwards all but this process. The others' load is known only
 * after this process was idle for longer than NVML's sampling period.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "kernels/devices/cuda/gpu.h"

enum { EVERY_MS = 20, QUIET_MS = 1500 };

struct cuda_watch {
    const struct nvml *nvml; /* borrowed */
    pthread_t thread;
    atomic_bool stop;
    pthread_mutex_t lock; /* protects the fields below */
    bool sampled;
    struct device_health last;
};

static void *cuda_watch_run(void *arg)
{
    struct cuda_watch *w = arg;
    struct device_health seen;
    while (!w->stop) {
        nvml_sample(w->nvml, &seen);
        pthread_mutex_lock(&w->lock);
        w->last = seen;
        w->sampled = true;
        pthread_mutex_unlock(&w->lock);
        device_sleep_ms(EVERY_MS);
    }
    return NULL;
}

void cuda_watch_begin(struct cuda_device *d)
{
    struct cuda_watch *w = d->nvml && !d->watch ? calloc(1, sizeof(*w)) : NULL;
    if (!w) {
        /* without the thread the GPU's state stays unknown, which does not prevent measuring */
        return;
    }
    w->nvml = d->nvml;
    pthread_mutex_init(&w->lock, NULL);
    if (pthread_create(&w->thread, NULL, cuda_watch_run, w)) {
        free(w);
        return;
    }
    d->watch = w;
}

void cuda_watch_end(struct cuda_device *d)
{
    struct cuda_watch *w = d->watch;
    d->left_ms = device_clock_ms(NULL);
    if (!w) {
        return;
    }
    w->stop = true;
    pthread_join(w->thread, NULL);
    pthread_mutex_destroy(&w->lock);
    free(w);
    d->watch = NULL;
}

/* The watch thread's last sample; without one, takes a sample here. */
static void cuda_watch_read_sample(struct cuda_device *d, struct device_health *out)
{
    bool sampled = false;
    if (d->watch) {
        pthread_mutex_lock(&d->watch->lock);
        sampled = d->watch->sampled;
        *out = d->watch->last;
        pthread_mutex_unlock(&d->watch->lock);
    }
    if (!sampled) {
        nvml_sample(d->nvml, out);
    }
}

void cuda_health(struct device *base, struct device_health *out)
{
    struct cuda_device *d = (struct cuda_device *)base;
    *out = (struct device_health){.busy_percent = -1, .processes = -1};
    if (!d->nvml) {
        return;
    }
    cuda_watch_read_sample(d, out);
    bool quiet = !d->context || (!d->watch && device_clock_ms(NULL) - d->left_ms > QUIET_MS);
    if (!quiet) {
        out->busy_percent = -1;
    }
    if (d->context && out->processes > 0) {
        out->processes--;
    }
}
