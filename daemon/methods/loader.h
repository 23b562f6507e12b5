/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loader reads the ledger's rows into the cache at the start, page by page, while the daemon
 * serves. The daemon waits LOADER_PATIENCE_MS for a small database before the first connection.
 *
 * Until all rows are loaded, every answer must rest on all that the ledger holds. A `get` of an
 * unloaded key is parked while the ledger looks up this key. When the ledger lacks the key, and for
 * methods that need the whole cache, the request is parked until loading ends, then begun anew.
 */
#ifndef GEMMD_DAEMON_METHODS_LOADER_H
#define GEMMD_DAEMON_METHODS_LOADER_H

#include <uv.h>

#include "daemon/base/list.h"
#include "daemon/methods/call.h"
#include "proto/problem.h"

enum { LOADER_PATIENCE_MS = 20 };

struct loader {
    struct daemon *daemon; /* borrowed */
    uv_timer_t patience;
    uint64_t began_ms;
    unsigned epoch;     /* results asked in an earlier epoch are dropped */
    bool restart;       /* begin again with the first page */
    struct list parked; /* requests that wait until loading ends */
    bool done;
    bool is_ready; /* `ready` was called */
    void (*ready)(struct loader *l);
    void (*failed)(struct loader *l, const struct error *err);
};

void loader_init(struct loader *l, struct daemon *d);
/* Begins loading. `ready` is called once, when all rows are loaded or the patience is over. Or
 * `failed` is called when the ledger cannot be read at all. After `ready`, a failing ledger ends
 * loading with a warning, and the rows in the cache are served. */
void loader_start(struct loader *l, void (*ready)(struct loader *l),
                  void (*failed)(struct loader *l, const struct error *err));
/* A key was evicted, maybe by another daemon: loading restarts, as pages may hold old rows. */
void loader_evicted(struct loader *l);
/* Closes the timer and frees the parked requests, after the sessions' end. */
void loader_close(struct loader *l);

/* Parks the request until `key` (may be NULL) is looked up, or until loading ends, then begins the
 * request anew. Returns METHOD_LATER, ERROR_NO_MEMORY or ERROR_BUSY. */
int loader_park(struct loader *l, struct call *c, struct key *key, struct error *err);

#endif
