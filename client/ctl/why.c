/* SPDX-License-Identifier: Apache-2.0 */
/* why: the tier that answers, its row and evidence, and how to get a better answer. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/ctl.h"

static double why_get_number(const json_t *object, const char *path)
{
    const json_t *v = field_value(object, path);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

/* Lists the fields in which two problems differ: "M 4096, known 512; routing zipf:1.2, known
 * uniform". malloc'ed. */
static char *why_list_differences(const json_t *list, const char *name, const char *between)
{
    char *out = text_copy("");
    ARRAY_EACH_AT(i, d, list) {
        TEXT_AUTO *asked = show_plain(json_object_get(d, "asked")),
                  *other = show_plain(json_object_get(d, name));
        out = text_append(out, "%s%s %s%s%s", i > 0 ? "; " : "", field_text(d, "field"), asked,
                          between, other);
    }
    return out;
}

char *why_shorten_problem(const json_t *problem)
{
    static const char *const usual[][2] = {{"dtype_in", "bf16"},
                                           {"dtype_acc", "fp32"},
                                           {"routing", "uniform"},
                                           {"quant", "none"},
                                           {"scale_block", "none"}};
    static const char *const of_quant[] = {"dtype_in", "dtype_acc", "scale_block", "scale_type"};
    static const char *const flags[] = {"permute_x", "permute_y", "fuse_mul_post", "accumulate"};
    json_auto_t *p = json_copy((json_t *)(uintptr_t)problem);
    if (field_is(p, "dtype_in", field_text(p, "dtype_out"))) {
        json_object_del(p, "dtype_out");
    }
    if (json_object_get(p, "scale_type")) { /* quant and the mode say these */
        for (size_t i = 0; i < COUNT(of_quant); i++) {
            json_object_del(p, of_quant[i]);
        }
        if (field_is(p, "dtype_out", "bf16")) {
            json_object_del(p, "dtype_out");
        }
    }
    if (field_is(p, "family", field_text(p, "op"))) {
        json_object_del(p, "family"); /* an op's first family has its name */
    }
    for (size_t i = 0; i < COUNT(usual); i++) {
        if (field_is(p, usual[i][0], usual[i][1])) {
            json_object_del(p, usual[i][0]);
        }
    }
    for (size_t i = 0; i < COUNT(flags); i++) {
        if (json_is_false(json_object_get(p, flags[i]))) {
            json_object_del(p, flags[i]);
        }
    }
    return text_of_json(p);
}

/* ---- the parts ------------------------------------------------------------------------------ */

static void print_answer(const json_t *why)
{
    const char *tier = field_text(why, "answer.tier");
    const char *meaning = strcmp(tier, "exact") == 0       ? "measured for this very key"
                          : strcmp(tier, "near") == 0      ? field_text(why, "answer.note")
                          : strcmp(tier, "portfolio") == 0 ? field_text(why, "answer.note")
                          : strcmp(tier, "default") == 0
                              ? "chosen by the analytic model, not measured"
                              : "there is none: gemmd cannot tune this op";
    TEXT_AUTO *config = notation_of_config(why, field_value(why, "answer.config"));
    text_print_named("tier", "%s (%s)", *tier ? tier : "none", meaning);
    if (*tier) {
        text_print_named("config", "%s", config);
    }
    text_print_named("because", "%s", field_text(why, "because"));
    double time = why_get_number(why, "answer.time_us"),
           floor = why_get_number(why, "answer.floor_us");
    double reference = why_get_number(why, "answer.reference_us");
    if (time > 0) {
        text_print_named("time", "%.*f us%s", show_decimals(time), time,
                         reference > 0 ? "" : ", no reference was measured");
    }
    if (time > 0 && reference > 0) {
        text_print_named("", "%.2fx the analytic default of the same run (%.*f us)",
                         reference / time, show_decimals(reference), reference);
    }
    if (time > 0 && floor > time) {
        text_print_named(
            "",
            "faster than the known peaks of this device allow (%.*f us): the peaks are too low, as "
            "those of a CPU that was busy when gemmd started",
            show_decimals(floor), floor);
    } else if (time > 0 && floor > 0) {
        text_print_named("", "%.0f %% of what this device allows at best (%.*f us)",
                         100 * floor / time, show_decimals(floor), floor);
    }
}

static void print_key(const json_t *why)
{
    TEXT_AUTO *problem = why_shorten_problem(json_object_get(why, "problem")),
              *rounded = why_list_differences(json_object_get(why, "rounded"), "bucket", " -> ");
    text_print_named("problem", "%s", problem);
    text_print_named("key", "%s", field_text(why, "key"));
    if (rounded && *rounded) {
        text_print_named("", "bucket scheme %s: %s", field_text(why, "scheme"), rounded);
    }
}

static void print_row(const json_t *why)
{
    const json_t *row = json_object_get(why, "row");
    if (!json_is_object(row)) {
        return;
    }
    TEXT_AUTO *age = show_age(json_object_get(row, "created_s"));
    bool own = field_is(row, "key", field_text(why, "key"));
    long long uid = field_int(row, "uid");
    char by[48] = "in no database yet"; /* a row in memory only has no uid */
    if (uid >= 0) {
        snprintf(by, sizeof(by), "asked for by uid %lld", uid);
    }
    text_print_named("row", "generation %lld of %s%.12s, source %s, %s old, %s",
                     field_int(row, "generation"), own ? "this key " : "key ",
                     field_text(row, "key"), field_text(row, "source"), age, by);
}

/* Prints the tolerances and the errors of the verification. Omits errors that are not known: the
 * recording of a replay device lacks them. */
static void print_verified(const json_t *why, const json_t *trial)
{
    const double error = why_get_number(trial, "max_error"),
                 norm = why_get_number(trial, "rel_norm");
    char errors[48] = "", norms[48] = "";
    if (!isnan(error)) {
        snprintf(errors, sizeof(errors), ": largest error %.3g", error);
    }
    if (!isnan(norm)) {
        snprintf(norms, sizeof(norms), "%s relative norm %.3g", *errors ? "," : ":", norm);
    }
    text_print_named("verified", "elements within atol %g, rtol %g%s%s",
                     why_get_number(why, "row.atol"), why_get_number(why, "row.rtol"), errors,
                     norms);
}

static void print_trial(const json_t *why)
{
    const json_t *trial = json_object_get(why, "trial");
    if (!json_is_object(trial)) {
        return;
    }
    size_t samples = json_array_size(json_object_get(trial, "samples_us"));
    double q25 = why_get_number(trial, "q25_us"), q75 = why_get_number(trial, "q75_us");
    double time = why_get_number(trial, "time_us");
    int digits = show_decimals(time);
    text_print_named("evidence",
                     "trial %lld: %zu samples, median %.*f us, quartiles %.*f to %.*f us",
                     field_int(trial, "id"), samples, digits, time, digits, q25, digits, q75);
    if (*field_text(trial, "reason")) {
        text_print_named("", "%s", field_text(trial, "reason"));
    }
    text_print_named("", "%lld trials of this key, %lld failed (`gemmctl trials %.12s` lists them)",
                     field_int(why, "trials"), field_int(why, "failed"), field_text(trial, "key"));
    print_verified(why, trial);
}

static void print_run(const json_t *why)
{
    const json_t *run = json_object_get(why, "run");
    if (!json_is_object(run)) {
        return;
    }
    const char *ending = field_text(run, "ending");
    text_print_named("run", "%lld on %s: driver %s, %s, gemmd %s", field_int(run, "id"),
                     field_text(run, "device"), field_text(run, "driver"),
                     field_text(run, "compiler"), field_text(run, "build"));
    text_print_named("", "its runner %s%s", *ending ? "ended: " : "still runs, or died unseen",
                     ending);
}

static void print_stamp(const json_t *why)
{
    const json_t *stamp = json_object_get(why, "stamp");
    if (json_is_object(stamp)) {
        bool fits = field_is_true(stamp, "fits");
        text_print_named("stamp", "%s%s",
                         fits ? "fits today's kernels and compiler" : "does not fit: ",
                         fits ? "" : field_text(stamp, "difference"));
    }
}

static void print_confidence(const json_t *why)
{
    text_print_named("confidence", "%s", field_text(why, "confidence"));
    ARRAY_EACH(doubt, json_object_get(why, "doubts")) {
        text_print_named("", "%s", json_string_value(doubt));
    }
}

static void print_miss(const json_t *why)
{
    const json_t *close = json_object_get(why, "closest");
    if (json_is_object(close)) {
        TEXT_AUTO *what =
            why_list_differences(json_object_get(close, "differs"), "known", ", known is ");
        text_print_named("nearest key", "%.12s differs: %s", field_text(close, "key"), what);
    } else if (field_is(why, "verdict", "unknown")) {
        text_print_named("nearest key",
                         "none: no key of this op has an answer on this class of device");
    }
    ARRAY_EACH_AT(i, row, json_object_get(why, "elsewhere")) {
        double time = why_get_number(row, "time_us");
        text_print_named(i ? "" : "elsewhere", "known for another class of device: %s, %.*f us",
                         field_text(row, "class"), show_decimals(time), time);
    }
}

/* Prints what this host knows of the key's rows in the fleet. */
static void why_print_fleet(const json_t *why)
{
    ARRAY_EACH_AT(i, row, json_object_get(why, "fleet")) {
        const char *origin = field_text(row, "origin"), *reason = field_text(row, "reason");
        text_print_named(i ? "" : "fleet", "row %lld of %s: %s%s%s", field_int(row, "seq"),
                         origin[0] ? origin : "this host", field_text(row, "state"),
                         reason[0] ? ", " : "", reason);
    }
}

static void print_action(const json_t *why, const struct gemmd_query *q)
{
    const char *action = field_text(why, "action"), *tuning = field_text(why, "tuning");
    TEXT_AUTO *problem = why_shorten_problem(json_object_get(why, "problem"));
    char exact[100] = "", atol[NUMBER_TEXT_MAX], rtol[NUMBER_TEXT_MAX];
    if (q->atol > 0 || q->rtol > 0) { /* all digits: rounding up would loosen the tolerances */
        number_text(q->atol > 0 ? q->atol : 1e-2, atol);
        number_text(q->rtol > 0 ? q->rtol : 1e-2, rtol);
        snprintf(exact, sizeof(exact), " --atol %s --rtol %s", atol, rtol);
    }
    if (strcmp(action, "none") == 0) {
        text_print_named("do", "nothing");
    } else if (strcmp(action, "put") == 0) {
        text_print_named("do", "put a result of your own (gemmd_put)");
    } else {
        text_print_named("do", "gemmctl %s '%s'%s%s%s", action, problem,
                         q->target ? " --target " : "", q->target ? q->target : "", exact);
    }
    if (strcmp(action, "none") != 0 && strcmp(tuning, "on") != 0) {
        text_print_named("", "but nothing is tuned by this daemon: %s", tuning);
    }
}

/* ---- the command ---------------------------------------------------------------------------- */

static void why_show(struct subject *s, json_t *why)
{
    print_key(why);
    print_answer(why);
    print_row(why);
    print_trial(why);
    print_run(why);
    print_stamp(why);
    print_confidence(why);
    print_miss(why);
    why_print_fleet(why);
    print_action(why, &s->search.query);
}

static int why_run(struct subject *s)
{
    if (s->given[OWN_ALL] && !s->given[OWN_JOB]) {
        return ctl_usage("--all stands beside --job ID: a query has the answer of one daemon");
    }
    return s->given[OWN_JOB] ? jobs_explain_job(s) : subject_run_method(s);
}

static const struct argp_option why_options[] = {
    {"job", OWN_KEY + OWN_JOB, "ID", 0,
     "why a job was slow: its products that were answered by a lower tier (`gemmctl jobs` lists "
     "the jobs)",
     2},
    {"all", OWN_KEY + OWN_ALL, 0, 0, "with --job: of every daemon of this host", 2},
    {0},
};

const struct command command_why = {
    .name = "why",
    .help = "why a query gets its answer, or why a job was slow",
    .run = why_run,
    .show = why_show,
    .args_doc = "KEY|PROBLEM\n--job ID",
    .doc = "Explains the present answer of a query: tier, row, evidence, how far to rely on the "
           "answer, and how to get a better answer. Nothing is tuned.",
    .options = why_options,
    .parts = {&problems_argp, &tolerance_argp, &target_argp, &ctl_argp},
};
