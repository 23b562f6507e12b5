/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "client/answer.h"
#include "client/ask.h"
#include "kernels/family.h"
#include "proto/message.h"
#include "proto/rpc.h"

int answer_check_size(const struct gemmd_answer *out, struct error *err)
{
    if (!out) {
        return error_set(err, ERROR_INVALID, "there is no struct gemmd_answer to fill in (NULL)");
    }
    return ask_check_size(out->size, ANSWER_SIZE_MIN, "answer", err);
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
           (strcmp(a->source, "tuned") == 0 || strcmp(a->source, "manual") == 0 ||
            (strcmp(a->source, "fleet") == 0 && a->module[0])); /* confirmed here */
}

/* ---- the config's line ----------------------------------------------------------------------- */

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

enum { WORD_MAX = 64 }; /* bytes of a text value in a config; a longer text is unusual */

/* True for a valid name of a record's field that sorts after `last`, the name of the field before.
 */
static bool is_next_name(const char *name, size_t n, const char *last, size_t last_n)
{
    int order = memcmp(last, name, n < last_n ? n : last_n);
    return record_name_ok(name, n) && (order < 0 || (order == 0 && last_n < n));
}

/* Writes a text value of a config's line. Returns the number of characters written; 0: an unusual
 * text (empty, long, or not ASCII), or no room. */
static size_t format_text(const char *text, size_t n, char *out, size_t size)
{
    char word[WORD_MAX];
    if (n == 0 || n >= sizeof(word)) {
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        if (text[i] <= 0) { /* a zero, or not ASCII */
            return 0;
        }
    }
    memcpy(word, text, n);
    word[n] = '\0';
    struct value v = VALUE_OF_TEXT(word);
    size_t length = value_format(&v, out, size);
    return length + 1 < size ? length : 0;
}

static size_t format_number(int64_t number, char *out, size_t size)
{
    if (number >= 0 && number < 1000 && size > 4) { /* the usual numbers, without snprintf */
        unsigned v = (unsigned)number;
        size_t n = v < 10 ? 1 : v < 100 ? 2 : 3;
        out[n - 1] = (char)('0' + v % 10);
        out[n > 2] = n > 1 ? (char)('0' + v / 10 % 10) : out[n > 2];
        out[0] = n > 2 ? (char)('0' + v / 100) : out[0];
        return n;
    }
    struct value v = VALUE_OF_INT(number);
    size_t length = value_format(&v, out, size);
    return length + 1 < size ? length : 0;
}

static size_t format_value(struct pull *p, char *out, size_t size)
{
    int64_t number;
    bool flag;
    const char *text;
    size_t n;
    if (pull_int(p, &number)) {
        return format_number(number, out, size);
    }
    if (pull_bool(p, &flag)) {
        memcpy(out, flag ? "true" : "false", size > 5 ? 5 : 0);
        return size <= 5 ? 0 : flag ? 4 : 5;
    }
    return pull_str(p, &text, &n) ? format_text(text, n, out, size) : 0;
}

void answer_order_init(struct answer_order *order)
{
    order->names[0].n = 0; /* no name is stored yet; names[i] is read only after names[i - 1] */
    order->stamp[0] = order->target[0] = 0;
}

/* A config that is being written as the line a->config. */
struct config_line {
    struct gemmd_answer *a;
    struct answer_order *order;
    bool as_before;   /* all names so far equal the names of the answer before: they are checked */
    const char *last; /* the name before, of last_n bytes */
    size_t last_n;
    bool whole; /* the line is complete */
};

static bool answer_read_name(struct config_line *l, size_t i, const char *name, size_t n)
{
    struct answer_name *known = &l->order->names[i];
    l->as_before = l->as_before && n > 0 && known->n == n && pull_same(known->text + 1, name, n);
    if (!l->as_before) {
        if (!is_next_name(name, n, l->last, l->last_n)) {
            return false;
        }
        known->n = (uint8_t)n;
        known->text[0] = ' ';
        memcpy(known->text + 1, name, n);
        known->text[n + 1] = '=';
        if (i + 1 < RECORD_FIELDS_MAX) {
            /* the next name of the answer before may not sort after this name: forget it, so that
             * the next name of this config is checked */
            known[1].n = 0;
        }
    }
    l->last = name;
    l->last_n = n;
    return true;
}

/* Reads a config from its bytes, and writes its line. False: an unusual config (names that are not
 * sorted, an unusual text, no room). */
static bool pull_config(void *ctx, struct pull *p)
{
    struct config_line *l = ctx;
    char *out = l->a->config;
    const char *name;
    size_t pairs, n, length, at = 0, size = sizeof(l->a->config);
    if (!pull_map(p, &pairs) || pairs > RECORD_FIELDS_MAX) {
        return false;
    }
    for (size_t i = 0; i < pairs; i++) {
        struct answer_name *known = &l->order->names[i];
        if (!pull_str(p, &name, &n) || !answer_read_name(l, i, name, n) ||
            size - at < sizeof(known->text)) {
            return false;
        }
        bool first = i == 0; /* skips the space before the first name */
        memcpy(out + at, known->text + first, sizeof(known->text) - 1);
        at += n + 2 - first;
        length = format_value(p, out + at, size - at);
        if (!length) {
            return false;
        }
        at += length;
    }
    out[at] = 0;
    l->whole = true;
    return true;
}

/* ---- from the wire --------------------------------------------------------------------------- */

/* The table of fields (ANSWER_FIELDS, proto/message.h) for struct gemmd_answer. It lacks `config`,
 * which is a record on the wire and a line in the struct. */
#define ROW_INT(name)  SCHEMA_ROW(gemmd_answer, INT, name, 0)
#define ROW_REAL(name) SCHEMA_ROW(gemmd_answer, REAL, name, 0)
#define ROW_FLAG(name) SCHEMA_ROW(gemmd_answer, FLAG, name, 0)
#define ROW_TEXT(name) SCHEMA_ROW(gemmd_answer, TEXT, name, 0)
#define ROW_RECORD(name)
#define ROW(type, kind, name, n) ROW_##kind(name)
static const struct schema_field given_fields[] = {ANSWER_FIELDS(ROW, )};
enum { GIVEN_FIELDS = sizeof(given_fields) / sizeof(given_fields[0]) };
static const struct schema given_schema = {"answer", sizeof(struct gemmd_answer), GIVEN_FIELDS,
                                           given_fields};

static int answer_unpack_map(const struct wire_obj *map, struct gemmd_answer *out,
                             struct error *err)
{
    static const char *const beside[] = {"config", NULL};
    struct record config;
    if (wire_type_of(map) != WIRE_MAP) {
        return error_set(err, ERROR_MALFORMED, "it is not a map");
    }
    int r = schema_decode_beside(&given_schema, SCHEMA_LENIENT, map, beside, out, err);
    if (r == 0 && !out->tier[0]) {
        r = error_set(err, ERROR_MALFORMED, "it has no tier");
    }
    if (r == 0 && (r = record_unpack(&config, wire_find(map, "config"), err))) {
        error_prefix(err, "answer.config");
    }
    return r ? r : answer_set_config(out, &config, err);
}

int answer_unpack(const struct wire_obj *map, struct gemmd_answer *out, struct error *err)
{
    *out = (struct gemmd_answer){.size = sizeof(*out)};
    if (answer_unpack_map(map, out, err)) {
        if (err->code == ERROR_INVALID) { /* the daemon's fault, not the caller's */
            err->code = ERROR_MALFORMED;
        }
        return error_prefix(err, "gemmd's answer cannot be read");
    }
    family_stamp_target(out->stamp, out->target);
    return 0;
}

bool answer_pull(struct pull *p, struct gemmd_answer *out, struct answer_order *order)
{
    struct pull in = *p;
    struct config_line line = {out, order, true, "", 0, false};
    out->config[0] = '\0';
    if (!pull_schema(&in, &given_schema, "config", pull_config, &line, out) || !line.whole ||
        !out->tier[0]) { /* without tier the map is an error, not an answer */
        return false;
    }
    out->local = false;
    if (strcmp(out->stamp, order->stamp) != 0) {
        strcpy(order->stamp, out->stamp);
        family_stamp_target(out->stamp, order->target);
    }
    memcpy(out->target, order->target, sizeof(out->target));
    *p = in;
    return true;
}

int answer_read(struct pull *p, struct wire_doc *doc, struct gemmd_answer *out,
                struct answer_order *order, struct error *err)
{
    struct pull item;
    const struct wire_obj *o;
    if (answer_pull(p, out, order)) {
        return 0;
    }
    if (!pull_item(p, &item)) {
        return error_set(err, ERROR_MALFORMED, "gemmd's answer cannot be read: it is cut off");
    }
    int r = wire_decode(doc, item.at, pull_left(&item), &o, err);
    bool is_fault = r == 0 && !wire_find(o, "tier") && wire_find(o, "name");
    return r ? r : is_fault ? rpc_get_error(o, err) : answer_unpack(o, out, err);
}
