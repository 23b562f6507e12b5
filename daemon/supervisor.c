/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a runner: spawn, watch, kill, judge. runner_link.c reads and writes its socket.
 *
 * A death is judged once both the exit status and the end of the socket are there: the last words
 * on the socket decide whom to blame, so they must have been read.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/log.h"
#include "daemon/runner_link.h"
#include "daemon/supervisor.h"
#include "proto/build.h"

enum {
    EOF_LIMIT_MS = 2000,
    KILL_LIMIT_MS = 20 * 1000, /* from SIGKILL to the end: a driver may have much to tear down */
    STOP_LIMIT_MS = 5 * 1000,  /* the same, when gemmd stops */
};

const char *runner_state_name(enum runner_state s)
{
    static const char *const names[] = {"none", "starting", "idle", "busy"};
    return names[s];
}

static void on_watchdog(uv_timer_t *timer);

void supervisor_init(struct supervisor *s, struct daemon *d, const struct supervisor_hooks *hooks,
                     void *ctx)
{
    *s = (struct supervisor){.daemon = d, .hooks = hooks, .ctx = ctx};
    chore_init(&s->resume, runner_link_resume);
    uv_timer_init(&d->loop, &s->watchdog);
    s->watchdog.data = s;
    s->timer_open = true;
}

void supervisor_watch(struct supervisor *s, uint64_t limit_ms)
{
    if (s->killed && !s->exited) {
        return; /* its end is waited for, whatever it said before */
    }
    if (limit_ms) {
        uv_timer_start(&s->watchdog, on_watchdog, limit_ms, 0);
    } else {
        uv_timer_stop(&s->watchdog);
    }
}

void supervisor_kill(struct supervisor *s)
{
    if (s->state != RUNNER_NONE && !s->exited) {
        uv_process_kill(&s->process, SIGKILL);
        supervisor_watch(s, s->stopping ? STOP_LIMIT_MS : KILL_LIMIT_MS);
        s->killed = true;
    }
}

void supervisor_refuse(struct supervisor *s, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error_vset(&s->failure, code, format, args);
    va_end(args);
    log_error("runner %lld: %s", (long long)s->run.pid, s->failure.text);
    supervisor_kill(s);
}

/* ---- the end of a runner ------------------------------------------------------------------------- */

static void describe(const struct supervisor *s, struct death *why)
{
    *why = (struct death){.leaving = s->said_bye && !s->killed_hung,
                          .outside = !s->killed_hung && !s->failure.code &&
                                     (s->exit_signal == SIGKILL || s->exit_signal == SIGTERM)};
    const char *stage = s->attempt.stage[0] ? s->attempt.stage : "start";
    if (s->killed_hung) {
        why->status = "hung";
        snprintf(why->reason, sizeof(why->reason), "silent for more than %lld ms in %s: killed",
                 (long long)s->attempt.limit_ms, stage);
    } else if (s->lost.code) {
        why->status = "device_lost";
        snprintf(why->reason, sizeof(why->reason), "%.180s", s->lost.text);
    } else if (s->exit_signal) {
        why->status = "crashed";
        snprintf(why->reason, sizeof(why->reason), "the runner died of signal %d (%s) in %s",
                 s->exit_signal, strsignal(s->exit_signal), stage);
    } else {
        why->status = "crashed";
        snprintf(why->reason, sizeof(why->reason), "the runner ended with status %d in %s",
                 s->exit_status, stage);
    }
}

static void end_run(struct supervisor *s, const struct death *why)
{
    if (s->run.id <= 0) {
        return;
    }
    s->run.ended_s = time(NULL);
    if (s->said_bye || (s->exit_status == 0 && !s->exit_signal)) {
        snprintf(s->run.ending, sizeof(s->run.ending), "idle");
    } else if (s->stopping) {
        snprintf(s->run.ending, sizeof(s->run.ending), "gemmd stopped");
    } else {
        snprintf(s->run.ending, sizeof(s->run.ending), "%s: %.50s", why->status, why->reason);
    }
    if (s->daemon->ledger) {
        s->daemon->ledger->ops->end_run(s->daemon->ledger, &s->run);
    }
}

static void start(struct supervisor *s);
static void close_watchdog(struct supervisor *s);

static void judge(struct supervisor *s)
{
    struct death why;
    describe(s, &why);
    end_run(s, &why);
    bool sent = s->job && s->order.len == 0;
    bool waiting = s->job && s->order.len > 0;
    s->state = RUNNER_NONE;
    supervisor_watch(s, 0);
    inbox_close(&s->inbox);
    if (s->stopping) {
        close_watchdog(s);
        return;
    }
    if (!s->said_bye && (s->failure.code || s->exit_status || s->exit_signal || sent)) {
        s->deaths++;
        log_warning("%s", s->failure.code ? s->failure.text : why.reason);
    }
    if (s->failure.code && s->job) {
        s->job = 0;
        wire_buf_deinit(&s->order);
        s->hooks->error(s->ctx, &s->failure);
    } else if (waiting && s->said_bye) {
        start(s); /* the order came while it was leaving */
    } else if (s->job) {
        s->job = 0;
        wire_buf_deinit(&s->order);
        s->hooks->death(s->ctx, &why, &s->attempt);
    }
}

static void handle_closed(uv_handle_t *handle)
{
    struct supervisor *s = handle->data;
    if (--s->open_handles == 0) {
        judge(s);
    }
}

void supervisor_gone(struct supervisor *s)
{
    if (!s->exited || !s->eof || s->closing) {
        return;
    }
    s->closing = true;
    chore_cancel(&s->resume);
    uv_close((uv_handle_t *)&s->process, handle_closed);
    uv_close((uv_handle_t *)&s->pipe, handle_closed);
}

static void runner_exited(uv_process_t *process, int64_t status, int signal)
{
    struct supervisor *s = process->data;
    s->exited = true;
    s->exit_status = (int)status;
    s->exit_signal = signal;
    supervisor_watch(s, EOF_LIMIT_MS); /* somebody else may hold the other end: not for ever */
    supervisor_gone(s);
}

/* Not even SIGKILL ends it: it hangs in the kernel, and so does whatever uses the device next. When
 * gemmd stops, it is left behind; else nothing more is tuned, and hits are served on. */
static void give_up(struct supervisor *s)
{
    struct error e = ERROR_NULL;
    int64_t job = s->job;
    log_error("runner %d was killed and does not end", (int)s->process.pid);
    if (s->stopping) {
        s->exited = s->eof = true;
        supervisor_gone(s);
        return;
    }
    error_set(&e, ERROR_DEVICE_LOST,
              "runner %d was killed %d s ago and does not end: the device or its driver hangs; "
              "answers that are known are served on; see dmesg and reset the device; tuning is tried "
              "again when the runner has ended",
              (int)s->process.pid, KILL_LIMIT_MS / 1000);
    s->job = 0;
    wire_buf_deinit(&s->order);
    s->hooks->stuck(s->ctx, job, &e);
}

static void on_watchdog(uv_timer_t *timer)
{
    struct supervisor *s = timer->data;
    if (s->killed && !s->exited) {
        give_up(s);
    } else if (s->exited) {
        s->eof = true;
        supervisor_gone(s);
    } else if (!s->said_hello) {
        supervisor_refuse(s, ERROR_CRASHED, "the runner %s said nothing within %d s of its start",
                          s->daemon->runner, HELLO_LIMIT_MS / 1000);
    } else {
        s->killed_hung = !s->cancelling && !s->lost.code;
        log_warning("runner %lld: silent for more than %lld ms in %s: killed",
                    (long long)s->run.pid, (long long)s->attempt.limit_ms, s->attempt.stage);
        supervisor_kill(s);
    }
}

/* ---- the beginning --------------------------------------------------------------------------------- */

static int spawn(struct supervisor *s, struct error *err)
{
    struct daemon *d = s->daemon;
    char linger[24], hang[24], nice[24], memory[24], clocks[24];
    snprintf(linger, sizeof(linger), "%lld", (long long)d->config->linger_ms);
    snprintf(hang, sizeof(hang), "%lld", (long long)d->config->hang_limit_ms);
    snprintf(nice, sizeof(nice), "%lld", (long long)d->config->runner_nice);
    snprintf(memory, sizeof(memory), "%lld", (long long)d->config->memory_percent);
    snprintf(clocks, sizeof(clocks), "%lld", (long long)d->config->lock_clocks);
    const char *args[] = {d->runner, "--fd", "3", "--device", d->device_spec,
                          "--cache-dir", d->cache_dir, "--linger-ms", linger,
                          "--hang-limit-ms", hang, "--nice", nice,
                          "--memory-percent", memory, "--lock-clocks", clocks,
                          d->config->no_baseline ? "--no-baseline" : NULL, NULL};
    uv_stdio_container_t stdio[4] = {
        {.flags = UV_IGNORE},
        {.flags = UV_INHERIT_FD, .data.fd = 2},
        {.flags = UV_INHERIT_FD, .data.fd = 2},
        {.flags = UV_CREATE_PIPE | UV_READABLE_PIPE | UV_WRITABLE_PIPE,
         .data.stream = (uv_stream_t *)&s->pipe},
    };
    uv_process_options_t o = {
        .exit_cb = runner_exited, .file = d->runner, .args = (char **)args, .stdio_count = 4, .stdio = stdio};
    uv_pipe_init(&d->loop, &s->pipe, 0);
    s->pipe.data = s->process.data = s;
    int status = uv_spawn(&d->loop, &s->process, &o);
    if (status < 0) {
        bool scarce = status == UV_EMFILE || status == UV_ENFILE || status == UV_EAGAIN ||
                      status == UV_ENOMEM;
        return error_set(err, scarce ? ERROR_BUSY : ERROR_IO, "cannot start the runner %s: %s%s",
                         d->runner, uv_strerror(status),
                         scarce ? "; nothing was tuned: retry later, or raise the limits of gemmd"
                                : "");
    }
    return 0;
}

static void start(struct supervisor *s)
{
    s->said_hello = s->said_bye = s->killed_hung = s->cancelling = false;
    s->exited = s->eof = s->closing = s->killed = false;
    s->failure = s->lost = ERROR_NULL;
    s->run = (struct run){0};
    s->attempt = (struct attempt){0};
    s->starts++;
    s->state = RUNNER_STARTING;
    s->open_handles = 2;
    int status = spawn(s, &s->failure);
    if (status < 0) {
        /* As a runner that has ended already; libuv wants both handles closed here, too. */
        s->exited = s->eof = true;
        log_error("%s", s->failure.text);
        supervisor_gone(s);
        return;
    }
    supervisor_watch(s, HELLO_LIMIT_MS);
    runner_link_open(s);
    log_info("runner %d started", (int)s->process.pid);
}

void supervisor_tune(struct supervisor *s, int64_t job, struct wire_buf *order)
{
    s->job = job;
    s->order = *order;
    *order = WIRE_BUF_NULL;
    if (s->state == RUNNER_NONE) {
        start(s);
    } else {
        runner_link_order(s); /* else when it is ready */
    }
}

bool supervisor_cancel(struct supervisor *s, int64_t job)
{
    if (s->job != job) {
        return true;
    }
    if (s->order.len) { /* no runner has it yet */
        wire_buf_deinit(&s->order);
        s->job = 0;
        return true;
    }
    s->cancelling = true;
    runner_link_cancel(s, job);
    supervisor_watch(s, CANCEL_LIMIT_MS);
    return false;
}

/* ---- the end of the supervisor --------------------------------------------------------------------- */

static void timer_closed(uv_handle_t *handle)
{
    struct supervisor *s = handle->data;
    s->timer_open = false;
    supervisor_check_stopped(s);
}

static void close_watchdog(struct supervisor *s)
{
    uv_close((uv_handle_t *)&s->watchdog, timer_closed);
}

void supervisor_check_stopped(struct supervisor *s)
{
    if (s->stopping && s->state == RUNNER_NONE && !s->timer_open && s->stopped) {
        void (*stopped)(struct supervisor *) = s->stopped;
        s->stopped = NULL;
        wire_buf_deinit(&s->order);
        stopped(s);
    }
}

void supervisor_stop(struct supervisor *s, void (*stopped)(struct supervisor *s))
{
    s->stopping = true;
    s->stopped = stopped;
    s->job = 0;
    s->killed = false; /* a shorter patience from here on */
    supervisor_kill(s);
    if (s->state == RUNNER_NONE) {
        close_watchdog(s);
        return;
    }
    s->eof = true; /* nothing it says matters any more */
    supervisor_gone(s);
}
