/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call with a deadline returns in time, also when the daemon hangs. A later answer is recognised
 * by its id and dropped, so the connection survives. Without a deadline (a tuning may take
 * minutes), silence is probed with `hello`, which a daemon answers from its event loop at any time.
 * So a daemon that hangs is noticed within two default deadlines.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/clock.h"
#include "client/jobname.h"
#include "client/session.h"
#include "proto/build.h"
#include "proto/lockfile.h"
#include "proto/paths.h"

enum {
    DEFAULT_DEADLINE_MS = 5000,
    /* After a failed attempt to reach a daemon, a caller with a fallback does not try for a time:
     */
    COLD_MS = 1000,      /* the shortest time */
    COLD_TIMES = 6,      /* as a multiple of the duration of the failed attempt */
    COLD_MAX_MS = 30000, /* the longest time */
    SILENCE_MS = 100,    /* a daemon that sends no byte for this long is taken to hang */
};

static int read_generation(struct session *s, const char *given, struct error *err)
{
    const char *text = given ? given : getenv("GEMMD_GENERATION");
    if (!text || !*text) {
        return 0;
    }
    static const char fleet[] = "fleet:";
    char *end = NULL;
    errno = 0;
    s->wants_generation = true;
    s->at_number = strncmp(text, fleet, strlen(fleet)) == 0;
    const char *number = s->at_number ? text + strlen(fleet) : text;
    s->generation = strcmp(number, "now") == 0 ? -1 : strtoll(number, &end, 10);
    if (end && (errno || end == number || *end || s->generation < 0)) {
        return error_set(err, ERROR_INVALID,
                         "\"%.40s\"%s is no generation: give now, a whole number from 0 on, "
                         "fleet:now or fleet:N",
                         text, given ? "" : " (from GEMMD_GENERATION)");
    }
    return 0;
}

int session_init(struct session *s, const struct gemmd_options *o, struct error *err)
{
    *s = (struct session){
        .link = LINK_NULL, .tx = WIRE_BUF_NULL, .next_id = 1, .until = CLOCK_NEVER};
    s->default_ms = o->deadline_ms > 0 ? o->deadline_ms : DEFAULT_DEADLINE_MS;
    s->autostart = o->autostart;
    jobname_find(s->job);
    pthread_mutex_init(&s->device_lock, NULL);
    s->doc = wire_doc_new();
    s->socket = o->socket ? strdup(o->socket) : NULL;
    s->device = o->device ? strdup(o->device) : NULL;
    bool whole = s->doc && !s->socket == !o->socket && !s->device == !o->device;
    int r = whole ? read_generation(s, o->generation, err)
                  : error_set(err, ERROR_NO_MEMORY, "no memory for a connection");
    if (r) {
        session_deinit(s);
    }
    return r;
}

void session_deinit(struct session *s)
{
    session_stop_connecting(s);
    link_deinit(&s->link);
    wire_buf_deinit(&s->tx);
    s->doc = wire_doc_free(s->doc);
    free(s->socket);
    free(s->device);
    s->socket = s->device = NULL;
    pthread_mutex_destroy(&s->device_lock);
}

int session_device(struct session *s, struct device_info *out, struct error *err)
{
    int index = find_current_index(); /* threads may have different current devices */
    pthread_mutex_lock(&s->device_lock);
    bool own = s->own_info.kind[0] && s->own_index == index, has = s->device_info.kind[0] || own;
    if (has) {
        *out = s->device_info.kind[0] ? s->device_info : s->own_info;
    }
    pthread_mutex_unlock(&s->device_lock);
    int r = has ? 0 : find_own_device(s->device, out, err);
    if (r == 0 && !has) {
        pthread_mutex_lock(&s->device_lock);
        s->own_index = index;
        s->own_info = *out;
        pthread_mutex_unlock(&s->device_lock);
    }
    return r;
}

bool session_is_cold(const struct session *s)
{
    return s->link.fd < 0 && s->retry_at > clock_ns();
}

/* Sets the time of the next attempt, after an attempt of cost_ns without an answer. A caller with a
 * fallback thus spends at most a seventh of the time on a daemon that hangs. */
static void leave_alone(struct session *s, int64_t cost_ns)
{
    int64_t ms = clock_earlier(cost_ns / CLOCK_MS * COLD_TIMES, COLD_MAX_MS);
    s->retry_at = clock_after_ms(ms > COLD_MS ? ms : COLD_MS);
}

/* ---- one exchange --------------------------------------------------------------------------- */

static int send_request(struct session *s, uint32_t id, const char *method,
                        const struct wire_buf *params, int64_t deadline, bool *sent,
                        struct error *err)
{
    *sent = false;
    wire_buf_clear(&s->tx);
    rpc_put_request(&s->tx, id, method);
    if (params) {
        wire_put_raw(&s->tx, params->data, params->len);
    } else {
        wire_put_map(&s->tx, 0);
    }
    if (s->tx.failed || (params && params->failed)) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a request");
    }
    if (s->tx.len > REQUEST_BYTES_MAX) {
        return error_set(err, ERROR_INVALID,
                         "the request has %zu bytes, gemmd takes %d: ask for less at a time",
                         s->tx.len, REQUEST_BYTES_MAX);
    }
    return link_send(&s->link, s->tx.data, s->tx.len, deadline, sent, err);
}

static void session_report_progress(const struct rpc_message *m, struct session_request *q)
{
    struct progress *p = &q->seen;
    if (!q->progress || strcmp(m->method, "progress") != 0 ||
        schema_decode(&progress_schema, SCHEMA_LENIENT, m->params, p, NULL) ||
        p->request != (int64_t)q->id) {
        return;
    }
    struct gemmd_progress out = {.size = sizeof(out),
                                 .phase = p->phase,
                                 .done = p->done,
                                 .total = p->total,
                                 .failed = p->failed,
                                 .best_us = p->best_us,
                                 .reference_us = p->reference_us,
                                 .elapsed_ms = p->elapsed_ms,
                                 .eta_ms = p->eta_ms,
                                 .config = p->config};
    q->progress(q->ctx, &out);
}

/* Reads an error response. Closes the link when the error says that the connection ends. */
static int session_read_fault(struct session *s, const struct wire_obj *fault, struct error *err)
{
    int r = rpc_get_error(fault, err);
    bool survives = error_survives(r);
    wire_get_bool(wire_find(fault, "survives"), &survives);
    if (!survives) {
        link_close(&s->link);
    }
    return r;
}

/* Tells the user the next step: most often the daemon is stopped (SIGSTOP, a debugger), or the
 * machine is out of memory. The lock file of the socket has the daemon's pid, for users who may
 * read the file. The advice comes first, because a note may cut the error message. */
static int session_fail_hanging(const struct session *s, const char *what, int64_t ms,
                                struct error *err)
{
    const char *socket = s->places.paths[s->place];
    char lock[PATHS_MAX + 8];
    snprintf(lock, sizeof(lock), "%s.lock", socket);
    struct lockfile_holder h = lockfile_holder(lock, 0);
    if (!h.lives) {
        return error_set(
            err, ERROR_DEADLINE,
            "gemmd %s within %lld ms: if this happens again, gemmd is stopped or hangs; "
            "`ss -xlp` shows its process: end it with `kill -KILL` and start gemmd "
            "again (on %s)",
            what, (long long)ms, socket);
    }
    return error_set(
        err, ERROR_DEADLINE,
        "gemmd (pid %ld) %s within %lld ms: if it is stopped, `kill -CONT %ld` lets it "
        "go on; if it hangs, `kill -KILL %ld` ends it, and start it again (on %s)",
        h.pid, what, (long long)ms, h.pid, h.pid, socket);
}

static int session_fail_late(struct session *s, const struct session_request *q, struct error *err)
{
    int64_t waited = clock_ns() - q->began;
    if (!q->heard && waited >= SILENCE_MS * CLOCK_MS) {
        link_close(&s->link);
        leave_alone(s, waited);
    }
    /* 0: the deadline had passed before the wait began */
    int64_t given = q->deadline > q->began ? q->deadline - q->began : 0;
    int64_t ms = (given + CLOCK_MS / 2) / CLOCK_MS;
    if (s->way.greeting) {
        return session_fail_hanging(s, "did not answer `hello`", ms, err);
    }
    return error_set(err, ERROR_DEADLINE, "gemmd did not answer `%s` within %lld ms", q->method,
                     (long long)ms);
}

/* Called after silence for the handle's default deadline: sends `hello`. When the same silence
 * follows (*probed), the daemon counts as hanging. */
static int session_probe_daemon(struct session *s, bool *probed, struct error *err)
{
    if (*probed) {
        link_close(&s->link);
        leave_alone(s, 2 * s->default_ms * CLOCK_MS);
        return session_fail_hanging(s, "said nothing, and did not answer `hello`,",
                                    2 * s->default_ms, err);
    }
    *probed = true;
    bool sent;
    return send_request(s, s->next_id++, "hello", NULL, clock_after_ms(s->default_ms), &sent, err);
}

/* Handles a message. *ended: the message is this request's response. An error with id 0 counts as
 * its response too: the daemon could not read the request's id. Drops other responses. */
static int take_message(struct session *s, struct session_request *q, const struct pull *packed,
                        bool *ended, struct error *err)
{
    struct rpc_message m;
    uint32_t id;
    if (rpc_pull_result(packed->at, pull_left(packed), &id, &q->result)) {
        *ended = id == q->id;
        return 0;
    }
    int r = link_decode(&s->link, s->doc, packed, &m, err);
    if (r == 0 && m.type == RPC_RESPONSE && (m.id == q->id || m.id == 0)) {
        r = session_read_fault(s, m.error, err);
    } else if (r == 0) {
        session_report_progress(&m, q);
    }
    return r;
}

static int wait_answer(struct session *s, struct session_request *q, struct error *err)
{
    if (q->began == 0) {
        q->began = q->last_heard = clock_ns();
        q->heard = q->probed = false;
    }
    for (;;) {
        struct pull packed;
        bool ended = false;
        int64_t silent_at = q->last_heard + s->default_ms * CLOCK_MS;
        int64_t until = clock_earlier(clock_earlier(q->deadline, silent_at), s->until);
        int r = link_recv_packed(&s->link, &packed, until, err);
        if (r == 0) {
            r = take_message(s, q, &packed, &ended, err);
        }
        if (r < 0 || ended) {
            return r;
        }
        int64_t now = clock_ns();
        if (now >= q->deadline) {
            return session_fail_late(s, q, err);
        }
        if (r == 0) {
            q->heard = true;
            q->probed = false;
            q->last_heard = now;
        } else if (now >= silent_at) {
            r = session_probe_daemon(s, &q->probed, err);
            if (r) {
                return r;
            }
            q->last_heard = clock_ns();
        }
        if (now >= s->until) {
            return CLOCK_PASSED;
        }
    }
}

static void send_one(struct session *s, struct session_request *q)
{
    q->began = 0;
    q->under_way = true;
    q->id = s->next_id++;
    s->next_id += s->next_id == 0; /* 0 is the id of errors to a request with an unreadable id */
    q->fault.code = send_request(s, q->id, q->method, q->params,
                                 clock_earlier(q->deadline, clock_after_ms(s->default_ms)),
                                 &q->sent, &q->fault);
}

static int receive_one(struct session *s, struct session_request *q, struct error *err)
{
    if (q->fault.code == 0) {
        return wait_answer(s, q, err);
    }
    *err = q->fault;
    if (err->code == ERROR_DISCONNECTED) {
        /* gemmd closed the connection before the request left, perhaps with an error message. */
        struct error said = ERROR_NULL;
        int r = wait_answer(s, q, &said);
        link_close(&s->link);
        *err = r < 0 && r != ERROR_DISCONNECTED ? said : *err;
    }
    return err->code;
}

int session_decode(struct session *s, const struct session_request *q, const struct wire_obj **out,
                   struct error *err)
{
    int r = wire_decode(s->doc, q->result.at, pull_left(&q->result), out, err);
    if (r) {
        link_close(&s->link);
        error_prefix(err, "the daemon's answer cannot be read");
    }
    return r;
}

/* ---- connecting ----------------------------------------------------------------------------- */

static int session_fail_unreachable(const struct session *s, const struct error *refused,
                                    struct error *err)
{
    const struct places *p = &s->places;
    if (refused->code) {
        *err = *refused;
        return err->code;
    }
    if (p->n > 1) {
        return error_set(err, ERROR_UNREACHABLE, "no gemmd answers for %s (tried %s and %s)",
                         p->device, p->paths[0], p->paths[1]);
    }
    return error_set(err, ERROR_UNREACHABLE, "no gemmd answers on %s", p->paths[0]);
}

/* A socket that refuses this user counts as ERROR_UNREACHABLE; *refused keeps the first refusal. */
static int session_open_place(struct session *s, uint32_t place, struct error *refused,
                              struct error *err)
{
    s->place = place;
    int r = link_open(&s->link, s->places.paths[place], s->places.given,
                      clock_earlier(s->way.deadline, s->until), err);
    if (r != ERROR_DENIED) {
        return r;
    }
    *refused = refused->code ? *refused : *err;
    return ERROR_UNREACHABLE;
}

/* Opens a socket. CLOCK_PASSED: the listener's queue of new connections stayed full during this
 * step. */
static int open_any(struct session *s, struct error *err)
{
    struct error refused = s->places.refused;
    int r = ERROR_UNREACHABLE;
    for (uint32_t i = 0; i < s->places.n && r == ERROR_UNREACHABLE; i++) {
        r = session_open_place(s, i, &refused, err);
    }
    if (r == ERROR_UNREACHABLE && (r = find_spelled(&s->places, err)) == 0) {
        r = session_open_place(s, FIND_SPELLED, &refused, err);
    }
    if (r == ERROR_UNREACHABLE) {
        return session_fail_unreachable(s, &refused, err);
    }
    return r == ERROR_DEADLINE && clock_ns() < s->way.deadline ? CLOCK_PASSED : r;
}

static int start_by(struct session *s, struct error *err)
{
    /* gemmd's spec is "cuda:GPU-..." where the socket's name is "GPU-...". */
    const char *name = s->places.device;
    bool gpu = strncmp(name, "GPU-", 4) == 0 || strncmp(name, "MIG-", 4) == 0;
    snprintf(s->way.spec, sizeof(s->way.spec), "%s%s", gpu ? "cuda:" : "", name);
    bool named = s->device && strcmp(s->device, "any") != 0;
    s->way.start.device = named ? s->device : s->way.spec;
    s->way.start.socket = s->places.paths[0];
    s->way.start.pass_socket = name[0] == '\0';
    s->way.start.deadline = s->way.deadline;
    return start_daemon(&s->way.start, s->until, err);
}

static int session_reach_daemon(struct session *s, struct error *err)
{
    if (s->places.n == 0) {
        int r = find_places(&s->places, s->socket, s->device, err);
        if (r) {
            return r;
        }
    }
    if (!s->way.start.socket) {
        int r = open_any(s, err);
        /* This user may have no access to the system's folder, but may start a daemon. */
        bool closed = r == ERROR_DENIED && s->places.n > 1;
        if ((r != ERROR_UNREACHABLE && !closed) || !s->autostart) {
            return r;
        }
    }
    s->way.starts = true;
    int r = find_whole(&s->places, err);
    r = r ? r : start_by(s, err);
    return r ? r : open_any(s, err);
}

static void learn_device(struct session *s, const struct wire_obj *map)
{
    struct device_info info;
    if (schema_decode(&device_info_schema, SCHEMA_LENIENT, map, &info, NULL)) {
        info.kind[0] = '\0';
    }
    pthread_mutex_lock(&s->device_lock);
    s->device_info = info;
    pthread_mutex_unlock(&s->device_lock);
}

/* Sends `hello`. s->way.hello then has the sent request, or the fault. */
static void say_hello(struct session *s)
{
    WIRE_BUF_AUTO params = WIRE_BUF_NULL;
    s->subscribed = false;
    wire_put_map(&params, 2 + s->wants_generation + (s->job[0] != '\0'));
    if (s->wants_generation) {
        wire_put_kv_int(&params, s->at_number ? "fleet" : "generation", s->generation);
    }
    wire_put_kv_int(&params, "version", PROTOCOL_VERSION);
    wire_put_kv_str(&params, "client", "libgemmd " GEMMD_VERSION);
    if (s->job[0]) {
        wire_put_kv_str(&params, "job", s->job);
    }
    s->way.hello =
        (struct session_request){.method = "hello", .params = &params, .deadline = s->way.deadline};
    send_one(s, &s->way.hello);
    s->way.hello.params = NULL;
    s->way.greeting = true;
}

static int take_welcome(struct session *s, const struct wire_obj *result, struct error *err)
{
    int64_t version;
    char build[64] = "";
    if (!wire_get_int(wire_find(result, "version"), &version)) {
        return error_set(err, ERROR_MALFORMED, "gemmd's answer to `hello` has no version");
    }
    if (version != PROTOCOL_VERSION) {
        return error_set(err, ERROR_VERSION, "gemmd speaks protocol version %lld, this library %d",
                         (long long)version, PROTOCOL_VERSION);
    }
    const char *pinned = s->at_number ? "pinned_fleet" : "pinned";
    if (s->wants_generation && !wire_get_int(wire_find(result, pinned), &s->generation)) {
        wire_copy_str(wire_find(result, "build"), build, sizeof(build));
        return error_set(err, ERROR_VERSION, "this gemmd (%s) pins no %s", build,
                         s->at_number ? "numbers of the fleet" : "generations");
    }
    s->known = true;
    learn_device(s, wire_find(result, "device"));
    return 0;
}

static int hear_welcome(struct session *s, struct error *err)
{
    const struct wire_obj *result;
    int r = receive_one(s, &s->way.hello, err);
    if (r == CLOCK_PASSED) {
        return r;
    }
    s->way.greeting = false;
    r = r ? r : session_decode(s, &s->way.hello, &result, err);
    r = r ? r : take_welcome(s, result, err);
    if (r) {
        link_close(&s->link);
    }
    return r;
}

/* An older gemmd refuses the name of a job. True: there was a name, which is not sent again. */
static bool session_drop_job(struct session *s)
{
    const bool had = s->job[0] != '\0';
    s->job[0] = '\0';
    return had;
}

/* Retries while a daemon without room answers `busy`. */
static int go_on_connecting(struct session *s, struct error *err)
{
    struct session_way *w = &s->way;
    int r;
    do {
        r = 0;
        if (!w->greeting) {
            r = pause_sleep(&w->pause, s->until) ? session_reach_daemon(s, err) : CLOCK_PASSED;
            if (r == 0) {
                say_hello(s);
            }
        }
        r = r ? r : hear_welcome(s, err);
    } while ((r == ERROR_BUSY && pause_begin(&w->pause, w->deadline)) ||
             (r == ERROR_UNKNOWN_FIELD && session_drop_job(s)));
    return r;
}

int session_connect(struct session *s, int64_t deadline, struct error *err)
{
    if (s->link.fd >= 0 && !s->way.greeting) {
        return 0;
    }
    if (!s->way.deadline) {
        s->way.began = clock_ns();
        s->way.deadline = clock_earlier(deadline, clock_after_ms(s->default_ms));
    }
    int r = go_on_connecting(s, err);
    if (r == CLOCK_PASSED) {
        return r;
    }
    s->retry_at = 0;
    if (r) {
        leave_alone(s, s->way.starts ? 0 : clock_ns() - s->way.began);
        /* Without a daemon, the current device may differ at the next attempt. After a
         * daemon was found, the place stays. A refused directory may be repaired by then. */
        bool named = s->device && strcmp(s->device, "any") != 0;
        bool stays = s->known || (named && s->places.refused.code == 0);
        s->places.n = stays ? s->places.n : 0;
    }
    session_stop_connecting(s);
    return r;
}

void session_stop_connecting(struct session *s)
{
    if (s->way.greeting) {
        link_close(&s->link);
    }
    start_end(&s->way.start);
    s->way = (struct session_way){.deadline = 0};
}

void session_start(struct session *s, struct session_request *q)
{
    q->under_way = q->again = q->unreached = false;
    if (s->link.fd >= 0) {
        send_one(s, q);
    }
}

void session_abandon(struct session *s, const struct session_request *q)
{
    session_stop_connecting(s);
    if (!q->under_way || s->link.fd < 0) {
        return;
    }
    if (strcmp(q->method, "get") != 0 && strcmp(q->method, "tune") != 0) {
        link_close(&s->link);
        return;
    }
    WIRE_BUF_AUTO params = WIRE_BUF_NULL;
    wire_put_map(&params, 1);
    wire_put_kv_int(&params, "request", q->id);
    struct session_request cancel = {
        .method = "cancel", .params = &params, .deadline = clock_after_ms(SILENCE_MS)};
    send_one(s, &cancel); /* its answer is dropped, like the answer of the cancelled request */
}

/* True when a repeated request does no harm: it changes nothing, or only the state of its
 * connection (an acquired lease is lost with the connection). */
static bool session_may_repeat(const char *method)
{
    static const char *const methods[] = {"hello",  "get",    "get_many", "list",
                                          "show",   "module", "check",    "space",
                                          "status", "why",    "acquire",  "subscribe"};
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        if (strcmp(method, methods[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Ends the current pause, then sends the request, unless it is under way, and receives the
 * answer. */
static int session_attempt_request(struct session *s, struct session_request *q, struct error *err)
{
    int r;
    if (q->pause.end) {
        if (!pause_sleep(&q->pause, s->until)) {
            return CLOCK_PASSED;
        }
        r = q->pack(q->pack_ctx, err);
        if (r) {
            return r;
        }
        session_start(s, q);
    }
    if (q->under_way) {
        r = receive_one(s, q, err);
        /* An old connection may belong to a daemon that has ended. Try once more on a new
         * connection, unless the lost daemon may have acted on the request. */
        if (r != ERROR_DISCONNECTED || q->again || (q->sent && !session_may_repeat(q->method))) {
            return r;
        }
        q->under_way = false;
    }
    q->again = true;
    r = session_connect(s, q->deadline, err);
    q->unreached = r < 0;
    if (r) {
        return r;
    }
    send_one(s, q);
    return receive_one(s, q, err);
}

int session_finish(struct session *s, struct session_request *q, struct error *err)
{
    int r;
    while ((r = session_attempt_request(s, q, err)) == ERROR_BUSY && q->under_way && q->pack &&
           pause_begin(&q->pause, q->patience)) {
        q->under_way = false;
    }
    return r;
}

int session_call(struct session *s, struct session_request *q, struct error *err)
{
    session_start(s, q);
    return session_finish(s, q, err);
}
