/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One list per message. A struct's fields are written once, as an X-macro. The macro gives the
 * struct, its table of fields, MessagePack both ways, and (in store/) SQL binding by column name.
 *
 *   #define TRIAL_FIELDS(X, T) X(T, INT, id, 0) X(T, TEXT, status, 16) X(T, RECORD, config, 0) ...
 *   SCHEMA_STRUCT(trial, TRIAL_FIELDS);          // in the header: struct trial, trial_schema
 *   SCHEMA_DEFINE(trial, TRIAL_FIELDS);          // in one .c file
 *
 *   Kinds: INT int64_t | REAL double | FLAG bool | TEXT char[n] | RECORD struct record |
 *          REALS struct { uint32_t n; double v[n]; }
 * The structs hold no pointers: they can be copied between threads. Absent and nil fields decode to
 * zero values. Only a REAL that is nil decodes to NaN, since NaN ("not known") is sent as nil. At
 * most 64 fields.
 */
#ifndef GEMMD_PROTO_SCHEMA_H
#define GEMMD_PROTO_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/record.h"
#include "proto/wire.h"

enum schema_kind { SCHEMA_INT, SCHEMA_REAL, SCHEMA_FLAG, SCHEMA_TEXT, SCHEMA_RECORD, SCHEMA_REALS };

struct schema_field {
    const char *name;
    enum schema_kind kind;
    size_t offset;
    size_t size;   /* of the member, bytes */
    size_t name_n; /* bytes of the name */
};

struct schema {
    const char *name;
    size_t size; /* of the struct */
    size_t n;
    const struct schema_field *fields;
};

#define SCHEMA_MEMBER_INT(name, n)    int64_t name;
#define SCHEMA_MEMBER_REAL(name, n)   double name;
#define SCHEMA_MEMBER_FLAG(name, n)   bool name;
#define SCHEMA_MEMBER_TEXT(name, n)   char name[n];
#define SCHEMA_MEMBER_RECORD(name, n) struct record name;
#define SCHEMA_MEMBER_REALS(name, size)                                                            \
    struct {                                                                                       \
        uint32_t n;                                                                                \
        double v[size];                                                                            \
    } name;
#define SCHEMA_MEMBER(type, kind, name, n) SCHEMA_MEMBER_##kind(name, n)
#define SCHEMA_ROW(type, kind, name, n)                                                            \
    {#name, SCHEMA_##kind, offsetof(struct type, name), sizeof(((struct type *)0)->name),          \
     sizeof(#name) - 1},

#define SCHEMA_STRUCT(type, LIST)                                                                  \
    struct type {                                                                                  \
        LIST(SCHEMA_MEMBER, type)                                                                  \
    };                                                                                             \
    extern const struct schema type##_schema

#define SCHEMA_DEFINE(type, LIST)                                                                  \
    static const struct schema_field type##_fields[] = {LIST(SCHEMA_ROW, type)};                   \
    const struct schema type##_schema = {#type, sizeof(struct type),                               \
                                         sizeof(type##_fields) / sizeof(type##_fields[0]),         \
                                         type##_fields}

/* Appends the object as a map of all fields; a NULL object as nil. schema_encode_fields appends
 * only the pairs, without the map's head. */
void schema_encode(struct wire_buf *b, const struct schema *s, const void *object);
void schema_encode_fields(struct wire_buf *b, const struct schema *s, const void *object);
enum schema_strictness { SCHEMA_LENIENT, SCHEMA_STRICT };
/* Reads an object from a map. STRICT (requests): a name outside the schema is ERROR_UNKNOWN_FIELD,
 * with the nearest known name in the error message. LENIENT (responses of a newer peer): the name
 * is ignored. A value of the wrong type, or text that does not fit, is ERROR_INVALID. NULL map: all
 * zero. */
int schema_decode(const struct schema *s, enum schema_strictness strict, const struct wire_obj *map,
                  void *object, struct error *err);
/* schema_decode for a map with other pairs, whose names are in `others` (NULL-terminated). */
int schema_decode_beside(const struct schema *s, enum schema_strictness strict,
                         const struct wire_obj *map, const char *const *others, void *object,
                         struct error *err);

/* ---- inside proto/ -------------------------------------------------------------------------- */

/* Sets all members as for an empty map. */
void schema_clear(const struct schema *s, void *object);
/* The index of the field, searched from `from` on; s->n: not found. */
size_t schema_find_field(const struct schema *s, size_t from, const char *name, size_t n);

#endif
