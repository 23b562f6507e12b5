/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes Kernel Tuner's T4 JSON: all results of one problem. The format names no problem and no
 * device. An export adds both as the member `gemmd`, which T4's schema permits; for other files
 * --problem names the problem, and the user knows that this device measured the file.
 *
 *   status of a trial    invalidity     correctness
 *   ok                   correct        1
 *   invalid              constraints    1
 *   compile              compile        1
 *   resource             runtime        1   (too much for a launch)
 *   wrong_result         correctness    0
 *
 * A trial's reason is a measurement with a text. Results of `timeout` may work next time: an import
 * skips them, as it skips trials that hung.
 */
#include <string.h>

#include "client/ctl/formats.h"

static json_t *t4_make_result(const json_t *trial)
{
    const char *status = field_text(trial, "status"), *reason = field_text(trial, "reason");
    const double ms = field_number(trial, "time_us") / 1e3;
    size_t i = 0;
    while (i < T4_OUTCOMES - 1 && strcmp(t4_outcomes[i].status, status) != 0) {
        i++;
    }
    TEXT_AUTO *when = custom_write_time(field_int(trial, "created_s"));
    json_t *runtimes = json_array(), *measurements = json_array();
    if (i == 0) {
        json_array_append_new(runtimes, json_real(ms));
        json_array_append_new(measurements,
                              json_pack("{ss, sf, ss}", "name", "time", "value", ms, "unit", "ms"));
    }
    if (*reason) {
        json_array_append_new(
            measurements, json_pack("{ss, ss, ss}", "name", "reason", "value", reason, "unit", ""));
    }
    json_t *result =
        json_pack("{ss, sO, s[s], s{so}, ss, si, so}", "timestamp", when ? when : "",
                  "configuration", json_object_get(trial, "config"), "objectives", "time", "times",
                  "runtimes", runtimes, "invalidity", t4_outcomes[i].invalidity, "correctness",
                  strcmp(status, "wrong_result") != 0, "measurements", measurements);
    return result;
}

/* Takes over `path`. */
static int t4_save(struct writing *w, const json_t *row, char *path)
{
    json_t *results = json_array();
    ARRAY_EACH(t, json_object_get(row, "trials")) {
        json_array_append_new(results, t4_make_result(t));
    }
    json_auto_t *document =
        json_pack("{so, ss, s{sO, sO, sO*}}", "results", results, "schema_version", "1.0.0",
                  "gemmd", "op", json_object_get(row, "op"), "problem",
                  json_object_get(row, "problem"), "class", json_object_get(row, "class"));
    char *text = text_append(text_dump(document, JSON_INDENT(1) | JSON_REAL_PRECISION(17)), "\n");
    return writing_add_file(w, path, text, json_array_size(results));
}

/* Skips rows without results, such as hints, and returns the others as a new array. */
static json_t *t4_choose_rows(struct writing *w, const json_t *rows)
{
    json_t *chosen = json_array();
    ARRAY_EACH(row, rows) {
        if (json_array_size(json_object_get(row, "trials")) > 0) {
            json_array_append(chosen, row);
        } else {
            writing_skip(w, row, "it has no trials");
        }
    }
    return chosen;
}

static int t4_write(struct writing *w)
{
    int code = DONE;
    json_auto_t *all = custom_rows(w, &code), *rows = t4_choose_rows(w, all);
    const char *to = w->to ? w->to : "-";
    const size_t n = strlen(to);
    const bool is_file = strcmp(to, "-") == 0 || (n > 5 && strcmp(to + n - 5, ".json") == 0);
    if (is_file && json_array_size(rows) > 1) {
        code = ctl_usage("a T4 file is about one problem, and these are %zu: give --to DIR, or "
                         "choose a problem",
                         json_array_size(rows));
    }
    ARRAY_EACH(row, code ? NULL : rows) {
        char *path = is_file ? text_copy(to)
                             : text_format("%s%s%s-%.8s.json", to, writing_slash(to),
                                           field_text(row, "op") + strlen("custom:"),
                                           field_text(row, "key"));
        code = t4_save(w, row, path);
        if (code) {
            break;
        }
    }
    return code;
}

const struct format format_t4 = {.name = "t4", .read_rows = t4_read, .write = t4_write};
