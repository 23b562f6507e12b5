/* SPDX-License-Identifier: Apache-2.0 */
/* Problems, configs and times of custom ops, for readers of other tuners' files. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/ctl/formats.h"
#include "proto/record.h"

json_t *custom_make_problem(const struct custom_file *f, const char *op)
{
    return f->problem ? json_deep_copy(f->problem) : json_pack("{ss}", "op", op);
}

json_t *custom_make_row(json_t *problem)
{
    json_t *row = json_pack("{sO, sO}", "op", json_object_get(problem, "op"), "problem", problem);
    json_object_del(problem, "op");
    json_decref(problem);
    return row;
}

json_t *custom_read_config(const json_t *object, const char *where)
{
    static struct record r;
    struct error e;
    json_auto_t *config = json_object();
    OBJECT_EACH(name, v, object) {
        if (json_is_object(v) || json_is_array(v)) {
            ctl_failed("%s: %.60s must be a number, a text, or true or false", where, name);
            return NULL;
        }
        if (!json_is_null(v)) {
            json_object_set(config, name, v);
        }
    }
    TEXT_AUTO *text = text_of_json(config);
    if (json_object_size(config) == 0 || json_object_get(config, "op")) {
        ctl_failed("%s: no config of a kernel", where);
    } else if (record_parse(&r, text, &e)) {
        ctl_failed("%s: %s", where, e.text);
    } else {
        return json_incref(config);
    }
    return NULL;
}

json_t *custom_sort_trials(const json_t *row)
{
    static const char *const order[] = {"time_us", NULL};
    json_t *sorted = json_array();
    ARRAY_EACH(t, json_object_get(row, "trials")) {
        if (field_number(t, "time_us") > 0) {
            json_array_append(sorted, t);
        }
    }
    rows_sort(sorted, order);
    return sorted;
}

void custom_choose_best(json_t *row)
{
    static const char *const fields[] = {"config", "time_us", "created_s"};
    json_auto_t *sorted = custom_sort_trials(row);
    for (size_t i = 0; i < COUNT(fields); i++) {
        json_object_set(row, fields[i], json_object_get(json_array_get(sorted, 0), fields[i]));
    }
}

/* ---- fields of problems ---------------------------------------------------------------------- */

/* Fields of gemmd.triton's problems whose text is a list of further fields, "N=4096,x.dtype=...".
 */
static const char *const lists[] = {"arguments", "constants"};

/* The value of `name` in "M=1,N=2"; *n: its length. NULL: no such name. */
static const char *custom_find_in_list(const char *list, const char *name, size_t *n)
{
    const size_t length = strlen(name);
    for (const char *at = list; at && *at;) {
        const size_t size = strcspn(at, ",");
        if (size > length && at[length] == '=' && strncmp(at, name, length) == 0) {
            *n = size - length - 1;
            return at + length + 1;
        }
        at += size + (at[size] == ',');
    }
    return NULL;
}

json_t *custom_find(const json_t *problem, const char *name)
{
    json_t *own = json_object_get(problem, name);
    for (size_t i = 0; !own && i < COUNT(lists); i++) {
        size_t n;
        const char *at = custom_find_in_list(field_string(problem, lists[i]), name, &n);
        TEXT_AUTO *text = at ? strndup(at, n) : NULL;
        int64_t number;
        if (text) {
            return text_read_number(text, INT64_MIN, INT64_MAX, &number) ? json_integer(number)
                                                                         : json_string(text);
        }
    }
    return json_incref(own);
}

void custom_set(json_t *problem, const char *name, const json_t *value)
{
    for (size_t i = 0; !json_object_get(problem, name) && i < COUNT(lists); i++) {
        const char *list = field_string(problem, lists[i]);
        size_t n;
        const char *at = custom_find_in_list(list, name, &n);
        if (!at) {
            continue;
        }
        TEXT_AUTO *text = json_is_string(value) ? text_copy(json_string_value(value))
                                                : text_dump(value, JSON_ENCODE_ANY);
        json_t *changed = json_sprintf("%.*s%s%s", (int)(at - list), list, text, at + n);
        json_object_set_new(problem, lists[i], changed);
        return;
    }
    json_object_set(problem, name, (json_t *)(uintptr_t)value);
}

/* ---- times ----------------------------------------------------------------------------------- */

char *custom_write_time(int64_t unix_s)
{
    const time_t t = unix_s;
    struct tm tm;
    char text[64];
    return gmtime_r(&t, &tm) && strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S+00:00", &tm)
               ? text_copy(text)
               : NULL;
}

bool custom_read_time(const char *text, int64_t *unix_s)
{
    struct tm tm = {0};
    int end = 0, zone_h = 0, zone_min = 0;
    char sign[2] = "+";
    if (sscanf(text, "%4d-%2d-%2d%*1[ T]%2d:%2d:%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
               &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &end) != 6 ||
        tm.tm_year < 1970 || tm.tm_mon < 1 || tm.tm_mon > 12) {
        return false;
    }
    text += end;
    text += *text == '.' ? 1 + strspn(text + 1, "0123456789") : 0;
    if (*text && strcmp(text, "Z") != 0 &&
        sscanf(text, "%1[+-]%2d:%2d%n", sign, &zone_h, &zone_min, &end) != 3) {
        return false;
    }
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    const int64_t offset = zone_h * 3600 + zone_min * 60;
    *unix_s = timegm(&tm) - (*sign == '-' ? -offset : offset);
    return *unix_s >= 0;
}
