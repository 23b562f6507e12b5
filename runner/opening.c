/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a runner opens once, when the first order comes: the device, which may hang as anything on
 * it can, its compiler, and the threads that compile. And the device's own kernels, in the
 * background.
 */
#include <stdio.h>
#include <unistd.h>

#include "runner/base/clocks.h"
#include "runner/compile/apart.h"
#include "runner/runner.h"

enum { OPEN_LIMIT_MS = 120000, HELPERS_LOOK_MS = 100 };

/* Opening a device can hang as anything on it can. */
static void announce_open(struct runner *r)
{
    struct attempt a = {
        .job = r->job, .stage = "prepare", .limit_ms = runner_limit(r, OPEN_LIMIT_MS)};
    channel_notify(&r->channel, "attempt", &attempt_schema, &a);
}

/* Of an owner's wish that cannot be granted every result says so. */
static void lock_clocks(struct runner *r)
{
    struct error err = ERROR_NULL;
    if (r->opt.lock_mhz > 0 && clocks_hold(r->device->info.uuid, r->opt.lock_mhz, &err)) {
        fprintf(stderr, "gemmd-runner: %s\n", err.text);
        snprintf(r->unlocked, sizeof(r->unlocked), "%.159s", err.text);
    }
}

int runner_open_device(struct runner *r, struct error *err)
{
    if (r->device) {
        return 0;
    }
    announce_open(r);
    int status = device_open(r->opt.device, &r->device, err);
    if (status == 0) {
        channel_notify(&r->channel, "device", &device_info_schema, &r->device->info);
    }
    return status;
}

static unsigned thread_count(const struct runner *r)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t n = r->opt.compile_threads > 0 ? r->opt.compile_threads : cores;
    return n < 1 ? 1 : n > 256 ? 256 : (unsigned)n;
}

/* ---- the device's own kernels ---------------------------------------------------------------- */

static void opening_wait_helpers(void *ctx)
{
    struct runner *r = ctx;
    enum phase before = timeline_enter(&r->timeline, PHASE_HELPERS);
    channel_wait(&r->channel, builds_fd(r->builds), HELPERS_LOOK_MS);
    runner_pump(r);
    timeline_enter(&r->timeline, before);
}

/* The message `attempt` of a compile that is no candidate's. */
static void opening_put_last_words(void *ctx, struct wire_buf *b)
{
    const struct runner *r = ctx;
    struct attempt a = {.job = r->job, .stage = "compile"};
    rpc_put_notify(b, "attempt");
    schema_encode(b, &attempt_schema, &a);
}

static void opening_open_helpers(struct runner *r)
{
    helpers_init(&r->helpers, &(struct helpers_setup){.device = r->device,
                                                      .compiler = r->compiler,
                                                      .builds = r->builds,
                                                      .wait = opening_wait_helpers,
                                                      .words = opening_put_last_words,
                                                      .ctx = r});
}

int runner_open_builds(struct runner *r, struct error *err)
{
    int status = r->compiler ? 0 : apart_open(r->opt.device, &r->compiler, err);
    if (status == 0 && !r->builds) {
        r->threads = thread_count(r);
        struct builds_setup setup = {.compiler = r->compiler,
                                     .cache_dir = r->opt.cache_dir,
                                     .threads = r->threads,
                                     .note_fd = r->opt.fd};
        status = builds_new(&setup, &r->builds, err);
    }
    return status;
}

int runner_open(struct runner *r, struct error *err)
{
    int status = runner_open_device(r, err);
    status = status ? status : runner_open_builds(r, err);
    if (status == 0 && !r->helpers.setup.device) {
        lock_clocks(r);
        opening_open_helpers(r);
    }
    return status;
}

uint32_t runner_look(const struct runner *r)
{
    uint32_t look = 2 * r->compilers->count(r);
    return look < RUNNER_LOOK_MAX ? look : RUNNER_LOOK_MAX;
}
