/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/answer.h"
#include "kernels/family.h"
#include "proto/message.h"

int answer_check_size(const struct gemmd_answer *out, struct error *err)
{
    if (!out) {
        return error_set(err, ERROR_INVALID, "there is no struct gemmd_answer to fill in (NULL)");
    }
    if (out->size < ANSWER_SIZE_MIN) {
        return error_set(err, ERROR_INVALID,
                         "struct gemmd_answer has size %zu: begin with GEMMD_ANSWER_INIT",
                         out->size);
    }
    return 0;
}

struct gemmd_answer answer_none(void)
{
    struct gemmd_answer a = {.size = sizeof(a)};
    a.time_us = a.spread = a.reference_us = a.tflops = a.gbps = a.floor_us = NAN;
    return a;
}

void answer_give(const struct gemmd_answer *a, struct gemmd_answer *out)
{
    size_t size = out->size;
    size_t known = size < sizeof(*a) ? size : sizeof(*a);
    memcpy(out, a, known);
    memset((char *)out + known, 0, size - known);
    out->size = size;
}

bool answer_is_final(const struct gemmd_answer *a)
{
    return strcmp(a->tier, "exact") == 0 &&
           (strcmp(a->source, "tuned") == 0 || strcmp(a->source, "manual") == 0);
}

/* ---- the config's line ------------------------------------------------------------------------ */

int answer_set_config(struct gemmd_answer *a, const struct record *config, struct error *err)
{
    size_t length = record_format(config, a->config, sizeof(a->config));
    if (length >= sizeof(a->config)) {
        return error_set(
            err, ERROR_INVALID,
            "the answer's config has %zu characters, struct gemmd_answer holds %zu: ask "
            "with gemmd_call",
            length, sizeof(a->config) - 1);
    }
    return 0;
}

enum { WORD_MAX = 64 }; /* of a value in text */

static bool is_letter(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

/* A name that no record would refuse, and that sorts behind the last one. */
static bool is_next_name(const char *name, size_t n, const char *last, size_t last_n)
{
    for (size_t i = 0; i < n; i++) {
        if (!is_letter(name[i]) && (i == 0 || name[i] < '0' || name[i] > '9')) {
            return false;
        }
    }
    int order = memcmp(last, name, n < last_n ? n : last_n);
    return n > 0 && n < RECORD_NAME_MAX && (order < 0 || (order == 0 && last_n < n));
}

/* The characters written; 0: not of the usual kinds, or no room. */
static size_t format_value(const struct wire_obj *o, char *out, size_t size)
{
    char word[WORD_MAX];
    struct value v = {.type = VALUE_NONE};
    if (wire_get_int(o, &v.integer)) {
        v.type = VALUE_INT;
    } else if (wire_get_bool(o, &v.flag)) {
        v.type = VALUE_BOOL;
    } else if (wire_copy_str(o, word, sizeof(word)) && word[0]) {
        v = VALUE_OF_TEXT(word);
    }
    for (const char *c = v.type == VALUE_TEXT ? word : ""; *c; c++) {
        if ((unsigned char)*c >= 0x80) {
            return 0;
        }
    }
    size_t n = v.type == VALUE_NONE ? 0 : value_format(&v, out, size);
    return n + 1 < size ? n : 0;
}

/* Straight from the wire, where names come sorted. False: this is another config than gemmd's are,
 * and a record has to look at it. */
static bool format_sorted(const struct wire_obj *map, char *out, size_t size)
{
    const char *last = "";
    size_t last_n = 0, at = 0;
    for (size_t i = 0; i < wire_count(map); i++) {
        const struct wire_obj *key, *value;
        const char *name;
        size_t n, length;
        wire_pair(map, i, &key, &value);
        if (!wire_get_str(key, &name, &n) || !is_next_name(name, n, last, last_n) ||
            size - at < n + 3) {
            return false;
        }
        at += i > 0 ? (out[at] = ' ', 1) : 0;
        memcpy(out + at, name, n);
        out[at + n] = '=';
        length = format_value(value, out + at + n + 1, size - at - n - 1);
        if (!length) {
            return false;
        }
        at += n + 1 + length;
        last = name;
        last_n = n;
    }
    out[at] = 0;
    return wire_type_of(map) == WIRE_MAP;
}

static int read_config(struct gemmd_answer *a, const struct wire_obj *map, struct error *err)
{
    struct record config;
    if (format_sorted(map, a->config, sizeof(a->config))) {
        return 0;
    }
    record_init(&config);
    int r = wire_type_of(map) == WIRE_NIL ? 0 : record_unpack(&config, map, err);
    return r ? error_prefix(err, "answer.config") : answer_set_config(a, &config, err);
}

/* ---- from the wire ---------------------------------------------------------------------------- */

/* Both are arrays, and `to` is the longer one. */
#define COPY_TEXT(to, from)                                                                        \
    do {                                                                                           \
        _Static_assert(sizeof(to) >= sizeof(from), "every text of an answer fits");                \
        memcpy((to), (from), strlen(from) + 1);                                                    \
    } while (0)

static int unpack(const struct wire_obj *map, struct answer *a, struct gemmd_answer *out,
                  struct error *err)
{
    static const char *const beside[] = {"config", NULL};
    if (wire_type_of(map) != WIRE_MAP) {
        return error_set(err, ERROR_MALFORMED, "it is not a map");
    }
    int r = schema_decode_beside(&answer_schema, SCHEMA_LENIENT, map, beside, a, err);
    return r ? r : read_config(out, wire_find(map, "config"), err);
}

int answer_unpack(const struct wire_obj *map, struct gemmd_answer *out, struct error *err)
{
    struct answer a;
    *out = (struct gemmd_answer){.size = sizeof(*out)};
    if (unpack(map, &a, out, err)) {
        return error_prefix(err, "gemmd's answer cannot be read");
    }
    out->time_us = a.time_us;
    out->spread = a.spread;
    out->reference_us = a.reference_us;
    out->tflops = a.tflops;
    out->gbps = a.gbps;
    out->floor_us = a.floor_us;
    out->measured = a.measured;
    out->generation = a.generation;
    out->created_s = a.created_s;
    out->saved = a.saved;
    COPY_TEXT(out->key, a.key);
    COPY_TEXT(out->tier, a.tier);
    COPY_TEXT(out->source, a.source);
    COPY_TEXT(out->family, a.family);
    COPY_TEXT(out->module, a.module);
    COPY_TEXT(out->note, a.note);
    COPY_TEXT(out->stamp, a.stamp);
    family_stamp_target(a.stamp, out->target);
    return 0;
}
