/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs for idle devices (spread.h). What is said are maps: {"say": "idle", "owner":, "class":,
 * "ask": others that are idle shall say so, too} and {"say": "offer", "to": owner, "class":,
 * "uid":, "search": the packed request}. */
#include <stdio.h>
#include <string.h>

#include "daemon/answers/daemon.h"
#include "daemon/base/log.h"
#include "daemon/tuning/spread.h"

void spread_init(struct spread *s, struct wanting *wanting, const struct followers *followers,
                 struct accounts *accounts)
{
    *s = (struct spread){.daemon = wanting->daemon,
                         .scheduler = wanting->scheduler,
                         .wanting = wanting,
                         .followers = followers,
                         .accounts = accounts};
}

static bool is_alone(const struct spread *s)
{
    const struct daemon *d = s->daemon;
    return d->config->offline || !d->ledger ||
           (ledger_shared_is_keeper(d->ledger) && s->followers->n == 0);
}

static bool has_nothing_to_do(const struct spread *s)
{
    const struct scheduler *x = s->scheduler;
    return !x->running && x->n_queued == 0 && !x->off.code && !x->stopping;
}

static void say(struct spread *s, struct wire_buf *said)
{
    struct ledger *l = s->daemon->ledger;
    if (!said->failed) {
        l->ops->tell(l, said, false);
    }
}

/* ---- idle ------------------------------------------------------------------------------------ */

static void say_idle(struct spread *s, bool ask)
{
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    wire_put_map(&b, 4);
    wire_put_kv_str(&b, "say", "idle");
    wire_put_kv_str(&b, "owner", s->daemon->owner);
    wire_put_kv_str(&b, "class", s->daemon->device.class);
    wire_put_kv_bool(&b, "ask", ask);
    say(s, &b);
    s->told_idle = true;
}

void spread_ready(struct spread *s)
{
    s->ready = true;
    if (!is_alone(s)) {
        say_idle(s, true);
    }
}

void spread_busy(struct spread *s)
{
    s->told_idle = false;
}

void spread_idle(struct spread *s)
{
    if (s->ready && !s->told_idle && has_nothing_to_do(s) && !is_alone(s)) {
        say_idle(s, false);
    }
}

static void remember(struct spread *s, const char *owner)
{
    for (unsigned i = 0; i < s->n_idle; i++) {
        if (strcmp(s->idle[i], owner) == 0) {
            return;
        }
    }
    if (s->n_idle < SPREAD_IDLE_MAX) {
        snprintf(s->idle[s->n_idle++], sizeof(s->idle[0]), "%s", owner);
    }
}

/* ---- offers ---------------------------------------------------------------------------------- */

/* A search that makes the key's answer: its winner answers the one who waits here. Once: two idle
 * devices shall not get the same. */
static bool can_be_offered(const struct job *j)
{
    return !j->pin && !j->restricted && !j->again && !j->offered && !j->set_aside;
}

static void offer(struct spread *s, struct job *j, const char *to)
{
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    wire_put_map(&b, 5);
    wire_put_kv_str(&b, "say", "offer");
    wire_put_kv_str(&b, "to", to);
    wire_put_kv_str(&b, "class", s->daemon->device.class);
    wire_put_kv_int(&b, "uid", j->uid);
    wire_put_str(&b, "search");
    wire_put_bin(&b, j->search.data, j->search.len);
    say(s, &b);
    j->offered = true;
    s->offered++;
}

void spread_queued(struct spread *s, struct job *j)
{
    bool waits = s->scheduler->running || s->scheduler->n_queued > 1;
    if (waits && s->n_idle && can_be_offered(j) && !is_alone(s)) {
        offer(s, j, s->idle[--s->n_idle]);
    }
}

/* The last of the queue: its own device comes to that one last. */
static struct job *to_spare(const struct scheduler *s)
{
    if (s->n_queued < (s->running ? 1 : 2)) {
        return NULL;
    }
    for (struct list *node = s->queue.prev; node != &s->queue; node = node->prev) {
        struct job *j = LIST_OF(node, struct job, link);
        if (can_be_offered(j)) {
            return j;
        }
    }
    return NULL;
}

static void heard_idle(struct spread *s, const struct wire_obj *said)
{
    char owner[sizeof(s->daemon->owner)];
    bool ask = false;
    if (!wire_copy_str(wire_find(said, "owner"), owner, sizeof(owner)) ||
        strcmp(owner, s->daemon->owner) == 0) {
        return;
    }
    struct job *j = to_spare(s->scheduler);
    if (j) {
        offer(s, j, owner);
    } else {
        remember(s, owner);
    }
    wire_get_bool(wire_find(said, "ask"), &ask);
    if (ask && has_nothing_to_do(s)) {
        say_idle(s, false);
    }
}

static int take(struct spread *s, const struct wire_obj *search, uid_t uid, struct error *err)
{
    struct scratch *x = s->daemon->scratch;
    struct account *account = account_of(s->accounts, uid);
    int status = account ? request_unpack(&x->request, search, err)
                         : error_set(err, ERROR_NO_MEMORY, "no memory for one more job");
    status = status ? status : daemon_key(s->daemon, err);
    if (status == 0) {
        key_id(&x->key);
        struct wanted w = {.request = &x->request,
                           .bucket = &x->bucket,
                           .key = &x->key,
                           .background = true,
                           .account = account};
        status = wanting_want(s->wanting, &w, err);
    }
    request_deinit(&x->request);
    x->request.query = (struct query){0};
    account_drop(account);
    return status;
}

static void heard_offer(struct spread *s, const struct wire_obj *said)
{
    const struct wire_obj *search;
    struct error err = ERROR_NULL;
    const void *data = NULL;
    size_t n = 0;
    int64_t uid = 0;
    if (!wire_is_str(wire_find(said, "to"), s->daemon->owner) || !has_nothing_to_do(s) ||
        !wire_get_bin(wire_find(said, "search"), &data, &n) ||
        !wire_get_int(wire_find(said, "uid"), &uid)) {
        return;
    }
    int status = wire_decode(s->daemon->cache.entries.doc, data, n, &search, &err);
    status = status ? status : take(s, search, (uid_t)uid, &err);
    if (status < 0) {
        log_info("a job of another gemmd is not taken: %s", err.text);
    } else {
        s->taken++;
    }
}

void spread_heard(struct spread *s, const struct wire_obj *said)
{
    if (!s->ready || s->daemon->stopping ||
        !wire_is_str(wire_find(said, "class"), s->daemon->device.class)) {
        return;
    }
    if (wire_is_str(wire_find(said, "say"), "idle")) {
        heard_idle(s, said);
    } else if (wire_is_str(wire_find(said, "say"), "offer")) {
        heard_offer(s, said);
    }
}
