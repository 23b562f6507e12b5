/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A question about a problem, as `get`, `tune` and `get_many` ask it: the request is in the scratch
 * (daemon.h), and the answer is the generation's, the key's own, or a lower tier's.
 */
#ifndef GEMMD_DAEMON_METHODS_ASK_H
#define GEMMD_DAEMON_METHODS_ASK_H

#include "daemon/methods/daemon_parts.h"

struct ask {
    struct daemon_parts *parts; /* borrowed */
    struct account *account;    /* borrowed: charged when a job is queued */
    int64_t uid;                /* who asks */
    int64_t pinned;             /* the generation; -1: none */
    const uint8_t *bytes;       /* borrowed: as it came, for the memo; NULL: it has no bytes */
    size_t n;
    struct wire_buf *out; /* borrowed: the answer goes here */
};

enum ask_outcome {
    ASK_ANSWERED, /* in all other cases `out` may hold a part of an answer */
    ASK_WAITS,    /* for a tuning */
    ASK_LOADS,    /* for what is not loaded yet */
    ASK_READS,    /* what the key answered in the generation has to be read (generations_park) */
};

/* The key is found for scratch->request as a whole; *entry: what is known of it, or NULL. Also
 * faults: then nobody waits. */
int ask_answer(const struct ask *a, struct cache_entry **entry, struct error *err);

#endif
