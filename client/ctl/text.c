/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one-line text form, "BLOCK_SIZE_M=64 permute_x=true", which users type and tables show. The
 * form is that of records (proto/record.h), which jobs and the daemon read with the same code: a
 * text finds the rows that a job stored under the same text. Here the form becomes JSON, for --json
 * and for methods that take maps.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/ctl.h"
#include "proto/record.h"

/* ---- memory --------------------------------------------------------------------------------- */

/* Ends the process when there is no memory for a text. */
static char *text_need(char *text)
{
    if (!text) {
        fputs("gemmctl: no memory\n", stderr);
        exit(FAILED);
    }
    return text;
}

char *text_copy(const char *text)
{
    return text_need(strdup(text));
}

char *text_dump(const json_t *j, size_t flags)
{
    return j ? text_need(json_dumps(j, flags)) : NULL;
}

char *text_vformat(const char *format, va_list args)
{
    char *text;
    return text_need(vasprintf(&text, format, args) < 0 ? NULL : text);
}

char *text_format(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = text_vformat(format, args);
    va_end(args);
    return text;
}

char *text_append(char *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    TEXT_AUTO *before = text, *more = text_vformat(format, args);
    va_end(args);
    return text_format("%s%s", before ? before : "", more);
}

/* ---- reading -------------------------------------------------------------------------------- */

static const char separators[] = " \t\r\n,";

static json_t *text_value_to_json(const struct value *v)
{
    switch (v->type) {
    case VALUE_BOOL:
        return json_boolean(v->flag);
    case VALUE_INT:
        return json_integer(v->integer);
    case VALUE_REAL:
        return json_real(v->real);
    default:
        return json_string(v->text);
    }
}

json_t *text_to_json(const char *text, struct error *err)
{
    struct record r;
    if (record_parse(&r, text, err)) {
        return NULL;
    }
    json_t *object = json_object();
    for (size_t i = 0; i < r.n; i++) {
        const struct value v = record_at(&r, i);
        json_object_set_new(object, r.fields[i].name, text_value_to_json(&v));
    }
    return object;
}

json_t *text_to_problem(const char *text, struct error *err)
{
    text += strspn(text, separators);
    size_t n = strcspn(text, separators);
    bool has_op = n > 0 && !memchr(text, '=', n);
    json_auto_t *fields = text_to_json(has_op ? text + n : text, err);
    if (json_object_get(fields, "op")) {
        error_set(err, ERROR_INVALID,
                  "op is no field: a problem's text begins with it, as in \"gemm M=16 ...\"");
        return NULL;
    }
    json_object_set_new(fields, "op", has_op ? json_stringn(text, n) : json_string("grouped_gemm"));
    return json_incref(fields);
}

/* ---- writing -------------------------------------------------------------------------------- */

/* The text of a value as in the one-line form, malloc'ed. Control characters stay as they are:
 * tables write them as \x1b. */
static char *text_of_value(const json_t *v)
{
    if (!json_is_string(v)) {
        return text_dump(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17) | JSON_COMPACT);
    }
    const char *s = json_string_value(v);
    const size_t size = 4 * strlen(s) + 3; /* each byte as \xNN, and two quotes */
    char *text = text_need(malloc(size)), *to = text;
    if (value_format(&VALUE_OF_TEXT(s), text, size) && strcmp(text, s) == 0) {
        return text; /* needs no quotes */
    }
    *to++ = '"';
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') {
            *to++ = '\\';
        }
        *to++ = *s;
    }
    strcpy(to, "\"");
    return text;
}

char *text_of_json(const json_t *object)
{
    const char *op = field_string(object, "op"), *between = op ? " " : "";
    TEXT_AUTO *json =
        json_is_object(object) ? text_dump(object, JSON_SORT_KEYS | JSON_REAL_PRECISION(17)) : NULL;
    json_auto_t *sorted = json ? json_loads(json, 0, NULL) : NULL;
    char *text = text_copy(op ? op : "");
    OBJECT_EACH(name, v, sorted) {
        if ((op && strcmp(name, "op") == 0) || json_is_null(v)) {
            continue;
        }
        TEXT_AUTO *value = text_of_value(v);
        text = text_append(text, "%s%s=%s", between, name, value);
        between = " ";
    }
    return text;
}

/* ---- showing --------------------------------------------------------------------------------- */

/* Length in bytes of the UTF-8 character at s that changes the direction of the text around it
 * (U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069), or ends a line (U+2028, U+2029). */
static size_t text_direction_at(const unsigned char *s)
{
    if (s[0] == 0xd8 && s[1] == 0x9c) {
        return 2;
    }
    const bool direction =
        s[0] == 0xe2 &&
        ((s[1] == 0x80 && (s[2] == 0x8e || s[2] == 0x8f || (s[2] >= 0xa8 && s[2] <= 0xae))) ||
         (s[1] == 0x81 && s[2] >= 0xa6 && s[2] <= 0xa9));
    return direction ? 3 : 0;
}

/* Length in bytes of the control character at s: C0, DEL, C1 in UTF-8, or one for the direction of
 * text. 0: another character. */
static size_t text_control_at(const unsigned char *s)
{
    if (s[0] == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0) {
        return 2;
    }
    return s[0] < 0x20 || s[0] == 0x7f ? 1 : text_direction_at(s);
}

char *text_visible(char *text)
{
    char *out = text_need(malloc(4 * strlen(text) + 1)), *to = out;
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        size_t n = text_control_at(s);
        if (n == 0) {
            *to++ = (char)*s++;
        }
        for (; n > 0; n--) {
            to += sprintf(to, "\\x%02x", *s++);
        }
    }
    *to = '\0';
    free(text);
    return out;
}

void text_print(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    TEXT_AUTO *line = text_visible(text_vformat(format, args));
    va_end(args);
    fputs(line, stdout);
}

void text_remark(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    TEXT_AUTO *line = text_visible(text_vformat(format, args));
    va_end(args);
    if (isatty(STDERR_FILENO)) {
        fit_fold(line, (size_t)fit_width(STDERR_FILENO));
    }
    fprintf(stderr, "%s\n", line);
}

void text_print_named(const char *name, const char *format, ...)
{
    enum { INDENT = 13 };
    va_list args;
    va_start(args, format);
    TEXT_AUTO *text = text_visible(text_vformat(format, args));
    char *at = text;
    va_end(args);
    const int room = fit_width(STDOUT_FILENO) - INDENT;
    if (room > 0 && isatty(STDOUT_FILENO) && strncmp(text, "gemmctl ", 8) != 0) {
        fit_fold(text, (size_t)room);
    }
    for (const char *part; (part = strsep(&at, "\n")); name = "") {
        printf("%-12s %s\n", name, part);
    }
}

void number_text(double v, char out[NUMBER_TEXT_MAX])
{
    value_format(&VALUE_OF_REAL(v), out, NUMBER_TEXT_MAX);
}

bool text_read_number(const char *text, int64_t min, int64_t max, int64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return *text && !*end && !errno && *out >= min && *out <= max;
}

/* ---- files ---------------------------------------------------------------------------------- */

enum { FILE_MAX = 1 << 29 };

/* Copies a file. A text fails at a zero byte and above the size limit: a device file may never end.
 * 0, or the error in `err`. */
static int text_copy_stream(const char *path, bool is_text, FILE *in, FILE *out, struct error *err)
{
    char buffer[16 * 1024];
    size_t n, length = 0;
    for (; (n = fread(buffer, 1, sizeof(buffer), in)) > 0; length += n) {
        const char *zero = is_text ? memchr(buffer, '\0', n) : NULL;
        if (zero) {
            return error_set(err, ERROR_INVALID,
                             "%s has a zero byte at %zu, which no text has: it is no text, "
                             "or it was cut off by a crash",
                             path, length + (size_t)(zero - buffer));
        }
        if (is_text && length + n > FILE_MAX) {
            return error_set(
                err, ERROR_INVALID,
                "%s is larger than %d MiB, the most that gemmctl reads: give it in parts", path,
                FILE_MAX >> 20);
        }
        fwrite(buffer, 1, n, out);
    }
    return ferror(in) || ferror(out)
               ? error_set(err, ERROR_INVALID, "cannot read %s: %s", path, strerror(errno))
               : 0;
}

static char *text_read(const char *path, bool is_text, size_t *size, struct error *err)
{
    char *text = NULL;
    FILE *in = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    FILE *out = in ? open_memstream(&text, size) : NULL;
    int code = out ? text_copy_stream(path, is_text, in, out, err)
                   : error_set(err, ERROR_INVALID, "cannot read %s: %s", path, strerror(errno));
    if (out && fclose(out) && code == 0) {
        code = error_set(err, ERROR_INVALID, "cannot read %s: %s", path, strerror(errno));
    }
    if (in && in != stdin) {
        fclose(in);
    }
    if (code) {
        free(text);
        return NULL;
    }
    return text;
}

char *text_read_file(const char *path, struct error *err)
{
    size_t size;
    return text_read(path, true, &size, err);
}

char *text_read_bytes(const char *path, size_t *size, struct error *err)
{
    return text_read(path, false, size, err);
}

json_t *text_read_json(const char *path, struct error *err)
{
    TEXT_AUTO *text = text_read_file(path, err);
    if (!text) {
        return NULL;
    }
    json_error_t why;
    json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    if (!j) {
        error_set(err, ERROR_INVALID, "%s, line %d: %s", path, why.line, why.text);
    }
    return j;
}
