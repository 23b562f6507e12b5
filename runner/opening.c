/* SPDX-License-Identifier: Apache-2.0 */
/* The parts that a runner opens once, at the first order: the device, which may hang, its compiler,
 * and the compile pool. Meanwhile the pool compiles the device's own kernels (filling, spinning,
 * the reference). */
#include <stdio.h>
#include <string.h>

#include "runner/base/mode.h"
#include "runner/base/clocks.h"
#include "runner/compile/apart.h"
#include "runner/runner.h"

enum { OPEN_LIMIT_MS = 120000, HELPERS_LOOK_MS = 100 };

/* Locks the GPU's clocks at --lock-clocks MHz. When the lock fails, the failure becomes the `doubt`
 * of every result. */
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
    runner_announce(r, "prepare", NULL, runner_limit(r, OPEN_LIMIT_MS)); /* opening may hang */
    int status = device_open(r->opt.mode.device, &r->device, err);
    if (status == 0) {
        channel_notify(&r->channel, "device", &device_info_schema, &r->device->info);
    }
    return status;
}

/* ---- the device's own kernels ---------------------------------------------------------------- */

static void opening_wait_helpers(void *ctx)
{
    struct runner *r = ctx;
    enum phase before = timeline_enter(&r->timeline, PHASE_HELPERS);
    channel_wait(&r->channel, compile_pool_fd(r->pool), HELPERS_LOOK_MS);
    runner_pump(r);
    timeline_enter(&r->timeline, before);
}

/* Opens compiler and pool. Neither needs the device. */
static int opening_open_pool(struct runner *r, struct error *err)
{
    int status = r->compiler ? 0 : apart_open(r->opt.mode.device, &r->compiler, err);
    if (status == 0 && !r->pool) {
        r->threads = mode_count_threads(r->opt.mode.threads);
        struct compile_pool_setup setup = {
            .compiler = r->compiler, .cache_dir = r->opt.mode.cache_dir, .threads = r->threads};
        status = compile_pool_new(&setup, &r->pool, err);
    }
    return status;
}

/* ---- first variants of a search -------------------------------------------------------------- */

/* True when the first variants of a search are predictable before the device is open: a search with
 * earlier trials, hints or quarantined variants begins with other variants. */
static bool opening_is_known(const struct runner *r, const struct tune_order *o)
{
    return !o->quiet && !r->device && r->compilers->real &&
           strcmp(r->opt.expected.kind, "cuda") == 0 && o->n_done == 0 && o->n_hints == 0 &&
           o->n_avoid == 0;
}

/* Errors are ignored here: the search asks for the same variants later, and reports the error. */
void runner_want_opening(struct runner *r, const struct tune_order *o)
{
    struct error ignored = ERROR_NULL;
    if (!opening_is_known(r, o) || opening_open_pool(r, &ignored)) {
        return;
    }
    const struct precompile_setup setup = {.device = r->opt.mode.device,
                                           .info = r->opt.expected,
                                           .compiler = r->compiler,
                                           .pool = r->pool,
                                           .rank = RANK_OPENING,
                                           .look = runner_look(r),
                                           .openings = true,
                                           .cache_dir = r->opt.mode.cache_dir,
                                           .threads = r->threads};
    enum phase before = timeline_enter(&r->timeline, PHASE_PLAN);
    precompile_add_search(&setup, &o->request, &ignored);
    timeline_enter(&r->timeline, before);
}

/* ---- opening everything ---------------------------------------------------------------------- */

int runner_open(struct runner *r, struct error *err)
{
    int status = runner_open_device(r, err);
    status = status ? status : opening_open_pool(r, err);
    if (status == 0 && !r->helpers.device) {
        lock_clocks(r);
        r->helpers = (struct helpers){.device = r->device,
                                      .compiler = r->compiler,
                                      .pool = r->pool,
                                      .wait = opening_wait_helpers,
                                      .ctx = r};
        helpers_init(&r->helpers);
    }
    return status;
}

uint32_t runner_look(const struct runner *r)
{
    uint32_t look = 2 * compilers_count(r);
    return look < RUNNER_LOOK_MAX ? look : RUNNER_LOOK_MAX;
}

double runner_now_ms(const struct runner *r)
{
    return r->compilers->now_ms(r);
}

int64_t runner_limit(const struct runner *r, double limit_ms)
{
    int64_t cap = r->opt.hang_limit_ms;
    return cap > 0 && (double)cap < limit_ms ? cap : (int64_t)limit_ms;
}
