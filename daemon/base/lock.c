/* SPDX-License-Identifier: Apache-2.0 */
/* The locks of a path and of a device, and the errors that name their holders (lock.h). */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/base/lock.h"
#include "proto/lockfile.h"
#include "proto/paths.h"

enum { HOLDER_PATIENCE_MS = 200, HOLDER_TURNS = 10, ASKERS_MAX = 64 };

/* ---- a path ---------------------------------------------------------------------------------- */

enum { LOCK_PATH_MAX = PATHS_MAX + 8 };

static void name_file(const char *socket_path, char out[LOCK_PATH_MAX])
{
    snprintf(out, LOCK_PATH_MAX, "%s.lock", socket_path);
}

/* Sets the error ERROR_BUSY: another process holds the lock of the socket's path. `gemmctl stop`
 * cannot stop a holder without a socket, so the message for such a holder differs. */
static int path_taken(const char *socket_path, const struct lockfile_holder *h, struct error *err)
{
    char name[LOCKFILE_NAME_MAX];
    struct stat st;
    lockfile_name(h, name);
    if (h->lives && lstat(socket_path, &st) < 0 && errno == ENOENT) {
        return error_set(err, ERROR_BUSY,
                         "another gemmd (%s) has the lock of %s, and its socket is not there: it "
                         "begins, ends, or has lost it; stop it with `kill %ld`, or give this one "
                         "another --socket",
                         name, socket_path, h->pid);
    }
    return error_set(err, ERROR_BUSY,
                     "another gemmd (%s) serves %s; use it, stop it with `gemmctl stop`, "
                     "or give this one another --socket",
                     name, socket_path);
}

static int take_path(const char *socket_path, unsigned patience_ms, int *out, struct error *err)
{
    char path[LOCK_PATH_MAX];
    name_file(socket_path, path);
    int status = lockfile_take(path, NULL, out, err);
    if (status != LOCKFILE_HELD) {
        return status;
    }
    struct lockfile_holder h = lockfile_holder(path, patience_ms);
    /* The holder named in the file has ended, and yet the lock was held: it was killed while it
     * started a child, which had a copy of the lock's descriptor. The child closes the copy when
     * it runs, on a busy machine after a second, so the lock is tried again. */
    for (int turn = 0; turn < HOLDER_TURNS && !h.lives && patience_ms; turn++) {
        status = lockfile_take(path, NULL, out, err);
        if (status != LOCKFILE_HELD) {
            break;
        }
        h = lockfile_holder(path, patience_ms);
    }
    return status != LOCKFILE_HELD ? status : path_taken(socket_path, &h, err);
}

int lock_path(const char *socket_path, int *out, struct error *err)
{
    return take_path(socket_path, HOLDER_PATIENCE_MS, out, err);
}

int lock_path_again(const char *socket_path, int *fd, struct error *err)
{
    char path[LOCK_PATH_MAX];
    struct stat held, there;
    int fresh = -1;
    name_file(socket_path, path);
    if (fstat(*fd, &held) == 0 && lstat(path, &there) == 0 && held.st_dev == there.st_dev &&
        held.st_ino == there.st_ino) {
        return 0;
    }
    int status = take_path(socket_path, 0, &fresh, err);
    if (status == 0) {
        close(*fd);
        *fd = fresh;
    }
    return status;
}

void lock_path_remove(const char *socket_path)
{
    char path[LOCK_PATH_MAX];
    name_file(socket_path, path);
    unlink(path);
}

/* ---- a device -------------------------------------------------------------------------------- */

static int device_taken(const char *uuid, const char *who, struct error *err)
{
    return error_set(err, ERROR_BUSY,
                     "another gemmd (%s) serves device %s; there is one daemon per GPU, also when "
                     "its socket is elsewhere: use that one, or stop it first",
                     who, uuid);
}

static int take_file(const char *uuid, const char *socket_path, int *out, struct error *err)
{
    char dir[PATHS_MAX], path[PATHS_MAX + 128], name[LOCKFILE_NAME_MAX];
    int status = strchr(uuid, '/') ? error_set(err, ERROR_INVALID, "'%.64s' names no device", uuid)
                                   : paths_runtime_dir(dir, err);
    status = status ? status : paths_make_dir(dir, 0750, err);
    if (status < 0) {
        return status;
    }
    snprintf(path, sizeof(path), "%s/device-%.100s.lock", dir, uuid);
    status = lockfile_take(path, socket_path, out, err);
    if (status != LOCKFILE_HELD) {
        return status;
    }
    struct lockfile_holder h = lockfile_holder(path, HOLDER_PATIENCE_MS);
    return device_taken(uuid, lockfile_name(&h, name), err);
}

static socklen_t lock_name_of(const char *uuid, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1, "gemmd-device-%s", uuid);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* Sets the error that names the process that has the device's abstract socket name. The operating
 * system tells its pid: any user can take the name, but not secretly. */
static int name_taken(const char *uuid, const struct sockaddr_un *name, socklen_t length,
                      struct error *err)
{
    struct ucred who = {.pid = 0, .uid = (uid_t)-1};
    socklen_t n = sizeof(who);
    char text[48];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)name, length) == 0) {
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n);
    }
    if (fd >= 0) {
        close(fd);
    }
    snprintf(text, sizeof(text), "pid %d of user %d", (int)who.pid, (int)who.uid);
    return device_taken(uuid, text, err);
}

static int lock_take_name(const char *uuid, int *out, struct error *err)
{
    struct sockaddr_un name;
    socklen_t length = lock_name_of(uuid, &name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return error_set(err, ERROR_IO, "socket: %s", strerror(errno));
    }
    if (bind(fd, (struct sockaddr *)&name, length) < 0 || listen(fd, ASKERS_MAX) < 0) {
        int why = errno;
        close(fd);
        return why == EADDRINUSE
                   ? name_taken(uuid, &name, length, err)
                   : error_set(err, ERROR_IO, "cannot lock device %s: %s", uuid, strerror(why));
    }
    *out = fd;
    return 0;
}

int lock_device(const char *uuid, const char *socket_path, struct device_lock *out,
                struct error *err)
{
    *out = DEVICE_LOCK_NULL;
    int status = take_file(uuid, socket_path, &out->file, err);
    status = status ? status : lock_take_name(uuid, &out->name, err);
    if (status < 0) {
        lock_device_end(out);
    }
    return status;
}

void lock_device_end(struct device_lock *l)
{
    if (l->file >= 0) {
        close(l->file);
    }
    if (l->name >= 0) {
        close(l->name);
    }
    *l = DEVICE_LOCK_NULL;
}
