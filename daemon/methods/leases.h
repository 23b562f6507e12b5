/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases: who works out an answer that gemmd cannot work out itself, since the kernel is the user's
 * own ("custom:" ops). One connection at a time holds a key; others who ask for it wait, or go on
 * with what is known. A lease ends by the holder's `put`, by `release`, with his connection, or
 * when he neither records nor asks again for its length; then the next in line gets it, unless the
 * answer is there by now. Who waits for no more than an answer has it as soon as the key, or the
 * one that answers all, is known by another way (a `put` without the lease, `promote`, `import`,
 * another daemon); the holder goes on.
 *
 *   ASKING (the ledger, since another daemon may have the key)
 *          -> CHECKING (what is known meanwhile) -> HELD by a session -> CHECKING for the next one
 *          -> ... -> gone
 *   ASKING -> TAKEN (another daemon has it: asked again when it is freed, or after a while)
 *
 * Turns are given in slices of the loop, some at a time: a key that thousands wait for goes from
 * one to the next without anybody else waiting for all of them.
 *
 * Towards other daemons the daemon itself holds the key in the ledger, and renews it there.
 */
#ifndef GEMMD_DAEMON_METHODS_LEASES_H
#define GEMMD_DAEMON_METHODS_LEASES_H

#include <uv.h>

#include "daemon/base/list.h"
#include "daemon/session/session.h"
#include "proto/hash.h"

enum {
    LEASE_MS_USUAL = 60 * 1000,
    LEASE_MS_MAX = 3600 * 1000,
    LEASE_RENEW_MS = 5 * 1000,
    LEASE_RETRY_MS = 500, /* while another daemon has the key */
    LEASE_SLOTS = 1024,
    LEASE_TURNS = 32,    /* in a slice: some tenths of a millisecond when all of them hit */
    LEASES_TURNING = 16, /* whose turns are not over yet: thousands would fill the ledger */
    LEASE_TICK_MS = 20,  /* while there are leases, all are looked at so often */
};

struct daemon;
struct lease;

/* Somebody who wants a key. `ticket` is answered by whoever made this. */
struct wanter {
    struct ticket ticket; /* first */
    struct daemon *d;     /* borrowed */
    struct list link;     /* lease->wanters */
    struct lease *lease;  /* whose turn-taking it is in; NULL: none */
    char key[HASH_HEX];
    char shared[HASH_HEX]; /* the key that answers all; "": that is `key` */
    int64_t uid, pid;
    int64_t lease_ms;
    uint64_t deadline_ms; /* loop time; 0: waits as long as it takes */
    bool now;             /* does not wait at all */
    /* It is its turn: the daemon has the key. Says by lease_hold or lease_pass what follows, at
     * once or later; it is out of `wanters` by then. `l` NULL: its session holds the key
     * already, or what is known answers it. */
    void (*turn)(struct wanter *w, struct lease *l);
    bool (*is_known)(const struct wanter *w); /* what is known by now answers it */
    /* Its time is over, or it did not want to wait: another one, of that uid and pid (0: not
     * known), holds the key. `e`: a fault instead. It is out of `wanters`, and owns itself. */
    void (*other)(struct wanter *w, int64_t uid, int64_t pid, const struct error *e);
};

struct leases {
    struct daemon *daemon;                 /* borrowed */
    struct list all;                       /* struct lease */
    struct list slots[LEASE_SLOTS];        /* the same by their keys */
    struct list shared_slots[LEASE_SLOTS]; /* by the keys that answer all */
    unsigned n;
    struct list passed; /* struct lease: the next in line has his turn soon */
    struct chore turns; /* while there are such */
    unsigned n_turning;
    struct list answered; /* struct lease: who in line has his answer is looked at soon */
    struct chore answers; /* while there are such */
    uv_timer_t timer;     /* while there are leases */
    bool stopping;
};

void leases_init(struct leases *l, struct daemon *d);
/* Fails all who wait, lets go of everything, closes the timer. */
void leases_stop(struct leases *l);

/* Gets in line for w->key. On a fault nothing comes. A session that holds the key renews it, and
 * has its turn at once. */
int leases_want(struct leases *l, struct wanter *w, struct error *err);
/* Out of line, when its client has gone. */
void leases_drop(struct wanter *w);
/* The lease that this session holds; NULL: none. */
struct lease *leases_of(struct leases *l, const struct session *s, const char *key);
/* A key ("": some) was let go of by whoever had it. */
void leases_freed(struct leases *l, const char *key);
/* A key has an answer now: those who wait for it, or for a lease of one that it answers for. */
void leases_known(struct leases *l, const char *key);

/* In a turn: the session of `w` holds it from now on. ERROR_BUSY: it waits for too much already, or
 * its user holds too much; then nobody does, and the next one has its turn. */
int lease_hold(struct lease *l, struct wanter *w, struct error *err);
/* In a turn: the key is not wanted, or not needed any more. The next one has his turn soon, not
 * before this returns. */
void lease_pass(struct lease *l);
void lease_renew(struct lease *l); /* the holder is at work */
void lease_end(struct lease *l);   /* the holder has done with it; the same holds */

#endif
