/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading: msgpack-c decodes into a zone that is cleared, not freed, between messages, so a stream
 * of ordinary messages costs no malloc. A `struct wire_obj` is a msgpack_object under another name,
 * and a `struct wire_doc` a msgpack_zone, which hides msgpack from users of proto/.
 */
#include <string.h>

#include "proto/text.h"
#include "proto/wire_inner.h"

/* Objects have 24 bytes: a chunk holds the objects of any ordinary request. */
enum { ZONE_CHUNK = 16 * 1024 };

static msgpack_zone *wire_zone(struct wire_doc *d)
{
    return (msgpack_zone *)(void *)d;
}

struct wire_doc *wire_doc_new(void)
{
    return (struct wire_doc *)(void *)msgpack_zone_new(ZONE_CHUNK);
}

struct wire_doc *wire_doc_free(struct wire_doc *d)
{
    msgpack_zone_free(wire_zone(d));
    return NULL;
}

int wire_decode(struct wire_doc *d, const void *data, size_t n, const struct wire_obj **out,
                struct error *err)
{
    size_t used = 0;
    msgpack_zone_clear(wire_zone(d));
    msgpack_object *root = msgpack_zone_malloc(wire_zone(d), sizeof(*root));
    *out = wire_out(root);
    switch (root ? msgpack_unpack(data, n, &used, wire_zone(d), root)
                 : MSGPACK_UNPACK_NOMEM_ERROR) {
    case MSGPACK_UNPACK_SUCCESS:
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
    static const enum wire_type types[] = {
        [MSGPACK_OBJECT_NIL] = WIRE_NIL,
        [MSGPACK_OBJECT_BOOLEAN] = WIRE_BOOL,
        [MSGPACK_OBJECT_POSITIVE_INTEGER] = WIRE_INT,
        [MSGPACK_OBJECT_NEGATIVE_INTEGER] = WIRE_INT,
        [MSGPACK_OBJECT_FLOAT32] = WIRE_REAL,
        [MSGPACK_OBJECT_FLOAT64] = WIRE_REAL,
        [MSGPACK_OBJECT_STR] = WIRE_STR,
        [MSGPACK_OBJECT_BIN] = WIRE_BIN,
        [MSGPACK_OBJECT_ARRAY] = WIRE_ARRAY,
        [MSGPACK_OBJECT_MAP] = WIRE_MAP,
        [MSGPACK_OBJECT_EXT] = WIRE_OTHER,
    };
    return o ? types[wire_in(o)->type] : WIRE_NIL;
}

bool wire_get_bool(const struct wire_obj *o, bool *out)
{
    if (wire_type_of(o) != WIRE_BOOL) {
        return false;
    }
    *out = wire_in(o)->via.boolean;
    return true;
}

bool wire_get_int(const struct wire_obj *o, int64_t *out)
{
    struct value v;
    size_t n;
    if (wire_type_of(o) != WIRE_INT || !wire_scalar(wire_in(o), &v, &n)) {
        return false;
    }
    *out = v.integer;
    return true;
}

uint64_t wire_uint(const struct wire_obj *o)
{
    return o && wire_in(o)->type == MSGPACK_OBJECT_POSITIVE_INTEGER ? wire_in(o)->via.u64 : 0;
}

bool wire_get_real(const struct wire_obj *o, double *out)
{
    if (wire_type_of(o) == WIRE_REAL) {
        *out = wire_in(o)->via.f64;
    } else if (wire_type_of(o) == WIRE_INT) {
        bool negative = wire_in(o)->type == MSGPACK_OBJECT_NEGATIVE_INTEGER;
        *out = negative ? (double)wire_in(o)->via.i64 : (double)wire_in(o)->via.u64;
    } else {
        return false;
    }
    return true;
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
