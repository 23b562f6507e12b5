/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs for idle devices (spread.h). What is said are maps: {"say": "idle", "owner":, "class":,
 * "ask": others that are idle shall say so, too} and {"say": "offer", "to": owner, "class":,
 * "uid":, "search": the packed request}. */
#include <stdio.h>
#include <string.h>

#include "daemon/daemon.h"
#include "daemon/log.h"
#include "daemon/spread.h"

static bool is_alone(const struct daemon *d)
{
    return d->config->offline || !d->ledger ||
           (ledger_shared_is_keeper(d->ledger) && d->followers.n == 0);
}

static bool has_nothing_to_do(const struct daemon *d)
{
    const struct scheduler *s = &d->scheduler;
    return !s->running && s->n_queued == 0 && !s->off.code && !s->stopping;
}

static void say(struct daemon *d, struct wire_buf *said)
{
    if (!said->failed) {
        d->ledger->ops->tell(d->ledger, said);
    }
}

/* ---- idle
 * ---------------------------------------------------------------------------------------- */

static void say_idle(struct daemon *d, bool ask)
{
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    wire_put_map(&b, 4);
    wire_put_kv_str(&b, "say", "idle");
    wire_put_kv_str(&b, "owner", d->owner);
    wire_put_kv_str(&b, "class", d->device.class);
    wire_put_kv_bool(&b, "ask", ask);
    say(d, &b);
    d->spread.told_idle = true;
}

void spread_ready(struct daemon *d)
{
    if (!is_alone(d)) {
        say_idle(d, true);
    }
}

void spread_idle(struct daemon *d)
{
    if (!d->spread.told_idle && has_nothing_to_do(d) && !is_alone(d)) {
        say_idle(d, false);
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

/* ---- offers
 * -------------------------------------------------------------------------------------- */

/* A search that makes the key's answer: its winner answers the one who waits here. Once: two idle
 * devices shall not get the same. */
static bool can_be_offered(const struct job *j)
{
    return !j->pin && !j->restricted && !j->again && !j->offered;
}

static void offer(struct daemon *d, struct job *j, const char *to)
{
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    wire_put_map(&b, 5);
    wire_put_kv_str(&b, "say", "offer");
    wire_put_kv_str(&b, "to", to);
    wire_put_kv_str(&b, "class", d->device.class);
    wire_put_kv_int(&b, "uid", j->uid);
    wire_put_str(&b, "search");
    wire_put_bin(&b, j->search.data, j->search.len);
    say(d, &b);
    j->offered = true;
    d->spread.offered++;
}

void spread_queued(struct daemon *d, struct job *j)
{
    struct spread *s = &d->spread;
    bool waits = d->scheduler.running || d->scheduler.n_queued > 1;
    if (waits && s->n_idle && can_be_offered(j) && !is_alone(d)) {
        offer(d, j, s->idle[--s->n_idle]);
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

static void heard_idle(struct daemon *d, const struct wire_obj *said)
{
    char owner[sizeof(d->owner)];
    bool ask = false;
    if (!wire_copy_str(wire_find(said, "owner"), owner, sizeof(owner)) ||
        strcmp(owner, d->owner) == 0) {
        return;
    }
    struct job *j = to_spare(&d->scheduler);
    if (j) {
        offer(d, j, owner);
    } else {
        remember(&d->spread, owner);
    }
    wire_get_bool(wire_find(said, "ask"), &ask);
    if (ask && has_nothing_to_do(d)) {
        say_idle(d, false);
    }
}

static int take(struct daemon *d, const struct wire_obj *search, uid_t uid, struct error *err)
{
    struct scratch *x = d->scratch;
    struct account *account = account_of(&d->server.accounts, uid);
    int status = account ? request_unpack(&x->request, search, err)
                         : error_set(err, ERROR_NO_MEMORY, "no memory for one more job");
    status = status ? status : daemon_key(d, err);
    if (status == 0) {
        key_id(&x->key);
        struct wanted w = {.request = &x->request,
                           .bucket = &x->bucket,
                           .key = &x->key,
                           .background = true,
                           .account = account};
        status = scheduler_want(&d->scheduler, &w, err);
    }
    request_deinit(&x->request);
    x->request.query = (struct query){0};
    account_drop(account);
    return status;
}

static void heard_offer(struct daemon *d, const struct wire_obj *said)
{
    const struct wire_obj *search;
    struct error err = ERROR_NULL;
    const void *data = NULL;
    size_t n = 0;
    int64_t uid = 0;
    if (!wire_is_str(wire_find(said, "to"), d->owner) || !has_nothing_to_do(d) ||
        !wire_get_bin(wire_find(said, "search"), &data, &n) ||
        !wire_get_int(wire_find(said, "uid"), &uid)) {
        return;
    }
    int status = wire_decode(d->cache.doc, data, n, &search, &err);
    status = status ? status : take(d, search, (uid_t)uid, &err);
    if (status < 0) {
        log_info("a job of another gemmd is not taken: %s", err.text);
    } else {
        d->spread.taken++;
    }
}

void spread_heard(struct daemon *d, const struct wire_obj *said)
{
    if (d->stopping || !wire_is_str(wire_find(said, "class"), d->device.class)) {
        return;
    }
    if (wire_is_str(wire_find(said, "say"), "idle")) {
        heard_idle(d, said);
    } else if (wire_is_str(wire_find(said, "say"), "offer")) {
        heard_offer(d, said);
    }
}
