/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the settings from the configuration file and the command line, and prints them
 * (config.h). */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/address.h"
#include "daemon/base/config.h"
#include "daemon/base/log.h"
#include "proto/problem.h"
#include "proto/text.h"
#include "proto/trust.h"

static int config_check_bucket(const char *value, struct error *err)
{
    enum bucket_scheme scheme;
    return value[0] ? bucket_scheme_parse(value, &scheme, err) : 0;
}

static int check_level(const char *value, struct error *err)
{
    enum log_level level;
    return log_level_parse(value, &level, err);
}

static int config_check_trust(const char *value, struct error *err)
{
    return strcmp(value, "confirm") == 0 || strcmp(value, "serve") == 0
               ? 0
               : error_set(err, ERROR_INVALID, "fleet-trust is \"%s\"; it must be confirm or serve",
                           value);
}

#define AT(name) offsetof(struct config, name), sizeof(((struct config *)0)->name)
#define TEXT_KEY(key, name, size, fallback, check, arg, help)                                      \
    {key, CONFIG_TEXT, AT(name), fallback, 0, 0, arg, help, check},
#define INT_KEY(key, name, fallback, min, max, arg, help)                                          \
    {key, CONFIG_INT, AT(name), fallback, min, max, arg, help, NULL},
#define REAL_KEY(key, name, fallback, min, max, arg, help)                                         \
    {key, CONFIG_REAL, AT(name), fallback, min, max, arg, help, NULL},
#define FLAG_KEY(key, name, help) {key, CONFIG_FLAG, AT(name), "false", 0, 0, NULL, help, NULL},

const struct config_key config_keys[CONFIG_KEYS] = {
    CONFIG_LIST(TEXT_KEY, INT_KEY, REAL_KEY, FLAG_KEY)};

static int set_text(const struct config_key *k, char *out, const char *value, struct error *err)
{
    if (strlen(value) >= k->size) {
        return error_set(err, ERROR_INVALID, "%s is longer than %zu bytes", k->name, k->size - 1);
    }
    int status = k->check ? k->check(value, err) : 0;
    if (status == 0) {
        strcpy(out, value);
    }
    return status;
}

static int config_set_number(const struct config_key *k, void *out, const char *value,
                             struct error *err)
{
    const bool whole = k->kind == CONFIG_INT;
    int64_t integer = 0;
    double real = 0;
    enum text_number form = text_number(value, strlen(value), &integer, &real);
    real = form == TEXT_INT ? (double)integer : real;
    bool is_number = form == TEXT_INT || (form == TEXT_REAL && !whole);
    if (!is_number || real < (double)k->min || real > (double)k->max) {
        return error_set(err, ERROR_INVALID, "%s is \"%s\"; it must be a %s from %lld to %lld",
                         k->name, value, whole ? "whole number" : "number", (long long)k->min,
                         (long long)k->max);
    }
    if (whole) {
        *(int64_t *)out = integer;
    } else {
        *(double *)out = real;
    }
    return 0;
}

static int config_set_flag(const struct config_key *k, bool *out, const char *value,
                           struct error *err)
{
    if (strcmp(value, "true") == 0 || strcmp(value, "yes") == 0 || strcmp(value, "1") == 0) {
        *out = true;
    } else if (strcmp(value, "false") == 0 || strcmp(value, "no") == 0 || strcmp(value, "0") == 0) {
        *out = false;
    } else {
        return error_set(err, ERROR_INVALID, "%s is \"%s\"; it must be true or false", k->name,
                         value);
    }
    return 0;
}

static int set_key(struct config *c, const struct config_key *k, const char *value,
                   struct error *err)
{
    char *at = (char *)c + k->offset;
    return k->kind == CONFIG_TEXT   ? set_text(k, at, value, err)
           : k->kind == CONFIG_FLAG ? config_set_flag(k, (bool *)at, value, err)
                                    : config_set_number(k, at, value, err);
}

void config_init(struct config *c, struct config_sources *from)
{
    *c = (struct config){0};
    for (int i = 0; i < CONFIG_KEYS; i++) {
        set_key(c, &config_keys[i], config_keys[i].fallback, NULL);
        strcpy(from->of[i], "default");
    }
}

int config_set(struct config *c, struct config_sources *from, const char *name, const char *value,
               const char *source, struct error *err)
{
    for (int i = 0; i < CONFIG_KEYS; i++) {
        if (strcmp(config_keys[i].name, name) == 0) {
            snprintf(from->of[i], sizeof(from->of[i]), "%s", source);
            return set_key(c, &config_keys[i], value, err);
        }
    }
    return error_set(err, ERROR_UNKNOWN_FIELD,
                     "unknown key \"%s\"; gemmd --print-config lists the known ones", name);
}

/* ---- the file -------------------------------------------------------------------------------- */

struct reading {
    struct config *config;
    struct config_sources *from;
    const char *path;
    FILE *file;
    char *text; /* owned: the current line */
    size_t room;
    int line;
    int status;
    struct error *err;
};

/* The function by which inih reads a line. It counts the lines, since the packaged build of inih
 * gives the handler no line number. The indent is removed, because inih appends an indented line to
 * the value before. The packaged build's buffer has 200 bytes: inih gets the beginning of a longer
 * line, which has the name. */
static char *config_read_line(char *text, int size, void *stream)
{
    struct reading *r = stream;
    r->line++;
    const ssize_t bytes = getline(&r->text, &r->room, r->file);
    if (bytes < 0) {
        if (!feof(r->file)) { /* for example, the path is a directory, which can be opened */
            r->status = error_set(r->err, ERROR_IO, "cannot read the configuration %s: %s", r->path,
                                  strerror(errno));
        }
        return NULL;
    }
    if (strlen(r->text) != (size_t)bytes) {
        r->status =
            error_set(r->err, ERROR_INVALID, "%s:%d: the line has a zero byte", r->path, r->line);
        return NULL;
    }
    snprintf(text, (size_t)size - 1, "%s", r->text + strspn(r->text, " \t"));
    return text;
}

/* Finds the value in a line "name = value ; comment", by the rules of inih. Cuts the comment. */
static const char *config_find_value(char *line)
{
    char *value = line + strcspn(line, "=:") + 1;
    while (isspace((unsigned char)*value)) {
        value++;
    }
    char *end = value;
    for (char *c = value; *c && !(*c == ';' && isspace((unsigned char)c[-1])); c++) {
        end = isspace((unsigned char)*c) ? end : c + 1;
    }
    *end = '\0';
    return value;
}

/* The line of this file that set `name` before; 0: none did. */
static int config_line_before(const struct reading *r, const char *name)
{
    const size_t path = strlen(r->path);
    for (int i = 0; i < CONFIG_KEYS; i++) {
        const char *source = r->from->of[i];
        if (strcmp(config_keys[i].name, name) == 0 && strncmp(source, r->path, path) == 0 &&
            source[path] == ':') {
            return atoi(source + path + 1);
        }
    }
    return 0;
}

static int config_take_line(void *ctx, const char *section, const char *name, const char *begun)
{
    struct reading *r = ctx;
    const int before = config_line_before(r, name);
    (void)begun; /* the value, as far as it was in inih's buffer */
    if (r->status) {
        return 0;
    }
    char source[CONFIG_SOURCE_MAX];
    snprintf(source, sizeof(source), "%s:%d", r->path, r->line);
    if (!section[0]) {
        r->status = error_set(r->err, ERROR_UNKNOWN_FIELD,
                              "\"%s\" stands under no section: write [gemmd] above it", name);
    } else if (strcmp(section, "gemmd") != 0) {
        r->status = error_set(r->err, ERROR_UNKNOWN_FIELD,
                              "section [%s] is not known: settings stand under [gemmd]", section);
    } else if (before) {
        r->status = error_set(r->err, ERROR_CONFLICT,
                              "%s is set in line %d already: remove one of the two", name, before);
    } else {
        r->status =
            config_set(r->config, r->from, name, config_find_value(r->text), source, r->err);
    }
    if (r->status) {
        error_prefix(r->err, "%s", source);
    }
    return r->status == 0;
}

int config_read(struct config *c, struct config_sources *from, const char *path, bool required,
                struct error *err)
{
    char whole[PATH_MAX];
    int fd, opened = trust_open(path, O_RDONLY, 0, &fd, err);
    if (opened == ERROR_DENIED && trust_file(path, TRUST_SHARED, whole, NULL) == 0) {
        /* the path is a symbolic link, as in a mounted volume: open the file behind the link */
        opened = trust_open(whole, O_RDONLY, 0, &fd, err);
    }
    FILE *f = opened ? NULL : fdopen(fd, "r");
    if (opened == TRUST_MISSING && !required) {
        return 0;
    }
    if (opened < 0) {
        return error_prefix(err, "cannot read the configuration");
    }
    if (!f) {
        return error_set(err, ERROR_IO, "cannot read the configuration %s: %s", path,
                         strerror(opened ? ENOENT : errno));
    }
    struct reading r = {.config = c, .from = from, .path = path, .file = f, .err = err};
    int bad = ini_parse_stream(config_read_line, &r, config_take_line, &r);
    fclose(f);
    free(r.text);
    if (r.status) {
        return r.status;
    }
    if (bad) {
        return error_set(err, ERROR_INVALID, "%s:%d: not \"key = value\" and no [section]", path,
                         bad);
    }
    return 0;
}

void config_print(const struct config *c, const struct config_sources *from)
{
    puts("[gemmd]");
    for (int i = 0; i < CONFIG_KEYS; i++) {
        const struct config_key *k = &config_keys[i];
        const char *at = (const char *)c + k->offset;
        char text[PATHS_MAX + 64];
        if (k->kind == CONFIG_TEXT) {
            snprintf(text, sizeof(text), "%s = %s", k->name, at);
        } else if (k->kind == CONFIG_INT) {
            snprintf(text, sizeof(text), "%s = %lld", k->name,
                     (long long)*(const int64_t *)(const void *)at);
        } else if (k->kind == CONFIG_REAL) {
            snprintf(text, sizeof(text), "%s = %.15g", k->name, *(const double *)(const void *)at);
        } else {
            snprintf(text, sizeof(text), "%s = %s", k->name, *(const bool *)at ? "true" : "false");
        }
        printf("%-48s ; %s\n", text, from->of[i]);
    }
}
