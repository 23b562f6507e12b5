/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's ground, on which all its parts stand: the device, the database, what is known of
 * both, and the loop. It knows none of the parts (methods/daemon_parts.h has them). Everything here
 * lives on the loop thread.
 */
#ifndef GEMMD_DAEMON_DAEMON_H
#define GEMMD_DAEMON_DAEMON_H

#include <uv.h>

#include "daemon/base/config.h"
#include "daemon/base/poller.h"
#include "daemon/base/turns.h"
#include "daemon/cache/quarantine_set.h"
#include "daemon/cache/cache.h"
#include "daemon/cache/defaults.h"
#include "daemon/cache/tried.h"
#include "daemon/ledger/ledger.h"
#include "kernels/family.h"
#include "proto/request.h"

/* What is too big for the stack and too frequent for malloc. Whoever uses one uses it up before
 * anything else of the daemon is called, unless said otherwise. */
struct scratch {
    struct request request; /* of the request being handled; methods/dispatch.c cleans it */
    struct problem bucket;  /* its bucket */
    struct key key;         /* the bucket's */
    struct problem other;   /* tiers: the neighbour's */
    struct answer answer;
    struct answer hint;     /* tiers */
    struct record standard; /* tiers: the analytic default */
    struct record config;
    struct best best;
    struct trial trial;
    struct problem learned; /* learn.h */
    struct key learned_key;
};

enum { STAMPS_MAX = 8 };

struct daemon {
    uv_loop_t loop;
    struct poller poller;
    const struct config *config; /* borrowed */
    struct device_info device;
    enum bucket_scheme scheme;
    char stamp[STAMP_MAX]; /* of grouped_gemm's first target here; "" when it has none */
    struct {
        const struct family_target *target;
        char text[STAMP_MAX];
    } stamps[STAMPS_MAX]; /* of target_stamp; a NULL target: free */
    char device_spec[PATHS_MAX];
    char database[PATHS_MAX], cache_dir[PATHS_MAX], runner[PATHS_MAX];
    struct turns turns;
    struct cache cache;
    /* Bests of other classes that are alike (device_class_alike), by the keys that their problems
     * have in ours: searches try them first, and they answer nobody. */
    struct cache alike;
    struct tried tried; /* keys that users have made known without an answer */
    struct quarantine_set quarantine_set;
    bool quarantine_reads, quarantine_again; /* quarantine.c: the rows are being read; once more */
    struct defaults defaults;
    struct ledger *ledger;   /* owned; NULL before its start and after its end */
    struct scratch *scratch; /* owned */
    struct wire_doc *doc;    /* owned: the request being handled */
    int64_t generation;      /* the newest seen */
    uint64_t hits, misses;
    bool doubtful; /* entries may be `low`: remeasure.c (daemon/) looks for them */
    bool tuning;   /* a job has the device (tuning/scheduler.h) */
    bool stopping;
    void (*learned)(struct daemon *d); /* the cache has a new or another answer */
    /* What is in quarantine is another list now: a key (its id; "": not known) may have gained or
     * lost its answer by that. */
    void (*quarantine_changed)(struct daemon *d, const char *key);
};

/* scratch->bucket and key (without id) of scratch->request.problem, rounded as its query says. */
int daemon_key(struct daemon *d, struct error *err);
/* An event for the ledger. */
void daemon_event(struct daemon *d, const char *kind, int64_t uid, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
