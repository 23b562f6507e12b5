/* SPDX-License-Identifier: Apache-2.0 */
/* space, check: the legal configs of a problem, and the reasons why others are not legal. */
#include <stdio.h>
#include <string.h>

#include "client/ctl/ctl.h"
#include "client/ctl/formats.h"

/* ---- space ---------------------------------------------------------------------------------- */

static char *show_when(const json_t *run_time)
{
    return text_copy(json_is_true(run_time) ? "run" : "compile");
}

/* Makes rows of the member `which` of a space, {rule: number of configs}: each with the rule's
 * first reason, the highest number first. */
static json_t *rule_rows(const json_t *space, const char *which)
{
    static const char *const order[] = {"-n", NULL};
    const json_t *reasons = json_object_get(space, "reasons");
    json_t *rows = json_array();
    OBJECT_EACH(rule, n, json_object_get(space, which)) {
        json_array_append_new(rows, json_pack("{ss, sO, sO*}", "rule", rule, "n", n, "why",
                                              json_object_get(reasons, rule)));
    }
    rows_sort(rows, order);
    return rows;
}

static void print_rules(const json_t *space, const char *which, const char *title)
{
    const struct column columns[] = {
        {"RULE", "rule"},
        {title, "n", NULL, true},
        {"FOR EXAMPLE", "why"},
    };
    json_auto_t *rows = rule_rows(space, which);
    if (json_array_size(rows) > 0) {
        putchar('\n');
        table_print(columns, 3, rows);
    }
}

/* Prints the targets whose space is not shown: those that take the problem, with the option that
 * shows them, and the others with the reason. */
static void print_others(const json_t *space)
{
    const char *shown = field_string(space, "target");
    ARRAY_EACH(t, json_object_get(space, "targets")) {
        const char *name = field_string(t, "name");
        const char *why = field_string(t, "why");
        if (name && shown && strcmp(name, shown) != 0) {
            text_print(why ? "not %s: %s" : "also here: %s (--target %s)", name, why ? why : name);
            putchar('\n');
        }
    }
}

static void print_space(const json_t *space)
{
    static const struct column columns[] = {
        {"PARAMETER", "name"},
        {"AT", "run_time", show_when},
        {"VALUES", "values", show_values},
        {"", "help"},
    };
    const char *target = field_string(space, "target");
    const char *device = field_string(space, "device");
    if (target && device) {
        text_print("target %s on %s", target, device);
        putchar('\n');
    }
    print_others(space);
    printf("%lld configs, %lld of them legal, %lld worth a search: %lld variants to compile, up to "
           "%lld run-time settings of each\n\n",
           field_int(space, "raw"), field_int(space, "legal"), field_int(space, "searched"),
           field_int(space, "variants"), field_int(space, "settings"));
    table_print(columns, 4, json_object_get(space, "params"));
    print_rules(space, "dropped", "NOT LEGAL");
    print_rules(space, "unpromising", "NOT WORTH IT");
}

/* Computes the space in gemmctl, without a daemon. */
static json_t *plan_space(struct subject *s, const char *device, const json_t *problem, int *code)
{
    struct gemmd_problem asked = GEMMD_PROBLEM_INIT;
    struct gemmd_error e;
    TEXT_AUTO *text = text_of_json(problem);
    char *json = NULL;
    asked.text = text;
    search_finish(&s->search);
    int r = gemmd_space(device, &asked, &s->search.query, &json, &e);
    if (r) {
        *code = ctl_fail(&e);
        return NULL;
    }
    json_t *space = json_loads(json, 0, NULL);
    gemmd_free(json);
    return space;
}

static json_t *ask_space(struct subject *s, const json_t *problem, int *code)
{
    *code = ctl_connect(&s->ctl);
    if (*code) {
        return NULL;
    }
    json_t *params = json_pack("{sO}", "problem", problem);
    if (json_object_size(s->search.restrict_) > 0) {
        json_object_set(params, "restrict", s->search.restrict_);
    }
    subject_put_query(s, params);
    return ctl_call(&s->ctl, "space", params, code);
}

/* Shows another tuner's space, which depends on the mode, but on no sizes and no device. */
static int run_compat(struct subject *s)
{
    const char *modes = problems_only_modes(&s->problems);
    if (!modes || s->given[OWN_ARCH] || s->search.query.target ||
        json_object_size(s->search.restrict_) > 0) {
        return ctl_usage("--compat is a space without sizes and devices: of the options that say "
                         "which problem and which configs, only --mode can stand beside it");
    }
    return compat_space(s->given[OWN_COMPAT], *modes ? modes : NULL, s->ctl.json, print_space);
}

static int run_space(struct subject *s)
{
    char device[ARCH_MAX] = ""; /* "": the daemon's device */
    if (option_arch(s->given[OWN_ARCH], device)) {
        return USAGE;
    }
    if (s->given[OWN_COMPAT]) {
        return run_compat(s);
    }
    const json_t *problem = problems_one(&s->problems);
    int code = DONE;
    if (!problem) {
        return USAGE;
    }
    json_auto_t *space =
        *device ? plan_space(s, device, problem, &code) : ask_space(s, problem, &code);
    if (!space || s->ctl.json) {
        return space ? ctl_print_json(json_incref(space)) : code;
    }
    print_space(space);
    return DONE;
}

static const struct argp_option space_command_options[] = {
    {"arch", OWN_KEY + OWN_ARCH, "ARCH", 0,
     "the space for an architecture (sm_80, sm_90a, ...) or a device that may be absent; needs no "
     "daemon",
     3},
    {"compat", OWN_KEY + OWN_COMPAT, "NAME", 0,
     "instead: the space that another tuner enumerates (unsloth), of each --mode; its legal "
     "configs are in --json",
     3},
    {0},
};

const struct command command_space = {
    .name = "space",
    .help = "the parameters of a problem, and the configs that rules drop",
    .run = run_space,
    .args_doc = "[PROBLEM]",
    .doc =
        "Shows the parameters of a problem with their values, how many configs are legal and worth "
        "a search, how many kernels they compile to, and how many each rule drops and why.",
    .options = space_command_options,
    .parts = {&problems_argp, &space_argp, &target_argp, &ctl_argp},
};

/* ---- check ---------------------------------------------------------------------------------- */

/* `given`: the config as the person wrote it. */
static int judge_one(struct subject *s, const json_t *problem, json_t *given, json_t *config,
                     json_t *verdicts)
{
    int code = DONE;
    json_t *params = json_pack("{sO, sO}", "problem", problem, "config", config);
    subject_put_query(s, params);
    json_t *verdict = ctl_call(&s->ctl, "check", params, &code);
    if (!verdict) {
        return code;
    }
    json_object_set(verdict, "config", given);
    json_array_append_new(verdicts, verdict);
    return field_is_true(verdict, "valid") ? DONE : FAILED;
}

static void print_verdict(const json_t *v)
{
    TEXT_AUTO *text = text_visible(show_config(json_object_get(v, "config")));
    const char *target = field_text(v, "target");
    if (field_is_true(v, "valid")) {
        text_print("valid%s%s: ", *target ? " for target " : "", target);
        printf("%s\n", text);
    } else {
        printf("not valid: %s\n  ", text);
        text_print("%s", field_text(v, "message"));
        putchar('\n');
    }
}

static int run_check(struct subject *s)
{
    const json_t *problem = problems_one(&s->problems);
    if (!problem) {
        return USAGE;
    }
    if (json_array_size(s->search.configs) == 0) {
        return ctl_usage("which config? give --config 'BLOCK_SIZE_M=64 ...' or --configs FILE");
    }
    int code = DONE;
    json_auto_t *configs = notation_expand(&s->search, problem, &code);
    code = configs ? ctl_connect(&s->ctl) : code;
    if (code) {
        return code;
    }
    json_auto_t *verdicts = json_array();
    ARRAY_EACH_AT(i, v, configs) {
        int r = judge_one(s, problem, json_array_get(s->search.configs, i), v, verdicts);
        code = code ? code : r;
        if (r == UNREACHABLE) { /* every further call would fail the same way */
            break;
        }
    }
    if (s->ctl.json && code && json_array_size(verdicts) < json_array_size(s->search.configs)) {
        return code; /* a call failed: the document is its error */
    }
    if (s->ctl.json) {
        int r = ctl_print_json(json_incref(verdicts));
        return code ? code : r;
    }
    ARRAY_EACH(verdict, verdicts) {
        print_verdict(verdict);
    }
    return code;
}

const struct command command_check = {
    .name = "check",
    .help = "check whether a config is valid, and why not",
    .run = run_check,
    .args_doc = "[PROBLEM]",
    .doc = "Says whether configs are valid for a problem, or which rule refuses them. Exit status "
           "1 when a config is not valid.",
    .parts = {&problems_argp, &given_argp, &target_argp, &ctl_argp},
};
