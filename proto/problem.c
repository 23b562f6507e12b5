/* SPDX-License-Identifier: Apache-2.0 */
/* Problems from records, the wire and text, and back. problem_slots.c makes them canonical. */
#include <assert.h>
#include <string.h>

#include "proto/op.h"
#include "proto/record.h"
#include "proto/wire_inner.h"

static int set_op(struct problem *p, const char *name, size_t n, const struct op_alias **alias,
                  struct error *err)
{
    p->op = op_find_n(name, n, alias);
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

static int problem_make_from(struct problem *p, const char *op_name, size_t n,
                             const struct record *fields, struct error *err)
{
    const struct op_alias *alias;
    assert(fields != &p->fields);
    int r = set_op(p, op_name, n, &alias, err);
    if (r < 0) {
        return r;
    }
    if (op_is_custom(p->op) && record_has_n(fields, "op", 2)) {
        return error_set(err, ERROR_INVALID, "a field of %s cannot be called 'op'", p->op_name);
    }
    if (op_is_custom(p->op)) {
        record_copy(&p->fields, fields);
        return 0;
    }
    struct slots g;
    slots_init(&g, op_index_of(p->op));
    for (size_t i = 0; i < fields->n; i++) {
        struct slot *s = NULL;
        const char *name = fields->fields[i].name;
        r = slots_find(&g, name, strlen(name), &s, err);
        if (r < 0) {
            return r;
        }
        s->v = record_at(fields, i);
        s->text_n = s->v.type == VALUE_TEXT ? strlen(s->v.text) : 0;
    }
    return slots_make_problem(p, &g, alias, err);
}

int problem_make(struct problem *p, const char *op_name, const struct record *fields,
                 struct error *err)
{
    return problem_make_from(p, op_name, strlen(op_name), fields, err);
}

/* ---- from the wire --------------------------------------------------------------------------- */

/* Reads an array of integers as the value of a text field: "rows:1,2,3". */
static int list_value(struct slots *g, const char *name, const struct wire_obj *o, struct slot *s,
                      struct error *err)
{
    size_t room = sizeof(g->list) - g->list_n;
    struct text_out text = text_out_begin(g->list + g->list_n, room);
    text_puts(&text, "rows:");
    for (size_t i = 0; i < wire_count(o); i++) {
        int64_t v;
        if (!wire_get_int(wire_at(o, i), &v)) {
            return error_set(err, ERROR_INVALID, "%s: element %zu of the array is not an integer",
                             name, i);
        }
        text_puts(&text, i > 0 ? "," : "");
        text_put_int(&text, v);
    }
    if (text.len + 1 > room) {
        return error_set(err, ERROR_INVALID, "%s: the array is too long: as text, at most %d bytes",
                         name, RECORD_TEXT_MAX);
    }
    s->v = VALUE_OF_TEXT(g->list + g->list_n);
    s->text_n = text.len;
    g->list_n += text.len + 1;
    return 0;
}

/* Reads a value that is not a scalar: nil means "not given", an array of integers is the value of a
 * text field (list_value). */
static int take_other(struct slots *g, struct slot *s, const struct wire_obj *value,
                      struct error *err)
{
    const struct op_field *f = op_index_field_at(g->index, (size_t)(s - g->slots));
    s->v.type = VALUE_NONE;
    if (wire_type_of(value) == WIRE_NIL) {
        return 0;
    }
    if (wire_type_of(value) == WIRE_ARRAY && f->type == VALUE_TEXT && !f->choices) {
        return list_value(g, f->name, value, s, err);
    }
    char accepted[200];
    struct text_out a = text_out_begin(accepted, sizeof(accepted));
    slots_put_accepted(&a, f);
    return error_set(err, ERROR_INVALID, "%s takes %s", f->name, accepted);
}

static int problem_read_pair(struct slots *g, const msgpack_object_kv *kv, struct error *err)
{
    if (kv->key.type != MSGPACK_OBJECT_STR) {
        return error_set(err, ERROR_INVALID, "field names of a problem must be text");
    }
    const char *name = wire_chars(kv->key.via.str.ptr);
    size_t n = kv->key.via.str.size;
    if (n == 2 && name[0] == 'o' && name[1] == 'p') {
        bool again = g->has_op;
        g->has_op = true;
        return again ? error_set(err, ERROR_CONFLICT, "field 'op' is given twice") : 0;
    }
    struct slot *s = NULL;
    int r = slots_find(g, name, n, &s, err);
    if (r < 0 || wire_scalar(&kv->val, &s->v, &s->text_n)) {
        return r;
    }
    return take_other(g, s, wire_out(&kv->val), err);
}

static int problem_unpack_known(struct problem *p, const struct wire_obj *map,
                                const struct op_alias *alias, struct error *err)
{
    struct slots g;
    slots_init(&g, op_index_of(p->op));
    const msgpack_object_map *m = &wire_in(map)->via.map;
    for (uint32_t i = 0; i < m->size; i++) {
        int r = problem_read_pair(&g, &m->ptr[i], err);
        if (r < 0) {
            return r;
        }
    }
    return slots_make_problem(p, &g, alias, err);
}

int problem_unpack(struct problem *p, const struct wire_obj *map, struct error *err)
{
    const char *name;
    size_t n;
    if (!wire_get_str(wire_find(map, "op"), &name, &n)) {
        return error_set(
            err, ERROR_INVALID,
            "a problem must be a map with 'op', such as {\"op\": \"grouped_gemm\", ...}");
    }
    const struct op_alias *alias;
    int r = set_op(p, name, n, &alias, err);
    if (r < 0) {
        return r;
    }
    if (op_is_custom(p->op)) {
        return record_unpack_but(&p->fields, map, "op", err);
    }
    return problem_unpack_known(p, map, alias, err);
}

void problem_pack(struct wire_buf *b, const struct problem *p)
{
    wire_put_map(b, p->fields.n + 1);
    wire_put_kv_str(b, "op", p->op_name);
    record_pack_fields(b, &p->fields);
}

void problem_unrestrict(const struct problem *p, struct problem *out)
{
    if (out != p) {
        out->op = p->op;
        memcpy(out->op_name, p->op_name, sizeof(out->op_name));
        record_copy(&out->fields, &p->fields);
    }
    for (size_t i = 0; i < p->op->n_fields; i++) {
        if (p->op->fields[i].restricts) {
            record_remove(&out->fields, p->op->fields[i].name);
        }
    }
}

/* ---- text ------------------------------------------------------------------------------------ */

size_t problem_format(const struct problem *p, char *out, size_t size)
{
    struct text_out o = text_out_begin(out, size);
    text_puts(&o, p->op_name);
    text_puts(&o, p->fields.n > 0 ? " " : "");
    record_put(&o, &p->fields);
    return o.len;
}

int problem_parse(struct problem *p, const char *text, struct error *err)
{
    text += strspn(text, " \t\r\n");
    size_t n = strcspn(text, " \t\r\n,");
    if (n == 0 || memchr(text, '=', n)) {
        return error_set(
            err, ERROR_INVALID,
            "'%s' is no op: a problem begins with it, such as \"grouped_gemm M=4096 ...\"",
            text_show(text, n).text);
    }
    struct record fields;
    int r = record_parse(&fields, text + n, err);
    return r < 0 ? r : problem_make_from(p, text, n, &fields, err);
}
