/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tuning/runner_link.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/list.h"
#include "daemon/base/poller.h"
#include "proto/rpc.h"

enum { EOF_LIMIT_MS = 2000, WATCH_SLICE_MS = 1000 };

/* ---- the watchdog ---------------------------------------------------------------------------- */

static void check_ended(struct runner_link *l);
static void hear_unread(struct runner_link *l);
static void on_watchdog(uv_timer_t *timer);

static void begin_slice(struct runner_link *l)
{
    uint64_t slice = l->left_ms < WATCH_SLICE_MS ? l->left_ms : WATCH_SLICE_MS;
    l->left_ms -= slice;
    l->due_ms = uv_now(l->loop) + slice;
    uv_timer_start(&l->watchdog, on_watchdog, slice, 0);
}

static void on_watchdog(uv_timer_t *timer)
{
    struct runner_link *l = timer->data;
    if (uv_now(l->loop) > l->due_ms + AWAY_MS && !l->forgiven) {
        l->forgiven = true;
        l->left_ms = l->limit_ms;
    }
    if (l->left_ms) {
        begin_slice(l);
        return;
    }
    l->expired = true;
    hear_unread(l);
    if (!l->expired) {
        return;
    }
    if (l->killed && !l->exited) {
        l->hooks->stuck(l);
    } else if (l->exited) {
        /* a child of the runner may still hold the runner's end of the socket, so end of file may
         * never come */
        l->eof = true;
        check_ended(l);
    } else {
        l->hooks->silent(l);
    }
}

void runner_link_watch(struct runner_link *l, uint64_t limit_ms)
{
    if (l->killed && !l->exited) {
        /* a killed runner must end, also when its last messages are still read: the watch for its
         * end goes on */
        return;
    }
    l->limit_ms = l->left_ms = limit_ms;
    l->forgiven = l->expired = false;
    if (limit_ms) {
        begin_slice(l);
    } else {
        uv_timer_stop(&l->watchdog);
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

struct sending {
    uv_write_t write;
    struct wire_buf bytes; /* owned */
};

static void runner_link_on_sent(uv_write_t *write, int status)
{
    (void)status; /* a runner that does not read is noticed by its end, or by the watchdog */
    struct sending *x = LIST_OF(write, struct sending, write);
    wire_buf_deinit(&x->bytes);
    free(x);
}

int runner_link_send(struct runner_link *l, struct wire_buf *bytes)
{
    struct sending *x = bytes->failed ? NULL : malloc(sizeof(*x));
    if (!x) {
        wire_buf_deinit(bytes);
        return ERROR_NO_MEMORY;
    }
    x->bytes = *bytes;
    *bytes = WIRE_BUF_NULL;
    uv_buf_t buf = uv_buf_init((char *)x->bytes.data, (unsigned)x->bytes.len);
    if (uv_write(&x->write, (uv_stream_t *)&l->pipe, &buf, 1, runner_link_on_sent) < 0) {
        runner_link_on_sent(&x->write, 0);
    }
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

static void give_buffer(uv_handle_t *handle, size_t wanted, uv_buf_t *buf)
{
    struct runner_link *l = handle->data;
    *buf = uv_buf_init(l->room, sizeof(l->room));
}

/* Decodes the next message. 1: *m is borrowed until the next call. 0: more bytes must come.
 * ERROR_*: the stream is broken. */
static int runner_link_next_message(struct runner_link *l, struct rpc_message *m, struct error *err)
{
    size_t used = 0, seen = l->at + l->scanned;
    if (seen >= l->in.len) {
        return 0;
    }
    int status = scan_feed(&l->scan, l->in.data + seen, l->in.len - seen, &used, err);
    if (status == SCAN_MORE) {
        l->scanned = l->in.len - l->at;
        return 0;
    }
    if (status == SCAN_DONE) {
        size_t n = l->scanned + used;
        *m = (struct rpc_message){0};
        status = rpc_decode(l->doc, l->in.data + l->at, n, m, err);
        l->at += n;
        l->scanned = 0;
    }
    return status < 0 ? status : 1;
}

static void runner_link_take_messages(struct runner_link *l)
{
    struct rpc_message m;
    struct error err = ERROR_NULL;
    int status = 0;
    while (!l->deaf && (status = runner_link_next_message(l, &m, &err)) > 0) {
        l->hooks->message(l, &m);
    }
    if (status < 0) {
        error_prefix(&err, "the runner sent bytes that are no message");
        l->hooks->fault(l, ERROR_CRASHED, err.text);
    }
}

static bool take_bytes(struct runner_link *l, size_t n)
{
    if (l->at) {
        memmove(l->in.data, l->in.data + l->at, l->in.len - l->at);
        l->in.len -= l->at;
        l->at = 0;
    }
    wire_put_raw(&l->in, l->room, n);
    if (l->in.failed) {
        l->hooks->fault(l, ERROR_NO_MEMORY, "no memory to read from the runner");
        return false;
    }
    runner_link_take_messages(l);
    return true;
}

static void hear_unread(struct runner_link *l)
{
    int fd;
    if (l->deaf || l->eof || uv_fileno((uv_handle_t *)&l->pipe, &fd) < 0) {
        return;
    }
    ssize_t n = poller_recv(fd, l->room, sizeof(l->room));
    if (n > 0) { /* libuv handles the end of file */
        take_bytes(l, (size_t)n);
    }
}

static void runner_link_read_some(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct runner_link *l = stream->data;
    if (n < 0) {
        uv_read_stop(stream);
        l->eof = true;
        check_ended(l);
    } else if (n > 0 && !l->deaf) {
        if (take_bytes(l, (size_t)n)) {
            uv_read_stop(stream);
            turns_chore(l->turns, &l->resume);
        }
    }
}

static void runner_link_resume_reading(struct chore *chore)
{
    struct runner_link *l = LIST_OF(chore, struct runner_link, resume);
    uv_read_start((uv_stream_t *)&l->pipe, give_buffer, runner_link_read_some);
}

/* ---- the end of a runner --------------------------------------------------------------------- */

static void handle_closed(uv_handle_t *handle)
{
    struct runner_link *l = handle->data;
    if (--l->open_handles == 0) {
        l->running = false;
        runner_link_watch(l, 0);
        wire_buf_deinit(&l->in);
        l->doc = wire_doc_free(l->doc);
        l->hooks->ended(l);
    }
}

static void check_ended(struct runner_link *l)
{
    if (!l->exited || !l->eof || l->closing) {
        return;
    }
    l->closing = true;
    chore_cancel(&l->resume);
    uv_close((uv_handle_t *)&l->process, handle_closed);
    uv_close((uv_handle_t *)&l->pipe, handle_closed);
}

static void runner_link_on_exited(uv_process_t *process, int64_t status, int signal)
{
    struct runner_link *l = process->data;
    l->exited = true;
    l->exit_status = (int)status;
    l->exit_signal = signal;
    runner_link_watch(l, EOF_LIMIT_MS);
    check_ended(l);
}

void runner_link_kill(struct runner_link *l, uint64_t limit_ms)
{
    if (l->running && !l->exited) {
        uv_process_kill(&l->process, SIGKILL);
        /* this may be the second kill: runner_link_watch would not start a watch while `killed` is
         * set */
        l->killed = false;
        runner_link_watch(l, limit_ms);
        l->killed = true;
    }
}

void runner_link_forget(struct runner_link *l)
{
    l->deaf = l->eof = true;
    check_ended(l);
}

void runner_link_abandon(struct runner_link *l)
{
    l->exited = true;
    runner_link_forget(l);
}

/* ---- the beginning --------------------------------------------------------------------------- */

static int runner_link_spawn_process(struct runner_link *l, const char *file,
                                     const char *const args[], struct error *err)
{
    uv_stdio_container_t stdio[4] = {
        {.flags = UV_IGNORE},
        {.flags = UV_INHERIT_FD, .data.fd = 2},
        {.flags = UV_INHERIT_FD, .data.fd = 2},
        {.flags = UV_CREATE_PIPE | UV_READABLE_PIPE | UV_WRITABLE_PIPE,
         .data.stream = (uv_stream_t *)&l->pipe},
    };
    uv_process_options_t o = {.exit_cb = runner_link_on_exited,
                              .file = file,
                              .args = (char **)(uintptr_t)args,
                              .stdio_count = 4,
                              .stdio = stdio};
    uv_pipe_init(l->loop, &l->pipe, 0);
    l->pipe.data = l->process.data = l;
    int status = uv_spawn(l->loop, &l->process, &o);
    if (status < 0) {
        bool scarce = status == UV_EMFILE || status == UV_ENFILE || status == UV_EAGAIN ||
                      status == UV_ENOMEM;
        return error_set(err, scarce ? ERROR_BUSY : ERROR_IO, "cannot start the runner %s: %s%s",
                         file, uv_strerror(status),
                         scarce ? "; nothing was tuned: retry later, or raise the limits of gemmd"
                                : "");
    }
    return 0;
}

int runner_link_start(struct runner_link *l, const char *file, const char *const args[],
                      struct error *err)
{
    l->exited = l->eof = l->closing = l->killed = l->deaf = false;
    l->exit_status = l->exit_signal = 0;
    l->at = l->scanned = 0;
    l->doc = wire_doc_new();
    scan_init(&l->scan, RUNNER_MESSAGE_BYTES_MAX);
    l->running = true;
    l->open_handles = 2;
    int status = runner_link_spawn_process(l, file, args, err);
    if (status < 0) {
        /* libuv requires that both handles are closed also when no process was started */
        runner_link_abandon(l);
        return status;
    }
    if (!l->doc) {
        l->eof = true;
        l->hooks->fault(l, ERROR_NO_MEMORY, "no memory for a runner");
        return 0;
    }
    uv_read_start((uv_stream_t *)&l->pipe, give_buffer, runner_link_read_some);
    return 0;
}

/* ---- opening and closing the link ------------------------------------------------------------ */

void runner_link_init(struct runner_link *l, uv_loop_t *loop, struct turns *turns,
                      const struct runner_link_hooks *hooks)
{
    *l = (struct runner_link){.loop = loop, .turns = turns, .hooks = hooks};
    chore_init(&l->resume, runner_link_resume_reading, NULL);
    uv_timer_init(loop, &l->watchdog);
    l->watchdog.data = l;
}

static void timer_closed(uv_handle_t *handle)
{
    struct runner_link *l = handle->data;
    l->hooks->closed(l);
}

void runner_link_close(struct runner_link *l)
{
    uv_close((uv_handle_t *)&l->watchdog, timer_closed);
}
