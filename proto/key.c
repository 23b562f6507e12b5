/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the bytes [KEY_VERSION, op, {fields in order}, device class] straight into the key.
 * Numbers have the shortest form, names are sorted, and -0.0 is written as 0.0. So equal keys are
 * equal bytes on every machine.
 */
#include <string.h>

#include "proto/device.h"
#include "proto/limits.h"
#include "proto/op.h"
#include "proto/pull.h"

enum { CLASS_SIZE = sizeof(((struct device_info *)0)->class) };

enum { HEAD_MAX = 9 }; /* bytes of the longest head or number */

_Static_assert(4 * HEAD_MAX + OP_NAME_MAX + CLASS_SIZE +
                       RECORD_FIELDS_MAX * (RECORD_NAME_MAX + 2 * HEAD_MAX) + RECORD_TEXT_MAX <=
                   KEY_BYTES_MAX,
               "the largest problem fits into a key");

int key_make(struct key *k, const struct problem *bucket, const char *device_class,
             struct error *err)
{
    if (strlen(device_class) >= CLASS_SIZE) {
        return error_set(err, ERROR_INVALID, "a device class is at most %d bytes: '%.40s...'",
                         CLASS_SIZE - 1, device_class);
    }
    struct wire_buf b = {.data = k->bytes, .cap = sizeof(k->bytes)}; /* has room for any key */
    wire_put_array(&b, 4);
    wire_put_int(&b, KEY_VERSION);
    wire_put_str(&b, bucket->op_name);
    record_pack(&b, &bucket->fields);
    wire_put_str(&b, device_class);
    k->len = b.len;
    k->hash = hash128_front(k->bytes, k->len);
    k->id[0] = 0;
    return 0;
}

void key_id(struct key *k)
{
    hash128_hex(k->bytes, k->len, k->id);
}

static int key_refuse_malformed(struct error *err)
{
    return error_set(err, ERROR_MALFORMED,
                     "not a key of version %d: expected [version, op, {fields}, device class]",
                     KEY_VERSION);
}

static int key_decode_problem(struct wire_doc *doc, const void *bytes, size_t n, struct problem *p,
                              char *class_out, struct error *err)
{
    const struct wire_obj *root;
    int r = wire_decode(doc, bytes, n, &root, err);
    if (r < 0) {
        return r;
    }
    int64_t version;
    char op[OP_NAME_MAX];
    if (wire_count(root) != 4 || !wire_get_int(wire_at(root, 0), &version) ||
        version != KEY_VERSION || !wire_copy_str(wire_at(root, 1), op, sizeof(op)) ||
        !wire_copy_str(wire_at(root, 3), class_out, CLASS_SIZE)) {
        return key_refuse_malformed(err);
    }
    struct record fields;
    r = record_unpack(&fields, wire_at(root, 2), err);
    return r < 0 ? r : problem_make(p, op, &fields, err);
}

int key_decode(const void *bytes, size_t n, struct problem *p, char *class_out, struct error *err)
{
    if (n > KEY_BYTES_MAX || span_of(bytes, n) != n) {
        return key_refuse_malformed(err);
    }
    struct wire_doc *doc = wire_doc_new();
    if (!doc) {
        return error_set(err, ERROR_NO_MEMORY, "no memory to decode a key");
    }
    int r = key_decode_problem(doc, bytes, n, p, class_out, err);
    wire_doc_free(doc);
    return r;
}

/* ---- differences ----------------------------------------------------------------------------- */

/*
 * The differences of two keys, from their canonical bytes alone: to find the key nearest to an
 * unknown key, a daemon compares all its keys, and decoding each key would take long. Names are
 * sorted in every key, so a single pass over both keys finds missing fields.
 */

struct fields {
    struct pull at;   /* behind the current field */
    size_t left;      /* number of fields behind the current field */
    const char *name; /* name of the current field; NULL: no more fields */
    size_t name_n;
    struct pull value;
};

static bool key_is_same_item(const struct pull *a, const struct pull *b)
{
    return pull_left(a) == pull_left(b) && memcmp(a->at, b->at, pull_left(a)) == 0;
}

/* Moves to the next field. False: these are not the bytes of a key. */
static bool next_field(struct fields *f)
{
    f->name = NULL;
    if (f->left == 0) {
        return true;
    }
    f->left--;
    return pull_str(&f->at, &f->name, &f->name_n) && pull_item(&f->at, &f->value);
}

static int key_compare_names(const struct fields *a, const struct fields *b)
{
    if (!a->name || !b->name) {
        return a->name ? -1 : 1;
    }
    size_t n = a->name_n < b->name_n ? a->name_n : b->name_n;
    int c = memcmp(a->name, b->name, n);
    return c ? c : (int)a->name_n - (int)b->name_n;
}

static int count_differences(struct fields *a, struct fields *b)
{
    int n = 0;
    bool good = next_field(a) && next_field(b);
    while (good && (a->name || b->name)) {
        int order = key_compare_names(a, b);
        n += order != 0 || !key_is_same_item(&a->value, &b->value);
        good = (order > 0 || next_field(a)) && (order < 0 || next_field(b));
    }
    return good ? n : -1;
}

int key_differences(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len)
{
    enum { HEAD = 2 }; /* bytes before the op: the array's head, and the version */
    if (a_len <= HEAD || b_len <= HEAD || memcmp(a, b, HEAD) != 0) {
        return -1;
    }
    struct fields x = {.at = {a + HEAD, a + a_len}}, y = {.at = {b + HEAD, b + b_len}};
    struct pull op, other;
    if (!pull_item(&x.at, &op) || !pull_item(&y.at, &other) || !key_is_same_item(&op, &other) ||
        !pull_map(&x.at, &x.left) || !pull_map(&y.at, &y.left)) {
        return -1;
    }
    return count_differences(&x, &y);
}
