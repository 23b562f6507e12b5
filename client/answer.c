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

/* Of text; the characters written; 0: not of the usual kinds, or no room. */
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
    if (number >= 0 && number < 1000 && size > 4) { /* most are */
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

/* The same text in the same place as the time before, of a few letters, looks the same. */
static size_t format_short(struct answer_name *known, const char *text, size_t n, char *out,
                           size_t size)
{
    if (n > sizeof(known->word) || size <= sizeof(known->shown)) {
        return format_text(text, n, out, size);
    }
    if (!known->shown_n || known->word_n != n || !pull_same(known->word, text, n)) {
        size_t length = format_text(text, n, out, size);
        known->shown_n = length <= sizeof(known->shown) ? (uint8_t)length : 0;
        known->word_n = (uint8_t)n;
        memcpy(known->word, text, n);
        memcpy(known->shown, out, known->shown_n);
        return length;
    }
    memcpy(out, known->shown, sizeof(known->shown));
    return known->shown_n;
}

static size_t format_value(struct pull *p, struct answer_name *known, char *out, size_t size)
{
    int64_t number;
    bool flag;
    const char *text;
    size_t n;
    if (pull_int(p, &number)) {
        return format_number(number, out, size);
    }
    if (pull_bool(p, &flag)) {
        n = flag ? 4 : 5;
        if (size <= 8) {
            return 0;
        }
        memcpy(out, flag ? "true\0\0\0" : "false\0\0", 8);
        return n;
    }
    return pull_str(p, &text, &n) ? format_short(known, text, n, out, size) : 0;
}

void answer_order_init(struct answer_order *order)
{
    order->names[0].n = 0; /* none is looked at behind one that is not known */
    order->stamp[0] = order->target[0] = 0;
}

/* A config on its way into an answer's line. */
struct config_line {
    struct gemmd_answer *a;
    struct answer_order *order;
    bool as_before; /* so far its names are those of the config before, which were good */
    const char *last;
    size_t last_n;
    bool whole;
};

static void pack_name(struct answer_name *known)
{
    char packed[sizeof(known->packed)] = {0}, mask[sizeof(known->mask)];
    size_t n = known->n + 1u;
    bool fits = n <= sizeof(packed);
    memset(mask, 0xff, sizeof(mask)); /* what does not fit is never met */
    if (fits) {
        packed[0] = (char)(0xa0 | known->n);
        memcpy(packed + 1, known->text + 1, known->n);
        memset(mask + n, 0, sizeof(mask) - n);
    }
    memcpy(known->packed, packed, sizeof(packed));
    memcpy(known->mask, mask, sizeof(mask));
}

static bool answer_read_name(struct config_line *l, size_t i, const char *name, size_t n)
{
    struct answer_name *known = &l->order->names[i];
    l->as_before = l->as_before && n > 0 && known->n == n && pull_same(known->text + 1, name, n);
    if (!l->as_before) {
        if (!is_next_name(name, n, l->last, l->last_n)) {
            return false;
        }
        known->n = (uint8_t)n;
        known->shown_n = 0;
        known->text[0] = ' ';
        memcpy(known->text + 1, name, n);
        known->text[n + 1] = '=';
        pack_name(known);
        if (i + 1 < RECORD_FIELDS_MAX) {
            known[1].n = 0; /* it was behind another one */
        }
    }
    l->last = name;
    l->last_n = n;
    return true;
}

static inline uint64_t word_at(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

enum {
    USUAL_IN = 40,
    USUAL_OUT = 48
}; /* bytes that the longest usual pair may look at, and write */

/* The next pair, when its name is the one that was there before and its value a small number, a
 * flag or the same short text. The characters written; 0: it is not so, nothing is taken. */
static inline size_t answer_read_usual(const struct answer_name *known, struct pull *p, char *out,
                                       bool first)
{
    const uint8_t *in = p->at;
    if (pull_left(p) < USUAL_IN || !known->n ||
        (((word_at(in) ^ known->packed[0]) & known->mask[0]) |
         ((word_at(in + 8) ^ known->packed[1]) & known->mask[1]) |
         ((word_at(in + 16) ^ known->packed[2]) & known->mask[2]))) {
        return 0;
    }
    const uint8_t *value = in + 1 + known->n;
    size_t at = known->n + 2u - first, n = value[0] & 31;
    memcpy(out, known->text + first, sizeof(known->text) - 1);
    if (value[0] < 0x80 || value[0] == 0xcc) {
        bool one = value[0] < 0x80;
        p->at = value + 2 - one;
        return at + format_number(value[!one], out + at, USUAL_OUT);
    }
    if ((value[0] & 0xfe) == 0xc2) {
        bool flag = value[0] & 1;
        memcpy(out + at, flag ? "true\0\0\0" : "false\0\0", 8);
        p->at = value + 1;
        return at + 5 - flag;
    }
    if ((value[0] & 0xe0) == 0xa0 && known->shown_n && known->word_n == n &&
        memcmp(value + 1, known->word, n) == 0) {
        memcpy(out + at, known->shown, sizeof(known->shown));
        p->at = value + 1 + n;
        return at + known->shown_n;
    }
    return 0;
}

/* Straight from the wire, where names come sorted. False: this is another config than gemmd's are,
 * and a record has to look at it. */
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
        const char *before = (const char *)p->at + 1;
        if (l->as_before && size - at > USUAL_OUT &&
            (length = answer_read_usual(known, p, out + at, i == 0)) > 0) {
            l->last = before;
            l->last_n = known->n;
            at += length;
            continue;
        }
        if (!pull_str(p, &name, &n) || !answer_read_name(l, i, name, n) ||
            size - at < sizeof(known->text)) {
            return false;
        }
        bool first = i == 0; /* no space */
        memcpy(out + at, known->text + first, sizeof(known->text) - 1);
        at += n + 2 - first;
        length = format_value(p, known, out + at, size - at);
        if (!length) {
            return false;
        }
        at += length;
    }
    out[at] = 0;
    l->whole = true;
    return true;
}

static int answer_read_config(struct gemmd_answer *a, const struct wire_obj *map, struct error *err)
{
    struct record config;
    record_init(&config);
    int r = record_unpack(&config, map, err);
    return r ? error_prefix(err, "answer.config") : answer_set_config(a, &config, err);
}

/* ---- from the wire --------------------------------------------------------------------------- */

/* Both are arrays, and `to` is the longer one. */
#define COPY_TEXT(to, from)                                                                        \
    do {                                                                                           \
        _Static_assert(sizeof(to) >= sizeof(from), "every text of an answer fits");                \
        memcpy((to), (from), strlen(from) + 1);                                                    \
    } while (0)

static int answer_unpack_map(const struct wire_obj *map, struct answer *a, struct gemmd_answer *out,
                             struct error *err)
{
    static const char *const beside[] = {"config", NULL};
    if (wire_type_of(map) != WIRE_MAP) {
        return error_set(err, ERROR_MALFORMED, "it is not a map");
    }
    int r = schema_decode_beside(&answer_schema, SCHEMA_LENIENT, map, beside, a, err);
    if (r == 0 && !a->tier[0]) {
        r = error_set(err, ERROR_MALFORMED, "it has no tier");
    }
    return r ? r : answer_read_config(out, wire_find(map, "config"), err);
}

int answer_unpack(const struct wire_obj *map, struct gemmd_answer *out, struct error *err)
{
    struct answer a;
    *out = (struct gemmd_answer){.size = sizeof(*out)};
    if (answer_unpack_map(map, &a, out, err)) {
        if (err->code == ERROR_INVALID) { /* it is not the caller's fault */
            err->code = ERROR_MALFORMED;
        }
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

/* ---- from the bytes -------------------------------------------------------------------------- */

/* ANSWER_FIELDS as they lie in struct gemmd_answer, where `config` is another thing: a line. */
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

/* What fits in one fits in the other. */
#define SAME_INT(name)                                                                             \
    _Static_assert(sizeof(((struct gemmd_answer *)0)->name) == sizeof(int64_t), #name);
#define SAME_REAL(name)                                                                            \
    _Static_assert(sizeof(((struct gemmd_answer *)0)->name) == sizeof(double), #name);
#define SAME_FLAG(name)                                                                            \
    _Static_assert(sizeof(((struct gemmd_answer *)0)->name) == sizeof(bool), #name);
#define SAME_TEXT(name)                                                                            \
    _Static_assert(sizeof(((struct gemmd_answer *)0)->name) == sizeof(((struct answer *)0)->name), \
                   #name);
#define SAME_RECORD(name)
#define SAME(type, kind, name, n) SAME_##kind(name)
ANSWER_FIELDS(SAME, )

bool answer_pull(struct pull *p, struct gemmd_answer *out, struct answer_order *order)
{
    struct pull in = *p;
    struct config_line line = {out, order, true, "", 0, false};
    out->config[0] = '\0';
    if (!pull_schema(&in, &given_schema, "config", pull_config, &line, out) || !line.whole ||
        !out->tier[0]) { /* it may be an error, which is a map too */
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

int answer_read(struct pull *p, struct wire_doc *doc, struct gemmd_answer *out, struct error *err)
{
    struct answer_order order;
    struct pull item;
    const struct wire_obj *map;
    *out = (struct gemmd_answer){.size = sizeof(*out)};
    answer_order_init(&order);
    if (answer_pull(p, out, &order)) {
        return 0;
    }
    if (!pull_item(p, &item)) {
        return error_set(err, ERROR_MALFORMED, "gemmd's answer cannot be read: it is cut off");
    }
    int r = wire_decode(doc, item.at, pull_left(&item), &map, err);
    return r ? r : answer_unpack(map, out, err);
}
