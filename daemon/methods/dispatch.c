/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes a message, finds its method, calls the method, sends the answer (methods.h). */
#include <string.h>

#include "daemon/base/log.h"
#include "daemon/methods/methods.h"
#include "daemon/methods/daemon_parts.h"
#include "proto/text.h"

struct row {
    const char *name;
    method *run;
    bool owner, early; /* as in METHODS (methods.h) */
    const char *const *params;
};

static const struct row rows[] = {
#define ROW(name_, owner_, early_, params_) {#name_, method_##name_, owner_, early_, params_},
    METHODS(ROW)
#undef ROW
};

_Static_assert((int)METHOD_COUNT <= (int)METHOD_SLOTS,
               "daemon_parts.requests has a row for each method");

static int dispatch_find_method(const char *name, const struct row **out, struct error *err)
{
    struct nearest near;
    nearest_begin(&near, name, strlen(name));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strcmp(rows[i].name, name) == 0) {
            *out = &rows[i];
            return 0;
        }
        nearest_offer(&near, rows[i].name);
    }
    const char *meant = nearest_end(&near);
    return error_set(err, ERROR_UNKNOWN_METHOD, "there is no method '%s'%s%s%s",
                     text_show(name, strlen(name)).text, meant ? "; did you mean '" : "",
                     meant ? meant : "", meant ? "'?" : "");
}

static int dispatch_run_method(struct call *c, const struct row *row, struct error *err)
{
    int status = 0;
    if (row->owner && !session_is_owner(c->s)) {
        status = error_set(err, ERROR_DENIED,
                           "%s is for root and the user that gemmd runs as; you are uid %d",
                           row->name, (int)c->s->uid);
    }
    if (status == 0 && !row->early && !c->parts->loader.done) {
        return loader_park(&c->parts->loader, c, NULL, err);
    }
    status = status || !row->params ? status : call_only(c, row->params, err);
    return status ? status : row->run(c, err);
}

/* A parked request is counted once, when it was parked. */
static int dispatch_call_method(struct call *c, const char *name, struct error *err)
{
    const struct row *row = NULL;
    if (c->d->stopping) {
        return error_set(err, ERROR_SHUTTING_DOWN, "gemmd is stopping");
    }
    int status = dispatch_find_method(name, &row, err);
    if (status < 0) {
        return status;
    }
    status = dispatch_run_method(c, row, err);
    const enum request_end end = status < 0    ? REQUEST_REFUSED
                                 : status == 0 ? REQUEST_ANSWERED
                                               : REQUEST_LATER;
    c->parts->requests[row - rows][end] += !c->again;
    return status;
}

static void answer_error(struct session *s, uint32_t id, const struct error *e)
{
    session_count_error(s, e->code);
    rpc_put_error(&s->out, id, e);
    s->ending = s->ending || !error_survives(e->code);
}

/* Answers a query with the same bytes as an earlier query that the cache answered. The memo also
 * holds problems of get_many: their bytes begin with a map, a query's with the method's name, so
 * they are never equal. */
static bool answer_again(struct daemon_parts *parts, struct session *s, uint32_t id,
                         const uint8_t *tail, size_t n)
{
    struct daemon *d = &parts->daemon;
    const struct cache_entry *e = NULL;
    if (!d->stopping && s->pinned < 0 && n > 0 && (tail[0] & 0xe0) == 0xa0) {
        e = memo_find(&d->cache.memo, tail, n);
    }
    if (e) {
        rpc_put_result(&s->out, id);
        daemon_put_hit(d, e, &s->out);
        session_count_exact(s, 1);
        parts->requests[METHOD_AT_get][REQUEST_ANSWERED]++;
        s->all->hit = true;
    }
    return e != NULL;
}

bool dispatch_known(void *ctx, struct session *s, const uint8_t *data, size_t n)
{
    struct daemon_parts *parts = ctx;
    uint32_t id = 0;
    size_t split = memo_split(data, n, &id);
    return split && answer_again(parts, s, id, data + split, n - split);
}

void dispatch_message(void *ctx, struct session *s, const uint8_t *data, size_t n, bool again)
{
    struct daemon_parts *parts = ctx;
    struct daemon *d = &parts->daemon;
    struct rpc_message m = {0};
    struct error err = ERROR_NULL;
    uint32_t id = 0;
    size_t split = memo_split(data, n, &id);
    if (split && answer_again(parts, s, id, data + split, n - split)) {
        return;
    }
    if (split && !d->stopping && s->pinned < 0 &&
        get_many_again(d, s, id, data + split, n - split)) {
        parts->requests[METHOD_AT_get_many][REQUEST_ANSWERED]++;
        s->all->hit = true;
        return;
    }
    int status = rpc_decode(d->doc, data, n, &m, &err);
    if (status == 0 && m.type == RPC_NOTIFY) {
        return; /* gemmd handles no notifications */
    }
    if (status == 0 && m.type == RPC_RESPONSE) {
        m.id = 0;
        status = error_set(&err, ERROR_MALFORMED,
                           "an unexpected response: gemmd sends clients no requests");
    }
    if (status == 0) {
        struct call c = {.d = d,
                         .parts = parts,
                         .s = s,
                         .id = m.id,
                         .params = m.params,
                         .data = data,
                         .len = n,
                         .again = again,
                         .tail = split ? data + split : NULL,
                         .tail_len = n - split};
        status = dispatch_call_method(&c, m.method, &err);
        request_deinit(&d->scratch->request);
        /* the next request's problem must find an empty query */
        d->scratch->request.query = (struct query){0};
    }
    if (status < 0) {
        answer_error(s, m.id, &err);
        log_debug("client pid %d: %s: %s", (int)s->pid, m.method, err.text);
    }
}
