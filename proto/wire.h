/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A wrapper of MessagePack: only proto/ includes msgpack.h.
 *
 * Writing: a growing buffer and one call per item. A failed allocation sets `failed`, and later
 * puts do nothing; the sender of the buffer checks the flag once. Reading: a bounding scan
 * (proto/scan.h) has already walked the bytes, so a decode never allocates more than a small
 * multiple of the message. Objects live in the arena of a `struct wire_doc`, which is reused from
 * message to message.
 */
#ifndef GEMMD_PROTO_WIRE_H
#define GEMMD_PROTO_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

struct wire_buf {
    uint8_t *data; /* owned */
    size_t len, cap;
    bool failed; /* an allocation failed; the content is not a message */
};
#define WIRE_BUF_NULL ((struct wire_buf){0})

void wire_buf_deinit(struct wire_buf *b); /* may be called twice */
void wire_buf_clear(struct wire_buf *b);  /* keeps the memory */
#define WIRE_BUF_AUTO __attribute__((cleanup(wire_buf_deinit))) struct wire_buf

void wire_put_nil(struct wire_buf *b);
void wire_put_bool(struct wire_buf *b, bool v);
void wire_put_int(struct wire_buf *b, int64_t v);
void wire_put_uint(struct wire_buf *b, uint64_t v);
void wire_put_real(struct wire_buf *b, double v);
/* Text on the wire is UTF-8: invalid bytes become '?'. */
void wire_put_str(struct wire_buf *b, const char *v); /* NULL: nil */
void wire_put_strn(struct wire_buf *b, const char *v, size_t n);
void wire_put_bin(struct wire_buf *b, const void *v, size_t n);
void wire_put_array(struct wire_buf *b, size_t n);
void wire_put_map(struct wire_buf *b, size_t n);
void wire_put_raw(struct wire_buf *b, const void *packed, size_t n); /* bytes in MessagePack */

/* key and value of a map in one call */
#define wire_put_kv_str(b, k, v)  (wire_put_str((b), (k)), wire_put_str((b), (v)))
#define wire_put_kv_int(b, k, v)  (wire_put_str((b), (k)), wire_put_int((b), (v)))
#define wire_put_kv_real(b, k, v) (wire_put_str((b), (k)), wire_put_real((b), (v)))
#define wire_put_kv_bool(b, k, v) (wire_put_str((b), (k)), wire_put_bool((b), (v)))

struct wire_obj; /* never defined: a decoded object, borrowed from its wire_doc */
struct wire_doc; /* the memory (arena) of the objects of a decoded message */

struct wire_doc *wire_doc_new(void); /* NULL: no memory */
struct wire_doc *wire_doc_free(struct wire_doc *d);
/* Decodes the object that fills data[0..n); clears the arena first. Text and binary point into
 * data, which must outlive the objects. ERROR_MALFORMED, ERROR_NO_MEMORY. */
int wire_decode(struct wire_doc *d, const void *data, size_t n, const struct wire_obj **out,
                struct error *err);

enum wire_type {
    WIRE_NIL,
    WIRE_BOOL,
    WIRE_INT,
    WIRE_REAL,
    WIRE_STR,
    WIRE_BIN,
    WIRE_ARRAY,
    WIRE_MAP,
    WIRE_OTHER
};
enum wire_type wire_type_of(const struct wire_obj *o); /* NULL: WIRE_NIL */
bool wire_get_bool(const struct wire_obj *o, bool *out);
bool wire_get_int(const struct wire_obj *o,
                  int64_t *out);              /* false also for an integer that does not fit */
uint64_t wire_uint(const struct wire_obj *o); /* value of an integer >= 0; else 0 */
bool wire_get_real(const struct wire_obj *o, double *out);                /* integers convert */
bool wire_get_str(const struct wire_obj *o, const char **out, size_t *n); /* not terminated */
bool wire_is_str(const struct wire_obj *o, const char *text);             /* equals this text */
bool wire_get_bin(const struct wire_obj *o, const void **out, size_t *n);
size_t wire_count(const struct wire_obj *o); /* of an array or map; else 0 */
const struct wire_obj *wire_at(const struct wire_obj *array, size_t i);
void wire_pair(const struct wire_obj *map, size_t i, const struct wire_obj **key,
               const struct wire_obj **value);
/* Value under a text key; NULL when absent or not a map. Linear: maps here are small. */
const struct wire_obj *wire_find(const struct wire_obj *map, const char *key);
/* Copies text into out (terminated). False: not text, too long, or with a zero byte. */
bool wire_copy_str(const struct wire_obj *o, char *out, size_t size);
/* Encodes a decoded object again. */
void wire_put_obj(struct wire_buf *b, const struct wire_obj *o);
/* JSON text of an object (binary as base64); ERROR_NO_MEMORY. *out is malloc'ed. */
int wire_to_json(const struct wire_obj *o, char **out, struct error *err);
int wire_buf_to_json(const struct wire_buf *b, char **out, struct error *err); /* encoded object */
/* MessagePack of a JSON text. ERROR_INVALID with line and column. */
int wire_from_json(struct wire_buf *b, const char *json, struct error *err);

#endif
