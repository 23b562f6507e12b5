/* SPDX-License-Identifier: Apache-2.0 */
/* The base of all parts of the daemon: the device, the database, their state in memory, and the
 * loop. It knows no part (methods/daemon_parts.h has them). Loop thread only. */
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

/* Objects that are too big for the stack and too frequent for malloc. A user of an object finishes
 * before it calls any other part of the daemon, except where noted. */
struct scratch {
    struct request request; /* the current request; methods/dispatch.c cleans it */
    struct problem bucket;  /* the request's bucket */
    struct key key;         /* the bucket's key */
    struct problem other;   /* tiers: the neighbour's bucket */
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
    const struct config *config; /* borrowed: settled (life.h) */
    struct device_info device;
    enum bucket_scheme scheme;
    /* the stamp of grouped_gemm's first target here; "": the device has no target */
    char stamp[STAMP_MAX];
    struct {
        const struct family_target *target;
        char text[STAMP_MAX];
    } stamps[STAMPS_MAX]; /* the stamps that target_stamp keeps; a NULL target marks a free place */
    const char *database, *cache_dir; /* borrowed: of `config` */
    struct turns turns;
    struct cache cache;
    /* Bests of other, alike classes (device_class_alike), by the keys of their problems in our
     * class: searches try them first, and no client gets them. */
    struct cache alike;
    struct tried tried; /* keys with recorded trials and no answer */
    struct quarantine_set quarantine_set;
    /* quarantine.c: rows are being read; the rows must be read once more after that */
    bool quarantine_reads, quarantine_again;
    struct defaults defaults;
    struct ledger *ledger;   /* owned; NULL before its start and after its end */
    struct scratch *scratch; /* owned */
    struct wire_doc *doc;    /* owned: the current request */
    int64_t generation;      /* the newest that this daemon has seen */
    uint64_t hits, misses;
    bool doubtful; /* some cache entries may have low confidence: remeasure.c looks for them */
    bool tuning;   /* a job has the device (tuning/scheduler.c) */
    bool stopping;
    bool learned; /* the cache has a new or changed answer, which the portfolio lacks */
    /* The quarantine changed: this key (its id; "": unknown) may have gained or lost its answer. */
    void (*quarantine_changed)(struct daemon *d, const char *key);
};

/* Sets scratch->bucket and scratch->key (without id) from scratch->request.problem, rounded as the
 * query says. */
int daemon_key(struct daemon *d, struct error *err);
/* Adds an event to the ledger. */
void daemon_event(struct daemon *d, const char *kind, int64_t uid, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
