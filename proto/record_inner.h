/* SPDX-License-Identifier: Apache-2.0 */
/* Records from inside proto/: text with a length instead of a zero, and appending in order. */
#ifndef GEMMD_PROTO_RECORD_INNER_H
#define GEMMD_PROTO_RECORD_INNER_H

#include "proto/record.h"
#include "proto/text.h"

struct wire_buf;
struct wire_obj;

/* [A-Za-z_][A-Za-z0-9_.:-]*, shorter than RECORD_NAME_MAX */
bool record_name_ok(const char *name, size_t n);
/* record_set with lengths; text_n counts for VALUE_TEXT only. */
int record_set_n(struct record *r, const char *name, size_t n, const struct value *v, size_t text_n,
                 struct error *err);
/* Whether the name is there. */
bool record_has_n(const struct record *r, const char *name, size_t n);
/* Appends a field that sorts after all that are there; v and name are known to be good. `name` is
 * padded to RECORD_NAME_MAX. False: no room. */
bool record_push(struct record *r, const char name[RECORD_NAME_MAX], const struct value *v,
                 size_t text_n);
void value_put(struct text_out *o, const struct value *v); /* the one-line form */

/* A scalar of the wire; its text points into the message. False: not a scalar, or too large. */
bool value_unpack(const struct wire_obj *o, struct value *v, size_t *text_n);
void record_pack_fields(struct wire_buf *b, const struct record *r); /* without the map's head */
/* record_unpack, passing over one name. */
int record_unpack_but(struct record *r, const struct wire_obj *map, const char *but,
                      struct error *err);

#endif
