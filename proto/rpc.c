/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "proto/rpc.h"
#include "proto/text.h"

static int get_id(const struct wire_obj *o, uint32_t *id, struct error *err)
{
    int64_t v;
    if (!wire_get_int(o, &v) || v < 0 || v > UINT32_MAX) {
        return error_set(err, ERROR_MALFORMED, "a message id must be an integer from 0 to 2^32-1");
    }
    *id = (uint32_t)v;
    return 0;
}

static int get_method(const struct wire_obj *o, struct rpc_message *m, struct error *err)
{
    const char *s;
    size_t n;
    if (!wire_get_str(o, &s, &n)) {
        return error_set(err, ERROR_MALFORMED, "a method must be named by text");
    }
    if (!wire_copy_str(o, m->method, sizeof(m->method))) {
        return error_set(err, ERROR_UNKNOWN_METHOD, "there is no method '%s'",
                         text_show(s, n).text);
    }
    return 0;
}

static int get_params(const struct wire_obj *o, struct rpc_message *m, struct error *err)
{
    if (wire_type_of(o) == WIRE_ARRAY && wire_count(o) == 1) {
        o = wire_at(o, 0);
    }
    if (wire_type_of(o) == WIRE_MAP) {
        m->params = wire_count(o) > 0 ? o : NULL;
        return 0;
    }
    if (wire_type_of(o) == WIRE_NIL || (wire_type_of(o) == WIRE_ARRAY && wire_count(o) == 0)) {
        return 0;
    }
    return error_set(err, ERROR_INVALID,
                     "params of '%s' must be a map of named arguments, [that map], or []",
                     text_show(m->method, strlen(m->method)).text);
}

int rpc_decode(struct wire_doc *doc, const void *data, size_t n, struct rpc_message *out,
               struct error *err)
{
    out->type = RPC_NOTIFY;
    out->id = 0;
    out->method[0] = 0;
    out->params = out->error = out->result = NULL;
    const struct wire_obj *root;
    int r = wire_decode(doc, data, n, &root, err);
    if (r < 0) {
        return r;
    }
    int64_t type = -1;
    wire_get_int(wire_at(root, 0), &type);
    if (type < RPC_REQUEST || type > RPC_NOTIFY ||
        wire_count(root) != (type == RPC_NOTIFY ? 3 : 4)) {
        return error_set(err, ERROR_MALFORMED,
                         "not MessagePack-RPC: expected [0, id, method, params], "
                         "[1, id, error, result] or [2, method, params]");
    }
    if (type != RPC_NOTIFY) {
        r = get_id(wire_at(root, 1), &out->id, err);
        if (r < 0) {
            return r;
        }
        out->type = (enum rpc_type)type;
    }
    if (type == RPC_RESPONSE) {
        const struct wire_obj *error = wire_at(root, 2);
        out->error = wire_type_of(error) == WIRE_NIL ? NULL : error;
        out->result = wire_at(root, 3);
        return 0;
    }
    size_t method = type == RPC_NOTIFY ? 1 : 2;
    r = get_method(wire_at(root, method), out, err);
    return r < 0 ? r : get_params(wire_at(root, method + 1), out, err);
}

bool rpc_pull_result(const void *data, size_t n, uint32_t *id, struct pull *result)
{
    struct pull p = {data, (const uint8_t *)data + n};
    size_t items;
    int64_t type, number;
    if (!pull_array(&p, &items) || items != 4 || !pull_int(&p, &type) || type != RPC_RESPONSE ||
        !pull_int(&p, &number) || number < 0 || number > UINT32_MAX || !pull_nil(&p)) {
        return false;
    }
    *id = (uint32_t)number;
    *result = p;
    return true;
}

void rpc_put_request(struct wire_buf *b, uint32_t id, const char *method)
{
    wire_put_array(b, 4);
    wire_put_uint(b, RPC_REQUEST);
    wire_put_uint(b, id);
    wire_put_str(b, method);
}

void rpc_put_result(struct wire_buf *b, uint32_t id)
{
    wire_put_array(b, 4);
    wire_put_uint(b, RPC_RESPONSE);
    wire_put_uint(b, id);
    wire_put_nil(b);
}

void rpc_put_notify(struct wire_buf *b, const char *method)
{
    wire_put_array(b, 3);
    wire_put_uint(b, RPC_NOTIFY);
    wire_put_str(b, method);
}

void rpc_put_error(struct wire_buf *b, uint32_t id, const struct error *e)
{
    wire_put_array(b, 4);
    wire_put_uint(b, RPC_RESPONSE);
    wire_put_uint(b, id);
    wire_put_map(b, 3);
    wire_put_kv_str(b, "name", error_name(e->code));
    wire_put_kv_str(b, "message", e->text);
    wire_put_kv_bool(b, "survives", error_survives(e->code));
    wire_put_nil(b);
}

int rpc_get_error(const struct wire_obj *error, struct error *out)
{
    char name[64] = "";
    const char *s = "";
    size_t n = 0;
    if (!wire_get_str(error, &s, &n)) { /* plain text, from other servers */
        wire_get_str(wire_find(error, "message"), &s, &n);
        wire_copy_str(wire_find(error, "name"), name, sizeof(name));
    }
    int code = error_code_of(name);
    if (n == 0 || !s[0]) {
        return error_set(out, code, "the peer gave no reason");
    }
    return error_set(out, code, "%.*s", n < ERROR_TEXT_MAX ? (int)n : ERROR_TEXT_MAX, s);
}
