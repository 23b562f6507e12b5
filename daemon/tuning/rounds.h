/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds: whose job is next. Users take turns, so that one who has queued a thousand tunings keeps
 * another one's first waiting for the running job and little more. In each round a user has one
 * job, the first of his that came; the job that has the device is of its user's first round.
 *
 * The queue itself stands in this order, and all that go through it see what runs next: a job is
 * put where it belongs when it comes, and nothing is kept of the past, so who goes and comes again
 * gains nothing. Jobs that somebody waits for and background ones have rounds of their own, as the
 * former go first. One that is set aside stands where the scheduler put it.
 *
 * A job that several users wait for is of the one whose turn comes first: it moves forward when
 * somebody joins whose turn is before.
 */
#ifndef GEMMD_DAEMON_TUNING_ROUNDS_H
#define GEMMD_DAEMON_TUNING_ROUNDS_H

#include "daemon/tuning/job.h"

/* What `j` goes before in the queue, as a job of that user; the queue itself: it is the last.
 * `running` NULL: none is. Of a job that is queued already: a place no later than its own. */
struct list *rounds_place(struct list *queue, const struct job *running, const struct job *j,
                          const struct account *user);

#endif
