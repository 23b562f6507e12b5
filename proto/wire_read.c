/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading: msgpack-c decodes into a zone that is cleared, not freed, from message to message, so a
 * stream of ordinary messages costs no malloc. A `struct wire_obj` is a msgpack_object under
 * another name: nobody outside proto/ needs to know.
 */
#include <stdlib.h>
#include <string.h>

#include "proto/text.h"
#include "proto/wire_inner.h"

/* Objects are 24 bytes: a chunk holds those of any ordinary request. */
enum { ZONE_CHUNK = 16 * 1024 };

struct wire_doc {
    msgpack_zone zone;
    msgpack_object root;
};

struct wire_doc *wire_doc_new(void)
{
    struct wire_doc *d = malloc(sizeof(*d));
    if (!d) {
        return NULL;
    }
    if (!msgpack_zone_init(&d->zone, ZONE_CHUNK)) {
        free(d);
        return NULL;
    }
    return d;
}

struct wire_doc *wire_doc_free(struct wire_doc *d)
{
    if (d) {
        msgpack_zone_destroy(&d->zone);
        free(d);
    }
    return NULL;
}

int wire_decode(struct wire_doc *d, const void *data, size_t n, const struct wire_obj **out,
                struct error *err)
{
    msgpack_zone_clear(&d->zone);
    size_t used = 0;
    switch (msgpack_unpack(data, n, &used, &d->zone, &d->root)) {
    case MSGPACK_UNPACK_SUCCESS:
        *out = wire_out(&d->root);
        return 0;
    case MSGPACK_UNPACK_EXTRA_BYTES:
        return error_set(err, ERROR_MALFORMED,
                         "the MessagePack object ends after %zu of %zu bytes; send one object",
                         used, n);
    case MSGPACK_UNPACK_CONTINUE:
        return error_set(err, ERROR_MALFORMED,
                         "the MessagePack object is cut off after %zu bytes; send all of it", n);
    case MSGPACK_UNPACK_NOMEM_ERROR:
        return error_set(err, ERROR_NO_MEMORY, "no memory to decode a message of %zu bytes", n);
    case MSGPACK_UNPACK_PARSE_ERROR:
        break;
    }
    return error_set(err, ERROR_MALFORMED, "not MessagePack: bad byte at offset %zu", used);
}

enum wire_type wire_type_of(const struct wire_obj *o)
{
    if (!o) {
        return WIRE_NIL;
    }
    switch (wire_in(o)->type) {
    case MSGPACK_OBJECT_NIL:
        return WIRE_NIL;
    case MSGPACK_OBJECT_BOOLEAN:
        return WIRE_BOOL;
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        return WIRE_INT;
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        return WIRE_REAL;
    case MSGPACK_OBJECT_STR:
        return WIRE_STR;
    case MSGPACK_OBJECT_BIN:
        return WIRE_BIN;
    case MSGPACK_OBJECT_ARRAY:
        return WIRE_ARRAY;
    case MSGPACK_OBJECT_MAP:
        return WIRE_MAP;
    case MSGPACK_OBJECT_EXT:
        break;
    }
    return WIRE_OTHER;
}

bool wire_get_bool(const struct wire_obj *o, bool *out)
{
    if (!o || wire_in(o)->type != MSGPACK_OBJECT_BOOLEAN) {
        return false;
    }
    *out = wire_in(o)->via.boolean;
    return true;
}

bool wire_get_int(const struct wire_obj *o, int64_t *out)
{
    if (!o) {
        return false;
    }
    if (wire_in(o)->type == MSGPACK_OBJECT_NEGATIVE_INTEGER) {
        *out = wire_in(o)->via.i64;
        return true;
    }
    if (wire_in(o)->type == MSGPACK_OBJECT_POSITIVE_INTEGER && wire_in(o)->via.u64 <= INT64_MAX) {
        *out = (int64_t)wire_in(o)->via.u64;
        return true;
    }
    return false;
}

uint64_t wire_uint(const struct wire_obj *o)
{
    return o && wire_in(o)->type == MSGPACK_OBJECT_POSITIVE_INTEGER ? wire_in(o)->via.u64 : 0;
}

bool wire_get_real(const struct wire_obj *o, double *out)
{
    if (!o) {
        return false;
    }
    switch (wire_in(o)->type) {
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        *out = wire_in(o)->via.f64;
        return true;
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        *out = (double)wire_in(o)->via.u64;
        return true;
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        *out = (double)wire_in(o)->via.i64;
        return true;
    default:
        return false;
    }
}

bool wire_get_str(const struct wire_obj *o, const char **out, size_t *n)
{
    if (!o || wire_in(o)->type != MSGPACK_OBJECT_STR) {
        return false;
    }
    *out = wire_chars(wire_in(o)->via.str.ptr);
    *n = wire_in(o)->via.str.size;
    return true;
}

bool wire_is_str(const struct wire_obj *o, const char *text)
{
    const char *s;
    size_t n;
    return wire_get_str(o, &s, &n) && text_is(text, s, n);
}

bool wire_get_bin(const struct wire_obj *o, const void **out, size_t *n)
{
    if (!o || wire_in(o)->type != MSGPACK_OBJECT_BIN) {
        return false;
    }
    *out = wire_chars(wire_in(o)->via.bin.ptr);
    *n = wire_in(o)->via.bin.size;
    return true;
}

size_t wire_count(const struct wire_obj *o)
{
    switch (wire_type_of(o)) {
    case WIRE_ARRAY:
        return wire_in(o)->via.array.size;
    case WIRE_MAP:
        return wire_in(o)->via.map.size;
    default:
        return 0;
    }
}

const struct wire_obj *wire_at(const struct wire_obj *array, size_t i)
{
    if (wire_type_of(array) != WIRE_ARRAY || i >= wire_in(array)->via.array.size) {
        return NULL;
    }
    return wire_out(wire_in(array)->via.array.ptr + i);
}

void wire_pair(const struct wire_obj *map, size_t i, const struct wire_obj **key,
               const struct wire_obj **value)
{
    *key = *value = NULL;
    if (wire_type_of(map) == WIRE_MAP && i < wire_in(map)->via.map.size) {
        *key = wire_out(&wire_in(map)->via.map.ptr[i].key);
        *value = wire_out(&wire_in(map)->via.map.ptr[i].val);
    }
}

const struct wire_obj *wire_find(const struct wire_obj *map, const char *key)
{
    size_t n = strlen(key);
    if (wire_type_of(map) != WIRE_MAP) {
        return NULL;
    }
    for (uint32_t i = 0; i < wire_in(map)->via.map.size; i++) {
        const msgpack_object_kv *kv = &wire_in(map)->via.map.ptr[i];
        if (kv->key.type == MSGPACK_OBJECT_STR && kv->key.via.str.size == n &&
            memcmp(wire_chars(kv->key.via.str.ptr), key, n) == 0) {
            return wire_out(&kv->val);
        }
    }
    return NULL;
}

bool wire_copy_str(const struct wire_obj *o, char *out, size_t size)
{
    const char *s;
    size_t n;
    if (!wire_get_str(o, &s, &n) || n >= size || memchr(s, 0, n)) {
        return false;
    }
    memcpy(out, s, n);
    out[n] = 0;
    return true;
}

static void put_children(struct wire_buf *b, const struct wire_obj *o)
{
    if (wire_type_of(o) == WIRE_ARRAY) {
        wire_put_array(b, wire_count(o));
        for (size_t i = 0; i < wire_count(o); i++) {
            wire_put_obj(b, wire_at(o, i));
        }
        return;
    }
    wire_put_map(b, wire_count(o));
    for (size_t i = 0; i < wire_count(o); i++) {
        const struct wire_obj *key, *value;
        wire_pair(o, i, &key, &value);
        wire_put_obj(b, key);
        wire_put_obj(b, value);
    }
}

void wire_put_obj(struct wire_buf *b, const struct wire_obj *o)
{
    const msgpack_object *m = wire_in(o);
    switch (wire_type_of(o)) {
    case WIRE_BOOL:
        wire_put_bool(b, m->via.boolean);
        break;
    case WIRE_INT:
        if (m->type == MSGPACK_OBJECT_NEGATIVE_INTEGER) {
            wire_put_int(b, m->via.i64);
        } else {
            wire_put_uint(b, m->via.u64);
        }
        break;
    case WIRE_REAL:
        wire_put_real(b, m->via.f64);
        break;
    case WIRE_STR:
        wire_put_strn(b, wire_chars(m->via.str.ptr), m->via.str.size);
        break;
    case WIRE_BIN:
        wire_put_bin(b, wire_chars(m->via.bin.ptr), m->via.bin.size);
        break;
    case WIRE_ARRAY:
    case WIRE_MAP:
        put_children(b, o);
        break;
    case WIRE_NIL:
    case WIRE_OTHER: /* the scan lets none through */
        wire_put_nil(b);
        break;
    }
}
