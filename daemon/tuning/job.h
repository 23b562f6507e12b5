/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job: a search with waiting clients, or a search in the background. Requests for the same search
 * share a job (single flight): same bucket, strategy, budgets, tolerances and restrictions.
 *
 * A queued job is small: its search stays packed until the job runs. A waiter is a request that the
 * job will answer. A waiter leaves with its answer, at its deadline, by `cancel`, or when its
 * client leaves.
 */
#ifndef GEMMD_DAEMON_TUNING_JOB_H
#define GEMMD_DAEMON_TUNING_JOB_H

#include "daemon/base/list.h"
#include "daemon/session/session.h"
#include "proto/request.h"
#include "daemon/daemon.h"

enum job_state {
    JOB_QUEUED,
    JOB_LEASED_OUT, /* another daemon works on the key (job_lease.c) */
    JOB_LEASING,    /* the ledger leases the key, or finds another daemon's lease */
    JOB_HISTORY,    /* the ledger looks up earlier trials */
    JOB_RUNNING,    /* the runner has the order, or is being started for it */
    JOB_PUBLISHING, /* the ledger makes the best durable */
};

struct tuning;

struct job {
    struct list all;  /* node in scheduler.jobs */
    struct list link; /* node in scheduler.queue, while queued */
    int64_t id;
    char key[HASH_HEX];
    uint64_t identity;      /* hash of search and pin */
    struct wire_buf search; /* owned: the request, with problem = bucket */
    enum job_state state;
    bool pin;        /* the winner becomes a best of source `manual` */
    bool again;      /* search anew: trials of a finished search do not count as done */
    bool background; /* goes on without waiters */
    bool quiet;      /* runs only while no other process uses the device */
    bool in_pauses;  /* uses the device only in pauses of training jobs (pauses.c) */
    bool restricted; /* the search excludes configs: its winner is `partial` */
    /* the request is to confirm this candidate of the fleet, with this promise; 0: it is not */
    int64_t ordered_candidate;
    double ordered_promise;
    char target[TARGET_MAX]; /* the target that the request demands; "": none */
    /* borrowed: stamp of the kernels that the search measures, as known when it was queued */
    const char *kernels;
    char bucket[8]; /* the request's rounding scheme (query.bucket) */
    bool cancelled;
    bool leased;
    bool offered;        /* the search is offered to other daemons (offers.c) */
    bool asked;          /* the fleet was asked for the key (job_lease.c) */
    bool was_leased_out; /* another daemon had the key at the last attempt to lease */
    bool waited;         /* the scheduler has counted the job's wait for another daemon's lease */
    bool set_aside;      /* has begun, and waits in the queue to go on, with its trials */
    int64_t uid;         /* the user of the first request */
    /* the account that is charged with this job; NULL: not charged yet */
    struct account *account;
    /* the account of the user whose turn the job takes (rounds.c); NULL: not queued yet */
    struct account *turn;
    bool precompiled; /* handed to the precompiler */
    struct list waiters;
    unsigned n_waiters;

    /* The remaining fields belong to the running job (tuning.c). */
    struct request *request;     /* owned: `search`, unpacked, with budgets filled in */
    char stamp[STAMP_MAX];       /* stamp of the kernels that are measured now */
    char trial_stamp[STAMP_MAX]; /* `stamp`, and the tolerances unless they are 0.01 */
    struct best *best;           /* owned: the winner as a row, since the runner's result */
    char *gate;                  /* owned: text: why the winner replaced the former best, or not */
    struct wire_buf done;        /* owned: finished trials, as packed maps one after another */
    uint32_t n_done;
    char (*avoid)[HASH_HEX]; /* owned: variants that no later runner tries */
    uint32_t n_avoid;
    bool reverify;                 /* first verify `known`; search only if `known` fails */
    struct record *known;          /* owned: the best to verify again */
    bool manual;                   /* `known` is a pin */
    bool confirms;                 /* `known` is a candidate (confirm.c) */
    int64_t candidate;             /* generation of the candidate */
    double promised;               /* its time / time of the default, by its row */
    bool stale;                    /* `known` is a pin that was measured with other kernels */
    char known_target[TARGET_MAX]; /* target of `known`; a pin's may differ from `target` */
    /* the request's tolerances; request->query has tighter ones while `known` is verified, if the
     * row of `known` has tighter ones */
    double atol, rtol;
    char failed_variant[HASH_HEX]; /* variant of the last failed trial */
    unsigned deaths, unnamed_deaths;
    struct error *died; /* owned: how the first given config killed the runner; NULL: it did not */
    uint32_t n_ok;      /* number of trials in `done` that may win */
    /* too many deaths: the job tries no new candidates, and the best that was found wins */
    bool closing;
    unsigned refused;         /* number of orders that a leaving runner did not take */
    struct progress progress; /* the runner's last progress message */
    uint64_t told_ms;         /* loop time of the last progress message to waiters */
    uint64_t began_ms;        /* loop time at which the job first got the device */
    /* ms of this job's earlier orders until they were set aside: on the device; in all */
    double spent_device_ms, spent_ms;
    /* the last disturbance of measurements in this job's orders; "": none */
    char doubt[160];
};

struct waiter {
    struct ticket ticket; /* the first member: a pointer to the ticket is a pointer to the waiter */
    struct job *job;      /* borrowed */
    struct list link;     /* node in job->waiters */
    uint64_t deadline_ms; /* loop time; 0: no deadline */
    /* answers after the deadline: many waiters may expire at once, and each answer takes a while */
    struct chore expiry;
    struct tuning *tuning; /* borrowed */
    bool progress;
    size_t problem_len;
    /* the client's problem before rounding, packed: a lower tier answers it after the deadline */
    uint8_t problem[];
};

/* Packs the fields of a request that define the search. Clears the other fields of `r`. */
int job_pack(struct wire_buf *b, struct request *r, struct error *err);
uint64_t job_identity(const struct wire_buf *search, bool pin);

enum { JOB_NAME_MAX = 96 };
/* Names the job's problem for people, "forward 512x1024x1024 e32": the key when the search is still
 * packed, or the problem is no matrix product. */
void job_name(const struct job *j, char *out, size_t size);

void job_reset(struct job *j);       /* back to the state of a queued job */
struct job *job_free(struct job *j); /* the job must not have waiters */

struct waiter *waiter_free(struct waiter *w); /* also unlinks w; its ticket must be closed */

/* Answers all waiters and removes them. */
void job_answer(struct job *j, const void *answer, size_t n);
void job_fail(struct job *j, const struct error *e);
/* Sends progress to the waiters that asked for it. */
void job_tell(struct job *j);

#endif
