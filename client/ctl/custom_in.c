/* SPDX-License-Identifier: Apache-2.0 */
/*
 * import --format of custom ops. gemmctl reads and checks all files before it sends the first row.
 * A row with trials is imported with the times of its file; a row without trials is a hint. Of a
 * row that is slower than the daemon's answer, or than another row of its problem, only the trials
 * are imported.
 */
#include <stdio.h>
#include <string.h>

#include "client/ctl/formats.h"

/* The problem that --problem names, {"op", ...}; NULL: not given, or *code after the error message.
 */
static json_t *custom_find_problem(struct subject *s, int *code)
{
    struct error e;
    const char *text = s->given[OWN_PROBLEM];
    if (!text) {
        return NULL;
    }
    json_auto_t *problem = NULL;
    if (strlen(text) >= 6 && text[strspn(text, "0123456789abcdef")] == '\0') {
        json_auto_t *shown = ctl_call(&s->ctl, "show", json_pack("{ss}", "key", text), code);
        problem = json_incref(json_object_get(shown, "problem"));
        json_object_del(problem, "user"); /* hints are for all users */
    } else {
        problem = text_to_problem(text, &e);
        *code = problem ? DONE : ctl_usage("--problem: %s", e.text);
    }
    if (*code == DONE && !result_is_custom(field_string(problem, "op"))) {
        *code = ctl_usage("--problem: this format is of custom ops, as in \"custom:axpy n=1024\"");
    }
    return *code ? NULL : json_incref(problem);
}

static void custom_skip_row(json_t *skipped, const json_t *row, const char *why)
{
    TEXT_AUTO *problem = text_of_json(json_object_get(row, "problem")),
              *what = text_format("%s %s", field_text(row, "op"), problem);
    notice_skip(skipped, what, why);
}

/* True when the daemon has an answer of the row's problem that the row must not replace. */
static bool custom_has_better(struct ctl *c, const json_t *row)
{
    struct gemmd_error e;
    json_t *params = json_pack("{so, ss}", "problem", result_problem(row), "wait", "cached");
    json_auto_t *answer = ctl_try_call(c, "get", params, &e);
    const double us = field_number(answer, "time_us"), new_us = field_number(row, "time_us");
    return us > 0 && (new_us <= 0 || us <= new_us);
}

/* The row then brings only its trials. */
static void custom_drop_answer(json_t *row)
{
    json_object_del(row, "config");
    json_object_del(row, "time_us");
}

/* Drops the answer of a row that is no faster than another row of its problem and device class.
 * `fastest` is {text of class and problem: row}. */
static void custom_keep_fastest(json_t *fastest, const char *class, json_t *row)
{
    const char *its = field_string(row, "class");
    json_auto_t *whole = result_problem(row);
    TEXT_AUTO *problem = text_of_json(whole);
    TEXT_AUTO *text = text_format("%s %s", its ? its : class, problem);
    json_t *before = json_object_get(fastest, text);
    if (before && !custom_is_faster(row, before)) {
        custom_drop_answer(row);
        return;
    }
    if (before) {
        custom_drop_answer(before);
    }
    json_object_set(fastest, text, row);
}

/* Adds the row to `rows` unless it is of another device, or brings nothing. */
static void custom_take_row(struct ctl *c, const json_t *device, json_t *row, json_t *fastest,
                            json_t *rows, json_t *skipped)
{
    const char *its = field_string(row, "device"), *name = field_string(device, "name");
    if (its && name && strcmp(its, name) != 0) {
        TEXT_AUTO *why = text_format("it was measured on another device, %.100s", its);
        custom_skip_row(skipped, row, why);
        return;
    }
    json_object_del(row, "device");
    if (json_object_get(row, "config") && custom_has_better(c, row)) {
        if (!json_object_get(row, "trials")) {
            custom_skip_row(skipped, row,
                            "it has an answer that was measured, which a hint does not replace");
            return;
        }
        custom_drop_answer(row);
    }
    if (json_object_get(row, "config") && json_object_get(row, "trials")) {
        custom_keep_fastest(fastest, field_text(device, "class"), row);
    }
    json_array_append(rows, row);
}

/* Reads all files into `files`, [{"rows", "unused"}] (format.read_rows). */
static int custom_read_files(struct subject *s, const struct format *format, json_t *files)
{
    struct error e;
    int code = DONE;
    const char *given = s->given[OWN_FIELDS];
    json_auto_t *fields = given ? text_to_json(given, &e) : NULL;
    if (given && !fields) {
        return ctl_usage("--fields: %s", e.text);
    }
    json_auto_t *problem = custom_find_problem(s, &code);
    for (size_t i = 0; i < s->n_paths && code == DONE; i++) {
        const struct custom_file f = {format, s->paths[i], problem, fields};
        json_t *file = json_pack("{s[], s{}}", "rows", "unused");
        json_array_append_new(files, file);
        code = strcmp(f.path, "-") == 0
                   ? ctl_usage("these formats are read from named files, not from stdin")
                   : format->read_rows(&f, file);
    }
    return code;
}

/* ---- the result ------------------------------------------------------------------------------ */

static void custom_say(struct ctl *c, const json_t *total, const json_t *rows, bool dry_run)
{
    static const struct column columns[] = {{"OP", "op", NULL},
                                            {"PROBLEM", "problem", show_config},
                                            {"CONFIG", "config", show_config},
                                            {"TIME us", "time_us", show_time, true, true}};
    table_print(columns, COUNT(columns), rows);
    notices_print(json_object_get(total, "unusable"));
    ARRAY_EACH(s, json_object_get(total, "skipped")) {
        text_remark("row %lld skipped: %s", field_int(s, "row") + 1, field_text(s, "message"));
    }
    TEXT_AUTO *unused = c->quiet ? NULL : notice_names(json_object_get(total, "unknown"));
    if (unused && *unused) {
        text_remark("gemmd keeps no such fields, and rows go without: %s", unused);
    }
    if (dry_run) {
        printf("%zu rows: --dry-run\n", json_array_size(rows));
    } else {
        printf("%lld rows imported, with %lld trials\n", field_int(total, "imported"),
               field_int(total, "trials"));
    }
}

static int custom_send(struct subject *s, const json_t *rows, json_t *total)
{
    struct ctl *c = &s->ctl;
    const bool dry_run = s->given[OWN_DRY_RUN];
    if (json_array_size(rows) == 0) {
        notices_print(json_object_get(total, "unusable"));
        return ctl_failed("nothing to import: no row of the files is new here");
    }
    int code = dry_run ? DONE : import_rows(c, rows, false, total);
    if (code) {
        return code;
    }
    const bool nothing = !dry_run && !field_int(total, "imported") && !field_int(total, "trials");
    if (c->json) {
        code = ctl_print_json(json_incref(total));
    } else {
        custom_say(c, total, rows, dry_run);
    }
    return code == DONE && nothing
               ? ctl_failed("nothing was imported: all of it was here before, or "
                            "was skipped")
               : code;
}

int import_custom(struct subject *s, const struct format *format)
{
    struct ctl *c = &s->ctl;
    if (problems_given(&s->problems)) {
        return ctl_usage("this format is of custom ops: --problem says of which, not the options "
                         "of GEMMs");
    }
    json_auto_t *total = json_pack("{si, si, s[], s[], s{}, s[]}", "imported", 0, "trials", 0,
                                   "unusable", "skipped", "unknown", "hints"),
                *files = json_array(), *fastest = json_object();
    json_t *rows = json_object_get(total, "hints");
    int code = ctl_connect(c);
    code = code ? code : custom_read_files(s, format, files);
    json_auto_t *status = code ? NULL : ctl_call(c, "status", NULL, &code);
    ARRAY_EACH(file, files) {
        notices_add(json_object_get(total, "unknown"), json_object_get(file, "unused"));
        ARRAY_EACH(row, json_object_get(file, "rows")) {
            if (code == DONE) {
                custom_take_row(c, json_object_get(status, "device"), row, fastest, rows,
                                json_object_get(total, "unusable"));
            }
        }
    }
    return code ? code : custom_send(s, rows, total);
}
