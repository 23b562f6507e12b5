/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What changed between two generations. Every published row has a generation of its own, so the
 * rows behind the first generation, up to the second, are the changes.
 */
#include "client/ctl/report.h"

enum { CHANGES_SHOWN = 60 };

struct changes {
    int64_t from, to;
    long long rows;
    json_t *keys;    /* owned: {key: number of rows} */
    json_t *sources; /* owned: {source: number of rows} */
    json_t *last;    /* owned: the newest rows, the oldest first */
};

static bool changes_add_row(struct report *r, void *ctx, json_t *row)
{
    struct changes *c = ctx;
    if (field_int(row, "generation") > c->to) {
        return false;
    }
    c->rows++;
    notice_count(c->keys, field_text(row, "key"), 1);
    notice_count(c->sources, field_text(row, "source"), 1);
    json_array_append(c->last, row);
    if (json_array_size(c->last) > CHANGES_SHOWN) {
        json_array_remove(c->last, 0);
    }
    return true;
}

/* The row of a key's history that served the key at a generation; NULL: none did. Borrowed. */
static json_t *changes_find_row(const json_t *history, int64_t generation)
{
    json_t *found = NULL;
    ARRAY_EACH(row, history) {
        found = field_int(row, "generation") <= generation ? row : found;
    }
    return found;
}

/* Lists the parameters that differ, as "num_stages 3 to 4, GROUP_SIZE_M 8 to 16"; malloc'ed. */
static char *changes_list_differences(const json_t *before, const json_t *after)
{
    char *text = text_copy("");
    OBJECT_EACH(name, v, after) {
        const json_t *old = json_object_get(before, name);
        if (!old || !json_equal((json_t *)(uintptr_t)old, v)) {
            TEXT_AUTO *was = show_plain(old), *is = show_plain(v);
            text = text_append(text, "%s%s %s to %s", text && *text ? ", " : "", name, was, is);
        }
    }
    return text;
}

static void changes_compare(json_t *row, const json_t *before)
{
    const double was = field_number(before, "speedup"), is = field_number(row, "speedup");
    TEXT_AUTO *difference =
        changes_list_differences(json_object_get(before, "config"), json_object_get(row, "config"));
    json_object_set(row, "before_us", json_object_get(before, "time_us"));
    json_object_set(row, "before_speedup", json_object_get(before, "speedup"));
    if (was > 0 && is > 0) {
        json_object_set_new(row, "gain", json_real(is / was));
    }
    json_object_set_new(row, "difference",
                        json_string(!difference || !*difference ? "the same config" : difference));
}

/* The key's row at the second generation, compared with the row at the first. A new reference;
 * NULL: the rows were evicted meanwhile, or *code after the error message. */
static json_t *changes_make_row(struct report *r, const struct changes *c, json_t *key, int *code)
{
    json_auto_t *history = ctl_list(&r->s->ctl, "history", json_pack("{sO}", "key", key), code);
    json_t *before = changes_find_row(history, c->from);
    json_t *row = json_incref(changes_find_row(history, c->to));
    if (row) {
        rows_derive_best(row);
        layers_name_row(r->models, row);
        json_object_set_new(row, "difference", json_string("new"));
    }
    if (row && before && row != before) {
        rows_derive_best(before);
        changes_compare(row, before);
    }
    return row;
}

/* The rows of the keys that changed last, the newest first. */
static json_t *changes_list(struct report *r, const struct changes *c, int *code)
{
    json_t *rows = json_array();
    json_auto_t *seen = json_object();
    for (size_t i = json_array_size(c->last); i-- > 0 && *code == DONE;) {
        json_t *key = json_object_get(json_array_get(c->last, i), "key");
        if (notice_count(seen, json_string_value(key), 1) == 1) {
            json_t *row = changes_make_row(r, c, key, code);
            if (row) {
                json_array_append_new(rows, row);
            }
        }
    }
    return rows;
}

static void changes_print(struct report *r, const struct changes *c, const json_t *rows)
{
    static const struct column columns[] = {
        {"MODEL AND LAYER", "name"},
        {"MODE", "mode"},
        {"M", "problem.M", NULL, true, true},
        {"SOURCE", "source"},
        {"us BEFORE", "before_us", show_time, true, true},
        {"us", "time_us", show_time, true},
        {"VS REF BEFORE", "before_speedup", show_ratio, true, true},
        {"VS REF", "speedup", show_ratio, true, true},
        {"GAIN", "gain", show_ratio, true, true},
        {"AGE", "created_s", show_age, true},
        {"GENERATION", "generation", NULL, true},
        {"KEY", "key", show_id},
        {"CHANGE", "difference"},
    };
    page_print(&r->page, "<p>From generation %lld to %lld: %lld rows of %zu keys",
               (long long)c->from, (long long)c->to, c->rows, json_object_size(c->keys));
    page_print_counts(&r->page, ": ", c->sources);
    page_print(&r->page, ". %s</p>\n",
               json_array_size(rows) < json_object_size(c->keys)
                   ? "The table has the newest; all other rows are only counted."
                   : "");
    if (c->rows > 0) {
        page_print(&r->page, "<p class=\"dim\">Times of two runs do not compare: GAIN compares the "
                             "speeds over each run's reference kernel.</p>\n");
    }
    page_print_table(&r->page, columns, COUNT(columns), rows);
}

int report_print_changes(struct report *r, int64_t from, int64_t to)
{
    struct changes c = {.from = from,
                        .to = to,
                        .keys = json_object(),
                        .sources = json_object(),
                        .last = json_array()};
    page_begin_section(&r->page, "changes", "What changed");
    int code = report_read_list(r, "history", "generation", json_integer(from), "key,source",
                                changes_add_row, &c);
    json_auto_t *rows = code ? NULL : changes_list(r, &c, &code);
    if (code == DONE) {
        changes_print(r, &c, rows);
    }
    page_end_section(&r->page);
    json_decref(c.keys);
    json_decref(c.sources);
    json_decref(c.last);
    return code;
}
