/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the CSV of Unsloth's MoE tuning: ten columns of every config, two of the mode's TMA loads,
 * which say the mode, three times; the benchmark's variant has four more. The file names no shape
 * and no device: who imports it says for which problems. Columns go by their names, in any order;
 * columns of other names are passed over and counted.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/formats.h"

enum kind { NUMBER, FLAG, TIME, LOAD, WORD };
enum { COLUMNS = 20, NUMBER_MAX = 65536 };

enum {
    C_M,
    C_N,
    C_K,
    C_WARPS,
    C_STAGES,
    C_FLATTEN,
    C_PERMUTE_X,
    C_PERMUTE_Y,
    C_FUSE,
    C_STORE,
    C_TORCH,
    C_TRITON,
    C_SPEEDUP,
    C_LOAD_X,
    C_LOAD_W,
    C_LOAD_DY,
    C_WORDS
};

static const struct {
    const char *name;
    enum kind kind;
} columns[COLUMNS] = {
    [C_M] = {"BLOCK_SIZE_M", NUMBER},
    [C_N] = {"BLOCK_SIZE_N", NUMBER},
    [C_K] = {"BLOCK_SIZE_K", NUMBER},
    [C_WARPS] = {"num_warps", NUMBER},
    [C_STAGES] = {"num_stages", NUMBER},
    [C_FLATTEN] = {"flatten", FLAG},
    [C_PERMUTE_X] = {"permute_x", FLAG},
    [C_PERMUTE_Y] = {"permute_y", FLAG},
    [C_FUSE] = {"fuse_mul_post", FLAG},
    [C_STORE] = {"use_tma_store", FLAG},
    [C_TORCH] = {"torch_time", TIME},
    [C_TRITON] = {"triton_time", TIME},
    [C_SPEEDUP] = {"speedup", TIME},
    [C_LOAD_X] = {"use_tma_load_x", LOAD},
    [C_LOAD_W] = {"use_tma_load_w", LOAD},
    [C_LOAD_DY] = {"use_tma_load_dy", LOAD},
    [C_WORDS] = {"mode", WORD},
    [C_WORDS + 1] = {"seqlen", WORD},
    [C_WORDS + 2] = {"dtype", WORD},
    [C_WORDS + 3] = {"autotune", WORD},
};

struct csv {
    const char *path;
    int line, n;        /* columns of the file */
    int place[COLUMNS]; /* which of them, or -1 */
    double value[COLUMNS];
};

/* ---- one line ------------------------------------------------------------------------------- */

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
    bool x = csv->place[C_LOAD_X] >= 0, w = csv->place[C_LOAD_W] >= 0,
         dy = csv->place[C_LOAD_DY] >= 0;
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
    for (int c = 0; c < C_LOAD_X; c++) {
        if (csv->place[c] < 0) {
            return ctl_failed("%s, line 1: no column %s, so this is no CSV of Unsloth's tuning",
                              csv->path, columns[c].name);
        }
    }
    return read_mode(csv, out);
}

/* ---- values --------------------------------------------------------------------------------- */

static bool to_number(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return *text && !*end && text[strspn(text, "0123456789")] == '\0' && *out >= 1 &&
           *out <= NUMBER_MAX;
}

static bool to_time(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return *text && !*end && text[strspn(text, "0123456789.eE+-")] == '\0' && isfinite(*out) &&
           *out > 0;
}

static int unsloth_read_value(struct csv *csv, int c, const char *text)
{
    bool good = true;
    const char *wants = "";
    switch (columns[c].kind) {
    case NUMBER:
        good = to_number(text, &csv->value[c]);
        wants = "a whole number from 1 to 65536";
        break;
    case TIME:
        good = to_time(text, &csv->value[c]);
        wants = "a number above 0";
        break;
    case FLAG:
    case LOAD:
        csv->value[c] = strcmp(text, "True") == 0;
        good = csv->value[c] > 0 || strcmp(text, "False") == 0;
        wants = "True or False";
        break;
    case WORD:
        break;
    }
    return good ? DONE
                : ctl_failed("%s, line %d: %s is \"%.60s\", and must be %s", csv->path, csv->line,
                             columns[c].name, text, wants);
}

static int unsloth_read_row(struct csv *csv, char *line, struct entries *out)
{
    char *fields[CSV_FIELDS_MAX];
    int n = csv_split(line, fields);
    if (n != csv->n) {
        return ctl_failed("%s, line %d: %d columns, line 1 has %d", csv->path, csv->line, n,
                          csv->n);
    }
    for (int c = 0; c < COLUMNS; c++) {
        int code = csv->place[c] < 0 ? DONE : unsloth_read_value(csv, c, fields[csv->place[c]]);
        if (code) {
            return code;
        }
    }
    if (csv->place[C_WORDS] >= 0 && strcmp(fields[csv->place[C_WORDS]], out->mode) != 0) {
        return ctl_failed("%s, line %d: mode is \"%.60s\", but the columns are those of %s",
                          csv->path, csv->line, fields[csv->place[C_WORDS]], out->mode);
    }
    struct entry *e = entries_add(out);
    if (!e) {
        return ctl_failed("no memory");
    }
    const double *v = csv->value;
    e->line = csv->line;
    e->speedup = v[C_SPEEDUP];
    e->time_ms = v[C_TRITON];
    e->permute_x = v[C_PERMUTE_X] > 0;
    e->permute_y = v[C_PERMUTE_Y] > 0;
    e->fuse_mul_post = v[C_FUSE] > 0;
    e->tile = (struct tile){.m = (int64_t)v[C_M],
                            .n = (int64_t)v[C_N],
                            .k = (int64_t)v[C_K],
                            .warps = (int64_t)v[C_WARPS],
                            .stages = (int64_t)v[C_STAGES],
                            .split = 1,
                            .tma_store = v[C_STORE] > 0};
    return DONE;
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
