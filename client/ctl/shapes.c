/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of MoE layers: a CSV file whose first line names the columns. Columns read: model, layer,
 * tokens, mode, experts, topk, M, N, K. All other columns, such as times of other tuners, are
 * ignored. Lists of TunableOp (tunable.c) and of aiter (aiter_csv_read.c) are read in the same
 * place.
 */
#include <string.h>

#include "client/ctl/formats.h"

enum { MODEL, LAYER, TOKENS, MODE, EXPERTS, TOPK, M, N, K, COLUMNS };
static const char *const names[COLUMNS] = {"model", "layer", "tokens", "mode", "experts",
                                           "topk",  "M",     "N",      "K"};

static int shapes_check_head(const struct csv *csv, const struct problems *p)
{
    const char *chosen[COLUMNS] = {[MODEL] = p->given[PROBLEM_MODEL],
                                   [LAYER] = p->given[PROBLEM_LAYER],
                                   [TOKENS] = p->given[PROBLEM_TOKENS]};
    for (int c = 0; c < COLUMNS; c++) {
        const int at = csv_find(csv, names[c]);
        for (int i = at + 1; at >= 0 && i < csv->n_names; i++) {
            if (strcmp(csv->names[i], names[c]) == 0) {
                return ctl_usage("%s has the column \"%s\" twice", csv->path, names[c]);
            }
        }
        bool optional =
            c < MODE || c == EXPERTS || c == TOPK || (c == M && csv_find(csv, names[TOKENS]) >= 0);
        if (at < 0 && (chosen[c] || !optional)) {
            return ctl_usage("%s has no column \"%s\" in its first line%s%s%s", csv->path, names[c],
                             chosen[c] ? ", which --" : "", chosen[c] ? names[c] : "",
                             chosen[c] ? " chooses by" : "");
        }
    }
    return DONE;
}

/* Copies the numbers of a row into a problem. Without a column M, M is tokens times topk. */
static int take_numbers(const struct csv *csv, const char *const fields[COLUMNS], json_t *problem)
{
    static const int order[] = {EXPERTS, TOPK, TOKENS, M, N, K};
    int64_t values[COLUMNS] = {[EXPERTS] = 1, [TOPK] = 1};
    for (size_t i = 0; i < COUNT(order); i++) {
        int c = order[i];
        if (fields[c] && !text_read_number(fields[c], 1, INT64_MAX, &values[c])) {
            return ctl_usage("%s, line %d: %s is \"%s\", which is no whole number from 1 on",
                             csv->path, csv->line, names[c], fields[c]);
        }
    }
    if (!fields[M] && __builtin_mul_overflow(values[TOKENS], values[TOPK], &values[M])) {
        return ctl_usage("%s, line %d: %lld tokens are too many", csv->path, csv->line,
                         (long long)values[TOKENS]);
    }
    static const int sizes[] = {EXPERTS, TOPK, M, N, K};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        json_object_set_new(problem, names[sizes[i]], json_integer(values[sizes[i]]));
    }
    return DONE;
}

static bool shapes_is_wanted(const char *const fields[COLUMNS], const struct problems *p)
{
    return (!fields[MODEL] || list_has(p->given[PROBLEM_MODEL], fields[MODEL])) &&
           (!fields[LAYER] || list_has(p->given[PROBLEM_LAYER], fields[LAYER])) &&
           (!fields[TOKENS] || list_has(p->given[PROBLEM_TOKENS], fields[TOKENS])) &&
           list_has(p->given[PROBLEM_MODE], fields[MODE]);
}

/* Adds the field to the set `name` of `known`. */
static void shapes_note(const json_t *known, const char *name, const char *field)
{
    if (field) {
        json_object_set_new(json_object_get(known, name), field, json_true());
    }
}

/* `known`: {"models", "layers"}, the sets of the names in the rows so far. */
static int shapes_add_row(const struct csv *csv, const struct problems *p, json_t *rows,
                          const json_t *known)
{
    const char *fields[COLUMNS];
    for (int c = 0; c < COLUMNS; c++) {
        fields[c] = csv_field(csv, names[c]);
        if (!fields[c] && csv_find(csv, names[c]) >= 0) {
            return ctl_usage("%s, line %d has fewer columns than the first line: no %s", csv->path,
                             csv->line, names[c]);
        }
    }
    shapes_note(known, "models", fields[MODEL]);
    shapes_note(known, "layers", fields[LAYER]);
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
    int code = take_numbers(csv, fields, problem);
    json_t *name = json_sprintf("%s%s%s", fields[MODEL] ? fields[MODEL] : "",
                                fields[MODEL] && *layer ? " " : "", layer);
    json_t *row =
        json_pack("{so, so}", "problem", problem, "name", name); /* NULL: name is not UTF-8 */
    if (json_array_append_new(rows, row) && code == DONE) {
        code = ctl_usage("%s, line %d is not UTF-8", csv->path, csv->line);
    }
    return code;
}

/* "; its models are a, b", malloc'ed. "" without the option `given`, or without names. */
static char *shapes_list_names(const json_t *known, const char *name, const char *given)
{
    TEXT_AUTO *all = notice_names(json_object_get(known, name));
    return given && *all ? text_format("; its %s are %s", name, all) : text_copy("");
}

static int shapes_fail_empty(const struct csv *csv, const struct problems *p, const json_t *known,
                             bool has_rows)
{
    TEXT_AUTO *models = shapes_list_names(known, "models", p->given[PROBLEM_MODEL]),
              *layers = shapes_list_names(known, "layers", p->given[PROBLEM_LAYER]);
    return has_rows
               ? ctl_usage("no row of %s is what --model, --layer, --tokens and --mode ask for%s%s",
                           csv->path, models, layers)
               : ctl_usage("%s has no rows below its first line", csv->path);
}

static int shapes_read_layers(struct csv *csv, const struct problems *p, json_t *rows)
{
    json_auto_t *known = json_pack("{s{}, s{}}", "models", "layers");
    bool has_rows = false;
    int code = shapes_check_head(csv, p);
    while (code == DONE && csv_next(csv)) {
        const bool is_row = *csv->fields[0] != '#';
        has_rows = has_rows || is_row;
        code = is_row ? shapes_add_row(csv, p, rows, known) : DONE;
    }
    return code == DONE && json_array_size(rows) == 0 ? shapes_fail_empty(csv, p, known, has_rows)
                                                      : code;
}

int shapes_read(const struct problems *p, json_t *rows)
{
    struct error e;
    struct csv csv;
    if (!csv_open(&csv, p->given[PROBLEM_SHAPES], &e)) {
        return ctl_usage("%s", e.text);
    }
    int code = tunable_is_list(&csv) ? tunable_read(&csv, p, rows)
               : aiter_is_list(&csv) ? aiter_read_list(&csv, p, rows)
                                     : shapes_read_layers(&csv, p, rows);
    csv_close(&csv);
    return code;
}
