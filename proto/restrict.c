/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/record.h"
#include "proto/request.h"
#include "proto/text.h"
#include "proto/wire.h"

/* values_of() counts the values that a restriction allows, value_of() returns the i-th. A single
 * value counts as an array of one value. */
static size_t values_of(const struct wire_obj *o)
{
    return wire_type_of(o) == WIRE_ARRAY ? wire_count(o) : 1;
}

static const struct wire_obj *value_of(const struct wire_obj *o, size_t i)
{
    return wire_type_of(o) == WIRE_ARRAY ? wire_at(o, i) : o;
}

/* Bytes of all text values in a map of restrictions, with their final zeros. */
static size_t text_bytes(const struct wire_obj *map)
{
    size_t bytes = 0;
    for (size_t i = 0; i < wire_count(map); i++) {
        const struct wire_obj *key, *values;
        wire_pair(map, i, &key, &values);
        for (size_t j = 0; j < values_of(values); j++) {
            const char *s;
            size_t n;
            bytes += wire_get_str(value_of(values, j), &s, &n) ? n + 1 : 0;
        }
    }
    return bytes;
}

static int restrict_read_value(struct restriction *t, const struct wire_obj *o, char **text,
                               struct error *err)
{
    struct value v;
    size_t n;
    bool scalar = value_unpack(o, &v, &n);
    if (!scalar || (v.type == VALUE_REAL && !isfinite(v.real)) ||
        (v.type == VALUE_TEXT && (memchr(v.text, 0, n) || !text_utf8(v.text, n)))) {
        return error_set(err, ERROR_INVALID,
                         "restrict.%s: values must be numbers, true, false or text", t->name);
    }
    if (v.type == VALUE_TEXT) {
        memcpy(*text, v.text, n);
        (*text)[n] = 0;
        v.text = *text;
        *text += n + 1;
    }
    t->values[t->n++] = v;
    return 0;
}

static int restrict_read_name(const struct request *r, struct restriction *t,
                              const struct wire_obj *key, struct error *err)
{
    const char *name = "";
    size_t n = 0;
    if (!wire_get_str(key, &name, &n) || !record_name_ok(name, n)) {
        return error_set(err, ERROR_INVALID, "restrict: '%s' is no name of a parameter",
                         text_show(name, n).text);
    }
    wire_copy_str(key, t->name, sizeof(t->name));
    for (uint32_t i = 0; i < r->n_restrict; i++) {
        if (strcmp(r->restrict_[i].name, t->name) == 0) {
            return error_set(err, ERROR_CONFLICT, "restrict.%s is given twice", t->name);
        }
    }
    return 0;
}

static int take_restriction(struct request *r, const struct wire_obj *key,
                            const struct wire_obj *values, char **text, struct error *err)
{
    struct restriction *t = &r->restrict_[r->n_restrict];
    int done = restrict_read_name(r, t, key, err);
    if (done < 0) {
        return done;
    }
    size_t n = values_of(values);
    if (n < 1 || n > RESTRICT_VALUES_MAX) {
        return error_set(err, ERROR_INVALID, "restrict.%s has %zu values; give 1 to %d", t->name, n,
                         RESTRICT_VALUES_MAX);
    }
    for (size_t j = 0; j < n; j++) {
        done = restrict_read_value(t, value_of(values, j), text, err);
        if (done < 0) {
            return done;
        }
    }
    r->n_restrict++;
    return 0;
}

int restrict_unpack(struct request *r, const struct wire_obj *map, struct error *err)
{
    size_t n = wire_count(map);
    if (wire_type_of(map) == WIRE_NIL) {
        return 0;
    }
    if (wire_type_of(map) != WIRE_MAP || n > RESTRICT_MAX) {
        return error_set(err, ERROR_INVALID,
                         "restrict must be a map of at most %d parameters, such as "
                         "{\"BLOCK_SIZE_M\": [64, 128]}",
                         RESTRICT_MAX);
    }
    r->restrict_ = calloc(n + 1, sizeof(r->restrict_[0]));
    r->text = malloc(text_bytes(map) + 1);
    if (!r->restrict_ || !r->text) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for %zu restrictions", n);
    }
    char *text = r->text;
    for (size_t i = 0; i < n; i++) {
        const struct wire_obj *key, *values;
        wire_pair(map, i, &key, &values);
        int done = take_restriction(r, key, values, &text, err);
        if (done < 0) {
            return done;
        }
    }
    return 0;
}

int config_unpack(struct record *r, const struct wire_obj *o, struct error *err)
{
    const char *s;
    size_t n;
    if (wire_type_of(o) == WIRE_MAP) {
        return record_unpack(r, o, err);
    }
    if (!wire_get_str(o, &s, &n)) {
        return error_set(err, ERROR_INVALID,
                         "a config must be a map, or text such as "
                         "\"BLOCK_SIZE_M=64 num_warps=4\"");
    }
    if (memchr(s, 0, n)) {
        return error_set(err, ERROR_INVALID, "the text of a config holds a zero byte");
    }
    char *line = strndup(s, n);
    if (!line) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a config of %zu bytes", n);
    }
    int done = record_parse(r, line, err);
    free(line);
    return done;
}

int configs_unpack(struct request *r, const struct wire_obj *array, struct error *err)
{
    size_t n = wire_count(array);
    if (wire_type_of(array) == WIRE_NIL) {
        return 0;
    }
    if (wire_type_of(array) != WIRE_ARRAY || n < 1 || n > REQUEST_CONFIGS_MAX) {
        return error_set(err, ERROR_INVALID, "configs must be an array of 1 to %d configs, got %zu",
                         REQUEST_CONFIGS_MAX, n);
    }
    r->configs = malloc(n * sizeof(r->configs[0]));
    if (!r->configs) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for %zu configs", n);
    }
    for (size_t i = 0; i < n; i++) {
        int done = config_unpack(&r->configs[i], wire_at(array, i), err);
        if (done < 0) {
            return error_prefix(err, "configs[%zu]", i), done;
        }
        r->n_configs++;
    }
    return 0;
}
