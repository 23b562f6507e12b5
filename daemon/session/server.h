/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server: the listening socket and all sessions. The server takes the lock of its socket's
 * path, and the locks of a GPU, before gemmd uses path or GPU (base/lock.h).
 */
#ifndef GEMMD_DAEMON_SESSION_SERVER_H
#define GEMMD_DAEMON_SESSION_SERVER_H

#include <sys/types.h>
#include <uv.h>

#include "daemon/base/lock.h"
#include "daemon/session/session.h"
#include "proto/error.h"
#include "proto/paths.h"

enum { LISTEN_BACKLOG = 4096 };

struct server {
    struct sessions sessions;
    struct polled polled;
    int fd;    /* the listening socket; -1: not listening */
    bool open; /* `sessions` was initialised */
    int lock_fd;
    struct device_lock device_lock;
    char path[PATHS_MAX];
    bool inherited;
    bool one_waits; /* accept failed for lack of memory or descriptors: server_mend tries again */
    dev_t device;   /* device and inode number of the bound socket's file; `file` 0: not bound */
    ino_t file;
    bool told_lost; /* the failure to bind the path again was reported */
    /* the path has this process's pid: both the path and its lock file are removed at the end */
    bool own_name;
    bool own_dir; /* the socket's directory is the default, or gemmd has made it */
    void (*stopped)(struct server *s);
};

/* Makes the directory (0750), takes "<path>.lock", and with `exclusive_device` the locks of the
 * GPU. Needs no loop, so the start calls this before costly steps. ERROR_BUSY: another daemon has a
 * lock. ERROR_INVALID: the path is too long. ERROR_IO, ERROR_DENIED. */
int server_lock(struct server *s, const char *path, const char *device_uuid, bool exclusive_device,
                struct error *err);
/* Binds the path (mode 0660) and listens. `inherited_fd` >= 0: a listening socket from systemd,
 * used instead. `group`, when not "", becomes the group of the socket, and of its directory if
 * own_dir. */
int server_start(struct server *s, struct turns *turns, struct poller *poller, const char *group,
                 const struct session_limits *limits, const struct session_hooks *hooks, void *ctx,
                 int inherited_fd, struct error *err);
/* Called periodically. Accepts connections that could not be accepted before (one_waits). Binds the
 * path again when the socket's file was removed or replaced (a removed runtime directory), if the
 * path is free. The first failure returns the error, further failures 0. */
int server_mend(struct server *s, const char *group, struct error *err);
/* Accepts no new connections; sessions go on. May be called twice. */
void server_stop_listening(struct server *s);
/* Closes all sessions, then calls `stopped`. Call server_deinit afterwards. */
void server_stop(struct server *s, void (*stopped)(struct server *s));
void server_deinit(struct server *s); /* unlinks the socket, drops the locks */

#endif
