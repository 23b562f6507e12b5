/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the daemon together, for the daemon's life cycle (life.h) and the methods. A part
 * may include daemon.h and the parts that it uses; a part reaches the parts that build on it
 * through hooks.
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
#include "daemon/tuning/tuning.h"

/* How gemmd dealt with a request: answered at once; answered later, after the ledger, a tuning or a
 * slice; refused at once. */
enum request_end { REQUEST_ANSWERED, REQUEST_LATER, REQUEST_REFUSED, REQUEST_ENDS };

enum { METHOD_SLOTS = 32 };

struct daemon_parts {
    struct daemon daemon;
    struct server server;
    struct loader loader;
    struct restore restore;
    struct tiers tiers;
    struct tuning tuning;
    struct leases leases;
    struct generations generations;
    uint64_t requests[METHOD_SLOTS][REQUEST_ENDS]; /* by method (METHOD_AT_, methods.h) */
    uint64_t started_ms;
    int64_t started_s;  /* Unix time */
    uint64_t served_ms; /* loop time at which counts of answers were sent to the database last; 0:
                           not yet */
    /* Ends the daemon (life.h). `why` NULL: the reason is in the log already. */
    void (*stop)(struct daemon_parts *p, uid_t by, const char *why);
};

/* ---- announce.c ------------------------------------------------------------------------------ */

/*
 * Announcements. A session that called `subscribe` is notified when a key gets a first or newer
 * answer from any daemon of the database. A session receives only answers that may serve its user:
 * no rows of other users' custom ops. A client that does not read gets no announcements until the
 * client reads again.
 */

void announce_best(struct daemon_parts *parts, const struct best *b, bool saved);

#endif
