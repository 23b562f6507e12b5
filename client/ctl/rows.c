/* SPDX-License-Identifier: Apache-2.0 */
/* The columns of each list, and what people read off its rows beside them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/listing.h"

/* ---- columns -------------------------------------------------------------------------------- */

static const struct column best_columns[] = {
    {"KEY", "key", show_id, false, false},
    {"MODE", "mode", NULL, false, false},
    {"M", "problem.M", NULL, true, false},
    {"N", "problem.N", NULL, true, false},
    {"K", "problem.K", NULL, true, false},
    {"E", "problem.experts", NULL, true, false},
    {"TOPK", "problem.topk", NULL, true, false},
    {"FLAGS", "flags", NULL, false, false},
    {"TIME us", "time_us", show_time, true, false},
    {"TFLOP/s", "tflops", show_rate, true, false},
    {"GB/s", "gbps", show_rate, true, false},
    {"%FLOOR", "percent_of_floor", show_percent, true, false},
    {"VS REF", "speedup", show_ratio, true, false},
    {"SOURCE", "source", NULL, false, false},
    {"MEASURED", "measured", NULL, true, false},
    {"AGE", "created_s", show_age, true, false},
    {"CONFIG", "config", show_config, false, true},
};

static const struct column trial_columns[] = {
    {"KEY", "key", show_id, false, false},
    {"STATUS", "status", NULL, false, false},
    {"BASELINE us", "baseline_us", show_time, true, false},
    {"TIME us", "time_us", show_time, true, false},
    {"SPEEDUP", "speedup", show_ratio, true, false},
    {"STAGE", "stage", NULL, false, false},
    {"CONFIG", "config", show_config, false, true},
    {"REASON", "why", NULL, false, true},
};

static const struct column module_columns[] = {
    {"ID", "id", show_id, false, false},
    {"FAMILY", "family", NULL, false, false},
    {"TARGET", "target", NULL, false, false},
    {"REGS", "registers", show_known, true, false},
    {"SPILLS B", "spill_bytes", show_known, true, false},
    {"STATIC SMEM", "smem_static", show_bytes, true, false},
    {"SIZE", "size", show_bytes, true, false},
    {"COMPILED ms", "compile_ms", show_time, true, false},
    {"USED", "used_s", show_age, true, false},
    {"COMPILER", "compiler", NULL, false, false},
    {"FLAGS", "flags", NULL, false, true},
};

static const struct column quarantine_columns[] = {
    {"VARIANT", "variant", NULL, false, false},     {"STATUS", "status", NULL, false, false},
    {"DEATHS", "deaths", NULL, true, false},        {"AGE", "created_s", show_age, true, false},
    {"KEY", "key", show_id, false, false},          {"DRIVER", "driver", NULL, false, false},
    {"CONFIG", "config", show_config, false, true}, {"REASON", "reason", NULL, false, true},
};

static const struct column device_columns[] = {
    {"UUID", "uuid", NULL, false, false},
    {"NAME", "name", NULL, false, false},
    {"ARCH", "arch", NULL, false, false},
    {"SMS", "sm_count", NULL, true, false},
    {"REGS/BLOCK", "regs_per_block", NULL, true, false},
    {"SMEM OPT-IN", "smem_optin", show_bytes, true, false},
    {"WARP", "warp_size", NULL, true, false},
    {"L2", "l2_bytes", show_bytes, true, false},
    {"MEMORY", "memory_bytes", show_bytes, true, false},
    {"MIG", "mig", NULL, false, false},
    {"POWER W", "power_limit_w", NULL, true, false},
    {"DRIVER", "driver", NULL, false, false},
    {"COMPILER", "compiler", NULL, false, true},
};

static const struct column run_columns[] = {
    {"ID", "id", NULL, true, false},
    {"DEVICE", "device", NULL, false, false},
    {"DRIVER", "driver", NULL, false, false},
    {"COMPILER", "compiler", NULL, false, false},
    {"BUILD", "build", NULL, false, false},
    {"PID", "pid", NULL, true, false},
    {"STARTED", "started_s", show_age, true, false},
    {"ENDED", "ended_s", show_age, true, false},
    {"ENDING", "ending", NULL, false, true},
};

static const struct column event_columns[] = {
    {"ID", "id", NULL, true, false},      {"AGE", "created_s", show_age, true, false},
    {"KIND", "kind", NULL, false, false}, {"UID", "uid", NULL, true, false},
    {"TEXT", "text", NULL, false, true},
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
    double work = json_number_value(json_object_get(row, of));
    double us = json_number_value(json_object_get(row, "time_us"));
    if (work > 0 && us > 0) {
        json_object_set_new(row, name, json_real(work / us * scale));
    }
}

void rows_derive_best(json_t *row)
{
    set_rate(row, "tflops", "flops", 1e-6);
    set_rate(row, "gbps", "bytes", 1e-3);
    result_derive(row);
}

/* "shared_memory: 200 needed, 100 there", or the sentence. */
static json_t *why_failed(const json_t *row)
{
    const char *reason = json_string_value(json_object_get(row, "reason"));
    const char *resource = json_string_value(json_object_get(row, "resource"));
    if (reason && *reason) {
        return json_string(reason);
    }
    if (!resource || !*resource) {
        return json_string("");
    }
    return json_sprintf("%s: %lld needed, the limit is %lld", resource,
                        (long long)json_integer_value(json_object_get(row, "required")),
                        (long long)json_integer_value(json_object_get(row, "limit_")));
}

static void derive_trial(json_t *row)
{
    double ratio = json_number_value(json_object_get(row, "ratio"));
    double us = json_number_value(json_object_get(row, "time_us"));
    if (ratio > 0 && us > 0) {
        json_object_set_new(row, "speedup", json_real(1 / ratio));
        json_object_set_new(row, "baseline_us", json_real(us / ratio));
    }
    json_object_set_new(row, "why", why_failed(row));
}

static void derive(const char *what, json_t *rows)
{
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) {
        if (strcmp(what, "best") == 0 || strcmp(what, "history") == 0) {
            rows_derive_best(row);
        } else if (strcmp(what, "trials") == 0) {
            derive_trial(row);
        }
    }
}

int rows_show(const struct listing *l, json_t *rows)
{
    derive(l->what, rows);
    if (l->ctl.json) {
        return ctl_print_json(rows);
    }
    const struct view *v = view_of(l->what);
    if (json_array_size(rows) == 0) {
        if (!l->ctl.quiet) {
            fprintf(stderr, "no rows\n");
        }
    } else {
        table_print(v->columns, v->n, rows);
    }
    json_decref(rows);
    return DONE;
}
