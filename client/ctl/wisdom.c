/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes Kernel Launcher's wisdom files: a file for each tuning key, with a line for each measured
 * config, fastest first. The first line is the header, with the names of the parameters.
 *
 * The fields x, y and z of a problem are the format's problem size. The tuning key is the field
 * `tuning_key`; a problem without that field has the name of the op and all other fields as the
 * key: custom:axpy dtype=float x=1024 is the size [1024] of the key "axpy dtype=float".
 */
#include <ctype.h>
#include <string.h>

#include "client/ctl/formats.h"

static const char *const sizes[] = {"x", "y", "z"};

/* A row's tuning key, malloc'ed. */
static char *wisdom_make_key(const json_t *row)
{
    const char *key = field_string(json_object_get(row, "problem"), "tuning_key");
    if (key) {
        return text_copy(key);
    }
    json_auto_t *rest = json_copy(json_object_get(row, "problem"));
    for (size_t i = 0; i < COUNT(sizes); i++) {
        json_object_del(rest, sizes[i]);
    }
    json_object_set_new(rest, "op", json_string(field_text(row, "op") + strlen("custom:")));
    return text_of_json(rest);
}

/* The problem size: [x, y, z] up to the last of these fields that the problem has; NULL: a field is
 * no whole number, or x or y is missing before a later field. */
static json_t *wisdom_make_size(const json_t *problem)
{
    json_auto_t *size = json_array();
    for (size_t i = 0; i < COUNT(sizes); i++) {
        json_t *v = json_object_get(problem, sizes[i]);
        if (v && (!json_is_integer(v) || json_array_size(size) < i)) {
            return NULL;
        }
        json_array_append(size, v); /* NULL is not appended */
    }
    return json_incref(size);
}

/* The config's values in the order of the header's parameters; NULL: the config has other
 * parameters. */
static json_t *wisdom_make_config(const json_t *config, const json_t *params)
{
    const size_t n = json_array_size(params);
    json_auto_t *values = json_array();
    ARRAY_EACH(name, params) {
        json_array_append(values, json_object_get(config, json_string_value(name)));
    }
    const bool is_whole = json_array_size(values) == n && json_object_size(config) == n;
    return is_whole ? json_incref(values) : NULL;
}

static json_t *wisdom_make_header(const char *key, const json_t *config)
{
    json_t *params = json_array();
    OBJECT_EACH(name, v, config) {
        json_array_append_new(params, json_string(name));
    }
    return json_pack("{ss, ss, so, ss}", "version", "1.0", "objective", "time",
                     "tunable_parameters", params, "key", key);
}

/* The line of a trial; NULL: the trial has other parameters than the header. */
static json_t *wisdom_make_line(const struct writing *w, const json_t *header, const json_t *size,
                                const json_t *trial)
{
    json_t *values = wisdom_make_config(json_object_get(trial, "config"),
                                        json_object_get(header, "tunable_parameters"));
    const long long capability =
        field_int(w->device, "cc_major") * 10 + field_int(w->device, "cc_minor");
    TEXT_AUTO *date = custom_write_time(field_int(trial, "created_s"));
    json_t *line =
        values ? json_pack("{so, sO, sf, s{ss, ss, sI}}", "config", values, "problem_size", size,
                           "time", field_number(trial, "time_us") / 1e3, "environment", "date",
                           date ? date : "", "device_name", field_text(w->device, "name"),
                           "compute_capability", (json_int_t)capability)
               : NULL;
    return line;
}

/* Adds the lines of a row's trials to `files`, {tuning key: [header, line, ...]}. */
static void wisdom_add_row(struct writing *w, json_t *files, const json_t *row)
{
    json_auto_t *trials = custom_sort_trials(row),
                *size = wisdom_make_size(json_object_get(row, "problem"));
    TEXT_AUTO *key = size && json_array_size(trials) ? wisdom_make_key(row) : NULL;
    size_t others = 0;
    if (!key) {
        writing_skip(w, row,
                     !size ? "its x, y and z are no problem size" : "it has no measured config");
    } else if (!json_object_get(files, key)) {
        json_t *config = json_object_get(json_array_get(trials, 0), "config");
        json_object_set_new(files, key, json_pack("[o]", wisdom_make_header(key, config)));
    }
    json_t *lines = key ? json_object_get(files, key) : NULL;
    ARRAY_EACH(t, trials) {
        json_t *line = lines ? wisdom_make_line(w, json_array_get(lines, 0), size, t) : NULL;
        others += lines && !line;
        json_array_append_new(lines, line); /* NULL is not appended */
    }
    if (others) {
        writing_skip(w, row, "some of its configs have other parameters than the file");
    }
    if (key && json_array_size(trials) < json_array_size(json_object_get(row, "trials"))) {
        notice_count(w->left_out, "failed configs", 1);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

/* The file that Kernel Launcher opens for the key, malloc'ed. */
static char *wisdom_make_path(const char *to, const char *key, bool is_file)
{
    char *path = is_file ? text_copy(to) : text_format("%s%s%s.wisdom", to, writing_slash(to), key);
    const size_t n = strlen(path), tail = strlen(".wisdom");
    for (size_t i = n - strlen(key) - tail; !is_file && i < n - tail; i++) {
        const char c = path[i];
        path[i] = (char)(isalnum((unsigned char)c) || c == '-' || c == '.' ? c : '_');
    }
    return path;
}

static int wisdom_save(struct writing *w, const char *path, const json_t *lines)
{
    char *text = text_copy("");
    ARRAY_EACH(line, lines) {
        TEXT_AUTO *one = text_dump(line, JSON_REAL_PRECISION(17));
        text = text_append(text, "%s\n", one);
    }
    return writing_add_file(w, text_copy(path), text, json_array_size(lines) - 1);
}

static int wisdom_write(struct writing *w)
{
    int code = DONE;
    json_auto_t *rows = custom_rows(w, &code), *files = json_object(), *paths = json_object();
    const char *to = w->to ? w->to : "-";
    const size_t n = strlen(to);
    const bool is_file = strcmp(to, "-") == 0 || (n > 7 && strcmp(to + n - 7, ".wisdom") == 0);
    ARRAY_EACH(row, rows) {
        wisdom_add_row(w, files, row);
    }
    if (is_file && json_object_size(files) > 1) {
        code = ctl_usage("a wisdom file is of one tuning key, and these are %zu: give --to DIR, or "
                         "choose a problem",
                         json_object_size(files));
    }
    OBJECT_EACH(key, lines, files) {
        TEXT_AUTO *path = wisdom_make_path(to, key, is_file);
        if (notice_count(paths, path, 1) > 1) {
            notice_skip(w->skipped, key, "the file of another tuning key has the same name");
        } else {
            code = code ? code : wisdom_save(w, path, lines);
        }
    }
    return code;
}

const struct format format_wisdom = {
    .name = "wisdom", .read_rows = wisdom_read, .write = wisdom_write};
