/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes all products of an MoE layer from four numbers. The first GEMM has W [experts, 2 * inter,
 * hidden] (gate and up side by side) and permutes X; the second has W [experts, hidden, inter] and
 * permutes Y. The numbers stand in the option, or in the table of known models, a file with a line
 * for each model.
 */
#include <stdlib.h>
#include <string.h>

#include "client/ctl/formats.h"
#include "proto/paths.h"

enum { EXPERTS, TOPK, HIDDEN, INTER, NUMBERS };
static const char *const names[NUMBERS] = {"experts", "topk", "hidden", "inter"};

enum { NUMBER_MAX = 1 << 30 };

struct moe {
    char *name;         /* owned */
    int64_t v[NUMBERS]; /* 0: not given */
};

/* ---- "experts=128,topk=8,hidden=2048,inter=768" ---------------------------------------------- */

static int take_word(struct moe *m, char *word)
{
    char *value = strchr(word, '=');
    if (value) {
        *value++ = '\0';
    }
    for (int i = 0; i < NUMBERS && value; i++) {
        if (strcmp(word, names[i]) == 0 && m->v[i]) {
            return ctl_usage("--moe says twice what %s is", word);
        }
        if (strcmp(word, names[i]) == 0) {
            return text_read_number(value, 1, NUMBER_MAX, &m->v[i])
                       ? DONE
                       : ctl_usage("--moe: %s takes a whole number from 1 to %d, not \"%s\"", word,
                                   NUMBER_MAX, value);
        }
    }
    return ctl_usage(
        "--moe takes experts=128,topk=8,hidden=2048,inter=768, or a known model's name; not \"%s\"",
        word);
}

static int read_words(struct moe *m, const char *spec)
{
    TEXT_AUTO *copy = text_copy(spec);
    char *at = copy;
    int code = DONE;
    for (char *word; code == DONE && (word = strsep(&at, ","));) {
        code = take_word(m, word);
    }
    for (int i = 0; i < NUMBERS && code == DONE; i++) {
        code = m->v[i] ? DONE : ctl_usage("--moe: %s is missing in \"%s\"", names[i], spec);
    }
    m->name = text_copy("moe");
    return code;
}

/* ---- the table ------------------------------------------------------------------------------- */

/* $GEMMD_MODELS, else the installed table. A table's place relative to gemmctl stays valid when the
 * whole prefix is moved. */
static const char *table_path(void)
{
    static char near[PATHS_MAX];
    const char *named = getenv("GEMMD_MODELS");
    if (named && *named) {
        return named;
    }
    return MODELS_PLACE[0] != '/' && paths_make_near(MODELS_PLACE, near) ? near : MODELS_PLACE;
}

/* The first line of the table names these columns, in any order, and may name others. */
static int moe_check_head(const struct csv *csv, struct error *err)
{
    TEXT_AUTO *missing = text_copy(csv_find(csv, "model") < 0 ? "model" : "");
    for (int i = 0; i < NUMBERS; i++) {
        if (csv_find(csv, names[i]) < 0) {
            missing = text_append(missing, "%s%s", *missing ? ", " : "", names[i]);
        }
    }
    return *missing ? error_set(err, ERROR_MALFORMED,
                                "%s: its first line must name the columns "
                                "model,experts,topk,hidden,inter and does not name %s",
                                csv->path, missing)
                    : 0;
}

static int moe_read_line(const struct csv *csv, json_t *models, struct error *err)
{
    const char *name = csv_field(csv, "model");
    json_t *model = json_pack("{ss}", "model", name ? name : "");
    for (int i = 0; i < NUMBERS && model; i++) {
        const char *text = csv_field(csv, names[i]);
        int64_t n;
        if (!text || !text_read_number(text, 1, NUMBER_MAX, &n)) {
            json_decref(model);
            return error_set(err, ERROR_MALFORMED,
                             "%s, line %d: %s is \"%.40s\", which is no whole number from 1 to %d",
                             csv->path, csv->line, names[i], text ? text : "", NUMBER_MAX);
        }
        json_object_set_new(model, names[i], json_integer(n));
    }
    return json_array_append_new(models, model) /* NULL: the name is not UTF-8 */
               ? error_set(err, ERROR_MALFORMED, "%s, line %d is not UTF-8", csv->path, csv->line)
               : 0;
}

/* Reads the table: [{"model", "experts", "topk", "hidden", "inter"}]. NULL: the table cannot be
 * read, or a line is wrong (ERROR_MALFORMED). */
static json_t *moe_read_table(struct error *err)
{
    struct csv csv;
    if (!csv_open(&csv, table_path(), err)) {
        return NULL;
    }
    json_auto_t *models = json_array();
    int r = moe_check_head(&csv, err);
    while (r == 0 && csv_next(&csv)) {
        r = *csv.fields[0] == '#' ? 0 : moe_read_line(&csv, models, err);
    }
    csv_close(&csv);
    return r ? NULL : json_incref(models);
}

/* The name is borrowed from the row. */
static struct moe moe_of_row(const json_t *row)
{
    struct moe m = {.name = (char *)(uintptr_t)field_string(row, "model")};
    for (int i = 0; i < NUMBERS; i++) {
        m.v[i] = field_int(row, names[i]);
    }
    return m;
}

static int find_model(struct moe *m, const char *model)
{
    struct error e;
    json_auto_t *models = moe_read_table(&e), *known = json_object();
    ARRAY_EACH(row, models) {
        struct moe one = moe_of_row(row);
        json_object_set_new(known, one.name, json_true());
        if (!m->name && strcmp(one.name, model) == 0) {
            *m = one;
            m->name = text_copy(one.name);
        }
    }
    TEXT_AUTO *all = notice_names(known);
    if (!models) {
        return ctl_usage("the table of known models: %s (GEMMD_MODELS names another); or give "
                         "experts=128,topk=8,hidden=2048,inter=768 in place of the model's name",
                         e.text);
    }
    return m->name ? DONE
                   : ctl_usage("no model \"%s\" in %s, which has %s; add a line to it, or give "
                               "experts=128,topk=8,hidden=2048,inter=768 in place of the name",
                               model, table_path(), all && *all ? all : "no models");
}

static void moe_add_layer(json_t *layers, const struct moe *m, bool first)
{
    TEXT_AUTO *id =
        text_format("%lld/%lld/%lld/%lld", (long long)m->v[EXPERTS], (long long)m->v[TOPK],
                    (long long)(first ? 2 * m->v[INTER] : m->v[HIDDEN]),
                    (long long)(first ? m->v[HIDDEN] : m->v[INTER]));
    const char *known = field_string(layers, id);
    json_object_set_new(layers, id,
                        json_sprintf("%s%s%s %s", known ? known : "", known ? ", " : "", m->name,
                                     first ? "gate_up" : "down"));
}

json_t *moe_list_layers(bool is_quiet)
{
    struct error e;
    json_auto_t *models = moe_read_table(&e);
    json_t *layers = json_object();
    if (!models && e.code == ERROR_MALFORMED && !is_quiet) {
        text_remark("layers get no names: the table of known models: %s", e.text);
    }
    ARRAY_EACH(row, models) {
        const struct moe m = moe_of_row(row);
        moe_add_layer(layers, &m, true);
        moe_add_layer(layers, &m, false);
    }
    return layers;
}

static int moe_run_models(struct subject *s)
{
    static const struct column columns[] = {
        {"MODEL", "model"},
        {"EXPERTS", "experts", NULL, true},
        {"TOPK", "topk", NULL, true},
        {"HIDDEN", "hidden", NULL, true},
        {"INTER", "inter", NULL, true},
    };
    struct error e;
    json_auto_t *models = moe_read_table(&e);
    if (!models) {
        return ctl_failed("the table of known models: %s; GEMMD_MODELS names another", e.text);
    }
    if (s->ctl.json) {
        return ctl_print_json(json_incref(models));
    }
    table_print(columns, COUNT(columns), models);
    if (!s->ctl.quiet) {
        text_remark("from %s; `gemmctl tune --moe MODEL --tokens N` tunes a model's layer",
                    table_path());
    }
    return DONE;
}

const struct command command_models = {
    .name = "models",
    .help = "the models that --moe knows",
    .run = moe_run_models,
    .doc = "Lists the models whose MoE layer --moe and Python's prefetch know by name. "
           "$GEMMD_MODELS names another table.",
    .parts = {&output_argp},
};

/* ---- problems -------------------------------------------------------------------------------- */

static void moe_add_row(json_t *rows, const struct moe *m, const char *mode, bool first,
                        int64_t tokens, bool permutes)
{
    json_t *problem = json_pack("{ss, ss, sI, sI, sI, sI, sI}", "op", "grouped_gemm", "mode", mode,
                                "M", (json_int_t)(tokens * m->v[TOPK]), "N",
                                (json_int_t)(first ? 2 * m->v[INTER] : m->v[HIDDEN]), "K",
                                (json_int_t)(first ? m->v[HIDDEN] : m->v[INTER]), "experts",
                                (json_int_t)m->v[EXPERTS], "topk", (json_int_t)m->v[TOPK]);
    if (permutes) {
        json_object_set_new(problem, first ? "permute_x" : "permute_y", json_true());
    }
    json_t *name = json_sprintf("%s %s", m->name, first ? "gate_up" : "down");
    json_array_append_new(rows, json_pack("{so, so}", "problem", problem, "name", name));
}

static void add_layer(json_t *rows, const struct moe *m, const struct problems *p, int64_t tokens)
{
    static const char *const modes[] = {"forward", "dX", "dW"};
    for (int first = 1; first >= 0; first--) {
        for (size_t i = 0; i < 3; i++) {
            if (list_has(p->given[PROBLEM_MODE], modes[i]) &&
                list_has(p->given[PROBLEM_LAYER], first ? "gate_up" : "down")) {
                moe_add_row(rows, m, modes[i], first, tokens, problems_has_own_permutes(p));
            }
        }
    }
}

static int add_tokens(json_t *rows, const struct moe *m, const struct problems *p)
{
    TEXT_AUTO *copy = text_copy(p->given[PROBLEM_TOKENS] ? p->given[PROBLEM_TOKENS] : "");
    char *at = copy;
    int code = DONE;
    for (char *word; code == DONE && (word = strsep(&at, ","));) {
        int64_t tokens;
        if (text_read_number(word, 1, NUMBER_MAX, &tokens)) {
            add_layer(rows, m, p, tokens);
        } else {
            code = ctl_usage(
                "a model needs --tokens, whole numbers from 1 to %d as in 4096,16384; not \"%s\"",
                NUMBER_MAX, word);
        }
    }
    return code;
}

int moe_problems(const struct problems *p, json_t *rows)
{
    const char *spec = p->given[PROBLEM_MOE];
    struct moe m = {.name = NULL};
    int code = strchr(spec, '=') ? read_words(&m, spec) : find_model(&m, spec);
    code = code ? code : add_tokens(rows, &m, p);
    if (code == DONE && json_array_size(rows) == 0) {
        code = ctl_usage("--mode and --layer leave nothing of the layer: modes are forward, dX, "
                         "dW, layers gate_up, down");
    }
    free(m.name);
    return code;
}
