/* SPDX-License-Identifier: Apache-2.0 */
/* The columns of each list, and the derived columns of its rows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"

/* ---- columns -------------------------------------------------------------------------------- */

static const struct column best_columns[] = {
    {"KEY", "key", show_id},
    {"DEVICE", "device_shown", NULL, false, true},
    {"MODE", "mode"},
    {"M", "problem.M", NULL, true},
    {"N", "problem.N", NULL, true},
    {"K", "problem.K", NULL, true},
    {"E", "problem.experts", NULL, true},
    {"TOPK", "problem.topk", NULL, true},
    {"FLAGS", "flags"},
    {"TIME us", "time_us", show_time, true},
    {"TFLOP/s", "tflops", show_time, true},
    {"GB/s", "gbps", show_time, true},
    {"%FLOOR", "floor_percent", show_percent, true},
    {"VS REF", "speedup", show_ratio, true},
    {"SOURCE", "source"},
    {"TARGET", "target"},
    {"MEASURED", "measured", NULL, true},
    {"CONFIDENCE", "confidence"},
    {"AGE", "created_s", show_age, true},
    {"CONFIG", "config", show_config},
};

static const struct column trial_columns[] = {
    {"KEY", "key", show_id},
    {"DEVICE", "device_shown", NULL, false, true},
    {"STATUS", "status"},
    {"BASELINE us", "baseline_us", show_time, true},
    {"TIME us", "time_us", show_time, true},
    {"SPEEDUP", "speedup", show_ratio, true},
    {"STAGE", "stage"},
    {"TARGET", "target"},
    {"CONFIG", "config", show_config},
    {"REASON", "why"},
};

static const struct column module_columns[] = {
    {"ID", "id", show_id},
    {"FAMILY", "family"},
    {"TARGET", "target"},
    {"REGS", "registers", show_known, true},
    {"SPILLS B", "spill_bytes", show_known, true},
    {"STATIC SMEM", "smem_static", show_bytes, true},
    {"SIZE", "size", show_bytes, true},
    {"COMPILED ms", "compile_ms", show_time, true},
    {"USED", "used_s", show_age, true},
    {"COMPILER", "compiler"},
    {"FLAGS", "flags"},
};

static const struct column quarantine_columns[] = {
    {"VARIANT", "variant"},
    {"DEVICE", "device_shown", NULL, false, true},
    {"STATUS", "status"},
    {"DEATHS", "deaths", NULL, true},
    {"AGE", "created_s", show_age, true},
    {"KEY", "key", show_id},
    {"DRIVER", "driver"},
    {"CONFIG", "config", show_config},
    {"REASON", "reason"},
};

static const struct column device_columns[] = {
    {"UUID", "uuid"},
    {"NAME", "name"},
    {"ARCH", "arch"},
    {"SMS", "sm_count", NULL, true},
    {"REGS/BLOCK", "regs_per_block", NULL, true},
    {"SMEM OPT-IN", "smem_optin", show_bytes, true},
    {"WARP", "warp_size", NULL, true},
    {"L2", "l2_bytes", show_bytes, true},
    {"MEMORY", "memory_bytes", show_bytes, true},
    {"MIG", "mig"},
    {"POWER W", "power_limit_w", NULL, true},
    {"DRIVER", "driver"},
    {"COMPILER", "compiler"},
};

static const struct column run_columns[] = {
    {"ID", "id", NULL, true},
    {"DEVICE", "device"},
    {"DRIVER", "driver"},
    {"COMPILER", "compiler"},
    {"BUILD", "build"},
    {"PID", "pid", NULL, true},
    {"STARTED", "started_s", show_age, true},
    {"ENDED", "ended_s", show_age, true},
    {"ENDING", "ending"},
};

static const struct column event_columns[] = {
    {"ID", "id", NULL, true}, {"AGE", "created_s", show_age, true},
    {"KIND", "kind"},         {"UID", "uid", NULL, true},
    {"TEXT", "text"},
};

static const struct column portfolio_columns[] = {
    {"MODE", "mode"},
    {"DEVICE", "device_shown", NULL, false, true},
    {"M", "problem.M", NULL, true},
    {"N", "problem.N", NULL, true},
    {"K", "problem.K", NULL, true},
    {"E", "problem.experts", NULL, true},
    {"TOPK", "problem.topk", NULL, true},
    {"FLAGS", "flags"},
    {"TARGET", "target"},
    {"MEMBER", "member", NULL, true},
    {"OF", "members", NULL, true},
    {"REGRET %", "regret_percent", show_percent, true},
    {"CONFIG", "config", show_config},
};

static const struct view {
    const char *what;
    const struct column *columns;
    size_t n;
} views[] = {
    {"best", best_columns, COUNT(best_columns)},
    {"history", best_columns, COUNT(best_columns)},
    {"trials", trial_columns, COUNT(trial_columns)},
    {"modules", module_columns, COUNT(module_columns)},
    {"quarantine", quarantine_columns, COUNT(quarantine_columns)},
    {"runs", run_columns, COUNT(run_columns)},
    {"devices", device_columns, COUNT(device_columns)},
    {"events", event_columns, COUNT(event_columns)},
    {"portfolio", portfolio_columns, COUNT(portfolio_columns)},
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

/* Makes "shared_memory: 200 needed, 100 there", or copies the trial's reason. */
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

/* A class's text before its first '/'; NULL when the row has no class. */
static json_t *device_name(const json_t *class)
{
    const char *text = json_string_value(class);
    return text ? json_stringn(text, strcspn(text, "/")) : NULL;
}

/* True when two classes of the rows share a name (with another power limit, for example). *several:
 * the rows have at least two classes. */
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

/* Adds the column DEVICE when the rows have several device classes. */
static void name_devices(json_t *rows)
{
    bool several, whole = share_names(rows, &several);
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) {
        json_t *class = json_object_get(row, "class");
        if (several && class) {
            json_object_set_new(row, "device_shown",
                                whole ? json_incref(class) : device_name(class));
        }
    }
}

int rows_show(const struct ctl *c, const char *what, const json_t *baselines, json_t *rows)
{
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) {
        if (list_has("best,history,portfolio", what)) {
            rows_derive_best(row);
        } else if (strcmp(what, "trials") == 0) {
            baselines_apply(baselines, row);
            json_object_set_new(row, "why", why_failed(row));
            result_target(row);
        }
    }
    if (c->json) {
        return ctl_print_json(rows);
    }
    const struct view *v = view_of(what);
    if (json_array_size(rows) == 0) {
        if (!c->quiet) {
            fprintf(stderr, "no rows\n");
        }
    } else {
        name_devices(rows);
        table_print(v->columns, v->n, rows);
        if (strcmp(what, "trials") == 0 && !c->quiet) {
            baselines_say(rows);
        }
    }
    json_decref(rows);
    return DONE;
}
