/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The baseline of a trial is cuBLAS called for each expert, when the daemon has measured cuBLAS for
 * the key; else the run's reference kernel. Both are compared by their ratio to the reference
 * kernel of their own runs, so that a baseline of another run serves too.
 */
#include "client/ctl/ctl.h"

/* Makes a baseline's name, as "cublas 13.0.1 over the experts". */
static json_t *baselines_make_name(const json_t *trial)
{
    const json_t *config = json_object_get(trial, "config");
    json_int_t v = field_int(config, "version");
    return json_sprintf("%s %lld.%lld.%lld over the experts", field_text(config, "library"),
                        (long long)v / 10000, (long long)v / 100 % 100, (long long)v % 100);
}

static json_t *baselines_fetch(struct ctl *c, const json_t *key, int *code)
{
    json_t *filter = json_pack("{s:s}", "stage", "baseline"); /* listed by id: the oldest first */
    json_t *found = json_object();
    if (key) {
        json_object_set(filter, "key", (json_t *)(uintptr_t)key);
    }
    json_auto_t *rows = ctl_list(c, "trials", filter, code);
    ARRAY_EACH(row, rows) {
        const json_t *ratio = json_object_get(row, "ratio");
        if (field_is(row, "stage", "baseline") && json_number_value(ratio) > 0) {
            /* rows come oldest first, so the newest baseline of a key stays */
            json_object_set_new(
                found, field_text(row, "key"),
                json_pack("{s:o, s:O}", "name", baselines_make_name(row), "ratio", ratio));
        }
    }
    return found;
}

void baselines_apply(const json_t *baselines, json_t *row)
{
    const json_t *baseline = json_object_get(baselines, field_text(row, "key"));
    const double ratio = field_number(row, "ratio"), us = field_number(row, "time_us");
    if (ratio > 0 && us > 0) {
        const double speedup = (baseline ? field_number(baseline, "ratio") : 1) / ratio;
        json_object_set_new(row, "speedup", json_real(speedup));
        json_object_set_new(row, "baseline_us", json_real(us * speedup));
    }
    json_object_set_new(row, "baseline",
                        baseline ? json_incref(json_object_get(baseline, "name"))
                                 : json_string("analytic default"));
}

/* ---- trials by speedup ----------------------------------------------------------------------- */

/* Sorts the rows from the highest speedup down; the daemon can sort only by the ratio to the
 * reference kernel. */
static void baselines_rank_rows(const json_t *baselines, json_t *rows)
{
    static const char *const order[] = {"-speedup", NULL};
    ARRAY_EACH(row, rows) {
        baselines_apply(baselines, row);
    }
    rows_sort(rows, order);
}

/* Applies the filter's offset and limit to all rows, or to the failed rows. Takes over `rows`. */
static json_t *baselines_cut_page(json_t *rows, const json_t *filter, bool failed)
{
    const json_t *limit = json_object_get(filter, "limit");
    json_int_t seen = 0, offset = field_int(filter, "offset");
    json_t *page = json_array();
    ARRAY_EACH(row, rows) {
        bool full = limit && (json_int_t)json_array_size(page) >= json_integer_value(limit);
        const bool chosen = !failed || !list_has("ok,aborted,baseline", field_text(row, "status"));
        if (chosen && seen++ >= offset && !full) {
            json_array_append(page, row);
        }
    }
    json_decref(rows);
    return page;
}

/* The daemon cannot sort by baselines or select failed rows. In both cases gemmctl fetches all rows
 * and applies --offset and --top itself. */
json_t *baselines_list(struct ctl *c, json_t *filter, bool failed, json_t **baselines, int *code)
{
    const json_t *key = json_object_get(filter, "key");
    *baselines = baselines_fetch(c, key, code);
    const bool ranked =
        !key && json_object_size(*baselines) > 0 && field_is(filter, "sort", "-speedup");
    if (*code || (!ranked && !failed)) {
        return *code ? NULL : ctl_list(c, "trials", json_incref(filter), code);
    }
    json_t *wanted = json_copy(filter);
    json_object_del(wanted, "limit");
    json_object_del(wanted, "offset");
    json_t *rows = ctl_list(c, "trials", wanted, code);
    if (rows && ranked) {
        baselines_rank_rows(*baselines, rows);
    }
    return rows ? baselines_cut_page(rows, filter, failed) : NULL;
}

/* True for a row of grouped_gemm on a GPU, for which gemmd may have measured cuBLAS. */
static bool cublas_can(const json_t *row)
{
    return field_is(row, "family", "grouped_gemm") && !field_is(row, "target", "cpu");
}

void baselines_say(const json_t *rows)
{
    size_t with = 0, n = json_array_size(rows);
    const json_t *last = NULL;
    bool can = false;
    ARRAY_EACH(row, rows) {
        bool library = !field_is(row, "baseline", "analytic default");
        with += library;
        last = library ? row : last;
        can = can || cublas_can(row);
    }
    if (last) {
        text_remark(
            "baseline: %s, rows in expert order, nothing permuted%s", field_text(last, "baseline"),
            with < n ? "; of keys without it, the run's reference kernel (analytic default)" : "");
    } else {
        text_remark(
            "baseline: the run's reference kernel, which is the analytic default%s",
            can ? ": cuBLAS has not been measured for these rows (a GPU's gemmd does it when idle)"
                : "");
    }
}
