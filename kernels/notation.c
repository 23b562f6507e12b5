/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/notation.h"

/* Names and usual values of parameters do not depend on the device. */
static const struct device_info any_device = {.sm_count = 1};

static const char separators[] = " \t\r\n,";

/* A target's notation for a problem. */
struct notation {
    const struct family_target *target; /* borrowed */
    const char *tile[3];
    uint32_t n;
    struct param params[PARAMS_MAX];
    struct record usual; /* the parameters that have a usual value */
};

static bool notation_has_param(const struct notation *n, const char *name)
{
    for (uint32_t i = 0; i < n->n; i++) {
        if (strcmp(n->params[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static void notation_init(struct notation *n, const struct family_target *t,
                          const struct problem *p)
{
    struct record fields;
    n->target = t;
    n->n = t->params(p, &any_device, n->params);
    t->tile(p, n->tile);
    record_init(&n->usual);
    for (const struct notation_word *w = t->words; w->word; w++) {
        if (!*w->word && record_parse(&fields, w->fields, NULL) == 0 &&
            notation_has_param(n, fields.fields[0].name)) {
            record_set(&n->usual, fields.fields[0].name, record_at(&fields, 0), NULL);
        }
    }
    for (uint32_t i = 0; i < n->n; i++) {
        if (n->params[i].n == 1) {
            record_set(&n->usual, n->params[i].name, n->params[i].values[0], NULL);
        }
    }
    record_remove(&n->usual, n->tile[0]);
    record_remove(&n->usual, n->tile[1]);
}

static bool notation_is_usual(const struct notation *n, const char *name, const struct value *v)
{
    struct value usual;
    return record_get(&n->usual, name, &usual) && value_equal(&usual, v);
}

/* The name of a word's field when the word stands for a number, else "". */
static void notation_read_name(const struct notation_word *w, char name[RECORD_NAME_MAX])
{
    const size_t n = strlen(w->fields);
    const bool is_number = w->fields[n - 1] == '%';
    snprintf(name, RECORD_NAME_MAX, "%.*s", is_number ? (int)n - 2 : 0, w->fields);
}

/* ---- writing -------------------------------------------------------------------------------- */

struct notation_text {
    char *out; /* NOTATION_MAX bytes */
    size_t used;
};

__attribute__((format(printf, 2, 3))) static void notation_put(struct notation_text *o,
                                                               const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (o->used < NOTATION_MAX) {
        o->used += (size_t)vsnprintf(o->out + o->used, NOTATION_MAX - o->used, format, args);
    }
    va_end(args);
}

/* Moves the tile from `rest` into the text. False: a side is absent or no number. */
static bool notation_put_tile(const struct notation *n, struct notation_text *o,
                              struct record *rest)
{
    for (int i = 0; i < 3; i++) {
        struct value v;
        if (!record_get(rest, n->tile[i], &v) || v.type != VALUE_INT || v.integer < 0) {
            return false;
        }
        if (i < 2 || !notation_is_usual(n, n->tile[i], &v)) {
            notation_put(o, "%s%lld", i > 0 ? "x" : "", (long long)v.integer);
        }
        record_remove(rest, n->tile[i]);
    }
    return true;
}

static void notation_drop_usual(const struct notation *n, struct record *rest)
{
    for (uint32_t i = 0; i < n->usual.n; i++) {
        const struct value v = record_at(&n->usual, i);
        struct value own;
        if (record_get(rest, n->usual.fields[i].name, &own) && value_equal(&own, &v)) {
            record_remove(rest, n->usual.fields[i].name);
        }
    }
}

/* Removes the word's fields from `rest`. False, and nothing is removed: `rest` lacks one of the
 * fields, or has another value. */
static bool notation_remove_fields(const struct notation_word *w, struct record *rest)
{
    struct record fields;
    struct value v;
    record_parse(&fields, w->fields, NULL);
    for (uint32_t i = 0; i < fields.n; i++) {
        const struct value own = record_at(&fields, i);
        if (!record_get(rest, fields.fields[i].name, &v) || !value_equal(&v, &own)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < fields.n; i++) {
        record_remove(rest, fields.fields[i].name);
    }
    return true;
}

static void notation_put_words(const struct notation *n, struct notation_text *o,
                               struct record *rest)
{
    char name[RECORD_NAME_MAX];
    struct value v;
    for (const struct notation_word *w = n->target->words; w->word; w++) {
        notation_read_name(w, name);
        if (*name && record_get(rest, name, &v) && v.type == VALUE_INT && v.integer >= 0) {
            notation_put(o, " %.*s%lld", (int)strlen(w->word) - 1, w->word, (long long)v.integer);
            record_remove(rest, name);
        } else if (*w->word && !*name && notation_remove_fields(w, rest)) {
            notation_put(o, " %s", w->word);
        }
    }
}

/* Writes the fields without a word, and the parameters that the config lacks. False: it lacks a
 * parameter without a usual value. */
static bool notation_put_others(const struct notation *n, struct notation_text *o,
                                const struct record *rest, const struct record *config)
{
    struct value v;
    for (uint32_t i = 0; i < rest->n; i++) {
        char text[NOTATION_MAX];
        v = record_at(rest, i);
        value_format(&v, text, sizeof(text));
        notation_put(o, " %s=%s", rest->fields[i].name, text);
    }
    for (uint32_t i = 0; i < n->n; i++) {
        if (!record_get(config, n->params[i].name, &v)) {
            if (!record_get(&n->usual, n->params[i].name, &v)) {
                return false;
            }
            notation_put(o, " -%s", n->params[i].name);
        }
    }
    return true;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* A text that is being read. */
struct notation_reader {
    const struct notation *n;
    const char *at; /* the unread part */
    struct record *out;
    uint32_t understood; /* words without a mistake */
    uint32_t n_absent;
    const char *absent[PARAMS_MAX]; /* parameters that the config lacks: borrowed from n */
};

/* Reads "160x256" or "128x64x32". Returns the number of sides; 0: the text has no tile. */
static int notation_read_sides(const char *text, size_t length, int64_t sides[3])
{
    int n = 0;
    const char *at = text, *const end = text + length;
    for (; n < 3 && at < end && *at >= '0' && *at <= '9'; n++) {
        char *after;
        sides[n] = strtoll(at, &after, 10);
        if (after == end) {
            return n + 1 >= 2 ? n + 1 : 0;
        }
        if (after - at > 9 || *after != 'x') {
            return 0;
        }
        at = after + 1;
    }
    return 0;
}

bool notation_is_short(const char *text)
{
    int64_t sides[3];
    text += strspn(text, separators);
    return notation_read_sides(text, strcspn(text, separators), sides) > 0;
}

static int notation_set(struct notation_reader *r, const char *name, const struct value *v,
                        struct error *err)
{
    struct value known;
    if (record_get(r->out, name, &known)) {
        return error_set(err, ERROR_CONFLICT, "the config gives %s twice", name);
    }
    return record_set(r->out, name, *v, err);
}

static int notation_set_fields(struct notation_reader *r, const char *text, struct error *err)
{
    struct record fields;
    int code = record_parse(&fields, text, err);
    for (uint32_t i = 0; code == 0 && i < fields.n; i++) {
        const struct value v = record_at(&fields, i);
        code = notation_set(r, fields.fields[i].name, &v, err);
    }
    return code;
}

static int notation_read_tile(struct notation_reader *r, const char *word, struct error *err)
{
    int64_t sides[3];
    const int n = notation_read_sides(word, strlen(word), sides);
    for (int i = 0; i < n; i++) {
        notation_set(r, r->n->tile[i], &VALUE_OF_INT(sides[i]), NULL);
    }
    struct value usual;
    return n == 3 || record_get(&r->n->usual, r->n->tile[2], &usual)
               ? 0
               : error_set(err, ERROR_INVALID,
                           "%s lacks %s: a tile of the target %s is %s x %s x %s", word,
                           r->n->tile[2], r->n->target->label, r->n->tile[0], r->n->tile[1],
                           r->n->tile[2]);
}

/* Lists the words of a target, numbers as N: "c1 c2 sN"; only words of the field `name` unless ""
 */
static void notation_list_words(const struct family_target *t, const char *name,
                                char out[ERROR_TEXT_MAX])
{
    size_t used = 0;
    out[0] = '\0';
    for (const struct notation_word *w = t->words; w->word && used < ERROR_TEXT_MAX; w++) {
        const size_t n = strcspn(w->word, "%");
        if (n > 0 && strstr(w->fields, name)) {
            used += (size_t)snprintf(out + used, ERROR_TEXT_MAX - used, "%s%.*s%s",
                                     used > 0 ? " " : "", (int)n, w->word, w->word[n] ? "N" : "");
        }
    }
}

/* True when `word` is the word w; *number: the number that it gives, or 0. */
static bool notation_match(const struct notation_word *w, const char *word, int64_t *number)
{
    const size_t n = strcspn(w->word, "%"), digits = strspn(word + strnlen(word, n), "0123456789");
    *number = w->word[n] ? strtoll(word + strnlen(word, n), NULL, 10) : 0;
    return *w->word && strncmp(word, w->word, n) == 0 &&
           (w->word[n] ? digits > 0 && digits < 10 && !word[n + digits] : !word[n]);
}

static int notation_read_absent(struct notation_reader *r, const char *name, struct error *err)
{
    for (uint32_t i = 0; i < r->n->usual.n; i++) {
        if (strcmp(r->n->usual.fields[i].name, name) == 0 && r->n_absent < PARAMS_MAX) {
            r->absent[r->n_absent++] = r->n->usual.fields[i].name;
            return 0;
        }
    }
    return error_set(err, ERROR_INVALID,
                     "-%s: a config of the target %s has no parameter %s that it could lack", name,
                     r->n->target->label, name);
}

static int notation_read_word(struct notation_reader *r, const char *word, struct error *err)
{
    char name[RECORD_NAME_MAX], words[ERROR_TEXT_MAX];
    int64_t number;
    if (strchr(word, '=')) {
        return notation_set_fields(r, word, err);
    }
    if (*word == '-') {
        return notation_read_absent(r, word + 1, err);
    }
    for (const struct notation_word *w = r->n->target->words; w->word; w++) {
        if (notation_match(w, word, &number)) {
            notation_read_name(w, name);
            return *name ? notation_set(r, name, &VALUE_OF_INT(number), err)
                         : notation_set_fields(r, w->fields, err);
        }
    }
    notation_list_words(r->n->target, "", words);
    return error_set(err, ERROR_INVALID, "\"%.40s\" is no word of the target %s: %s, or NAME=VALUE",
                     word, r->n->target->label, words);
}

/* Copies the next word, whose quotes may hold blanks. False at the end of the text. */
static bool notation_next(struct notation_reader *r, char word[NOTATION_MAX])
{
    size_t n = 0;
    bool quoted = false;
    r->at += strspn(r->at, separators);
    for (; *r->at && (quoted || !strchr(separators, *r->at)) && n < NOTATION_MAX - 2; r->at++) {
        quoted ^= *r->at == '"';
        word[n++] = *r->at;
        if (*r->at == '\\' && quoted && r->at[1]) {
            word[n++] = *++r->at;
        }
    }
    word[n] = '\0';
    return n > 0;
}

static bool notation_lacks(const struct notation_reader *r, const char *name)
{
    for (uint32_t i = 0; i < r->n_absent; i++) {
        if (strcmp(r->absent[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* Adds the usual values. ERROR_INVALID: parameters without a usual value are missing. */
static int notation_complete(struct notation_reader *r, struct error *err)
{
    char missing[ERROR_TEXT_MAX] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < r->n->n; i++) {
        const char *name = r->n->params[i].name;
        struct value v;
        if (record_get(r->out, name, &v) || notation_lacks(r, name)) {
            continue;
        }
        if (!record_get(&r->n->usual, name, &v)) {
            char words[ERROR_TEXT_MAX];
            notation_list_words(r->n->target, name, words);
            used += (size_t)snprintf(missing + used, sizeof(missing) - used, "%s%s (%s)",
                                     used ? ", " : "", name, words);
            used = used < sizeof(missing) ? used : sizeof(missing) - 1;
            continue;
        }
        int code = record_set(r->out, name, v, err);
        if (code) {
            return code;
        }
    }
    return used ? error_set(err, ERROR_INVALID, "a config of the target %s needs %s",
                            r->n->target->label, missing)
                : 0;
}

/* Reads on after a mistake, to count the words that the target understands. */
static int notation_read_text(struct notation_reader *r, struct error *err)
{
    char word[NOTATION_MAX];
    record_init(r->out);
    notation_next(r, word);
    int code = notation_read_tile(r, word, err);
    while (notation_next(r, word)) {
        const int failed = notation_read_word(r, word, code ? NULL : err);
        code = code ? code : failed;
        r->understood += failed == 0;
    }
    return code ? code : notation_complete(r, err);
}

/* ---- targets -------------------------------------------------------------------------------- */

bool notation_write(const struct family_target *t, const struct problem *p,
                    const struct record *config, char out[NOTATION_MAX])
{
    if (!t->words) {
        return false;
    }
    struct notation n;
    struct record rest, back;
    struct notation_text o = {.out = out};
    notation_init(&n, t, p);
    record_copy(&rest, config);
    if (!notation_put_tile(&n, &o, &rest)) {
        return false;
    }
    notation_drop_usual(&n, &rest);
    notation_put_words(&n, &o, &rest);
    if (!notation_put_others(&n, &o, &rest, config)) {
        return false;
    }
    struct notation_reader r = {.n = &n, .at = out, .out = &back};
    return o.used < NOTATION_MAX && notation_read_text(&r, NULL) == 0 &&
           record_equal(&back, config);
}

/* The targets that can read a text; the errors of the targets that understood most of it. */
struct notation_reading {
    const struct family_target *found;
    uint32_t understood;
    struct error why;
};

static void notation_keep_error(struct notation_reading *reading, uint32_t understood,
                                const struct error *why)
{
    if (!reading->why.code || understood > reading->understood) {
        reading->understood = understood;
        reading->why = *why;
    } else if (understood == reading->understood) {
        const struct error first = reading->why;
        error_set(&reading->why, ERROR_INVALID, "%s; %s", first.text, why->text);
    }
}

static int notation_try(struct notation_reading *reading, const struct family_target *t,
                        const struct problem *p, const char *text, struct record *out,
                        struct error *err)
{
    struct notation n;
    struct record config;
    struct error why = ERROR_NULL;
    notation_init(&n, t, p);
    struct notation_reader r = {.n = &n, .at = text, .out = &config};
    if (notation_read_text(&r, &why)) {
        notation_keep_error(reading, r.understood, &why);
        return 0;
    }
    if (reading->found && !record_equal(&config, out)) {
        return error_set(err, ERROR_INVALID,
                         "\"%.200s\" is a config of the target %s and of %s: name the target, or "
                         "each parameter as NAME=VALUE",
                         text, reading->found->label, t->label);
    }
    reading->found = t;
    record_copy(out, &config);
    return 0;
}

int notation_read(const struct family *f, const char *label, const struct problem *p,
                  const char *text, struct record *out, struct error *err)
{
    struct notation_reading reading = {.understood = 0};
    const bool any = !label || !*label;
    int code = 0;
    for (const struct family_target *const *t = f ? f->targets : NULL; t && *t && !code; t++) {
        if ((*t)->words && (any || strcmp((*t)->label, label) == 0)) {
            code = notation_try(&reading, *t, p, text, out, err);
        }
    }
    if (code || reading.found) {
        return code;
    }
    return reading.why.code
               ? error_set(err, ERROR_INVALID, "%s", reading.why.text)
               : error_set(err, ERROR_INVALID,
                           "\"%.200s\" is short notation, which %s does not have: give each "
                           "parameter as NAME=VALUE",
                           text, any ? "this op" : label);
}
