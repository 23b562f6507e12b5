/* SPDX-License-Identifier: Apache-2.0 */
/* All sessions: accept, deadlines, end (session.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "daemon/session/session.h"
#include "proto/limits.h"

enum { SWEEP_MS = 1000 };

static void run_sweep(uv_timer_t *timer);

int sessions_init(struct sessions *x, struct turns *turns, struct poller *poller,
                  const struct session_limits *limits, const struct session_hooks *hooks, void *ctx,
                  struct error *err)
{
    *x = (struct sessions){
        .turns = turns, .poller = poller, .hooks = hooks, .ctx = ctx, .limits = *limits};
    x->input = malloc(INPUT_BYTES);
    if (!x->input) {
        return error_set(err, ERROR_NO_MEMORY, "no memory to start");
    }
    accounts_init(&x->accounts, &limits->user);
    tallies_init(&x->tallies);
    list_init(&x->all);
    uv_timer_init(turns->idle.loop, &x->sweep);
    x->sweep.data = x;
    x->open = true;
    x->quiet_since_ms = turns_now(turns);
    /* sets the period; session_watch starts the timer */
    uv_timer_start(&x->sweep, run_sweep, SWEEP_MS, SWEEP_MS);
    uv_timer_stop(&x->sweep);
    return 0;
}

/* ---- accept ---------------------------------------------------------------------------------- */

/* Checks that a new connection is within the limits of the daemon and of its user, and charges the
 * user. */
static int sessions_admit_session(struct session *s, struct error *err)
{
    struct sessions *all = s->all;
    unsigned others = all->n - all->n_refused - 1;
    if (others >= all->limits.sessions) {
        return error_set(err, ERROR_BUSY, "all %u connections are in use; retry later",
                         all->limits.sessions);
    }
    return account_add_connection(s->account, err);
}

/* Finds the account of a new connection's user, and adds the connection to the poller. */
static int sessions_watch_connection(struct session *s, struct error *err)
{
    struct ucred peer = {.pid = 0, .uid = (uid_t)-1};
    socklen_t n = sizeof(peer);
    getsockopt(s->fd, SOL_SOCKET, SO_PEERCRED, &peer, &n);
    s->uid = peer.uid;
    s->pid = peer.pid;
    s->account = account_of(&s->all->accounts, s->uid);
    if (!s->account) {
        return error_set(err, ERROR_NO_MEMORY, "accept: no memory for its user's account");
    }
    return poller_add(s->all->poller, s->fd, &s->polled, err);
}

int sessions_accept(struct sessions *x, int listener, struct error *err)
{
    struct session *s = calloc(1, sizeof(*s));
    if (!s) {
        return error_set(err, ERROR_BUSY, "no memory for a connection: it waits");
    }
    s->fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (s->fd < 0) {
        int status = SESSIONS_NONE;
        if (errno != EAGAIN) {
            status = error_set(err, ERROR_BUSY, "accept: %s: connections wait", strerror(errno));
        }
        free(s);
        return status;
    }
    s->all = x;
    s->pinned = -1;
    s->polled.ready = session_ready;
    scan_init(&s->scan, REQUEST_BYTES_MAX);
    list_init(&s->tickets);
    turn_init(&s->turn, session_take_turn);
    list_append(&x->all, &s->link);
    x->n++;
    struct error busy = ERROR_NULL;
    int status = sessions_watch_connection(s, err);
    if (status < 0) {
        s->refused = true;
        x->n_refused++;
        session_close(s);
        return status;
    }
    s->reading = sessions_admit_session(s, &busy) == 0;
    if (!s->reading) {
        s->refused = true;
        x->n_refused++;
        session_refuse(s, &busy);
        if (x->n_refused > REFUSED_MAX) {
            session_close(s); /* the client can read the sent answer after the close */
        }
    }
    return 0;
}

/* ---- deadlines ------------------------------------------------------------------------------- */

/* Restarts all deadlines when the sweep comes late. Then gemmd was stopped (SIGSTOP, a suspended
 * host), and messages that clients sent meanwhile are still unread. */
static void forgive_absence(struct sessions *x, uint64_t now)
{
    bool late = now - x->swept_ms > SWEEP_MS + SWEEP_MS / 2;
    x->swept_ms = now;
    LIST_EACH(struct session, s, &x->all, link) {
        if (late) {
            session_forgive(s, now);
        }
    }
}

static void run_sweep(uv_timer_t *timer)
{
    struct sessions *x = timer->data;
    uint64_t now = turns_now(x->turns);
    bool any = false;
    forgive_absence(x, now);
    LIST_EACH(struct session, s, &x->all, link) {
        any = session_sweep(s, now) || any;
    }
    if (!any) {
        uv_timer_stop(timer);
    }
}

/* ---- answers to jobs ------------------------------------------------------------------------- */

void sessions_pack_tallies(struct sessions *x, void (*page)(void *ctx, const struct wire_buf *rows),
                           void *ctx)
{
    WIRE_BUF_AUTO maps = WIRE_BUF_NULL;
    WIRE_BUF_AUTO rows = WIRE_BUF_NULL;
    const uint64_t now_ms = turns_now(x->turns);
    const int64_t now_s = time(NULL);
    LIST_EACH(struct session, s, &x->all, link) {
        s->tally = NULL;
    }
    for (uint32_t n; (n = tallies_pack_page(&x->tallies, now_ms, now_s, &maps)) > 0;) {
        wire_buf_clear(&rows);
        wire_put_array(&rows, n);
        wire_put_raw(&rows, maps.data, maps.len);
        rows.failed = rows.failed || maps.failed;
        page(ctx, &rows);
        wire_buf_clear(&maps);
    }
}

/* ---- the end --------------------------------------------------------------------------------- */

static void sweep_closed(uv_handle_t *handle)
{
    struct sessions *x = handle->data;
    x->open = false;
    sessions_check_stopped(x);
}

void sessions_stop(struct sessions *x, void (*stopped)(struct sessions *x))
{
    x->stopped = stopped;
    LIST_EACH(struct session, s, &x->all, link) {
        session_flush(s);
        session_close(s);
    }
    uv_close((uv_handle_t *)&x->sweep, sweep_closed);
}

void sessions_deinit(struct sessions *x)
{
    if (x->input) {
        accounts_deinit(&x->accounts);
        tallies_deinit(&x->tallies);
    }
    free(x->input);
    x->input = NULL;
}
