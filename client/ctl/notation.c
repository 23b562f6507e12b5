/* SPDX-License-Identifier: Apache-2.0 */
/* What configs mean: the short notation, in tables and in what a person types; the exactness. */
#include <stdlib.h>

#include "client/ctl/ctl.h"

/* ---- writing -------------------------------------------------------------------------------- */

/* The problem of a row as text, "grouped_gemm M=16 ...", malloc'ed. NULL: the row has none. */
static char *notation_make_problem(const json_t *row)
{
    json_auto_t *problem = result_problem(row);
    return json_is_object(problem) ? text_of_json(problem) : NULL;
}

char *notation_of_config(const json_t *row, const json_t *config)
{
    struct gemmd_problem p = GEMMD_PROBLEM_INIT;
    struct gemmd_error e;
    TEXT_AUTO *problem = notation_make_problem(row);
    char *fields = show_config(config), *text = NULL;
    p.text = problem;
    if (problem && fields && json_is_object(config)) {
        gemmd_config_shorten(&p, field_string(row, "target"), fields, &text, &e);
    }
    if (text) { /* gemmd_free is for libgemmd's memory, free for the tables' */
        free(fields);
        fields = text_copy(text);
        gemmd_free(text);
    }
    return fields;
}

void notation_add(json_t *row)
{
    const json_t *config = json_object_get(row, "config");
    TEXT_AUTO *text = config && !json_is_null(config) ? notation_of_config(row, config) : NULL;
    if (text) {
        json_object_set_new(row, "short", json_string(text));
    }
}

/* ---- exactness ------------------------------------------------------------------------------ */

void exactness_add(json_t *row)
{
    struct gemmd_problem p = GEMMD_PROBLEM_INIT;
    struct gemmd_exactness exact = GEMMD_EXACTNESS_INIT;
    struct gemmd_error e;
    const json_t *config = json_object_get(row, "config");
    const char *target = field_string(row, "target");
    TEXT_AUTO *problem = json_is_object(config) && target ? notation_make_problem(row) : NULL,
              *fields = problem ? show_config(config) : NULL;
    p.text = problem;
    if (fields && gemmd_config_exactness(&p, target, fields, &exact, &e) == 0) {
        json_object_set_new(row, "exactness",
                            json_pack("{sb, sb, ss}", "runs", exact.runs, "batches", exact.batches,
                                      "order", exact.order));
    }
}

char *show_exactness(const json_t *v)
{
    const bool runs = field_is_true(v, "runs"), batches = field_is_true(v, "batches");
    return text_format("%s%s", runs ? "runs" : "-", batches ? " and batches" : "");
}

/* ---- reading -------------------------------------------------------------------------------- */

static json_t *notation_expand_text(const struct gemmd_problem *p, const char *target,
                                    const char *text, int *code)
{
    struct gemmd_error e;
    char *fields = NULL;
    if (gemmd_config_expand(p, target, text, &fields, &e)) {
        *code = ctl_usage("%s", e.text);
        return NULL;
    }
    json_t *config = json_string(fields);
    gemmd_free(fields);
    return config;
}

json_t *notation_expand(const struct search *search, const json_t *problem, int *code)
{
    struct gemmd_problem p = GEMMD_PROBLEM_INIT;
    TEXT_AUTO *text = text_of_json(problem);
    json_auto_t *out = json_array();
    p.text = text;
    ARRAY_EACH(config, search->configs) {
        const char *given = json_string_value(config);
        json_t *one = given ? notation_expand_text(&p, search->query.target, given, code)
                            : json_incref(config);
        if (!one) {
            return NULL;
        }
        json_array_append_new(out, one);
    }
    return json_incref(out);
}

int notation_expand_rows(json_t *rows)
{
    ARRAY_EACH_AT(i, row, rows) {
        const char *text = field_string(row, "config");
        struct gemmd_problem p = GEMMD_PROBLEM_INIT;
        struct gemmd_error e;
        TEXT_AUTO *problem = text ? notation_make_problem(row) : NULL;
        char *fields = NULL;
        p.text = problem;
        const int failed = problem ? gemmd_config_expand(&p, NULL, text, &fields, &e) : 0;
        if (failed) {
            return ctl_failed("row %zu: %s", i, e.text);
        }
        struct error malformed;
        json_t *config = fields ? text_to_json(fields, &malformed) : NULL;
        gemmd_free(fields);
        if (config) {
            json_object_set_new(row, "config", config);
        }
    }
    return DONE;
}
