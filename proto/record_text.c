/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one-line form. The form of a word without quotes after '=' decides its type. Text that looks
 * like another type, or has a space or the like, is written in quotes. So every record reads back
 * equal.
 */
#include <string.h>
#include <strings.h>

#include "proto/record.h"
#include "proto/text.h"

static bool is_separator(char c)
{
    return c == ' ' || c == ',' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_word(const char *s, size_t n, const char *word)
{
    return strlen(word) == n && strncasecmp(s, word, n) == 0;
}

/* Makes the value of a word without quotes. False: a number beyond the range of its type. */
static bool bare_value(const char *s, size_t n, struct value *v)
{
    *v = VALUE_OF_TEXT(s);
    if (is_word(s, n, "true") || is_word(s, n, "false")) {
        *v = VALUE_OF_BOOL(n == 4);
        return true;
    }
    int64_t integer = 0;
    double real = 0;
    switch (text_number(s, n, &integer, &real)) {
    case TEXT_INT:
        *v = VALUE_OF_INT(integer);
        return true;
    case TEXT_REAL:
        *v = VALUE_OF_REAL(real);
        return true;
    case TEXT_NUMBER_RANGE:
        return false;
    case TEXT_NOT_NUMBER:
        break;
    }
    return true;
}

static bool record_needs_quotes(const char *s)
{
    for (const char *p = s; *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (c <= ' ' || c == 0x7f || strchr("\"\\=,", c)) {
            return true;
        }
    }
    struct value v;
    return !*s || !bare_value(s, strlen(s), &v) || v.type != VALUE_TEXT;
}

static void put_quoted(struct text_out *o, const char *s)
{
    static const char hex[] = "0123456789abcdef";
    text_putc(o, '"');
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') {
            text_putc(o, '\\');
            text_putc(o, *s);
        } else if (c < ' ' || c == 0x7f) {
            char escape[] = {'\\', 'x', hex[c >> 4], hex[c & 15]};
            text_put(o, escape, sizeof(escape));
        } else {
            text_putc(o, *s);
        }
    }
    text_putc(o, '"');
}

void value_put(struct text_out *o, const struct value *v)
{
    switch (v->type) {
    case VALUE_NONE:
        break;
    case VALUE_BOOL:
        text_puts(o, v->flag ? "true" : "false");
        break;
    case VALUE_INT:
        text_put_int(o, v->integer);
        break;
    case VALUE_REAL:
        text_put_real(o, v->real);
        break;
    case VALUE_TEXT:
        if (record_needs_quotes(v->text)) {
            put_quoted(o, v->text);
        } else {
            text_puts(o, v->text);
        }
        break;
    }
}

size_t value_format(const struct value *v, char *out, size_t size)
{
    struct text_out o = text_out_begin(out, size);
    value_put(&o, v);
    return o.len < size ? o.len : size > 0 ? size - 1 : 0;
}

void record_put(struct text_out *o, const struct record *r)
{
    for (size_t i = 0; i < r->n; i++) {
        struct value v = record_at(r, i);
        text_puts(o, i > 0 ? " " : "");
        text_puts(o, r->fields[i].name);
        text_putc(o, '=');
        value_put(o, &v);
    }
}

size_t record_format(const struct record *r, char *out, size_t size)
{
    struct text_out o = text_out_begin(out, size);
    record_put(&o, r);
    return o.len;
}

/* A name=value word of the line. */
struct word {
    const char *name;
    size_t name_n;
    const char *value;
    size_t value_n;
    bool quoted;
};

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Reads a quoted value at *p into buffer. False: no closing quote, a bad escape, or too long. */
static bool read_quoted(const char **p, char *buffer, size_t size, size_t *n)
{
    const char *s = *p + 1;
    *n = 0;
    while (*s && *s != '"') {
        char c = *s++;
        if (c == '\\') {
            c = *s++;
            if (c == 'x') {
                int high = hex_digit(s[0]);
                int low = high < 0 ? -1 : hex_digit(s[1]);
                if (low < 0 || high + low == 0) {
                    return false;
                }
                c = (char)(high << 4 | low);
                s += 2;
            } else if (c != '"' && c != '\\') {
                return false;
            }
        }
        if (*n == size) {
            return false;
        }
        buffer[(*n)++] = c;
    }
    *p = s + 1;
    return *s == '"';
}

static size_t word_length(const char *s)
{
    size_t n = 0;
    while (s[n] && !is_separator(s[n])) {
        n++;
    }
    return n;
}

static int bad_word(const char *word, const char *why, struct error *err)
{
    return error_set(err, ERROR_INVALID, "'%s': %s", text_show(word, word_length(word)).text, why);
}

/* Reads the next word at *p and moves *p behind it; `buffer` gets the text of a quoted value. */
static int read_word(const char **p, struct word *w, char *buffer, struct error *err)
{
    const char *start = *p;
    size_t n = word_length(start);
    const char *equals = memchr(start, '=', n);
    if (!equals) {
        return bad_word(start, "expected name=value, such as M=4096 or BLOCK_SIZE_M=64", err);
    }
    *w = (struct word){.name = start, .name_n = (size_t)(equals - start), .value = equals + 1};
    *p = equals + 1;
    if (**p == '"') {
        w->quoted = true;
        w->value = buffer;
        if (!read_quoted(p, buffer, RECORD_TEXT_MAX, &w->value_n)) {
            if (strlen(equals + 1) >= RECORD_TEXT_MAX) {
                return error_set(err, ERROR_INVALID,
                                 "the text of '%.*s' is too long: %d bytes at most", (int)w->name_n,
                                 w->name, RECORD_TEXT_MAX);
            }
            return bad_word(
                start, "the quoted text has no end or a bad escape (only \\\" \\\\ \\xNN)", err);
        }
        if (**p && !is_separator(**p)) {
            return bad_word(start, "put a space after the closing quote", err);
        }
        return 0;
    }
    w->value_n = word_length(*p);
    *p += w->value_n;
    if (w->value_n == 0) {
        return bad_word(start, "the value is missing; write \"\" for empty text", err);
    }
    if (memchr(w->value, '=', w->value_n) || memchr(w->value, '"', w->value_n) ||
        memchr(w->value, '\\', w->value_n)) {
        return bad_word(start, "put text that holds = \" or \\ in double quotes", err);
    }
    return 0;
}

static int set_word(struct record *r, const struct word *w, struct error *err)
{
    if (record_has_n(r, w->name, w->name_n)) {
        return error_set(err, ERROR_CONFLICT, "field '%s' is given twice",
                         text_show(w->name, w->name_n).text);
    }
    struct value v = VALUE_OF_TEXT(w->value);
    if (!w->quoted && !bare_value(w->value, w->value_n, &v)) {
        return error_set(err, ERROR_INVALID, "%s=%s: the number is out of range",
                         text_show(w->name, w->name_n).text, text_show(w->value, w->value_n).text);
    }
    return record_set_n(r, w->name, w->name_n, &v, w->value_n, err);
}

int record_parse(struct record *r, const char *text, struct error *err)
{
    char buffer[RECORD_TEXT_MAX];
    record_init(r);
    while (true) {
        while (is_separator(*text)) {
            text++;
        }
        if (!*text) {
            return 0;
        }
        struct word w = {0};
        int done = read_word(&text, &w, buffer, err);
        if (done == 0) {
            done = set_word(r, &w, err);
        }
        if (done < 0) {
            return done;
        }
    }
}
