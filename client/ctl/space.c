/* SPDX-License-Identifier: Apache-2.0 */
/* space, check: what may be tried for a problem, and why something may not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"

struct asking {
    struct ctl ctl;
    struct problems problems;
    struct search search;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    (void)arg;
    struct asking *a = state->input;
    if (key != ARGP_KEY_INIT) {
        return ARGP_ERR_UNKNOWN;
    }
    state->child_inputs[0] = &a->problems;
    state->child_inputs[1] = &a->search;
    state->child_inputs[2] = &a->ctl;
    return 0;
}

static int ask(const struct argp *argp, int (*run)(struct asking *a), int argc, char **argv)
{
    struct asking a = {.ctl = {0}};
    search_init(&a.search);
    argp_parse(argp, argc, argv, 0, NULL, &a);
    int code = run(&a);
    search_deinit(&a.search);
    problems_deinit(&a.problems);
    ctl_deinit(&a.ctl);
    return code;
}

/* ---- space ---------------------------------------------------------------------------------- */

static char *show_when(const json_t *run_time)
{
    return strdup(json_is_true(run_time) ? "run" : "compile");
}

static void print_dropped(const json_t *dropped)
{
    static const struct column columns[] = {
        {"RULE", "rule", NULL, false},
        {"DROPPED", "n", NULL, true},
    };
    json_t *rows = json_array();
    const char *rule;
    json_t *n;
    json_object_foreach ((json_t *)(uintptr_t)dropped, rule, n) {
        json_array_append_new(rows, json_pack("{ss, sO}", "rule", rule, "n", n));
    }
    if (json_array_size(rows) > 0) {
        putchar('\n');
        table_print(columns, 2, rows);
    }
    json_decref(rows);
}

static int print_space(const json_t *space)
{
    static const struct column columns[] = {
        {"PARAMETER", "name", NULL, false},
        {"AT", "run_time", show_when, false},
        {"VALUES", "values", show_values, false},
        {"", "help", NULL, false},
    };
    printf("%lld configs, %lld of them legal\n\n",
           (long long)json_integer_value(json_object_get(space, "raw")),
           (long long)json_integer_value(json_object_get(space, "legal")));
    table_print(columns, 4, json_object_get(space, "params"));
    print_dropped(json_object_get(space, "dropped"));
    return DONE;
}

static int run_space(struct asking *a)
{
    const json_t *problem = problems_one(&a->problems);
    int code = problem ? ctl_connect(&a->ctl) : USAGE;
    if (code) {
        return code;
    }
    json_t *params = json_pack("{sO}", "problem", problem);
    if (json_object_size(a->search.restrict_) > 0) {
        json_object_set(params, "restrict", a->search.restrict_);
    }
    json_t *space = ctl_call(&a->ctl, "space", params, &code);
    if (!space || a->ctl.json) {
        return space ? ctl_print_json(space) : code;
    }
    code = print_space(space);
    json_decref(space);
    return code;
}

int cmd_space(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&problems_argp, 0, NULL, 0}, {&space_argp, 0, NULL, 0}, {&ctl_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        .parser = parse,
        .args_doc = "[PROBLEM]",
        .children = children,
        .doc =
            "Shows the parameters of a problem with their values, how many configs are legal, and "
            "how many each rule drops."};
    return ask(&argp, run_space, argc, argv);
}

/* ---- check ---------------------------------------------------------------------------------- */

static int judge_one(struct asking *a, const json_t *problem, json_t *config, json_t *verdicts)
{
    int code = DONE;
    json_t *verdict = ctl_call(&a->ctl, "check",
                               json_pack("{sO, sO}", "problem", problem, "config", config), &code);
    if (!verdict) {
        return code;
    }
    json_object_set(verdict, "config", config);
    json_array_append_new(verdicts, verdict);
    return json_is_true(json_object_get(verdict, "valid")) ? DONE : FAILED;
}

static void print_verdict(const json_t *v)
{
    const json_t *config = json_object_get(v, "config");
    char *text = text_visible(show_config(config));
    const char *message = json_string_value(json_object_get(v, "message"));
    if (json_is_true(json_object_get(v, "valid"))) {
        printf("valid: %s\n", text);
    } else {
        printf("not valid: %s\n  ", text);
        text_print("%s", message ? message : "");
        putchar('\n');
    }
    free(text);
}

static int run_check(struct asking *a)
{
    const json_t *problem = problems_one(&a->problems);
    if (!problem) {
        return USAGE;
    }
    if (json_array_size(a->search.configs) == 0) {
        return ctl_usage("which config? give --config 'BLOCK_SIZE_M=64 ...' or --configs FILE");
    }
    int code = ctl_connect(&a->ctl);
    if (code) {
        return code;
    }
    json_t *verdicts = json_array();
    size_t i;
    json_t *v;
    json_array_foreach (a->search.configs, i, v) {
        int r = judge_one(a, problem, v, verdicts);
        code = code ? code : r;
    }
    if (a->ctl.json) {
        int r = ctl_print_json(verdicts);
        return code ? code : r;
    }
    json_array_foreach (verdicts, i, v) {
        print_verdict(v);
    }
    json_decref(verdicts);
    return code;
}

int cmd_check(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&problems_argp, 0, NULL, 0}, {&given_argp, 0, NULL, 0}, {&ctl_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        .parser = parse,
        .args_doc = "[PROBLEM]",
        .children = children,
        .doc =
            "Says whether configs are valid for a problem, and if not by which rule. Exit status 1 "
            "when one is not."};
    return ask(&argp, run_check, argc, argv);
}
