/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "client/clock.h"
#include "client/kernel.h"
#include "proto/hash.h"

enum { IMAGE_BYTES_MAX = 256 * 1024 * 1024 };

struct image_read {
    const struct module_order *order;
    const char *id;
    char *data;   /* owned */
    int64_t size; /* of the whole, from the first chunk; -1: not known */
    int64_t have;
};

static int learn_size(struct image_read *m, const struct wire_obj *result, struct error *err)
{
    int64_t size = -1;
    wire_get_int(wire_find(result, "size"), &size);
    if (size < 1 || size > IMAGE_BYTES_MAX || (m->size >= 0 && size != m->size)) {
        return error_set(err, ERROR_STORE,
                         "gemmd says that module %s has %lld bytes: it changed, or "
                         "is damaged",
                         m->id, (long long)size);
    }
    if (m->size < 0) {
        m->data = malloc((size_t)size);
        m->size = size;
    }
    return m->data ? 0
                   : error_set(err, ERROR_NO_MEMORY, "no memory for a module of %lld bytes",
                               (long long)size);
}

static int take_chunk(void *ctx, const struct wire_obj *result, struct error *err)
{
    struct image_read *m = ctx;
    int r = learn_size(m, result, err);
    if (r) {
        return r;
    }
    const void *data = NULL;
    size_t n = 0;
    if (!wire_get_bin(wire_find(result, "data"), &data, &n) || n == 0 ||
        n > (size_t)(m->size - m->have)) {
        return error_set(err, ERROR_STORE,
                         "gemmd gave %zu bytes of module %s where at most %lld are "
                         "left",
                         n, m->id, (long long)(m->size - m->have));
    }
    memcpy(m->data + m->have, data, n);
    m->have += (int64_t)n;
    const struct module_order *o = m->order;
    if (o->known && wire_type_of(wire_find(result, "problem")) != WIRE_NIL) {
        *o->known = problem_unpack(o->made_for, wire_find(result, "problem"), NULL) == 0;
    }
    return 0;
}

static int fetch_chunk(struct gemmd *g, struct image_read *m, int64_t deadline, struct error *err)
{
    WIRE_BUF_AUTO params = WIRE_BUF_NULL;
    const bool asks = m->order->known && m->order->key[0] && m->have == 0;
    wire_put_map(&params, 2 + asks);
    wire_put_kv_str(&params, "id", m->id);
    wire_put_kv_int(&params, "offset", m->have);
    if (asks) {
        wire_put_kv_str(&params, "key", m->order->key);
    }
    const struct session_request q = {
        .method = "module", .params = &params, .repeatable = true, .deadline = deadline};
    return handle_call(g, &q, take_chunk, m, err);
}

static int check_hash(const struct image_read *m, struct error *err)
{
    char hex[HASH_HEX];
    hash128_hex(m->data, (size_t)m->size, hex);
    if (strcmp(hex, m->id) != 0) {
        return error_set(err, ERROR_STORE,
                         "module %s arrived with the content of %s: the daemon's "
                         "cache is damaged; evict its answers",
                         m->id, hex);
    }
    return 0;
}

int module_fetch(struct gemmd *g, const struct module_order *o, void **data, size_t *size,
                 struct error *err)
{
    struct image_read m = {.order = o, .id = o->id, .size = -1};
    const int64_t deadline = handle_deadline(g, 0, false);
    int r = 0;
    while (r == 0 && m.have != m.size) {
        r = fetch_chunk(g, &m, deadline, err);
    }
    r = r ? r : check_hash(&m, err);
    if (r) {
        free(m.data);
        return r;
    }
    *data = m.data;
    *size = (size_t)m.size;
    return 0;
}

int gemmd_module(struct gemmd *g, const char *module, void **data, size_t *size,
                 struct gemmd_error *err)
{
    struct error e;
    int r = 0;
    if (!g) {
        r = handle_enter(NULL, 0, &e);
    } else if (!data || !size) {
        r = error_set(&e, ERROR_INVALID, "data and size may not be NULL");
    } else if (!module || strlen(module) != HASH_HEX - 1) {
        r = error_set(&e, ERROR_INVALID, "a module is named by 32 hex digits, not \"%.40s\"",
                      module ? module : "");
    } else {
        const struct module_order order = {.id = module, .key = ""};
        r = module_fetch(g, &order, data, size, &e);
    }
    return handle_result(r, &e, err);
}
