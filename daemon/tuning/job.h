/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job: one search that somebody waits for, or asked for in the background. Requests for the same
 * search share one job (single flight): same bucket, strategy, budgets, tolerances, restrictions.
 *
 * A queued job is small: its search stays packed until it runs. A waiter is a request that the job
 * will answer; it leaves by the answer, by its deadline, by `cancel`, or with its client.
 */
#ifndef GEMMD_DAEMON_TUNING_JOB_H
#define GEMMD_DAEMON_TUNING_JOB_H

#include "daemon/base/list.h"
#include "daemon/session/session.h"
#include "proto/request.h"
#include "daemon/daemon.h"

enum job_state {
    JOB_QUEUED,
    JOB_LEASED_OUT, /* another daemon works on its key (job_lease.h) */
    JOB_LEASING,    /* the ledger says whether another one does */
    JOB_HISTORY,    /* the ledger looks up what was measured before */
    JOB_RUNNING,    /* the runner has the order, or is being started for it */
    JOB_PUBLISHING, /* the ledger makes the best durable */
};

struct scheduler;

struct job {
    struct scheduler *scheduler; /* borrowed */
    struct list link;            /* scheduler->queue or leased_out */
    int64_t id;
    char key[HASH_HEX];
    uint64_t identity;      /* hash of search and pin */
    struct wire_buf search; /* owned: the request, with problem = bucket */
    enum job_state state;
    bool pin;                /* the winner becomes `manual` */
    bool again;              /* what was measured before a finished search does not count */
    bool background;         /* goes on when nobody waits */
    bool quiet;              /* nobody asked: only if nobody else uses the device */
    bool restricted;         /* its winner is `partial` */
    char target[TARGET_MAX]; /* forced; "": none */
    char bucket[8];          /* how the key was rounded, as in query.bucket */
    bool cancelled;
    bool leased;             /* its key is this daemon's */
    bool offered;            /* to other daemons (offers.h) */
    bool was_leased_out;     /* another daemon had its key, when it was looked at last */
    bool set_aside;          /* it has begun, and others have their turn: what follows is kept */
    int64_t uid;             /* who asked first */
    struct account *account; /* a holder, charged with this job; NULL: not yet */
    struct account
        *turn; /* a holder: the user in whose turn it comes (rounds.c); NULL: not queued yet */
    bool precompiled; /* handed to those who precompile */
    struct list waiters;
    unsigned n_waiters;

    /* From here on: of the running job (tuning.c). */
    struct request *request;     /* owned: `search`, unpacked; budgets filled in */
    char stamp[STAMP_MAX];       /* of what is measured now */
    char trial_stamp[STAMP_MAX]; /* the same, and tolerances when they are not the usual ones */
    struct best *best;           /* owned: being published */
    char *gate;                  /* owned: what became of the former best; NULL: there was none */
    struct wire_buf done;        /* owned: finished trials, one packed map after the other */
    uint32_t n_done;
    char (*avoid)[HASH_HEX]; /* owned */
    uint32_t n_avoid;
    bool reverify;        /* looks only at `known`, under tighter tolerances, before it searches */
    struct record *known; /* owned: the best so far, when it has to be verified again */
    bool manual;          /* `known` is a pin */
    bool stale;           /* and of another stamp */
    char known_target[TARGET_MAX]; /* of `known`: a pin may be of another than is tuned */
    double atol, rtol; /* as asked for; `known` is held to what it was held to before, too */
    char failed_variant[HASH_HEX]; /* of the last failed trial */
    unsigned deaths, unnamed_deaths;
    struct error *died;       /* owned: by the first of the given configs; NULL: not of it */
    uint32_t n_ok;            /* trials of `done` that may win */
    bool closing;             /* too many deaths: no more candidates, the best of what worked */
    unsigned refused;         /* orders that a leaving runner did not take */
    struct progress progress; /* the last one */
    uint64_t told_ms;         /* when waiters were told last */
    uint64_t began_ms;        /* the first time */
    double spent_device_ms, spent_ms; /* by orders that were set aside */
    char doubt[160];                  /* what disturbed the last order that was disturbed */
};

struct waiter {
    struct ticket ticket; /* first: a ticket is its waiter */
    struct job *job;      /* borrowed */
    struct list link;     /* job->waiters */
    uint64_t deadline_ms; /* loop time; 0: none */
    struct chore expiry;  /* past the deadline: many pass theirs at once, and each takes a while */
    struct waiters *all;  /* borrowed */
    bool progress;
    size_t problem_len;
    uint8_t problem[]; /* the true problem, packed: for the lower tier past the deadline */
};

/* The part of a request that says what is searched, packed. `r` is changed: what does not belong
 * to the search is cleared. */
int job_pack(struct wire_buf *b, struct request *r, struct error *err);
uint64_t job_identity(const struct wire_buf *search, bool pin);

struct job *job_make(int64_t id, struct wire_buf *search /* moved */, struct error *err);
void job_reset(struct job *j);       /* back to what a queued job is */
struct job *job_free(struct job *j); /* nobody may wait for it */

int job_wait(struct job *j, struct session *s, uint32_t id, const struct problem *problem,
             uint64_t deadline_ms, bool progress, struct waiter **out, struct error *err);
struct waiter *waiter_free(struct waiter *w); /* unlinks; its ticket must be closed */

/* To all who wait, and then nobody does. */
void job_answer(struct job *j, const void *answer, size_t n);
void job_fail(struct job *j, const struct error *e);
/* To those who asked for it. */
void job_tell(struct job *j);

/* ---- job_begin.c ----------------------------------------------------------------------------- */

/* What a job is told before it runs, and what is known of its key by then. */

/* job->request, with budgets filled in, and job->stamp. ERROR_NO_CONFIG, ERROR_NO_MEMORY. */
int tuning_unpack(struct daemon *d, struct job *j, struct error *err);
/* job->stamp and trial_stamp of what is measured now: of this target ("": the device's choice), and
 * right within the tolerances of the request. */
int tuning_stamp(struct daemon *d, struct job *j, const char *target, struct error *err);
/* What is known already of an unpacked job: the answer (while it was queued another one found it),
 * or a config to look at first: under the tighter tolerances now asked for, or a pin made under
 * another stamp. True: *answer is it. */
bool tuning_known_now(struct daemon *d, struct job *j, struct wire_buf *answer);
/* Only whether it is answered: of a job that has begun, and goes on with what it has if not. */
bool tuning_answered(struct daemon *d, const struct job *j, struct wire_buf *answer);
/* The same as tuning_known_now of a job that does not run and has not begun. */
bool tuning_known(struct daemon *d, struct job *j, struct wire_buf *answer);

#endif
