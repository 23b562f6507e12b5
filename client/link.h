/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection: a non-blocking Unix stream socket, and the received bytes that are not yet read.
 * Knows whole messages and deadlines, not the content of messages.
 *
 * A failed link is closed (fd -1): after half a message, sent or received, the stream cannot be
 * trusted. A deadline that passes between messages harms nothing.
 */
#ifndef GEMMD_CLIENT_LINK_H
#define GEMMD_CLIENT_LINK_H

#include <pthread.h>
#include <sys/types.h>

#include "proto/paths.h"
#include "proto/rpc.h"
#include "proto/scan.h"

struct link {
    int fd;      /* -1: closed */
    uint8_t *rx; /* owned */
    size_t rx_len, rx_cap;
    size_t taken;   /* bytes of the last returned message, which the next link_recv_packed drops */
    size_t scanned; /* bytes after `taken` that `scan` has seen */
    struct scan scan;
};
#define LINK_NULL ((struct link){.fd = -1})

/* given: the job named the path, so any user may listen there. Else only root and this user may,
 * and in /run/gemmd any user. ERROR_UNREACHABLE (no listener), ERROR_DENIED, ERROR_DEADLINE (the
 * listener's queue stayed full), ERROR_INVALID (path too long), ERROR_IO. */
int link_open(struct link *l, const char *path, bool given, int64_t deadline, struct error *err);
bool link_listens(const char *path); /* true when link_open finds a listener on a path not given */
void link_close(struct link *l);     /* keeps the memory; may be called twice */
void link_deinit(struct link *l);

/* Sends a whole request. *sent: the kernel took all its bytes. ERROR_DEADLINE closes the link.
 * ERROR_DISCONNECTED keeps it open, since gemmd's reason may still be read. */
int link_send(struct link *l, const void *data, size_t n, int64_t deadline, bool *sent,
              struct error *err);
/* Receives the next message: complete, within its size limits, not decoded, and valid until the
 * next call. CLOCK_PASSED: the deadline passed. Closes the link on ERROR_DISCONNECTED,
 * ERROR_MALFORMED and ERROR_TOO_LARGE. */
int link_recv_packed(struct link *l, struct pull *out, int64_t deadline, struct error *err);
int link_decode(struct link *l, struct wire_doc *doc, const struct pull *packed,
                struct rpc_message *out, struct error *err);

/* ---- start.c -------------------------------------------------------------------------------- */

/* The start of a gemmd in the background: a single daemon, even when many clients start one at the
 * same time. A zeroed struct: no start is under way. */
struct start {
    const char *socket; /* the daemon's socket, borrowed; NULL: no start is under way */
    const char *device; /* for gemmd --device, borrowed; "": gemmd's own default */
    bool pass_socket;   /* start gemmd with --socket */
    int64_t deadline;

    /* of start.c */
    char program[PATHS_MAX], log[PATHS_MAX], lock[PATHS_MAX];
    bool locked;    /* this client has the lock, and so is the one that starts a daemon */
    int held;       /* descriptor of the lock file, when locked */
    off_t log_from; /* size of the log before this start: its own lines follow */
    pid_t pid;      /* pid of the started gemmd; 0: not started yet */
};

/* Begins or continues a start. 0: a daemon listens on the socket; CLOCK_PASSED: `until` has
 * passed, call again. ERROR_UNREACHABLE: no gemmd program, or gemmd ended at once (the error
 * message has its last line); ERROR_DEADLINE. Calls start_end(), except with CLOCK_PASSED. */
int start_daemon(struct start *s, int64_t until, struct error *err);
/* Releases the lock, so that other clients may start a daemon. A daemon that was started continues.
 * May be called twice. */
void start_end(struct start *s);

/* A thread holds this mutex while it takes or releases the file lock of a start, and during fork().
 */
extern pthread_mutex_t start_lock;

#endif
