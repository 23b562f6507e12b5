/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon: its parts, held together. Everything here lives on the loop thread.
 *
 *   server, session   connections, messages            session.h, server.h
 *   methods           what can be asked                 methods.h
 *   cache             what is known, ready to be sent   cache.h
 *   memo              the same question again          memo.h
 *   tiers             the best answer short of exact    tiers.h
 *   scheduler, job    what is to be tuned, who waits    scheduler.h, job.h
 *   supervisor        the runner process                supervisor.h
 *   ledger            what is remembered                ledger.h
 */
#ifndef GEMMD_DAEMON_DAEMON_H
#define GEMMD_DAEMON_DAEMON_H

#include <uv.h>

#include "daemon/cache.h"
#include "daemon/config.h"
#include "daemon/defaults.h"
#include "daemon/ledger.h"
#include "daemon/memo.h"
#include "daemon/scheduler.h"
#include "daemon/server.h"
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

struct daemon {
    uv_loop_t loop;
    const struct config *config; /* borrowed */
    struct device_info device;
    enum bucket_scheme scheme;
    char stamp[STAMP_MAX];       /* of grouped_gemm here; "" when it has no kernels here */
    char device_spec[PATHS_MAX];
    char database[PATHS_MAX], cache_dir[PATHS_MAX], runner[PATHS_MAX];
    struct server server;
    struct cache cache;
    struct memo memo;
    struct defaults defaults;
    struct scheduler scheduler;
    struct supervisor supervisor;
    struct ledger *ledger;       /* owned; NULL before its start and after its end */
    struct scratch *scratch;     /* owned */
    struct wire_doc *doc;        /* owned: the request being handled */
    uv_signal_t signals[2];      /* SIGTERM, SIGINT */
    uv_timer_t chores;           /* idle exit, unsaved answers */
    uint64_t started_ms;
    int64_t generation;          /* the newest seen */
    uint64_t hits, misses;
    int exit_code;
    bool stopping;
};

/* Runs until told to stop. Returns an exit code. */
int daemon_run(const struct config *c);
/* Ends the work in order: no new connections, jobs cancelled, runner killed, ledger drained, socket
 * removed. Returns at once; may be called twice. */
void daemon_stop(struct daemon *d, const char *why);

/* The target that tunes this family here; NULL: none. */
const struct family_target *daemon_target(const struct daemon *d, const struct family *f);
/* scratch->bucket and key (without id) of scratch->request.problem. */
int daemon_key(struct daemon *d, struct error *err);
/* An event for the ledger. */
void daemon_event(struct daemon *d, const char *kind, int64_t uid, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* A best that the ledger has published, or had: into the cache when it is this class's. */
void daemon_learn(struct daemon *d, const struct best *b, bool saved);

#endif
