/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accounts: what each user holds of this daemon, so that one cannot take it from the others.
 *
 * Every connection, every tuning and every byte that waits is charged to the user whom the kernel
 * names as the peer (SO_PEERCRED), and given back when it ends. The limits are per user and below
 * the daemon's own, so there is room for somebody else at any time.
 *
 *   connections, jobs, leases, subscriptions   one more than the limit is refused: `busy`, retry
 *   waiting             acquires that wait for a lease, and the bytes of what they choose among (no
 *                       more than of requests): one more is refused, too, since to read nothing of
 *                       a user who has too many would keep the holder from ending the wait
 *   in                  bytes of requests not handled yet. Above the limit no connection of the
 *                       user is read from; messages that are whole are handled, others run into
 *                       their deadline, so it ends by itself
 *   out                 bytes of answers not taken yet. Above the limit no connection of the user
 *                       is read from and no request handled; who takes nothing is hung up on by the
 *                       deadline for that, so this ends by itself, too
 *   asked               requests that wait for the ledger, which answers one after the other; some
 *                       are as heavy as several. Above the limit no request of the user is handled
 *   kept                bytes that `put` and `record` add to the database: as many at once as may
 *                       wait unread, and as many again in each KEPT_PERIOD_MS. More are refused:
 *                       `busy`
 *
 * And time on the loop: each user may use TURN_NS of it per tick of the loop's clock, which goes on
 * between two rounds of the loop; then its connections wait for the next one. The user is charged
 * after each message, and no message takes much longer than TURN_NS: longer work is done in slices
 * (turns.h). So a user of a thousand connections keeps another one waiting no longer than a user of
 * ten, and one that is alone only looks around more often.
 *
 * `over` has hysteresis: it ends at half the limit, so that a user at the limit costs little.
 *
 * An account lives while something is charged to it: account_of counts a holder, account_drop lets
 * go. One that has kept bytes lives on, or a new connection would begin with none. There are few
 * users on a host: accounts are a list.
 */
#ifndef GEMMD_DAEMON_BASE_ACCOUNT_H
#define GEMMD_DAEMON_BASE_ACCOUNT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/base/list.h"
#include "proto/error.h"

enum { TURN_NS = 1000000, KEPT_PERIOD_MS = 3600000, KEPT_ROW_BYTES = 512 };

enum account_side { ACCOUNT_IN, ACCOUNT_OUT, ACCOUNT_ASKED, ACCOUNT_SIDES };

struct account_limits {
    unsigned connections, jobs, leases, subscriptions, waiting;
    size_t most[ACCOUNT_SIDES]; /* bytes, bytes, requests */
};

struct accounts {
    struct list all;
    struct account_limits limits;
};

struct account {
    struct list link;
    const struct accounts *all; /* borrowed */
    uid_t uid;
    unsigned holders;
    unsigned connections, jobs, leases, subscriptions, waiting;
    size_t waiting_bytes;
    size_t held[ACCOUNT_SIDES];
    bool over[ACCOUNT_SIDES];
    double kept_until_ms;       /* when all kept bytes are paid for, at the rate of kept; 0: none */
    unsigned round;             /* while places in the queue are looked for (tuning/rounds.c) */
    uint64_t tick_ms, spent_ns; /* time used since that tick */
    uint64_t served;            /* which slice of all chores was the user's last (turns.h) */
};

void accounts_init(struct accounts *a, const struct account_limits *limits);
void accounts_deinit(struct accounts *a); /* nobody may hold one any more */
/* The user's account, made when there is none, with one holder more. NULL: no memory. */
struct account *account_of(struct accounts *a, uid_t uid);
struct account *account_hold(struct account *a); /* one holder more */
struct account *account_drop(struct account *a); /* one less; takes NULL and returns NULL */

/* One more of them. ERROR_BUSY: the user has its share already; nothing is charged. */
int account_add_connection(struct account *a, struct error *err);
int account_add_job(struct account *a, struct error *err);
int account_add_lease(struct account *a, struct error *err);
int account_add_subscription(struct account *a, struct error *err);
int account_add_waiting(struct account *a, size_t bytes, struct error *err);
void account_end_waiting(struct account *a, size_t bytes);
/* `*charged` bytes or requests become `now`. True: `over` of that side has changed. */
bool account_charge(struct account *a, enum account_side side, size_t *charged, size_t now);

/* A message of so many bytes adds rows to the database. ERROR_BUSY: more than the user may add now;
 * nothing is charged. */
int account_keep(struct account *a, size_t bytes, size_t rows, uint64_t now_ms, struct error *err);

bool account_spent(const struct account *a, uint64_t now_ms); /* no more in this tick */
void account_spend(struct account *a, uint64_t now_ms, uint64_t ns);

#endif
