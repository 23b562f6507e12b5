/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of custom ops for writers of other tuners' files: all trials, and one row for each problem.
 */
#include "client/ctl/formats.h"

/* ---- trials ---------------------------------------------------------------------------------- */

/* The fields of a trial that the method `record` takes. NULL for a config that crashed or hung: it
 * may work next time. */
static json_t *plain_trial(const json_t *t)
{
    static const char *const names[] = {"config", "status", "time_us", "reason", "created_s"};
    const char *status = field_text(t, "status");
    json_t *plain = !*status || list_has("crashed,hung", status) ? NULL : json_object();
    for (size_t i = 0; plain && i < COUNT(names); i++) {
        json_t *v = json_object_get(t, names[i]);
        if (!json_is_null(v)) {
            json_object_set(plain, names[i], v); /* NULL is not set */
        }
    }
    return plain;
}

int custom_add_trials(struct ctl *c, const json_t *rows)
{
    int code = DONE;
    ARRAY_EACH(row, rows) {
        if (!result_is_custom(field_string(row, "op"))) {
            continue;
        }
        json_auto_t *list = ctl_list(
            c, "trials", json_pack("{sO, ss}", "key", json_object_get(row, "key"), "sort", "-id"),
            &code);
        if (!list) {
            return code;
        }
        json_t *trials = json_array();
        ARRAY_EACH(t, list) {
            json_array_append_new(trials, plain_trial(t)); /* NULL is not appended */
        }
        json_object_set_new(row, "trials", trials);
    }
    return DONE;
}

/* ---- one row for each problem ---------------------------------------------------------------- */

/* Adds the trials of configs that `found`, {config's text: trial}, lacks. */
static void custom_add_new_trials(json_t *found, const json_t *trials)
{
    ARRAY_EACH(t, trials) {
        const json_t *config = json_object_get(t, "config");
        TEXT_AUTO *text =
            json_is_object(config) ? text_dump(config, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
        if (text && !json_object_get(found, text)) {
            json_object_set(found, text, t);
        }
    }
}

/* Adds the row's own config and time as a trial to `found`, unless it has one: a client may have
 * put the answer without recording a trial. */
static void custom_add_answer(const json_t *row, json_t *found)
{
    json_auto_t *trials = json_array();
    if (field_number(row, "time_us") > 0) {
        json_array_append_new(trials, json_pack("{sO, ss, sO, sO*}", "config",
                                                json_object_get(row, "config"), "status", "ok",
                                                "time_us", json_object_get(row, "time_us"),
                                                "created_s", json_object_get(row, "created_s")));
    }
    custom_add_new_trials(found, trials);
}

/* Turns {config's text: trial}, newest first, into an array, oldest first. */
static json_t *custom_list_trials(const json_t *found)
{
    json_t *trials = json_array();
    OBJECT_EACH(text, t, found) {
        json_array_insert(trials, 0, t);
    }
    return trials;
}

bool custom_is_faster(const json_t *row, const json_t *before)
{
    const double us = field_number(row, "time_us"), than_us = field_number(before, "time_us");
    return us > 0 && (than_us <= 0 || us < than_us);
}

/* Adds a row to `merged`, {problem's text: row}, or merges it with the row of the same problem. */
static void custom_merge_row(json_t *merged, json_t *row)
{
    static const char *const answer[] = {"config", "time_us", "created_s", "key", "generation"};
    json_auto_t *problem = json_copy(json_object_get(row, "problem"));
    json_object_del(problem, "user");
    json_object_set(row, "problem", problem);
    json_auto_t *whole = result_problem(row);
    TEXT_AUTO *text = text_of_json(whole);
    json_t *before = json_object_get(merged, text);
    json_auto_t *found = before ? json_incref(json_object_get(before, "found")) : json_object();
    custom_add_new_trials(found, json_object_get(row, "trials"));
    custom_add_answer(row, found);
    if (!before) {
        json_object_set(row, "found", found);
        json_object_set(merged, text, row);
    }
    for (size_t i = 0; before && custom_is_faster(row, before) && i < COUNT(answer); i++) {
        json_object_set(before, answer[i], json_object_get(row, answer[i]));
    }
}

json_t *custom_rows(struct writing *w, int *code)
{
    json_auto_t *ours = json_array(), *merged = json_object(), *rows = json_array();
    ARRAY_EACH(row, w->rows) {
        if (result_is_custom(field_string(row, "op"))) {
            json_array_append(ours, row);
        } else {
            writing_skip(w, row, "the format is of custom ops");
        }
    }
    *code = custom_add_trials(&w->s->ctl, ours);
    ARRAY_EACH(row, ours) {
        if (*code == DONE) {
            custom_merge_row(merged, row);
        }
    }
    OBJECT_EACH(text, row, merged) {
        json_object_set_new(row, "trials", custom_list_trials(json_object_get(row, "found")));
        json_array_append(rows, row);
    }
    return *code ? NULL : json_incref(rows);
}
