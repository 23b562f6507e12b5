/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server: the listening socket and all sessions.
 *
 * It takes the locks of its path, and of a GPU, before it touches either (base/lock.h).
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
    uv_pipe_t pipe;
    unsigned open; /* of pipe and sessions, those that are not closed; 0 also before the start */
    int lock_fd;
    struct device_lock device_lock;
    char path[PATHS_MAX];
    bool listening, inherited;
    bool one_waits; /* a connection that there was no memory for: libuv takes no other before it */
    dev_t device;   /* what we bound is this file, when `file` is not 0 */
    ino_t file;
    int next_fd;    /* bound anew: takes the place of the pipe that is being closed; else -1 */
    bool told_lost; /* that the path cannot be bound again */
    bool
        own_name; /* the path is of this process alone: nobody else looks for it or its lock file */
    bool own_dir; /* the socket's directory is the usual one, or was not there before */
    void (*stopped)(struct server *s);
};

/* Takes "<path>.lock", makes the directory (0750). ERROR_BUSY: another daemon has it;
 * ERROR_INVALID: the path is too long; ERROR_IO, ERROR_DENIED. Needs no loop: done before anything
 * costly. */
int server_lock(struct server *s, const char *path, const char *device_uuid, bool exclusive_device,
                struct error *err);
/* Binds (0660) and listens; `inherited_fd` >= 0: a socket from systemd. `group`, when not "", gets
 * the socket, and its directory when that is our own. */
int server_start(struct server *s, struct turns *turns, struct poller *poller, const char *group,
                 const struct session_limits *limits, const struct session_hooks *hooks, void *ctx,
                 int inherited_fd, struct error *err);
/* Now and then. Accepts a connection that there was no memory for. When the socket's file is no
 * more what was bound (a removed runtime directory): binds the path again if it is ours, or
 * nobody's. A fault is given once, then 0 until the path has been bound again. */
int server_mend(struct server *s, const char *group, struct error *err);
/* No new connections; sessions go on. May be called twice. */
void server_stop_listening(struct server *s);
/* Closes all; `stopped` comes when the last handle is closed. Then server_deinit. */
void server_stop(struct server *s, void (*stopped)(struct server *s));
void server_deinit(struct server *s); /* unlinks the socket, drops the locks */

#endif
