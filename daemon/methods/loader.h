/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loader: brings what the ledger knows into the cache at the start, a page at a time, while the
 * daemon already serves. A small database is there before the first connection; a large one is
 * waited for only LOADER_PATIENCE_MS.
 *
 * Until all is loaded, no request is answered by less than what the ledger holds. A `get` whose key
 * is not in the cache yet is parked while the ledger is asked for that one key; when it is not
 * there either, and for all other methods that look at the whole cache, the request is parked until
 * the end of loading and then begun anew.
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
    unsigned epoch;     /* what the ledger was asked in an earlier one is not learned */
    bool restart;       /* the next page is the first one again */
    struct list parked; /* those that wait for the end */
    bool done;
    bool is_ready; /* `ready` was called */
    void (*ready)(struct loader *l);
    void (*failed)(struct loader *l, const struct error *err);
};

void loader_init(struct loader *l, struct daemon *d);
/* Begins. Then either `ready` comes, once, when all is loaded or patience is over, or `failed`,
 * when the ledger cannot be read at all. After `ready` a ledger that fails ends the loading with a
 * warning: what is in the cache is served. */
void loader_start(struct loader *l, void (*ready)(struct loader *l),
                  void (*failed)(struct loader *l, const struct error *err));
/* A key was evicted meanwhile, maybe by another daemon: what was read before may hold it still. */
void loader_evicted(struct loader *l);
void loader_close(struct loader *l); /* the timer; when the daemon ends */

/* METHOD_LATER: the request will be begun anew, when `key` (may be NULL) was asked for, or at the
 * end of loading. ERROR_NO_MEMORY, ERROR_BUSY. */
int loader_park(struct loader *l, struct call *c, struct key *key, struct error *err);

#endif
