/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases let a client work out an answer for the user's own kernel ("custom:" ops), which gemmd
 * cannot measure. A connection holds a key exclusively. Other clients that ask for the key wait, or
 * go on with the results so far. A lease ends by the holder's `put` or `release`, by the end of the
 * connection, or when the holder sends neither `record` nor `acquire` within the lease's length.
 * Then the next client in line gets the lease, unless the answer is known by now. A waiting client
 * that named no configs gets the answer as soon as the key, or the key of all users for the same
 * problem (the shared key), gets an answer in another way (a `put` without the lease, `promote`,
 * `import`, another daemon). The holder goes on.
 *
 *   ASKING (the ledger: another daemon may have the key)
 *          -> CHECKING (known results) -> HELD by a session -> CHECKING for the next client
 *          -> ... -> freed
 *   ASKING -> TAKEN (another daemon has the key: asks again when freed, or after a while)
 *
 * The leases give turns in slices of the loop, so that thousands of waiting clients delay no other
 * client. Towards other daemons the daemon itself holds the key in the ledger, and renews the lease
 * there.
 */
#ifndef GEMMD_DAEMON_METHODS_LEASES_H
#define GEMMD_DAEMON_METHODS_LEASES_H

#include <uv.h>

#include "daemon/base/list.h"
#include "daemon/methods/pending.h"

enum {
    LEASE_MS_USUAL = 60 * 1000,
    LEASE_MS_MAX = 3600 * 1000,
    LEASE_RENEW_MS = 5 * 1000,
    /* time between questions to the ledger while another daemon has the key */
    LEASE_RETRY_MS = 500,
    LEASE_SLOTS = 1024,
    /* turns of wanters in a slice of the loop: some tenths of a ms when each turn is a hit */
    LEASE_TURNS = 32,
    /* turns that may be open at once: each reads trials, and thousands would fill the ledger's
     * queue */
    LEASES_TURNING = 16,
    LEASE_TICK_MS = 20, /* period of the timer */
};

struct lease;

/* A client that wants to work at a key. The code that made the wanter answers `pending`. */
struct wanter {
    struct pending pending; /* first member: its address is the struct's */
    struct list link;       /* node in lease->wanters */
    struct lease *lease;    /* the lease that the wanter waits for, or NULL */
    char key[HASH_HEX];
    char shared[HASH_HEX]; /* key of the same problem for all users; "" when `key` is that */
    int64_t lease_ms;
    uint64_t deadline_ms; /* loop time; 0: no deadline */
    bool now;             /* the client does not wait while the key is held */
    /* Called when it is the wanter's turn: the daemon has the key, and w has left lease.wanters.
     * The callee calls lease_hold or lease_pass, now or later. `l` NULL: the session holds the key
     * already, or is_known(w) is true; neither is called. */
    void (*turn)(struct wanter *w, struct lease *l);
    bool (*is_known)(const struct wanter *w); /* true when w can be answered without a lease */
    /* Called when the deadline has passed, or w does not wait: the client `uid`, `pid` (0: unknown)
     * holds the key. With `e`: w fails with this error. w has left lease.wanters, and the callee
     * owns w. */
    void (*other)(struct wanter *w, int64_t uid, int64_t pid, const struct error *e);
};

struct leases {
    struct daemon *daemon;                 /* borrowed */
    struct list all;                       /* all leases */
    struct list slots[LEASE_SLOTS];        /* leases by key */
    struct list shared_slots[LEASE_SLOTS]; /* leases by shared key */
    unsigned n;
    uint64_t waits;     /* requests that found a lease of another client */
    struct list passed; /* leases to give to their next wanter */
    struct chore turns; /* gives turns and answers while `passed` or `answered` has leases */
    unsigned n_turning;
    struct list answered; /* leases with wanters to answer, since the key has an answer */
    uv_timer_t timer;     /* runs while leases exist */
    bool stopping;
};

void leases_init(struct leases *l, struct daemon *d);
/* Fails all wanters, releases all leases, closes the timer. */
void leases_stop(struct leases *l);

/* Queues w for w->key. After an error none of w's functions is called. If w's session holds the
 * key, this renews the lease and calls w->turn at once. */
int leases_want(struct leases *l, struct wanter *w, struct error *err);
/* Removes w after its client disconnected. */
void leases_drop(struct wanter *w);
/* Returns the lease that this session holds on the key, or NULL. */
struct lease *leases_of(struct leases *l, const struct session *s, const char *key);
/* Called when another daemon has released this key ("": some key). */
void leases_freed(struct leases *l, const char *key);
/* Called when the key has an answer: soon answers wanters of the key, and wanters with this shared
 * key. */
void leases_known(struct leases *l, const char *key);

/* Ends a turn: the session of `w` holds the lease from now on. ERROR_BUSY: its user holds too many
 * leases; then the next wanter gets a turn. */
int lease_hold(struct lease *l, struct wanter *w, struct error *err);
/* Ends a turn without a holder. The next wanter gets a turn soon, after this returns. */
void lease_pass(struct lease *l);
void lease_renew(struct lease *l); /* the holder sent `record` */
/* The session sent `acquire`: renews its lease of the key for w->lease_ms. False when it holds
 * none. */
bool leases_renew(struct leases *l, const struct wanter *w);
/* the holder is done with the key; the next wanter gets a turn, as in lease_pass */
void lease_end(struct lease *l);

#endif
