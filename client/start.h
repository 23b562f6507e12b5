/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts a gemmd in the background: a single daemon, even when many clients start at once.
 */
#ifndef GEMMD_CLIENT_START_H
#define GEMMD_CLIENT_START_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"

struct start_order {
    const char *device; /* for gemmd --device; "" or NULL: gemmd's own default */
    const char *socket; /* the daemon's socket */
    bool pass_socket;   /* pass the socket with --socket */
    int64_t deadline;
};

struct start; /* a start under way */
enum { START_WAITING = 1 };

/* Begins a start (*s is NULL), or continues with the same order. 0: a daemon listens on the socket;
 * START_WAITING: `until` has passed, call again. ERROR_UNREACHABLE: no gemmd program, or gemmd
 * ended at once (the sentence has its last line); ERROR_DEADLINE. *s becomes NULL, except with
 * START_WAITING. */
int start_daemon(struct start **s, const struct start_order *o, int64_t until, struct error *err);
/* Releases the lock for other clients; a started daemon goes on. NULL in, NULL out. */
struct start *start_free(struct start *s);

/* A child of fork() closes its copies of the parent's locks: else nobody could start a daemon while
 * the child lives. */
void start_before_fork(void);
void start_after_fork(bool in_child);

#endif
