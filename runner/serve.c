/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runner's life: hello, then orders until gemmd closes the socket or no order has come for
 * --linger-ms, so that an idle gemmd holds no device memory. The wait for the first order is
 * longer: the device is not open yet, and gemmd may have to wait for its database. Messages are
 * handled also between two steps of a job, and a notification may end the job.
 *
 * The process ends by _exit: exit handlers of libraries may wait for a hanging device, and threads
 * may be lost in a compiler. The operating system frees the resources.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "proto/build.h"
#include "proto/std_files.h"
#include "runner/base/conditions.h"
#include "runner/base/self.h"
#include "runner/compile/apart.h"
#include "runner/runner.h"

enum {
    REST_MS = 1000,             /* idle time before each baseline (runner.h) is measured */
    FIRST_ORDER_MS = 30 * 1000, /* least time that a new runner waits for its first order */
};

void runner_quit(enum runner_exit code)
{
    apart_quit();
    fflush(NULL);
    _exit(code);
}

/* ---- orders ---------------------------------------------------------------------------------- */

/* Carries out an order. A `quiet` order ends here, with `in_use`, while other processes use the
 * device. */
static int serve_carry_out(struct runner *r, const struct tune_order *o, struct tune_result *out,
                           struct error *err)
{
    int status = runner_open_device(r, err);
    *out = (struct tune_result){0};
    out->in_use = status == 0 && o->quiet && conditions_in_use(r->device, out->doubt);
    if (out->in_use) {
        return 0;
    }
    status = status ? status : runner_open(r, err);
    return status ? status : job_run(r, o, out, err);
}

static void serve_tune(struct runner *r, uint32_t id, const struct tune_order *o)
{
    struct error err = ERROR_NULL;
    struct tune_result result;
    r->job = o->job;
    r->ordered = true;
    r->cancelled = r->others_wait = false;
    pauses_begin(r, o->in_pauses);
    timeline_begin(&r->timeline);
    timeline_enter(&r->timeline, PHASE_OPEN);
    runner_want_opening(r, o);
    int status = serve_carry_out(r, o, &result, &err);
    if (r->pool) {
        compile_pool_drop_unheld(r->pool);
    }
    r->job = 0;
    if (status) {
        channel_reply_error(&r->channel, id, &err);
    } else {
        channel_reply(&r->channel, id, &tune_result_schema, &result);
        if (!result.set_aside && !result.in_use && !r->pauses.bound) {
            baselines_owe(r, o, &result);
        }
    }
    if (status == ERROR_DEVICE_LOST) {
        runner_quit(RUNNER_EXIT_DEVICE_LOST);
    }
    runner_announce(r, "idle", NULL, 0);
}

static void serve_on_tune(struct runner *r, const struct rpc_message *m)
{
    const uint32_t id = m->id; /* the next receive overwrites the message */
    struct error err = ERROR_NULL;
    struct tune_order *o = r->job ? NULL : calloc(1, sizeof(*o));
    int status = r->job ? error_set(&err, ERROR_BUSY, "job %lld is running: one at a time",
                                    (long long)r->job)
                 : o    ? tune_order_unpack(o, m->params, &err)
                        : error_set(&err, ERROR_NO_MEMORY, "no memory for an order");
    if (status) {
        channel_reply_error(&r->channel, id, &err);
    } else {
        serve_tune(r, id, o);
    }
    if (o) {
        tune_order_deinit(o);
        free(o);
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

static int64_t serve_read_job(const struct rpc_message *m)
{
    int64_t job = 0;
    wire_get_int(wire_find(m->params, "job"), &job);
    return job;
}

static void serve_on_notify(struct runner *r, const struct rpc_message *m)
{
    if (strcmp(m->method, "cancel") == 0) {
        r->cancelled |= serve_read_job(m) == r->job;
    } else if (strcmp(m->method, "others_wait") == 0) {
        r->others_wait |= serve_read_job(m) == r->job;
    } else if (strcmp(m->method, "forget") == 0 && r->pool) {
        aside_drop(r, serve_read_job(m));
    } else if (strcmp(m->method, "pause") == 0 && serve_read_job(m) == r->job) {
        int64_t ms = 0;
        wire_get_int(wire_find(m->params, "ms"), &ms);
        pauses_open(r, ms);
    }
}

static void serve_on_request(struct runner *r, const struct rpc_message *m)
{
    if (strcmp(m->method, "tune") == 0) {
        serve_on_tune(r, m);
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

/* Handles a message. False: no message has come. */
static bool serve_handle_message(struct runner *r)
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
        serve_on_request(r, &m);
    } else if (m.type == RPC_NOTIFY) {
        serve_on_notify(r, &m);
    }
    return true;
}

void runner_pump(struct runner *r)
{
    while (serve_handle_message(r)) {
    }
}

/* ---- the life -------------------------------------------------------------------------------- */

static void serve_send_hello(struct runner *r)
{
    struct runner_hello h = {.pid = getpid()};
    snprintf(h.build, sizeof(h.build), "%s", build_id);
    channel_notify(&r->channel, "hello", &runner_hello_schema, &h);
}

static void serve_say_bye(struct runner *r)
{
    rpc_put_notify(&r->channel.out, "bye");
    wire_put_map(&r->channel.out, 0);
    channel_send(&r->channel);
    runner_quit(RUNNER_EXIT_OK);
}

/* Makes writes to standard error fail, and not wait, while the reader of the log is slow. A runner
 * that waits for its log sends no messages, and gemmd would kill it as hung. */
static void wait_for_no_reader(void)
{
    int fd = std_files_impatient();
    if (fd >= 0) {
        dup2(fd, STDERR_FILENO);
        close(fd);
    }
}

/* Sets the memory limit in the environment, where the device code (kernels/devices/) reads it. */
static void share_memory(int64_t percent)
{
    char share[16];
    if (percent > 0) {
        snprintf(share, sizeof(share), "%.2f", (double)percent / 100);
        setenv("GEMMD_MEMORY_SHARE", share, 1);
    }
}

static int patience_ms(const struct runner *r)
{
    int64_t linger_ms = r->opt.linger_ms;
    bool longer = !r->ordered && linger_ms < FIRST_ORDER_MS;
    return longer ? FIRST_ORDER_MS : (int)linger_ms;
}

static struct runner r; /* a process has a single runner, which is_unwanted() reads */

/* A baseline ends at any message, which the main loop then handles: an order would run inside the
 * baseline, while the baseline's operands hold memory. */
static bool is_unwanted(void)
{
    if (r.job == 0) {
        return channel_wait(&r.channel, -1, 0);
    }
    runner_pump(&r);
    return r.cancelled;
}

int runner_serve(const struct runner_options *opt)
{
    struct error err = ERROR_NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    self_ignore_signals();
    wait_for_no_reader();
    /* Only lowers this process's priority: raising the priority needs a privilege, and is the
     * user's decision. */
    if (opt->nice > getpriority(PRIO_PROCESS, 0) &&
        setpriority(PRIO_PROCESS, 0, (int)opt->nice) < 0) {
        fprintf(stderr, "gemmd-runner: cannot set nice %lld: %s\n", (long long)opt->nice,
                strerror(errno));
    }
    share_memory(opt->memory_percent);
    r.opt = *opt;
    host_work_unwanted = is_unwanted;
    r.baselines.off = opt->no_baseline;
    r.compilers = compilers_choose(opt->mode.device);
    if (channel_init(&r.channel, (int)opt->fd, &err)) {
        fprintf(stderr, "gemmd-runner: %s\n", err.text);
        return RUNNER_EXIT_USAGE;
    }
    serve_send_hello(&r);
    for (;;) {
        runner_pump(&r);
        if (r.pool && compile_pool_lost(r.pool) > 0) {
            serve_say_bye(&r);
        }
        bool owes = r.baselines.n > 0 && opt->linger_ms >= REST_MS;
        if (!channel_wait(&r.channel, -1, owes ? REST_MS : patience_ms(&r))) {
            if (!owes || !baselines_pay(&r)) {
                serve_say_bye(&r);
            }
        }
    }
}
