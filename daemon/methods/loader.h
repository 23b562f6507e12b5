/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loader reads the ledger's rows into the cache at the start, page by page, while the daemon
 * serves. Before the first connection the daemon waits for the end of loading, at most
 * LOADER_PATIENCE_MS.
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
    unsigned epoch;     /* +1 with each evict; drops rows that were asked for earlier */
    bool restart;       /* loading must begin again with the first page */
    struct list parked; /* requests that wait until loading ends */
    bool done;
    bool is_ready; /* `ready` was called */
    void (*ready)(struct loader *l);
    void (*failed)(struct loader *l, const struct error *err);
};

void loader_init(struct loader *l, struct daemon *d);
/* Begins loading. `ready` is called once, when all rows are loaded or after LOADER_PATIENCE_MS. If
 * the ledger fails before that, `failed` is called instead. After `ready`, a failing ledger ends
 * loading with a warning, and the rows in the cache are served. */
void loader_start(struct loader *l, void (*ready)(struct loader *l),
                  void (*failed)(struct loader *l, const struct error *err));
/* Called when this or another daemon has evicted a key: loading begins again, since pages on their
 * way may hold the key's rows. */
void loader_evicted(struct loader *l);
/* Closes the timer and frees the parked requests, after the sessions' end. */
void loader_close(struct loader *l);

/* Parks the request until `key` (may be NULL) is looked up, or until loading ends, then begins the
 * request anew. Returns METHOD_LATER, ERROR_NO_MEMORY or ERROR_BUSY. */
int loader_park(struct loader *l, struct call *c, struct key *key, struct error *err);

#endif
