/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MessagePack <-> JSON, for `--json`, exports and logs. The same walk prints the JSON twice:
 * first to measure, then into memory of that size. JSON lacks some values: binary becomes base64
 * text, NaN and infinities null, and a map key that is not text becomes the text of its JSON.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "proto/record.h"
#include "proto/text.h"
#include "proto/wire.h"

static void wire_print_value(struct text_out *o, const struct wire_obj *v);

static void put_base64(struct text_out *o, const uint8_t *p, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    text_putc(o, '"');
    for (size_t i = 0; i < n; i += 3) {
        size_t have = n - i < 3 ? n - i : 3;
        uint32_t bits = (uint32_t)p[i] << 16;
        bits |= have > 1 ? (uint32_t)p[i + 1] << 8 : 0;
        bits |= have > 2 ? p[i + 2] : 0;
        char four[4] = {digits[bits >> 18], digits[bits >> 12 & 63],
                        have > 1 ? digits[bits >> 6 & 63] : '=',
                        have > 2 ? digits[bits & 63] : '='};
        text_put(o, four, sizeof(four));
    }
    text_putc(o, '"');
}

static void put_scalar(struct text_out *o, const struct value *v, size_t text_n)
{
    if (v->type == VALUE_TEXT) {
        text_put_json(o, v->text, text_n);
    } else if (v->type == VALUE_REAL && !isfinite(v->real)) {
        text_puts(o, "null");
    } else {
        value_put(o, v);
    }
}

static void put_key(struct text_out *o, const struct wire_obj *key)
{
    if (wire_type_of(key) == WIRE_STR) {
        wire_print_value(o, key);
        return;
    }
    char text[64];
    struct text_out inner = text_out_begin(text, sizeof(text));
    wire_print_value(&inner, key);
    text_put_json(o, text, strlen(text));
}

static void put_array(struct text_out *o, const struct wire_obj *v)
{
    text_putc(o, '[');
    for (size_t i = 0; i < wire_count(v); i++) {
        text_puts(o, i > 0 ? "," : "");
        wire_print_value(o, wire_at(v, i));
    }
    text_putc(o, ']');
}

static void put_map(struct text_out *o, const struct wire_obj *v)
{
    text_putc(o, '{');
    for (size_t i = 0; i < wire_count(v); i++) {
        const struct wire_obj *key, *value;
        wire_pair(v, i, &key, &value);
        text_puts(o, i > 0 ? "," : "");
        put_key(o, key);
        text_putc(o, ':');
        wire_print_value(o, value);
    }
    text_putc(o, '}');
}

static void wire_print_value(struct text_out *o, const struct wire_obj *v)
{
    struct value scalar;
    const void *bytes;
    size_t n;
    if (wire_type_of(v) == WIRE_ARRAY) {
        put_array(o, v);
    } else if (wire_type_of(v) == WIRE_MAP) {
        put_map(o, v);
    } else if (wire_get_bin(v, &bytes, &n)) {
        put_base64(o, bytes, n);
    } else if (value_unpack(v, &scalar, &n)) {
        put_scalar(o, &scalar, n);
    } else if (wire_type_of(v) == WIRE_INT) { /* beyond int64_t */
        text_put_uint(o, wire_uint(v));
    } else {
        text_puts(o, "null");
    }
}

int wire_to_json(const struct wire_obj *v, char **out, struct error *err)
{
    struct text_out measure = text_out_begin(NULL, 0);
    wire_print_value(&measure, v);
    *out = malloc(measure.len + 1);
    if (!*out) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for %zu bytes of JSON", measure.len);
    }
    struct text_out write = text_out_begin(*out, measure.len + 1);
    wire_print_value(&write, v);
    text_utf8_clean(*out, write.len);
    return 0;
}

int wire_buf_to_json(const struct wire_buf *b, char **out, struct error *err)
{
    const struct wire_obj *o;
    struct wire_doc *doc = wire_doc_new();
    int r = doc && !b->failed ? wire_decode(doc, b->data, b->len, &o, err)
                              : error_set(err, ERROR_NO_MEMORY, "no memory for JSON");
    r = r ? r : wire_to_json(o, out, err);
    wire_doc_free(doc);
    return r;
}

size_t record_to_json(const struct record *r, char *out, size_t size)
{
    struct text_out o = text_out_begin(out, size);
    text_putc(&o, '{');
    for (size_t i = 0; i < r->n; i++) {
        struct value v = record_at(r, i);
        text_puts(&o, i > 0 ? "," : "");
        text_put_json(&o, r->fields[i].name, strlen(r->fields[i].name));
        text_putc(&o, ':');
        put_scalar(&o, &v, v.type == VALUE_TEXT ? strlen(v.text) : 0);
    }
    text_putc(&o, '}');
    return o.len;
}

/* ---- from JSON ------------------------------------------------------------------------------- */

static json_t *load_json(const char *json, size_t length, size_t flags, struct error *err)
{
    json_error_t why;
    json_t *root = json_loadb(json, length, flags | JSON_REJECT_DUPLICATES, &why);
    if (!root) {
        error_set(err, ERROR_INVALID, "JSON, line %d, column %d: %s", why.line, why.column,
                  text_show(why.text, strlen(why.text)).text);
    }
    return root;
}

/* Reads a scalar; null becomes VALUE_NONE. False: not a scalar. */
static bool json_get_value(const json_t *j, struct value *v, size_t *text_n)
{
    *v = (struct value){.type = VALUE_NONE};
    if (json_is_boolean(j)) {
        *v = VALUE_OF_BOOL(json_is_true(j));
    } else if (json_is_integer(j)) {
        *v = VALUE_OF_INT(json_integer_value(j));
    } else if (json_is_real(j)) {
        *v = VALUE_OF_REAL(json_real_value(j));
    } else if (json_is_string(j)) {
        *v = VALUE_OF_TEXT(json_string_value(j));
    }
    *text_n = json_string_length(j);
    return !json_is_object(j) && !json_is_array(j);
}

static void wire_pack_json(struct wire_buf *b, const json_t *j)
{
    struct value v;
    size_t n;
    const char *key;
    json_t *value;
    if (json_is_object(j)) {
        wire_put_map(b, json_object_size(j));
        json_object_foreach((json_t *)(uintptr_t)j, key, value) {
            wire_put_str(b, key);
            wire_pack_json(b, value);
        }
    } else if (json_is_array(j)) {
        wire_put_array(b, json_array_size(j));
        for (size_t i = 0; i < json_array_size(j); i++) {
            wire_pack_json(b, json_array_get(j, i));
        }
    } else if (json_get_value(j, &v, &n) && v.type == VALUE_TEXT) {
        wire_put_strn(b, v.text, n);
    } else {
        value_pack(b, &v);
    }
}

int wire_from_json(struct wire_buf *b, const char *json, struct error *err)
{
    json_t *root = load_json(json, strlen(json), JSON_DECODE_ANY, err);
    if (!root) {
        return ERROR_INVALID;
    }
    wire_pack_json(b, root);
    json_decref(root);
    return b->failed
               ? error_set(err, ERROR_NO_MEMORY, "no memory for the MessagePack of a JSON text")
               : 0;
}

int record_from_json(struct record *r, const char *json, size_t length, struct error *err)
{
    record_init(r);
    json_t *root = load_json(json, length, 0, err);
    if (!root) {
        return ERROR_INVALID;
    }
    int done = json_is_object(root)
                   ? 0
                   : error_set(err, ERROR_INVALID, "expected a JSON object of named values");
    struct value v;
    size_t n;
    const char *name;
    json_t *j;
    json_object_foreach(root, name, j) {
        if (done == 0 && !json_get_value(j, &v, &n)) {
            done = error_set(err, ERROR_INVALID, "field '%s' must be a number, true, false or text",
                             text_show(name, strlen(name)).text);
        } else if (done == 0 && v.type != VALUE_NONE) {
            done = record_set_n(r, name, strlen(name), &v, n, err);
        }
    }
    json_decref(root);
    return done;
}
