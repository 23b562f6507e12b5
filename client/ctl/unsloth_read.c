/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the CSV of Unsloth's MoE tuning: ten columns of each config; two of the mode's TMA loads,
 * which give the mode; three of times. The variant of Unsloth's benchmark has four more columns.
 * The file names no shape and no device: the user of the import names the problems. Columns are
 * found by name, in any order; columns of other names are ignored and counted.
 */
#include <float.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/formats.h"

enum { NUMBER_MAX = 65536 };

/* The columns and their places in an entry; columns from REQUIRED on may be absent. */
enum { NOWHERE = -1, COLUMNS = 20, REQUIRED = 13, LOAD_X = 13, LOAD_W, LOAD_DY, MODE };
#define AT(member) (int)offsetof(struct entry, member)
static const struct {
    const char *name;
    enum { NUMBER, FLAG, TIME, WORD } kind;
    int at;
} columns[COLUMNS] = {
    {"BLOCK_SIZE_M", NUMBER, AT(tile.m)},
    {"BLOCK_SIZE_N", NUMBER, AT(tile.n)},
    {"BLOCK_SIZE_K", NUMBER, AT(tile.k)},
    {"num_warps", NUMBER, AT(tile.warps)},
    {"num_stages", NUMBER, AT(tile.stages)},
    {"flatten", FLAG, NOWHERE},
    {"permute_x", FLAG, AT(permute_x)},
    {"permute_y", FLAG, AT(permute_y)},
    {"fuse_mul_post", FLAG, AT(fuse_mul_post)},
    {"use_tma_store", FLAG, AT(tile.tma_store)},
    {"torch_time", TIME, NOWHERE},
    {"triton_time", TIME, AT(time_ms)},
    {"speedup", TIME, AT(speedup)},
    [LOAD_X] = {"use_tma_load_x", FLAG, NOWHERE},
    [LOAD_W] = {"use_tma_load_w", FLAG, NOWHERE},
    [LOAD_DY] = {"use_tma_load_dy", FLAG, NOWHERE},
    [MODE] = {"mode", WORD, NOWHERE},
    {"seqlen", WORD, NOWHERE},
    {"dtype", WORD, NOWHERE},
    {"autotune", WORD, NOWHERE},
};

struct csv {
    const char *path;
    int line, n;        /* number of columns of the file */
    int place[COLUMNS]; /* index of the column in the file, or -1 */
};

/* ---- lines ----------------------------------------------------------------------------------- */

static int unsloth_find_column(const char *name)
{
    for (int c = 0; c < COLUMNS; c++) {
        if (strcmp(columns[c].name, name) == 0) {
            return c;
        }
    }
    return -1;
}

static int read_mode(struct csv *csv, struct entries *out)
{
    bool x = csv->place[LOAD_X] >= 0, w = csv->place[LOAD_W] >= 0, dy = csv->place[LOAD_DY] >= 0;
    if (x + w + dy != 2) {
        return ctl_failed("%s, line 1: two of use_tma_load_w, use_tma_load_x, use_tma_load_dy must "
                          "be columns: they say the mode",
                          csv->path);
    }
    snprintf(out->mode, sizeof(out->mode), "%s", !dy ? "forward" : x ? "dW" : "dX");
    return DONE;
}

static int unsloth_read_head(struct csv *csv, char *line, struct entries *out)
{
    char *fields[CSV_FIELDS_MAX];
    csv->n = csv_split(line, fields);
    for (int c = 0; c < COLUMNS; c++) {
        csv->place[c] = -1;
    }
    for (int i = 0; i < csv->n && i < CSV_FIELDS_MAX; i++) {
        int c = unsloth_find_column(fields[i]);
        if (c < 0) {
            notice_count(out->unused, fields[i], 1);
        } else if (csv->place[c] >= 0) {
            return ctl_failed("%s, line 1: column %d, \"%.60s\", is there twice", csv->path, i + 1,
                              fields[i]);
        } else {
            csv->place[c] = i;
        }
    }
    if (csv->n > CSV_FIELDS_MAX) {
        return ctl_failed("%s, line 1: %d columns, and at most %d can be read", csv->path, csv->n,
                          CSV_FIELDS_MAX);
    }
    for (int c = 0; c < REQUIRED; c++) {
        if (csv->place[c] < 0) {
            return ctl_failed("%s, line 1: no column %s, so this is no CSV of Unsloth's tuning",
                              csv->path, columns[c].name);
        }
    }
    return read_mode(csv, out);
}

/* ---- values --------------------------------------------------------------------------------- */

/* A decimal number that consists of `characters` only. */
static bool unsloth_parse(const char *text, const char *characters, double most, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return *text && !*end && text[strspn(text, characters)] == '\0' && *out > 0 && *out <= most;
}

static int unsloth_read_value(const struct csv *csv, int c, const char *text, struct entry *e)
{
    static const char digits[] = "0123456789", real[] = "0123456789.eE+-";
    static const char *const wants[] = {"a whole number from 1 to 65536", "True or False",
                                        "a number above 0", ""};
    char *const to = columns[c].at == NOWHERE ? NULL : (char *)e + columns[c].at;
    double v = 0;
    bool good = true;
    switch (columns[c].kind) {
    case NUMBER:
        good = unsloth_parse(text, digits, NUMBER_MAX, &v);
        *(int64_t *)to = (int64_t)v;
        break;
    case TIME:
        good = unsloth_parse(text, real, DBL_MAX, &v);
        if (to) {
            *(double *)to = v;
        }
        break;
    case FLAG:
        good = strcmp(text, "True") == 0 || strcmp(text, "False") == 0;
        if (to) {
            *(int *)to = *text == 'T';
        }
        break;
    case WORD:
        break;
    }
    return good ? DONE
                : ctl_failed("%s, line %d: %s is \"%.60s\", and must be %s", csv->path, csv->line,
                             columns[c].name, text, wants[columns[c].kind]);
}

static int unsloth_read_row(const struct csv *csv, char *line, struct entries *out)
{
    char *fields[CSV_FIELDS_MAX];
    int n = csv_split(line, fields), code = DONE;
    if (n != csv->n) {
        return ctl_failed("%s, line %d: %d columns, line 1 has %d", csv->path, csv->line, n,
                          csv->n);
    }
    struct entry *e = entries_add(out);
    if (!e) {
        return ctl_failed("no memory");
    }
    e->line = csv->line;
    for (int c = 0; c < COLUMNS && code == DONE; c++) {
        code = csv->place[c] < 0 ? DONE : unsloth_read_value(csv, c, fields[csv->place[c]], e);
    }
    if (code == DONE && csv->place[MODE] >= 0 && strcmp(fields[csv->place[MODE]], out->mode) != 0) {
        code = ctl_failed("%s, line %d: mode is \"%.60s\", but the columns are those of %s",
                          csv->path, csv->line, fields[csv->place[MODE]], out->mode);
    }
    return code;
}

/* ---- the file ------------------------------------------------------------------------------- */

static int unsloth_compare_times(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return x->speedup != y->speedup   ? (x->speedup < y->speedup) - (x->speedup > y->speedup)
           : x->time_ms != y->time_ms ? (x->time_ms > y->time_ms) - (x->time_ms < y->time_ms)
                                      : x->line - y->line;
}

int unsloth_read(const char *path, struct entries *out)
{
    char *text = foreign_read_file(path), *at = text;
    struct csv csv = {.path = path};
    int code = text ? DONE : FAILED;
    out->unused = json_object();
    for (char *line; code == DONE && (line = strsep(&at, "\n")) && (at || *line);) {
        csv.line++;
        if (csv.line == 1) {
            code = unsloth_read_head(&csv, line, out);
        } else if (line[strspn(line, " \t\r")]) {
            code = unsloth_read_row(&csv, line, out);
        }
    }
    free(text);
    if (code == DONE && out->n == 0) {
        code = ctl_failed("%s has no rows", path);
    }
    if (code == DONE) {
        qsort(out->all, out->n, sizeof(*out->all), unsloth_compare_times);
    }
    return code;
}
