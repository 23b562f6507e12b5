/* SPDX-License-Identifier: Apache-2.0 */
/* Output, the end of a session and its tickets, and calls by the rest of the daemon (session.h). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "daemon/session/session.h"

bool session_is_owner(const struct session *s)
{
    return s->uid == 0 || s->uid == geteuid();
}

bool session_is_behind(const struct session *s)
{
    return s->out.len >= OUT_PAUSE_BYTES;
}

/* ---- answers to the job ---------------------------------------------------------------------- */

/* Names the job of a client that names none: by its process group, which the processes of most
 * jobs share. The group of a process in another PID namespace is not visible. */
static void session_name_job(struct session *s)
{
    const pid_t group = s->pid > 0 ? getpgid(s->pid) : -1;
    if (group > 0) {
        snprintf(s->job, sizeof(s->job), "pgid:%d", (int)group);
    } else {
        snprintf(s->job, sizeof(s->job), "unknown");
    }
}

struct tally *session_find_tally(struct session *s)
{
    if (!s->job[0]) {
        session_name_job(s);
    }
    s->tally = tallies_find(&s->all->tallies, s->uid, s->job, turns_now(s->all->turns));
    return s->tally;
}

void session_count_answer(struct session *s, const struct answer *a, const char *key,
                          const struct problem *bucket)
{
    const int64_t now_s = time(NULL);
    if (!s || strcmp(a->tier, "exact") == 0) {
        session_count_exact(s, 1);
    } else if (s->tally || session_find_tally(s)) {
        tally_count(&s->all->tallies, s->tally,
                    &(struct tally_answer){.key = key,
                                           .tier = a->tier,
                                           .op = bucket->op_name,
                                           .problem = &bucket->fields,
                                           .config = &a->config,
                                           .answers = 1,
                                           .first_s = now_s,
                                           .last_s = now_s});
    }
}

void session_watch(struct session *s)
{
    uv_timer_t *sweep = &s->all->sweep;
    if (!uv_is_active((uv_handle_t *)sweep) && !uv_is_closing((uv_handle_t *)sweep)) {
        s->all->swept_ms = turns_now(s->all->turns);
        uv_timer_again(sweep);
    }
}

void session_count_error(struct session *s, int code)
{
    s->all->errors[code < 0 && code > -ERROR_SLOTS ? -code : 1]++;
}

void session_poke(struct session *s)
{
    if (!s->closing) {
        turns_ready(s->all->turns, &s->turn);
    }
}

void sessions_poke_all(struct sessions *x, const struct account *account)
{
    LIST_EACH(struct session, s, &x->all, link) {
        if (s->account == account) {
            session_poke(s);
        }
    }
}

void session_charge(struct session *s)
{
    if (s->in_len == s->charged[ACCOUNT_IN] && s->out.len == s->charged[ACCOUNT_OUT]) {
        return;
    }
    bool changed = account_charge(s->account, ACCOUNT_IN, &s->charged[ACCOUNT_IN], s->in_len);
    changed =
        account_charge(s->account, ACCOUNT_OUT, &s->charged[ACCOUNT_OUT], s->out.len) || changed;
    if (changed) {
        sessions_poke_all(s->all, s->account);
    }
}

void session_tell(struct session *s, const void *news, size_t n)
{
    if (!session_is_behind(s) && !s->account->over[ACCOUNT_OUT]) {
        wire_put_raw(&s->out, news, n);
        session_charge(s);
        session_poke(s);
    }
}

int session_subscribe(struct session *s, bool on, struct error *err)
{
    if (on == s->subscribed) {
        return 0;
    }
    if (on && account_add_subscription(s->account, err) < 0) {
        return ERROR_BUSY;
    }
    s->account->subscriptions -= !on;
    s->all->n_subscribed += on ? 1 : -1;
    s->subscribed = on;
    return 0;
}

void session_again(struct session *s, const uint8_t *data, size_t n)
{
    s->all->hooks->message(s->all->ctx, s, data, n, true);
    s->all->hit = false; /* the request has waited: its time is no latency of a hit */
    session_poke(s);
}

/* ---- output --------------------------------------------------------------------------------- */

/* largest buffer that a session keeps while it has no output */
enum { OUT_KEEP_BYTES = 16 * 1024 };

/* Drops all output, since the client takes no more answers. read.c still handles the client's last
 * input, and closes the session at the end of it. */
static void session_drop_output(struct session *s)
{
    s->peer = PEER_LEFT;
    wire_buf_deinit(&s->out);
}

static void session_count_sent(struct session *s, size_t n)
{
    if (n < s->out.len) {
        /* The socket did not take all bytes. This is rare, since it takes a slow client: so the
         * rest moves to the front of the buffer, which is simpler than an offset. */
        s->out.len -= n;
        memmove(s->out.data, s->out.data + n, s->out.len);
    } else if (s->out.cap > OUT_KEEP_BYTES) {
        wire_buf_deinit(&s->out);
    } else {
        wire_buf_clear(&s->out);
    }
}

static void hang_up(struct session *s)
{
    if (s->hung_up_ms) {
        return;
    }
    s->hung_up_ms = turns_now(s->all->turns);
    session_watch(s);
    if (shutdown(s->fd, SHUT_WR) < 0) {
        session_close(s);
    }
}

/* Sends as many bytes as the socket takes. The deadline for the rest begins anew each time that the
 * client has taken some. */
static void session_send_output(struct session *s)
{
    ssize_t n = s->peer == PEER_LEFT ? -1 : poller_send(s->fd, s->out.data, s->out.len);
    if (s->peer == PEER_LEFT || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        session_drop_output(s);
    } else {
        session_count_sent(s, n > 0 ? (size_t)n : 0);
    }
    const bool rest = s->out.len > 0;
    if (rest != (s->blocked_ms > 0)) {
        poller_await_room(s->all->poller, s->fd, &s->polled, rest);
    }
    if (!rest) {
        s->blocked_ms = 0;
    } else if (n > 0 || !s->blocked_ms) {
        s->blocked_ms = turns_now(s->all->turns);
        session_watch(s);
    }
}

void session_flush(struct session *s)
{
    if (s->closing) {
        return;
    }
    if (s->out.len && !s->out.failed) {
        session_send_output(s);
    }
    if (s->out.failed || s->out.len > OUT_BYTES_MAX) {
        log_warning("client pid %d: %s: hung up on", (int)s->pid,
                    s->out.failed ? "no memory for its answers" : "too many answers wait for it");
        session_close(s);
    } else if (s->ending && !s->out.len) {
        hang_up(s);
    }
}

/* ---- the end --------------------------------------------------------------------------------- */

void sessions_check_stopped(struct sessions *x)
{
    if (!x->open && x->n == 0 && x->stopped) {
        void (*stopped)(struct sessions *) = x->stopped;
        x->stopped = NULL;
        stopped(x);
    }
}

static void session_release_memory(struct session *s)
{
    bool changed = false;
    for (enum account_side side = ACCOUNT_IN; side <= ACCOUNT_OUT; side++) {
        changed = account_charge(s->account, side, &s->charged[side], 0) || changed;
    }
    if (changed) {
        sessions_poke_all(s->all, s->account);
    }
    s->account->connections -= !s->refused;
    account_drop(s->account);
}

void session_free(struct session *s)
{
    struct sessions *x = s->all;
    if (s->account) {
        session_release_memory(s);
    }
    x->n--;
    x->n_refused -= s->refused;
    x->quiet_since_ms = turns_now(x->turns);
    sessions_check_stopped(x);
    free(s->in);
    wire_buf_deinit(&s->out);
    free(s);
}

void session_close(struct session *s)
{
    if (s->closing) {
        return;
    }
    s->closing = true;
    s->reading = false;
    s->tally = NULL;
    session_subscribe(s, false, NULL);
    poller_remove(s->all->poller, s->fd);
    close(s->fd);
    list_remove(&s->link);
    while (!list_empty(&s->tickets)) {
        struct ticket *t = LIST_OF(s->tickets.next, struct ticket, link);
        list_remove(&t->link);
        t->session = NULL;
        if (t->gone) {
            t->gone(t);
        }
    }
    turns_ready(s->all->turns, &s->turn);
}

/* ---- tickets --------------------------------------------------------------------------------- */

int ticket_open(struct ticket *t, struct session *s, uint32_t id, void (*gone)(struct ticket *t),
                struct error *err)
{
    if (s->n_tickets >= TICKETS_MAX) {
        return error_set(err, ERROR_BUSY,
                         "%d requests of this connection wait already; retry when "
                         "one of them is answered",
                         TICKETS_MAX);
    }
    s->n_tickets++;
    *t = (struct ticket){.session = s, .id = id, .owed = true, .gone = gone};
    list_append(&s->tickets, &t->link);
    return 0;
}

void ticket_hold(struct ticket *t, struct session *s, void (*gone)(struct ticket *t))
{
    *t = (struct ticket){.session = s, .gone = gone};
    list_append(&s->tickets, &t->link);
}

struct wire_buf *ticket_out(struct ticket *t)
{
    return t->session ? &t->session->out : NULL;
}

void ticket_close(struct ticket *t)
{
    struct session *s = t->session;
    if (!s) {
        return;
    }
    list_remove(&t->link);
    t->session = NULL;
    s->n_tickets -= t->owed;
    session_poke(s);
}

bool ticket_cancel(struct session *s, uint32_t id, const struct error *e)
{
    LIST_EACH(struct ticket, t, &s->tickets, link) {
        if (t->owed && t->id == id && t->cancel) {
            t->cancel(t, e);
            return true;
        }
    }
    return false;
}

void ticket_fail(struct ticket *t, const struct error *e)
{
    if (t->session) {
        session_count_error(t->session, e->code);
        rpc_put_error(&t->session->out, t->id, e);
    }
    ticket_close(t);
}
