/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the daemon, held together, for what is above all of them: its life (life.h) and the
 * methods. A part knows the ground (daemon.h) and the parts that it stands on; what is above it, it
 * reaches by hooks.
 *
 *   server, session   connections, messages            session.h, server.h
 *   loader            from the ledger to the cache      loader.h
 *   refill            and back, what the file has lost  refill.h
 *   tiers             the best answer short of exact    tiers.h, shortlist.h
 *   scheduler, job    what is to be tuned, in which order scheduler.h, job.h
 *   wanting           who waits for it until when       wanting.h
 *   elsewhere, spread the same, among daemons           elsewhere.h, spread.h
 *   tuner             the course of the running job     tuning.h
 *   supervisor        the runner process                supervisor.h
 *   followers         the other daemons of the database followers.h
 *   leases            who works out a user's own kernel leases.h
 */
#ifndef GEMMD_DAEMON_PARTS_H
#define GEMMD_DAEMON_PARTS_H

#include "daemon/ahead.h"
#include "daemon/daemon.h"
#include "daemon/elsewhere.h"
#include "daemon/followers.h"
#include "daemon/leases.h"
#include "daemon/loader.h"
#include "daemon/refill.h"
#include "daemon/scheduler.h"
#include "daemon/server.h"
#include "daemon/spread.h"
#include "daemon/supervisor.h"
#include "daemon/tiers.h"
#include "daemon/tuning_trials.h"
#include "daemon/wanting.h"

struct parts {
    struct daemon daemon;
    struct server server;
    struct loader loader;
    struct refill refill;
    struct tiers tiers;
    struct scheduler scheduler;
    struct wanting wanting;
    struct elsewhere elsewhere;
    struct supervisor supervisor;
    struct tuner tuner;
    struct ahead ahead;
    struct leases leases;
    struct followers followers;
    struct spread spread;
    struct list views;       /* of pinned sessions (views.h) */
    struct list subscribers; /* announce.h */
    uint64_t started_ms;
    /* Ends the daemon; see life.h. */
    void (*stop)(struct parts *p, uid_t by, const char *why);
};

#endif
