/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the place of a job in the queue of jobs by a walk over the whole queue (tuning.h). */
#include <string.h>

#include "daemon/tuning/tuning.h"

static bool same_kind(const struct job *a, const struct job *b)
{
    return (a->n_waiters > 0) == (b->n_waiters > 0);
}

/* Begins to count each user's jobs of the queue in account.round: 0, but 1 for the running job's
 * user. */
static void rounds_begin_first(const struct accounts *all, const struct job *running)
{
    LIST_EACH(struct account, user, &all->all, link) {
        user->round = 0;
    }
    if (running) {
        running->turn->round = 1;
    }
}

/* Returns the round of `j` as a job of this user, behind all other queued jobs of the user. */
static unsigned round_of(const struct list *queue, const struct job *running, const struct job *j,
                         const struct account *user)
{
    unsigned round = running && running->turn == user ? 2 : 1;
    LIST_EACH(const struct job, other, queue, link) {
        round += other != j && other->turn == user && same_kind(other, j);
    }
    return round;
}

struct list *rounds_place(struct list *queue, const struct job *running, const struct job *j,
                          const struct account *user)
{
    unsigned round = round_of(queue, running, j, user);
    struct list *place = NULL;
    rounds_begin_first(user->all, running);
    LIST_EACH(struct job, other, queue, link) {
        if (other == j) {
            return place ? place : other->link.next;
        }
        if (!same_kind(other, j)) {
            continue;
        }
        bool later = ++other->turn->round > round;
        if (other->turn == user || (other->set_aside && strcmp(other->key, j->key) == 0)) {
            /* `j` goes behind the user's older jobs, and behind a job that was set aside with the
             * same key */
            place = NULL;
        } else if (later && !place) {
            place = &other->link;
        }
    }
    return place ? place : queue;
}
