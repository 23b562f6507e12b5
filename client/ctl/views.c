/* SPDX-License-Identifier: Apache-2.0 */
/* The columns of all tables of answers and of the database's rows. */
#include <string.h>
#include <strings.h>

#include "client/ctl/ctl.h"

/* ---- columns -------------------------------------------------------------------------------- */

static const struct column columns[] = {
    {"AGE", "created_s", show_age, true},
    {"ANSWERS", "answers", NULL, true},
    {"ARCH", "arch"},
    {"BASELINE us", "baseline_us", show_time, true},
    {"BEST us", "best_us", show_time, true},
    {"BUILD", "build"},
    {"COMPILED ms", "compile_ms", show_time, true},
    {"COMPILER", "compiler"},
    {"CONFIDENCE", "confidence", .optional = true},
    {"CONFIG", "short", .most = 56},
    {"DEATHS", "deaths", NULL, true},
    {"DEFAULT", "defaults", NULL, true},
    {"DEVICE", "device_shown", .optional = true, .most = 32},
    {"DEVICE", "device"},
    {"DRIVER", "driver"},
    {"E", "problem.experts", NULL, true, true},
    {"ENDED", "ended_s", show_age, true},
    {"ENDING", "ending", .prose = true},
    {"EXACT", "exact", NULL, true},
    {"EXACT OVER", "exactness", show_exactness},
    {"FAMILY", "family"},
    {"FIRST", "first_s", show_age, true},
    {"FLAGS", "flags", .optional = true, .most = 32},
    {"%FLOOR", "floor_percent", show_floor, true},
    {"FROM", "origin"},
    {"GB/s", "gbps", show_time, true},
    {"ID", "id", show_id, true},
    {"JOB", "job"},
    {"K", "problem.K", NULL, true, true},
    {"KEY", "key", show_id},
    {"KEYS", "keys", NULL, true},
    {"KIND", "kind"},
    {"L2", "l2_bytes", show_bytes, true},
    {"LAST", "last_s", show_age, true},
    {"LOST us", "lost_us", show_time, true},
    {"M", "problem.M", NULL, true, true},
    {"MEASURED", "measured", NULL, true},
    {"MEMBER", "member", NULL, true},
    {"MEMORY", "memory_bytes", show_bytes, true},
    {"MIG", "mig"},
    {"MODE", "mode", .most = 24},
    {"N", "problem.N", NULL, true, true},
    {"NAME", "name", NULL, false, true},
    {"NEAR", "near", NULL, true},
    {"NUMBER", "seq", NULL, true},
    {"OF", "members", NULL, true},
    {"ORDER", "exactness.order"},
    {"PARAMETERS", "config", show_config},
    {"PID", "pid", NULL, true},
    {"PORTFOLIO", "portfolio", NULL, true},
    {"POWER W", "power_limit_w", NULL, true},
    {"READ UP TO", "cursor", NULL, true},
    {"REASON", "reason", .optional = true, .prose = true},
    {"REASON", "why", .optional = true, .prose = true},
    {"REGRET %", "regret_percent", show_percent, true},
    {"REGS", "registers", show_known, true},
    {"REGS/BLOCK", "regs_per_block", NULL, true},
    {"ROW", "generation", NULL, true},
    {"ROUND TRIP us", "round_trip_us", show_time, true, true},
    {"SERVER", "server"},
    {"SERVED us", "served_us", show_time, true},
    {"SINCE", "since_s", show_age, true},
    {"SIZE", "size", show_bytes, true},
    {"SMEM OPT-IN", "smem_optin", show_bytes, true},
    {"SMS", "sm_count", NULL, true},
    {"SOURCE", "source"},
    {"SPEEDUP", "speedup", show_ratio, true},
    {"SPILLS B", "spill_bytes", show_known, true},
    {"STAGE", "stage"},
    {"STARTED", "started_s", show_age, true},
    {"STATE", "state"},
    {"STATIC SMEM", "smem_static", show_bytes, true},
    {"STATUS", "status"},
    {"TARGET", "target"},
    {"TEXT", "text", .prose = true},
    {"TFLOP/s", "tflops", show_time, true},
    {"TIER", "tier"},
    {"TIME us", "time_us", show_time, true},
    {"TOPK", "problem.topk", NULL, true, true},
    {"UID", "uid", NULL, true},
    {"USED", "used_s", show_age, true},
    {"UUID", "uuid"},
    {"VARIANT", "variant"},
    {"VS REF", "speedup", show_ratio, true},
    {"WARP", "warp_size", NULL, true},
};

#define BEST_COLUMNS                                                                               \
    "KEY,DEVICE,MODE,M,N,K,E,TOPK,FLAGS,TIME us,TFLOP/s,GB/s,%FLOOR,VS REF,SOURCE,TARGET,"         \
    "MEASURED,CONFIDENCE,AGE,EXACT OVER,ORDER,CONFIG,PARAMETERS"
#define BEST_ORDER                                                                                 \
    "KEY,CONFIG,DEVICE,MODE,M,N,K,TIME us,FLAGS,VS REF,E,SOURCE,TOPK,%FLOOR,CONFIDENCE,AGE,"       \
    "TARGET,TFLOP/s,GB/s,MEASURED"

/* The columns of each list: titles, or keys where titles are equal. `order`: the columns from the
 * most important one on; other columns are shown by --wide and --columns only. */
static const struct view {
    const char *what, *columns, *order;
} views[] = {
    {"answers",
     "NAME,MODE,M,N,K,E,TOPK,FLAGS,TIME us,TFLOP/s,GB/s,%FLOOR,VS REF,TIER,SOURCE,TARGET,AGE,"
     "ROUND TRIP us,EXACT OVER,ORDER,CONFIG,PARAMETERS",
     "MODE,CONFIG,M,N,K,TIME us,FLAGS,TIER,SOURCE,VS REF,E,NAME,TOPK,%FLOOR,AGE,TARGET,TFLOP/s,"
     "GB/s,ROUND TRIP us"},
    {"best", BEST_COLUMNS, BEST_ORDER},
    {"history", BEST_COLUMNS, BEST_ORDER},
    {"stale",
     "KEY,DEVICE,MODE,M,N,K,E,TOPK,FLAGS,TIME us,VS REF,SOURCE,TARGET,AGE,CONFIG,PARAMETERS,why",
     "KEY,MODE,M,N,K,why,SOURCE,E,TARGET,AGE,CONFIG,TIME us,VS REF,FLAGS,TOPK,DEVICE"},
    {"trials",
     "KEY,DEVICE,STATUS,BASELINE us,TIME us,SPEEDUP,STAGE,TARGET,AGE,CONFIG,PARAMETERS,why",
     "KEY,CONFIG,STATUS,DEVICE,TIME us,SPEEDUP,why,AGE,STAGE,BASELINE us,TARGET"},
    {"modules", "ID,FAMILY,TARGET,REGS,SPILLS B,STATIC SMEM,SIZE,COMPILED ms,USED,COMPILER,FLAGS",
     "ID,TARGET,REGS,SPILLS B,SIZE,USED,COMPILED ms,STATIC SMEM,FAMILY,COMPILER"},
    {"quarantine", "VARIANT,DEVICE,STATUS,DEATHS,AGE,KEY,DRIVER,CONFIG,PARAMETERS,REASON",
     "VARIANT,STATUS,REASON,KEY,AGE,DEATHS,DEVICE,DRIVER,CONFIG"},
    {"runs", "ID,device,DRIVER,COMPILER,BUILD,PID,STARTED,ENDED,ENDING",
     "ID,STARTED,ENDED,ENDING,device,PID,DRIVER,BUILD,COMPILER"},
    {"devices",
     "UUID,NAME,ARCH,SMS,REGS/BLOCK,SMEM OPT-IN,WARP,L2,MEMORY,MIG,POWER W,DRIVER,COMPILER",
     "UUID,NAME,ARCH,SMS,MEMORY,POWER W,MIG,DRIVER,L2,SMEM OPT-IN,REGS/BLOCK,WARP,COMPILER"},
    {"fleet", "SERVER,STATE,SINCE,READ UP TO,TEXT", "STATE,SERVER,READ UP TO,TEXT,SINCE"},
    {"fleet_rows", "NUMBER,KEY,STATE,FROM,ROW,REASON", "NUMBER,KEY,STATE,FROM,REASON,ROW"},
    {"events", "ID,AGE,KIND,UID,TEXT", "ID,TEXT,AGE,KIND,UID"},
    {"jobs", "JOB,UID,ANSWERS,EXACT,NEAR,PORTFOLIO,DEFAULT,KEYS,FIRST,LAST",
     "JOB,UID,ANSWERS,DEFAULT,LAST,EXACT,NEAR,PORTFOLIO,KEYS,FIRST"},
    {"served",
     "JOB,UID,KEY,TIER,MODE,M,N,K,E,TOPK,FLAGS,ANSWERS,FIRST,LAST,SERVED us,BEST us,LOST us,CONFIG,"
     "PARAMETERS,why",
     "KEY,TIER,MODE,M,N,K,ANSWERS,FIRST,LOST us,why,SERVED us,BEST us,E,JOB,LAST,FLAGS,TOPK,CONFIG,"
     "UID"},
    {"portfolio", "MODE,DEVICE,M,N,K,E,TOPK,FLAGS,TARGET,MEMBER,OF,REGRET %,CONFIG,PARAMETERS",
     "MODE,CONFIG,M,N,K,MEMBER,OF,REGRET %,DEVICE,FLAGS,E,TOPK,TARGET"},
};

static const struct view *rows_find_view(const char *what)
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
    return rows_find_view(what) && strcmp(what, "answers") != 0;
}

/* The column of a view's name: a title, or a key. */
static const struct column *rows_find_column(const char *name)
{
    const struct column *c = columns;
    while (strcmp(c->title, name) != 0 && strcmp(c->key, name) != 0) {
        c++;
    }
    return c;
}

/* Adds the columns of a list of names to `chosen`. Returns their number. */
static size_t rows_add_columns(const char *list, struct column chosen[CELLS_COLUMNS_MAX])
{
    TEXT_AUTO *names = text_copy(list);
    char *at = names;
    size_t n = 0;
    for (const char *name; (name = strsep(&at, ","));) {
        chosen[n++] = *rows_find_column(name);
    }
    return n;
}

/* ---- chosen columns -------------------------------------------------------------------------- */

/* True when a person's word names the column: its title, or the title's first word, or the key. */
static bool views_is_named(const struct column *c, const char *word)
{
    const size_t n = strcspn(c->title, " ");
    return strcasecmp(c->title, word) == 0 || strcasecmp(c->key, word) == 0 ||
           (strlen(word) == n && strncasecmp(c->title, word, n) == 0);
}

int columns_choose(const char *list, const struct column all[], size_t n_all,
                   struct column chosen[CELLS_COLUMNS_MAX], size_t *n)
{
    TEXT_AUTO *words = text_copy(list);
    char *at = words;
    int code = DONE;
    *n = 0;
    for (const char *word; code == DONE && (word = strsep(&at, ","));) {
        size_t i = 0;
        while (i < n_all && !views_is_named(&all[i], word)) {
            i++;
        }
        if (i < n_all && *n < CELLS_COLUMNS_MAX) {
            chosen[(*n)++] = all[i];
            continue;
        }
        TEXT_AUTO *known = NULL;
        for (i = 0; i < n_all; i++) {
            known = text_append(known, "%s%s", i > 0 ? ", " : "", all[i].title);
        }
        code = ctl_usage("--columns: there is no column \"%s\" here: %s", word, known);
    }
    return code;
}

int view_check_json(const struct ctl *c)
{
    return c->json && (c->wide || c->columns)
               ? ctl_usage("--wide and --columns choose the columns of a table: --json has all "
                           "fields; leave one of them out")
               : DONE;
}

int rows_check_view(const struct ctl *c, const char *what)
{
    struct column all[CELLS_COLUMNS_MAX], chosen[CELLS_COLUMNS_MAX];
    size_t n;
    int code = view_check_json(c);
    return code || !c->columns
               ? code
               : columns_choose(c->columns, all,
                                rows_add_columns(rows_find_view(what)->columns, all), chosen, &n);
}

void rows_print(const struct ctl *c, const char *what, const json_t *rows)
{
    const struct view *view = rows_find_view(what);
    struct column all[CELLS_COLUMNS_MAX], chosen[CELLS_COLUMNS_MAX];
    size_t n = rows_add_columns(view->columns, all);
    ARRAY_EACH(row, rows) {
        notation_add(row);
        exactness_add(row);
    }
    if (c->columns && columns_choose(c->columns, all, n, chosen, &n) == DONE) {
        table_print(chosen, n, rows);
    } else if (c->wide) {
        table_print(all, n, rows);
    } else if (table_print_fitted(all, n, view->order, rows) && !c->quiet) {
        text_remark("\"...\" stands for a long value, which --wide shows");
    }
}
