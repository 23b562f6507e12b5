/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon: its parts, held together. Everything here lives on the loop thread.
 *
 *   server, session   connections, messages            session.h, server.h
 *   methods           what can be asked                 methods.h
 *   cache             what is known, ready to be sent   cache.h, memo.h
 *   loader            from the ledger to the cache      loader.h
 *   tiers             the best answer short of exact    tiers.h
 *   shortlist         the portfolio                     shortlist.h
 *   scheduler, job    what is to be tuned, who waits    scheduler.h, job.h
 *   supervisor        the runner process                supervisor.h
 *   followers         the other daemons of the database followers.h
 *   leases            who works out a user's own kernel leases.h
 *   ledger            what is remembered                ledger.h
 */
#ifndef GEMMD_DAEMON_DAEMON_H
#define GEMMD_DAEMON_DAEMON_H

#include <uv.h>

#include "daemon/ahead.h"
#include "daemon/cache.h"
#include "daemon/config.h"
#include "daemon/defaults.h"
#include "daemon/followers.h"
#include "daemon/leases.h"
#include "daemon/ledger.h"
#include "daemon/loader.h"
#include "daemon/scheduler.h"
#include "daemon/server.h"
#include "daemon/shortlist.h"
#include "daemon/spread.h"
#include "daemon/supervisor.h"
#include "kernels/family.h"
#include "proto/request.h"

/* What is too big for the stack and too frequent for malloc. Whoever uses one uses it up before
 * anything else of the daemon is called, unless said otherwise. */
struct scratch {
    struct request request; /* of the request being handled; methods.c cleans it */
    struct problem bucket;  /* its bucket */
    struct key key;         /* the bucket's */
    struct problem other;   /* tiers: the neighbour's */
    struct answer answer;
    struct answer hint;     /* tiers */
    struct record config;
    struct best best;
    struct trial trial;
    struct key default_key; /* defaults_choose */
    struct problem learned; /* daemon_learn */
    struct key learned_key;
};

enum { STAMPS_MAX = 8 };

struct daemon {
    uv_loop_t loop;
    const struct config *config; /* borrowed */
    struct device_info device;
    enum bucket_scheme scheme;
    char stamp[STAMP_MAX];       /* of grouped_gemm's first target here; "" when it has none */
    struct {
        const struct family_target *target;
        char text[STAMP_MAX];
    } stamps[STAMPS_MAX];        /* of daemon_stamp; a NULL target: free */
    char device_spec[PATHS_MAX];
    char database[PATHS_MAX], cache_dir[PATHS_MAX], runner[PATHS_MAX];
    struct server server;
    struct cache cache;
    struct defaults defaults;
    struct shortlist shortlist;
    struct loader loader;
    struct scheduler scheduler;
    struct supervisor supervisor;
    struct ahead ahead;
    struct leases leases;
    struct followers followers;
    struct spread spread;
    struct list views;           /* of pinned sessions (views.h) */
    struct list subscribers;     /* announce.h */
    char owner[40];              /* who we are in the ledger's leases: <pid>.<when> */
    struct ledger *ledger;       /* owned; NULL before its start and after its end */
    struct scratch *scratch;     /* owned */
    struct wire_doc *doc;        /* owned: the request being handled */
    uv_signal_t signals[2];      /* SIGTERM, SIGINT */
    uv_timer_t chores;           /* idle exit, unsaved answers */
    uv_timer_t watchdog;         /* tells systemd that the loop turns */
    uint64_t started_ms;
    int64_t generation;          /* the newest seen */
    uint64_t hits, misses;
    int exit_code;
    bool stopping;
};

/* Runs until told to stop. Returns an exit code. */
int daemon_run(const struct config *c);
/* Ends the work in order: no new connections, jobs cancelled, runner killed, ledger drained, socket
 * removed. Returns at once; may be called twice. `by`: who asked, for the event. */
void daemon_stop(struct daemon *d, uid_t by, const char *why);

/* The target that does a problem here: `label`, or when it is NULL or "" the device's own choice
 * (family_target_choose). ERROR_NO_CONFIG, ERROR_INVALID. */
int daemon_target(const struct daemon *d, const struct problem *p, const char *label,
                  const struct family_target **out, struct error *err);
/* family_stamp of this device, remembered: it hashes the whole source. Borrowed. */
const char *daemon_stamp(struct daemon *d, const struct family *f, const struct family_target *t);
/* Whether an answer is of this target, as far as its stamp says (of others' results it says
 * nothing); any is of "". */
bool daemon_on_target(const struct answer *a, const char *label);
/* What a query's `target` comes to: checked, filled in when only given configs say it, and cleared
 * when it is the device's own choice anyway, so that such a query is no other than one without.
 * Not cleared while the key is pinned to a config of another target: that is not what was asked
 * for. r->problem may be the true problem; e: the key's entry, or NULL. */
int daemon_settle_target(struct daemon *d, struct request *r, const struct cache_entry *e,
                         struct error *err);
/* scratch->bucket and key (without id) of scratch->request.problem, rounded as its query says. */
int daemon_key(struct daemon *d, struct error *err);
/* Whether a row answers, or is only worth trying first. */
enum cache_rank daemon_rank(struct daemon *d, const struct best *b, const struct problem *bucket);
/* An event for the ledger. */
void daemon_event(struct daemon *d, const char *kind, int64_t uid, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* A best that the ledger has published, or had: into the cache when it is this class's. */
void daemon_learn(struct daemon *d, const struct best *b, bool saved);

#endif
