/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server: the listening socket and all sessions.
 *
 * It takes the locks of its path, and of a GPU, before it touches either (lock.h).
 */
#ifndef GEMMD_DAEMON_SERVER_H
#define GEMMD_DAEMON_SERVER_H

#include <uv.h>

#include "daemon/account.h"
#include "daemon/list.h"
#include "daemon/lock.h"
#include "proto/error.h"
#include "proto/paths.h"

enum { INPUT_BYTES = 64 * 1024, ERROR_SLOTS = 40, LISTEN_BACKLOG = 4096 };

struct session;
struct daemon;

/* Work in slices, for what would keep others waiting: one slice of one chore per turn of the loop. */
struct chore {
    struct list link;
    void (*run)(struct chore *c);
};

struct server_limits {
    unsigned sessions;
    uint64_t message_ms; /* from a message's first byte to its last */
    uint64_t answer_ms;  /* for answers to be taken when the socket is full */
    struct account_limits user;
};

struct server {
    uv_loop_t *loop;       /* borrowed */
    struct daemon *daemon; /* borrowed */
    uv_pipe_t pipe;
    uv_idle_t turns;  /* runs while `ready` or `chores` is not empty */
    uv_timer_t sweep; /* runs while a session has a deadline */
    struct list sessions, ready, chores;
    unsigned n_sessions, n_refused; /* the latter are among the former, and leave */
    struct server_limits limits;
    struct accounts accounts;
    unsigned open_handles;
    uint64_t quiet_since_ms; /* without sessions since */
    uint64_t swept_ms;
    int lock_fd;
    struct device_lock device_lock;
    char path[PATHS_MAX];
    bool listening, inherited, bound;
    bool own_dir; /* the socket's directory is the usual one, or was not there before */
    uint8_t *input; /* owned, INPUT_BYTES: what sessions read into */

    uint64_t turn_tick_ms, turn_ended_ns; /* of the last session's turn */

    uint64_t requests, accepted;
    uint64_t errors[ERROR_SLOTS]; /* answers by error, at error_slot(code) */
    void (*stopped)(struct daemon *d);
};

static inline int error_slot(int code)
{
    return code < 0 && code > -ERROR_SLOTS ? -code : 1;
}

/* Takes "<path>.lock", makes the directory (0750). ERROR_BUSY: another daemon has it; ERROR_INVALID:
 * the path is too long; ERROR_IO, ERROR_DENIED. Needs no loop: done before anything costly. */
int server_lock(struct server *s, const char *path, const char *device_uuid, bool exclusive_device,
                struct error *err);
/* Binds (0660) and listens; `inherited_fd` >= 0: a socket from systemd. `group`, when not "", gets
 * the socket, and its directory when that is our own. */
int server_start(struct server *s, struct daemon *d, uv_loop_t *loop, const char *group,
                 const struct server_limits *limits, int inherited_fd, struct error *err);
/* No new connections; sessions go on. May be called twice. */
void server_stop_listening(struct server *s);
/* Closes all; `stopped` comes when the last handle is closed. Then server_deinit. */
void server_stop(struct server *s, void (*stopped)(struct daemon *d));
void server_deinit(struct server *s); /* unlinks the socket, drops the locks */

uint64_t server_now(const struct server *s); /* loop time, ms, never 0 */
void server_ready(struct server *s, struct session *session); /* gets a turn soon */
void server_chore_init(struct chore *c, void (*run)(struct chore *c));
void server_chore(struct server *s, struct chore *c); /* its slice comes soon, once */
void server_chore_cancel(struct chore *c);
void server_watch(struct server *s); /* a session has a deadline now */
void server_closed(struct server *s, bool refused); /* a session's handle is closed */

#endif
