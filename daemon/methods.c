/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From bytes to a method and back: decode, find, call, answer. And what methods share: reading
 * problems, keys and configs out of params.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/daemon.h"
#include "daemon/log.h"
#include "daemon/methods.h"
#include "daemon/session.h"
#include "proto/nearest.h"
#include "proto/text.h"

struct row {
    const char *name;
    method *run;
    bool owner; /* for root and the daemon's own user */
    bool early; /* is right, or sees to it, also while not all is loaded */
};

static const struct row rows[] = { /* the most frequent first: looked up in order */
    {"get", method_get, false, true},
    {"get_many", method_get_many, false, false},
    {"tune", method_tune, false, true},
    {"hello", method_hello, false, true},
    {"status", method_status, false, true},
    {"module", method_module, false, true},
    {"cancel", method_cancel, false, true},
    {"list", method_list, false, true},
    {"show", method_show, false, false},
    {"why", method_why, false, false},
    {"put", method_put, false, false},
    {"acquire", method_acquire, false, false},
    {"record", method_record, false, false},
    {"release", method_release, false, false},
    {"check", method_check, false, true},
    {"space", method_space, false, true},
    {"pin", method_pin, true, false},
    {"unpin", method_unpin, true, false},
    {"evict", method_evict, true, false},
    {"unquarantine", method_unquarantine, true, false},
    {"import", method_import, true, false},
    {"promote", method_promote, true, false},
    {"ledger", method_ledger, true, true},
    {"follow", method_follow, true, true},
    {"subscribe", method_subscribe, false, true},
    {"backup", method_backup, true, true},
    {"shutdown", method_shutdown, true, true},
};

void methods_put_names(struct wire_buf *b)
{
    size_t n = sizeof(rows) / sizeof(rows[0]);
    wire_put_array(b, n);
    for (size_t i = 0; i < n; i++) {
        wire_put_str(b, rows[i].name);
    }
}

static int find(const char *name, const struct row **out, struct error *err)
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

static int call(struct call *c, const char *name, struct error *err)
{
    const struct row *row = NULL;
    if (c->d->stopping) {
        return error_set(err, ERROR_SHUTTING_DOWN, "gemmd is stopping");
    }
    int status = find(name, &row, err);
    if (status == 0 && row->owner && !session_is_owner(c->s)) {
        status = error_set(err, ERROR_DENIED,
                           "%s is for root and the user that gemmd runs as; you are uid %d", name,
                           (int)c->s->uid);
    }
    if (status == 0 && !row->early && !c->d->loader.done) {
        return loader_park(&c->d->loader, c, NULL, err);
    }
    return status ? status : row->run(c, err);
}

static void answer_error(struct session *s, uint32_t id, const struct error *e)
{
    s->server->errors[error_slot(e->code)]++;
    rpc_put_error(&s->out, id, e);
    s->ending = s->ending || !error_survives(e->code);
}

/* A hit that was asked for in these very bytes before. */
static bool answer_again(struct session *s, uint32_t id, const uint8_t *tail, size_t n)
{
    struct daemon *d = s->server->daemon;
    if (d->stopping || s->view) {
        return false;
    }
    const struct cache_entry *e = memo_find(&d->cache.memo, tail, n);
    if (e) {
        d->hits++;
        rpc_put_result(&s->out, id);
        cache_reply(e, &s->out);
    }
    return e || many_again(s, id, tail, n);
}

static void handle(struct session *s, const uint8_t *data, size_t n, bool again)
{
    struct daemon *d = s->server->daemon;
    struct rpc_message m = {0};
    struct error err = ERROR_NULL;
    uint32_t id = 0;
    size_t split = memo_split(data, n, &id);
    if (split && answer_again(s, id, data + split, n - split)) {
        return;
    }
    int status = rpc_decode(d->doc, data, n, &m, &err);
    if (status == 0 && m.type == RPC_NOTIFY) {
        return; /* no notification to us has a meaning */
    }
    if (status == 0 && m.type == RPC_RESPONSE) {
        m.id = 0;
        status = error_set(&err, ERROR_MALFORMED, "a response to nothing: gemmd asks clients nothing");
    }
    if (status == 0) {
        struct call c = {.d = d, .s = s, .id = m.id, .params = m.params,
                         .data = data, .len = n, .again = again,
                         .tail = split ? data + split : NULL, .tail_len = n - split};
        status = call(&c, m.method, &err);
        request_deinit(&d->scratch->request);
        d->scratch->request.query = (struct query){0}; /* says nothing about the next problem */
    }
    if (status < 0) {
        answer_error(s, m.id, &err);
        log_debug("client pid %d: %s: %s", (int)s->pid, m.method, err.text);
    }
}

void methods_dispatch(struct session *s, const uint8_t *data, size_t n)
{
    s->server->requests++;
    handle(s, data, n, false);
}

void methods_again(struct session *s, const uint8_t *data, size_t n)
{
    handle(s, data, n, true);
    session_poke(s);
}

/* ---- reading params ------------------------------------------------------------------------------- */

int call_only(struct call *c, const char *const names[], struct error *err)
{
    for (size_t i = 0; i < wire_count(c->params); i++) {
        const struct wire_obj *key, *value;
        const char *name = "";
        size_t n = 0;
        wire_pair(c->params, i, &key, &value);
        wire_get_str(key, &name, &n);
        struct nearest near;
        bool known = false;
        nearest_begin(&near, name, n);
        for (size_t k = 0; names[k]; k++) {
            known = known || (strlen(names[k]) == n && memcmp(names[k], name, n) == 0);
            nearest_offer(&near, names[k]);
        }
        if (!known) {
            const char *meant = nearest_end(&near);
            return error_set(err, ERROR_UNKNOWN_FIELD, "'%s' is no argument here; did you mean '%s'?",
                             text_show(name, n).text, meant ? meant : names[0]);
        }
    }
    return 0;
}

int call_problem(struct call *c, enum custom_use use, struct error *err)
{
    struct scratch *x = c->d->scratch;
    const struct wire_obj *map = wire_find(c->params, "problem");
    if (wire_type_of(map) != WIRE_MAP) {
        return error_set(err, ERROR_INVALID,
                         "'problem' is %s; it must be a map such as {\"op\": \"grouped_gemm\", "
                         "\"mode\": \"forward\", \"M\": 4096, ...}",
                         map ? "no map" : "missing");
    }
    int status = problem_unpack(&x->request.problem, map, err);
    if (status < 0) {
        return status;
    }
    status = custom_key(c->d, c->s->uid, use, err);
    if (status == 0) {
        key_id(&x->key);
    }
    return status;
}

enum { PREFIX_MIN = 6 };

static int key_by_prefix(struct call *c, const char *prefix, char id[HASH_HEX], struct error *err)
{
    size_t n = strlen(prefix);
    bool many;
    if (n < PREFIX_MIN || n >= HASH_HEX || strspn(prefix, "0123456789abcdef") != n) {
        return error_set(err, ERROR_INVALID,
                         "key '%s' is no key: it is 32 hexadecimal digits, or their first %d or more",
                         text_show(prefix, n).text, PREFIX_MIN);
    }
    const struct cache_entry *e = cache_find_id(&c->d->cache, prefix, &many);
    if (many) {
        return error_set(err, ERROR_INVALID, "more than one key begins with %s; give more digits",
                         prefix);
    }
    if (e) {
        cache_entry_id(e, id);
    } else if (n == HASH_HEX - 1) {
        strcpy(id, prefix); /* perhaps another device class's: the ledger knows */
    } else {
        return error_set(err, ERROR_NOT_FOUND, "no key begins with %s; `gemmctl list` shows them",
                         prefix);
    }
    return 0;
}

int call_key(struct call *c, char id[HASH_HEX], struct error *err)
{
    const struct wire_obj *key = wire_find(c->params, "key");
    char prefix[64];
    if (!key && wire_find(c->params, "problem")) {
        int status = call_problem(c, CUSTOM_READ, err);
        memcpy(id, c->d->scratch->key.id, HASH_HEX);
        return status;
    }
    if (!wire_copy_str(key, prefix, sizeof(prefix))) {
        return error_set(err, ERROR_INVALID, "'key' (text) or 'problem' (map) must say which one");
    }
    return key_by_prefix(c, prefix, id, err);
}

int call_config(struct call *c, struct record *out, struct error *err)
{
    return call_read_config(wire_find(c->params, "config"), out, err);
}

int call_read_config(const struct wire_obj *o, struct record *out, struct error *err)
{
    if (wire_type_of(o) == WIRE_MAP) {
        int status = record_unpack(out, o, err);
        return status ? error_prefix(err, "config") : 0;
    }
    const char *text;
    size_t n;
    if (!wire_get_str(o, &text, &n)) {
        return error_set(err, ERROR_INVALID,
                         "'config' is %s; it must be a map, or text such as \"BLOCK_SIZE_M=64 "
                         "num_warps=4\"",
                         o ? "neither map nor text" : "missing");
    }
    char *line = strndup(text, n);
    if (!line) {
        return error_set(err, ERROR_NO_MEMORY, "no memory to read a config");
    }
    int status = record_parse(out, line, err);
    free(line);
    return status ? error_prefix(err, "config") : 0;
}

int call_target(struct call *c, char out[TARGET_MAX], struct error *err)
{
    const struct wire_obj *o = wire_find(c->params, "target");
    out[0] = 0;
    if (!o || wire_copy_str(o, out, TARGET_MAX)) {
        return 0;
    }
    return error_set(err, ERROR_INVALID,
                     "'target' must be the name of one; the `targets` of `space` has them");
}

static void charge(struct pending *p, size_t now)
{
    if (account_charge(p->account, ACCOUNT_ASKED, &p->charged, now)) {
        sessions_poke_all(&p->d->server, p->account);
    }
}

int call_later(struct call *c, size_t size, struct pending **out, struct error *err)
{
    struct pending *p = calloc(1, size);
    if (!p) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for one more request");
    }
    p->d = c->d;
    p->uid = (int64_t)c->s->uid;
    int status = ticket_open(&p->ticket, c->s, c->id, NULL, err);
    if (status < 0) {
        free(p);
        return status;
    }
    c->s->n_pending++;
    p->account = account_hold(c->s->account);
    charge(p, 1);
    *out = p;
    return 0;
}

static void no_longer(struct pending *p)
{
    if (p->ticket.session) {
        p->ticket.session->n_pending--;
    }
    charge(p, 0);
    p->account = account_drop(p->account);
}

void pending_free(struct pending *p)
{
    no_longer(p);
    free(p);
}

void pending_end(struct pending *p)
{
    no_longer(p);
    ticket_close(&p->ticket);
}

void pending_drop(struct pending *p)
{
    pending_end(p);
    free(p);
}

void pending_fail(struct pending *p, const struct error *e)
{
    no_longer(p);
    ticket_fail(&p->ticket, e);
    free(p);
}

struct wire_buf *pending_result(struct pending *p)
{
    struct wire_buf *out = ticket_out(&p->ticket);
    if (out) {
        rpc_put_result(out, p->ticket.id);
    }
    return out;
}
