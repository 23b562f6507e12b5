/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify --exact: the cost of rounding sizes into buckets. Each shape gets its bucket's answer,
 * under each scheme of --bucket, and is tuned itself. Then all these configs are measured on the
 * shape itself, in one run, against each other. A scheme's loss is the time of its answer over the
 * best time, minus 1. The shape's own tuning is listed as scheme exact. The loss of exact is the
 * cost of a short search and of noise, so only a larger loss of a scheme is significant.
 *
 * All queries use ordinary keys of the daemon (the shape itself is a bucket of scheme exact), so an
 * interrupted run continues where it stopped.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/ctl.h"

enum { SCHEMES_MAX = 3, SAMPLES_MOST = 64 };

struct verifying {
    struct subject *s; /* borrowed */
    json_t *rows;      /* owned */
    size_t done;
    int code; /* the exit code of the first failure */
};

/* ---- asking --------------------------------------------------------------------------------- */

/* Gets the answer for a problem rounded by a scheme. configs_json: configs to measure, also when
 * they were measured before; NULL: the key's usual answer. */
static int verify_ask_answer(struct verifying *v, const json_t *problem, const char *scheme,
                             const char *configs_json, struct gemmd_answer *out)
{
    struct gemmd_query q = v->s->search.query;
    struct progress_line line;
    struct gemmd_error e;
    TEXT_AUTO *label =
        text_format("[%zu/%zu] M=%lld %s", v->done + 1, json_array_size(v->s->problems.all),
                    field_int(problem, "M"), configs_json ? "compare" : scheme);
    progress_begin(&line, v->s->ctl.quiet, label);
    q.bucket = scheme;
    q.configs_json = configs_json;
    int r = ask_for_answer(v->s, problem, q, configs_json != NULL, &line, out, &e);
    return r == GEMMD_WAITING ? FAILED : r ? ctl_fail_waiting(&e, q.deadline_ms) : DONE;
}

/* ---- comparing ------------------------------------------------------------------------------ */

static bool verify_is_trial_of(const json_t *trial, const json_t *config, const char *stage)
{
    return json_equal(json_object_get(trial, "config"), config) && field_is(trial, "stage", stage);
}

/* Time of config a over time of b, by the newest ok trials of both in the same run and `stage`; NAN
 * without such trials. `trials`: the newest first. */
static double verify_compare_paired(const json_t *trials, const json_t *a, const json_t *b,
                                    const char *stage)
{
    ARRAY_EACH(x, trials) {
        if (!verify_is_trial_of(x, a, stage)) {
            continue;
        }
        ARRAY_EACH(y, trials) {
            if (verify_is_trial_of(y, b, stage) &&
                json_equal(json_object_get(x, "run"), json_object_get(y, "run"))) {
                return field_number(x, "time_us") / field_number(y, "time_us");
            }
        }
    }
    return NAN;
}

static double ratio_of(const json_t *trials, const json_t *config)
{
    ARRAY_EACH(t, trials) {
        const json_t *ratio = json_object_get(t, "ratio");
        if (json_is_number(ratio) && json_equal(json_object_get(t, "config"), config)) {
            return json_number_value(ratio);
        }
    }
    return NAN;
}

/* Time of config a over time of b, from trials in alternating blocks, else in one run, else as
 * ratios to the reference kernels of two runs. */
static double verify_compare_configs(const json_t *trials, const json_t *a, const json_t *b)
{
    double r = json_equal(a, b) ? 1 : verify_compare_paired(trials, a, b, "final");
    r = isnan(r) ? verify_compare_paired(trials, a, b, "measure") : r;
    return isnan(r) ? ratio_of(trials, a) / ratio_of(trials, b) : r;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static json_t *answer_of(struct verifying *v, const json_t *problem, const char *scheme, int *code)
{
    struct gemmd_answer a;
    struct error e;
    *code = verify_ask_answer(v, problem, scheme, NULL, &a);
    if (*code) {
        return NULL;
    }
    json_auto_t *shown = ctl_call(&v->s->ctl, "show", json_pack("{ss}", "key", a.key), code);
    const json_t *bucket = field_value(shown, "best.problem");
    json_t *config = text_to_json(a.config, &e);
    return json_pack("{ss, ss, so, sO*}", "scheme", scheme, "key", a.key, "config", config,
                     "bucket", bucket);
}

static void add_distinct(json_t *configs, json_t *config)
{
    ARRAY_EACH(c, configs) {
        if (json_equal(c, config)) {
            return;
        }
    }
    json_array_append(configs, config);
}

/* Measures all configs under the shape's own key, and returns the key's trials, newest first. */
static json_t *verify_measure_configs(struct verifying *v, const json_t *problem, const json_t *own,
                                      const json_t *answers, int *code)
{
    json_auto_t *configs = json_array();
    struct gemmd_answer a;
    add_distinct(configs, json_object_get(own, "config"));
    ARRAY_EACH(answer, answers) {
        add_distinct(configs, json_object_get(answer, "config"));
    }
    TEXT_AUTO *text = text_dump(configs, JSON_REAL_PRECISION(17));
    *code = json_array_size(configs) > 1 ? verify_ask_answer(v, problem, "exact", text, &a) : DONE;
    if (*code) {
        return NULL;
    }
    json_t *filter =
        json_pack("{ss, ss, ss}", "key", field_string(own, "key"), "status", "ok", "sort", "-id");
    return ctl_list(&v->s->ctl, "trials", filter, code);
}

/* Adds a row for each scheme: {"problem", "scheme", "bucket", "config", "own_config",
 * "loss_percent"}. */
static void add_rows(struct verifying *v, const json_t *problem, const json_t *own, json_t *answers,
                     const json_t *trials)
{
    const json_t *best = json_object_get(own, "config");
    ARRAY_EACH(a, answers) { /* `best`: the fastest config of all schemes */
        const json_t *config = json_object_get(a, "config");
        best = verify_compare_configs(trials, config, best) < 1 ? config : best;
    }
    ARRAY_EACH(a, answers) {
        double r = verify_compare_configs(trials, json_object_get(a, "config"), best);
        json_object_set(a, "problem", (json_t *)(uintptr_t)problem);
        json_object_set(a, "own_config", json_object_get(own, "config"));
        json_object_set_new(a, "same",
                            json_boolean(json_equal(json_object_get(a, "config"), best)));
        json_object_set_new(a, "loss_percent",
                            isfinite(r) ? json_real(100 * fmax(0, r - 1)) : json_null());
        json_array_append(v->rows, a);
    }
}

/* Verifies the answers of a problem under n schemes of rounding, of which the last is exact. */
static int verify_one(struct verifying *v, const json_t *problem, const char *const *schemes,
                      size_t n)
{
    int code = DONE;
    json_auto_t *answers = json_array(), *trials = NULL;
    for (size_t i = 0; i < n && code == DONE; i++) {
        json_t *answer = answer_of(v, problem, schemes[i], &code);
        if (answer) {
            json_array_append_new(answers, answer);
        }
    }
    const json_t *own = code ? NULL : json_array_get(answers, n - 1);
    trials = own ? verify_measure_configs(v, problem, own, answers, &code) : NULL;
    if (trials) {
        add_rows(v, problem, own, answers, trials);
    }
    return code;
}

/* ---- the outcome ---------------------------------------------------------------------------- */

static json_t *summary_of(const struct verifying *v, const char *scheme)
{
    static const char *const order[] = {"loss_percent", NULL};
    json_auto_t *keys = json_object(), *losses = json_array();
    ARRAY_EACH(row, v->rows) {
        if (field_is(row, "scheme", scheme)) {
            json_object_set_new(keys, field_string(row, "key"), json_true());
            if (json_is_number(json_object_get(row, "loss_percent"))) {
                json_array_append(losses, row);
            }
        }
    }
    rows_sort(losses, order);
    const size_t n = json_array_size(losses);
    json_t *out = json_pack("{ss, sI, sI}", "scheme", scheme, "shapes", (json_int_t)n, "buckets",
                            (json_int_t)json_object_size(keys));
    if (n > 0) {
        const double below = field_number(json_array_get(losses, (n - 1) / 2), "loss_percent");
        const double above = field_number(json_array_get(losses, n / 2), "loss_percent");
        json_object_set_new(out, "median_percent", json_real((below + above) / 2));
        json_object_set(out, "max_percent",
                        json_object_get(json_array_get(losses, n - 1), "loss_percent"));
    }
    return out;
}

static char *show_loss(const json_t *v)
{
    return json_is_number(v) ? text_format("%.2f", json_number_value(v)) : text_copy("-");
}

static void print_outcome(const struct verifying *v, const json_t *summary)
{
    static const struct column columns[] = {
        {"MODE", "bucket.mode"},
        {"M", "problem.M", NULL, true},
        {"SCHEME", "scheme"},
        {"BUCKET M", "bucket.M", NULL, true},
        {"N", "bucket.N", NULL, true},
        {"K", "bucket.K", NULL, true},
        {"E", "bucket.experts", NULL, true},
        {"LOSS %", "loss_percent", show_loss, true},
        {"CONFIG", "config", show_config},
    };
    static const struct column totals[] = {
        {"SCHEME", "scheme"},
        {"SHAPES", "shapes", NULL, true},
        {"BUCKETS", "buckets", NULL, true},
        {"MEDIAN %", "median_percent", show_loss, true},
        {"MAX %", "max_percent", show_loss, true},
    };
    table_print(columns, COUNT(columns), v->rows);
    putchar('\n');
    table_print(totals, COUNT(totals), summary);
}

static int verify_show_rows(struct verifying *v, const char *const *schemes, size_t n)
{
    json_auto_t *summary = json_array();
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(summary, summary_of(v, schemes[i]));
    }
    int r = DONE;
    if (v->s->ctl.json) {
        r = ctl_print_json(
            json_pack("{sO, sO, so*}", "rows", v->rows, "summary", summary, "error", ctl_error()));
    } else if (json_array_size(v->rows) > 0) {
        print_outcome(v, summary);
    }
    return v->code ? v->code : r;
}

/* ---- the command ---------------------------------------------------------------------------- */

static int cannot_spread(const json_t *problem)
{
    const char *op = field_string(problem, "op");
    return ctl_usage("--samples takes less of M, and this problem of op %s has no M that is a "
                     "whole number: leave --samples out",
                     op ? op : "grouped_gemm");
}

/* Replaces each problem by up to `samples` problems: from just above half to all of its tokens. */
static int verify_spread_problems(struct problems *p, int samples)
{
    json_auto_t *all = json_array();
    ARRAY_EACH(item, p->all) {
        const json_t *problem = json_object_get(item, "problem");
        json_int_t topk = field_int(problem, "topk");
        topk = topk > 0 ? topk : 1;
        if (!json_is_integer(json_object_get(problem, "M"))) {
            return cannot_spread(problem);
        }
        json_int_t rows = field_int(problem, "M");
        if (rows <= 0 || rows % topk) {
            return ctl_usage("M is %lld, which is no multiple of topk %lld above 0: there are no "
                             "tokens to take less of",
                             (long long)rows, (long long)topk);
        }
        json_int_t tokens = rows / topk, last = 0;
        for (int k = 0; k < samples; k++) {
            json_int_t some = llround((double)tokens * exp2((k + 1.0) / samples - 1));
            if (some > last) {
                json_t *one = json_deep_copy(item);
                json_object_set_new(json_object_get(one, "problem"), "M",
                                    json_integer(some * topk));
                json_array_append_new(all, one);
            }
            last = some;
        }
    }
    json_decref(p->all);
    p->all = json_incref(all);
    return DONE;
}

/* Splits the comma list of --bucket, in place, into the names of schemes, and appends "exact". */
static int verify_split_schemes(char *list, const char *schemes[SCHEMES_MAX], size_t *n)
{
    for (char *word; (word = strsep(&list, ","));) {
        if (!list_has("pow2,sqrt2,exact", word)) {
            return ctl_usage("--bucket takes a list of exact, pow2 and sqrt2, not \"%s\"", word);
        }
        bool again = strcmp(word, "exact") == 0;
        for (size_t i = 0; i < *n; i++) {
            again = again || strcmp(schemes[i], word) == 0;
        }
        if (!again) {
            schemes[(*n)++] = word;
        }
    }
    schemes[(*n)++] = "exact";
    return DONE;
}

/* Returns the list of --bucket, else the daemon's scheme; malloc'ed. */
static char *verify_find_schemes(struct subject *s, int *code)
{
    if (s->given[OWN_BUCKET]) {
        return text_copy(s->given[OWN_BUCKET]);
    }
    json_auto_t *status = ctl_call(&s->ctl, "status", NULL, code);
    const char *name = field_string(status, "bucket_scheme");
    return text_copy(name ? name : "exact");
}

static int verify_all(struct verifying *v)
{
    const char *schemes[SCHEMES_MAX];
    size_t n = 0;
    int code = DONE;
    TEXT_AUTO *list = verify_find_schemes(v->s, &code);
    code = code ? code : verify_split_schemes(list, schemes, &n);
    v->rows = json_array();
    size_t kept = 0;
    ARRAY_EACH(item, v->s->problems.all) {
        if (code == DONE && v->code != UNREACHABLE && !stops_came()) {
            int r = verify_one(v, json_object_get(item, "problem"), schemes, n);
            v->code = v->code ? v->code : r;
            v->done++;
            kept += r == DONE;
        }
    }
    code = code ? code : verify_show_rows(v, schemes, n);
    stops_end(kept, json_array_size(v->s->problems.all));
    return code;
}

static int verify_run_command(struct subject *s)
{
    int64_t samples = 0;
    if (s->given[OWN_NOT_HERE]) {
        return ctl_usage("--wait and --deadline-ms are not for verify: it compares with what a "
                         "tuning finds, and waits for that; --budget and --wall-ms make it short");
    }
    if (option_number("samples", s->given[OWN_SAMPLES], 1, SAMPLES_MOST, &samples)) {
        return USAGE;
    }
    if (!s->given[OWN_EXACT]) {
        return ctl_usage("what is to be verified? --exact: the answers of buckets against the best "
                         "of the shapes inside");
    }
    s->ctl.step_ms = STOPS_STEP_MS;
    int code = problems_make(&s->problems);
    code = code ? code : ctl_connect(&s->ctl);
    if (code) {
        return code;
    }
    stops_catch();
    if (samples > 0 && (code = verify_spread_problems(&s->problems, (int)samples))) {
        return code;
    }
    search_finish(&s->search);
    struct verifying v = {.s = s};
    code = verify_all(&v);
    json_decref(v.rows);
    return code;
}

static const struct argp_option verify_options[] = {
    {"exact", OWN_KEY + OWN_EXACT, 0, 0, "the cost of rounding these shapes into buckets", 1},
    {"bucket", OWN_KEY + OWN_BUCKET, "LIST", 0,
     "schemes to compare: pow2, sqrt2, exact (default: the database's own)", 1},
    {"samples", OWN_KEY + OWN_SAMPLES, "N", 0,
     "replace each problem by N token counts, from half of its own up to the whole", 1},
    {"wait", OWN_KEY + OWN_NOT_HERE, "HOW", OPTION_HIDDEN, 0, 0},
    {"deadline-ms", OWN_KEY + OWN_NOT_HERE, "MS", OPTION_HIDDEN, 0, 0},
    {0},
};

const struct command command_verify = {
    .name = "verify",
    .help = "the cost of rounding shapes into buckets",
    .run = verify_run_command,
    .args_doc = "--exact [PROBLEM]",
    .doc = "Measures the answer of each shape's bucket on the shape itself, against the best of a "
           "tuning of just that shape, and shows how much longer it takes.",
    .options = verify_options,
    .parts = {&problems_argp, &measuring_argp, &search_argp, &tolerance_argp, &target_argp,
              &pin_argp, &ctl_argp},
};
