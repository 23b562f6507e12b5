/* SPDX-License-Identifier: Apache-2.0 */
/* list, show, trials, modules, quarantine, devices: what the database knows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"

enum { KEY_WHAT = 0x4000, KEY_WHERE, KEY_SORT, KEY_TOP, KEY_OFFSET, KEY_FAILED, KEY_CLEAR };

struct listing {
    struct ctl ctl;
    struct problems problems;
    const char *what;  /* borrowed */
    json_t *filter;    /* owned */
    bool failed;       /* trials: only those */
    const char *clear; /* quarantine: this variant */
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* ---- options of listings -------------------------------------------------------------------- */

static const struct argp_option filter_options[] = {
    {0, 0, 0, 0, "Which rows:", 1},
    {"where", KEY_WHERE, "COLUMN=VALUE", 0,
     "only these rows; ~TEXT matches a part, config.num_stages=3 looks into configs; may be "
     "repeated",
     0},
    {"sort", KEY_SORT, "COLUMN", 0,
     "speedup, tflops, gbps and floor_percent sort from the best down, others up; -COLUMN: down",
     0},
    {"top", KEY_TOP, "N", 0, "the first N rows only", 0},
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
    json_t *one = text_to_json(text, &e);
    json_t *value = json_object_get(one, "v");
    /* Several words, or a comma, are one text here. */
    json_object_set_new(l->filter, name, json_object_size(one) == 1 && value
                                             ? json_incref(value)
                                             : json_string(arg + n + 1));
    json_decref(one);
    free(text);
    free(name);
}

static void set_sort(struct listing *l, const char *arg)
{
    static const char *const best_first[] = {"speedup", "tflops", "gbps", "floor_percent"};
    bool down = false;
    for (size_t i = 0; i < COUNT(best_first); i++) {
        down = down || strcmp(arg, best_first[i]) == 0;
    }
    arg += *arg == '+';
    json_object_set_new(l->filter, "sort", json_sprintf("%s%s", down ? "-" : "", arg));
}

static void set_number(struct listing *l, const char *name, const char *arg,
                       struct argp_state *state)
{
    char *end;
    long long v = strtoll(arg, &end, 10);
    if (!*arg || *end || v < 0) {
        argp_error(state, "a whole number from 0 on is wanted, not \"%s\"", arg);
    }
    json_object_set_new(l->filter, name, json_integer(v));
}

static error_t parse_filter(int key, char *arg, struct argp_state *state)
{
    struct listing *l = state->input;
    switch (key) {
    case KEY_WHERE:
        set_where(l, arg, state);
        break;
    case KEY_SORT:
        set_sort(l, arg);
        break;
    case KEY_TOP:
        set_number(l, "limit", arg, state);
        break;
    case KEY_OFFSET:
        set_number(l, "offset", arg, state);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static const struct argp filter_argp = {.options = filter_options, .parser = parse_filter};

static const struct argp_child plain_children[] = {
    {&filter_argp, 0, NULL, 0}, {&ctl_argp, 0, NULL, 0}, {0}};
static const struct argp_child problem_children[] = {{&problems_argp, 0, NULL, 0},
                                                     {&filter_argp, 0, NULL, 0},
                                                     {&ctl_argp, 0, NULL, 0},
                                                     {0}};

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

static error_t parse_problem(int key, char *arg, struct argp_state *state)
{
    (void)arg;
    struct listing *l = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &l->problems;
        state->child_inputs[1] = l;
        state->child_inputs[2] = &l->ctl;
        return 0;
    case KEY_FAILED:
        l->failed = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_show(int key, char *arg, struct argp_state *state)
{
    (void)arg;
    struct listing *l = state->input;
    if (key != ARGP_KEY_INIT) {
        return ARGP_ERR_UNKNOWN;
    }
    state->child_inputs[0] = &l->problems;
    state->child_inputs[1] = &l->ctl;
    return 0;
}

/* ---- columns -------------------------------------------------------------------------------- */

static const struct column best_columns[] = {
    {"KEY", "key", show_id, false, false},
    {"MODE", "mode", NULL, false, false},
    {"M", "problem.M", NULL, true, false},
    {"N", "problem.N", NULL, true, false},
    {"K", "problem.K", NULL, true, false},
    {"E", "problem.experts", NULL, true, false},
    {"TOPK", "problem.topk", NULL, true, false},
    {"FLAGS", "flags", NULL, false, false},
    {"TIME us", "time_us", show_time, true, false},
    {"TFLOP/s", "tflops", show_rate, true, false},
    {"GB/s", "gbps", show_rate, true, false},
    {"%FLOOR", "percent_of_floor", show_percent, true, false},
    {"VS REF", "speedup", show_ratio, true, false},
    {"SOURCE", "source", NULL, false, false},
    {"MEASURED", "measured", NULL, true, false},
    {"AGE", "created_s", show_age, true, false},
    {"CONFIG", "config", show_config, false, true},
};

static const struct column trial_columns[] = {
    {"KEY", "key", show_id, false, false},
    {"STATUS", "status", NULL, false, false},
    {"BASELINE us", "baseline_us", show_time, true, false},
    {"TIME us", "time_us", show_time, true, false},
    {"SPEEDUP", "speedup", show_ratio, true, false},
    {"STAGE", "stage", NULL, false, false},
    {"CONFIG", "config", show_config, false, true},
    {"REASON", "why", NULL, false, true},
};

static const struct column module_columns[] = {
    {"ID", "id", show_id, false, false},
    {"FAMILY", "family", NULL, false, false},
    {"TARGET", "target", NULL, false, false},
    {"REGS", "registers", show_known, true, false},
    {"SPILLS B", "spill_bytes", show_known, true, false},
    {"STATIC SMEM", "smem_static", show_bytes, true, false},
    {"SIZE", "size", show_bytes, true, false},
    {"COMPILED ms", "compile_ms", show_time, true, false},
    {"USED", "used_s", show_age, true, false},
    {"COMPILER", "compiler", NULL, false, false},
    {"FLAGS", "flags", NULL, false, true},
};

static const struct column quarantine_columns[] = {
    {"VARIANT", "variant", NULL, false, false},
    {"STATUS", "status", NULL, false, false},
    {"DEATHS", "deaths", NULL, true, false},
    {"AGE", "created_s", show_age, true, false},
    {"KEY", "key", show_id, false, false},
    {"DRIVER", "driver", NULL, false, false},
    {"CONFIG", "config", show_config, false, true},
    {"REASON", "reason", NULL, false, true},
};

static const struct column device_columns[] = {
    {"UUID", "uuid", NULL, false, false},
    {"NAME", "name", NULL, false, false},
    {"ARCH", "arch", NULL, false, false},
    {"SMS", "sm_count", NULL, true, false},
    {"REGS/BLOCK", "regs_per_block", NULL, true, false},
    {"SMEM OPT-IN", "smem_optin", show_bytes, true, false},
    {"WARP", "warp_size", NULL, true, false},
    {"L2", "l2_bytes", show_bytes, true, false},
    {"MEMORY", "memory_bytes", show_bytes, true, false},
    {"MIG", "mig", NULL, false, false},
    {"POWER W", "power_limit_w", NULL, true, false},
    {"DRIVER", "driver", NULL, false, false},
    {"COMPILER", "compiler", NULL, false, true},
};

static const struct column run_columns[] = {
    {"ID", "id", NULL, true, false},
    {"DEVICE", "device", NULL, false, false},
    {"DRIVER", "driver", NULL, false, false},
    {"COMPILER", "compiler", NULL, false, false},
    {"BUILD", "build", NULL, false, false},
    {"PID", "pid", NULL, true, false},
    {"STARTED", "started_s", show_age, true, false},
    {"ENDED", "ended_s", show_age, true, false},
    {"ENDING", "ending", NULL, false, true},
};

static const struct column event_columns[] = {
    {"ID", "id", NULL, true, false},
    {"AGE", "created_s", show_age, true, false},
    {"KIND", "kind", NULL, false, false},
    {"UID", "uid", NULL, true, false},
    {"TEXT", "text", NULL, false, true},
};

static const struct view {
    const char *what;
    const struct column *columns;
    size_t n;
} views[] = {
    {"best", best_columns, COUNT(best_columns)},
    {"history", best_columns, COUNT(best_columns)},
    {"trials", trial_columns, COUNT(trial_columns)},
    {"modules", module_columns, COUNT(module_columns)},
    {"quarantine", quarantine_columns, COUNT(quarantine_columns)},
    {"runs", run_columns, COUNT(run_columns)},
    {"devices", device_columns, COUNT(device_columns)},
    {"events", event_columns, COUNT(event_columns)},
};

static const struct view *view_of(const char *what)
{
    for (size_t i = 0; i < COUNT(views); i++) {
        if (strcmp(views[i].what, what) == 0) {
            return &views[i];
        }
    }
    return NULL;
}

/* ---- rows ----------------------------------------------------------------------------------- */

static void set_rate(json_t *row, const char *name, const char *of, double scale)
{
    double work = json_number_value(json_object_get(row, of));
    double us = json_number_value(json_object_get(row, "time_us"));
    if (work > 0 && us > 0) {
        json_object_set_new(row, name, json_real(work / us * scale));
    }
}

static void derive_best(json_t *row)
{
    set_rate(row, "tflops", "flops", 1e-6);
    set_rate(row, "gbps", "bytes", 1e-3);
    result_derive(row);
}

/* "shared_memory: 200 needed, 100 there", or the sentence. */
static json_t *why_failed(const json_t *row)
{
    const char *reason = json_string_value(json_object_get(row, "reason"));
    const char *resource = json_string_value(json_object_get(row, "resource"));
    if (reason && *reason) {
        return json_string(reason);
    }
    if (!resource || !*resource) {
        return json_string("");
    }
    return json_sprintf("%s: %lld needed, the limit is %lld", resource,
                        (long long)json_integer_value(json_object_get(row, "required")),
                        (long long)json_integer_value(json_object_get(row, "limit_")));
}

static void derive_trial(json_t *row)
{
    double ratio = json_number_value(json_object_get(row, "ratio"));
    double us = json_number_value(json_object_get(row, "time_us"));
    if (ratio > 0 && us > 0) {
        json_object_set_new(row, "speedup", json_real(1 / ratio));
        json_object_set_new(row, "baseline_us", json_real(us / ratio));
    }
    json_object_set_new(row, "why", why_failed(row));
}

static void derive(const char *what, json_t *rows)
{
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) {
        if (strcmp(what, "best") == 0 || strcmp(what, "history") == 0) {
            derive_best(row);
        } else if (strcmp(what, "trials") == 0) {
            derive_trial(row);
        }
    }
}

static int show_rows(struct listing *l, json_t *rows)
{
    derive(l->what, rows);
    if (l->ctl.json) {
        return ctl_print_json(rows);
    }
    const struct view *v = view_of(l->what);
    if (json_array_size(rows) == 0) {
        if (!l->ctl.quiet) {
            fprintf(stderr, "no rows\n");
        }
    } else {
        table_print(v->columns, v->n, rows);
    }
    json_decref(rows);
    return DONE;
}

static int run_list(struct listing *l)
{
    if (!view_of(l->what)) {
        return ctl_usage(
            "there is no list \"%s\": best, history, trials, modules, quarantine, runs, "
            "devices, events",
            l->what);
    }
    int code = ctl_connect(&l->ctl);
    json_t *rows = code ? NULL : ctl_list(&l->ctl, l->what, json_incref(l->filter), &code);
    return rows ? show_rows(l, rows) : code;
}

static int finish(struct listing *l, int code)
{
    json_decref(l->filter);
    problems_deinit(&l->problems);
    ctl_deinit(&l->ctl);
    return code;
}

static int plain_list(const char *what, const char *doc, const struct argp_option *options,
                      int (*run)(struct listing *l), int argc, char **argv)
{
    const struct argp argp = {
        .options = options, .parser = parse_plain, .children = plain_children, .doc = doc};
    struct listing l = {.what = what, .filter = json_object()};
    argp_parse(&argp, argc, argv, 0, NULL, &l);
    return finish(&l, run(&l));
}

int cmd_list(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"what", KEY_WHAT, "LIST", 0,
         "best (default), history, trials, modules, quarantine, runs, devices, events", 1},
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
    json_t *result = code ? NULL : ctl_call(&l->ctl, "unquarantine",
                                            json_pack("{ss}", "variant", l->clear), &code);
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
        {"clear", KEY_CLEAR, "VARIANT", 0, "let this variant run again", 1}, {0}};
    return plain_list("quarantine",
                      "Lists the variants that crashed, hung or computed wrongly, and are skipped "
                      "since.", options, run_quarantine, argc, argv);
}

/* ---- show ----------------------------------------------------------------------------------- */

static json_t *fetch_show(struct listing *l, int *code)
{
    json_t *which = problems_key_or_one(&l->problems, code);
    if (which) {
        *code = ctl_connect(&l->ctl);
    }
    if (*code) {
        json_decref(which);
        return NULL;
    }
    return ctl_call(&l->ctl, "show", which, code);
}

static void print_line(const char *name, char *value)
{
    printf("%-14s %s\n", name, value);
    free(value);
}

static void print_pairs(const struct column *columns, size_t n, const json_t *row)
{
    for (size_t i = 0; i < n; i++) {
        const json_t *v = table_value(row, columns[i].key);
        print_line(columns[i].title, columns[i].show ? columns[i].show(v) : show_plain(v));
    }
}

static int print_show(struct listing *l, json_t *result)
{
    static const struct column columns[] = {
        {"key", "answer.key", NULL, false, false},
        {"problem", "problem", show_config, false, false},
        {"tier", "answer.tier", NULL, false, false},
        {"source", "answer.source", NULL, false, false},
        {"config", "answer.config", show_config, false, false},
        {"time us", "best.time_us", show_time, false, false},
        {"spread", "best.spread", NULL, false, false},
        {"reference us", "best.reference_us", show_time, false, false},
        {"vs reference", "best.speedup", show_ratio, false, false},
        {"TFLOP/s", "best.tflops", show_rate, false, false},
        {"GB/s", "best.gbps", show_rate, false, false},
        {"floor us", "best.floor_us", show_time, false, false},
        {"% of floor", "best.percent_of_floor", show_percent, false, false},
        {"tolerance", "best.atol", NULL, false, false},
        {"measured", "best.measured", NULL, false, false},
        {"trials", "trials", NULL, false, false},
        {"failed", "failed", NULL, false, false},
        {"module", "best.module", NULL, false, false},
        {"generation", "best.generation", NULL, false, false},
        {"age", "best.created_s", show_age, false, false},
        {"asked by uid", "best.uid", NULL, false, false},
        {"stamp", "best.stamp", NULL, false, false},
        {"device class", "best.class", NULL, false, false},
        {"note", "answer.note", NULL, false, false},
    };
    json_t *best = json_object_get(result, "best");
    if (json_is_object(best)) {
        derive_best(best);
    }
    if (l->ctl.json) {
        return ctl_print_json(result);
    }
    print_pairs(columns, COUNT(columns), result);
    json_decref(result);
    return DONE;
}

int cmd_show(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&problems_argp, 0, NULL, 0}, {&ctl_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        .parser = parse_show,
        .args_doc = "KEY|PROBLEM",
        .children = children,
        .doc =
            "Shows all about one problem's answer. KEY is an id, or its first 6 digits or more."};
    struct listing l = {.what = "best", .filter = json_object()};
    argp_parse(&argp, argc, argv, 0, NULL, &l);
    int code = DONE;
    json_t *result = fetch_show(&l, &code);
    return finish(&l, result ? print_show(&l, result) : code);
}

/* ---- trials --------------------------------------------------------------------------------- */

static bool has_failed(const json_t *row)
{
    const char *status = json_string_value(json_object_get(row, "status"));
    return status && strcmp(status, "ok") != 0 && strcmp(status, "aborted") != 0;
}

static json_t *only_failed(json_t *rows, int64_t limit)
{
    json_t *failed = json_array();
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) {
        if (has_failed(row) && (limit < 0 || (int64_t)json_array_size(failed) < limit)) {
            json_array_append(failed, row);
        }
    }
    json_decref(rows);
    return failed;
}

static bool names_a_problem(const struct problems *p)
{
    for (size_t i = 0; i < PROBLEM_LISTS; i++) {
        if (p->lists[i]) {
            return true;
        }
    }
    return p->words != NULL;
}

/* Restricts the filter to the key of the problem that was named, if one was. */
static int find_key(struct listing *l)
{
    if (!names_a_problem(&l->problems)) {
        return ctl_connect(&l->ctl);
    }
    int code = DONE;
    json_t *shown = fetch_show(l, &code);
    if (!shown) {
        return code;
    }
    const json_t *key = table_value(shown, "best.key");
    key = json_is_string(key) ? key : table_value(shown, "answer.key");
    json_object_set(l->filter, "key", (json_t *)(uintptr_t)key);
    json_decref(shown);
    return DONE;
}

static int run_trials(struct listing *l)
{
    int code = find_key(l);
    if (code) {
        return code;
    }
    int64_t limit = -1;
    if (l->failed) { /* two kinds of success: the choice is made here, and then the limit too */
        const json_t *top = json_object_get(l->filter, "limit");
        limit = top ? json_integer_value(top) : -1;
        json_object_del(l->filter, "limit");
    } else if (!json_object_get(l->filter, "sort")) {
        set_sort(l, "speedup");
    }
    json_t *rows = ctl_list(&l->ctl, "trials", json_incref(l->filter), &code);
    if (!rows) {
        return code;
    }
    return show_rows(l, l->failed ? only_failed(rows, limit) : rows);
}

int cmd_trials(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"failed", KEY_FAILED, 0, 0, "only those that failed, with the reason", 1}, {0}};
    static const struct argp argp = {
        .options = options, .parser = parse_problem, .args_doc = "[KEY|PROBLEM]",
        .children = problem_children,
        .doc = "Lists what was measured, of one problem or of all, from the best speedup down. The "
               "baseline is the reference kernel (the analytic default) of the same run."};
    struct listing l = {.what = "trials", .filter = json_object()};
    argp_parse(&argp, argc, argv, 0, NULL, &l);
    return finish(&l, run_trials(&l));
}
