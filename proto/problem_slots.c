/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/op.h"
#include "proto/record.h"

void slots_init(struct slots *g, const struct op_index *index)
{
    g->index = index;
    g->has_op = false;
    g->guess = 0;
    g->list_n = 0;
    for (size_t i = 0; i < index->op->n_fields; i++) {
        g->slots[i].v.type = VALUE_NONE;
    }
}

static int unknown_field(const struct op *op, const char *name, size_t n, struct error *err)
{
    struct nearest near;
    nearest_begin(&near, name, n);
    for (size_t i = 0; i < op->n_fields; i++) {
        nearest_offer(&near, op->fields[i].name);
    }
    return nearest_refuse(&near, op->name, err);
}

int slots_find(struct slots *g, const char *name, size_t n, struct slot **out, struct error *err)
{
    const struct record *names = &g->index->names;
    size_t at = g->guess; /* most senders give the fields in order */
    if ((at >= names->n || !text_is(names->fields[at].name, name, n)) &&
        !record_find_n(names, name, n, &at)) {
        return unknown_field(g->index->op, name, n, err);
    }
    g->guess = at + 1;
    *out = &g->slots[at];
    if ((*out)->v.type != VALUE_NONE) {
        return error_set(err, ERROR_CONFLICT, "field '%s' is given twice", names->fields[at].name);
    }
    return 0;
}

/* ---- checking and appending ---------------------------------------------------------------- */

void slots_put_accepted(struct text_out *o, const struct op_field *f)
{
    char range[64];
    switch (f->type) {
    case VALUE_INT:
        snprintf(range, sizeof(range), "an integer %" PRId64 "..%" PRId64, f->min, f->max);
        text_puts(o, range);
        break;
    case VALUE_TEXT:
        if (f->choices) {
            text_put_choices(o, f->choices);
        } else {
            text_puts(o, "text");
        }
        break;
    case VALUE_BOOL:
        text_puts(o, "true or false");
        break;
    default:
        text_puts(o, "a number");
        break;
    }
}

/* Sets an error that ends with the field's accepted values. `what` begins the error message: "M is
 * 0, but takes", or "grouped_gemm needs M:". */
static int slots_refuse(const char *what, const struct op_field *f, struct error *err)
{
    char accepted[200];
    struct text_out a = text_out_begin(accepted, sizeof(accepted));
    slots_put_accepted(&a, f);
    return error_set(err, ERROR_INVALID, "%s %s%s%s%s", what, accepted, f->help ? " (" : "",
                     f->help ? f->help : "", f->help ? ")" : "");
}

static int slots_refuse_value(const struct op_field *f, const struct slot *s, struct error *err)
{
    char value[80], what[200];
    if (s->v.type == VALUE_TEXT) {
        snprintf(value, sizeof(value), "'%s'", text_show(s->v.text, s->text_n).text);
    } else {
        value_format(&s->v, value, sizeof(value));
    }
    snprintf(what, sizeof(what), "%s is %s, but takes", f->name, value);
    return slots_refuse(what, f, err);
}

static int slots_refuse_missing(const struct op *op, const struct op_field *f, struct error *err)
{
    char what[OP_NAME_MAX + RECORD_NAME_MAX + 16];
    snprintf(what, sizeof(what), "%s needs %s:", op->name, f->name);
    return slots_refuse(what, f, err);
}

static bool slots_check_int(const struct op_field *f, struct slot *s)
{
    if (s->v.type == VALUE_REAL) {
        int64_t integer;
        if (!text_real_is_int(s->v.real, &integer)) {
            return false;
        }
        s->v = VALUE_OF_INT(integer);
    }
    return s->v.type == VALUE_INT && s->v.integer >= f->min && s->v.integer <= f->max;
}

static bool check_real(struct slot *s)
{
    if (s->v.type == VALUE_INT) {
        s->v = VALUE_OF_REAL((double)s->v.integer);
    }
    return s->v.type == VALUE_REAL && s->v.real - s->v.real == 0; /* true for a finite real */
}

static bool slots_check_text(const struct op_field *f, const struct slot *s)
{
    if (s->v.type != VALUE_TEXT) {
        return false;
    }
    if (!f->choices) {
        return !memchr(s->v.text, 0, s->text_n) && text_utf8(s->v.text, s->text_n);
    }
    return text_find(f->choices, s->v.text, s->text_n) >= 0;
}

static bool check_slot(const struct op_field *f, struct slot *s)
{
    switch (f->type) {
    case VALUE_INT:
        return slots_check_int(f, s);
    case VALUE_REAL:
        return check_real(s);
    case VALUE_TEXT:
        return slots_check_text(f, s);
    default:
        return s->v.type == f->type;
    }
}

static int slots_append_fields(struct problem *p, struct slots *g, struct error *err)
{
    record_init(&p->fields);
    for (size_t i = 0; i < g->index->op->n_fields; i++) {
        const struct op_field *f = op_index_field_at(g->index, i);
        struct slot *s = &g->slots[i];
        if (s->v.type == VALUE_NONE) {
            if (f->required) {
                return slots_refuse_missing(g->index->op, f, err);
            }
            s->v = f->fallback;
            s->text_n = f->fallback.type == VALUE_TEXT ? strlen(f->fallback.text) : 0;
            if (s->v.type == VALUE_NONE) {
                continue;
            }
        } else if (!check_slot(f, s)) {
            return slots_refuse_value(f, s, err);
        } else if (f->restricts && !s->v.flag) {
            continue;
        }
        if (!record_push(&p->fields, g->index->names.fields[i].name, &s->v, s->text_n)) {
            return error_set(err, ERROR_INVALID,
                             "%s is too long: all text of a problem is at most %d bytes", f->name,
                             RECORD_TEXT_MAX);
        }
    }
    return 0;
}

static bool slots_has_value(const struct slot *s, const struct value *v)
{
    if (v->type == VALUE_TEXT) {
        return s->v.type == VALUE_TEXT && text_is(v->text, s->v.text, s->text_n);
    }
    return (s->v.type == VALUE_INT && s->v.integer == v->integer) ||
           (s->v.type == VALUE_REAL && s->v.real == (double)v->integer);
}

/* Sets the fields of an alias, which are integers and texts. Refuses other given values. */
static int slots_apply_alias(struct slots *g, const struct op_alias *alias, struct error *err)
{
    for (size_t i = 0; i < OP_ALIAS_SETS_MAX && alias->sets[i].field; i++) {
        const char *name = alias->sets[i].field;
        const struct value *v = &alias->sets[i].value;
        size_t at;
        if (!record_find_n(&g->index->names, name, strlen(name), &at)) {
            continue;
        }
        struct slot *s = &g->slots[at];
        if (s->v.type != VALUE_NONE && !slots_has_value(s, v)) {
            char value[80];
            value_format(v, value, sizeof(value));
            return error_set(err, ERROR_CONFLICT,
                             "%s has %s=%s, but %s is given otherwise; use op %s", alias->name,
                             name, value, name, g->index->op->name);
        }
        s->v = *v;
        s->text_n = v->type == VALUE_TEXT ? strlen(v->text) : 0;
    }
    return 0;
}

int slots_make_problem(struct problem *p, struct slots *g, const struct op_alias *alias,
                       struct error *err)
{
    int r = alias ? slots_apply_alias(g, alias, err) : 0;
    r = r ? r : slots_append_fields(p, g, err);
    if (r < 0) {
        return r;
    }
    return p->op->check ? p->op->check(p, err) : 0;
}
