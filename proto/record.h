/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A record: a small map of named scalars, always sorted by name (bytewise). Problems, configs and
 * spaces are records, so that the same code gives them a canonical order, a one-line text form
 * ("BLOCK_SIZE_M=64 permute_x=true"), JSON, MessagePack and equality.
 *
 * A record is a plain value without pointers into the heap. record_copy copies only the used part;
 * a record is never freed. Text values live in the record's own arena.
 */
#ifndef GEMMD_PROTO_RECORD_H
#define GEMMD_PROTO_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

struct text_out;
struct wire_buf;
struct wire_obj;

enum {
    RECORD_FIELDS_MAX = 40,
    RECORD_NAME_MAX = 32,   /* with the terminating zero */
    RECORD_TEXT_MAX = 8192, /* all text values together, with their zeros */
};

enum value_type { VALUE_NONE, VALUE_BOOL, VALUE_INT, VALUE_REAL, VALUE_TEXT };

struct value {
    enum value_type type;
    union {
        bool flag;
        int64_t integer;
        double real;
        const char *text; /* borrowed from the value's maker; records copy the text */
        size_t at;        /* in a record's field: offset of the text */
    };
};

#define VALUE_OF_INT(v)  ((struct value){.type = VALUE_INT, .integer = (v)})
#define VALUE_OF_BOOL(v) ((struct value){.type = VALUE_BOOL, .flag = (v)})
#define VALUE_OF_REAL(v) ((struct value){.type = VALUE_REAL, .real = (v)})
#define VALUE_OF_TEXT(v) ((struct value){.type = VALUE_TEXT, .text = (v)})

bool value_equal(const struct value *a, const struct value *b);
/* One-line text of a value: integers, true/false, shortest round-trip reals (always with '.' or
 * exponent), and text. Text is bare, or in double quotes with \" \\ and \xNN when it is empty,
 * holds a space, quote, backslash, comma, '=' or control byte, or would read back as another type
 * ("64"). Returns the length written (always terminated, cut at size). */
size_t value_format(const struct value *v, char *out, size_t size);

struct record_field {
    char name[RECORD_NAME_MAX];
    struct value v; /* VALUE_TEXT: v.at is an offset in record.text */
};

struct record {
    uint32_t n;
    uint32_t used; /* bytes of text */
    struct record_field fields[RECORD_FIELDS_MAX];
    char text[RECORD_TEXT_MAX];
};

/* [A-Za-z_][A-Za-z0-9_.:-]*, shorter than RECORD_NAME_MAX */
bool record_name_ok(const char *name, size_t n);

void record_init(struct record *r);
void record_copy(struct record *to, const struct record *from);
bool record_equal(const struct record *a, const struct record *b);

/* Inserts or replaces; a failure changes nothing. ERROR_INVALID: empty or overlong name, name not
 * [A-Za-z_][A-Za-z0-9_.:-]*, a real that is not finite, text that is not UTF-8, or no room. -0.0
 * becomes 0.0, so that equal records have equal bytes. Pointers to texts of r become invalid. */
int record_set(struct record *r, const char *name, struct value v, struct error *err);
/* record_set for callers with constant names and sizes: asserts instead of failing. */
void record_put_int(struct record *r, const char *name, int64_t v);
void record_put_bool(struct record *r, const char *name, bool v);
void record_put_text(struct record *r, const char *name, const char *v);
bool record_remove(struct record *r, const char *name); /* false: was absent */

/* False when absent; the text of a VALUE_TEXT points into r. */
bool record_get(const struct record *r, const char *name, struct value *out);
struct value record_at(const struct record *r, size_t i); /* i < r->n */
/* The value of a field of the function's type; `fallback` when the field is absent or has another
 * type. */
int64_t record_int(const struct record *r, const char *name, int64_t fallback);
bool record_bool(const struct record *r, const char *name, bool fallback);
const char *record_text(const struct record *r, const char *name, const char *fallback);

/* "A=1 B=true C=\"two words\"": fields in order, separated by a space. Returns the length of the
 * whole text; the output is cut (and terminated) at size, like snprintf. */
size_t record_format(const struct record *r, char *out, size_t size);
/* Reads record_format's text; also accepts commas between fields. true/false (any case; Python
 * writes True/False) are bools, integers ints, decimal numbers reals, other words text. Starts from
 * an empty record. ERROR_INVALID names the offending word; a repeated name is ERROR_CONFLICT. */
int record_parse(struct record *r, const char *text, struct error *err);

/* Writes a JSON object, keys in order; returns like snprintf. */
size_t record_to_json(const struct record *r, char *out, size_t size);
/* Reads a flat JSON object; nested values are ERROR_INVALID; null fields are left out. */
int record_from_json(struct record *r, const char *json, size_t length, struct error *err);

/* Appends the value as one MessagePack item; VALUE_NONE becomes nil. */
void value_pack(struct wire_buf *b, const struct value *v);
/* Appends the record's canonical bytes: a MessagePack map, keys in order, shortest integers. */
void record_pack(struct wire_buf *buf, const struct record *r);
/* Reads a MessagePack map of scalars; nil fields are left out; binary, arrays and maps are
 * ERROR_INVALID; duplicate names are ERROR_CONFLICT. */
int record_unpack(struct record *r, const struct wire_obj *map, struct error *err);

/* ---- inside proto/ -------------------------------------------------------------------------- */

/* Functions for files of proto/ only: they take text with a length instead of a final zero, or
 * append fields in order. */

/* record_set with lengths; text_n is used for VALUE_TEXT only. */
int record_set_n(struct record *r, const char *name, size_t n, const struct value *v, size_t text_n,
                 struct error *err);
/* Returns whether the record has the name; *at: its index, or the index to insert it at. */
bool record_find_n(const struct record *r, const char *name, size_t n, size_t *at);
static inline bool record_has_n(const struct record *r, const char *name, size_t n)
{
    size_t at;
    return record_find_n(r, name, n, &at);
}
/* Appends a field. `name` must be greater, in record_find_n's order, than the names of all present
 * fields; v and name must be valid. `name` is padded to RECORD_NAME_MAX. False: no room. */
bool record_push(struct record *r, const char name[RECORD_NAME_MAX], const struct value *v,
                 size_t text_n);
void value_put(struct text_out *o, const struct value *v); /* writes the one-line form */
void record_put(struct text_out *o, const struct record *r);

/* Reads a scalar of the wire; its text points into the message. False: o is no scalar, or an
 * integer beyond int64_t. */
bool value_unpack(const struct wire_obj *o, struct value *v, size_t *text_n);
void record_pack_fields(struct wire_buf *b, const struct record *r); /* without the map's head */
/* record_unpack that leaves out the field `but`. */
int record_unpack_but(struct record *r, const struct wire_obj *map, const char *but,
                      struct error *err);

#endif
