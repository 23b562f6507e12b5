/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runner's life: hello, then orders one after the other until gemmd closes the socket or
 * nothing has come for --linger-ms, so that an idle gemmd holds no device memory.
 *
 * The process ends by _exit: libraries' exit handlers may wait for a device that hangs, and threads
 * may be lost in a compiler. The operating system frees what we hold.
 */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/runner/clocks.h"
#include "daemon/runner/crash.h"
#include "daemon/runner/job.h"
#include "daemon/runner/runner.h"
#include "proto/build.h"

enum { OPEN_LIMIT_MS = 120000, REST_MS = 1000, /* nobody comes: time for what can wait */
       HELPERS_LOOK_MS = 100 };

void runner_quit(enum runner_exit code)
{
    fflush(NULL);
    _exit(code);
}

int64_t runner_limit(const struct runner *r, double limit_ms)
{
    int64_t cap = r->opt.hang_limit_ms;
    return cap > 0 && (double)cap < limit_ms ? cap : (int64_t)limit_ms;
}

/* ---- opening --------------------------------------------------------------------------------- */

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

static int open_device(struct runner *r, struct error *err)
{
    if (r->device) {
        return 0;
    }
    announce_open(r);
    int status = device_open(r->opt.device, &r->device, err);
    if (status == 0) {
        lock_clocks(r);
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

static void wait_for_helpers(void *ctx)
{
    struct runner *r = ctx;
    enum phase before = timeline_enter(&r->timeline, PHASE_HELPERS);
    channel_wait(&r->channel, builds_fd(r->builds), HELPERS_LOOK_MS);
    runner_pump(r);
    timeline_enter(&r->timeline, before);
}

/* The message `attempt` of a compile that is no candidate's. */
static void last_words(void *ctx, struct wire_buf *b)
{
    const struct runner *r = ctx;
    struct attempt a = {.job = r->job, .stage = "compile"};
    rpc_put_notify(b, "attempt");
    schema_encode(b, &attempt_schema, &a);
}

static void open_helpers(struct runner *r)
{
    helpers_init(&r->helpers, &(struct helpers_setup){.device = r->device,
                                                      .compiler = r->compiler,
                                                      .builds = r->builds,
                                                      .wait = wait_for_helpers,
                                                      .words = last_words,
                                                      .ctx = r});
}

int runner_open_builds(struct runner *r, struct error *err)
{
    int status = r->compiler ? 0 : compiler_open(r->opt.device, &r->compiler, err);
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
    int status = open_device(r, err);
    status = status ? status : runner_open_builds(r, err);
    if (status == 0 && !r->helpers.setup.device) {
        open_helpers(r);
    }
    return status;
}

/* ---- orders ---------------------------------------------------------------------------------- */

static void tune(struct runner *r, uint32_t id, const struct tune_order *o)
{
    struct error err = ERROR_NULL;
    struct tune_result result;
    r->job = o->job;
    r->cancelled = r->others_wait = false;
    timeline_begin(&r->timeline);
    timeline_enter(&r->timeline, PHASE_OPEN);
    early_begin(r, o);
    int status = runner_open(r, &err);
    status = status ? status : job_run(r, o, &result, &err);
    early_end(r);
    r->job = 0;
    if (status) {
        channel_reply_error(&r->channel, id, &err);
    } else {
        channel_reply(&r->channel, id, &tune_result_schema, &result);
        if (!result.set_aside) {
            baselines_owe(r, o, &result);
        }
    }
    if (status == ERROR_DEVICE_LOST) {
        runner_quit(RUNNER_EXIT_DEVICE_LOST);
    }
    notice_idle(r);
}

static void on_tune(struct runner *r, const struct rpc_message *m)
{
    struct error err = ERROR_NULL;
    if (r->job) {
        error_set(&err, ERROR_BUSY, "job %lld is running: one at a time", (long long)r->job);
        channel_reply_error(&r->channel, m->id, &err);
        return;
    }
    struct tune_order *o = calloc(1, sizeof(*o));
    if (!o) {
        error_set(&err, ERROR_NO_MEMORY, "no memory for an order");
        channel_reply_error(&r->channel, m->id, &err);
        return;
    }
    uint32_t id = m->id; /* the message is gone at the next receive */
    if (tune_order_unpack(o, m->params, &err)) {
        channel_reply_error(&r->channel, id, &err);
    } else {
        tune(r, id, o);
    }
    tune_order_deinit(o);
    free(o);
}

static int64_t job_of(const struct rpc_message *m)
{
    int64_t job = 0;
    wire_get_int(wire_find(m->params, "job"), &job);
    return job;
}

static void on_notify(struct runner *r, const struct rpc_message *m)
{
    if (strcmp(m->method, "cancel") == 0) {
        r->cancelled |= job_of(m) == r->job;
    } else if (strcmp(m->method, "others_wait") == 0) {
        r->others_wait |= job_of(m) == r->job;
    } else if (strcmp(m->method, "forget") == 0 && r->builds) {
        aside_drop(r, job_of(m));
    }
}

static void on_request(struct runner *r, const struct rpc_message *m)
{
    if (strcmp(m->method, "tune") == 0) {
        on_tune(r, m);
    } else if (strcmp(m->method, "ping") == 0) {
        rpc_put_result(&r->channel.out, m->id);
        wire_put_bool(&r->channel.out, true);
        channel_send(&r->channel);
    } else {
        struct error err = ERROR_NULL;
        error_set(&err, ERROR_UNKNOWN_METHOD, "the runner knows tune and ping, not \"%s\"",
                  m->method);
        channel_reply_error(&r->channel, m->id, &err);
    }
}

/* One message, when there is one. */
static bool handle(struct runner *r)
{
    struct rpc_message m;
    struct error err = ERROR_NULL;
    int status = channel_receive(&r->channel, &m, &err);
    if (status < 0) {
        fprintf(stderr, "gemmd-runner: %s\n", err.text);
        runner_quit(RUNNER_EXIT_PROTOCOL);
    }
    if (status == CHANNEL_NOTHING) {
        if (r->channel.gone) {
            runner_quit(RUNNER_EXIT_OK);
        }
        return false;
    }
    if (m.type == RPC_REQUEST) {
        on_request(r, &m);
    } else if (m.type == RPC_NOTIFY) {
        on_notify(r, &m);
    }
    return true;
}

void runner_pump(struct runner *r)
{
    while (handle(r)) {
    }
}

/* ---- the life -------------------------------------------------------------------------------- */

static void hello(struct runner *r)
{
    struct runner_hello h = {.pid = getpid()};
    snprintf(h.build, sizeof(h.build), "%s", build_id);
    channel_notify(&r->channel, "hello", &runner_hello_schema, &h);
}

static void bye(struct runner *r)
{
    rpc_put_notify(&r->channel.out, "bye");
    wire_put_map(&r->channel.out, 0);
    channel_send(&r->channel);
    runner_quit(RUNNER_EXIT_OK);
}

/* Devices read it themselves: whoever opens one without us has the same limit. */
static void share_memory(int64_t percent)
{
    char share[16];
    if (percent > 0) {
        snprintf(share, sizeof(share), "%.2f", (double)percent / 100);
        setenv("GEMMD_MEMORY_SHARE", share, 1);
    }
}

int runner_serve(const struct runner_options *opt)
{
    static struct runner r; /* the process is one runner */
    struct error err = ERROR_NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* Never a higher priority than it was started with: that takes a right, and somebody's wish. */
    if (opt->nice > getpriority(PRIO_PROCESS, 0) &&
        setpriority(PRIO_PROCESS, 0, (int)opt->nice) < 0) {
        fprintf(stderr, "gemmd-runner: cannot set nice %lld: %s\n", (long long)opt->nice,
                strerror(errno));
    }
    crash_install();
    share_memory(opt->memory_percent);
    r.opt = *opt;
    r.baselines.off = opt->no_baseline;
    r.replay = strncmp(opt->device, "replay:", 7) == 0;
    if (channel_init(&r.channel, opt->fd, &err)) {
        fprintf(stderr, "gemmd-runner: %s\n", err.text);
        return RUNNER_EXIT_USAGE;
    }
    hello(&r);
    for (;;) {
        runner_pump(&r);
        if (r.builds && builds_lost(r.builds) > 0) {
            bye(&r);
        }
        bool owes = r.baselines.n > 0 && opt->linger_ms >= REST_MS;
        if (!channel_wait(&r.channel, -1, owes ? REST_MS : (int)opt->linger_ms)) {
            if (!owes || !baselines_pay(&r)) {
                bye(&r);
            }
        }
    }
}
