/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting a gemmd in the background, once, however many clients want it at the same moment.
 */
#ifndef GEMMD_CLIENT_START_H
#define GEMMD_CLIENT_START_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"

struct start_order {
    const char *device; /* for gemmd --device; "" or NULL: gemmd's own default */
    const char *socket; /* where it will listen */
    bool pass_socket;   /* tell it so, with --socket */
    int64_t deadline;
};

struct start; /* one that is under way */
enum { START_WAITING = 1 };

/* Begins (*s is NULL), or goes on, with the same order. 0 when somebody listens on the socket;
 * START_WAITING: `until` has passed. ERROR_UNREACHABLE: no gemmd program found, or it ended at once
 * (the sentence has its last words); ERROR_DEADLINE. But for START_WAITING, *s is NULL then. */
int start_daemon(struct start **s, const struct start_order *o, int64_t until, struct error *err);
/* Lets others start one; a daemon that has begun goes on. NULL in, NULL out. */
struct start *start_free(struct start *s);

/* A child of fork() lets go of what its parent holds: nobody else could start one while it
 * lives. */
void start_before_fork(void);
void start_after_fork(bool in_child);

#endif
