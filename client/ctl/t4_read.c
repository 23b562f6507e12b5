/* SPDX-License-Identifier: Apache-2.0 */
/* Reads Kernel Tuner's T4 JSON (t4.c) into one row with a trial for each result. */
#include <float.h>
#include <string.h>

#include "client/ctl/formats.h"

const struct t4_outcome t4_outcomes[T4_OUTCOMES] = {{"ok", "correct"},
                                                    {"invalid", "constraints"},
                                                    {"compile", "compile"},
                                                    {"resource", "runtime"},
                                                    {"wrong_result", "correctness"}};

static const json_t *t4_find_measurement(const json_t *result, const char *name)
{
    ARRAY_EACH(m, json_object_get(result, "measurements")) {
        if (field_is(m, "name", name)) {
            return m;
        }
    }
    return NULL;
}

/* The time in us: the measurement "time", or else the mean of the runs. 0: no time. */
static double t4_time_us(const json_t *result)
{
    static const struct {
        const char *name;
        double us;
    } units[] = {{"ms", 1e3}, {"", 1e3}, {"us", 1}, {"s", 1e6}, {"ns", 1e-3}};
    const json_t *m = t4_find_measurement(result, "time");
    for (size_t i = 0; m && i < COUNT(units); i++) {
        if (field_is(m, "unit", units[i].name)) {
            return field_number(m, "value") * units[i].us;
        }
    }
    const json_t *runs = field_value(result, "times.runtimes");
    const size_t n = json_array_size(runs);
    double sum_ms = 0;
    ARRAY_EACH(run, runs) {
        sum_ms += json_number_value(run);
    }
    return n > 0 ? sum_ms / (double)n * 1e3 : 0;
}

/* Counts members of a result that a trial has no field for. */
static void t4_count_unused(const json_t *result, json_t *unused)
{
    static const char known[] =
        "timestamp,configuration,objectives,times,invalidity,correctness,measurements";
    notices_add_unknown(unused, result, known);
    notices_add_unknown(unused, json_object_get(result, "times"), "runtimes");
    ARRAY_EACH(v, json_object_get(result, "measurements")) {
        if (!list_has("time,reason", field_text(v, "name"))) {
            notice_count(unused, field_text(v, "name"), 1);
        }
    }
}

/* The trial of a result, a new object; NULL after the error message. */
static json_t *t4_make_trial(const json_t *result, const char *status, const char *where)
{
    const json_t *reason = t4_find_measurement(result, "reason");
    const double us = t4_time_us(result);
    const bool ok = strcmp(status, "ok") == 0;
    int64_t created_s;
    if (!json_is_object(json_object_get(result, "configuration"))) {
        ctl_failed("%s: no configuration", where);
        return NULL;
    }
    if (ok && !(us > 0 && us <= DBL_MAX)) {
        ctl_failed("%s: a correct result needs a measurement \"time\" above 0, or runtimes", where);
        return NULL;
    }
    json_t *config = custom_read_config(json_object_get(result, "configuration"), where);
    json_t *trial = config ? json_pack("{so, ss}", "config", config, "status", status) : NULL;
    if (trial && ok) {
        json_object_set_new(trial, "time_us", json_real(us));
    }
    if (trial && *field_text(reason, "value")) {
        json_object_set(trial, "reason", json_object_get(reason, "value"));
    }
    if (trial && custom_read_time(field_text(result, "timestamp"), &created_s)) {
        json_object_set_new(trial, "created_s", json_integer(created_s));
    }
    return trial;
}

static int t4_read_result(const json_t *result, const char *where, json_t *trials, json_t *unused)
{
    const char *invalidity = field_text(result, "invalidity");
    size_t i = 0;
    while (i < T4_OUTCOMES && strcmp(t4_outcomes[i].invalidity, invalidity) != 0) {
        i++;
    }
    if (strcmp(invalidity, "timeout") == 0) {
        notice_count(unused, "results of timeout", 1);
        return DONE;
    }
    if (i == T4_OUTCOMES) {
        return ctl_failed("%s: invalidity is \"%.40s\", and T4 has timeout, compile, runtime, "
                          "correctness, constraints, correct",
                          where, invalidity);
    }
    json_t *trial = t4_make_trial(result, t4_outcomes[i].status, where);
    if (trial) {
        t4_count_unused(result, unused);
        json_array_append_new(trials, trial);
    }
    return trial ? DONE : FAILED;
}

/* The problem: of --problem, or else of the member `gemmd`. NULL after the error message. */
static json_t *t4_make_problem(const struct custom_file *f, const json_t *document)
{
    const json_t *ours = json_object_get(document, "gemmd");
    const char *op = field_text(ours, "op");
    if (f->problem || strncmp(op, "custom:", 7) != 0 ||
        !json_is_object(json_object_get(ours, "problem"))) {
        if (!f->problem) {
            ctl_failed("%s names no problem, since T4 has no such field: give --problem "
                       "\"custom:axpy n=1024\"",
                       f->path);
        }
        return json_deep_copy(f->problem);
    }
    json_t *problem = json_deep_copy(json_object_get(ours, "problem"));
    json_object_set_new(problem, "op", json_string(op));
    return problem;
}

/* Makes the row: its config is that of the fastest trial. Without an ok trial, the row has only
 * trials. */
static json_t *t4_make_row(json_t *problem, const json_t *document, json_t *trials)
{
    json_t *row = custom_make_row(problem);
    json_object_set(row, "trials", trials);
    json_object_set(row, "class", json_object_get(json_object_get(document, "gemmd"), "class"));
    custom_choose_best(row);
    return row;
}

int t4_read(const struct custom_file *f, json_t *out)
{
    struct error e;
    json_auto_t *document = text_read_json(f->path, &e), *trials = json_array();
    json_t *results = json_object_get(document, "results");
    if (!document) {
        return ctl_failed("%s", e.text);
    }
    if (!json_is_array(results)) {
        return ctl_failed("%s has no array \"results\", so this is no T4 file", f->path);
    }
    int code = DONE;
    ARRAY_EACH_AT(i, result, results) {
        TEXT_AUTO *where = text_format("%s, result %zu", f->path, i + 1);
        code = code ? code : t4_read_result(result, where, trials, json_object_get(out, "unused"));
    }
    if (code == DONE && json_array_size(trials) == 0) {
        code = ctl_failed("%s has no results", f->path);
    }
    json_t *problem = code ? NULL : t4_make_problem(f, document);
    if (problem) {
        json_array_append_new(json_object_get(out, "rows"), t4_make_row(problem, document, trials));
    }
    return problem ? DONE : FAILED;
}
