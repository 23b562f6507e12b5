/* SPDX-License-Identifier: Apache-2.0 */
/* The registered ops, each with its fields in canonical order. Internal to proto/. */
#ifndef GEMMD_PROTO_OP_H
#define GEMMD_PROTO_OP_H

#include "proto/problem.h"
#include "proto/text.h"

enum { OPS_MAX = 16 };

struct op_index {
    const struct op *op; /* borrowed */
    struct record names; /* the names of the op's fields; the values are indices into op->fields */
};

static inline const struct op_field *op_index_field_at(const struct op_index *x, size_t at)
{
    return &x->op->fields[x->names.fields[at].v.integer];
}

/* The sorted names of a registered op's fields; NULL for custom and unknown ops. */
const struct op_index *op_index_of(const struct op *op);
/* Finds an op by its name or by an alias. NULL: unknown. *alias: the alias, or NULL. */
const struct op *op_find_n(const char *name, size_t n, const struct op_alias **alias);
bool op_is_custom(const struct op *op);
void op_names(struct text_out *o); /* "grouped_gemm, gemm, custom:<name> ...", for error messages */

/* ---- problem_slots.c ------------------------------------------------------------------------ */

/*
 * Makes the canonical record of a problem from given fields in any order; fields may be missing. A
 * slot for each field of the op, in canonical order, collects the given values; then the values are
 * checked and appended in that order. No value is searched for or moved twice, because every hit
 * passes here. Internal to proto/.
 */

struct slot {
    struct value v; /* VALUE_NONE: not given */
    size_t text_n;
};

struct slots {
    const struct op_index *index;
    struct slot slots[RECORD_FIELDS_MAX]; /* in the order of index->names; op->n_fields of them */
    bool has_op;                          /* the map from the wire has had "op" */
    size_t guess;                         /* the slot expected next: most senders keep the order */
    size_t list_n;
    char list[RECORD_TEXT_MAX]; /* text made from an array of integers on the wire */
};

void slots_init(struct slots *g, const struct op_index *index);
/* Finds the slot of a field, which the caller fills. ERROR_UNKNOWN_FIELD; ERROR_CONFLICT: the field
 * was given before. */
int slots_find(struct slots *g, const char *name, size_t n, struct slot **out, struct error *err);
/* Checks the given values and makes p->fields; the caller has set p->op. `alias`: the name by which
 * the op was given, NULL: its own. */
int slots_make_problem(struct problem *p, struct slots *g, const struct op_alias *alias,
                       struct error *err);
/* Writes a field's accepted values: "an integer 1..1024", "forward, dX or dW", "true or false",
 * "text". */
void slots_put_accepted(struct text_out *o, const struct op_field *f);

#endif
