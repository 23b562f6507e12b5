/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the CSV of Unsloth's MoE tuning: ten columns of each config; two of the mode's TMA loads,
 * which give the mode; three of times. The variant of Unsloth's benchmark has four more columns.
 * The file names no shape and no device: the user of the import names the problems. Columns are
 * found by name, in any order; columns of other names are ignored and counted.
 */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/formats.h"

enum { NUMBER_MAX = 65536 };

enum unsloth_kind { NUMBER, FLAG, TIME, WORD };
static const struct {
    const char *name;
    enum unsloth_kind kind;
    const char *into; /* member of the entry; "": the entry itself; NULL: only checked */
    bool optional;
} columns[] = {
    {"BLOCK_SIZE_M", NUMBER, "tile"},
    {"BLOCK_SIZE_N", NUMBER, "tile"},
    {"BLOCK_SIZE_K", NUMBER, "tile"},
    {"num_warps", NUMBER, "tile"},
    {"num_stages", NUMBER, "tile"},
    {"flatten", FLAG},
    {"permute_x", FLAG, "flags"},
    {"permute_y", FLAG, "flags"},
    {"fuse_mul_post", FLAG, "flags"},
    {"use_tma_store", FLAG, "tile"},
    {"torch_time", TIME},
    {"triton_time", TIME, ""},
    {"speedup", TIME, ""},
    {"use_tma_load_x", FLAG, NULL, true},
    {"use_tma_load_w", FLAG, NULL, true},
    {"use_tma_load_dy", FLAG, NULL, true},
    {"mode", WORD, NULL, true},
    {"seqlen", WORD, NULL, true},
    {"dtype", WORD, NULL, true},
    {"autotune", WORD, NULL, true},
};

/* ---- the first line -------------------------------------------------------------------------- */

static bool unsloth_has_column(const char *name)
{
    size_t c = 0;
    while (c < COUNT(columns) && strcmp(columns[c].name, name) != 0) {
        c++;
    }
    return c < COUNT(columns);
}

/* Reads the line of titles: sets out's mode, and counts columns that the import does not use. */
static int unsloth_read_head(const struct csv *csv, json_t *out)
{
    const bool x = csv_find(csv, "use_tma_load_x") >= 0, w = csv_find(csv, "use_tma_load_w") >= 0;
    const bool dy = csv_find(csv, "use_tma_load_dy") >= 0;
    for (int i = 0; i < csv->n_names; i++) {
        if (!unsloth_has_column(csv->names[i])) {
            notice_count(json_object_get(out, "unused"), csv->names[i], 1);
        } else if (csv_find(csv, csv->names[i]) < i) {
            return ctl_failed("%s, line 1: column %d, \"%.60s\", is there twice", csv->path, i + 1,
                              csv->names[i]);
        }
    }
    for (size_t c = 0; c < COUNT(columns); c++) {
        if (!columns[c].optional && csv_find(csv, columns[c].name) < 0) {
            return ctl_failed("%s, line 1: no column %s, so this is no CSV of Unsloth's tuning",
                              csv->path, columns[c].name);
        }
    }
    if (x + w + dy != 2) {
        return ctl_failed("%s, line 1: two of use_tma_load_w, use_tma_load_x, use_tma_load_dy must "
                          "be columns: they say the mode",
                          csv->path);
    }
    json_object_set_new(out, "mode", json_string(!dy ? "forward" : x ? "dW" : "dX"));
    return DONE;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Reads a field of a row. NULL: the text is malformed. */
static json_t *unsloth_read_value(enum unsloth_kind kind, const char *text)
{
    char *end;
    int64_t n;
    double v;
    switch (kind) {
    case NUMBER:
        return strspn(text, "0123456789") == strlen(text) &&
                       text_read_number(text, 1, NUMBER_MAX, &n)
                   ? json_integer(n)
                   : NULL;
    case TIME:
        v = strtod(text, &end);
        return *text && !*end && strspn(text, "0123456789.eE+-") == strlen(text) && v > 0 &&
                       v <= DBL_MAX
                   ? json_real(v)
                   : NULL;
    case FLAG:
        return strcmp(text, "True") == 0    ? json_true()
               : strcmp(text, "False") == 0 ? json_false()
                                            : NULL;
    case WORD:
        break;
    }
    return json_null();
}

static int unsloth_read_row(const struct csv *csv, json_t *out)
{
    static const char *const wants[] = {[NUMBER] = "a whole number from 1 to 65536",
                                        [FLAG] = "True or False",
                                        [TIME] = "a number above 0"};
    const char *mode = csv_field(csv, "mode"), *columns_mode = field_text(out, "mode");
    if (csv->n != csv->n_names) {
        return ctl_failed("%s, line %d: %d columns, line 1 has %d", csv->path, csv->line, csv->n,
                          csv->n_names);
    }
    json_t *e = json_pack("{si, s{}, s{}}", "line", csv->line, "tile", "flags");
    json_array_append_new(json_object_get(out, "entries"), e);
    for (size_t c = 0; c < COUNT(columns); c++) {
        const char *text = csv_field(csv, columns[c].name), *into = columns[c].into;
        json_auto_t *v = text ? unsloth_read_value(columns[c].kind, text) : json_null();
        if (!v) {
            return ctl_failed("%s, line %d: %s is \"%.60s\", and must be %s", csv->path, csv->line,
                              columns[c].name, text, wants[columns[c].kind]);
        }
        if (into) {
            json_object_set(*into ? json_object_get(e, into) : e, columns[c].name, v);
        }
    }
    return mode && strcmp(mode, columns_mode) != 0
               ? ctl_failed("%s, line %d: mode is \"%.60s\", but the columns are those of %s",
                            csv->path, csv->line, mode, columns_mode)
               : DONE;
}

int unsloth_read(const char *path, json_t *out)
{
    static const char *const order[] = {"-speedup", "triton_time", "line", NULL};
    json_t *entries = json_object_get(out, "entries");
    struct csv csv;
    struct error e;
    if (!csv_open(&csv, path, &e)) {
        return ctl_failed("%s", e.text);
    }
    const bool empty = csv.n_names == 1 && !*csv.names[0];
    int code = empty ? DONE : unsloth_read_head(&csv, out);
    while (code == DONE && !empty && csv_next(&csv)) {
        code = unsloth_read_row(&csv, out);
    }
    csv_close(&csv);
    if (code == DONE && json_array_size(entries) == 0) {
        code = ctl_failed("%s has no rows", path);
    }
    rows_sort(entries, order);
    return code;
}
