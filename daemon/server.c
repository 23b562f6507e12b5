/* SPDX-License-Identifier: Apache-2.0 */
/* The locks and the listening socket (server.h). */
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
#include "daemon/sessions.h"

/* ---- locks --------------------------------------------------------------------------------------- */

int server_lock(struct server *s, const char *path, const char *device_uuid, bool exclusive_device,
                struct error *err)
{
    s->lock_fd = -1;
    s->own_name = false;
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
    if (sessions_accept(&s->sessions, listener, &err) < 0) {
        log_warning("%s", err.text);
    }
}

int server_start(struct server *s, struct turns *turns, struct poller *poller, const char *group,
                 const struct session_limits *limits, const struct session_hooks *hooks, void *ctx,
                 int inherited_fd, struct error *err)
{
    if (sessions_init(&s->sessions, turns, poller, limits, hooks, ctx, err) < 0) {
        return err->code;
    }
    uv_pipe_init(turns->idle.loop, &s->pipe, 0);
    s->pipe.data = s;
    s->open = 2;
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

/* ---- the end ------------------------------------------------------------------------------------------ */

static void one_closed(struct server *s)
{
    if (--s->open == 0 && s->stopped) {
        s->stopped(s);
    }
}

static void pipe_closed(uv_handle_t *handle)
{
    one_closed(handle->data);
}

static void sessions_closed(struct sessions *x)
{
    one_closed(LIST_OF(x, struct server, sessions));
}

void server_stop_listening(struct server *s)
{
    if (s->open && !uv_is_closing((uv_handle_t *)&s->pipe)) {
        /* libuv unlinks what it bound when it closes the handle: we hold the lock until later. */
        uv_close((uv_handle_t *)&s->pipe, pipe_closed);
    }
    s->listening = false;
}

void server_stop(struct server *s, void (*stopped)(struct server *s))
{
    s->stopped = stopped;
    server_stop_listening(s);
    sessions_stop(&s->sessions, sessions_closed);
}

void server_deinit(struct server *s)
{
    if (s->lock_fd >= 0) {
        if (s->bound) {
            unlink(s->path); /* while the lock is ours */
        }
        if (s->own_name) {
            lock_path_remove(s->path);
        }
        close(s->lock_fd);
    }
    lock_device_end(&s->device_lock);
    sessions_deinit(&s->sessions);
    s->lock_fd = -1;
}
