/* SPDX-License-Identifier: Apache-2.0 */
/* list, modules, devices, quarantine, show, trials: commands that show rows of the database. */
#include <stdio.h>
#include <string.h>

#include "client/ctl/ctl.h"

enum { KEY_WHERE = 0x4000, KEY_SORT, KEY_TOP, KEY_OFFSET };

/* ---- options of listings -------------------------------------------------------------------- */

static const struct argp_option filter_options[] = {
    {0, 0, 0, 0, "Which rows:", 2},
    {"where", KEY_WHERE, "COLUMN=VALUE", 0,
     "only these rows; ~TEXT matches a part, problem.M=64 and config.num_stages=3 look into "
     "problems and configs; may be repeated, for other columns",
     0},
    {"sort", KEY_SORT, "COLUMN", 0,
     "speedup, tflops, gbps and floor_percent sort from the best down, the rest up; -COLUMN: down",
     0},
    {"top", KEY_TOP, "N", 0,
     "the first N rows only; of history, trials, quarantine, runs and events without --sort the "
     "newest N, the newest first",
     0},
    {"offset", KEY_OFFSET, "N", 0, "without the first N rows", 0},
    {0},
};

static void set_where(struct subject *s, const char *arg, struct argp_state *state)
{
    size_t n = strcspn(arg, "=");
    struct error e;
    if (n == 0 || !arg[n]) {
        argp_error(state, "--where takes COLUMN=VALUE, not \"%s\"", arg);
    }
    TEXT_AUTO *name = text_format("%.*s", (int)n, arg), *text = text_format("v=%s", arg + n + 1);
    if (json_object_get(s->filter, name)) {
        argp_error(state, "--where says twice what %s is to be: a column has one value", name);
    }
    json_auto_t *one = text_to_json(text, &e);
    json_t *value = json_object_get(one, "v");
    /* A value of several words, or with a comma, is taken as one text. */
    json_object_set_new(s->filter, name,
                        json_object_size(one) == 1 && value ? json_incref(value)
                                                            : json_string(arg + n + 1));
}

static void listing_sort(struct subject *s, const char *arg)
{
    const bool down = list_has("speedup,tflops,gbps,floor_percent", arg);
    arg += *arg == '+';
    json_object_set_new(s->filter, "sort", json_sprintf("%s%s", down ? "-" : "", arg));
}

static error_t parse_filter(int key, char *arg, struct argp_state *state)
{
    struct subject *s = state->input;
    switch (key) {
    case KEY_WHERE:
        set_where(s, arg, state);
        break;
    case KEY_SORT:
        listing_sort(s, arg);
        break;
    case KEY_TOP:
        json_object_set_new(s->filter, "limit",
                            json_integer(option_int("top", arg, INT32_MAX, state)));
        break;
    case KEY_OFFSET:
        json_object_set_new(s->filter, "offset",
                            json_integer(option_int("offset", arg, INT32_MAX, state)));
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

const struct argp filter_argp = {.options = filter_options, .parser = parse_filter};

/* ---- lists ---------------------------------------------------------------------------------- */

/* Sorts a list that grows with time (history, trials ...) by the newest row, when --top is given
 * without --sort: then --top selects the newest rows. */
static void sort_newest_first(struct subject *s, const char *what)
{
    const char *order = strcmp(what, "history") == 0                      ? "-generation"
                        : list_has("trials,quarantine,runs,events", what) ? "-id"
                        : strcmp(what, "served") == 0                     ? "-last_s"
                        : strcmp(what, "fleet_rows") == 0                 ? "-seq"
                                                                          : NULL;
    if (order && json_object_get(s->filter, "limit") && !json_object_get(s->filter, "sort")) {
        listing_sort(s, order);
    }
}

const char *listing_name(const struct subject *s)
{
    const char *what = s->given[OWN_WHAT];
    return s->command == &command_why    ? "served"
           : s->command != &command_list ? s->command->name
           : what                        ? what
                                         : "best";
}

static json_t *listing_list_trials(struct subject *s, json_t **baselines, int *code)
{
    *code = listing_find_key(s);
    json_t *rows =
        *code ? NULL : baselines_list(&s->ctl, s->filter, s->given[OWN_FAILED], baselines, code);
    const json_t *problem = json_object_get(s->shown, "problem");
    ARRAY_EACH(row, problem && !s->ctl.json ? rows : NULL) {
        json_object_set(row, "problem", (json_t *)(uintptr_t)problem); /* of keys without a best */
    }
    return rows;
}

json_t *listing_rows(struct subject *s, const char *what, json_t **baselines, int *code)
{
    *baselines = NULL;
    if (s->command == &command_trials && !s->given[OWN_FAILED] &&
        !json_object_get(s->filter, "sort")) {
        listing_sort(s, "speedup");
    }
    if (strcmp(what, "jobs") == 0 && !json_object_get(s->filter, "sort")) {
        listing_sort(s, "-last_s");
    }
    sort_newest_first(s, what);
    return strcmp(what, "stale") == 0    ? known_rows(&s->ctl, s->filter, true, code)
           : strcmp(what, "trials") == 0 ? listing_list_trials(s, baselines, code)
                                         : ctl_list(&s->ctl, what, json_incref(s->filter), code);
}

int listing_show_rows(struct subject *s, const char *what)
{
    int code = rows_check_view(&s->ctl, what);
    if (code || s->given[OWN_ALL]) {
        return code ? code : every_show_rows(s);
    }
    /* listing_rows connects for trials, after it has checked the problem */
    code = strcmp(what, "trials") == 0 ? DONE : ctl_connect(&s->ctl);
    json_auto_t *baselines = NULL;
    json_t *rows = NULL;
    json_auto_t *status = NULL;
    if (code == DONE && !s->ctl.quiet && strcmp(what, "best") == 0) {
        /* The status comes first, so that rows saved between the two calls are in the list. */
        status = unsaved_status(&s->ctl);
    }
    rows = code ? NULL : listing_rows(s, what, &baselines, &code);
    code = rows ? rows_show(&s->ctl, what, baselines, rows) : code;
    if (code == DONE) {
        unsaved_say(status, "this list");
    }
    return code;
}

static int listing_run_list(struct subject *s)
{
    const char *what = listing_name(s);
    if (!rows_known(what)) {
        return ctl_usage(
            "there is no list \"%s\": best, stale, history, trials, modules, "
            "quarantine, runs, devices, events, jobs, served, portfolio, fleet, fleet_rows",
            what);
    }
    return listing_show_rows(s, what);
}

static const struct argp_option list_options[] = {
    {"what", OWN_KEY + OWN_WHAT, "NAME", 0,
     "best (default), stale (measured by other kernels than today's: hints), history, trials, "
     "modules, quarantine, runs, devices, events, jobs, served, portfolio, fleet, "
     "fleet_rows",
     2},
    {"all", OWN_KEY + OWN_ALL, 0, 0, "of every daemon of this host", 2},
    {0},
};

const struct command command_list = {
    .name = "list",
    .help = "the best config of each known problem, and other lists",
    .run = listing_run_list,
    .doc = "Lists rows of the database, under the names of its columns.",
    .options = list_options,
    .parts = {&filter_argp, &view_argp, &ctl_argp},
};

static int listing_run_named(struct subject *s)
{
    return listing_show_rows(s, s->command->name);
}

const struct command command_modules = {
    .name = "modules",
    .help = "the compiled kernels",
    .run = listing_run_named,
    .doc = "Lists the compiled kernels.",
    .parts = {&filter_argp, &view_argp, &ctl_argp},
};

const struct command command_devices = {
    .name = "devices",
    .help = "the devices that the database knows",
    .run = listing_run_named,
    .doc = "Lists the devices that the database knows.",
    .parts = {&filter_argp, &view_argp, &ctl_argp},
};

static int listing_run_quarantine(struct subject *s)
{
    const char *variant = s->given[OWN_CLEAR];
    if (!variant) {
        return listing_run_named(s);
    }
    int code = ctl_connect(&s->ctl);
    json_auto_t *result =
        code ? NULL
             : ctl_call(&s->ctl, "unquarantine", json_pack("{ss}", "variant", variant), &code);
    if (!result || s->ctl.json) {
        return result ? ctl_print_json(json_incref(result)) : code;
    }
    printf("%lld rows removed: the variant may run again\n", field_int(result, "removed"));
    return DONE;
}

static const struct argp_option quarantine_options[] = {
    {"clear", OWN_KEY + OWN_CLEAR, "VARIANT", 0, "let this variant run again", 2},
    {0},
};

const struct command command_quarantine = {
    .name = "quarantine",
    .help = "variants that may not run again, and why",
    .run = listing_run_quarantine,
    .doc = "Lists the variants that crashed or hung, and may not run again.",
    .options = quarantine_options,
    .parts = {&filter_argp, &view_argp, &ctl_argp},
};

/* ---- show ----------------------------------------------------------------------------------- */

/* Makes an object to show in place of an answer, for a key whose newest row answers no query. */
static json_t *no_answer(json_t *best)
{
    return json_pack("{sO*, sO*, ss}", "source", json_object_get(best, "source"), "config",
                     json_object_get(best, "config"), "note",
                     "no answer: it is of a restricted search, of other kernels, or not measured "
                     "here; `gemmctl why` says more");
}

static void listing_derive_shown(struct subject *s, json_t *result)
{
    json_t *best = json_object_get(result, "best");
    if (json_is_object(best)) {
        rows_derive_best(best);
        exactness_add(best);
    }
}

/* The answer's config in the short notation of the target that the best belongs to; malloc'ed.
 * NULL: no answer. */
static char *listing_shorten_config(const json_t *result)
{
    const json_t *config = field_value(result, "answer.config");
    json_auto_t *row = json_pack("{sO*, sO*}", "problem", json_object_get(result, "problem"),
                                 "target", field_value(result, "best.target"));
    return config ? notation_of_config(row, config) : NULL;
}

static const struct column show_columns[] = {
    {"key", "key"},
    {"problem", "problem", show_config},
    {"tier", "answer.tier"},
    {"source", "answer.source"},
    {"target", "best.target"},
    {"exact over", "best.exactness", show_exactness},
    {"order", "best.exactness.order"},
    {"config", "short"},
    {"parameters", "answer.config", show_config},
    {"time us", "best.time_us", show_time},
    {"spread", "best.spread"},
    {"disturbed", "best.doubt"},
    {"reference us", "best.reference_us", show_time},
    {"vs reference", "best.speedup", show_ratio},
    {"TFLOP/s", "best.tflops", show_time},
    {"GB/s", "best.gbps", show_time},
    {"floor us", "best.floor_us", show_time},
    {"% of floor", "best.floor_percent", show_floor},
    {"tolerance", "best.atol"},
    {"measured", "best.measured"},
    {"trials", "trials"},
    {"failed", "failed"},
    {"module", "best.module"},
    {"generation", "best.generation"},
    {"age", "best.created_s", show_age},
    {"asked by uid", "best.uid", show_known},
    {"stamp", "best.stamp"},
    {"device class", "best.class"},
    {"note", "answer.note"},
};

static void listing_show_result(struct subject *s, json_t *result)
{
    const struct ctl *c = &s->ctl;
    struct column chosen[CELLS_COLUMNS_MAX];
    json_t *best = json_object_get(result, "best");
    size_t n = COUNT(show_columns);
    if (json_is_object(best) && !json_is_object(json_object_get(result, "answer"))) {
        json_object_set_new(result, "answer", no_answer(best));
    }
    TEXT_AUTO *text = listing_shorten_config(result);
    json_object_set_new(result, "short", text ? json_string(text) : json_null());
    memcpy(chosen, show_columns, sizeof(show_columns));
    if (c->columns) {
        columns_choose(c->columns, show_columns, COUNT(show_columns), chosen, &n);
    }
    for (size_t i = 0; i < n; i++) {
        (c->wide || c->columns ? table_print_line : table_print_folded)(&chosen[i], result);
    }
}

static int listing_run_show(struct subject *s)
{
    struct column chosen[CELLS_COLUMNS_MAX];
    size_t n;
    int code = view_check_json(&s->ctl);
    if (code == DONE && s->ctl.columns) {
        code = columns_choose(s->ctl.columns, show_columns, COUNT(show_columns), chosen, &n);
    }
    return code ? code : subject_run_method(s);
}

const struct command command_show = {
    .name = "show",
    .help = "all about one problem's answer",
    .run = listing_run_show,
    .derive = listing_derive_shown,
    .show = listing_show_result,
    .args_doc = "KEY|PROBLEM",
    .doc = "Shows all about one problem's answer. KEY is an id, or its first 6 digits or more.",
    .parts = {&problems_argp, &view_argp, &ctl_argp},
};

/* ---- trials --------------------------------------------------------------------------------- */

/* True when the key's answer in `show` is unsaved. */
static bool is_unsaved(const json_t *shown)
{
    const json_t *uid = field_value(shown, "best.uid"); /* -1: the row is in no database */
    return json_is_false(field_value(shown, "answer.saved")) ||
           (json_is_integer(uid) && json_integer_value(uid) == -1);
}

int listing_find_key(struct subject *s)
{
    if (!problems_given(&s->problems)) {
        return ctl_connect(&s->ctl);
    }
    if (json_object_get(s->filter, "key")) {
        return ctl_usage(
            "--where key=... stands beside a problem, which has its own key: use one or the other");
    }
    int code = DONE;
    json_t *shown = subject_call_key(s, "show", &code);
    if (!shown) {
        return code;
    }
    int failed = json_object_set(s->filter, "key", json_object_get(shown, "key"));
    s->unsaved = is_unsaved(shown);
    s->shown = shown;
    return failed ? ctl_failed("the daemon does not say which key that is: it is of an older gemmd")
                  : DONE;
}

json_t *listing_status(struct subject *s, int *code)
{
    json_t *status = ctl_call(&s->ctl, "status", NULL, code);
    json_t *store = json_object_get(status, "store");
    if (store && problems_given(&s->problems)) {
        json_object_set_new(store, "unsaved", json_integer(s->unsaved));
    }
    return status;
}

static const struct argp_option trials_options[] = {
    {"failed", OWN_KEY + OWN_FAILED, 0, 0, "only failed trials, with the reason", 2},
    {"all", OWN_KEY + OWN_ALL, 0, 0, "of every daemon of this host", 2},
    {0},
};

const struct command command_trials = {
    .name = "trials",
    .help = "the measured configs, and failures with the reason",
    .run = listing_run_named,
    .args_doc = "[KEY|PROBLEM]",
    .doc = "Lists the trials of one problem or of all, from the best speedup down. The baseline "
           "is cuBLAS over the experts when that was measured, else the reference kernel (the "
           "analytic default) of the same run.",
    .options = trials_options,
    .parts = {&problems_argp, &filter_argp, &view_argp, &ctl_argp},
};
