/* SPDX-License-Identifier: Apache-2.0 */
/* Accounts only count and compare with limits. The caller refuses a request or stops reading
 * (account.h). */
#include <stdlib.h>

#include "daemon/base/account.h"

void accounts_init(struct accounts *a, const struct account_limits *limits)
{
    list_init(&a->all);
    a->limits = *limits;
}

void accounts_deinit(struct accounts *a)
{
    LIST_EACH(struct account, x, &a->all, link) {
        list_remove(&x->link);
        free(x);
    }
}

struct account *account_of(struct accounts *a, uid_t uid)
{
    LIST_EACH(struct account, known, &a->all, link) {
        if (known->uid == uid) {
            return account_hold(known);
        }
    }
    struct account *new = calloc(1, sizeof(*new));
    if (new) {
        new->all = a;
        new->uid = uid;
        new->holders = 1;
        list_append(&a->all, &new->link);
    }
    return new;
}

struct account *account_hold(struct account *a)
{
    a->holders++;
    return a;
}

struct account *account_drop(struct account *a)
{
    if (a && --a->holders == 0 && a->kept_until_ms == 0) {
        list_remove(&a->link);
        free(a);
    }
    return NULL;
}

/* Adds 1 to *count unless it is `most`. `what`: text for the error message that names the counted
 * things and says how to get below the limit. */
static int account_add_one(const struct account *a, unsigned *count, unsigned most,
                           const char *what, struct error *err)
{
    if (*count >= most) {
        return error_set(err, ERROR_BUSY, "user %u has %u %s", (unsigned)a->uid, *count, what);
    }
    ++*count;
    return 0;
}

int account_add_connection(struct account *a, struct error *err)
{
    return account_add_one(a, &a->connections, a->all->limits.connections,
                           "connections already, its share (--user-connections); close some, or "
                           "retry later",
                           err);
}

int account_add_job(struct account *a, struct error *err)
{
    return account_add_one(a, &a->jobs, a->all->limits.jobs,
                           "tunings queued already, its share (--user-jobs); retry later", err);
}

int account_add_lease(struct account *a, struct error *err)
{
    return account_add_one(a, &a->leases, a->all->limits.leases,
                           "leased keys of custom ops already, as many as may be; put or release "
                           "some, or retry later",
                           err);
}

int account_add_subscription(struct account *a, struct error *err)
{
    return account_add_one(a, &a->subscriptions, a->all->limits.subscriptions,
                           "connections that are told of improvements already, as many as may be; "
                           "let one of them tell the others",
                           err);
}

int account_add_waiting(struct account *a, size_t bytes, struct error *err)
{
    size_t most = a->all->limits.most[ACCOUNT_IN];
    if (bytes > most || a->waiting_bytes > most - bytes) {
        return error_set(
            err, ERROR_BUSY,
            "the configs of user %u's %u acquires that wait take %zu KiB already, its share "
            "(--user-mib); name fewer, or retry when some are answered",
            (unsigned)a->uid, a->waiting, a->waiting_bytes >> 10);
    }
    int status = account_add_one(a, &a->waiting, a->all->limits.waiting,
                                 "acquires that wait for leases already, as many as may be; retry "
                                 "when some are answered, or give them a deadline_ms",
                                 err);
    a->waiting_bytes += status == 0 ? bytes : 0;
    return status;
}

void account_end_waiting(struct account *a, size_t bytes)
{
    a->waiting--;
    a->waiting_bytes -= bytes;
}

bool account_charge(struct account *a, enum account_side side, size_t *charged, size_t now)
{
    size_t *held = &a->held[side];
    size_t most = a->all->limits.most[side];
    bool before = a->over[side];
    *held = *held - *charged + now;
    *charged = now;
    a->over[side] = *held > (before ? most / 2 : most);
    return a->over[side] != before;
}

int account_keep(struct account *a, size_t bytes, size_t rows, uint64_t now_ms, struct error *err)
{
    double most = (double)a->all->limits.most[ACCOUNT_IN], now = (double)now_ms;
    double from = a->kept_until_ms > now ? a->kept_until_ms : now;
    double until = from + (double)(bytes + rows * KEPT_ROW_BYTES) / most * KEPT_PERIOD_MS;
    if (until - now > KEPT_PERIOD_MS) {
        return error_set(err, ERROR_BUSY,
                         "user %u has put and recorded %zu KiB within an hour, the user's share "
                         "(--user-mib); retry later, or have gemmd's own user do it",
                         (unsigned)a->uid, (size_t)((from - now) / KEPT_PERIOD_MS * most) >> 10);
    }
    a->kept_until_ms = until;
    return 0;
}

bool account_spent(const struct account *a, uint64_t now_ms)
{
    return a->tick_ms == now_ms && a->spent_ns >= TURN_NS;
}

void account_spend(struct account *a, uint64_t now_ms, uint64_t ns)
{
    a->spent_ns = a->tick_ms == now_ms ? a->spent_ns + ns : ns;
    a->tick_ms = now_ms;
}
