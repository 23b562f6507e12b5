/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns on the loop, for work that would keep other clients waiting. Every ready turn runs once in
 * each round of the loop, in the order in which the turns became ready. A round also runs a slice
 * of one chore.
 */
#ifndef GEMMD_DAEMON_BASE_TURNS_H
#define GEMMD_DAEMON_BASE_TURNS_H

#include <uv.h>

#include "daemon/base/list.h"

/* When a timer fires this many ms too late, gemmd itself was stopped (SIGSTOP, a frozen container).
 * Clients and runner were not silent meanwhile: their messages lie unread. */
enum { AWAY_MS = 250 };

/* Work that is ready for a turn. When `take` returns false, the work passed its turn: in the next
 * round it comes before the turns that ran. */
struct turn {
    struct list link;
    bool (*take)(struct turn *t);
};

/* Long work in slices of about CHORE_NS. Users take turns: the user whose last slice is longest ago
 * is next. */
struct chore {
    struct list link;
    void (*run)(struct chore *c);
    /* account.served of the chore's user, or NULL: the chore is of no user */
    uint64_t *served;
};

enum { CHORE_NS = 500000 };

struct turns {
    uv_idle_t idle; /* active while `ready` or `chores` is not empty */
    struct list ready, chores;
    /* number of slices so far; value of `slices` at the last slice of a chore without a user */
    uint64_t slices, served;
};

void turns_init(struct turns *t, uv_loop_t *loop);
void turns_close(struct turns *t);         /* afterwards no turn or slice runs */
uint64_t turns_now(const struct turns *t); /* loop time, ms, never 0 */

void turn_init(struct turn *t, bool (*take)(struct turn *t));
void turn_cancel(struct turn *t);
void turns_ready(struct turns *t, struct turn *turn); /* takes its turn in the next round */

void chore_init(struct chore *c, void (*run)(struct chore *c), uint64_t *served);
void chore_cancel(struct chore *c);
void turns_chore(struct turns *t, struct chore *c); /* queues a slice */

#endif
