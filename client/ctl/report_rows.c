/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "client/ctl/report.h"

/* ---- lists ----------------------------------------------------------------------------------- */

json_t *report_fetch(struct report *r, const char *what, const char *sort, int limit,
                     long long *total, int *code)
{
    json_auto_t *page = ctl_call(
        &r->s->ctl, "list",
        json_pack("{ss, s{ss*, si}}", "what", what, "filter", "sort", sort, "limit", limit), code);
    json_t *rows = json_incref(json_object_get(page, "rows"));
    *total = field_int(page, "total");
    return rows;
}

int report_read_list(struct report *r, const char *what, const char *order, json_t *after,
                     const char *columns, bool (*add)(struct report *r, void *ctx, json_t *row),
                     void *ctx)
{
    int code = DONE;
    for (bool more = true; more && code == DONE;) {
        json_t *filter =
            json_pack("{so*, ss*}", "after", after ? json_incref(after) : NULL, "columns", columns);
        json_auto_t *page = ctl_call(&r->s->ctl, "list",
                                     json_pack("{ss, so}", "what", what, "filter", filter), &code);
        const json_t *rows = json_object_get(page, "rows");
        more = json_is_integer(json_object_get(page, "next")) && json_array_size(rows) > 0;
        ARRAY_EACH(row, rows) {
            json_decref(after);
            after = json_incref(json_object_get(row, order));
            if (!add(r, ctx, row)) {
                more = false;
                break;
            }
        }
    }
    json_decref(after);
    return code;
}

/* ---- sums ------------------------------------------------------------------------------------ */

static void report_count_speed(struct report *r, const json_t *row)
{
    static const double bounds[] = {1, 1.1, 1.25, 1.5, 2, 3};
    const double speedup = field_number(row, "speedup"), share = field_number(row, "floor_percent");
    size_t at = 0;
    while (at < COUNT(bounds) && speedup >= bounds[at]) {
        at++;
    }
    if (speedup > 0) {
        r->speedups[at]++;
    }
    if (share > 0) {
        r->floors[share >= 100 ? 10 : (size_t)(share / 10)]++;
    }
}

/* Keeps the newest stamp of each target, and counts the rows of each stamp: rows of an older stamp
 * are stale, as in the view `stale` of docs/store.md. */
static void report_count_stamp(struct report *r, const json_t *row)
{
    const char *stamp = field_text(row, "stamp");
    TEXT_AUTO *target = text_format("%s %s %s", field_text(row, "family"), field_text(row, "class"),
                                    field_text(row, "target")),
              *id = text_format("%s %s", target, stamp);
    const json_t *newest = json_object_get(r->newest, target);
    const char *source = field_text(row, "source");
    const bool is_measured = strcmp(source, "imported") != 0 &&
                             (strcmp(source, "fleet") != 0 || field_int(row, "trial") > 0);
    if (is_measured &&
        (!newest || field_int(row, "generation") > field_int(newest, "generation"))) {
        json_object_set_new(r->newest, target,
                            json_pack("{sO, sO}", "generation", json_object_get(row, "generation"),
                                      "stamp", json_object_get(row, "stamp")));
    }
    json_t *known = json_object_get(r->stamps, id);
    if (!known) {
        known =
            json_pack("{sO, sO, ss, sO, ss, si}", "family", json_object_get(row, "family"), "class",
                      json_object_get(row, "class"), "target", field_text(row, "target"), "stamp",
                      json_object_get(row, "stamp"), "of", target, "keys", 0);
        json_object_set_new(r->stamps, id, known);
    }
    notice_count(known, "keys", 1);
}

json_t *report_list_stale(struct report *r)
{
    json_t *rows = json_array();
    r->stale = 0;
    OBJECT_EACH(id, stamp, r->stamps) {
        const json_t *newest = json_object_get(r->newest, field_text(stamp, "of"));
        const char *text = field_string(newest, "stamp");
        if (text && strcmp(text, field_text(stamp, "stamp")) != 0) {
            json_object_set_new(stamp, "newest", json_string(text));
            json_array_append(rows, stamp);
            r->stale += (size_t)field_int(stamp, "keys");
        }
    }
    return rows;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void report_cut_lossy(json_t *rows)
{
    static const char *const order[] = {"-loss_us", "-time_us", NULL};
    rows_sort(rows, order);
    while (json_array_size(rows) > KEYS_SHOWN) {
        json_array_remove(rows, json_array_size(rows) - 1);
    }
}

/* Keeps the rows that lose most time: sorts and cuts the list whenever it has twice as many. */
static void report_keep_lossy(json_t *rows, json_t *row)
{
    json_array_append(rows, row);
    if (json_array_size(rows) >= 2 * KEYS_SHOWN) {
        report_cut_lossy(rows);
    }
}

static bool report_add_row(struct report *r, void *ctx, json_t *row)
{
    rows_derive_best(row);
    const double loss = field_number(row, "time_us") - field_number(row, "floor_us");
    const bool has_floor = field_number(row, "floor_us") > 0;
    json_object_set_new(row, "loss_us", json_real(has_floor && loss > 0 ? loss : 0));
    if (!json_object_get(row, "name")) {
        layers_name_row(r->models, row);
    }
    sums_add_row(&r->sums, row);
    report_count_speed(r, row);
    report_count_stamp(r, row);
    notice_count(r->classes, field_text(row, "class"), 1);
    notice_count(r->sources, field_text(row, "source"), 1);
    r->low += field_is(row, "confidence", "low");
    report_keep_lossy(r->lossy, row);
    if (json_is_integer(json_object_get(row, "trial")) ||
        result_is_custom(field_string(row, "op"))) {
        report_keep_lossy(r->tried, row);
    }
    if (*field_text(row, "doubt") && json_array_size(r->doubted) < ROWS_SHOWN) {
        json_array_append(r->doubted, row);
    }
    return layers_add_row(&r->layers, row);
}

/* ---- named problems -------------------------------------------------------------------------- */

/* Adds the row of a named problem, once for the problems of a bucket; or notes that it is missing.
 * `shown`: the answer of the method `show`; NULL: the key is unknown. */
static void report_add_shown(struct report *r, const json_t *named, json_t *shown, json_t *seen)
{
    json_t *best = json_object_get(shown, "best"), *name = json_object_get(named, "name");
    const char *key = field_text(shown, "key");
    if (!json_is_object(best)) {
        json_array_append(r->missing, (json_t *)(uintptr_t)named);
    } else if (notice_count(seen, key, 1) == 1) {
        if (name) {
            json_object_set(best, "name", name);
        }
        report_add_row(r, NULL, best);
    }
}

static int report_read_problems(struct report *r)
{
    json_auto_t *seen = json_object();
    ARRAY_EACH(named, r->s->problems.all) {
        struct gemmd_error e;
        json_auto_t *shown =
            ctl_try_call(&r->s->ctl, "show",
                         json_pack("{sO}", "problem", json_object_get(named, "problem")), &e);
        if (!shown && e.code != GEMMD_NOT_FOUND) {
            return ctl_fail(&e);
        }
        report_add_shown(r, named, shown, seen);
    }
    return DONE;
}

int report_complete_row(struct report *r, json_t *row)
{
    int code = DONE;
    if (!json_object_get(row, "config")) {
        json_t *filter = json_pack("{sO, sO}", "key", json_object_get(row, "key"), "generation",
                                   json_object_get(row, "generation"));
        json_auto_t *whole = ctl_list(&r->s->ctl, "best", filter, &code);
        json_object_update_missing(row, json_array_get(whole, 0));
    }
    return code;
}

static int report_complete_rows(struct report *r, const json_t *rows)
{
    int code = DONE;
    for (size_t i = 0; code == DONE && i < json_array_size(rows); i++) {
        code = report_complete_row(r, json_array_get(rows, i));
    }
    return code;
}

int report_read_rows(struct report *r)
{
    static const char columns[] = "key,op,family,problem,class,source,time_us,reference_us,"
                                  "floor_us,stamp,doubt,generation,trial";
    const bool named = problems_given(&r->s->problems);
    int code = named ? report_read_problems(r)
                     : report_read_list(r, "best", "key", NULL, columns, report_add_row, NULL);
    report_cut_lossy(r->lossy);
    report_cut_lossy(r->tried);
    code = code ? code : report_complete_rows(r, r->lossy);
    return code ? code : report_complete_rows(r, r->doubted);
}
