/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MessagePack <-> JSON, for `--json`, exports and logs. Written twice over the same walk: once to
 * measure, once into memory of that size. What JSON cannot say: binary becomes base64 text, NaN and
 * infinities null, and a map key that is not text becomes the text of its JSON.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

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

static void wire_print_int(struct text_out *o, const struct wire_obj *v)
{
    int64_t small;
    if (wire_get_int(v, &small)) {
        text_put_int(o, small);
    } else {
        text_put_uint(o, wire_uint(v));
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
    bool flag = false;
    double real = 0;
    const char *s = NULL;
    const void *bytes = NULL;
    size_t n = 0;
    switch (wire_type_of(v)) {
    case WIRE_BOOL:
        wire_get_bool(v, &flag);
        text_puts(o, flag ? "true" : "false");
        break;
    case WIRE_INT:
        wire_print_int(o, v);
        break;
    case WIRE_REAL:
        wire_get_real(v, &real);
        if (isfinite(real)) {
            text_put_real(o, real);
        } else {
            text_puts(o, "null");
        }
        break;
    case WIRE_STR:
        wire_get_str(v, &s, &n);
        text_put_json(o, s, n);
        break;
    case WIRE_BIN:
        wire_get_bin(v, &bytes, &n);
        put_base64(o, bytes, n);
        break;
    case WIRE_ARRAY:
        put_array(o, v);
        break;
    case WIRE_MAP:
        put_map(o, v);
        break;
    case WIRE_NIL:
    case WIRE_OTHER:
        text_puts(o, "null");
        break;
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

static void wire_pack_json(struct wire_buf *b, const json_t *j)
{
    const char *key;
    json_t *value;
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        wire_put_map(b, json_object_size(j));
        json_object_foreach((json_t *)(uintptr_t)j, key, value) {
            wire_put_str(b, key);
            wire_pack_json(b, value);
        }
        break;
    case JSON_ARRAY:
        wire_put_array(b, json_array_size(j));
        for (size_t i = 0; i < json_array_size(j); i++) {
            wire_pack_json(b, json_array_get(j, i));
        }
        break;
    case JSON_STRING:
        wire_put_strn(b, json_string_value(j), json_string_length(j));
        break;
    case JSON_INTEGER:
        wire_put_int(b, json_integer_value(j));
        break;
    case JSON_REAL:
        wire_put_real(b, json_real_value(j));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        wire_put_bool(b, json_is_true(j));
        break;
    case JSON_NULL:
        wire_put_nil(b);
        break;
    }
}

int wire_from_json(struct wire_buf *b, const char *json, struct error *err)
{
    json_error_t why;
    json_t *root = json_loads(json, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &why);
    if (!root) {
        return error_set(err, ERROR_INVALID, "JSON, line %d, column %d: %s", why.line, why.column,
                         text_show(why.text, strlen(why.text)).text);
    }
    wire_pack_json(b, root);
    json_decref(root);
    return b->failed
               ? error_set(err, ERROR_NO_MEMORY, "no memory for the MessagePack of a JSON text")
               : 0;
}
