/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields stay sorted by insertion. Text of replaced and removed fields stays in the record's text
 * memory (arena) until an insertion finds no room; then the arena is packed. Only fields[0..n) and
 * text[0..used) are initialised, copied or read.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "proto/record.h"
#include "proto/text.h"

bool value_equal(const struct value *a, const struct value *b)
{
    if (a->type != b->type) {
        return false;
    }
    switch (a->type) {
    case VALUE_NONE:
        return true;
    case VALUE_BOOL:
        return a->flag == b->flag;
    case VALUE_INT:
        return a->integer == b->integer;
    case VALUE_REAL:
        return a->real == b->real;
    case VALUE_TEXT:
        break;
    }
    return strcmp(a->text, b->text) == 0;
}

void record_init(struct record *r)
{
    r->n = 0;
    r->used = 0;
}

void record_copy(struct record *to, const struct record *from)
{
    to->n = from->n;
    to->used = from->used;
    memcpy(to->fields, from->fields, from->n * sizeof(from->fields[0]));
    memcpy(to->text, from->text, from->used);
}

bool record_equal(const struct record *a, const struct record *b)
{
    if (a->n != b->n) {
        return false;
    }
    for (size_t i = 0; i < a->n; i++) {
        struct value va = record_at(a, i);
        struct value vb = record_at(b, i);
        if (strcmp(a->fields[i].name, b->fields[i].name) != 0 || !value_equal(&va, &vb)) {
            return false;
        }
    }
    return true;
}

static bool name_byte(char c, bool first)
{
    bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
    bool later = (c >= '0' && c <= '9') || c == '.' || c == ':' || c == '-';
    return letter || (later && !first);
}

bool record_name_ok(const char *name, size_t n)
{
    if (n == 0 || n >= RECORD_NAME_MAX) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (!name_byte(name[i], i == 0)) {
            return false;
        }
    }
    return true;
}

/* strcmp of a terminated name with a name of length n, which may hold zeros. Names mostly differ in
 * their first bytes: a loop is faster than library calls. */
static int record_compare_name(const char *field, const char *name, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char a = (unsigned char)field[i];
        unsigned char b = (unsigned char)name[i];
        if (a != b) {
            return a < b ? -1 : 1;
        }
        if (a == 0) {
            return -1; /* `name` begins with the field's name, and goes on */
        }
    }
    return field[n] != 0;
}

bool record_find_n(const struct record *r, const char *name, size_t n, size_t *at)
{
    size_t low = 0;
    size_t high = r->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int c = record_compare_name(r->fields[middle].name, name, n);
        if (c == 0) {
            *at = middle;
            return true;
        }
        if (c < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *at = low;
    return false;
}

/* Drops text of replaced and removed fields from the arena, and the text of field `but` (an index;
 * r->n: no field), which the caller is about to replace. False: less than `room` bytes would be
 * free; nothing changes. */
static bool pack_arena(struct record *r, size_t but, size_t room)
{
    char kept[RECORD_TEXT_MAX];
    uint32_t used = 0, at[RECORD_FIELDS_MAX];
    for (size_t i = 0; i < r->n; i++) {
        at[i] = used;
        if (i != but && r->fields[i].v.type == VALUE_TEXT) {
            const char *text = r->text + r->fields[i].v.at;
            size_t size = strlen(text) + 1;
            memcpy(kept + used, text, size);
            used += (uint32_t)size;
        }
    }
    if (RECORD_TEXT_MAX - used < room) {
        return false;
    }
    for (size_t i = 0; i < r->n; i++) {
        if (r->fields[i].v.type == VALUE_TEXT) {
            r->fields[i].v.at = at[i];
        }
    }
    memcpy(r->text, kept, used);
    r->used = used;
    return true;
}

static void record_fill_field(struct record *r, struct record_field *f, const struct value *v,
                              size_t text_n)
{
    f->v = *v;
    if (v->type == VALUE_REAL && v->real == 0) {
        f->v.real = 0; /* -0.0 becomes 0.0, so that equal values have equal bytes */
    } else if (v->type == VALUE_TEXT) {
        f->v.at = r->used;
        memcpy(r->text + r->used, v->text, text_n);
        r->text[r->used + text_n] = 0;
        r->used += (uint32_t)text_n + 1;
    }
}

static int record_check_value(const char *name, size_t n, const struct value *v, size_t text_n,
                              struct error *err)
{
    if (v->type == VALUE_NONE) {
        return error_set(err, ERROR_INVALID, "field '%s' has no value; leave it out instead",
                         text_show(name, n).text);
    }
    if (v->type == VALUE_REAL && !isfinite(v->real)) {
        return error_set(err, ERROR_INVALID, "field '%s' is not a finite number",
                         text_show(name, n).text);
    }
    if (v->type == VALUE_TEXT && (memchr(v->text, 0, text_n) || !text_utf8(v->text, text_n))) {
        return error_set(err, ERROR_INVALID, "field '%s' holds text '%s' that is not plain UTF-8",
                         text_show(name, n).text, text_show(v->text, text_n).text);
    }
    return 0;
}

static int no_room(const char *name, size_t n, struct error *err)
{
    return error_set(err, ERROR_INVALID,
                     "field '%s' does not fit: a record holds %d fields and %d bytes of text",
                     text_show(name, n).text, RECORD_FIELDS_MAX, RECORD_TEXT_MAX);
}

static int set_checked(struct record *r, const char *name, size_t n, const struct value *v,
                       size_t text_n, struct error *err)
{
    size_t at;
    bool there = record_find_n(r, name, n, &at);
    char copy[RECORD_TEXT_MAX];
    struct value moved = *v;
    if (!there && r->n == RECORD_FIELDS_MAX) {
        return no_room(name, n, err);
    }
    if (v->type == VALUE_TEXT && RECORD_TEXT_MAX - r->used < text_n + 1) {
        memcpy(copy, v->text, text_n); /* v->text may lie in this arena, which pack_arena moves */
        moved.text = copy;
        if (!pack_arena(r, there ? at : r->n, text_n + 1)) {
            return no_room(name, n, err);
        }
    }
    if (!there) {
        memmove(&r->fields[at + 1], &r->fields[at], (r->n - at) * sizeof(r->fields[0]));
        r->n++;
        memcpy(r->fields[at].name, name, n);
        memset(r->fields[at].name + n, 0, RECORD_NAME_MAX - n);
    }
    record_fill_field(r, &r->fields[at], &moved, text_n);
    return 0;
}

int record_set_n(struct record *r, const char *name, size_t n, const struct value *v, size_t text_n,
                 struct error *err)
{
    if (!record_name_ok(name, n)) {
        return error_set(
            err, ERROR_INVALID,
            "'%s' is no field name: 1 to %d of A-Z a-z 0-9 _ . : -, a letter or _ first",
            text_show(name, n).text, RECORD_NAME_MAX - 1);
    }
    int r_ = record_check_value(name, n, v, text_n, err);
    if (r_ < 0) {
        return r_;
    }
    if (v->type == VALUE_TEXT && text_n >= RECORD_TEXT_MAX) {
        return no_room(name, n, err);
    }
    return set_checked(r, name, n, v, text_n, err);
}

int record_set(struct record *r, const char *name, struct value v, struct error *err)
{
    size_t text_n = v.type == VALUE_TEXT ? strlen(v.text) : 0;
    return record_set_n(r, name, strlen(name), &v, text_n, err);
}

bool record_push(struct record *r, const char name[RECORD_NAME_MAX], const struct value *v,
                 size_t text_n)
{
    if (r->n == RECORD_FIELDS_MAX ||
        (v->type == VALUE_TEXT && RECORD_TEXT_MAX - r->used < text_n + 1)) {
        return false;
    }
    struct record_field *f = &r->fields[r->n++];
    memcpy(f->name, name, RECORD_NAME_MAX);
    record_fill_field(r, f, v, text_n);
    return true;
}

static void record_put_known(struct record *r, const char *name, struct value v)
{
    int done = record_set(r, name, v, NULL);
    assert(done == 0);
    (void)done;
}

void record_put_int(struct record *r, const char *name, int64_t v)
{
    record_put_known(r, name, VALUE_OF_INT(v));
}

void record_put_bool(struct record *r, const char *name, bool v)
{
    record_put_known(r, name, VALUE_OF_BOOL(v));
}

void record_put_text(struct record *r, const char *name, const char *v)
{
    record_put_known(r, name, VALUE_OF_TEXT(v));
}

bool record_remove(struct record *r, const char *name)
{
    size_t at;
    if (!record_find_n(r, name, strlen(name), &at)) {
        return false;
    }
    r->n--;
    memmove(&r->fields[at], &r->fields[at + 1], (r->n - at) * sizeof(r->fields[0]));
    return true;
}

struct value record_at(const struct record *r, size_t i)
{
    assert(i < r->n);
    struct value v = r->fields[i].v;
    if (v.type == VALUE_TEXT) {
        v.text = r->text + v.at;
    }
    return v;
}

bool record_get(const struct record *r, const char *name, struct value *out)
{
    size_t at;
    if (!record_find_n(r, name, strlen(name), &at)) {
        return false;
    }
    *out = record_at(r, at);
    return true;
}

int64_t record_int(const struct record *r, const char *name, int64_t fallback)
{
    struct value v;
    return record_get(r, name, &v) && v.type == VALUE_INT ? v.integer : fallback;
}

bool record_bool(const struct record *r, const char *name, bool fallback)
{
    struct value v;
    return record_get(r, name, &v) && v.type == VALUE_BOOL ? v.flag : fallback;
}

const char *record_text(const struct record *r, const char *name, const char *fallback)
{
    struct value v;
    return record_get(r, name, &v) && v.type == VALUE_TEXT ? v.text : fallback;
}
