/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the database, with the derived columns. */
#include <stdio.h>
#include <string.h>

#include "client/ctl/ctl.h"

/* ---- rows ----------------------------------------------------------------------------------- */

static void set_rate(json_t *row, const char *name, const char *of, double scale)
{
    double work = field_number(row, of);
    double us = field_number(row, "time_us");
    if (work > 0 && us > 0) {
        json_object_set_new(row, name, json_real(work / us * scale));
    }
}

void rows_derive_best(json_t *row)
{
    set_rate(row, "tflops", "flops", 1e-6);
    set_rate(row, "gbps", "bytes", 1e-3);
    const char *doubt = field_string(row, "doubt");
    bool low = doubt && strncmp(doubt, "confidence low", strlen("confidence low")) == 0;
    json_object_set_new(row, "confidence", json_string(low ? "low" : ""));
    result_derive(row);
}

/* Makes the column that says why a trial failed: "shared_memory: 200 needed, 100 there" when a
 * resource lacked, else the trial's reason. */
static json_t *why_failed(const json_t *row)
{
    const char *reason = field_text(row, "reason"), *resource = field_text(row, "resource");
    if (*reason || !*resource) {
        return json_string(reason);
    }
    return json_sprintf("%s: %lld needed, the limit is %lld", resource, field_int(row, "required"),
                        field_int(row, "limit_value"));
}

/* ---- rows of several devices ---------------------------------------------------------------- */

/* The device's name in a device class: the text before its first '/'. */
static json_t *device_name_of(const char *class)
{
    return json_stringn(class, strcspn(class, "/"));
}

/* The part of a class after n slashes, and its length; "" when the class has fewer. */
static const char *device_find_part(const char *class, int n, size_t *length)
{
    for (; n > 0; n--) {
        class += strcspn(class, "/");
        class += *class == '/';
    }
    *length = strcspn(class, "/");
    return class;
}

/* The device's name, and the parts in which the class differs from others of this name, as in
 * "NVIDIA H200/pl500". */
static json_t *device_describe(const char *class, const json_t *classes)
{
    json_auto_t *name = device_name_of(class);
    TEXT_AUTO *text = text_copy(json_string_value(name));
    size_t length, other_length;
    for (int i = 1; *device_find_part(class, i, &length); i++) {
        const char *part = device_find_part(class, i, &length);
        bool differs = false;
        OBJECT_EACH(other, ignored, classes) {
            const char *its = device_find_part(other, i, &other_length);
            json_auto_t *other_name = device_name_of(other);
            differs = differs || (json_equal(name, other_name) &&
                                  (length != other_length || strncmp(part, its, length) != 0));
        }
        text = differs ? text_append(text, "/%.*s", (int)length, part) : text;
    }
    return json_string(text);
}

/* Adds the column DEVICE when the rows have several device classes. */
static void name_devices(json_t *rows)
{
    json_auto_t *classes = json_object();
    ARRAY_EACH(row, rows) {
        const char *class = field_string(row, "class");
        if (class) {
            json_object_set_new(classes, class, json_true());
        }
    }
    ARRAY_EACH(row, rows) {
        const char *class = field_string(row, "class");
        if (class && json_object_size(classes) > 1) {
            json_object_set_new(row, "device_shown", device_describe(class, classes));
        }
    }
}

/* ---- problems of trials ---------------------------------------------------------------------- */

/* Adds the problem to rows that have only a key: the notation of a config depends on the problem.
 * Keys without an answer have no problem in the database. */
static void rows_add_problems(struct ctl *c, json_t *rows)
{
    json_auto_t *filter = json_object(), *by_key = json_object();
    size_t n = 0;
    ARRAY_EACH(row, rows) {
        const json_t *key = json_object_get(row, "problem") ? NULL : json_object_get(row, "key");
        if (key && !json_equal(key, json_object_get(filter, "key"))) {
            json_object_set(filter, "key", (json_t *)(uintptr_t)key);
            n++;
        }
    }
    if (n > 1) {
        json_object_clear(filter);
    }
    struct gemmd_error e;
    TEXT_AUTO *text = text_dump(filter, 0);
    char *found = NULL;
    if (n > 0 && gemmd_list(c->g, "best", text, &found, &e) == 0) {
        json_auto_t *all = json_loads(found, JSON_ALLOW_NUL, NULL);
        ARRAY_EACH(best, all) {
            json_object_set(by_key, field_text(best, "key"), best);
        }
        gemmd_free(found);
    }
    ARRAY_EACH(row, rows) {
        const json_t *best = json_object_get(by_key, field_text(row, "key"));
        if (best && !json_object_get(row, "problem")) {
            json_object_set(row, "problem", json_object_get(best, "problem"));
            json_object_set(row, "op", json_object_get(best, "op"));
        }
    }
}

void rows_derive(const char *what, const json_t *baselines, json_t *rows)
{
    ARRAY_EACH(row, rows) {
        if (list_has("best,stale,history,portfolio", what)) {
            rows_derive_best(row);
        } else if (strcmp(what, "served") == 0) {
            result_derive(row);
        } else if (strcmp(what, "trials") == 0) {
            baselines_apply(baselines, row);
            json_object_set_new(row, "why", why_failed(row));
            result_target(row);
        }
    }
}

void rows_complete(struct ctl *c, const char *what, json_t *rows)
{
    name_devices(rows);
    if (list_has("trials,quarantine", what)) {
        rows_add_problems(c, rows);
    }
}

void rows_print_table(const struct ctl *c, const char *what, const json_t *rows)
{
    if (json_array_size(rows) > 0) {
        rows_print(c, what, rows);
    } else if (!c->quiet) {
        fprintf(stderr, "no rows\n");
    }
    if (json_array_size(rows) > 0 && strcmp(what, "trials") == 0 && !c->quiet) {
        baselines_say(rows);
    }
}

int rows_show(struct ctl *c, const char *what, const json_t *baselines, json_t *rows)
{
    rows_derive(what, baselines, rows);
    if (c->json) {
        return ctl_print_json(rows);
    }
    rows_complete(c, what, rows);
    rows_print_table(c, what, rows);
    json_decref(rows);
    return DONE;
}
