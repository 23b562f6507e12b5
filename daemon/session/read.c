/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session's input: makes messages of bytes, takes turns, and checks clients' deadlines
 * (session.h).
 *
 * A scan (proto/scan.h) checks a message's length and nesting before any decoder sees the bytes.
 * After a message that scan or decoder refuses, the bytes behind it cannot be trusted: the client
 * gets an error response and is disconnected.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/log.h"
#include "daemon/session/session.h"

enum { IN_KEEP_BYTES = 4096 };

/* True when the session's user is above a limit of bytes: of unhandled requests, or of answers that
 * were not taken. */
static bool session_is_over(const struct session *s)
{
    return s->account->over[ACCOUNT_IN] || s->account->over[ACCOUNT_OUT];
}

/* Switches reading on or off. The poller has reported input that arrived while reading was off, and
 * will not again: so the session gets a turn to read it. */
static void reading_set(struct session *s, bool on)
{
    s->reading = on && s->peer != PEER_HEARD && !s->closing;
    if (s->reading && s->readable) {
        turns_ready(s->all->turns, &s->turn);
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Returns the id of a request that cannot be decoded, from its first bytes, [0, id, ...]; 0 when
 * these are wrong, too. */
static uint32_t peek_id(const uint8_t *p, size_t n)
{
    struct pull in = {p, p + n};
    size_t items;
    int64_t type, id;
    bool is_request = pull_array(&in, &items) && items == 4 && pull_int(&in, &type) &&
                      type == RPC_REQUEST && pull_int(&in, &id) && id >= 0 && id <= UINT32_MAX;
    return is_request ? (uint32_t)id : 0;
}

/* Called when the client breaks the protocol: sends an error, then hangs up. */
static void break_off(struct session *s, uint32_t id, const struct error *e)
{
    log_info("client pid %d uid %d: %s", (int)s->pid, (int)s->uid, e->text);
    session_count_error(s, e->code);
    rpc_put_error(&s->out, id, e);
    s->ending = true;
}

static bool must_wait(const struct session *s)
{
    return account_spent(s->account, turns_now(s->all->turns));
}

/* True when the session or its user has too many unread answers, or too many requests that wait for
 * the ledger. */
static bool is_full(const struct session *s)
{
    return session_is_behind(s) || s->n_pending >= PENDING_MAX || s->account->over[ACCOUNT_OUT] ||
           s->account->over[ACCOUNT_ASKED];
}

static bool may_take(const struct session *s)
{
    return !s->ending && !s->closing && !is_full(s);
}

/* Charges the user for the time since the last call of this function in the turn, or since the turn
 * began. */
static void session_spend_time(struct session *s)
{
    struct sessions *all = s->all;
    uint64_t ns = uv_hrtime();
    account_spend(s->account, turns_now(all->turns), ns - all->spent_until_ns);
    if (all->hit) {
        latency_add(&all->hits, ns - all->spent_until_ns);
        all->hit = false;
    }
    all->spent_until_ns = ns;
}

/*
 * Handles the whole messages in data[0..n). The scan has already checked `scanned` bytes of the
 * first. Returns the number of bytes handled; *partial receives the number of checked bytes of the
 * incomplete message behind them. Each message is charged to the user, and the turn ends when the
 * user's time is spent.
 */
static size_t session_take_messages(struct session *s, const uint8_t *data, size_t n,
                                    size_t scanned, size_t *partial)
{
    size_t at = 0;
    *partial = scanned;
    if (scanned == 0 && may_take(s) && !must_wait(s) &&
        s->all->hooks->known(s->all->ctx, s, data, n)) {
        /* the common case: the bytes read are one whole message, which the memo answers */
        s->all->requests++;
        at = n;
    }
    for (unsigned turn = 0; turn < TURN_REQUESTS && at + *partial < n && may_take(s); turn++) {
        if (must_wait(s)) {
            break;
        }
        struct error err = ERROR_NULL;
        size_t used = 0;
        int status = scan_feed(&s->scan, data + at + *partial, n - at - *partial, &used, &err);
        if (status == SCAN_MORE) {
            *partial = n - at;
            break;
        }
        if (status < 0) {
            break_off(s, peek_id(data + at, n - at), &err);
            break;
        }
        s->all->requests++;
        s->all->hooks->message(s->all->ctx, s, data + at, *partial + used, false);
        at += *partial + used;
        *partial = 0;
        session_spend_time(s);
    }
    return at;
}

static int session_keep_input(struct session *s, const uint8_t *data, size_t n)
{
    if (s->in_len + n > s->in_cap) {
        size_t cap = s->in_len + n + 1024;
        uint8_t *in = realloc(s->in, cap);
        if (!in) {
            return ERROR_NO_MEMORY;
        }
        s->in = in;
        s->in_cap = cap;
    }
    memcpy(s->in + s->in_len, data, n);
    s->in_len += n;
    return 0;
}

static void drop_handled(struct session *s, size_t handled)
{
    s->in_len -= handled;
    memmove(s->in, s->in + handled, s->in_len);
    if (s->in_len == 0 && s->in_cap > IN_KEEP_BYTES) {
        free(s->in);
        s->in = NULL;
        s->in_cap = 0;
    }
}

/* True when the session can be closed. Either the client sends no more, and all its requests are
 * answered. Or the client has closed the connection, requests are unanswered, and the input behind
 * them must not be read now. */
static bool is_done(const struct session *s, bool more, bool full)
{
    if (s->peer == PEER_LEFT) {
        return s->n_tickets && (full || session_is_over(s));
    }
    return s->peer == PEER_HEARD && !more && list_empty(&s->tickets) && !s->subscribed &&
           !s->out.len;
}

/* Ends a turn: sends answers, then decides whether the session reads on, waits for its next turn,
 * or waits until its client takes answers. */
static void session_settle_turn(struct session *s)
{
    session_flush(s);
    if (s->closing) {
        return;
    }
    session_charge(s);
    /* unscanned bytes may hold a whole message */
    bool more = s->in_len > s->scanned && !s->ending;
    bool full = is_full(s);
    turn_cancel(&s->turn);
    if (more && !full) {
        turns_ready(s->all->turns, &s->turn);
    }
    bool begun = s->in_len && !more && !s->ending;
    s->begun_ms = !begun ? 0 : s->begun_ms ? s->begun_ms : turns_now(s->all->turns);
    if (is_done(s, more, full)) {
        session_close(s);
        return;
    }
    reading_set(s, s->hung_up_ms || (!more && !full && !s->ending && !session_is_over(s)));
    if (s->begun_ms) {
        session_watch(s);
    }
}

static void session_take_slice(struct session *s)
{
    if (s->closing) {
        return;
    }
    size_t handled = session_take_messages(s, s->in, s->in_len, s->scanned, &s->scanned);
    if (handled) {
        s->begun_ms = 0;
        drop_handled(s, handled);
    }
    session_settle_turn(s);
}

static void read_end(struct session *s, bool fault)
{
    if (fault || s->peer == PEER_LEFT) {
        session_close(s);
        return;
    }
    s->peer = PEER_HEARD;
    reading_set(s, false);
    session_settle_turn(s);
}

static void take_input(struct session *s, const uint8_t *data, size_t length)
{
    /* the common case: only whole messages arrived, and they are handled in the shared buffer */
    bool in_place = s->in_len == 0;
    if (in_place) {
        size_t handled = session_take_messages(s, data, length, 0, &s->scanned);
        data += handled;
        length -= handled;
    }
    if (length && !s->ending && session_keep_input(s, data, length) < 0) {
        session_close(s);
    } else if (in_place) {
        session_settle_turn(s);
    } else {
        session_take_slice(s);
    }
}

/* Reads once. When a read returns fewer bytes than fit, the socket is empty, and epoll will report
 * further bytes. Only a client that sends descriptors can end a read early: so a session with an
 * incomplete message reads again. False: nothing was read. */
static bool session_read_some(struct session *s)
{
    if (session_is_over(s) && !s->hung_up_ms) {
        s->reading = false; /* the session is read again when the user is below the limit */
        return false;
    }
    ssize_t n;
    do {
        n = poller_recv(s->fd, s->all->input, INPUT_BYTES);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN) {
        s->readable = false;
        return false;
    }
    if (n <= 0) {
        read_end(s, n < 0);
        return true;
    }
    s->readable = n == INPUT_BYTES || s->peer != PEER_SENDS;
    if (s->hung_up_ms) {
        reading_set(s, true); /* drops the bytes: the session has hung up */
        return true;
    }
    take_input(s, s->all->input, (size_t)n);
    if (s->begun_ms) {
        s->readable = true;
        reading_set(s, s->reading);
    }
    return true;
}

void session_ready(struct polled *p, enum peer peer)
{
    struct session *s = LIST_OF(p, struct session, polled);
    s->readable = true;
    if (peer == PEER_LEFT && s->peer == PEER_HEARD) {
        session_close(s);
    }
    s->peer = peer > s->peer ? peer : s->peer;
    if (s->closing || !list_empty(&s->turn.link)) {
        return; /* closed, or its turn will read */
    }
    if (s->blocked_ms || (s->reading ? must_wait(s) : s->peer == PEER_LEFT)) {
        turns_ready(s->all->turns, &s->turn);
        return;
    }
    if (!s->reading) {
        return; /* s->readable is set: a later turn reads */
    }
    s->all->spent_until_ns = uv_hrtime();
    session_read_some(s);
    session_spend_time(s);
}

bool session_take_turn(struct turn *t)
{
    struct session *s = LIST_OF(t, struct session, turn);
    if (s->closing) {
        session_free(s);
        return true;
    }
    if (must_wait(s)) {
        /* also not to send answers: writing to a user's thousand connections takes long */
        return false;
    }
    s->all->spent_until_ns = uv_hrtime();
    if (!s->reading || !s->readable || !session_read_some(s)) {
        session_take_slice(s);
    }
    session_spend_time(s);
    return true;
}

void session_refuse(struct session *s, const struct error *e)
{
    session_count_error(s, e->code);
    rpc_put_error(&s->out, 0, e);
    s->ending = true;
    session_settle_turn(s);
}

/* ---- deadlines ------------------------------------------------------------------------------- */

void session_forgive(struct session *s, uint64_t now_ms)
{
    s->begun_ms = s->begun_ms ? now_ms : 0;
    s->blocked_ms = s->blocked_ms ? now_ms : 0;
}

bool session_sweep(struct session *s, uint64_t now_ms)
{
    const struct session_limits *limits = &s->all->limits;
    if (s->begun_ms && now_ms - s->begun_ms > limits->message_ms) {
        struct error err = ERROR_NULL;
        error_set(&err, ERROR_MALFORMED, "a message that had begun was not complete after %llu ms",
                  (unsigned long long)limits->message_ms);
        s->begun_ms = 0;
        break_off(s, peek_id(s->in, s->in_len), &err);
        session_settle_turn(s);
    } else if (s->blocked_ms && now_ms - s->blocked_ms > limits->answer_ms) {
        log_info("client pid %d does not read its answers: hung up on", (int)s->pid);
        session_close(s);
    } else if (s->hung_up_ms && now_ms - s->hung_up_ms >= HANG_UP_MS) {
        session_close(s);
    }
    return !s->closing && (s->begun_ms || s->blocked_ms || s->hung_up_ms);
}
