/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of MoE layers: a CSV file whose first line names the columns. Columns read: model, layer,
 * tokens, mode, experts, topk, M, N, K. All other columns, such as times of other tuners, are
 * ignored.
 */
#include <stdlib.h>
#include <string.h>

#include "client/ctl/formats.h"

enum { MODEL, LAYER, TOKENS, MODE, EXPERTS, TOPK, M, N, K, COLUMNS };
static const char *const names[COLUMNS] = {"model", "layer", "tokens", "mode", "experts",
                                           "topk",  "M",     "N",      "K"};
enum { NOT_THERE = -1 };

struct reader {
    const char *path;
    int line;
    int place[COLUMNS]; /* index of the field in a line, or NOT_THERE */
    json_t *models;     /* owned: the names in the column `model` */
};

static int shapes_read_head(struct reader *r, char *line, const struct problems *p)
{
    char *fields[CSV_FIELDS_MAX];
    const int n = csv_split(line, fields);
    const char *chosen[COLUMNS] = {[MODEL] = p->given[PROBLEM_MODEL],
                                   [LAYER] = p->given[PROBLEM_LAYER],
                                   [TOKENS] = p->given[PROBLEM_TOKENS]};
    for (int c = 0; c < COLUMNS; c++) {
        r->place[c] = NOT_THERE;
        for (int i = 0; i < n && i < CSV_FIELDS_MAX; i++) {
            if (strcmp(fields[i], names[c]) == 0 && r->place[c] != NOT_THERE) {
                return ctl_usage("%s has the column \"%s\" twice", r->path, names[c]);
            }
            r->place[c] = strcmp(fields[i], names[c]) == 0 ? i : r->place[c];
        }
    }
    for (int c = 0; c < COLUMNS; c++) {
        bool optional =
            c < MODE || c == EXPERTS || c == TOPK || (c == M && r->place[TOKENS] != NOT_THERE);
        if (r->place[c] == NOT_THERE && chosen[c]) {
            return ctl_usage("%s has no column \"%s\" in its first line, which --%s chooses by",
                             r->path, names[c], names[c]);
        }
        if (r->place[c] == NOT_THERE && !optional) {
            return ctl_usage("%s has no column \"%s\" in its first line", r->path, names[c]);
        }
    }
    return DONE;
}

/* Copies the numbers of a row into a problem. Without a column M, M is tokens times topk. */
static int take_numbers(const struct reader *r, char *const fields[COLUMNS], json_t *problem)
{
    static const int order[] = {EXPERTS, TOPK, TOKENS, M, N, K};
    int64_t values[COLUMNS] = {[EXPERTS] = 1, [TOPK] = 1};
    for (size_t i = 0; i < COUNT(order); i++) {
        int c = order[i];
        if (fields[c] && !text_read_number(fields[c], 1, INT64_MAX, &values[c])) {
            return ctl_usage("%s, line %d: %s is \"%s\", which is no whole number from 1 on",
                             r->path, r->line, names[c], fields[c]);
        }
    }
    if (!fields[M] && __builtin_mul_overflow(values[TOKENS], values[TOPK], &values[M])) {
        return ctl_usage("%s, line %d: %lld tokens are too many", r->path, r->line,
                         (long long)values[TOKENS]);
    }
    static const int sizes[] = {EXPERTS, TOPK, M, N, K};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        json_object_set_new(problem, names[sizes[i]], json_integer(values[sizes[i]]));
    }
    return DONE;
}

static bool shapes_is_wanted(char *const fields[COLUMNS], const struct problems *p)
{
    return (!fields[MODEL] || list_has(p->given[PROBLEM_MODEL], fields[MODEL])) &&
           (!fields[LAYER] || list_has(p->given[PROBLEM_LAYER], fields[LAYER])) &&
           (!fields[TOKENS] || list_has(p->given[PROBLEM_TOKENS], fields[TOKENS])) &&
           list_has(p->given[PROBLEM_MODE], fields[MODE]);
}

static int shapes_add_row(const struct reader *r, char *const fields[COLUMNS],
                          const struct problems *p, json_t *rows)
{
    if (fields[MODEL]) {
        json_object_set_new(r->models, fields[MODEL], json_true());
    }
    if (!shapes_is_wanted(fields, p)) {
        return DONE;
    }
    json_t *problem = json_pack("{ss, ss}", "op", "grouped_gemm", "mode", fields[MODE]);
    const char *layer = fields[LAYER] ? fields[LAYER] : "";
    const bool own = problems_has_own_permutes(p);
    if (own && strcmp(layer, "gate_up") == 0) {
        json_object_set_new(problem, "permute_x", json_true());
    }
    if (own && strcmp(layer, "down") == 0) {
        json_object_set_new(problem, "permute_y", json_true());
    }
    int code = take_numbers(r, fields, problem);
    json_t *name = json_sprintf("%s%s%s", fields[MODEL] ? fields[MODEL] : "",
                                fields[MODEL] && *layer ? " " : "", layer);
    json_t *row =
        json_pack("{so, so}", "problem", problem, "name", name); /* NULL when an argument is NULL */
    if (json_array_append_new(rows, row) && code == DONE) {
        code = ctl_usage("%s, line %d is not UTF-8", r->path, r->line);
    }
    return code;
}

static int shapes_read_line(struct reader *r, char *line, const struct problems *p, json_t *rows)
{
    r->line++;
    if (r->line == 1) {
        return shapes_read_head(r, line, p);
    }
    if (line[strspn(line, " \r\t")] == '\0' || *line == '#') {
        return DONE;
    }
    char *all[CSV_FIELDS_MAX], *fields[COLUMNS] = {NULL};
    const int n = csv_split(line, all);
    for (int c = 0; c < COLUMNS; c++) {
        if (r->place[c] >= n) {
            return ctl_usage("%s, line %d has fewer columns than the first line: no %s", r->path,
                             r->line, names[c]);
        }
        fields[c] = r->place[c] == NOT_THERE ? NULL : all[r->place[c]];
    }
    return shapes_add_row(r, fields, p, rows);
}

json_t *shapes_read(const struct problems *p)
{
    const char *path = p->given[PROBLEM_SHAPES];
    struct gemmd_error e;
    char *text = text_read_file(path, &e);
    if (!text) {
        ctl_usage("%s", e.text);
        return NULL;
    }
    struct reader r = {.path = path, .models = json_object()};
    json_t *rows = json_array();
    int code = DONE;
    char *at = text + (strncmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0); /* a byte order mark */
    for (char *line; code == DONE && (line = strsep(&at, "\n")) && (at || *line);) {
        code = shapes_read_line(&r, line, p, rows);
    }
    if (r.line == 0) {
        code = shapes_read_head(&r, text, p); /* for an empty file */
    }
    free(text);
    if (code == DONE && json_array_size(rows) == 0) {
        char *models = notice_names(r.models);
        const bool named = p->given[PROBLEM_MODEL] && models && *models;
        code = ctl_usage("no row of %s is what --model, --layer, --tokens and --mode ask for%s%s",
                         path, named ? "; its models are " : "", named ? models : "");
        free(models);
    }
    json_decref(r.models);
    if (code) {
        json_decref(rows);
        return NULL;
    }
    return rows;
}
