/* SPDX-License-Identifier: Apache-2.0 */
/* Reading problems, keys and configs out of params (call.h). */
#include <stdlib.h>
#include <string.h>

#include "daemon/daemon.h"
#include "daemon/methods/call.h"
#include "proto/text.h"

static int call_refuse_name(const char *const *names, const char *given, size_t n,
                            struct error *err)
{
    struct nearest near;
    nearest_begin(&near, given, n);
    for (; *names; names++) {
        nearest_offer(&near, *names);
    }
    return nearest_refuse(&near, "this method", err);
}

int call_only(struct call *c, const char *const *names, struct error *err)
{
    for (size_t i = 0; i < wire_count(c->params); i++) {
        const struct wire_obj *key, *value;
        const char *name = "";
        size_t n = 0;
        wire_pair(c->params, i, &key, &value);
        wire_get_str(key, &name, &n);
        int at = text_find(names, name, n);
        if (at < 0) {
            return call_refuse_name(names, name, n, err);
        }
        if (wire_find(c->params, names[at]) != value) {
            return error_set(err, ERROR_INVALID, "'%s' is given twice", names[at]);
        }
    }
    return 0;
}

int call_flag(struct call *c, const char *name, bool *out, struct error *err)
{
    const struct wire_obj *o = wire_find(c->params, name);
    return wire_type_of(o) == WIRE_NIL || wire_get_bool(o, out)
               ? 0
               : error_set(err, ERROR_INVALID, "'%s' must be true or false", name);
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

int call_key_prefix(struct call *c, char prefix[HASH_HEX], struct error *err)
{
    const struct wire_obj *key = wire_find(c->params, "key");
    char text[64];
    if (!key && wire_find(c->params, "problem")) {
        int status = call_problem(c, CUSTOM_READ, err);
        memcpy(prefix, c->d->scratch->key.id, HASH_HEX);
        return status;
    }
    if (!wire_copy_str(key, text, sizeof(text))) {
        return error_set(err, ERROR_INVALID,
                         "a key is missing: give 'key' (text) or 'problem' (map)");
    }
    size_t n = strlen(text);
    if (n < PREFIX_MIN || n >= HASH_HEX || strspn(text, "0123456789abcdef") != n) {
        return error_set(
            err, ERROR_INVALID,
            "key '%s' is no key: it is 32 hexadecimal digits, or their first %d or more",
            text_show(text, n).text, PREFIX_MIN);
    }
    memcpy(prefix, text, n + 1);
    return 0;
}

int call_key(struct call *c, char id[HASH_HEX], struct error *err)
{
    bool many;
    int status = call_key_prefix(c, id, err);
    if (status < 0) {
        return status;
    }
    const struct cache_entry *e = cache_find_id(&c->d->cache, id, &many);
    if (many) {
        return error_set(err, ERROR_INVALID, "more than one key begins with %s; give more digits",
                         id);
    }
    /* A whole id that the cache lacks may be a key of another device class: the caller asks the
     * ledger. */
    if (!e && strlen(id) < HASH_HEX - 1) {
        return error_set(err, ERROR_NOT_FOUND, "no key begins with %s; `gemmctl list` shows them",
                         id);
    }
    if (e) {
        cache_entry_id(e, id);
    }
    return 0;
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
                     "'target' must be the name of a target; `space` lists them as `targets`");
}

int call_keep(struct call *c, size_t rows, struct error *err)
{
    return session_is_owner(c->s)
               ? 0
               : account_keep(c->s->account, c->len, rows, uv_now(&c->d->loop), err);
}

int call_only_custom(const struct problem *p, const char *name, struct error *err)
{
    return custom_is(p) ? 0
                        : error_set(err, ERROR_INVALID,
                                    "%s is for \"custom:<name>\" ops; %s is gemmd's own: ask by "
                                    "`get`, and it is tuned once",
                                    name, p->op_name);
}

int call_custom_problem(struct call *c, const char *name, struct error *err)
{
    int status = call_problem(c, CUSTOM_WRITE, err);
    return status ? status : call_only_custom(&c->d->scratch->request.problem, name, err);
}

void call_put_int(struct wire_buf *b, const char *name, bool has, int64_t value)
{
    wire_put_str(b, name);
    if (has) {
        wire_put_int(b, value);
    } else {
        wire_put_nil(b);
    }
}

void call_put_problem(struct wire_buf *b, struct daemon *d, const struct cache_entry *e)
{
    struct problem *problem = &d->scratch->other;
    wire_put_str(b, "problem");
    if (e && cache_problem(&d->cache, e, problem, NULL) == 0) {
        problem_pack(b, problem);
    } else {
        wire_put_nil(b);
    }
}
