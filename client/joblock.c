/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/answer.h"
#include "client/joblock.h"
#include "kernels/family.h"
#include "proto/hash.h"

enum { FIELDS_MAX = 6, SUM_DIGITS = 16, CLASS_MAX = sizeof(((struct device_info *)0)->class) };

struct joblock_line {
    uint64_t hash;                             /* of `problem` */
    char *problem;                             /* owned: in problem_format's form */
    const char *key, *module, *config, *stamp; /* in joblock.text */
    unsigned number;
};

struct joblock {
    char *path, *text; /* owned; the file with its lines cut into fields */
    enum bucket_scheme scheme;
    const char *class; /* in `text`; NULL until the first line is read */
    size_t n;
    struct joblock_line *lines; /* owned */
};

/* ---- lines ----------------------------------------------------------------------------------- */

/* Cuts a line into its fields and checks the sum, which is the last. Returns the number of the
 * other fields, or -1: the sum is wrong. */
static int joblock_cut_line(char *line, char *fields[FIELDS_MAX])
{
    static const char between[] = " | ";
    char hex[HASH_HEX], *sum = NULL, *at = line;
    int n = 0;
    for (char *next = strstr(line, between); next; next = strstr(next + 1, between)) {
        sum = next;
    }
    if (!sum) {
        return -1;
    }
    hash128_hex(line, (size_t)(sum - line), hex);
    *sum = '\0';
    sum += strlen(between);
    if (strlen(sum) != SUM_DIGITS || memcmp(sum, hex, SUM_DIGITS) != 0) {
        return -1;
    }
    while (at && n < FIELDS_MAX) {
        fields[n++] = at;
        at = strstr(at, between);
        if (at) {
            *at = '\0';
            at += strlen(between);
        }
    }
    return at ? -1 : n;
}

static char *joblock_format_problem(const struct problem *p)
{
    size_t n = problem_format(p, NULL, 0) + 1;
    char *text = malloc(n);
    if (text) {
        problem_format(p, text, n);
    }
    return text;
}

/* Reads "<key> | <module> | <problem> | <config> | <stamp>". */
static int joblock_read_entry(struct joblock *l, char *const fields[FIELDS_MAX],
                              struct joblock_line *out, struct error *err)
{
    struct record config;
    struct problem given, bucket;
    struct key *k = malloc(sizeof(*k));
    int r = k ? problem_parse(&given, fields[2], err)
              : error_set(err, ERROR_NO_MEMORY, "no memory for a lock file");
    r = r ? r : record_parse(&config, fields[3], err);
    if (r == 0) {
        problem_bucket(&given, l->scheme, &bucket);
        r = key_make(k, &bucket, l->class, err);
    }
    if (r == 0) {
        key_id(k);
        out->problem = joblock_format_problem(&bucket);
    }
    bool fits = r == 0 && strcmp(k->id, fields[0]) == 0 &&
                (hash_is_hex(fields[1]) || !*fields[1]) && out->problem &&
                strlen(fields[3]) < CONFIG_TEXT_MAX &&
                strlen(fields[4]) < sizeof(((struct gemmd_answer *)0)->stamp);
    free(k);
    if (r == 0 && !fits) {
        free(out->problem);
        r = error_set(err, ERROR_INVALID, "its key is not that of its problem and of the class %s",
                      l->class);
    }
    if (r == 0) {
        out->hash = hash64(out->problem, strlen(out->problem));
        out->key = fields[0];
        out->module = fields[1];
        out->config = fields[3];
        out->stamp = fields[4];
    }
    return r;
}

static int joblock_read_head(struct joblock *l, int n, char *const fields[FIELDS_MAX],
                             struct error *err)
{
    if (n != 3 || strcmp(fields[0], "gemmd-lock 1") != 0) {
        return error_set(err, ERROR_INVALID,
                         "the first line is not \"gemmd-lock 1 | ...\": it is no lock file, or one "
                         "of a newer gemmctl");
    }
    int r = bucket_scheme_parse(fields[1], &l->scheme, err);
    l->class = r ? NULL : fields[2];
    return r;
}

static const struct joblock_line *joblock_find(const struct joblock *l, const char *problem)
{
    const uint64_t hash = hash64(problem, strlen(problem));
    for (size_t i = 0; i < l->n; i++) {
        if (l->lines[i].hash == hash && strcmp(l->lines[i].problem, problem) == 0) {
            return &l->lines[i];
        }
    }
    return NULL;
}

static int joblock_read_line(struct joblock *l, char *line, unsigned number, struct error *err)
{
    char *fields[FIELDS_MAX];
    int n = joblock_cut_line(line, fields);
    if (n < 0 || (l->class && n != 5)) {
        return error_set(err, ERROR_INVALID,
                         "the line was changed or cut short (its sum does not fit): make the file "
                         "again by `gemmctl lock`, or remove the line");
    }
    if (!l->class) {
        return joblock_read_head(l, n, fields, err);
    }
    struct joblock_line entry = {.number = number};
    int r = joblock_read_entry(l, fields, &entry, err);
    if (r) {
        return r;
    }
    const struct joblock_line *same = joblock_find(l, entry.problem);
    struct joblock_line *more = same ? NULL : reallocarray(l->lines, l->n + 1, sizeof(*l->lines));
    if (!more) {
        free(entry.problem);
        return same ? error_set(err, ERROR_INVALID, "line %u has the same problem", same->number)
                    : error_set(err, ERROR_NO_MEMORY, "no memory for a lock file");
    }
    l->lines = more;
    l->lines[l->n++] = entry;
    return 0;
}

/* ---- the file -------------------------------------------------------------------------------- */

static int joblock_read_text(struct joblock *l, struct error *err)
{
    enum { CHUNK = 1 << 16, BYTES_MAX = 64 << 20 };
    FILE *f = fopen(l->path, "re");
    size_t n = 0, have = 0;
    while (f && have < BYTES_MAX) {
        char *more = realloc(l->text, have + CHUNK + 1);
        if (!more) {
            break;
        }
        l->text = more;
        n = fread(l->text + have, 1, CHUNK, f);
        have += n;
        l->text[have] = '\0';
        if (n == 0) {
            break;
        }
    }
    bool failed = !f || n != 0 || !l->text || ferror(f);
    int why = errno;
    if (f) {
        fclose(f);
    }
    return failed ? error_set(err, ERROR_INVALID, "cannot be read: %s", strerror(why ? why : EFBIG))
           : strlen(l->text) < have
               ? error_set(err, ERROR_INVALID, "has a zero byte, which no lock file has")
               : 0;
}

static int joblock_read(struct joblock *l, struct error *err)
{
    unsigned number = 0;
    char *at = l->text;
    for (char *line; (line = strsep(&at, "\n"));) {
        number++;
        line[strcspn(line, "\r")] = '\0';
        if (line[0] == '\0' || line[0] == '#') {
            continue;
        }
        int r = joblock_read_line(l, line, number, err);
        if (r) {
            return error_prefix(err, "line %u", number);
        }
    }
    return l->class ? 0 : error_set(err, ERROR_INVALID, "is empty");
}

int joblock_open(struct joblock **out, struct error *err)
{
    const char *path = getenv("GEMMD_LOCK");
    *out = NULL;
    if (!path || !*path) {
        return 0;
    }
    struct joblock *l = calloc(1, sizeof(*l));
    if (!l || !(l->path = strdup(path))) {
        free(l);
        return error_set(err, ERROR_NO_MEMORY, "no memory for a lock file");
    }
    ask_know_ops();
    int r = joblock_read_text(l, err);
    r = r ? r : joblock_read(l, err);
    if (r) {
        error_prefix(err, "the lock file GEMMD_LOCK=%s", path);
        joblock_close(l);
        return err->code = ERROR_INVALID;
    }
    *out = l;
    return 0;
}

struct joblock *joblock_close(struct joblock *l)
{
    for (size_t i = 0; l && i < l->n; i++) {
        free(l->lines[i].problem);
    }
    if (l) {
        free(l->lines);
        free(l->text);
        free(l->path);
        free(l);
    }
    return NULL;
}

/* ---- answers --------------------------------------------------------------------------------- */

int joblock_refuse(const struct joblock *l, const char *what, struct error *err)
{
    return error_set(err, ERROR_CONFLICT,
                     "%s, and the lock file GEMMD_LOCK=%s alone answers here: unset GEMMD_LOCK for "
                     "that",
                     what, l->path);
}

static void joblock_fill_answer(const struct joblock *l, const struct joblock_line *line,
                                const struct problem *p, struct gemmd_answer *out)
{
    const struct family *f = family_of_problem(p);
    *out = answer_none();
    snprintf(out->key, sizeof(out->key), "%s", line->key);
    snprintf(out->tier, sizeof(out->tier), "exact");
    snprintf(out->source, sizeof(out->source), JOBLOCK_SOURCE);
    snprintf(out->family, sizeof(out->family), "%s", f ? f->name : "");
    snprintf(out->config, sizeof(out->config), "%s", line->config);
    snprintf(out->module, sizeof(out->module), "%s", line->module);
    snprintf(out->stamp, sizeof(out->stamp), "%s", line->stamp);
    snprintf(out->note, sizeof(out->note), "line %u of %.120s", line->number, l->path);
    family_stamp_target(out->stamp, out->target);
    out->saved = true;
}

int joblock_answer(const struct joblock *l, const struct ask *a, const struct device_info *info,
                   struct gemmd_answer *out, struct error *err)
{
    struct problem p, bucket;
    int r = ask_is_plain(&a->query)
                ? ask_to_problem(&a->problem, &p, err)
                : joblock_refuse(l, "the query limits configs, buckets or tolerances", err);
    if (r) {
        return r;
    }
    if (!device_class_alike(l->class, info->class)) {
        return error_set(
            err, ERROR_CONFLICT,
            "the lock file GEMMD_LOCK=%s is for %s, and this device is %s: its kernels "
            "would differ",
            l->path, l->class, info->class);
    }
    problem_bucket(&p, l->scheme, &bucket);
    char *text = joblock_format_problem(&bucket);
    const struct joblock_line *line = text ? joblock_find(l, text) : NULL;
    if (line) {
        joblock_fill_answer(l, line, &bucket, out);
    } else {
        r = error_set(err, ERROR_NOT_FOUND,
                      "the lock file GEMMD_LOCK=%s has no line for %.300s: add the problem by "
                      "`gemmctl lock`, or unset GEMMD_LOCK",
                      l->path, text ? text : "this problem");
    }
    free(text);
    return r;
}
