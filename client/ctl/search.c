/* SPDX-License-Identifier: Apache-2.0 */
/* Options for the search and for given configs, into a gemmd_query. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"

enum {
    KEY_WAIT = 0x3000,
    KEY_DEADLINE,
    KEY_STRATEGY,
    KEY_ATOL,
    KEY_RTOL,
    KEY_RESTRICT,
    KEY_SPACE,
    KEY_CONFIG,
    KEY_CONFIGS,
    KEY_AGAIN,
    KEY_TARGET,
    KEY_NUMBER, /* + place in search_numbers */
};

/* The daemon's limits (proto/request.c): gemmctl itself refuses larger numbers. */
enum { NUMBER_BUDGET, NUMBER_BUDGET_MS, NUMBER_WALL_MS, NUMBER_ITERS, NUMBER_WARMUP, NUMBER_SEED };
#define AT(member) offsetof(struct gemmd_query, member)
static const struct {
    const char *name;
    int64_t max;
    size_t at; /* offset in struct gemmd_query, of an int64_t */
} search_numbers[] = {
    [NUMBER_BUDGET] = {"budget", 1000000, AT(budget)},
    [NUMBER_BUDGET_MS] = {"budget-ms", INT64_C(1) << 40, AT(budget_ms)},
    [NUMBER_WALL_MS] = {"wall-ms", INT64_C(1) << 40, AT(wall_ms)},
    [NUMBER_ITERS] = {"iters", 100000, AT(iters)},
    [NUMBER_WARMUP] = {"warmup", 10000, AT(warmup)},
    [NUMBER_SEED] = {"seed", INT64_MAX, AT(seed)},
};

/* Options in groups, because a command takes only the groups that apply: every command measures,
 * most commands search, and a few may return without waiting. */
static const struct argp_option measuring_options[] = {
    {0, 0, 0, 0, "How to search:", 2},
    {"budget-ms", KEY_NUMBER + NUMBER_BUDGET_MS, "MS", 0,
     "use the device for at most MS milliseconds", 0},
    {"wall-ms", KEY_NUMBER + NUMBER_WALL_MS, "MS", 0,
     "search for at most MS milliseconds, compiling and all", 0},
    {"iters", KEY_NUMBER + NUMBER_ITERS, "N", 0, "timed launches of a config at most", 0},
    {"warmup", KEY_NUMBER + NUMBER_WARMUP, "N", 0, "untimed launches of a config", 0},
    {"seed", KEY_NUMBER + NUMBER_SEED, "N", 0, "for inputs, routing and the random strategy", 0},
    {0},
};

static const struct argp_option search_options[] = {
    {"budget", KEY_NUMBER + NUMBER_BUDGET, "N", 0, "measure at most N configs", 2},
    {"strategy", KEY_STRATEGY, "NAME", 0, "ranked (default), exhaustive, random, genetic, given",
     2},
    {"again", KEY_AGAIN, 0, 0, "tune even when known", 2},
    {0},
};

static const struct argp_option deadline_options[] = {
    {"deadline-ms", KEY_DEADLINE, "MS", 0, "answer in this time, with the best known config", 2},
    {0},
};

static const struct argp_option wait_options[] = {
    {"wait", KEY_WAIT, "HOW", 0,
     "tuned (default): tune unknown problems; now: answer at once, tune in the background; "
     "cached: never tune",
     2},
    {0},
};

static const struct argp_option tune_wait_options[] = {
    {"wait", KEY_WAIT, "HOW", 0,
     "tuned (default): for the winner; now: the best known config, and tune in the background", 2},
    {0},
};

static const struct argp_option space_options[] = {
    {0, 0, 0, 0, "Which configs:", 3},
    {"restrict", KEY_RESTRICT, "NAME=V,V", 0,
     "only these values of a parameter, as in BLOCK_SIZE_M=64,128; repeat for other parameters", 0},
    {"space", KEY_SPACE, "FILE", 0, "restrictions as JSON: {\"BLOCK_SIZE_M\": [64, 128]}", 0},
    {0},
};

static const struct argp_option given_options[] = {
    {0, 0, 0, 0, "Only these configs:", 4},
    {"config", KEY_CONFIG, "TEXT", 0,
     "only this config, as in the columns CONFIG and PARAMETERS; may be repeated", 0},
    {"configs", KEY_CONFIGS, "FILE", 0, "only these: a config on each line, or a JSON array", 0},
    {0},
};

static const struct argp_option tolerance_options[] = {
    {0, 0, 0, 0, "How exact:", 5},
    {"atol", KEY_ATOL, "X", 0, "absolute tolerance of verification (default 1e-2)", 0},
    {"rtol", KEY_RTOL, "X", 0, "relative tolerance of verification (default 1e-2)", 0},
    {0},
};

static const struct argp_option target_options[] = {
    {"target", KEY_TARGET, "NAME", 0,
     "only kernels of this target, to compare targets: portable, hopper, cpu; `space` lists a "
     "device's targets (default: the device's choice)",
     3},
    {0},
};

/* ---- values --------------------------------------------------------------------------------- */

int64_t option_int(const char *name, const char *arg, int64_t max, struct argp_state *state)
{
    int64_t v;
    if (!text_read_number(arg, 0, max, &v)) {
        argp_error(state, "--%s takes a whole number from 0 to %lld, not \"%s\"", name,
                   (long long)max, arg);
    }
    return v;
}

int option_number(const char *name, const char *arg, int64_t min, int64_t max, int64_t *out)
{
    return !arg || text_read_number(arg, min, max, out)
               ? DONE
               : ctl_usage("--%s takes a whole number from %lld to %lld, not \"%s\"", name,
                           (long long)min, (long long)max, arg);
}

int option_arch(const char *arg, char out[ARCH_MAX])
{
    const bool arch = arg && strncmp(arg, "sm_", 3) == 0;
    if (!arg) {
        return DONE;
    }
    if (!arch && !strchr(arg, ':') && strcmp(arg, "cpu") != 0 && strcmp(arg, "cuda") != 0) {
        return ctl_usage("--arch takes an architecture such as sm_80 or sm_90a, or a device such "
                         "as cpu, not \"%s\"",
                         arg);
    }
    if (snprintf(out, ARCH_MAX, "%s%s", arch ? "cuda:" : "", arg) >= ARCH_MAX) {
        return ctl_usage("what --arch says is too long");
    }
    return DONE;
}

static double read_real(const char *name, const char *arg, struct argp_state *state)
{
    char *end;
    double v = strtod(arg, &end);
    if (!*arg || *end || !isfinite(v) || v <= 0) {
        argp_error(state, "--%s takes a number above 0, not \"%s\"", name, arg);
    }
    return v;
}

static enum gemmd_wait search_read_wait(const char *arg, struct argp_state *state)
{
    static const char *const words[] = {"tuned", "now", "cached"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(arg, words[i]) == 0) {
            return (enum gemmd_wait)i;
        }
    }
    argp_error(state, "--wait takes tuned, now or cached, not \"%s\"", arg);
    return GEMMD_WAIT_TUNED;
}

/* Takes over the values. Refuses a second list for a parameter: the user may mean both. */
static void restrict_to(struct search *s, const char *name, json_t *values,
                        struct argp_state *state)
{
    if (json_object_get(s->restrict_, name)) {
        argp_error(state, "what %s may be is said twice: give its values at once, %s=64,128", name,
                   name);
    }
    if (json_object_set_new(s->restrict_, name, values)) {
        argp_error(state, "there is no memory for what %s may be", name);
    }
}

/* Adds the restriction "BLOCK_SIZE_M=64,128" to s->restrict_, as {"BLOCK_SIZE_M": [64, 128]}. */
static void add_restriction(struct search *s, const char *arg, struct argp_state *state)
{
    size_t n = strcspn(arg, "=");
    if (n == 0 || !arg[n] || !arg[n + 1]) {
        argp_error(state, "--restrict takes NAME=VALUE,VALUE; not \"%s\"", arg);
    }
    TEXT_AUTO *name = text_format("%.*s", (int)n, arg);
    json_t *values = json_array();
    const char *at = arg + n;
    do {
        size_t length = strcspn(++at, ",");
        struct error e;
        TEXT_AUTO *text = text_format("%s=%.*s", name, (int)length, at);
        json_auto_t *one = text_to_json(text, &e);
        if (!one) {
            argp_error(state, "--restrict: %s", e.text);
        }
        json_array_append(values, json_object_get(one, name));
        at += length;
    } while (*at);
    restrict_to(s, name, values, state);
}

static void add_space(struct search *s, const char *path, struct argp_state *state)
{
    struct error e;
    json_auto_t *j = text_read_json(path, &e);
    if (!j) {
        argp_error(state, "--space: %s", e.text);
    }
    if (!json_is_object(j)) {
        argp_error(state, "--space: %s is not a JSON object of parameters and values", path);
    }
    OBJECT_EACH(name, values, j) {
        restrict_to(s, name, json_incref(values), state);
    }
}

/* Adds each line of a file as a config to measure. False: a line is not UTF-8. */
static bool add_config_lines(struct search *s, char *text)
{
    bool good = true;
    for (char *line, *at = text; good && (line = strsep(&at, "\n"));) {
        line += strspn(line, " \t\r");
        line[strcspn(line, "\r")] = '\0';
        if (*line && *line != '#') {
            good = json_array_append_new(s->configs, json_string(line)) == 0;
        }
    }
    return good;
}

static void add_configs(struct search *s, const char *path, struct argp_state *state)
{
    struct error e;
    TEXT_AUTO *text = text_read_file(path, &e);
    if (!text) {
        argp_error(state, "--configs: %s", e.text);
    }
    if (text[strspn(text, " \t\r\n")] == '[') {
        json_error_t why;
        json_auto_t *j = json_loads(text, JSON_REJECT_DUPLICATES, &why);
        if (!j) {
            argp_error(state, "--configs: %s, line %d: %s", path, why.line, why.text);
        }
        json_array_extend(s->configs, j);
    } else if (!add_config_lines(s, text)) {
        argp_error(state, "--configs: %s is not UTF-8", path);
    }
    if (json_array_size(s->configs) == 0) {
        argp_error(state, "--configs: %s has no configs", path);
    }
}

/* ---- options -------------------------------------------------------------------------------- */

static error_t search_parse_option(int key, char *arg, struct argp_state *state)
{
    struct search *s = &((struct subject *)state->input)->search;
    struct gemmd_query *q = &s->query;
    const int place = key - KEY_NUMBER;
    if (place >= 0 && place < (int)COUNT(search_numbers)) {
        *(int64_t *)((char *)q + search_numbers[place].at) =
            option_int(search_numbers[place].name, arg, search_numbers[place].max, state);
        return 0;
    }
    switch (key) {
    case KEY_WAIT:
        q->wait = search_read_wait(arg, state);
        break;
    case KEY_DEADLINE:
        q->deadline_ms = (int)option_int("deadline-ms", arg, INT32_MAX, state);
        break;
    case KEY_STRATEGY:
        q->strategy = arg;
        break;
    case KEY_ATOL:
        q->atol = read_real("atol", arg, state);
        break;
    case KEY_RTOL:
        q->rtol = read_real("rtol", arg, state);
        break;
    case KEY_RESTRICT:
        add_restriction(s, arg, state);
        break;
    case KEY_SPACE:
        add_space(s, arg, state);
        break;
    case KEY_CONFIG:
        json_array_append_new(s->configs, json_string(arg));
        break;
    case KEY_CONFIGS:
        add_configs(s, arg, state);
        break;
    case KEY_AGAIN:
        q->flags |= GEMMD_AGAIN;
        break;
    case KEY_TARGET:
        q->target = arg;
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

const struct argp measuring_argp = {.options = measuring_options, .parser = search_parse_option};
const struct argp search_argp = {.options = search_options, .parser = search_parse_option};
const struct argp deadline_argp = {.options = deadline_options, .parser = search_parse_option};
const struct argp wait_argp = {.options = wait_options, .parser = search_parse_option};
const struct argp tune_wait_argp = {.options = tune_wait_options, .parser = search_parse_option};
const struct argp space_argp = {.options = space_options, .parser = search_parse_option};
const struct argp tolerance_argp = {.options = tolerance_options, .parser = search_parse_option};
const struct argp given_argp = {.options = given_options, .parser = search_parse_option};
const struct argp target_argp = {.options = target_options, .parser = search_parse_option};

void search_options_init(struct search *s)
{
    *s = (struct search){.query = GEMMD_QUERY_INIT};
    s->restrict_ = json_object();
    s->configs = json_array();
}

void search_finish(struct search *s)
{
    if (json_object_size(s->restrict_) > 0) {
        s->restrict_text = text_dump(s->restrict_, JSON_REAL_PRECISION(17));
        s->query.restrict_json = s->restrict_text;
    }
}

void search_options_deinit(struct search *s)
{
    json_decref(s->restrict_);
    json_decref(s->configs);
    free(s->restrict_text);
}
