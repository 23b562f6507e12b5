/* SPDX-License-Identifier: Apache-2.0 */
/* The listening socket, the ready list and the sweep of deadlines (server.h). */
#include <errno.h>
#include <grp.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/server.h"
#include "daemon/session.h"

enum { SWEEP_MS = 1000 };

/* ---- locks --------------------------------------------------------------------------------------- */

int server_lock(struct server *s, const char *path, const char *device_uuid, bool exclusive_device,
                struct error *err)
{
    s->lock_fd = -1;
    s->device_lock = DEVICE_LOCK_NULL;
    int status = paths_check_socket(path, err);
    if (status) {
        return status;
    }
    snprintf(s->path, sizeof(s->path), "%s", path);
    char copy[PATHS_MAX];
    memcpy(copy, s->path, sizeof(copy));
    const char *dir = dirname(copy);
    char usual[PATHS_MAX];
    s->own_dir = (access(dir, F_OK) < 0 && errno == ENOENT) ||
                 (paths_runtime_dir(usual, NULL) == 0 && strcmp(dir, usual) == 0);
    status = paths_make_dir(dir, 0750, err);
    if (status) {
        return status;
    }
    status = lock_path(path, &s->lock_fd, err);
    if (status == 0 && exclusive_device) {
        status = lock_device(device_uuid, path, &s->device_lock, err);
    }
    return status;
}

/* ---- listening ----------------------------------------------------------------------------------- */

static int give_to_group(const struct server *s, const char *group, struct error *err)
{
    errno = 0;
    struct group *g = getgrnam(group);
    if (!g) {
        return error_set(err, ERROR_INVALID, "group \"%s\" does not exist; see `getent group`",
                         group);
    }
    char copy[PATHS_MAX];
    snprintf(copy, sizeof(copy), "%s", s->path);
    /* Others' directories stay as they are: /run, or a home. */
    if (chown(s->path, (uid_t)-1, g->gr_gid) < 0 ||
        (s->own_dir && chown(dirname(copy), (uid_t)-1, g->gr_gid) < 0)) {
        return error_set(err, ERROR_DENIED, "cannot give %s to group %s: %s", s->path, group,
                         strerror(errno));
    }
    return 0;
}

static int bind_path(struct server *s, const char *group, struct error *err)
{
    struct stat st;
    if (lstat(s->path, &st) == 0 && !S_ISSOCK(st.st_mode)) {
        return error_set(err, ERROR_IO,
                         "%s is there and is no socket; remove it, or choose another --socket",
                         s->path);
    }
    if (unlink(s->path) < 0 && errno != ENOENT) { /* stale: we hold the lock */
        return error_set(err, ERROR_IO, "cannot remove the stale socket %s: %s", s->path,
                         strerror(errno));
    }
    mode_t old = umask(0117); /* 0660 from its first moment */
    int status = uv_pipe_bind(&s->pipe, s->path);
    umask(old);
    if (status < 0) {
        return error_set(err, ERROR_IO, "cannot bind %s: %s", s->path, uv_strerror(status));
    }
    s->bound = true;
    return group[0] ? give_to_group(s, group, err) : 0;
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct server *s = listener->data;
    struct error err = ERROR_NULL;
    if (status < 0) {
        log_warning("accept: %s", uv_strerror(status));
        return;
    }
    s->accepted++;
    if (session_accept(s, &err) < 0) {
        log_warning("%s", err.text);
    }
}

static void run_turns(uv_idle_t *idle);
static void run_sweep(uv_timer_t *timer);

int server_start(struct server *s, struct daemon *d, uv_loop_t *loop, const char *group,
                 const struct server_limits *limits, int inherited_fd, struct error *err)
{
    s->loop = loop;
    s->daemon = d;
    s->limits = *limits;
    accounts_init(&s->accounts, &limits->user);
    list_init(&s->sessions);
    list_init(&s->ready);
    list_init(&s->chores);
    s->input = malloc(INPUT_BYTES);
    if (!s->input) {
        return error_set(err, ERROR_NO_MEMORY, "no memory to start");
    }
    uv_pipe_init(loop, &s->pipe, 0);
    uv_idle_init(loop, &s->turns);
    uv_timer_init(loop, &s->sweep);
    s->pipe.data = s->turns.data = s->sweep.data = s;
    s->open_handles = 3;
    s->quiet_since_ms = server_now(s);
    s->inherited = inherited_fd >= 0;
    int status;
    if (s->inherited) {
        status = uv_pipe_open(&s->pipe, inherited_fd);
        if (status < 0) {
            return error_set(err, ERROR_IO, "the socket given by systemd cannot be used: %s",
                             uv_strerror(status));
        }
    } else {
        status = bind_path(s, group, err);
        if (status < 0) {
            return status;
        }
    }
    status = uv_listen((uv_stream_t *)&s->pipe, LISTEN_BACKLOG, on_connection);
    if (status < 0) {
        return error_set(err, ERROR_IO, "cannot listen on %s: %s", s->path, uv_strerror(status));
    }
    s->listening = true;
    return 0;
}

/* ---- turns and deadlines ---------------------------------------------------------------------------- */

uint64_t server_now(const struct server *s)
{
    uint64_t now = uv_now(s->loop);
    return now ? now : 1;
}

void server_ready(struct server *s, struct session *session)
{
    list_append(&s->ready, &session->ready);
    uv_idle_start(&s->turns, run_turns);
}

/* Who had no turn in this round comes before who had one. */
static void put_first(struct list *ready, struct list *waiting)
{
    while (!list_empty(waiting)) {
        struct list *node = waiting->prev;
        list_remove(node);
        list_append(ready->next, node);
    }
}

/* One turn for each session that was ready when the round began, while its user has time left. */
static void run_turns(uv_idle_t *idle)
{
    struct server *s = idle->data;
    struct list round, waiting;
    list_init(&round);
    list_init(&waiting);
    while (!list_empty(&s->ready)) {
        struct list *node = s->ready.next;
        list_remove(node);
        list_append(&round, node);
    }
    while (!list_empty(&round)) {
        struct session *session = LIST_OF(round.next, struct session, ready);
        list_remove(&session->ready);
        if (session_must_wait(session)) {
            list_append(&waiting, &session->ready);
            session_flush(session); /* answers need no turn */
        } else {
            session_turn(session);
        }
    }
    put_first(&s->ready, &waiting);
    if (!list_empty(&s->chores)) {
        struct chore *c = LIST_OF(s->chores.next, struct chore, link);
        list_remove(&c->link);
        c->run(c);
    }
    if (list_empty(&s->ready) && list_empty(&s->chores)) {
        uv_idle_stop(idle);
    }
}

void server_chore_init(struct chore *c, void (*run)(struct chore *c))
{
    list_init(&c->link);
    c->run = run;
}

void server_chore(struct server *s, struct chore *c)
{
    list_append(&s->chores, &c->link);
    uv_idle_start(&s->turns, run_turns);
}

void server_chore_cancel(struct chore *c)
{
    list_remove(&c->link);
}

void server_watch(struct server *s)
{
    if (!uv_is_active((uv_handle_t *)&s->sweep) && !uv_is_closing((uv_handle_t *)&s->sweep)) {
        s->swept_ms = server_now(s);
        uv_timer_start(&s->sweep, run_sweep, SWEEP_MS, SWEEP_MS);
    }
}

/* A sweep this late: it was this process that slept (SIGSTOP, a suspended host), not the clients, and
 * what they did meanwhile has not been read yet. */
static void forgive_absence(struct server *s, uint64_t now)
{
    uint64_t late = now - s->swept_ms;
    s->swept_ms = now;
    if (late > SWEEP_MS + SWEEP_MS / 2) {
        LIST_EACH(node, &s->sessions) {
            session_forgive(LIST_OF(node, struct session, link), late);
        }
    }
}

static void run_sweep(uv_timer_t *timer)
{
    struct server *s = timer->data;
    uint64_t now = server_now(s);
    bool any = false;
    forgive_absence(s, now);
    LIST_EACH(node, &s->sessions) {
        any = session_sweep(LIST_OF(node, struct session, link), now) || any;
    }
    if (!any) {
        uv_timer_stop(timer);
    }
}

/* ---- the end ------------------------------------------------------------------------------------------ */

static void check_stopped(struct server *s)
{
    if (s->open_handles == 0 && s->n_sessions == 0 && s->stopped) {
        void (*stopped)(struct daemon *d) = s->stopped;
        s->stopped = NULL;
        stopped(s->daemon);
    }
}

void server_closed(struct server *s, bool refused)
{
    s->n_sessions--;
    s->n_refused -= refused;
    s->quiet_since_ms = server_now(s);
    check_stopped(s);
}

static void handle_closed(uv_handle_t *handle)
{
    struct server *s = handle->data;
    s->open_handles--;
    check_stopped(s);
}

void server_stop_listening(struct server *s)
{
    if (s->open_handles && !uv_is_closing((uv_handle_t *)&s->pipe)) {
        /* libuv unlinks what it bound when it closes the handle: we hold the lock until later. */
        uv_close((uv_handle_t *)&s->pipe, handle_closed);
    }
    s->listening = false;
}

void server_stop(struct server *s, void (*stopped)(struct daemon *d))
{
    s->stopped = stopped;
    server_stop_listening(s);
    LIST_EACH(node, &s->sessions) {
        struct session *session = LIST_OF(node, struct session, link);
        session_flush(session);
        session_close(session);
    }
    uv_close((uv_handle_t *)&s->turns, handle_closed);
    uv_close((uv_handle_t *)&s->sweep, handle_closed);
}

void server_deinit(struct server *s)
{
    if (s->lock_fd >= 0) {
        if (s->bound) {
            unlink(s->path); /* while the lock is ours */
        }
        close(s->lock_fd);
    }
    lock_device_end(&s->device_lock);
    free(s->input);
    s->input = NULL;
    s->lock_fd = -1;
}
