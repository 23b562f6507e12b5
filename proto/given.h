/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From what was given, in any order and completeness, to the canonical record of a problem. Given
 * values are gathered in one slot per field of the op (in canonical order), then checked and
 * appended in that order, so that nothing is searched or moved twice: this is on the path of every
 * hit. Internal to proto/.
 */
#ifndef GEMMD_PROTO_GIVEN_H
#define GEMMD_PROTO_GIVEN_H

#include "proto/op.h"

struct slot {
    struct value v; /* VALUE_NONE: not given */
    size_t text_n;
};

struct given {
    const struct op_index *index;
    struct slot slots[RECORD_FIELDS_MAX]; /* by place in the index; only n_fields are in use */
    bool has_op;                          /* the wire's map has named it */
    size_t guess;                         /* where the next name is looked for first */
    size_t list_n;
    char list[RECORD_TEXT_MAX]; /* arrays of integers, made text */
};

void given_init(struct given *g, const struct op_index *index);
/* The slot of a name that has not been given before: the caller fills it. */
int given_slot(struct given *g, const char *name, size_t n, struct slot **out, struct error *err);
/* Checks what was gathered and builds the problem of it, whose op is set. */
int given_finish(struct problem *p, struct given *g, bool gemm, struct error *err);
/* What a field takes: "an integer 1..1024", "forward, dX or dW", "true or false", "text". */
void given_put_accepted(struct text_out *o, const struct op_field *f);

#endif
