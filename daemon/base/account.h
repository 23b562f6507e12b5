/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accounts: the resources of this daemon that each user holds. The limits keep a user from using up
 * the resources of other users.
 *
 * Every connection, every tuning and every waiting byte is charged to the peer's user
 * (SO_PEERCRED), and given back when it ends. The limits are per user and below the daemon's own,
 * so a second user always finds room.
 *
 * The charges, each with its limit:
 *
 * - connections, jobs, leases, subscriptions: at the limit one more is refused with ERROR_BUSY, and
 * the client may retry.
 *
 * - waiting: `acquire` requests that wait for a lease, and the bytes of the configs that they
 * choose among (the limit of `in`). At the limit another `acquire` is refused. If gemmd left the
 * `acquire` unread instead, it would not read the message behind it either, which may end the lease
 * that the user's clients wait for.
 *
 * - in: bytes of requests that are not handled yet. Above the limit gemmd reads from no connection
 * of the user. It goes on handling complete messages, and incomplete messages reach their deadline,
 * so the bytes fall below the limit again.
 *
 * - out: bytes of answers that the client has not taken. Above the limit gemmd reads from no
 * connection of the user and handles no request. A client that takes nothing is disconnected at its
 * deadline.
 *
 * - asked: requests that wait for the ledger, which answers in order; heavy requests count as
 * several. Above the limit gemmd handles no request of the user.
 *
 * - kept: bytes that `put` and `record` add to the database. In any KEPT_PERIOD_MS the user may add
 * about as many bytes as the limit of `in`; then further rows are refused with ERROR_BUSY.
 *
 * Time on the loop: each user may use TURN_NS per tick of the loop's clock; then the user's
 * connections wait for the next tick. A tick is a millisecond; the loop reads the clock once in
 * each round. The user is charged after each message, and no message takes much longer than
 * TURN_NS: longer work is cut into slices (turns.h). A user with a thousand connections delays
 * another user no longer than a user with ten. For a user without other users the limit only means
 * that the loop looks at the sockets more often.
 *
 * `over` becomes true above the limit and false only at half the limit, so that it does not change
 * with each message of a user at the limit.
 *
 * An account lives while something is charged to it: account_of counts a holder, account_drop
 * removes one. An account with kept bytes lives on without holders, since otherwise the user's next
 * connection would begin with zero kept bytes. Accounts are a list, since a host has few users.
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
    size_t most[ACCOUNT_SIDES]; /* most bytes of input; bytes of output; requests at the ledger */
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
    /* loop time from which the bytes that the user added to the database (kept) no longer count; 0:
     * none were added */
    double kept_until_ms;
    unsigned round; /* round of the user's next job while the queue is walked (tuning/rounds.c) */
    uint64_t tick_ms, spent_ns; /* last tick in which the user had time; time used in it */
    uint64_t served;            /* turns.slices at the user's last slice of a chore */
};

void accounts_init(struct accounts *a, const struct account_limits *limits);
void accounts_deinit(struct accounts *a); /* no account may have a holder */
/* Returns the user's account with one more holder; makes the account if needed. NULL: no memory. */
struct account *account_of(struct accounts *a, uid_t uid);
struct account *account_hold(struct account *a); /* adds a holder */
struct account *account_drop(struct account *a); /* removes a holder; accepts NULL, returns NULL */

/* Each charges the user for one more. ERROR_BUSY: the user is at the limit; nothing is charged. */
int account_add_connection(struct account *a, struct error *err);
int account_add_job(struct account *a, struct error *err);
int account_add_lease(struct account *a, struct error *err);
int account_add_subscription(struct account *a, struct error *err);
int account_add_waiting(struct account *a, size_t bytes, struct error *err);
void account_end_waiting(struct account *a, size_t bytes);
/* Changes a charge of `*charged` bytes or requests to `now`, and sets *charged. Returns true when
 * `over` of that side changed. */
bool account_charge(struct account *a, enum account_side side, size_t *charged, size_t now);

/* Charges `rows` new rows of the database and the `bytes` of their message. ERROR_BUSY: above the
 * user's rate; nothing is charged. */
int account_keep(struct account *a, size_t bytes, size_t rows, uint64_t now_ms, struct error *err);

/* true when the user's time of this tick is used up */
bool account_spent(const struct account *a, uint64_t now_ms);
void account_spend(struct account *a, uint64_t now_ms, uint64_t ns);

#endif
