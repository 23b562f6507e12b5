/* SPDX-License-Identifier: Apache-2.0 */
/* Holders of keys, and the clients that wait for a key (leases.h). */
#include <stdlib.h>
#include <string.h>

#include "daemon/daemon.h"
#include "daemon/base/log.h"
#include "daemon/methods/leases.h"
#include "store/store.h"

/* added to an expired lease once, for a message that lies unread in the socket */
enum { UNREAD_MS = 20 };

enum lease_state { LEASE_ASKING, LEASE_TAKEN, LEASE_CHECKING, LEASE_HELD };

struct lease {
    struct ticket holder;  /* first member; while HELD it reports the holder's disconnect */
    struct leases *leases; /* borrowed */
    struct list link;      /* node in leases->all */
    struct list slot;      /* node in leases->slots */
    struct list shared_slot;
    struct list passed;   /* node in leases->passed */
    struct list answered; /* node in leases->answered */
    struct list wanters;
    struct account *account; /* account charged for the lease: the holder's; NULL: no holder */
    enum lease_state state;
    bool turning; /* next_turn() called a waiting client's turn(), which is not finished yet */
    bool asked;   /* the ledger was asked and has not answered yet */
    bool over;    /* the lease has ended, and is freed once the ledger has answered */
    char key[HASH_HEX], shared[HASH_HEX];
    int64_t uid, pid; /* the holder */
    int64_t lease_ms;
    uint64_t until_ms; /* HELD: loop time at which the lease expires */
    /* the until_ms that lease_doubt_holder set, so that it delays the lease's end only once */
    uint64_t doubted_ms;
    /* loop time of the next ledger_lease, which renews the lease or asks again */
    uint64_t renew_ms;
    bool known; /* the ledger may hold the lease for this daemon, which must release it */
};

static uint64_t now_of(const struct leases *l)
{
    return uv_now(l->timer.loop);
}

static void lease_on_timer(uv_timer_t *timer);

/* ---- leases ---------------------------------------------------------------------------------- */

static struct list *lease_slot_of(struct list slots[], const char *key)
{
    char front[4] = {key[0], key[1], key[2], 0};
    return &slots[strtoul(front, NULL, 16) % LEASE_SLOTS];
}

static struct lease *lease_find_key(struct leases *l, const char *key)
{
    LIST_EACH(struct lease, x, lease_slot_of(l->slots, key), slot) {
        if (strcmp(x->key, key) == 0) {
            return x;
        }
    }
    return NULL;
}

static struct lease *lease_make_new(struct leases *l, const struct wanter *w)
{
    struct lease *x = calloc(1, sizeof(*x));
    if (x && !uv_is_active((uv_handle_t *)&l->timer)) {
        uv_timer_start(&l->timer, lease_on_timer, LEASE_TICK_MS, LEASE_TICK_MS);
    }
    if (x) {
        x->leases = l;
        strcpy(x->key, w->key);
        strcpy(x->shared, w->shared);
        list_init(&x->wanters);
        list_init(&x->passed);
        list_init(&x->answered);
        list_append(&l->all, &x->link);
        list_append(lease_slot_of(l->slots, x->key), &x->slot);
        list_append(lease_slot_of(l->shared_slots, x->shared), &x->shared_slot);
        l->n++;
    }
    return x;
}

/* Uncharges the holder's account for the lease. */
static void give_back(struct lease *l)
{
    if (l->account) {
        l->account->leases--;
        l->account = account_drop(l->account);
    }
}

/* Unlinks the lease, and frees it once the ledger has answered the question about it. */
static void lease_discard_soon(struct lease *l)
{
    if (!l->over) {
        list_remove(&l->link);
        list_remove(&l->slot);
        list_remove(&l->shared_slot);
        list_remove(&l->answered);
        l->leases->n--;
    }
    l->over = true;
    if (!l->asked) {
        free(l);
    }
}

static void lease_release_ledger(struct lease *l)
{
    struct daemon *d = l->leases->daemon;
    list_remove(&l->passed);
    if (d->ledger && l->known) {
        ledger_unlease(d->ledger, l->key);
    }
    lease_discard_soon(l);
}

static struct wanter *take_wanter(struct list *node)
{
    struct wanter *w = LIST_OF(node, struct wanter, link);
    list_remove(&w->link);
    w->lease = NULL;
    return w;
}

/* Tells wanters the key's holder: wanters past their deadline, and wanters with `now` if the key is
 * held. */
static void turn_away(struct lease *l)
{
    uint64_t now = now_of(l->leases);
    LIST_EACH(struct wanter, w, &l->wanters, link) {
        bool taken = l->state == LEASE_HELD || l->state == LEASE_TAKEN;
        if ((w->now && taken) || (w->deadline_ms && w->deadline_ms <= now)) {
            take_wanter(&w->link);
            w->other(w, l->uid, l->pid, NULL);
        }
    }
}

/* ---- turns ----------------------------------------------------------------------------------- */

static void next_turn(struct lease *l)
{
    if (list_empty(&l->wanters)) {
        lease_release_ledger(l);
        return;
    }
    l->state = LEASE_CHECKING;
    l->turning = true;
    l->leases->n_turning++;
    struct wanter *w = take_wanter(l->wanters.next);
    w->turn(w, l);
}

/* True when another daemon has the key, and no client here waits for it. */
static bool lease_is_idle(const struct lease *l)
{
    return l->state == LEASE_TAKEN && list_empty(&l->wanters);
}

/* Answers at most `room` of the lease's wanters, those that need no lease any more (is_known).
 * Returns how many more the caller may answer; 0: there may be more to answer. */
static int answer_some(struct lease *l, int room)
{
    LIST_EACH(struct wanter, w, &l->wanters, link) {
        if (room == 0) {
            return 0;
        }
        if (w->is_known(w)) {
            take_wanter(&w->link);
            w->turn(w, NULL);
            room--;
        }
    }
    return room;
}

static bool may_give(const struct leases *l)
{
    return !list_empty(&l->passed) && l->n_turning < LEASES_TURNING;
}

static void turns_soon(struct leases *l)
{
    chore_cancel(&l->turns); /* it may be queued already */
    if (!l->stopping && (may_give(l) || !list_empty(&l->answered))) {
        turns_chore(&l->daemon->turns, &l->turns);
    }
}

/* Answers wanters that need no lease any more, then gives turns. Each of thousands of wanters may
 * pass the key on at once. Each turn starts from here and not from within the previous turn, so the
 * stack does not grow, and other clients are served between slices. */
static void give_turns(struct chore *c)
{
    struct leases *l = LIST_OF(c, struct leases, turns);
    int room = LEASE_TURNS;
    while (room > 0 && !list_empty(&l->answered)) {
        struct lease *x = LIST_OF(l->answered.next, struct lease, answered);
        room = answer_some(x, room);
        if (room > 0) {
            list_remove(&x->answered);
        }
        if (lease_is_idle(x)) {
            lease_release_ledger(x);
        }
    }
    for (; room > 0 && may_give(l); room--) {
        struct lease *x = LIST_OF(l->passed.next, struct lease, passed);
        list_remove(&x->passed);
        next_turn(x);
    }
    turns_soon(l);
}

/* Ends a wanter's turn: the wanter now holds the lease, or has passed it on. */
static void turn_over(struct lease *l)
{
    l->leases->n_turning -= l->turning;
    l->turning = false;
    turns_soon(l->leases);
}

void lease_pass(struct lease *l)
{
    struct leases *all = l->leases;
    give_back(l);
    l->state = LEASE_CHECKING;
    if (all->stopping) { /* leases_stop has failed all wanters */
        lease_release_ledger(l);
        return;
    }
    list_append(&all->passed, &l->passed);
    turn_over(l);
}

/* ---- the ledger ------------------------------------------------------------------------------ */

static void lease_on_leased(void *ctx, int status, const struct error *err)
{
    struct lease *l = ctx;
    l->asked = false;
    l->known = l->known && status != STORE_HELD;
    if (l->over) {
        lease_discard_soon(l);
        return;
    }
    bool held = l->state == LEASE_HELD || l->state == LEASE_CHECKING;
    if (status == STORE_HELD && held) {
        log_warning("lease of %s: another daemon took the lease while this gemmd did not answer",
                    l->key);
    } else if (status == STORE_HELD) {
        l->state = LEASE_TAKEN;
        l->uid = l->pid = 0;
        l->renew_ms = now_of(l->leases) + LEASE_RETRY_MS;
        turn_away(l);
    } else if (!held) {
        if (status < 0) {
            /* without the ledger's answer the lease is granted: two holders are better than no
             * holder */
            log_warning("lease of %s is known to this daemon only: %s", l->key, err->text);
        }
        next_turn(l);
    }
}

static void ask_ledger(struct lease *l)
{
    struct daemon *d = l->leases->daemon;
    struct error gone = {.code = ERROR_SHUTTING_DOWN, .text = "the ledger cannot be asked now"};
    l->renew_ms = now_of(l->leases) + LEASE_RENEW_MS;
    l->asked = true;
    int status = d->ledger ? ledger_lease(d->ledger, l->key, LEASE_LEDGER_MS, lease_on_leased, l)
                           : ERROR_SHUTTING_DOWN;
    /* from now on the ledger may hold the lease for this daemon, also when its answer is an
     * error */
    l->known = l->known || status == 0;
    if (status < 0) {
        lease_on_leased(l, status, &gone);
    }
}

/* ---- the holder ------------------------------------------------------------------------------ */

static void holder_gone(struct ticket *t)
{
    struct lease *l = LIST_OF(t, struct lease, holder);
    log_info("lease of %s: its holder (pid %d) has gone", l->key, (int)l->pid);
    lease_pass(l);
}

int lease_hold(struct lease *l, struct wanter *w, struct error *err)
{
    struct session *s = w->pending.ticket.session;
    int status = s ? account_add_lease(s->account, err) : ERROR_DISCONNECTED;
    if (status < 0) {
        lease_pass(l);
        return status;
    }
    l->account = account_hold(s->account);
    ticket_hold(&l->holder, s, holder_gone);
    turn_over(l);
    l->state = LEASE_HELD;
    l->uid = s->uid;
    l->pid = s->pid;
    l->lease_ms = w->lease_ms;
    lease_renew(l);
    turn_away(l);
    return 0;
}

void lease_renew(struct lease *l)
{
    l->until_ms = now_of(l->leases) + (uint64_t)l->lease_ms;
}

void lease_end(struct lease *l)
{
    ticket_close(&l->holder);
    lease_pass(l);
}

/* ---- in line --------------------------------------------------------------------------------- */

struct lease *leases_of(struct leases *l, const struct session *s, const char *key)
{
    struct lease *x = s ? lease_find_key(l, key) : NULL;
    return x && x->state == LEASE_HELD && x->holder.session == s ? x : NULL;
}

bool leases_renew(struct leases *l, const struct wanter *w)
{
    struct lease *mine = leases_of(l, w->pending.ticket.session, w->key);
    if (mine) {
        mine->lease_ms = w->lease_ms;
        lease_renew(mine);
    }
    return mine != NULL;
}

int leases_want(struct leases *l, struct wanter *w, struct error *err)
{
    if (l->stopping) {
        /* an `acquire` for which the ledger was still reading trials at leases_stop() */
        return error_set(err, ERROR_SHUTTING_DOWN, "gemmd is stopping");
    }
    if (leases_renew(l, w)) {
        w->turn(w, NULL);
        return 0;
    }
    struct lease *x = lease_find_key(l, w->key);
    bool fresh = !x;
    x = x ? x : lease_make_new(l, w);
    if (!x) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for one more lease");
    }
    w->lease = x;
    l->waits += !fresh;
    list_append(&x->wanters, &w->link);
    if (fresh) {
        ask_ledger(x);
    } else {
        turn_away(x);
    }
    return 0;
}

void leases_drop(struct wanter *w)
{
    struct lease *l = w->lease;
    if (!l) {
        return;
    }
    list_remove(&w->link);
    w->lease = NULL;
    if (lease_is_idle(l)) {
        /* the ledger may still grant the lease to this daemon: give it back */
        lease_release_ledger(l);
    }
}

void leases_freed(struct leases *l, const char *key)
{
    LIST_EACH(struct lease, x, &l->all, link) {
        bool freed = !key[0] || strcmp(x->key, key) == 0;
        if (freed && x->state == LEASE_TAKEN && !x->asked) {
            ask_ledger(x);
        }
    }
}

/* ---- answers from other sources -------------------------------------------------------------- */

static void look_soon(struct lease *x)
{
    struct leases *l = x->leases;
    if (!list_empty(&x->wanters) && list_empty(&x->answered)) {
        list_append(&l->answered, &x->answered);
        turns_soon(l);
    }
}

void leases_known(struct leases *l, const char *key)
{
    if (l->stopping) {
        return;
    }
    struct lease *own = lease_find_key(l, key);
    if (own) {
        look_soon(own);
    }
    LIST_EACH(struct lease, x, lease_slot_of(l->shared_slots, key), shared_slot) {
        if (strcmp(x->shared, key) == 0) {
            look_soon(x);
        }
    }
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Defers the end of a holder's lease once, since messages of the holder may lie unread: libuv runs
 * timers before gemmd reads sockets, and a stopped gemmd reads nothing. */
static void lease_doubt_holder(struct lease *l, uint64_t now)
{
    bool away = now > l->until_ms + AWAY_MS;
    l->until_ms = l->doubted_ms = now + (away ? (uint64_t)l->lease_ms : UNREAD_MS);
}

static void lease_look_at_time(struct lease *l, uint64_t now)
{
    if (l->state == LEASE_HELD && l->until_ms <= now && l->until_ms != l->doubted_ms) {
        lease_doubt_holder(l, now);
    } else if (l->state == LEASE_HELD && l->until_ms <= now) {
        log_warning("lease of %s: its holder (pid %d) said nothing for %lld ms: lost", l->key,
                    (int)l->pid, (long long)l->lease_ms);
        lease_end(l);
        return;
    }
    turn_away(l);
    if (lease_is_idle(l)) {
        lease_release_ledger(l);
    } else if (!l->asked && l->renew_ms <= now) {
        ask_ledger(l);
    }
}

static void lease_on_timer(uv_timer_t *timer)
{
    struct leases *l = timer->data;
    uint64_t now = now_of(l);
    LIST_EACH(struct lease, x, &l->all, link) {
        lease_look_at_time(x, now);
    }
    if (l->n == 0) {
        uv_timer_stop(timer);
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

void leases_init(struct leases *l, struct daemon *d)
{
    *l = (struct leases){.daemon = d};
    list_init(&l->all);
    for (size_t i = 0; i < LEASE_SLOTS; i++) {
        list_init(&l->slots[i]);
        list_init(&l->shared_slots[i]);
    }
    list_init(&l->passed);
    chore_init(&l->turns, give_turns, NULL);
    list_init(&l->answered);
    uv_timer_init(&d->loop, &l->timer);
    l->timer.data = l;
}

static void stop_one(struct lease *l, const struct error *e)
{
    while (!list_empty(&l->wanters)) {
        struct wanter *w = take_wanter(l->wanters.next);
        w->other(w, 0, 0, e);
    }
    if (l->state == LEASE_HELD) {
        ticket_close(&l->holder);
        give_back(l);
    }
    /* A lease in CHECKING waits in leases->passed for its next turn, or a wanter's turn is open.
     * During a turn the wanter's code uses the lease, and lease_pass() releases the lease later. */
    if (l->state != LEASE_CHECKING || !list_empty(&l->passed)) {
        lease_release_ledger(l);
    }
}

void leases_stop(struct leases *l)
{
    struct error e = ERROR_NULL;
    error_set(&e, ERROR_SHUTTING_DOWN, "gemmd is stopping");
    l->stopping = true;
    chore_cancel(&l->turns);
    LIST_EACH(struct lease, x, &l->all, link) {
        stop_one(x, &e);
    }
    uv_close((uv_handle_t *)&l->timer, NULL);
}
