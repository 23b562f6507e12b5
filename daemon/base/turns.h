/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns on the loop: who has work that would keep others waiting does it in turns. What is ready
 * gets one turn in each round of the loop, in the order in which it became ready; and of all chores
 * one slice is done in a round.
 */
#ifndef GEMMD_DAEMON_BASE_TURNS_H
#define GEMMD_DAEMON_BASE_TURNS_H

#include <uv.h>

#include "daemon/base/list.h"

/* A timer this late: it was this process that slept (SIGSTOP, a frozen container), not those whom
 * it waits for, and what they said meanwhile has not been read yet. */
enum { AWAY_MS = 250 };

/* Somebody who is ready for a turn. `take` is false when he had to let it pass: in the next round
 * he comes before those who had one. */
struct turn {
    struct list link;
    bool (*take)(struct turn *t);
};

/* Work in slices, for what would keep others waiting: one slice of one chore per round, of about
 * CHORE_NS. Users take turns: the next slice is for the user whose last slice is longest ago. */
struct chore {
    struct list link;
    void (*run)(struct chore *c);
    uint64_t *served; /* borrowed: when its user had a slice (account.h); NULL: nobody's chore */
};

enum { CHORE_NS = 500000 };

struct turns {
    uv_idle_t idle; /* runs while one of the lists is not empty */
    struct list ready, chores;
    uint64_t slices, served; /* so many there were; the number of the last one of nobody's chores */
};

void turns_init(struct turns *t, uv_loop_t *loop);
void turns_close(struct turns *t);         /* nobody is ready any more */
uint64_t turns_now(const struct turns *t); /* loop time, ms, never 0 */

void turn_init(struct turn *t, bool (*take)(struct turn *t));
void turn_cancel(struct turn *t);
void turns_ready(struct turns *t, struct turn *turn); /* gets a turn soon, once */

void chore_init(struct chore *c, void (*run)(struct chore *c), uint64_t *served);
void chore_cancel(struct chore *c);
void turns_chore(struct turns *t, struct chore *c); /* its slice comes soon, once */

#endif
