/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From what was given, in any order and completeness, to the canonical record. Given values are
 * gathered in one slot per field of the op (in canonical order), then checked and appended in that
 * order, so that nothing is searched or moved twice: this is on the path of every hit.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/op.h"
#include "proto/record_inner.h"
#include "proto/wire_inner.h"

struct slot {
    struct value v; /* VALUE_NONE: not given */
    size_t text_n;
};

struct given {
    const struct op_index *index;
    struct slot slots[RECORD_FIELDS_MAX]; /* by place in the index; only n_fields are in use */
    size_t guess;                         /* where the next name is looked for first */
    size_t list_n;
    char list[RECORD_TEXT_MAX]; /* arrays of integers, made text */
};

static void given_init(struct given *g, const struct op_index *index)
{
    g->index = index;
    g->guess = 0;
    g->list_n = 0;
    for (size_t i = 0; i < index->op->n_fields; i++) {
        g->slots[i].v.type = VALUE_NONE;
    }
}

static const struct op_field *field_at(const struct op_index *x, size_t at)
{
    return &x->op->fields[x->order[at]];
}

static int unknown_field(const struct op_index *x, const char *name, size_t n, struct error *err)
{
    struct text_nearest near;
    char known[320];
    struct text_out list = text_out_begin(known, sizeof(known));
    text_nearest_begin(&near, name, n);
    for (size_t i = 0; i < x->op->n_fields; i++) {
        text_nearest_offer(&near, x->op->fields[i].name);
        text_puts(&list, i > 0 ? ", " : "");
        text_puts(&list, x->op->fields[i].name);
    }
    const char *best = text_nearest_end(&near);
    if (best) {
        return error_set(err, ERROR_UNKNOWN_FIELD, "%s has no field '%s'; did you mean '%s'?",
                         x->op->name, text_show(name, n).text, best);
    }
    return error_set(err, ERROR_UNKNOWN_FIELD, "%s has no field '%s'; it takes %s", x->op->name,
                     text_show(name, n).text, known);
}

/* The slot of a name that has not been given before. */
static int find_slot(struct given *g, const char *name, size_t n, struct slot **out,
                     struct error *err)
{
    int at = op_index_field(g->index, g->guess, name, n);
    if (at < 0) {
        return unknown_field(g->index, name, n, err);
    }
    g->guess = (size_t)at + 1;
    *out = &g->slots[at];
    if ((*out)->v.type != VALUE_NONE) {
        return error_set(err, ERROR_CONFLICT, "field '%s' is given twice", g->index->names[at]);
    }
    return 0;
}

/* ---- checking and appending ---------------------------------------------------------------- */

static void put_choices(struct text_out *o, const struct op_field *f)
{
    for (size_t i = 0; f->choices[i]; i++) {
        text_puts(o, i == 0 ? "" : f->choices[i + 1] ? ", " : " or ");
        text_puts(o, f->choices[i]);
    }
}

/* What a field takes: "1..1024", "forward, dX or dW", "true or false", "text", "a number". */
static void put_accepted(struct text_out *o, const struct op_field *f)
{
    char range[64];
    switch (f->type) {
    case VALUE_INT:
        snprintf(range, sizeof(range), "an integer %" PRId64 "..%" PRId64, f->min, f->max);
        text_puts(o, range);
        break;
    case VALUE_TEXT:
        if (f->choices) {
            put_choices(o, f);
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

static int refuse(const struct op_field *f, const struct slot *s, struct error *err)
{
    char accepted[200];
    char value[80];
    struct text_out a = text_out_begin(accepted, sizeof(accepted));
    struct text_out v = text_out_begin(value, sizeof(value));
    put_accepted(&a, f);
    if (s->v.type == VALUE_TEXT) {
        text_putc(&v, '\'');
        text_puts(&v, text_show(s->v.text, s->text_n).text);
        text_putc(&v, '\'');
    } else {
        value_put(&v, &s->v);
    }
    return error_set(err, ERROR_INVALID, "%s is %s, but takes %s%s%s%s", f->name, value, accepted,
                     f->help ? " (" : "", f->help ? f->help : "", f->help ? ")" : "");
}

static int missing(const struct op_index *x, const struct op_field *f, struct error *err)
{
    char accepted[200];
    struct text_out a = text_out_begin(accepted, sizeof(accepted));
    put_accepted(&a, f);
    return error_set(err, ERROR_INVALID, "%s needs %s: %s%s%s%s", x->op->name, f->name, accepted,
                     f->help ? " (" : "", f->help ? f->help : "", f->help ? ")" : "");
}

static bool check_int(const struct op_field *f, struct slot *s)
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
    return s->v.type == VALUE_REAL && s->v.real - s->v.real == 0; /* finite */
}

static bool check_text(const struct op_field *f, const struct slot *s)
{
    if (s->v.type != VALUE_TEXT) {
        return false;
    }
    if (!f->choices) {
        return !memchr(s->v.text, 0, s->text_n) && text_utf8(s->v.text, s->text_n);
    }
    char first = s->text_n > 0 ? s->v.text[0] : 0;
    for (const char *const *c = f->choices; *c; c++) {
        if ((*c)[0] == first && text_is(*c, s->v.text, s->text_n)) {
            return true;
        }
    }
    return false;
}

static bool check_slot(const struct op_field *f, struct slot *s)
{
    switch (f->type) {
    case VALUE_INT:
        return check_int(f, s);
    case VALUE_REAL:
        return check_real(s);
    case VALUE_TEXT:
        return check_text(f, s);
    default:
        return s->v.type == f->type;
    }
}

static void fall_back(const struct op_field *f, struct slot *s)
{
    s->v = f->fallback;
    s->text_n = f->fallback.type == VALUE_TEXT ? strlen(f->fallback.text) : 0;
}

static int append(struct problem *p, struct given *g, struct error *err)
{
    record_init(&p->fields);
    for (size_t i = 0; i < g->index->op->n_fields; i++) {
        const struct op_field *f = field_at(g->index, i);
        struct slot *s = &g->slots[i];
        if (s->v.type == VALUE_NONE) {
            if (f->required) {
                return missing(g->index, f, err);
            }
            fall_back(f, s);
            if (s->v.type == VALUE_NONE) {
                continue;
            }
        } else if (!check_slot(f, s)) {
            return refuse(f, s, err);
        }
        if (!record_push(&p->fields, g->index->names[i], &s->v, s->text_n)) {
            return error_set(err, ERROR_TOO_LARGE, "%s is too long: all text of a problem is at most %d bytes",
                             f->name, RECORD_TEXT_MAX);
        }
    }
    return 0;
}

/* "gemm" is one expert, one choice per token; who says otherwise means grouped_gemm. */
static int set_to_one(struct given *g, const char *name, struct error *err)
{
    int at = op_index_field(g->index, 0, name, strlen(name));
    if (at < 0) {
        return 0;
    }
    struct slot *s = &g->slots[at];
    bool one = (s->v.type == VALUE_INT && s->v.integer == 1) ||
               (s->v.type == VALUE_REAL && s->v.real == 1);
    if (s->v.type != VALUE_NONE && !one) {
        return error_set(err, ERROR_CONFLICT,
                         "gemm has one expert and topk 1, but %s is given otherwise; use op grouped_gemm",
                         name);
    }
    s->v = VALUE_OF_INT(1);
    return 0;
}

static int finish(struct problem *p, struct given *g, bool gemm, struct error *err)
{
    if (gemm) {
        int r = set_to_one(g, "experts", err);
        r = r < 0 ? r : set_to_one(g, "topk", err);
        if (r < 0) {
            return r;
        }
    }
    int r = append(p, g, err);
    if (r < 0) {
        return r;
    }
    return p->op->check ? p->op->check(p, err) : 0;
}

/* Sets op and op_name. */
static int set_op(struct problem *p, const char *name, size_t n, struct error *err)
{
    p->op = op_find_n(name, n);
    p->op_name[0] = 0;
    record_init(&p->fields);
    if (!p->op) {
        char known[256];
        struct text_out list = text_out_begin(known, sizeof(known));
        op_names(&list);
        return error_set(err, ERROR_UNKNOWN_OP, "there is no op '%s'; known: %s",
                         text_show(name, n).text, known);
    }
    const char *full = op_is_custom(p->op) ? name : p->op->name;
    size_t full_n = op_is_custom(p->op) ? n : strlen(full);
    assert(full_n < OP_NAME_MAX);
    memcpy(p->op_name, full, full_n);
    p->op_name[full_n] = 0;
    return 0;
}

/* ---- from a record --------------------------------------------------------------------------- */

static int make_custom(struct problem *p, const struct record *fields, struct error *err)
{
    if (record_has_n(fields, "op", 2)) {
        return error_set(err, ERROR_INVALID, "a field of %s cannot be called 'op'", p->op_name);
    }
    record_copy(&p->fields, fields);
    return 0;
}

static int make(struct problem *p, const char *op_name, size_t n, const struct record *fields,
                struct error *err)
{
    assert(fields != &p->fields);
    int r = set_op(p, op_name, n, err);
    if (r < 0) {
        return r;
    }
    if (op_is_custom(p->op)) {
        return make_custom(p, fields, err);
    }
    struct given g;
    given_init(&g, op_index_of(p->op));
    for (size_t i = 0; i < fields->n; i++) {
        struct slot *s = NULL;
        const char *name = fields->fields[i].name;
        r = find_slot(&g, name, strlen(name), &s, err);
        if (r < 0) {
            return r;
        }
        s->v = record_at(fields, i);
        s->text_n = s->v.type == VALUE_TEXT ? strlen(s->v.text) : 0;
    }
    return finish(p, &g, op_is_gemm_alias(op_name, n), err);
}

int problem_make(struct problem *p, const char *op_name, const struct record *fields,
                 struct error *err)
{
    return make(p, op_name, strlen(op_name), fields, err);
}

/* ---- from the wire --------------------------------------------------------------------------- */

/* An array of integers, for a text field: "rows:1,2,3". */
static int list_value(struct given *g, const char *name, const struct wire_obj *o, struct slot *s,
                      struct error *err)
{
    size_t room = sizeof(g->list) - g->list_n;
    struct text_out text = text_out_begin(g->list + g->list_n, room);
    text_puts(&text, "rows:");
    for (size_t i = 0; i < wire_count(o); i++) {
        int64_t v;
        if (!wire_get_int(wire_at(o, i), &v)) {
            return error_set(err, ERROR_INVALID, "%s: element %zu of the array is not an integer", name,
                             i);
        }
        text_puts(&text, i > 0 ? "," : "");
        text_put_int(&text, v);
    }
    if (text.len + 1 > room) {
        return error_set(err, ERROR_TOO_LARGE, "%s: the array is too long: as text, at most %d bytes",
                         name, RECORD_TEXT_MAX);
    }
    s->v = VALUE_OF_TEXT(g->list + g->list_n);
    s->text_n = text.len;
    g->list_n += text.len + 1;
    return 0;
}

/* What is no scalar: nil stands for "not given", an array may stand for text. */
static int take_other(struct given *g, struct slot *s, const struct wire_obj *value,
                      struct error *err)
{
    const struct op_field *f = field_at(g->index, (size_t)(s - g->slots));
    s->v.type = VALUE_NONE;
    if (wire_type_of(value) == WIRE_NIL) {
        return 0;
    }
    if (wire_type_of(value) == WIRE_ARRAY && f->type == VALUE_TEXT && !f->choices) {
        return list_value(g, f->name, value, s, err);
    }
    char accepted[200];
    struct text_out a = text_out_begin(accepted, sizeof(accepted));
    put_accepted(&a, f);
    return error_set(err, ERROR_INVALID, "%s takes %s", f->name, accepted);
}

static int take_pair(struct given *g, const msgpack_object_kv *kv, struct error *err)
{
    if (kv->key.type != MSGPACK_OBJECT_STR) {
        return error_set(err, ERROR_INVALID, "field names of a problem must be text");
    }
    const char *name = wire_chars(kv->key.via.str.ptr);
    size_t n = kv->key.via.str.size;
    if (n == 2 && name[0] == 'o' && name[1] == 'p') {
        return 0;
    }
    struct slot *s = NULL;
    int r = find_slot(g, name, n, &s, err);
    if (r < 0 || wire_scalar(&kv->val, &s->v, &s->text_n)) {
        return r;
    }
    return take_other(g, s, wire_out(&kv->val), err);
}

static int unpack_known(struct problem *p, const struct wire_obj *map, bool gemm, struct error *err)
{
    struct given g;
    given_init(&g, op_index_of(p->op));
    const msgpack_object_map *m = &wire_in(map)->via.map;
    for (uint32_t i = 0; i < m->size; i++) {
        int r = take_pair(&g, &m->ptr[i], err);
        if (r < 0) {
            return r;
        }
    }
    return finish(p, &g, gemm, err);
}

int problem_unpack(struct problem *p, const struct wire_obj *map, struct error *err)
{
    const char *name;
    size_t n;
    if (!wire_get_str(wire_find(map, "op"), &name, &n)) {
        return error_set(err, ERROR_INVALID,
                         "a problem must be a map with 'op', such as {\"op\": \"grouped_gemm\", ...}");
    }
    int r = set_op(p, name, n, err);
    if (r < 0) {
        return r;
    }
    if (op_is_custom(p->op)) {
        return record_unpack_but(&p->fields, map, "op", err);
    }
    return unpack_known(p, map, op_is_gemm_alias(name, n), err);
}

void problem_pack(struct wire_buf *b, const struct problem *p)
{
    wire_put_map(b, p->fields.n + 1);
    wire_put_kv_str(b, "op", p->op_name);
    record_pack_fields(b, &p->fields);
}

/* ---- text ------------------------------------------------------------------------------------ */

size_t problem_format(const struct problem *p, char *out, size_t size)
{
    struct text_out o = text_out_begin(out, size);
    text_puts(&o, p->op_name);
    if (p->fields.n == 0) {
        return o.len;
    }
    text_putc(&o, ' ');
    size_t room = o.len < size ? size - o.len : 0;
    return o.len + record_format(&p->fields, room > 0 ? out + o.len : NULL, room);
}

int problem_parse(struct problem *p, const char *text, struct error *err)
{
    text += strspn(text, " \t\r\n");
    size_t n = strcspn(text, " \t\r\n,");
    if (n == 0 || memchr(text, '=', n)) {
        return error_set(err, ERROR_INVALID,
                         "'%s' is no op: a problem begins with it, such as \"grouped_gemm M=4096 ...\"",
                         text_show(text, n).text);
    }
    struct record fields;
    int r = record_parse(&fields, text + n, err);
    return r < 0 ? r : make(p, text, n, &fields, err);
}
