/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch TunableOp's lists of shapes, both ways: tunableop_untuned0.csv, and the first two columns
 * of tunableop_results0.csv. A line is
 * "GemmTunableOp_BFloat16_TN,tn_1536_4096_2048_ld_2048_2048_1536": type, layout, then m, n, k of
 * the column-major product, which is the row-major product with its operands exchanged. The layout
 * tells the mode for a weight [N, K]:
 *
 *   TN   x @ w.T     forward   m, n, k = N, M, K
 *   NN   dy @ w      dX        m, n, k = K, M, N
 *   NT   dy.T @ x    dW        m, n, k = K, N, M
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/formats.h"

static const struct {
    const char *layout, *lower, *mode;
    const char *sizes[3]; /* the fields of gemmd's problem that m, n and k are */
} layouts[] = {{"TN", "tn", "forward", {"N", "M", "K"}},
               {"NN", "nn", "dX", {"K", "M", "N"}},
               {"NT", "nt", "dW", {"K", "N", "M"}}};

static const struct {
    const char *type, *dtype;
} types[] = {{"BFloat16", "bf16"}, {"Half", "fp16"}, {"float", "fp32"}};

/* ---- reading --------------------------------------------------------------------------------- */

bool tunable_is_list(const struct csv *csv)
{
    return csv->n_names >= 2 && (strncmp(csv->names[0], "Gemm", 4) == 0 ||
                                 strncmp(csv->names[0], "ScaledGemm", 10) == 0 ||
                                 strcmp(csv->names[0], "Validator") == 0);
}

/* Makes the problem of a line from its two columns, a new object. NULL: a product that gemmd does
 * not know, for the reason *why; or, with *why NULL, a malformed line. */
static json_t *tunable_make_problem(const char *op, const char *params, const char **why)
{
    char kind[32], type[32], layout[8], lower[8];
    long long mnk[3];
    int end = 0;
    size_t l = 0, t = 0;
    *why = "TunableOp's op is none of one matrix product without scales";
    if (sscanf(op, "%31[^_]_%31[^_]_%7s", kind, type, layout) != 3 ||
        !list_has("GemmTunableOp,GemmAndBiasTunableOp", kind)) {
        return NULL;
    }
    while (l < COUNT(layouts) && strcmp(layouts[l].layout, layout) != 0) {
        l++;
    }
    while (t < COUNT(types) && strcmp(types[t].type, type) != 0) {
        t++;
    }
    if (l == COUNT(layouts) || t == COUNT(types)) {
        *why = l == COUNT(layouts) ? "no mode of gemmd has both operands transposed"
                                   : "gemmd's types are bf16, fp16 and fp32";
        return NULL;
    }
    *why = NULL;
    if (sscanf(params, "%7[^_]_%lld_%lld_%lld%n", lower, &mnk[0], &mnk[1], &mnk[2], &end) != 4 ||
        strcmp(lower, layouts[l].lower) != 0 || (params[end] && params[end] != '_') || mnk[0] < 1 ||
        mnk[1] < 1 || mnk[2] < 1) {
        return NULL;
    }
    json_t *problem =
        json_pack("{ss, ss, ss, si, si}", "op", "grouped_gemm", "mode", layouts[l].mode, "dtype_in",
                  types[t].dtype, "experts", 1, "topk", 1);
    for (size_t i = 0; i < 3; i++) {
        json_object_set_new(problem, layouts[l].sizes[i], json_integer(mnk[i]));
    }
    return problem;
}

/* Adds the line's row to `found`, {problem's text: row}: files of several processes repeat lines.
 */
static int tunable_read_line(const struct csv *csv, char *const *fields, int n,
                             const struct problems *p, json_t *found, json_t *skipped)
{
    const char *why;
    if (strcmp(fields[0], "Validator") == 0) {
        return DONE;
    }
    json_auto_t *problem = n < 2 ? NULL : tunable_make_problem(fields[0], fields[1], &why);
    if (!problem && (n < 2 || !why)) {
        return ctl_usage("%s, line %d: \"%.60s\" is no shape of TunableOp, as in "
                         "tn_1536_4096_2048_ld_2048_2048_1536",
                         csv->path, csv->line, fields[n < 2 ? 0 : 1]);
    }
    if (!problem) {
        notice_skip(skipped, fields[0], why);
        return DONE;
    }
    TEXT_AUTO *text = text_of_json(problem);
    if (list_has(p->given[PROBLEM_MODE], field_text(problem, "mode")) &&
        !json_object_get(found, text)) {
        json_object_set_new(found, text,
                            json_pack("{sO, ss}", "problem", problem, "name", fields[1]));
    }
    return DONE;
}

int tunable_read(struct csv *csv, const struct problems *p, json_t *rows)
{
    static const enum problem_option others[] = {PROBLEM_MODEL, PROBLEM_LAYER, PROBLEM_TOKENS};
    for (size_t i = 0; i < COUNT(others); i++) {
        if (p->given[others[i]]) {
            return ctl_usage("%s is a list of TunableOp, without models, layers and tokens: of "
                             "these options only --mode chooses",
                             csv->path);
        }
    }
    json_auto_t *found = json_object(), *skipped = json_array();
    int code = tunable_read_line(csv, csv->names, csv->n_names, p, found, skipped);
    while (code == DONE && csv_next(csv)) {
        code = tunable_read_line(csv, csv->fields, csv->n, p, found, skipped);
    }
    notices_print(skipped);
    OBJECT_EACH(text, row, found) {
        json_array_append(rows, row);
    }
    if (code == DONE && json_array_size(rows) == 0) {
        code = ctl_usage("%s has no shape that gemmd can tune", csv->path);
    }
    return code;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* The line of a row's problem, malloc'ed; NULL: the format cannot express it, for the reason `why`.
 */
static char *tunable_make_line(const json_t *row, const char **why)
{
    const json_t *p = json_object_get(row, "problem");
    const char *dtype = field_text(p, "dtype_in"), *mode = field_text(p, "mode");
    size_t l = 0, t = 0;
    while (l < COUNT(layouts) && strcmp(layouts[l].mode, mode) != 0) {
        l++;
    }
    while (t < COUNT(types) && strcmp(types[t].dtype, dtype) != 0) {
        t++;
    }
    *why = "the format's products have one matrix, no permutes, any order of summation, and one "
           "type, bf16, fp16 or fp32";
    if (l == COUNT(layouts) || t == COUNT(types) || field_int(p, "experts") > 1 ||
        field_is_true(p, "permute_x") || field_is_true(p, "permute_y") ||
        field_is_true(p, "fuse_mul_post") || field_is_true(p, "accumulate") ||
        field_is_true(p, "batch_invariant") || !field_is(p, "dtype_out", dtype)) {
        return NULL;
    }
    long long s[3];
    for (size_t i = 0; i < 3; i++) {
        s[i] = field_int(p, layouts[l].sizes[i]);
    }
    /* Leading dimensions of dense operands: a transposed operand has k, another one m or k. */
    const long long lda = *layouts[l].layout == 'T' ? s[2] : s[0];
    const long long ldb = layouts[l].layout[1] == 'T' ? s[1] : s[2];
    return text_format("GemmTunableOp_%s_%s,%s_%lld_%lld_%lld_ld_%lld_%lld_%lld\n", types[t].type,
                       layouts[l].layout, layouts[l].lower, s[0], s[1], s[2], lda, ldb, s[0]);
}

static int tunable_write(struct writing *w)
{
    char *text = text_copy("");
    size_t n = 0;
    ARRAY_EACH(row, w->rows) {
        const char *why;
        TEXT_AUTO *line = tunable_make_line(row, &why);
        if (!line) {
            writing_skip(w, row, why);
        } else if (!strstr(text, line)) { /* buckets of several routings have equal shapes */
            n++;
            text = text_append(text, "%s", line);
        }
    }
    if (n == 0) {
        free(text);
        return DONE;
    }
    return writing_add_file(w, text_copy(w->to ? w->to : "-"), text, n);
}

const struct format format_tunableop = {.name = "tunableop", .write = tunable_write};
