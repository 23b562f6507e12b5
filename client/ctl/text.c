/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one-line text form, "BLOCK_SIZE_M=64 permute_x=true": what people type and what tables show.
 * The daemon reads it too; here it becomes JSON, for --json and for methods that want maps.
 */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "client/ctl/ctl.h"

static int refuse(struct gemmd_error *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static int refuse(struct gemmd_error *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    err->code = GEMMD_INVALID;
    vsnprintf(err->text, sizeof(err->text), format, args);
    va_end(args);
    return -1;
}

/* ---- reading -------------------------------------------------------------------------------- */

static json_t *word_to_json(const char *word)
{
    char *end;
    if (strcasecmp(word, "true") == 0 || strcasecmp(word, "false") == 0) {
        return json_boolean(tolower((unsigned char)*word) == 't');
    }
    errno = 0;
    long long i = strtoll(word, &end, 10);
    if (*word && !*end && errno == 0) {
        return json_integer(i);
    }
    double d = strtod(word, &end);
    bool number = isdigit((unsigned char)word[strspn(word, "+-.")]) && !strpbrk(word, "xX");
    return *word && !*end && number ? json_real(d) : json_string(word);
}

/* A value in double quotes, from behind the first one; *at is moved behind the last one. */
static json_t *quoted_to_json(const char **at)
{
    const char *in = *at;
    char *text = malloc(strlen(in) + 1), *out = text;
    for (; text && *in && *in != '"'; in++) {
        in += *in == '\\' && (in[1] == '"' || in[1] == '\\');
        *out++ = *in;
    }
    if (!text || *in != '"') {
        free(text);
        return NULL;
    }
    *at = in + 1;
    json_t *j = json_stringn(text, (size_t)(out - text));
    free(text);
    return j;
}

static json_t *value_to_json(const char **at)
{
    if (**at == '"') {
        (*at)++;
        return quoted_to_json(at);
    }
    size_t n = strcspn(*at, " \t\n,");
    char *word = strndup(*at, n);
    json_t *j = word ? word_to_json(word) : NULL;
    free(word);
    *at += n;
    return j;
}

json_t *text_to_json(const char *text, struct gemmd_error *err)
{
    json_t *object = json_object();
    const char *at = text;
    while (*(at += strspn(at, " \t\n,"))) {
        size_t n = strcspn(at, "= \t\n,");
        char *name = strndup(at, n);
        json_t *value = NULL;
        if (n > 0 && at[n] == '=') {
            const char *from = at;
            at += n + 1;
            value = value_to_json(&at);
            if (!value) {
                refuse(err, "\"%.80s\" has no closing quote", from);
            }
        } else {
            refuse(err, "expected NAME=VALUE, not \"%.80s\"", at);
        }
        if (!value || json_object_set_new(object, name, value)) {
            free(name);
            json_decref(object);
            return NULL;
        }
        free(name);
    }
    return object;
}

json_t *text_to_problem(const char *text, struct gemmd_error *err)
{
    text += strspn(text, " \t\n");
    size_t n = strcspn(text, " \t\n,");
    bool has_op = n > 0 && !memchr(text, '=', n);
    json_t *fields = text_to_json(has_op ? text + n : text, err);
    if (fields) {
        json_object_set_new(fields, "op",
                            has_op ? json_stringn(text, n) : json_string("grouped_gemm"));
    }
    return fields;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* Bare when it reads back as the same text. */
static bool needs_quotes(const char *s)
{
    if (!*s || strpbrk(s, " \t\n\",=\\")) {
        return true;
    }
    json_t *j = word_to_json(s);
    bool other = !json_is_string(j);
    json_decref(j);
    return other;
}

static void write_string(FILE *f, const char *s)
{
    if (!needs_quotes(s)) {
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

static int compare_names(const void *a, const void *b)
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
    const char *name, *op = json_string_value(json_object_get(object, "op"));
    const json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)object, name, value) {
        if (!(op && strcmp(name, "op") == 0) && !json_is_null(value)) {
            names[n++] = name;
        }
    }
    qsort(names, n, sizeof(*names), compare_names);
    fputs(op ? op : "", f);
    for (size_t i = 0; i < n; i++) {
        fprintf(f, "%s%s=", i > 0 || op ? " " : "", names[i]);
        write_value(f, json_object_get(object, names[i]));
    }
    free(names);
    fclose(f);
    return text;
}

/* ---- showing ----------------------------------------------------------------------------------
 */

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

void text_print(const char *format, ...)
{
    char *line;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&line, format, args);
    va_end(args);
    line = text_visible(n < 0 ? NULL : line);
    fputs(line ? line : "", stdout);
    free(line);
}

/* ---- files ---------------------------------------------------------------------------------- */

char *text_read_file(const char *path, struct gemmd_error *err)
{
    FILE *in = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    if (!in) {
        refuse(err, "cannot read %s: %s", path, strerror(errno));
        return NULL;
    }
    char *text = NULL, buffer[16 * 1024];
    size_t length, n;
    FILE *out = open_memstream(&text, &length);
    while (out && (n = fread(buffer, 1, sizeof(buffer), in)) > 0) {
        fwrite(buffer, 1, n, out);
    }
    bool failed = !out || ferror(in);
    int why = errno;
    if (out) {
        fclose(out);
    }
    if (in != stdin) {
        fclose(in);
    }
    if (failed) {
        refuse(err, "cannot read %s: %s", path, strerror(why));
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
        refuse(err, "%s, line %d: %s", path, why.line, why.text);
    }
    return j;
}
