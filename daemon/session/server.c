/* SPDX-License-Identifier: Apache-2.0 */
/* The locks and the listening socket (server.h). */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "daemon/session/server.h"
#include "daemon/session/session.h"

/* ---- locks ----------------------------------------------------------------------------------- */

static int make_dir(struct server *s, struct error *err)
{
    char copy[PATHS_MAX], usual[PATHS_MAX];
    memcpy(copy, s->path, sizeof(copy));
    const char *dir = dirname(copy);
    s->own_dir = s->own_dir || (access(dir, F_OK) < 0 && errno == ENOENT) ||
                 (paths_runtime_dir(usual, NULL) == 0 && strcmp(dir, usual) == 0);
    return paths_make_dir(dir, 0750, err);
}

int server_lock(struct server *s, const char *path, const char *device_uuid, bool exclusive_device,
                struct error *err)
{
    s->lock_fd = s->fd = -1;
    s->own_name = s->own_dir = false;
    s->device_lock = DEVICE_LOCK_NULL;
    int status = paths_check_socket(path, err);
    if (status) {
        return status;
    }
    snprintf(s->path, sizeof(s->path), "%s", path);
    status = make_dir(s, err);
    if (status) {
        return status;
    }
    status = lock_path(path, &s->lock_fd, err);
    if (status == 0 && exclusive_device) {
        status = lock_device(device_uuid, path, &s->device_lock, err);
    }
    return status;
}

/* ---- listening ------------------------------------------------------------------------------- */

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
    /* a directory that gemmd did not make for itself, such as /run or a home, keeps its group */
    if (chown(s->path, (uid_t)-1, g->gr_gid) < 0 ||
        (s->own_dir && chown(dirname(copy), (uid_t)-1, g->gr_gid) < 0)) {
        return error_set(err, ERROR_DENIED, "cannot give %s to group %s: %s", s->path, group,
                         strerror(errno));
    }
    return 0;
}

static bool is_bound(const struct server *s)
{
    struct stat st;
    return s->file && lstat(s->path, &st) == 0 && st.st_dev == s->device && st.st_ino == s->file;
}

/* Removes our socket's file. Once our socket and its lock file were removed, the path may be
 * another daemon's socket, which stays. */
static void server_unbind_path(struct server *s)
{
    if (is_bound(s)) {
        unlink(s->path);
    }
    s->file = 0;
}

/* True when a process listens on the path's socket. gemmd holds the lock, but if a person has
 * removed the lock file meanwhile, another daemon may hold the lock of the removed file. */
static bool somebody_listens(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    memcpy(at.sun_path, path, strlen(path) + 1); /* server_lock has checked its length */
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int r = fd < 0 ? 0 : connect(fd, (const struct sockaddr *)&at, sizeof(at));
    bool yes = fd >= 0 && (r == 0 || errno == EAGAIN); /* EAGAIN: the listener's queue is full */
    if (fd >= 0) {
        close(fd);
    }
    return yes;
}

static int remove_stale(const struct server *s, struct error *err)
{
    struct stat st;
    if (lstat(s->path, &st) == 0 && !S_ISSOCK(st.st_mode)) {
        return error_set(err, ERROR_IO,
                         "%s is there and is no socket; remove it, or choose another --socket",
                         s->path);
    }
    if (somebody_listens(s->path)) {
        return error_set(
            err, ERROR_BUSY,
            "another gemmd listens on %s, and its lock file was removed: stop that gemmd "
            "first, or choose another --socket",
            s->path);
    }
    /* the socket is of an ended gemmd, since we hold the lock and nobody listens */
    if (unlink(s->path) < 0 && errno != ENOENT) {
        return error_set(err, ERROR_IO, "cannot remove the stale socket %s: %s", s->path,
                         strerror(errno));
    }
    return 0;
}

static int bind_socket(int fd, const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    memcpy(at.sun_path, path, strlen(path) + 1); /* server_lock has checked its length */
    mode_t old = umask(0117);                    /* the socket never has a wider mode than 0660 */
    int r = bind(fd, (const struct sockaddr *)&at, sizeof(at));
    umask(old);
    return r;
}

static int bind_path(struct server *s, const char *group, int *fd, struct error *err)
{
    struct stat st;
    int status = remove_stale(s, err);
    if (status < 0) {
        return status;
    }
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd < 0 || bind_socket(*fd, s->path) < 0 || lstat(s->path, &st) < 0) {
        status = error_set(err, ERROR_IO, "cannot bind %s: %s", s->path, strerror(errno));
    } else {
        s->device = st.st_dev;
        s->file = st.st_ino;
        status = group[0] ? give_to_group(s, group, err) : 0;
    }
    if (status < 0 && *fd >= 0) {
        close(*fd);
        *fd = -1;
        server_unbind_path(s); /* or server_mend would take the path for served */
    }
    return status;
}

static void server_accept(struct server *s)
{
    struct error err = ERROR_NULL;
    bool waited = s->one_waits;
    int status;
    do {
        status = sessions_accept(&s->sessions, s->fd, &err);
        s->one_waits = status == ERROR_BUSY;
        if (status < 0 && !(waited && s->one_waits)) {
            log_warning("%s", err.text);
        }
    } while (status != SESSIONS_NONE && !s->one_waits);
}

static void server_ready(struct polled *p, enum peer peer)
{
    struct server *s = LIST_OF(p, struct server, polled);
    if (!s->one_waits && s->fd >= 0) {
        server_accept(s);
    }
}

static void server_close_socket(struct server *s)
{
    if (s->fd >= 0) {
        poller_remove(s->sessions.poller, s->fd);
        close(s->fd);
    }
    s->fd = -1;
}

/* Listens on fd from now on, and closes the socket that listened before. */
static int listen_on(struct server *s, int fd, struct error *err)
{
    int status = 0;
    if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0 || listen(fd, LISTEN_BACKLOG) < 0) {
        status = error_set(err, ERROR_IO, "cannot listen on %s: %s", s->path, strerror(errno));
    }
    status = status ? status : poller_add(s->sessions.poller, fd, &s->polled, err);
    if (status < 0) {
        close(fd);
        server_unbind_path(s);
        return status;
    }
    server_close_socket(s);
    s->fd = fd;
    s->one_waits = false;
    return 0;
}

int server_start(struct server *s, struct turns *turns, struct poller *poller, const char *group,
                 const struct session_limits *limits, const struct session_hooks *hooks, void *ctx,
                 int inherited_fd, struct error *err)
{
    if (sessions_init(&s->sessions, turns, poller, limits, hooks, ctx, err) < 0) {
        return err->code;
    }
    s->open = true;
    s->polled.ready = server_ready;
    s->inherited = inherited_fd >= 0;
    int fd = inherited_fd, status = s->inherited ? 0 : bind_path(s, group, &fd, err);
    return status < 0 ? status : listen_on(s, fd, err);
}

/* ---- repair of a lost path ------------------------------------------------------------------- */

/* Binds the path anew after its file was removed. No connection is lost with the old socket: gemmd
 * accepts connections as soon as they come. */
static int bind_again(struct server *s, const char *group, struct error *err)
{
    int fd, status = make_dir(s, err);
    status = status ? status : lock_path_again(s->path, &s->lock_fd, err);
    status = status ? status : bind_path(s, group, &fd, err);
    return status ? status : listen_on(s, fd, err);
}

int server_mend(struct server *s, const char *group, struct error *err)
{
    if (s->fd >= 0 && s->one_waits) {
        server_accept(s);
    }
    if (s->fd < 0 || s->inherited || is_bound(s)) {
        return 0;
    }
    struct error met = ERROR_NULL;
    int status = bind_again(s, group, &met);
    if (status == 0) {
        log_warning("%s was removed or replaced: it is bound again", s->path);
    }
    bool told = s->told_lost;
    s->told_lost = status < 0;
    return status < 0 && !told
               ? error_set(err, status,
                           "%s was removed or replaced, nobody can reach this gemmd there, and it "
                           "cannot be bound again: %.300s",
                           s->path, met.text)
               : 0;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void sessions_closed(struct sessions *x)
{
    struct server *s = LIST_OF(x, struct server, sessions);
    s->stopped(s);
}

void server_stop_listening(struct server *s)
{
    server_close_socket(s);
    server_unbind_path(s); /* server_deinit releases the lock */
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
        server_unbind_path(s); /* the socket's file goes before the lock is released */
        if (s->own_name) {
            lock_path_remove(s->path);
        }
        close(s->lock_fd);
    }
    lock_device_end(&s->device_lock);
    sessions_deinit(&s->sessions);
    s->lock_fd = -1;
}
