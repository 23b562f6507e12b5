/* SPDX-License-Identifier: Apache-2.0 */
/* The conversation with a runner (runner/runner.h), and the consequences of its end. runner_link.c
 * has the process and its socket. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/base/log.h"
#include "daemon/base/probe.h"
#include "daemon/tuning/tuning.h"
#include "kernels/modules.h"
#include "proto/build.h"
#include "proto/rpc.h"

enum {
    /* time from SIGKILL to the runner's end: a driver may be slow to tear down */
    KILL_LIMIT_MS = 20 * 1000,
    STOP_LIMIT_MS = 5 * 1000,  /* time from SIGKILL to the runner's end when gemmd stops */
    LEAVE_LIMIT_MS = 5 * 1000, /* time from the runner's `bye` to its end */
    WATCHDOG_SLACK_MS = 250,
    /* time for planning and for starting compilers, which --hang-limit-ms does not cover */
    ORDER_BEGIN_MS = 2000,
};

const char *runner_state_name(enum runner_state s)
{
    static const char *const names[] = {"none", "starting", "idle", "busy"};
    return names[s];
}

static struct supervisor *of_link(struct runner_link *l)
{
    return LIST_OF(l, struct supervisor, link);
}

/* Declares the runner unusable: the job fails with this error, and the runner is killed. */
__attribute__((format(printf, 3, 4))) static void refuse(struct supervisor *s, int code,
                                                         const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error_vset(&s->failure, code, format, args);
    va_end(args);
    log_error("runner %lld: %s", (long long)s->run.pid, s->failure.text);
    s->link.deaf = true;
    runner_link_kill(&s->link, s->stopping ? STOP_LIMIT_MS : KILL_LIMIT_MS);
}

static void on_fault(struct runner_link *l, int code, const char *text)
{
    refuse(of_link(l), code, "%s", text);
}

/* ---- messages to the runner ------------------------------------------------------------------ */

static void send_bytes(struct supervisor *s, struct wire_buf *bytes)
{
    if (runner_link_send(&s->link, bytes) < 0) {
        refuse(s, ERROR_NO_MEMORY, "no memory to write to the runner");
    }
}

static void send_of_job(struct supervisor *s, const char *method, int64_t job)
{
    struct wire_buf b = WIRE_BUF_NULL;
    rpc_put_notify(&b, method);
    wire_put_map(&b, 1);
    wire_put_kv_int(&b, "job", job);
    send_bytes(s, &b);
}

/* No runner has the order any more. */
static void supervisor_forget_order(struct supervisor *s)
{
    s->job = 0;
    wire_buf_deinit(&s->order);
    pauses_end(s->tuning);
}

/* Watches the time from the order to the first attempt. */
static void await_first_attempt(struct supervisor *s)
{
    int64_t hang_ms = s->tuning->daemon->config->hang_limit_ms;
    int64_t limit_ms = hang_ms > 0 ? hang_ms + ORDER_BEGIN_MS : ORDER_LIMIT_MS;
    limit_ms = limit_ms < ORDER_LIMIT_MS ? limit_ms : ORDER_LIMIT_MS;
    s->attempt = (struct attempt){.stage = "order", .limit_ms = limit_ms};
    runner_link_watch(&s->link, (uint64_t)limit_ms + WATCHDOG_SLACK_MS);
}

/* Sends the order, when the runner is ready for it. */
static void supervisor_send_order(struct supervisor *s)
{
    if (s->order.len == 0 || !s->said_hello || s->run_pending || s->said_bye || s->failure.code) {
        return;
    }
    struct wire_buf b = WIRE_BUF_NULL;
    rpc_put_request(&b, ++s->request, "tune");
    wire_put_raw(&b, s->order.data, s->order.len);
    wire_buf_deinit(&s->order);
    s->cancelling = false;
    s->state = RUNNER_BUSY;
    await_first_attempt(s);
    send_bytes(s, &b);
    if (s->others_wait) {
        send_of_job(s, "others_wait", s->job);
    }
}

/* ---- messages from the runner ---------------------------------------------------------------- */

/* Limits the runner's silence, except after its `bye`: then the limit until its end (on_bye)
 * stays. */
static void supervisor_watch_silence(struct supervisor *s, uint64_t limit_ms)
{
    if (!s->said_bye) {
        runner_link_watch(&s->link, limit_ms);
    }
}

struct run_asked {
    struct supervisor *s; /* borrowed */
    /* supervisor.starts when the ledger was asked: shows whether the same runner is still there */
    uint64_t start;
};

static void run_added(void *ctx, int status, int64_t id, const struct error *err)
{
    struct run_asked *asked = ctx;
    struct supervisor *s = asked->s;
    bool current = asked->start == s->starts && s->state != RUNNER_NONE;
    free(asked);
    if (!current) {
        return;
    }
    if (status < 0) {
        log_warning("the run cannot be recorded: %s", err->text);
    }
    /* without an id the tuning goes on, and its run is not recorded */
    s->run.id = status < 0 ? 0 : id;
    s->run_pending = false;
    supervisor_send_order(s);
}

static void on_hello(struct supervisor *s, const struct wire_obj *params)
{
    struct daemon *d = s->tuning->daemon;
    struct runner_hello hello;
    struct error err = ERROR_NULL;
    if (schema_decode(&runner_hello_schema, SCHEMA_LENIENT, params, &hello, &err) < 0 ||
        s->said_hello) {
        refuse(s, ERROR_INTERNAL, "the runner sent an invalid hello: %s", err.text);
        return;
    }
    if (strcmp(hello.build, build_id) != 0) {
        s->foreign = true;
        refuse(
            s, ERROR_INTERNAL,
            "restart gemmd: it is of build %s, and its runner of build %s: %.160s was upgraded "
            "while gemmd ran, or without it; if that does not help, install both from one build; "
            "answers that are known are served on",
            build_id, hello.build, d->config->runner);
        return;
    }
    s->said_hello = true;
    s->state = RUNNER_IDLE;
    supervisor_watch_silence(s, 0);
    s->run = (struct run){.pid = s->link.process.pid, .started_s = time(NULL)};
    snprintf(s->run.device, sizeof(s->run.device), "%s", d->device.uuid);
    snprintf(s->run.driver, sizeof(s->run.driver), "%s", d->device.driver);
    snprintf(s->run.compiler, sizeof(s->run.compiler), "%s", d->device.compiler);
    snprintf(s->run.build, sizeof(s->run.build), "%s", build_id);
    struct run_asked *asked = malloc(sizeof(*asked));
    s->run_pending = asked != NULL;
    if (asked) {
        *asked = (struct run_asked){.s = s, .start = s->starts};
        if (ledger_add_run(d->ledger, &s->run, run_added, asked) < 0) {
            free(asked);
            s->run_pending = false;
        }
    }
    supervisor_send_order(s);
}

/* An order that comes now waits for the next runner, so this runner must end soon. */
static void on_bye(struct supervisor *s)
{
    supervisor_watch_silence(s, LEAVE_LIMIT_MS);
    s->said_bye = true;
}

static void on_attempt(struct supervisor *s, const struct wire_obj *params)
{
    struct error err = ERROR_NULL;
    if (schema_decode(&attempt_schema, SCHEMA_LENIENT, params, &s->attempt, &err) < 0) {
        refuse(s, ERROR_INTERNAL, "the runner announced nonsense: %s", err.text);
        return;
    }
    if (s->cancelling || s->said_bye) {
        return;
    }
    if (strcmp(s->attempt.stage, "idle") == 0 && s->job && s->order.len == 0) {
        await_first_attempt(s); /* the runner sent this step before it had read the new order */
        return;
    }
    supervisor_watch_silence(
        s, s->attempt.limit_ms > 0 ? (uint64_t)s->attempt.limit_ms + WATCHDOG_SLACK_MS : 0);
}

static int64_t supervisor_job_of(const struct wire_obj *params)
{
    int64_t job = 0;
    wire_get_int(wire_find(params, "job"), &job);
    return job;
}

static void supervisor_on_notify(struct supervisor *s, const struct rpc_message *m)
{
    struct daemon *d = s->tuning->daemon;
    struct error err = ERROR_NULL;
    if (strcmp(m->method, "hello") == 0) {
        on_hello(s, m->params);
    } else if (strcmp(m->method, "attempt") == 0) {
        on_attempt(s, m->params);
    } else if (strcmp(m->method, "bye") == 0) {
        on_bye(s);
    } else if (strcmp(m->method, "quiet") == 0) {
        bool wants = false;
        wire_get_bool(wire_find(m->params, "wants"), &wants);
        pauses_on_quiet(s->tuning, supervisor_job_of(m->params), wants);
    } else if (strcmp(m->method, "trial") == 0) {
        struct trial *t = &d->scratch->trial;
        if (schema_decode(&trial_schema, SCHEMA_LENIENT, m->params, t, &err) == 0) {
            t->run = s->run.id;
            if (strcmp(t->stage, "baseline") == 0) {
                /* a vendor library's time for a key that was tuned earlier, and no job's candidate
                 */
                t->created_s = time(NULL);
                ledger_add_trial(d->ledger, t);
            } else {
                tuning_on_trial(s->tuning, supervisor_job_of(m->params), t);
            }
        }
    } else if (strcmp(m->method, "module") == 0) {
        struct module module;
        if (schema_decode(&module_schema, SCHEMA_LENIENT, m->params, &module, &err) == 0) {
            ledger_add_module(d->ledger, &module);
        }
    } else if (strcmp(m->method, "progress") == 0) {
        struct progress p;
        if (schema_decode(&progress_schema, SCHEMA_LENIENT, m->params, &p, &err) == 0) {
            tuning_on_progress(s->tuning, supervisor_job_of(m->params), &p);
        }
    } /* the message `device`, and messages of newer runners, are ignored */
    if (err.code) {
        log_warning("runner %lld: %s: %s", (long long)s->run.pid, m->method, err.text);
    }
}

/* Clears the result's module id when clients could not fetch the module, since its file is missing:
 * the cache directory may be full. */
static void check_module(struct daemon *d, struct tune_result *r)
{
    struct chunk none = {0};
    struct error err = ERROR_NULL;
    if (r->module[0] && modules_read(d->cache_dir, r->module, 0, 0, &none, &err) != 0) {
        log_warning("module %s of the result is not in %s%s%s: the answer names none", r->module,
                    d->cache_dir, err.code ? ": " : "", err.text);
        r->module[0] = 0;
    }
    free(none.data);
}

static void on_response(struct supervisor *s, const struct rpc_message *m)
{
    struct daemon *d = s->tuning->daemon;
    if (!s->job || m->id != s->request || s->order.len) {
        return;
    }
    struct error e = ERROR_NULL;
    struct tune_result r;
    if (m->error) {
        rpc_get_error(m->error, &e);
    } else {
        schema_decode(&tune_result_schema, SCHEMA_LENIENT, m->result, &r, &e);
    }
    if (e.code == ERROR_DEVICE_LOST) {
        /* the runner ends now; supervisor_on_ended then reports that end to the job as a death */
        s->lost = e;
        runner_link_watch(&s->link, CANCEL_LIMIT_MS);
        return;
    }
    supervisor_forget_order(s);
    s->state = RUNNER_IDLE;
    s->cancelling = false;
    supervisor_watch_silence(s, 0);
    if (e.code) {
        tuning_on_error(s->tuning, &e);
    } else {
        check_module(d, &r);
        tuning_on_result(s->tuning, &r);
    }
}

static void supervisor_on_message(struct runner_link *l, const struct rpc_message *m)
{
    struct supervisor *s = of_link(l);
    if (m->type == RPC_NOTIFY) {
        supervisor_on_notify(s, m);
    } else if (m->type == RPC_RESPONSE) {
        on_response(s, m);
    }
}

/* ---- the end of a runner --------------------------------------------------------------------- */

/* True for signals that come from a person or another program, and not from a faulty kernel. Ctrl-C
 * and the end of a terminal reach the runner too, even when gemmd stays (nohup). */
static bool is_from_outside(int number)
{
    return number == SIGKILL || number == SIGTERM || number == SIGINT || number == SIGHUP;
}

static void supervisor_describe_death(const struct supervisor *s, struct death *why)
{
    *why = (struct death){.leaving = s->said_bye && !s->killed_hung,
                          .outside = !s->killed_hung && !s->failure.code &&
                                     is_from_outside(s->link.exit_signal)};
    const char *stage = s->attempt.stage[0] ? s->attempt.stage : "start";
    if (s->killed_hung) {
        why->code = ERROR_HUNG;
        snprintf(why->reason, sizeof(why->reason), "silent for more than %lld ms in %s: killed",
                 (long long)s->attempt.limit_ms, stage);
    } else if (s->lost.code) {
        why->code = ERROR_DEVICE_LOST;
        snprintf(why->reason, sizeof(why->reason), "%.180s", s->lost.text);
    } else if (s->link.exit_signal) {
        why->code = ERROR_CRASHED;
        snprintf(why->reason, sizeof(why->reason), "the runner died of signal %d (%s) in %s",
                 s->link.exit_signal, strsignal(s->link.exit_signal), stage);
    } else {
        why->code = ERROR_CRASHED;
        snprintf(why->reason, sizeof(why->reason), "the runner ended with status %d in %s",
                 s->link.exit_status, stage);
    }
}

static void end_run(struct supervisor *s, const struct death *why)
{
    if (s->run.id <= 0) {
        return;
    }
    s->run.ended_s = time(NULL);
    if (s->said_bye || (s->link.exit_status == 0 && !s->link.exit_signal)) {
        snprintf(s->run.ending, sizeof(s->run.ending), "idle");
    } else if (s->stopping) {
        snprintf(s->run.ending, sizeof(s->run.ending), "gemmd stopped");
    } else {
        snprintf(s->run.ending, sizeof(s->run.ending), "%s: %.50s", error_name(why->code),
                 why->reason);
    }
    if (s->tuning->daemon->ledger) {
        ledger_end_run(s->tuning->daemon->ledger, &s->run);
    }
}

static void supervisor_start_runner(struct supervisor *s);

static void end_order(struct supervisor *s, const struct error *why)
{
    supervisor_forget_order(s);
    tuning_on_error(s->tuning, why);
}

/* Ends the order and starts no other runner, which would fail in the same way. */
static void supervisor_give_up(struct supervisor *s, const struct error *why)
{
    int64_t job = s->job;
    supervisor_forget_order(s);
    tuning_on_stuck(s->tuning, job, why);
}

static void say_idle(const struct supervisor *s, struct error *e)
{
    error_set(e, ERROR_BUSY,
              "%u runners in a row left before they had an order: %s; nothing was tuned: retry "
              "later",
              s->idle_starts,
              s->run_pending ? "the database does not take their runs (is it locked? gemmctl "
                               "status says what is not saved)"
                             : "gemmd's log may say why");
}

/* Starts another runner for an order that no runner has read: the runner was leaving or being
 * killed, or waited for its run's id. This is no fault of the job. */
static void start_next(struct supervisor *s)
{
    if (++s->idle_starts < IDLE_STARTS_MAX) {
        supervisor_start_runner(s);
        return;
    }
    struct error e = s->failure;
    if (!e.code) {
        say_idle(s, &e);
    }
    end_order(s, &e);
}

uint64_t supervisor_up_ms(const struct supervisor *s)
{
    const uint64_t now = uv_now(&s->tuning->daemon->loop);
    return s->up_ms + (s->state == RUNNER_NONE ? 0 : now - s->since_ms);
}

static void supervisor_on_ended(struct runner_link *l)
{
    struct supervisor *s = of_link(l);
    struct death why;
    supervisor_describe_death(s, &why);
    end_run(s, &why);
    bool sent = s->job && s->order.len == 0;
    bool waiting = s->job && s->order.len > 0;
    s->up_ms = supervisor_up_ms(s);
    s->state = RUNNER_NONE;
    if (s->stopping) {
        runner_link_close(&s->link);
        return;
    }
    if (!s->said_bye && (s->failure.code || l->exit_status || l->exit_signal || sent)) {
        s->deaths += !s->foreign; /* a runner of another build was refused; no kernel crashed */
        s->hung += s->killed_hung;
        log_warning("%s", s->failure.code ? s->failure.text : why.reason);
    }
    if (s->foreign) {
        supervisor_give_up(s, &s->failure);
    } else if (waiting && s->said_hello && (s->said_bye || s->failure.code)) {
        start_next(s);
    } else if (s->failure.code && s->job) {
        end_order(s, &s->failure);
    } else if (s->job) {
        supervisor_forget_order(s);
        tuning_on_death(s->tuning, &why, &s->attempt);
    }
}

/* Even SIGKILL did not end the runner: it hangs in the operating system's kernel, and so would the
 * next process that uses the device. When gemmd stops, the runner is left behind. Else tuning is
 * switched off, and answers in the cache are still served. */
static void supervisor_on_stuck(struct runner_link *l)
{
    struct supervisor *s = of_link(l);
    struct error e = ERROR_NULL;
    log_error("runner %d was killed and does not end", (int)l->process.pid);
    if (s->stopping) {
        runner_link_abandon(l);
        return;
    }
    error_set(
        &e, ERROR_DEVICE_LOST,
        "runner %d was killed %d s ago and does not end: the device or its driver hangs; "
        "answers that are known are served on; see dmesg and reset the device; tuning is tried "
        "again when the runner has ended",
        (int)l->process.pid, KILL_LIMIT_MS / 1000);
    supervisor_give_up(s, &e);
}

static void on_silent(struct runner_link *l)
{
    struct supervisor *s = of_link(l);
    if (!s->said_hello) {
        refuse(s, ERROR_CRASHED, "the runner %s said nothing within %d s of its start",
               s->tuning->daemon->config->runner, HELLO_LIMIT_MS / 1000);
        return;
    }
    if (s->said_bye) {
        log_warning("runner %lld: said that it leaves and did not end within %d s: killed",
                    (long long)s->run.pid, LEAVE_LIMIT_MS / 1000);
    } else {
        s->killed_hung = !s->cancelling && !s->lost.code;
        log_warning("runner %lld: silent for more than %lld ms in %s: killed",
                    (long long)s->run.pid, (long long)s->attempt.limit_ms, s->attempt.stage);
    }
    runner_link_kill(l, s->stopping ? STOP_LIMIT_MS : KILL_LIMIT_MS);
}

/* ---- the beginning --------------------------------------------------------------------------- */

static int start_link(struct supervisor *s, struct error *err)
{
    struct daemon *d = s->tuning->daemon;
    char *device = probe_device_text(&d->device);
    char linger[24], hang[24], nice[24], memory[24], clocks[24];
    snprintf(linger, sizeof(linger), "%lld", (long long)d->config->linger_ms);
    snprintf(hang, sizeof(hang), "%lld", (long long)d->config->hang_limit_ms);
    snprintf(nice, sizeof(nice), "%lld", (long long)d->config->runner_nice);
    snprintf(memory, sizeof(memory), "%lld", (long long)d->config->memory_percent);
    snprintf(clocks, sizeof(clocks), "%lld", (long long)d->config->lock_clocks);
    const char *args[] = {d->config->runner,
                          "--fd",
                          "3",
                          "--device",
                          d->config->device,
                          "--cache-dir",
                          d->cache_dir,
                          "--expect",
                          device ? device : "",
                          "--linger-ms",
                          linger,
                          "--hang-limit-ms",
                          hang,
                          "--nice",
                          nice,
                          "--memory-percent",
                          memory,
                          "--lock-clocks",
                          clocks,
                          d->config->no_baseline ? "--no-baseline" : NULL,
                          NULL};
    int r = runner_link_start(&s->link, d->config->runner, args, err);
    free(device);
    return r;
}

static void supervisor_start_runner(struct supervisor *s)
{
    s->said_hello = s->said_bye = s->killed_hung = s->cancelling = s->foreign = false;
    s->failure = s->lost = ERROR_NULL;
    s->run = (struct run){0};
    s->attempt = (struct attempt){0};
    s->starts++;
    s->since_ms = uv_now(&s->tuning->daemon->loop);
    s->state = RUNNER_STARTING;
    if (start_link(s, &s->failure) < 0) {
        log_error("%s", s->failure.text);
        return; /* runner_link reports the runner's end, as if the runner had started */
    }
    runner_link_watch(&s->link, HELLO_LIMIT_MS);
    log_info("runner %d started", (int)s->link.process.pid);
}

void supervisor_tune(struct supervisor *s, int64_t job, struct wire_buf *order)
{
    s->job = job;
    s->others_wait = false;
    s->idle_starts = 0;
    s->order = *order;
    *order = WIRE_BUF_NULL;
    if (s->state == RUNNER_NONE) {
        supervisor_start_runner(s);
    } else {
        /* sends only to a ready runner; on_hello or run_added sends later */
        supervisor_send_order(s);
    }
}

bool supervisor_cancel(struct supervisor *s, int64_t job)
{
    if (s->job != job) {
        return true;
    }
    if (s->order.len) { /* no runner has the order yet */
        supervisor_forget_order(s);
        return true;
    }
    s->cancelling = true;
    send_of_job(s, "cancel", job);
    runner_link_watch(&s->link, CANCEL_LIMIT_MS);
    return false;
}

void supervisor_others_wait(struct supervisor *s, int64_t job)
{
    if (s->job != job || s->others_wait) {
        return;
    }
    s->others_wait = true;
    if (s->state == RUNNER_BUSY && s->order.len == 0) {
        send_of_job(s, "others_wait", job);
    }
}

void supervisor_pause(struct supervisor *s, int64_t job, int64_t ms)
{
    struct wire_buf b = WIRE_BUF_NULL;
    if (s->job != job || s->state != RUNNER_BUSY || s->order.len > 0) {
        return;
    }
    rpc_put_notify(&b, "pause");
    wire_put_map(&b, 2);
    wire_put_kv_int(&b, "job", job);
    wire_put_kv_int(&b, "ms", ms);
    if (strcmp(s->attempt.stage, "pause") ==
        0) { /* now silence is a fault: the runner must go on */
        const int64_t hang_ms = s->tuning->daemon->config->hang_limit_ms;
        const bool shorter = hang_ms > 0 && hang_ms < CANCEL_LIMIT_MS;
        s->attempt.limit_ms = shorter ? hang_ms : CANCEL_LIMIT_MS;
        supervisor_watch_silence(s, (uint64_t)s->attempt.limit_ms + WATCHDOG_SLACK_MS);
    }
    send_bytes(s, &b);
}

void supervisor_forget(struct supervisor *s, int64_t job)
{
    if (s->said_hello && !s->stopping && (s->state == RUNNER_IDLE || s->state == RUNNER_BUSY)) {
        send_of_job(s, "forget", job);
    }
}

/* ---- opening and closing the supervisor ------------------------------------------------------ */

static void supervisor_on_closed(struct runner_link *l)
{
    struct supervisor *s = of_link(l);
    wire_buf_deinit(&s->order);
    s->tuning->stopped(s->tuning);
}

void supervisor_init(struct supervisor *s, struct tuning *x)
{
    static const struct runner_link_hooks link_hooks = {.message = supervisor_on_message,
                                                        .fault = on_fault,
                                                        .silent = on_silent,
                                                        .stuck = supervisor_on_stuck,
                                                        .ended = supervisor_on_ended,
                                                        .closed = supervisor_on_closed};
    s->tuning = x;
    runner_link_init(&s->link, &x->daemon->loop, &x->daemon->turns, &link_hooks);
}

void supervisor_stop(struct supervisor *s)
{
    s->stopping = true;
    s->job = 0;
    runner_link_kill(&s->link, STOP_LIMIT_MS);
    if (s->state == RUNNER_NONE) {
        runner_link_close(&s->link);
    } else {
        runner_link_forget(&s->link); /* further messages are ignored */
    }
}
