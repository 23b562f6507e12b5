/* SPDX-License-Identifier: Apache-2.0 */
/* The columns of all tables of answers and of the database's rows, and the derived columns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"

/* ---- columns -------------------------------------------------------------------------------- */

static const struct column columns[] = {
    {"AGE", "created_s", show_age, true},
    {"ARCH", "arch"},
    {"BASELINE us", "baseline_us", show_time, true},
    {"BUILD", "build"},
    {"COMPILED ms", "compile_ms", show_time, true},
    {"COMPILER", "compiler"},
    {"CONFIDENCE", "confidence"},
    {"CONFIG", "config", show_config},
    {"DEATHS", "deaths", NULL, true},
    {"DEVICE", "device_shown", NULL, false, true},
    {"DEVICE", "device"},
    {"DRIVER", "driver"},
    {"E", "problem.experts", NULL, true},
    {"ENDED", "ended_s", show_age, true},
    {"ENDING", "ending"},
    {"FAMILY", "family"},
    {"FLAGS", "flags"},
    {"%FLOOR", "floor_percent", show_percent, true},
    {"GB/s", "gbps", show_time, true},
    {"ID", "id", show_id, true},
    {"K", "problem.K", NULL, true},
    {"KEY", "key", show_id},
    {"KIND", "kind"},
    {"L2", "l2_bytes", show_bytes, true},
    {"M", "problem.M", NULL, true},
    {"MEASURED", "measured", NULL, true},
    {"MEMBER", "member", NULL, true},
    {"MEMORY", "memory_bytes", show_bytes, true},
    {"MIG", "mig"},
    {"MODE", "mode"},
    {"N", "problem.N", NULL, true},
    {"NAME", "name", NULL, false, true},
    {"OF", "members", NULL, true},
    {"PID", "pid", NULL, true},
    {"POWER W", "power_limit_w", NULL, true},
    {"REASON", "reason"},
    {"REASON", "why"},
    {"REGRET %", "regret_percent", show_percent, true},
    {"REGS", "registers", show_known, true},
    {"REGS/BLOCK", "regs_per_block", NULL, true},
    {"ROUND TRIP us", "round_trip_us", show_time, true, true},
    {"SIZE", "size", show_bytes, true},
    {"SMEM OPT-IN", "smem_optin", show_bytes, true},
    {"SMS", "sm_count", NULL, true},
    {"SOURCE", "source"},
    {"SPEEDUP", "speedup", show_ratio, true},
    {"SPILLS B", "spill_bytes", show_known, true},
    {"STAGE", "stage"},
    {"STARTED", "started_s", show_age, true},
    {"STATIC SMEM", "smem_static", show_bytes, true},
    {"STATUS", "status"},
    {"TARGET", "target"},
    {"TEXT", "text"},
    {"TFLOP/s", "tflops", show_time, true},
    {"TIER", "tier"},
    {"TIME us", "time_us", show_time, true},
    {"TOPK", "problem.topk", NULL, true},
    {"UID", "uid", NULL, true},
    {"USED", "used_s", show_age, true},
    {"UUID", "uuid"},
    {"VARIANT", "variant"},
    {"VS REF", "speedup", show_ratio, true},
    {"WARP", "warp_size", NULL, true},
};

static const char best_view[] =
    "KEY,DEVICE,MODE,M,N,K,E,TOPK,FLAGS,TIME us,TFLOP/s,GB/s,%FLOOR,VS REF,SOURCE,TARGET,MEASURED,"
    "CONFIDENCE,AGE,CONFIG";

/* The columns of each list: titles, or keys where titles are equal. */
static const struct {
    const char *what, *columns;
} views[] = {
    {"answers", "NAME,MODE,M,N,K,E,TOPK,FLAGS,TIME us,TFLOP/s,GB/s,%FLOOR,VS REF,TIER,SOURCE,"
                "TARGET,AGE,ROUND TRIP us,CONFIG"},
    {"best", best_view},
    {"history", best_view},
    {"trials", "KEY,DEVICE,STATUS,BASELINE us,TIME us,SPEEDUP,STAGE,TARGET,CONFIG,why"},
    {"modules", "ID,FAMILY,TARGET,REGS,SPILLS B,STATIC SMEM,SIZE,COMPILED ms,USED,COMPILER,FLAGS"},
    {"quarantine", "VARIANT,DEVICE,STATUS,DEATHS,AGE,KEY,DRIVER,CONFIG,REASON"},
    {"runs", "ID,device,DRIVER,COMPILER,BUILD,PID,STARTED,ENDED,ENDING"},
    {"devices", "UUID,NAME,ARCH,SMS,REGS/BLOCK,SMEM OPT-IN,WARP,L2,MEMORY,MIG,POWER W,DRIVER,"
                "COMPILER"},
    {"events", "ID,AGE,KIND,UID,TEXT"},
    {"portfolio", "MODE,DEVICE,M,N,K,E,TOPK,FLAGS,TARGET,MEMBER,OF,REGRET %,CONFIG"},
};

static const char *rows_find_view(const char *what)
{
    for (size_t i = 0; i < COUNT(views); i++) {
        if (strcmp(views[i].what, what) == 0) {
            return views[i].columns;
        }
    }
    return NULL;
}

bool rows_known(const char *what)
{
    return rows_find_view(what) && strcmp(what, "answers") != 0;
}

void rows_print(const char *what, const json_t *rows)
{
    struct column chosen[COUNT(columns)];
    size_t n = 0;
    char *names = strdup(rows_find_view(what)), *at = names;
    for (const char *name; (name = strsep(&at, ","));) {
        const struct column *c = columns;
        while (strcmp(c->title, name) != 0 && strcmp(c->key, name) != 0) {
            c++;
        }
        chosen[n++] = *c;
    }
    table_print(chosen, n, rows);
    free(names);
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

/* The device's name in a device class: the text before its first '/'. NULL: the row has no class.
 */
static json_t *device_name(const json_t *class)
{
    const char *text = json_string_value(class);
    return text ? json_stringn(text, strcspn(text, "/")) : NULL;
}

/* True when two device classes of the rows have the same device name (and different power limits,
 * for example). *several: the rows have at least two classes. */
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
    if (json_array_size(rows) == 0) {
        if (!c->quiet) {
            fprintf(stderr, "no rows\n");
        }
    } else {
        name_devices(rows);
        rows_print(what, rows);
        if (strcmp(what, "trials") == 0 && !c->quiet) {
            baselines_say(rows);
        }
    }
    json_decref(rows);
    return DONE;
}
