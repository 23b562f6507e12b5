/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The course of the running job: history from the ledger, order to the runner, trials as they come,
 * deaths of the runner, the best made durable, answers to who waits.
 *
 * Callbacks of the ledger and of the supervisor carry no job: they mean scheduler->running. A job
 * leaves that place only when nothing is under way for it (scheduler_ended).
 */
#ifndef GEMMD_DAEMON_TUNING_H
#define GEMMD_DAEMON_TUNING_H

#include "daemon/job.h"
#include "proto/message.h"

enum {
    DEATHS_MAX = 24,        /* of the runner in one job: then no new candidate is tried */
    FAVOURITES_MAX = 8,     /* of these, with nothing that worked: then it looks elsewhere */
    CLOSING_DEATHS_MAX = 4, /* more of them while the best of what worked is measured again */
    UNNAMED_DEATHS_MAX = 3, /* of these, without a candidate to blame */
};

struct daemon;

void tuning_begin(struct daemon *d, struct job *j);
void tuning_cancel(struct daemon *d, struct job *j);
/* From elsewhere.c. The running job may go on: its key is its own, or cannot be leased. */
void tuning_leased(struct daemon *d, struct job *j);
/* Whether what is known answers a job that does not run; then *answer is it. */
bool tuning_known(struct daemon *d, struct job *j, struct wire_buf *answer);
/* Back to what a queued job is. */
void tuning_reset(struct job *j);

/* From the supervisor. */
/* What a vendor's library takes: of a key that was tuned earlier, no candidate of any job. */
void tuning_baseline(struct daemon *d, struct trial *t);
void tuning_trial(struct daemon *d, int64_t job, struct trial *t); /* t is used up */
void tuning_module(struct daemon *d, const struct module *m);
void tuning_progress(struct daemon *d, int64_t job, const struct progress *p);
void tuning_result(struct daemon *d, const struct tune_result *r);
void tuning_error(struct daemon *d, const struct error *e);
/* The runner ended in mid-job. `a` is what it was about to do (config empty: nobody to blame). */
struct death {
    const char *status; /* crashed | hung | device_lost */
    char reason[200];
    bool leaving;       /* it had said bye before it got the order: no fault */
    bool outside;       /* somebody else killed it: the candidate is not to blame */
};
void tuning_death(struct daemon *d, const struct death *why, const struct attempt *a);

#endif
