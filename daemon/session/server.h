/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server: the listening socket and all sessions. The server takes the locks of its path, and of
 * a GPU, before touching either (base/lock.h).
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
    bool open; /* the sessions exist */
    int lock_fd;
    struct device_lock device_lock;
    char path[PATHS_MAX];
    bool inherited;
    bool one_waits; /* a connection waits for memory or a descriptor; no other is accepted before */
    dev_t device;   /* device and inode of the bound socket; `file` 0 when unbound */
    ino_t file;
    bool told_lost; /* a failed rebind was reported */
    bool own_name;  /* only this process uses the path and its lock file */
    bool own_dir;   /* the directory is the usual one, or made by us */
    void (*stopped)(struct server *s);
};

/* Makes the directory (0750) and takes "<path>.lock". Needs no loop, so runs before costly steps.
 * ERROR_BUSY: another daemon has the lock. ERROR_INVALID: the path is too long. ERROR_IO,
 * ERROR_DENIED. */
int server_lock(struct server *s, const char *path, const char *device_uuid, bool exclusive_device,
                struct error *err);
/* Binds (0660) and listens. `inherited_fd` >= 0: a socket from systemd. `group`, when not "", gets
 * the socket, and the directory if own_dir. */
int server_start(struct server *s, struct turns *turns, struct poller *poller, const char *group,
                 const struct session_limits *limits, const struct session_hooks *hooks, void *ctx,
                 int inherited_fd, struct error *err);
/* Periodic repair. Accepts a connection that waited. Binds the path again when the
 * socket's file was removed or replaced (a removed runtime directory), if the path is free. Returns
 * an error once, then 0 until the path is bound again. */
int server_mend(struct server *s, const char *group, struct error *err);
/* Accepts no new connections; sessions go on. May be called twice. */
void server_stop_listening(struct server *s);
/* Closes all sessions, then calls `stopped`. Call server_deinit afterwards. */
void server_stop(struct server *s, void (*stopped)(struct server *s));
void server_deinit(struct server *s); /* unlinks the socket, drops the locks */

#endif
