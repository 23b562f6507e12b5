/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads Kernel Launcher's wisdom files (wisdom.c). Lines with the same problem size and device
 * become a row with a trial for each line. The op is --problem's, or follows from the tuning key: a
 * key that is the text of a custom op's problem becomes this problem, and any other key becomes the
 * field `tuning_key` of custom:kernel_launcher.
 */
#include <float.h>
#include <string.h>

#include "client/ctl/formats.h"

static const char *const sizes[] = {"x", "y", "z"};

/* ---- the header ------------------------------------------------------------------------------ */

/* Reads the key as a problem's text without "custom:"; NULL: no such text. */
static json_t *wisdom_parse_key(const char *key)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
    struct error e;
    const size_t n = strspn(key, letters);
    if (n == 0 || n > 48 || (key[n] && key[n] != ' ')) {
        return NULL;
    }
    TEXT_AUTO *text = text_format("custom:%s", key);
    json_auto_t *problem = text_to_problem(text, &e);
    TEXT_AUTO *back = problem ? text_of_json(problem) : NULL;
    bool same = back && strcmp(back, text) == 0 && !json_object_get(problem, "tuning_key");
    for (size_t i = 0; i < COUNT(sizes); i++) {
        same = same && !json_object_get(problem, sizes[i]);
    }
    return same ? json_incref(problem) : NULL;
}

/* Makes the problem of a file with this tuning key, without its size; a new reference. */
static json_t *wisdom_make_problem(const struct custom_file *f, const char *key)
{
    json_t *problem = f->problem ? json_deep_copy(f->problem) : wisdom_parse_key(key);
    return problem ? problem
                   : json_pack("{ss, ss}", "op", "custom:kernel_launcher", "tuning_key", key);
}

static int wisdom_check_header(const char *path, const json_t *header)
{
    const json_t *params = json_object_get(header, "tunable_parameters");
    if (!field_is(header, "version", "1.0")) {
        return ctl_failed("%s, line 1: version must be \"1.0\", as in wisdom files", path);
    }
    if (!field_is(header, "objective", "time")) {
        return ctl_failed("%s, line 1: the objective must be \"time\"", path);
    }
    if (!*field_text(header, "key")) {
        return ctl_failed("%s, line 1: no key", path);
    }
    ARRAY_EACH(name, params) {
        if (!json_is_string(name)) {
            return ctl_failed("%s, line 1: tunable_parameters must be texts", path);
        }
    }
    return json_array_size(params) ? DONE : ctl_failed("%s, line 1: no tunable_parameters", path);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static json_t *wisdom_read_config(const json_t *values, const json_t *params, const char *where)
{
    if (!json_is_array(values) || json_array_size(values) != json_array_size(params)) {
        ctl_failed("%s: config must have a value for each of the %zu tunable_parameters", where,
                   json_array_size(params));
        return NULL;
    }
    json_auto_t *named = json_object();
    ARRAY_EACH_AT(i, name, params) {
        json_object_set(named, json_string_value(name), json_array_get(values, i));
    }
    return custom_read_config(named, where);
}

/* Sets the problem's fields x, y and z from the line's problem size. */
static int wisdom_set_size(json_t *problem, const json_t *size, const char *where)
{
    ARRAY_EACH_AT(i, v, size) {
        if (i >= COUNT(sizes) || !json_is_integer(v) || json_integer_value(v) < 0) {
            return ctl_failed("%s: problem_size must be at most three whole numbers", where);
        }
        json_object_set(problem, sizes[i], v);
    }
    return json_is_array(size) ? DONE : ctl_failed("%s: no problem_size", where);
}

/* Adds a trial to the row of its problem and device in `found`, {text of both: row}. Takes over
 * `problem`. */
static void wisdom_add_trial(json_t *found, json_t *problem, const char *device, json_t *trial)
{
    json_auto_t *row = custom_make_row(problem);
    json_object_set_new(row, "device", device ? json_string(device) : NULL); /* NULL is not set */
    TEXT_AUTO *text = text_dump(row, JSON_COMPACT | JSON_SORT_KEYS);
    json_t *before = json_object_get(found, text);
    if (before) {
        json_array_append(json_object_get(before, "trials"), trial);
        return;
    }
    json_object_set_new(row, "trials", json_pack("[O]", trial));
    json_object_set(found, text, row);
}

static int wisdom_read_line(const struct custom_file *f, const json_t *header, const json_t *line,
                            const char *where, json_t *found, json_t *unused)
{
    const double ms = field_number(line, "time");
    if (!(ms > 0 && ms <= DBL_MAX / 1e3)) {
        return ctl_failed("%s: time must be a number above 0", where);
    }
    json_auto_t *config = wisdom_read_config(json_object_get(line, "config"),
                                             json_object_get(header, "tunable_parameters"), where);
    json_t *problem = config ? wisdom_make_problem(f, field_text(header, "key")) : NULL;
    int code =
        problem ? wisdom_set_size(problem, json_object_get(line, "problem_size"), where) : FAILED;
    if (code == DONE) {
        int64_t created_s;
        json_auto_t *trial =
            json_pack("{sO, ss, sf}", "config", config, "status", "ok", "time_us", ms * 1e3);
        if (custom_read_time(field_text(line, "environment.date"), &created_s)) {
            json_object_set_new(trial, "created_s", json_integer(created_s));
        }
        wisdom_add_trial(found, problem, field_string(line, "environment.device_name"), trial);
        notices_add_unknown(unused, line, "config,problem_size,time,environment");
        notices_add_unknown(unused, json_object_get(line, "environment"),
                            "date,device_name,compute_capability");
    } else {
        json_decref(problem);
    }
    return code;
}

/* Parses a line; NULL after the error message. */
static json_t *wisdom_parse_line(const char *text, const char *where)
{
    json_error_t why;
    json_auto_t *line = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(line)) {
        ctl_failed("%s: %s", where, line ? "no JSON object" : why.text);
        return NULL;
    }
    return json_incref(line);
}

int wisdom_read(const struct custom_file *f, json_t *out)
{
    struct error e;
    TEXT_AUTO *text = text_read_file(f->path, &e);
    char *at = text, *one;
    json_auto_t *header = NULL, *found = json_object();
    int code = text ? DONE : ctl_failed("%s", e.text);
    for (int n = 1; code == DONE && (one = strsep(&at, "\n")); n++) {
        one += strspn(one, " \t\r");
        if (!*one || (n > 1 && (*one == '#' || strncmp(one, "//", 2) == 0))) {
            continue;
        }
        TEXT_AUTO *where = text_format("%s, line %d", f->path, n);
        json_auto_t *line = wisdom_parse_line(one, where);
        code = !line ? FAILED
               : header
                   ? wisdom_read_line(f, header, line, where, found, json_object_get(out, "unused"))
                   : wisdom_check_header(f->path, line);
        header = header ? header : json_incref(line);
    }
    if (code == DONE && json_object_size(found) == 0) {
        code = ctl_failed("%s has no measured configs", f->path);
    }
    OBJECT_EACH(key, row, found) {
        custom_choose_best(row);
        json_array_append(json_object_get(out, "rows"), row);
    }
    return code;
}
