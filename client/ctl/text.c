/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one-line text form, "BLOCK_SIZE_M=64 permute_x=true", which users type and tables show. The
 * library and the daemon read the form too (proto/record_text.c); here it becomes JSON, for --json
 * and for methods that take maps. Both readers must agree to the letter, or a problem that a job
 * stored would have another key here: test_gemmctl_texts.py compares both. The receiver of the JSON
 * checks names and the number of fields.
 */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "client/ctl/ctl.h"

__attribute__((format(printf, 2, 3))) static int text_refuse_input(struct gemmd_error *err,
                                                                   const char *format, ...)
{
    va_list args;
    va_start(args, format);
    err->code = GEMMD_INVALID;
    vsnprintf(err->text, sizeof(err->text), format, args);
    va_end(args);
    return -1;
}

/* ---- reading -------------------------------------------------------------------------------- */

static const char separators[] = " \t\r\n,", digits[] = "0123456789";
enum { REAL_DIGITS_MAX = 63 };

/* -?digits, or a decimal number. Excludes +5, 0x10 and nan, which strtod accepts. */
static bool is_number(const char *word, bool *real)
{
    const char *at = word + (*word == '-');
    size_t n = strspn(at, digits);
    at += n;
    *real = *at != '\0';
    if (*at == '.') {
        size_t part = strspn(++at, digits);
        at += part;
        n += part;
    }
    if (n > 0 && (*at == 'e' || *at == 'E')) {
        at++;
        at += *at == '+' || *at == '-';
        n = strspn(at, digits);
        at += n;
    }
    return n > 0 && !*at;
}

/* NULL: the number is out of range. */
static json_t *word_to_json(const char *word)
{
    bool real;
    if (strcasecmp(word, "true") == 0 || strcasecmp(word, "false") == 0) {
        return json_boolean(tolower((unsigned char)*word) == 't');
    }
    if (!is_number(word, &real)) {
        return json_string(word);
    }
    if (real) {
        return strlen(word) <= REAL_DIGITS_MAX ? json_real(strtod(word, NULL)) : NULL;
    }
    errno = 0;
    long long i = strtoll(word, NULL, 10);
    return errno ? NULL : json_integer(i);
}

/* The character of the escape \" \\ or \xNN at *in; moves *in behind the escape. 0: malformed. */
static char read_escape(const char **in)
{
    const char *s = *in + 1;
    if (*s == 'x' && isxdigit((unsigned char)s[1]) && isxdigit((unsigned char)s[2])) {
        const char hex[] = {s[1], s[2], '\0'};
        *in = s + 3;
        return (char)strtol(hex, NULL, 16);
    }
    if (*s == '"' || *s == '\\') {
        *in = s + 1;
        return *s;
    }
    return '\0';
}

/* A value in double quotes, from its first quote on; moves *at behind its last quote. */
static json_t *quoted_to_json(const char **at, struct gemmd_error *err)
{
    const char *in = *at + 1;
    char *text = malloc(strlen(in) + 1), *out = text;
    bool good = text != NULL;
    while (good && *in && *in != '"') {
        *out = *in == '\\' ? read_escape(&in) : *in++;
        good = *out++ != '\0';
    }
    if (!good || *in != '"') {
        text_refuse_input(err, good ? "it has no closing quote"
                                    : "it has a bad escape (there are \\\" \\\\ \\xNN)");
        free(text);
        return NULL;
    }
    *at = in + 1;
    json_t *j = json_stringn(text, (size_t)(out - text));
    free(text);
    if (!j) {
        text_refuse_input(err, "it is not UTF-8");
    }
    return j;
}

static json_t *bare_to_json(const char **at, struct gemmd_error *err)
{
    size_t n = strcspn(*at, separators);
    char *word = strndup(*at, n);
    json_t *j = NULL;
    *at += n;
    if (!word || !*word) {
        text_refuse_input(err, "the value is missing; write \"\" for empty text");
    } else if (strpbrk(word, "=\"\\")) {
        text_refuse_input(err, "put text that holds = \" or \\ in double quotes");
    } else if (!(j = word_to_json(word))) {
        text_refuse_input(err, "the number is out of range");
    }
    free(word);
    return j;
}

/* One NAME=VALUE; moves *at behind the value. */
static int field_to_json(const char **at, json_t *object, struct gemmd_error *err)
{
    const char *from = *at;
    size_t word = strcspn(from, separators), n = strcspn(from, "=");
    struct gemmd_error why;
    if (n == 0 || n >= word) {
        return text_refuse_input(err, "expected NAME=VALUE, not \"%.80s\"", from);
    }
    char *name = strndup(from, n);
    *at += n + 1;
    json_t *value = **at == '"' ? quoted_to_json(at, &why) : bare_to_json(at, &why);
    int code = 0;
    if (!value) {
        code = text_refuse_input(err, "\"%.*s\": %s", word < 80 ? (int)word : 80, from, why.text);
    } else if (**at && !strchr(separators, **at)) {
        code = text_refuse_input(err, "\"%.80s\": put a space after the closing quote", from);
    } else if (json_object_get(object, name)) {
        code = text_refuse_input(err, "\"%.80s\" is given twice", name);
    } else if (json_object_set(object, name, value)) {
        code = text_refuse_input(err, "no memory for \"%.80s\"", from);
    }
    json_decref(value);
    free(name);
    return code;
}

json_t *text_to_json(const char *text, struct gemmd_error *err)
{
    json_t *object = json_object();
    for (const char *at = text; *(at += strspn(at, separators));) {
        if (field_to_json(&at, object, err)) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

json_t *text_to_problem(const char *text, struct gemmd_error *err)
{
    text += strspn(text, separators);
    size_t n = strcspn(text, separators);
    bool has_op = n > 0 && !memchr(text, '=', n);
    json_t *fields = text_to_json(has_op ? text + n : text, err);
    if (json_object_get(fields, "op")) {
        text_refuse_input(
            err, "op is no field: a problem's text begins with it, as in \"gemm M=16 ...\"");
        json_decref(fields);
        return NULL;
    }
    if (fields) {
        json_object_set_new(fields, "op",
                            has_op ? json_stringn(text, n) : json_string("grouped_gemm"));
    }
    return fields;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* Text is written bare when bare text reads back as the same text. */
static bool text_needs_quotes(const char *s)
{
    if (!*s || strpbrk(s, separators) || strpbrk(s, "\"=\\")) {
        return true;
    }
    json_t *j = word_to_json(s);
    bool other = !json_is_string(j);
    json_decref(j);
    return other;
}

static void write_string(FILE *f, const char *s)
{
    if (!text_needs_quotes(s)) {
        fputs(s, f);
        return;
    }
    fputc('"', f);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') {
            fputc('\\', f);
        }
        fputc(*s, f);
    }
    fputc('"', f);
}

static void write_value(FILE *f, const json_t *v)
{
    if (json_is_string(v)) {
        write_string(f, json_string_value(v));
    } else {
        char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17) | JSON_COMPACT);
        fputs(text ? text : "", f);
        free(text);
    }
}

static int text_compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

char *text_of_json(const json_t *object)
{
    size_t n = 0, size = json_object_size(object);
    const char **names = calloc(size + 1, sizeof(*names));
    char *text = NULL;
    size_t length;
    FILE *f = names ? open_memstream(&text, &length) : NULL;
    if (!f) {
        free(names);
        return NULL;
    }
    const char *name, *op = field_string(object, "op");
    const json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value) {
        if (!(op && strcmp(name, "op") == 0) && !json_is_null(value)) {
            names[n++] = name;
        }
    }
    qsort(names, n, sizeof(*names), text_compare_names);
    fputs(op ? op : "", f);
    for (size_t i = 0; i < n; i++) {
        fprintf(f, "%s%s=", i > 0 || op ? " " : "", names[i]);
        write_value(f, json_object_get(object, names[i]));
    }
    free(names);
    fclose(f);
    return text;
}

/* ---- showing --------------------------------------------------------------------------------- */

/* Length of the control character at s, or 0: C0, DEL, and C1 in UTF-8. */
static size_t control_at(const unsigned char *s)
{
    if (s[0] == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0) {
        return 2;
    }
    return s[0] < 0x20 || s[0] == 0x7f;
}

char *text_visible(char *text)
{
    char *out = text ? malloc(4 * strlen(text) + 1) : NULL, *to = out;
    if (!out) {
        free(text);
        return NULL;
    }
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        size_t n = control_at(s);
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

char *text_format(const char *format, ...)
{
    char *text;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    return n < 0 ? NULL : text;
}

char *text_append(char *text, const char *format, ...)
{
    char *more, *whole;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&more, format, args);
    va_end(args);
    whole = n < 0 ? NULL : text_format("%s%s", text ? text : "", more);
    free(n < 0 ? NULL : more);
    free(text);
    return whole;
}

__attribute__((format(printf, 2, 0))) static void text_write(FILE *f, const char *format,
                                                             va_list args)
{
    char *line;
    int n = vasprintf(&line, format, args);
    line = text_visible(n < 0 ? NULL : line);
    fputs(line ? line : "", f);
    free(line);
}

void text_print(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    text_write(stdout, format, args);
    va_end(args);
}

void text_remark(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    text_write(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

void number_text(double v, char out[NUMBER_TEXT_MAX])
{
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(out, NUMBER_TEXT_MAX, "%.*g", precision, v);
        if (strtod(out, NULL) == v) {
            break;
        }
    }
    if (!strpbrk(out, ".e")) {
        strcat(out, ".0"); /* readers expect floats in the whole column */
    }
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

/* Copies a file, and fails at a zero byte and above the size limit: a device file may never end. 0,
 * or the error in `err`. */
static int text_copy_stream(const char *path, FILE *in, FILE *out, struct gemmd_error *err)
{
    char buffer[16 * 1024];
    size_t n, length = 0;
    for (; (n = fread(buffer, 1, sizeof(buffer), in)) > 0; length += n) {
        const char *zero = memchr(buffer, '\0', n);
        if (zero) {
            return text_refuse_input(err,
                                     "%s has a zero byte at %zu, which no text has: it is no text, "
                                     "or it was cut off by a crash",
                                     path, length + (size_t)(zero - buffer));
        }
        if (length + n > FILE_MAX) {
            return text_refuse_input(
                err, "%s is larger than %d MiB, the most that gemmctl reads: give it in parts",
                path, FILE_MAX >> 20);
        }
        fwrite(buffer, 1, n, out);
    }
    return ferror(in) || ferror(out)
               ? text_refuse_input(err, "cannot read %s: %s", path, strerror(errno))
               : 0;
}

char *text_read_file(const char *path, struct gemmd_error *err)
{
    char *text = NULL;
    size_t length;
    FILE *in = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    FILE *out = in ? open_memstream(&text, &length) : NULL;
    int code = out ? text_copy_stream(path, in, out, err)
                   : text_refuse_input(err, "cannot read %s: %s", path, strerror(errno));
    if (out && fclose(out) && code == 0) {
        code = text_refuse_input(err, "cannot read %s: %s", path, strerror(errno));
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

json_t *text_read_json(const char *path, struct gemmd_error *err)
{
    char *text = text_read_file(path, err);
    if (!text) {
        return NULL;
    }
    json_error_t why;
    json_t *j = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    free(text);
    if (!j) {
        text_refuse_input(err, "%s, line %d: %s", path, why.line, why.text);
    }
    return j;
}
