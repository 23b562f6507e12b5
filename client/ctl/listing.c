/* SPDX-License-Identifier: Apache-2.0 */
/* list, modules, devices, quarantine: what the database knows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/listing.h"

enum { KEY_WHAT = 0x4000, KEY_WHERE, KEY_SORT, KEY_TOP, KEY_OFFSET, KEY_CLEAR };

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

static void set_where(struct listing *l, const char *arg, struct argp_state *state)
{
    size_t n = strcspn(arg, "=");
    char *name = strndup(arg, n);
    char *text = NULL;
    struct gemmd_error e;
    if (n == 0 || !arg[n] || asprintf(&text, "v=%s", arg + n + 1) < 0) {
        argp_error(state, "--where takes COLUMN=VALUE, not \"%s\"", arg);
    }
    if (json_object_get(l->filter, name)) {
        argp_error(state, "--where says twice what %s is to be: a column has one value", name);
    }
    json_t *one = text_to_json(text, &e);
    json_t *value = json_object_get(one, "v");
    /* Several words, or a comma, are one text here. */
    json_object_set_new(l->filter, name,
                        json_object_size(one) == 1 && value ? json_incref(value)
                                                            : json_string(arg + n + 1));
    json_decref(one);
    free(text);
    free(name);
}

void listing_sort(struct listing *l, const char *arg)
{
    static const char *const best_first[] = {"speedup", "tflops", "gbps", "floor_percent"};
    bool down = false;
    for (size_t i = 0; i < COUNT(best_first); i++) {
        down = down || strcmp(arg, best_first[i]) == 0;
    }
    arg += *arg == '+';
    json_object_set_new(l->filter, "sort", json_sprintf("%s%s", down ? "-" : "", arg));
}

/* The filter's `name`, by the option. */
static void set_number(struct listing *l, const char *name, const char *option, const char *arg,
                       struct argp_state *state)
{
    json_object_set_new(l->filter, name, json_integer(option_int(option, arg, INT32_MAX, state)));
}

static error_t parse_filter(int key, char *arg, struct argp_state *state)
{
    struct listing *l = state->input;
    switch (key) {
    case KEY_WHERE:
        set_where(l, arg, state);
        break;
    case KEY_SORT:
        listing_sort(l, arg);
        break;
    case KEY_TOP:
        set_number(l, "limit", "top", arg, state);
        break;
    case KEY_OFFSET:
        set_number(l, "offset", "offset", arg, state);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

const struct argp filter_argp = {.options = filter_options, .parser = parse_filter};

int listing_end(struct listing *l, int code)
{
    json_decref(l->filter);
    problems_deinit(&l->problems);
    ctl_deinit(&l->ctl);
    return code;
}

/* ---- lists ---------------------------------------------------------------------------------- */

static const struct argp_child plain_children[] = {
    {&filter_argp, 0, NULL, 0}, {&ctl_argp, 0, NULL, 0}, {0}};

static error_t parse_plain(int key, char *arg, struct argp_state *state)
{
    struct listing *l = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = l;
        state->child_inputs[1] = &l->ctl;
        return 0;
    case KEY_WHAT:
        l->what = arg;
        return 0;
    case KEY_CLEAR:
        l->clear = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* --top of a list that grows in the order of time: its newest rows are meant. */
static void sort_newest_first(struct listing *l)
{
    static const struct {
        const char *what, *order;
    } growing[] = {{"history", "-generation"},
                   {"trials", "-id"},
                   {"quarantine", "-id"},
                   {"runs", "-id"},
                   {"events", "-id"}};
    for (size_t i = 0; i < COUNT(growing); i++) {
        if (strcmp(growing[i].what, l->what) == 0 && json_object_get(l->filter, "limit") &&
            !json_object_get(l->filter, "sort")) {
            listing_sort(l, growing[i].order);
        }
    }
}

static int run_list(struct listing *l)
{
    if (!rows_known(l->what)) {
        return ctl_usage(
            "there is no list \"%s\": best, history, trials, modules, quarantine, runs, "
            "devices, events, portfolio",
            l->what);
    }
    sort_newest_first(l);
    int code = ctl_connect(&l->ctl);
    json_t *baselines = NULL, *rows = NULL, *status = NULL;
    if (code == DONE && !l->ctl.quiet && strcmp(l->what, "best") == 0) {
        /* First: what is saved between the two is in the rows. */
        status = unsaved_status(&l->ctl);
    }
    if (code == DONE && strcmp(l->what, "trials") == 0) {
        rows = baselines_list(&l->ctl, l->filter, &baselines, &code);
    } else if (code == DONE) {
        rows = ctl_list(&l->ctl, l->what, json_incref(l->filter), &code);
    }
    code = rows ? rows_show(&l->ctl, l->what, baselines, rows) : code;
    if (code == DONE) {
        unsaved_say(status, "this list");
    }
    json_decref(baselines);
    json_decref(status);
    return code;
}

static int plain_list(const char *what, const char *doc, const struct argp_option *options,
                      int (*run)(struct listing *l), int argc, char **argv)
{
    const struct argp argp = {
        .options = options, .parser = parse_plain, .children = plain_children, .doc = doc};
    struct listing l = {.what = what, .filter = json_object()};
    argp_parse(&argp, argc, argv, 0, NULL, &l);
    return listing_end(&l, run(&l));
}

int cmd_list(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"what", KEY_WHAT, "NAME", 0,
         "best (default), history, trials, modules, quarantine, runs, devices, events, "
         "portfolio",
         2},
        {0}};
    return plain_list("best", "Lists what is known. The columns are those of the database.",
                      options, run_list, argc, argv);
}

int cmd_modules(int argc, char **argv)
{
    return plain_list("modules", "Lists the compiled kernels.", NULL, run_list, argc, argv);
}

int cmd_devices(int argc, char **argv)
{
    return plain_list("devices", "Lists the devices that the database knows.", NULL, run_list, argc,
                      argv);
}

/* ---- quarantine ----------------------------------------------------------------------------- */

static int run_quarantine(struct listing *l)
{
    if (!l->clear) {
        return run_list(l);
    }
    int code = ctl_connect(&l->ctl);
    json_t *result =
        code ? NULL
             : ctl_call(&l->ctl, "unquarantine", json_pack("{ss}", "variant", l->clear), &code);
    if (!result || l->ctl.json) {
        return result ? ctl_print_json(result) : code;
    }
    printf("%lld rows removed: the variant may run again\n",
           (long long)json_integer_value(json_object_get(result, "removed")));
    json_decref(result);
    return DONE;
}

int cmd_quarantine(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"clear", KEY_CLEAR, "VARIANT", 0, "let this variant run again", 2}, {0}};
    return plain_list("quarantine",
                      "Lists the variants that crashed or hung, and are skipped since.", options,
                      run_quarantine, argc, argv);
}
