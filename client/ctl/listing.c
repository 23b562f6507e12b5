/* SPDX-License-Identifier: Apache-2.0 */
/* list, modules, devices, quarantine: what the database knows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"

enum { KEY_WHERE = 0x4000, KEY_SORT, KEY_TOP, KEY_OFFSET };

/* ---- options of listings -------------------------------------------------------------------- */

static const struct argp_option filter_options[] = {
    {0, 0, 0, 0, "Which rows:", 2},
    {"where", KEY_WHERE, "COLUMN=VALUE", 0,
     "only these rows; ~TEXT matches a part, problem.M=64 and config.num_stages=3 look into "
     "problems "
     "and configs; may be repeated, for other columns",
     0},
    {"sort", KEY_SORT, "COLUMN", 0,
     "speedup, tflops, gbps and floor_percent sort from the best down, others up; -COLUMN: down",
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
    char *name = strndup(arg, n);
    char *text = NULL;
    struct gemmd_error e;
    if (n == 0 || !arg[n] || asprintf(&text, "v=%s", arg + n + 1) < 0) {
        argp_error(state, "--where takes COLUMN=VALUE, not \"%s\"", arg);
    }
    if (json_object_get(s->filter, name)) {
        argp_error(state, "--where says twice what %s is to be: a column has one value", name);
    }
    json_t *one = text_to_json(text, &e);
    json_t *value = json_object_get(one, "v");
    /* Several words, or a comma, are one text here. */
    json_object_set_new(s->filter, name,
                        json_object_size(one) == 1 && value ? json_incref(value)
                                                            : json_string(arg + n + 1));
    json_decref(one);
    free(text);
    free(name);
}

void listing_sort(struct subject *s, const char *arg)
{
    const bool down = list_has("speedup,tflops,gbps,floor_percent", arg);
    arg += *arg == '+';
    json_object_set_new(s->filter, "sort", json_sprintf("%s%s", down ? "-" : "", arg));
}

/* The filter's `name`, by the option. */
static void set_number(struct subject *s, const char *name, const char *option, const char *arg,
                       struct argp_state *state)
{
    json_object_set_new(s->filter, name, json_integer(option_int(option, arg, INT32_MAX, state)));
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
        set_number(s, "limit", "top", arg, state);
        break;
    case KEY_OFFSET:
        set_number(s, "offset", "offset", arg, state);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

const struct argp filter_argp = {.options = filter_options, .parser = parse_filter};

/* ---- lists ---------------------------------------------------------------------------------- */

/* --top of a list that grows in the order of time: its newest rows are meant. */
static void sort_newest_first(struct subject *s, const char *what)
{
    const char *order = strcmp(what, "history") == 0                      ? "-generation"
                        : list_has("trials,quarantine,runs,events", what) ? "-id"
                                                                          : NULL;
    if (order && json_object_get(s->filter, "limit") && !json_object_get(s->filter, "sort")) {
        listing_sort(s, order);
    }
}

static int listing_show_rows(struct subject *s, const char *what)
{
    sort_newest_first(s, what);
    int code = ctl_connect(&s->ctl);
    json_t *baselines = NULL, *rows = NULL, *status = NULL;
    if (code == DONE && !s->ctl.quiet && strcmp(what, "best") == 0) {
        /* First: what is saved between the two is in the rows. */
        status = unsaved_status(&s->ctl);
    }
    if (code == DONE && strcmp(what, "trials") == 0) {
        rows = baselines_list(&s->ctl, s->filter, false, &baselines, &code);
    } else if (code == DONE) {
        rows = ctl_list(&s->ctl, what, json_incref(s->filter), &code);
    }
    code = rows ? rows_show(&s->ctl, what, baselines, rows) : code;
    if (code == DONE) {
        unsaved_say(status, "this list");
    }
    json_decref(baselines);
    json_decref(status);
    return code;
}

static int listing_run_list(struct subject *s)
{
    const char *what = s->given[OWN_WHAT] ? s->given[OWN_WHAT] : "best";
    if (!rows_known(what)) {
        return ctl_usage("there is no list \"%s\": best, history, trials, modules, quarantine, "
                         "runs, devices, events, portfolio",
                         what);
    }
    return listing_show_rows(s, what);
}

static const struct argp_option list_options[] = {
    {"what", OWN_KEY + OWN_WHAT, "NAME", 0,
     "best (default), history, trials, modules, quarantine, runs, devices, events, portfolio", 2},
    {0},
};

const struct command command_list = {
    .name = "list",
    .help = "what is known: the best config of each problem",
    .run = listing_run_list,
    .doc = "Lists what is known. The columns are those of the database.",
    .options = list_options,
    .parts = {&filter_argp, &ctl_argp},
};

/* The command has the list's name. */
static int listing_run_named(struct subject *s)
{
    return listing_show_rows(s, s->command->name);
}

const struct command command_modules = {
    .name = "modules",
    .help = "the compiled kernels",
    .run = listing_run_named,
    .doc = "Lists the compiled kernels.",
    .parts = {&filter_argp, &ctl_argp},
};

const struct command command_devices = {
    .name = "devices",
    .help = "the devices that the database knows",
    .run = listing_run_named,
    .doc = "Lists the devices that the database knows.",
    .parts = {&filter_argp, &ctl_argp},
};

static int listing_run_quarantine(struct subject *s)
{
    const char *variant = s->given[OWN_CLEAR];
    if (!variant) {
        return listing_run_named(s);
    }
    int code = ctl_connect(&s->ctl);
    json_t *result =
        code ? NULL
             : ctl_call(&s->ctl, "unquarantine", json_pack("{ss}", "variant", variant), &code);
    if (!result || s->ctl.json) {
        return result ? ctl_print_json(result) : code;
    }
    printf("%lld rows removed: the variant may run again\n", field_int(result, "removed"));
    json_decref(result);
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
    .doc = "Lists the variants that crashed or hung, and are skipped since.",
    .options = quarantine_options,
    .parts = {&filter_argp, &ctl_argp},
};
