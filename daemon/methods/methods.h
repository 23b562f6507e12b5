/* SPDX-License-Identifier: Apache-2.0 */
/* The table of all methods and their files. dispatch.c calls the methods. */
#ifndef GEMMD_DAEMON_METHODS_METHODS_H
#define GEMMD_DAEMON_METHODS_METHODS_H

#include "daemon/ledger/ledger.h"
#include "daemon/methods/call.h"
#include "daemon/session/session.h"

typedef int method(struct call *c, struct error *err);

/* X(name, owner, early, params). `owner`: true for a method that only root and the daemon's own
 * user may call. `early`: true for a method that may run before all rows are loaded. `params`: the
 * names that the method allows; NULL: the method itself checks its params. Frequent methods come
 * first: the lookup is linear. */
#define METHODS(X)                                                                                 \
    X(get, false, true, NULL)                                      /* get.c */                     \
    X(get_many, false, false, NAMES("problems", "target", "wait")) /* get_many.c */                \
    X(tune, false, true, NULL)                                     /* get.c */                     \
    X(hello, false, true, NAMES("version", "client", "generation", "job", "fleet")) /* status.c */ \
    X(status, false, true, NO_NAMES)                                                /* status.c */ \
    X(metrics, false, true, NAMES("openmetrics"))                           /* metrics.c */        \
    X(module, false, true, NAMES("id", "offset", "key"))                    /* kernels.c */        \
    X(cancel, false, true, NAMES("request", "key", "problem"))              /* get.c */            \
    X(list, false, true, NAMES("what", "filter"))                           /* list.c */           \
    X(show, false, false, NAMES("key", "problem"))                          /* list.c */           \
    X(why, false, false, NAMES("problem", "key", "target", "atol", "rtol")) /* why.c */            \
    X(put, false, false, NAMES("problem", "config", "time_us"))             /* put.c */            \
    X(acquire, false, false,                                                                       \
      NAMES("problem", "configs", "deadline_ms", "lease_ms", "wait"))      /* acquire.c */         \
    X(record, false, false, NAMES("problem", "trials"))                    /* record.c */          \
    X(release, false, false, NAMES("problem"))                             /* record.c */          \
    X(check, false, true, NAMES("problem", "config", "target", "predict")) /* kernels.c */         \
    X(space, false, true, NULL)                                            /* space.c */           \
    X(pin, true, false,                                                                            \
      NAMES("problem", "config", "atol", "rtol", "deadline_ms", "iters", "progress", "seed",       \
            "target", "warmup"))                             /* admin.c */                         \
    X(unpin, true, false, NAMES("key", "problem"))           /* admin.c */                         \
    X(evict, false, false, NAMES("key", "problem"))          /* admin.c */                         \
    X(unquarantine, true, false, NAMES("variant"))           /* admin.c */                         \
    X(import, true, false, NAMES("rows", "trust", "bundle")) /* put.c */                           \
    X(promote, true, false, NAMES("key", "problem"))         /* promote.c */                       \
    X(pause, false, true, NAMES("ms"))                       /* pause.c */                         \
    X(subscribe, false, true, NAMES("on"))                   /* announce.c */                      \
    X(backup, true, true, NAMES("path"))                     /* admin.c */                         \
    X(shutdown, true, true, NO_NAMES)                        /* admin.c */

#define NAMES(...)                                 ((const char *const[]){__VA_ARGS__, NULL})
#define NO_NAMES                                   ((const char *const[]){NULL})

#define METHOD_DECLARE(name, owner, early, params) method method_##name;
METHODS(METHOD_DECLARE)
#undef METHOD_DECLARE

#define METHOD_NUMBER(name, owner, early, params) METHOD_AT_##name,
enum method_number { METHODS(METHOD_NUMBER) METHOD_COUNT };
#undef METHOD_NUMBER

/* Writes an import's trials of a custom op's key, except trials of configs that have a trial in
 * this database. `done` is called once, maybe before this returns, with the number of trials
 * written and an error if some failed. If this returns an error, `done` is not called. record.c */
int record_bring(struct daemon *d, const char *key, const struct wire_obj *trials,
                 void (*done)(void *ctx, int64_t kept, const struct error *err), void *ctx,
                 struct error *err);

/* Answers a get_many if each of its problems has the same bytes as an earlier query that the cache
 * answered; else false. `tail`: as call.tail. */
bool get_many_again(struct daemon *d, struct session *s, uint32_t id, const uint8_t *tail,
                    size_t n);

/* ---- status.c, metrics.c --------------------------------------------------------------------- */

int64_t status_rss_bytes(void); /* memory of this process; 0: not known */
/* Puts the counters as text: OpenMetrics, or the older text format of Prometheus, which
 * node_exporter and promtool read. `store` NULL: the ledger has not answered yet. `age_s`: age of
 * `store`. */
void metrics_put(const struct daemon_parts *p, const struct ledger_status *store, double age_s,
                 bool openmetrics, struct wire_buf *out);

/* ---- ask.c ----------------------------------------------------------------------------------- */

/*
 * One query for a problem, shared by `get`, `tune` and `get_many`. The request is in the scratch
 * (daemon.h). The pinned generation, the key's own row or a lower tier answers.
 */

struct ask {
    struct daemon_parts *parts; /* borrowed */
    struct account *account;    /* borrowed: charged when a job is queued */
    struct session *session;    /* borrowed; NULL after its end */
    int64_t uid;                /* the caller */
    int64_t pinned;             /* the pinned generation; -1 when not pinned */
    /* borrowed: the query's bytes, to remember a hit in the memo; NULL: do not */
    const uint8_t *bytes;
    size_t n;
    struct wire_buf *out; /* borrowed: receives the answer */
};

enum ask_outcome {
    ASK_ANSWERED, /* `out` has the answer; with another outcome perhaps a part of one */
    ASK_WAITS,    /* the query waits for a tuning */
    ASK_LOADS,    /* the query waits until the rows are loaded */
    ASK_READS,    /* the ledger must read the rows of scratch->key (with its id) for the pin */
};

/* Looks up the key of scratch->request. *entry: the key's cache entry, or NULL. Returns an
 * ask_outcome, or an error code; after an error the query does not wait. */
int ask_answer(const struct ask *a, struct cache_entry **entry, struct error *err);
/* Parks the request until the rows of these keys (ASK_READS) are read for scratch->request.query,
 * then begins it anew. Returns METHOD_LATER, ERROR_NO_MEMORY or ERROR_BUSY. */
int ask_park_unread(struct call *c, char (*keys)[HASH_HEX], size_t n, struct error *err);

/* ---- served.c -------------------------------------------------------------------------------- */

/* Sends all counts of answers to jobs to the database. */
void served_send(struct daemon_parts *p);
/* Called about once a second: sends the counts after --jobs-s, or within a minute when many jobs
 * have counts. */
void served_tick(struct daemon_parts *p);

/* ---- dispatch.c ------------------------------------------------------------------------------ */

/* These two are hooks of sessions (session/session.h); ctx: the daemon's parts. */

/* Answers a message with the same bytes as an earlier hit, without scanning it. False: nothing is
 * done, since the bytes are new or not a whole message. */
bool dispatch_known(void *ctx, struct session *s, const uint8_t *data, size_t n);
/* Handles a whole message, without writing to the socket. `again`: the message was parked before.
 */
void dispatch_message(void *ctx, struct session *s, const uint8_t *data, size_t n, bool again);

#endif
