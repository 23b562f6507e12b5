/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conversation with the runner (daemon/runner/runner.h). What it sends is scanned and decoded
 * like a client's bytes: a kernel may have written over the runner's memory. And it gets a turn like a
 * client's: READ_BYTES of it, then the others, so that a runner that floods keeps nobody waiting.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/log.h"
#include "daemon/runner_link.h"
#include "kernels/modules.h"
#include "proto/build.h"
#include "proto/rpc.h"

enum { READ_BYTES = 16 * 1024, WATCHDOG_SLACK_MS = 250 };

/* ---- writing ------------------------------------------------------------------------------------- */

struct sending {
    uv_write_t write;
    struct wire_buf bytes; /* owned */
};

static void sent(uv_write_t *write, int status)
{
    (void)status; /* a runner that takes nothing is noticed by its end, or by the watchdog */
    struct sending *x = LIST_OF(write, struct sending, write);
    wire_buf_deinit(&x->bytes);
    free(x);
}

static void send_bytes(struct supervisor *s, struct wire_buf *bytes)
{
    struct sending *x = bytes->failed ? NULL : malloc(sizeof(*x));
    if (!x) {
        supervisor_refuse(s, ERROR_NO_MEMORY, "no memory to write to the runner");
        wire_buf_deinit(bytes);
        return;
    }
    x->bytes = *bytes;
    *bytes = WIRE_BUF_NULL;
    uv_buf_t buf = uv_buf_init((char *)x->bytes.data, (unsigned)x->bytes.len);
    if (uv_write(&x->write, (uv_stream_t *)&s->pipe, &buf, 1, sent) < 0) {
        sent(&x->write, 0);
    }
}

void runner_link_order(struct supervisor *s)
{
    if (s->order.len == 0 || !s->said_hello || s->run_pending || s->said_bye || s->failure.code) {
        return;
    }
    struct wire_buf b = WIRE_BUF_NULL;
    rpc_put_request(&b, ++s->request, "tune");
    wire_put_raw(&b, s->order.data, s->order.len);
    wire_buf_deinit(&s->order);
    s->attempt = (struct attempt){.stage = "order", .limit_ms = ORDER_LIMIT_MS};
    s->cancelling = false;
    s->state = RUNNER_BUSY;
    supervisor_watch(s, ORDER_LIMIT_MS);
    send_bytes(s, &b);
}

void runner_link_cancel(struct supervisor *s, int64_t job)
{
    struct wire_buf b = WIRE_BUF_NULL;
    rpc_put_notify(&b, "cancel");
    wire_put_map(&b, 1);
    wire_put_kv_int(&b, "job", job);
    send_bytes(s, &b);
}

/* ---- what the runner says -------------------------------------------------------------------------- */

struct run_asked {
    struct supervisor *s; /* borrowed */
    uint64_t start;       /* which runner it was for */
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
    s->run.id = status < 0 ? 0 : id; /* tuned on from memory */
    s->run_pending = false;
    runner_link_order(s);
}

static void on_hello(struct supervisor *s, const struct wire_obj *params)
{
    struct daemon *d = s->daemon;
    struct runner_hello hello;
    struct error err = ERROR_NULL;
    if (schema_decode(&runner_hello_schema, SCHEMA_LENIENT, params, &hello, &err) < 0 ||
        s->said_hello) {
        supervisor_refuse(s, ERROR_INTERNAL, "the runner said a wrong hello: %s", err.text);
        return;
    }
    if (strcmp(hello.build, build_id) != 0) {
        supervisor_refuse(s, ERROR_INTERNAL,
                          "%s is of build %s, this gemmd of build %s: install both from one build",
                          d->runner, hello.build, build_id);
        return;
    }
    s->said_hello = true;
    s->state = RUNNER_IDLE;
    supervisor_watch(s, 0);
    s->run = (struct run){.pid = s->process.pid, .started_s = time(NULL)};
    snprintf(s->run.device, sizeof(s->run.device), "%s", d->device.uuid);
    snprintf(s->run.driver, sizeof(s->run.driver), "%s", d->device.driver);
    snprintf(s->run.compiler, sizeof(s->run.compiler), "%s", d->device.compiler);
    snprintf(s->run.build, sizeof(s->run.build), "%s", build_id);
    struct run_asked *asked = malloc(sizeof(*asked));
    s->run_pending = asked != NULL;
    if (asked) {
        *asked = (struct run_asked){.s = s, .start = s->starts};
        if (d->ledger->ops->add_run(d->ledger, &s->run, run_added, asked) < 0) {
            free(asked);
            s->run_pending = false;
        }
    }
    runner_link_order(s);
}

static void on_attempt(struct supervisor *s, const struct wire_obj *params)
{
    struct error err = ERROR_NULL;
    if (schema_decode(&attempt_schema, SCHEMA_LENIENT, params, &s->attempt, &err) < 0) {
        supervisor_refuse(s, ERROR_INTERNAL, "the runner announced nonsense: %s", err.text);
        return;
    }
    if (!s->cancelling) {
        supervisor_watch(s, s->attempt.limit_ms > 0
                                ? (uint64_t)s->attempt.limit_ms + WATCHDOG_SLACK_MS
                                : 0);
    }
}

static int64_t job_of(const struct wire_obj *params)
{
    int64_t job = 0;
    wire_get_int(wire_find(params, "job"), &job);
    return job;
}

static void on_notify(struct supervisor *s, const struct rpc_message *m)
{
    struct daemon *d = s->daemon;
    struct error err = ERROR_NULL;
    if (strcmp(m->method, "hello") == 0) {
        on_hello(s, m->params);
    } else if (strcmp(m->method, "attempt") == 0) {
        on_attempt(s, m->params);
    } else if (strcmp(m->method, "bye") == 0) {
        s->said_bye = true; /* an order that comes now waits for the next one */
    } else if (strcmp(m->method, "trial") == 0) {
        struct trial *t = &d->scratch->trial;
        if (schema_decode(&trial_schema, SCHEMA_LENIENT, m->params, t, &err) == 0) {
            t->run = s->run.id;
            if (strcmp(t->stage, "baseline") == 0) {
                s->hooks->baseline(s->ctx, t);
            } else {
                s->hooks->trial(s->ctx, job_of(m->params), t);
            }
        }
    } else if (strcmp(m->method, "module") == 0) {
        struct module module;
        if (schema_decode(&module_schema, SCHEMA_LENIENT, m->params, &module, &err) == 0) {
            s->hooks->module(s->ctx, &module);
        }
    } else if (strcmp(m->method, "progress") == 0) {
        struct progress p;
        if (schema_decode(&progress_schema, SCHEMA_LENIENT, m->params, &p, &err) == 0) {
            s->hooks->progress(s->ctx, job_of(m->params), &p);
        }
    } /* `device`, and what a newer runner may add: nothing for us */
    if (err.code) {
        log_warning("runner %lld: %s: %s", (long long)s->run.pid, m->method, err.text);
    }
}

/* An answer must not name what cannot be fetched: the runner goes on when its cache is full. */
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
    struct daemon *d = s->daemon;
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
    if (e.code == ERROR_DEVICE_LOST) { /* it ends now; that is what the job is told of */
        s->lost = e;
        supervisor_watch(s, CANCEL_LIMIT_MS);
        return;
    }
    s->job = 0;
    s->state = RUNNER_IDLE;
    s->cancelling = false;
    supervisor_watch(s, 0);
    if (e.code) {
        s->hooks->error(s->ctx, &e);
    } else {
        check_module(d, &r);
        s->hooks->result(s->ctx, &r);
    }
}

static void on_message(struct supervisor *s, const struct rpc_message *m)
{
    if (m->type == RPC_NOTIFY) {
        on_notify(s, m);
    } else if (m->type == RPC_RESPONSE) {
        on_response(s, m);
    }
}

/* ---- reading ----------------------------------------------------------------------------------------- */

static void give_buffer(uv_handle_t *handle, size_t wanted, uv_buf_t *buf)
{
    (void)wanted;
    *buf = inbox_room(&((struct supervisor *)handle->data)->inbox);
}

static void take_messages(struct supervisor *s)
{
    struct rpc_message m;
    struct error err = ERROR_NULL;
    int status = 0;
    while (!s->failure.code && (status = inbox_next(&s->inbox, &m, &err)) > 0) {
        on_message(s, &m);
    }
    if (status < 0) {
        supervisor_refuse(s, ERROR_CRASHED, "the runner sent what is no message: %s", err.text);
    }
}

static void read_some(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct supervisor *s = stream->data;
    (void)buf;
    if (n < 0) {
        uv_read_stop(stream);
        s->eof = true;
        supervisor_gone(s);
    } else if (n > 0 && !s->failure.code && !s->stopping) {
        if (inbox_put(&s->inbox, (size_t)n) < 0) {
            supervisor_refuse(s, ERROR_NO_MEMORY, "no memory to hear the runner");
            return;
        }
        take_messages(s);
        uv_read_stop(stream);
        turns_chore(&s->daemon->turns, &s->resume);
    }
}

void runner_link_resume(struct chore *resume)
{
    struct supervisor *s = LIST_OF(resume, struct supervisor, resume);
    uv_read_start((uv_stream_t *)&s->pipe, give_buffer, read_some);
}

void runner_link_open(struct supervisor *s)
{
    if (inbox_open(&s->inbox, RUNNER_MESSAGE_BYTES_MAX, READ_BYTES) < 0) {
        s->eof = true;
        supervisor_refuse(s, ERROR_NO_MEMORY, "no memory for a runner");
        return;
    }
    uv_read_start((uv_stream_t *)&s->pipe, give_buffer, read_some);
}
