/* SPDX-License-Identifier: Apache-2.0 */
/* The base of all parts of the daemon: the device, the database, their state in memory, and the
 * loop. It includes no part; methods/daemon_parts.h has the parts. Only the loop's thread may use
 * it. */
#ifndef GEMMD_DAEMON_DAEMON_H
#define GEMMD_DAEMON_DAEMON_H

#include <uv.h>

#include "daemon/base/config.h"
#include "daemon/base/poller.h"
#include "daemon/base/turns.h"
#include "daemon/cache/quarantine_set.h"
#include "daemon/cache/cache.h"
#include "daemon/cache/defaults.h"
#include "daemon/ledger/ledger.h"
#include "kernels/family.h"
#include "proto/request.h"

/* Objects that are too big for the stack and needed too often for malloc. All parts share them, so
 * a part that uses one has finished with it before it calls another part, except where noted. */
struct scratch {
    struct request request; /* the current request; methods/dispatch.c clears it afterwards */
    struct problem bucket;  /* the request's bucket */
    struct key key;         /* the bucket's key */
    struct problem other;   /* tiers: the neighbour's bucket */
    struct answer answer;
    struct answer hint;     /* the row of another answer, mostly for answers/tiers.c */
    struct record standard; /* tiers: the analytic default */
    struct record config;
    struct best best;
    struct trial trial;
    struct problem learned; /* learn.h: problem and key of a row */
    struct key learned_key;
};

enum { STAMPS_MAX = 8 };

enum tier { TIER_EXACT, TIER_NEAR, TIER_PORTFOLIO, TIER_DEFAULT, TIERS };
extern const char *const tier_names[TIERS]; /* as in answer.tier */

struct daemon {
    uv_loop_t loop;
    struct poller poller;
    const struct config *config; /* borrowed: the settings, with defaults filled in (life.h) */
    struct device_info device;
    enum bucket_scheme scheme;
    /* stamp of the first family's first target that supports the device; "": none does */
    char stamp[STAMP_MAX];
    struct {
        const struct family_target *target;
        char text[STAMP_MAX];
    } stamps[STAMPS_MAX]; /* stamps that target_stamp has computed; target NULL: a free place */
    const char *database, *cache_dir; /* borrowed from `config` */
    struct turns turns;
    struct cache cache;
    /* Bests of other device classes that are alike (device_class_alike), under the keys that their
     * problems have in this daemon's class. Searches try their configs first; no client gets
     * them. */
    struct cache alike;
    struct tried tried; /* keys with recorded trials and no answer */
    struct quarantine_set quarantine_set;
    struct quarantine_set
        doubts; /* variants that only another host of the fleet has in quarantine */
    /* quarantine.c: rows are being read; the rows must be read once more after that */
    bool quarantine_reads, quarantine_again;
    struct defaults defaults;
    struct ledger *ledger;   /* owned; NULL before its start and after its end */
    struct scratch *scratch; /* owned */
    struct wire_doc *doc;    /* owned: decodes the current request */
    int64_t generation;      /* the newest generation that this daemon knows */
    bool fleet_serves;       /* candidates answer before they are confirmed (--fleet-trust) */
    bool fleet_known;        /* gemmd-fleet has been attached to the database since gemmd started */
    int64_t fleet_seq;       /* the fleet's rows up to this number are in the database */
    uint64_t hits, misses;
    uint64_t saved_ns; /* sum of cache_entry.saved_ns over all hits */
    /* answers that are no hits: of each lower tier (TIER_EXACT: of a finished tuning) */
    uint64_t answers[TIERS];
    /* some cache entries may have low confidence: remeasure.c looks for such entries */
    bool doubtful;
    bool has_candidates; /* the cache may have candidates to compile ahead (tuning/precompile.c) */
    bool tuning;         /* a job has the device (tuning/scheduler.c) */
    bool stopping;
    bool learned; /* the cache has a new or changed answer, which the portfolio lacks */
    /* Hook, called when the quarantine changed: the key (its id; "": unknown) may have gained or
     * lost its answer. */
    void (*quarantine_changed)(struct daemon *d, const char *key);
};

/* Sets scratch->bucket and scratch->key (without id) from scratch->request.problem, rounded as the
 * query says. */
int daemon_key(struct daemon *d, struct error *err);
/* Puts the entry's answer: a hit. */
static inline void daemon_put_hit(struct daemon *d, const struct cache_entry *e,
                                  struct wire_buf *out)
{
    d->hits++;
    d->saved_ns += e->saved_ns;
    cache_reply(e, out);
}
/* Counts an answer that is no hit, by its tier. */
void daemon_count_answer(struct daemon *d, const struct answer *a);
/* Adds an event to the ledger. */
void daemon_event(struct daemon *d, const char *kind, int64_t uid, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
