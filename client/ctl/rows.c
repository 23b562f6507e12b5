/* SPDX-License-Identifier: Apache-2.0 */
/* The columns of each list, and what people read off its rows beside them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/listing.h"

/* ---- columns -------------------------------------------------------------------------------- */

static const struct column best_columns[] = {
    {"KEY", "key", show_id, false},
    {"MODE", "mode", NULL, false},
    {"M", "problem.M", NULL, true},
    {"N", "problem.N", NULL, true},
    {"K", "problem.K", NULL, true},
    {"E", "problem.experts", NULL, true},
    {"TOPK", "problem.topk", NULL, true},
    {"FLAGS", "flags", NULL, false},
    {"TIME us", "time_us", show_time, true},
    {"TFLOP/s", "tflops", show_rate, true},
    {"GB/s", "gbps", show_rate, true},
    {"%FLOOR", "floor_percent", show_percent, true},
    {"VS REF", "speedup", show_ratio, true},
    {"SOURCE", "source", NULL, false},
    {"TARGET", "target", NULL, false},
    {"MEASURED", "measured", NULL, true},
    {"CONFIDENCE", "confidence", NULL, false},
    {"AGE", "created_s", show_age, true},
    {"CONFIG", "config", show_config, false},
};

static const struct column trial_columns[] = {
    {"KEY", "key", show_id, false},
    {"STATUS", "status", NULL, false},
    {"BASELINE us", "baseline_us", show_time, true},
    {"TIME us", "time_us", show_time, true},
    {"SPEEDUP", "speedup", show_ratio, true},
    {"STAGE", "stage", NULL, false},
    {"TARGET", "target", NULL, false},
    {"CONFIG", "config", show_config, false},
    {"REASON", "why", NULL, false},
};

static const struct column module_columns[] = {
    {"ID", "id", show_id, false},
    {"FAMILY", "family", NULL, false},
    {"TARGET", "target", NULL, false},
    {"REGS", "registers", show_known, true},
    {"SPILLS B", "spill_bytes", show_known, true},
    {"STATIC SMEM", "smem_static", show_bytes, true},
    {"SIZE", "size", show_bytes, true},
    {"COMPILED ms", "compile_ms", show_time, true},
    {"USED", "used_s", show_age, true},
    {"COMPILER", "compiler", NULL, false},
    {"FLAGS", "flags", NULL, false},
};

static const struct column quarantine_columns[] = {
    {"VARIANT", "variant", NULL, false},      {"STATUS", "status", NULL, false},
    {"DEATHS", "deaths", NULL, true},         {"AGE", "created_s", show_age, true},
    {"KEY", "key", show_id, false},           {"DRIVER", "driver", NULL, false},
    {"CONFIG", "config", show_config, false}, {"REASON", "reason", NULL, false},
};

static const struct column device_columns[] = {
    {"UUID", "uuid", NULL, false},
    {"NAME", "name", NULL, false},
    {"ARCH", "arch", NULL, false},
    {"SMS", "sm_count", NULL, true},
    {"REGS/BLOCK", "regs_per_block", NULL, true},
    {"SMEM OPT-IN", "smem_optin", show_bytes, true},
    {"WARP", "warp_size", NULL, true},
    {"L2", "l2_bytes", show_bytes, true},
    {"MEMORY", "memory_bytes", show_bytes, true},
    {"MIG", "mig", NULL, false},
    {"POWER W", "power_limit_w", NULL, true},
    {"DRIVER", "driver", NULL, false},
    {"COMPILER", "compiler", NULL, false},
};

static const struct column run_columns[] = {
    {"ID", "id", NULL, true},
    {"DEVICE", "device", NULL, false},
    {"DRIVER", "driver", NULL, false},
    {"COMPILER", "compiler", NULL, false},
    {"BUILD", "build", NULL, false},
    {"PID", "pid", NULL, true},
    {"STARTED", "started_s", show_age, true},
    {"ENDED", "ended_s", show_age, true},
    {"ENDING", "ending", NULL, false},
};

static const struct column event_columns[] = {
    {"ID", "id", NULL, true},   {"AGE", "created_s", show_age, true}, {"KIND", "kind", NULL, false},
    {"UID", "uid", NULL, true}, {"TEXT", "text", NULL, false},
};

static const struct column portfolio_columns[] = {
    {"MODE", "mode", NULL, false},
    {"M", "problem.M", NULL, true},
    {"N", "problem.N", NULL, true},
    {"K", "problem.K", NULL, true},
    {"E", "problem.experts", NULL, true},
    {"TOPK", "problem.topk", NULL, true},
    {"FLAGS", "flags", NULL, false},
    {"TARGET", "target", NULL, false},
    {"MEMBER", "member", NULL, true},
    {"OF", "members", NULL, true},
    {"REGRET %", "regret_percent", show_percent, true},
    {"CONFIG", "config", show_config, false},
};

static const struct view {
    const char *what;
    const struct column *columns;
    size_t n;
    bool classes; /* the rows may be of several device classes */
} views[] = {
    {"best", best_columns, COUNT(best_columns), true},
    {"history", best_columns, COUNT(best_columns), true},
    {"trials", trial_columns, COUNT(trial_columns), true},
    {"modules", module_columns, COUNT(module_columns), false},
    {"quarantine", quarantine_columns, COUNT(quarantine_columns), true},
    {"runs", run_columns, COUNT(run_columns), false},
    {"devices", device_columns, COUNT(device_columns), false},
    {"events", event_columns, COUNT(event_columns), false},
    {"portfolio", portfolio_columns, COUNT(portfolio_columns), true},
};

static const struct view *view_of(const char *what)
{
    for (size_t i = 0; i < COUNT(views); i++) {
        if (strcmp(views[i].what, what) == 0) {
            return &views[i];
        }
    }
    return NULL;
}

bool rows_known(const char *what)
{
    return view_of(what) != NULL;
}

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

/* "shared_memory: 200 needed, 100 there", or the sentence. */
static json_t *why_failed(const json_t *row)
{
    const char *reason = field_string(row, "reason");
    const char *resource = field_string(row, "resource");
    if (reason && *reason) {
        return json_string(reason);
    }
    if (!resource || !*resource) {
        return json_string("");
    }
    return json_sprintf("%s: %lld needed, the limit is %lld", resource, field_int(row, "required"),
                        field_int(row, "limit_value"));
}

static void derive_trial(json_t *row)
{
    double ratio = field_number(row, "ratio");
    double us = field_number(row, "time_us");
    if (ratio > 0 && us > 0) {
        json_object_set_new(row, "speedup", json_real(1 / ratio));
        json_object_set_new(row, "baseline_us", json_real(us / ratio));
    }
    json_object_set_new(row, "baseline", json_string("analytic default"));
    json_object_set_new(row, "why", why_failed(row));
    result_target(row);
}

static void rows_derive_columns(const char *what, json_t *rows)
{
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) {
        if (strcmp(what, "best") == 0 || strcmp(what, "history") == 0 ||
            strcmp(what, "portfolio") == 0) {
            rows_derive_best(row);
        } else if (strcmp(what, "trials") == 0) {
            derive_trial(row);
        }
    }
}

/* ---- rows of several devices ---------------------------------------------------------------- */

/* Of a class: what stands before its first '/'. NULL: the row has none. */
static json_t *device_name(const json_t *class)
{
    const char *text = json_string_value(class);
    return text ? json_stringn(text, strcspn(text, "/")) : NULL;
}

/* Whether one name stands for two of the rows' classes (of another power limit, say); *several:
 * there are two classes at all. */
static bool share_names(const json_t *rows, bool *several)
{
    json_t *classes = json_object(); /* by name */
    bool shared = false;
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)(uintptr_t)rows, i, row) {
        json_t *class = json_object_get(row, "class"), *name = device_name(class);
        const json_t *known = name ? json_object_get(classes, json_string_value(name)) : NULL;
        shared = shared || (known && !json_equal(known, class));
        if (name && !known) {
            json_object_set(classes, json_string_value(name), class);
        }
        json_decref(name);
    }
    *several = shared || json_object_size(classes) > 1;
    json_decref(classes);
    return shared;
}

/* Rows of one device class need no column that says so; of several they could not be told apart
 * without one. */
static bool name_devices(json_t *rows)
{
    bool several, whole = share_names(rows, &several);
    size_t i;
    json_t *row;
    if (!several) {
        return false;
    }
    json_array_foreach(rows, i, row) {
        json_t *class = json_object_get(row, "class");
        json_object_set_new(row, "device", whole ? json_incref(class) : device_name(class));
    }
    return true;
}

static void print_rows(const struct view *v, json_t *rows)
{
    enum { BEHIND = 1, COLUMNS_MAX = 24 }; /* the first column, a key in most lists */
    struct column columns[COLUMNS_MAX];
    size_t n = 0;
    bool several = v->classes && name_devices(rows);
    for (size_t i = 0; i < v->n && n < COLUMNS_MAX - 1; i++) {
        if (i == BEHIND && several) {
            columns[n++] = (struct column){"DEVICE", "device", NULL, false};
        }
        columns[n++] = v->columns[i];
    }
    table_print(columns, n, rows);
}

int rows_show(const struct ctl *c, const char *what, const json_t *baselines, json_t *rows)
{
    rows_derive_columns(what, rows);
    baselines_apply(baselines, rows);
    if (c->json) {
        return ctl_print_json(rows);
    }
    const struct view *v = view_of(what);
    if (json_array_size(rows) == 0) {
        if (!c->quiet) {
            fprintf(stderr, "no rows\n");
        }
    } else {
        print_rows(v, rows);
        if (strcmp(what, "trials") == 0 && !c->quiet) {
            baselines_say(rows);
        }
    }
    json_decref(rows);
    return DONE;
}
