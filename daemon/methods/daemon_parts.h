/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the daemon, held together, for what is above all of them: its life (life.h) and the
 * methods. A part knows the ground (daemon.h) and the parts that it stands on; what is
 * above it, it reaches by hooks.
 *
 *   server, session   connections, messages                 session/session.h, session/server.h
 *   loader            from the ledger to the cache          methods/loader.h
 *   restore           and back, what the file has lost      answers/restore.c
 *   tiers             the best answer short of exact        answers/tiers.h, answers/portfolio.h
 *   scheduler, job    what is to be tuned, in which order   tuning/scheduler.h, tuning/job.h
 *   waiters           who waits for it until when           tuning/waiters.h
 *   job_lease, offers the same, among daemons               tuning/job_lease.h, tuning/offers.h
 *   tuner             the course of the running job         tuning/tuning.h
 *   supervisor        the runner process                    tuning/supervisor.h
 *   generations       what a key answered in one            methods/generations.h
 *   leases            who works out a user's own kernel     methods/leases.h
 */
#ifndef GEMMD_DAEMON_METHODS_DAEMON_PARTS_H
#define GEMMD_DAEMON_METHODS_DAEMON_PARTS_H

#include <stdbool.h>

#include "daemon/daemon.h"
#include "daemon/answers/learn.h"
#include "daemon/answers/tiers.h"
#include "daemon/methods/generations.h"
#include "daemon/methods/leases.h"
#include "daemon/methods/loader.h"
#include "daemon/session/server.h"
#include "daemon/tuning/precompile.h"
#include "daemon/tuning/job_lease.h"
#include "daemon/tuning/offers.h"
#include "daemon/tuning/scheduler.h"
#include "daemon/tuning/supervisor.h"
#include "daemon/tuning/tuning.h"
#include "daemon/tuning/waiters.h"

struct daemon_parts {
    struct daemon daemon;
    struct server server;
    struct loader loader;
    struct restore restore;
    struct tiers tiers;
    struct scheduler scheduler;
    struct waiters waiters;
    struct job_lease job_lease;
    struct supervisor supervisor;
    struct tuner tuner;
    struct precompiler precompiler;
    struct leases leases;
    struct offers offers;
    struct generations generations;
    struct list subscribers; /* announce.c */
    uint64_t started_ms;
    /* Ends the daemon; see life.h. `why` NULL: the reason is in the log already. */
    void (*stop)(struct daemon_parts *p, uid_t by, const char *why);
};

/* ---- announce.c ------------------------------------------------------------------------------ */

/*
 * Announcements: sessions that asked by `subscribe` are told when a key gets an answer, or a newer
 * one, whichever daemon of the database found it. Each hears of what it could be answered: others'
 * rows of custom ops it does not. Who does not read is told nothing more, until he does.
 */

void announce_best(struct daemon *d, struct list *subscribers, const struct best *b, bool saved);
void announce_stop(struct list *subscribers); /* nobody is told anything any more */

#endif
