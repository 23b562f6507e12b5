/* SPDX-License-Identifier: Apache-2.0 */
/* Messages from gemmd. The runner handles messages also between two steps of a job, and a
 * notification may end the job. serve.c handles orders. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runner/compile/apart.h"
#include "runner/runner.h"

void runner_quit(enum runner_exit code)
{
    apart_quit();
    fflush(NULL);
    _exit(code);
}

static int64_t inbox_read_job(const struct rpc_message *m)
{
    int64_t job = 0;
    wire_get_int(wire_find(m->params, "job"), &job);
    return job;
}

static void inbox_on_notify(struct runner *r, const struct rpc_message *m)
{
    if (strcmp(m->method, "cancel") == 0) {
        r->cancelled |= inbox_read_job(m) == r->job;
    } else if (strcmp(m->method, "others_wait") == 0) {
        r->others_wait |= inbox_read_job(m) == r->job;
    } else if (strcmp(m->method, "forget") == 0 && r->pool) {
        aside_drop(r, inbox_read_job(m));
    }
}

static void on_request(struct runner *r, const struct rpc_message *m)
{
    if (strcmp(m->method, "tune") == 0) {
        r->on_tune(r, m);
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
static bool inbox_handle_message(struct runner *r)
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
        inbox_on_notify(r, &m);
    }
    return true;
}

void runner_pump(struct runner *r)
{
    while (inbox_handle_message(r)) {
    }
}
