/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One query for a problem, shared by `get`, `tune` and `get_many`. The request is in the scratch
 * (daemon.h). The pinned generation, the key's own row or a lower tier answers.
 */
#ifndef GEMMD_DAEMON_METHODS_ASK_H
#define GEMMD_DAEMON_METHODS_ASK_H

#include "daemon/methods/daemon_parts.h"

struct ask {
    struct daemon_parts *parts; /* borrowed */
    struct account *account;    /* borrowed: charged when a job is queued */
    int64_t uid;                /* the caller */
    int64_t pinned;             /* the pinned generation; -1 when not pinned */
    const uint8_t *bytes;       /* borrowed: the query's bytes, for the memo; or NULL */
    size_t n;
    struct wire_buf *out; /* borrowed: receives the answer */
};

enum ask_outcome {
    ASK_ANSWERED, /* with any other outcome `out` may hold a part of an answer */
    ASK_WAITS,    /* the query waits for a tuning */
    ASK_LOADS,    /* the query waits until the rows are loaded */
    ASK_READS, /* the ledger must read the key's rows of the pinned generation (generations_park) */
};

/* Looks up the key of scratch->request. *entry: the key's cache entry, or NULL. Returns an
 * ask_outcome, or an error code; after an error the query does not wait. */
int ask_answer(const struct ask *a, struct cache_entry **entry, struct error *err);

#endif
