/* SPDX-License-Identifier: Apache-2.0 */
/* The sections of a report that are tables of rows and sums. */
#include <string.h>
#include <time.h>

#include "client/ctl/report.h"

/* ---- head ------------------------------------------------------------------------------------ */

static void report_print_tile(struct page *p, const char *name, const char *value)
{
    page_print(p, "<div><b>%s</b>%s</div>\n", value, name);
}

static void report_print_count(struct page *p, const char *name, long long n)
{
    TEXT_AUTO *text = text_format("%lld", n);
    report_print_tile(p, name, text);
}

static void report_print_rate(struct page *p, const char *name, double v, const char *unit)
{
    TEXT_AUTO *text = v > 0 ? text_format("%.*f%s", *unit == ' ' ? 1 : 2, v, unit) : text_copy("-");
    report_print_tile(p, name, text);
}

void report_print_head(struct report *r, long long quarantined)
{
    char now[64];
    struct tm tm;
    const time_t t = time(NULL);
    strftime(now, sizeof(now), "%Y-%m-%d %H:%M UTC", gmtime_r(&t, &tm));
    const json_t *s = r->status;
    page_print(&r->page,
               "<p>%s (%s, driver %s, %s), gemmd %s, generation %lld of <code>%s</code>, %s.</p>\n",
               field_text(s, "device.name"), field_text(s, "device.uuid"),
               field_text(s, "device.driver"), field_text(s, "device.compiler"),
               field_text(s, "build"), field_int(s, "generation"), field_text(s, "database"), now);
    page_print(&r->page,
               r->sums.keys == 0
                   ? "<div class=\"tiles\">\n"
                   : "<nav><a href=\"#layers\">Layers</a> <a href=\"#keys\">Keys</a> <a "
                     "href=\"#keys-drawn\">Landscapes</a> <a href=\"#trust\">Confidence</a> <a "
                     "href=\"#quarantine\">Quarantine</a> <a href=\"#changes\">Changes</a> <a "
                     "href=\"#log\">Runs and events</a></nav>\n<div class=\"tiles\">\n");
    report_print_count(&r->page, "keys with an answer", (long long)r->sums.keys);
    report_print_count(&r->page, "layers (E, N, K, mode)", (long long)r->layers.n);
    report_print_rate(&r->page, "speed over the reference kernel", sums_speedup(&r->sums), "x");
    report_print_rate(&r->page, "of the floor, all keys together", sums_floor_percent(&r->sums),
                      " %");
    report_print_count(&r->page, "disturbed or doubtful", (long long)r->sums.doubted);
    report_print_count(&r->page, "stale", (long long)r->stale);
    report_print_count(&r->page, "in quarantine", quarantined);
    report_print_count(&r->page, "not saved yet", field_int(s, "store.unsaved"));
    page_print(&r->page, "</div>\n");
}

/* ---- layers and keys ------------------------------------------------------------------------- */

static void report_print_missing(struct report *r)
{
    static const struct column columns[] = {
        {"MODEL AND LAYER", "name", NULL, false, true},
        {"MODE", "problem.mode", NULL, false, true},
        {"M", "problem.M", NULL, true, true},
        {"PROBLEM", "problem", show_config},
    };
    if (json_array_size(r->missing) > 0) {
        page_print(&r->page,
                   "<p>%zu of the %zu named problems have no answer of their own. <code>gemmctl "
                   "tune</code> with the same options tunes them.</p>\n",
                   json_array_size(r->missing), json_array_size(r->s->problems.all));
        page_print_table(&r->page, columns, COUNT(columns), r->missing);
    }
}

static void report_print_histograms(struct report *r)
{
    static const char *const floors[] = {"0+",  "10+", "20+", "30+", "40+", "50+",
                                         "60+", "70+", "80+", "90+", "100+"};
    static const char *const speedups[] = {"below 1", "1+", "1.1+", "1.25+", "1.5+", "2+", "3+"};
    page_print(&r->page, "<div class=\"plots\">\n");
    svg_print_histogram(&r->page, "Number of keys, by per cent of the floor", floors, r->floors,
                        COUNT(floors));
    svg_print_histogram(&r->page, "Number of keys, by speed over the reference kernel", speedups,
                        r->speedups, COUNT(speedups));
    page_print(&r->page, "</div>\n");
}

void report_print_layers(struct report *r)
{
    static const struct column columns[] = {
        {"MODEL AND LAYER", "name"},
        {"MODE", "mode"},
        {"% OF FLOOR", "floor_percent", show_floor},
        {"M", "M", NULL, true, true},
        {"VS REF", "speedup", show_ratio, true},
        {"LOSS us", "loss_us", show_time, true},
        {"KEYS", "keys", NULL, true},
        {"DOUBTS", "doubted", NULL, true},
        {"E", "E", NULL, true, true},
        {"TOPK", "topk", NULL, true, true},
        {"N", "N", NULL, true, true},
        {"K", "K", NULL, true, true},
        {"FLAGS", "flags", NULL, false, true},
    };
    static const struct column class[] = {{"DEVICE CLASS", "class"}};
    struct column all[COUNT(columns) + 1];
    memcpy(all, columns, sizeof(columns));
    all[COUNT(columns)] = class[0];
    const bool several = json_object_size(r->classes) > 1;
    page_begin_section(&r->page, "layers", "What is known, by model layer");
    if (r->sums.keys > 0) {
        json_auto_t *rows = layers_list(&r->layers, LAYERS_SHOWN, r->models);
        report_print_histograms(r);
        page_print(&r->page,
                   "<p>A row has all answers with these experts, N, K and mode. VS REF is the "
                   "geometric mean of the speeds over the reference kernel (the analytic default). "
                   "%% OF FLOOR divides the least time that the device allows by the time, of all "
                   "keys of the row together; LOSS is the time above the floor.%s%s</p>\n",
                   r->floors[10] > 0 ? " Above 100 % the floor is only a hint, as on a CPU." : "",
                   r->layers.n > LAYERS_SHOWN
                       ? " The layers that lose most time have rows of their "
                         "own; all others are summed up by experts and mode."
                       : "");
        page_print_table(&r->page, all, COUNT(columns) + several, rows);
    } else {
        page_print(&r->page, "<p>No answer is known yet. A job's first question tunes its key; "
                             "<code>gemmctl tune</code> tunes keys before the job starts.</p>\n");
    }
    report_print_missing(r);
    page_end_section(&r->page);
}

void report_print_rows(struct report *r)
{
    static const struct column columns[] = {
        {"MODEL AND LAYER", "name"},
        {"MODE", "mode"},
        {"% OF FLOOR", "floor_percent", show_floor},
        {"M", "problem.M", NULL, true, true},
        {"TIME us", "time_us", show_time, true},
        {"VS REF", "speedup", show_ratio, true},
        {"TFLOP/s", "tflops", show_time, true, true},
        {"SOURCE", "source"},
        {"CONFIDENCE", "confidence", NULL, false, true},
        {"TRIED", "measured", NULL, true},
        {"AGE", "created_s", show_age, true},
        {"KEY", "key", show_id},
        {"CONFIG", "config", show_config},
        {"FLAGS", "flags", NULL, false, true},
    };
    const size_t shown = json_array_size(r->lossy);
    page_begin_section(&r->page, "keys", "Keys that lose most time");
    if (shown < r->sums.keys) {
        page_print(&r->page,
                   "<p>The %zu of %zu keys that are farthest above their floor, in microseconds. "
                   "All other keys are in the sums above.</p>\n",
                   shown, r->sums.keys);
    } else {
        page_print(&r->page, "<p>All keys, farthest above their floor first.</p>\n");
    }
    page_print_table(&r->page, columns, COUNT(columns), r->lossy);
    page_end_section(&r->page);
}

/* ---- trust ----------------------------------------------------------------------------------- */

void report_print_trust(struct report *r, const json_t *stale)
{
    static const struct column doubts[] = {
        {"MODEL AND LAYER", "name"},
        {"MODE", "mode"},
        {"M", "problem.M", NULL, true, true},
        {"KEY", "key", show_id},
        {"SOURCE", "source"},
        {"SPREAD", "spread", NULL, true},
        {"AGE", "created_s", show_age, true},
        {"DOUBT", "doubt"},
    };
    static const struct column stamps[] = {
        {"FAMILY", "family"},         {"DEVICE CLASS", "class"}, {"TARGET", "target"},
        {"KEYS", "keys", NULL, true}, {"STAMP", "stamp"},        {"NEWEST STAMP", "newest"},
    };
    page_begin_section(&r->page, "trust", "Confidence, disturbed and stale rows");
    page_print(&r->page, "<p>%zu of %zu answers have a doubt, %zu of these with low confidence. ",
               r->sums.doubted, r->sums.keys, r->low);
    page_print_counts(&r->page, "Sources: ", r->sources);
    page_print(&r->page, "%s<code>gemmctl why KEY</code> has the evidence of a key.</p>\n",
               json_object_size(r->sources) ? ". " : "");
    if (json_array_size(r->doubted) < r->sums.doubted) {
        page_print(&r->page, "<p>The table has %zu of them.</p>\n", json_array_size(r->doubted));
    }
    page_print_table(&r->page, doubts, COUNT(doubts), r->doubted);
    if (r->stale > 0) {
        page_print(&r->page,
                   "<p>%zu answers are stale: other kernels than today&#39;s measured them. "
                   "They are hints, and gemmd tunes the key when a job asks.</p>\n",
                   r->stale);
        page_print_table(&r->page, stamps, COUNT(stamps), stale);
    } else {
        page_print(&r->page, "<p>No answer is stale.</p>\n");
    }
    page_end_section(&r->page);
}

/* ---- quarantine, runs, events ---------------------------------------------------------------- */

void report_print_quarantine(struct report *r, const json_t *rows, long long total)
{
    static const struct column columns[] = {
        {"VARIANT", "variant", show_id},
        {"STATUS", "status"},
        {"DEATHS", "deaths", NULL, true},
        {"AGE", "created_s", show_age, true},
        {"KEY", "key", show_id},
        {"DRIVER", "driver"},
        {"REASON", "reason"},
        {"CONFIG", "config", show_config},
    };
    page_begin_section(&r->page, "quarantine", "Quarantine");
    if (total == 0) {
        page_print(&r->page, "<p>No kernel is in quarantine.</p>\n");
    } else {
        page_print(&r->page,
                   "<p>%lld kernels crashed or hung, and may not run again%s. <code>gemmctl "
                   "quarantine --clear VARIANT</code> lets a kernel run again.</p>\n",
                   total, total > ROWS_SHOWN ? "; the table has the newest 100" : "");
    }
    page_print_table(&r->page, columns, COUNT(columns), rows);
    page_end_section(&r->page);
}

int report_print_log(struct report *r)
{
    static const struct column runs[] = {
        {"RUN", "id", NULL, true},
        {"DEVICE", "device"},
        {"DRIVER", "driver"},
        {"COMPILER", "compiler"},
        {"BUILD", "build"},
        {"STARTED", "started_s", show_age, true},
        {"ENDED", "ended_s", show_age, true},
        {"ENDING", "ending"},
    };
    static const struct column events[] = {
        {"AGE", "created_s", show_age, true},
        {"KIND", "kind"},
        {"UID", "uid", NULL, true},
        {"TEXT", "text"},
    };
    enum { RUNS_SHOWN = 10, EVENTS_SHOWN = 40 };
    int code = DONE;
    long long n_runs, n_events;
    json_auto_t *run_rows = report_fetch(r, "runs", "-id", RUNS_SHOWN, &n_runs, &code),
                *event_rows =
                    code ? NULL : report_fetch(r, "events", "-id", EVENTS_SHOWN, &n_events, &code);
    if (code == DONE) {
        page_begin_section(&r->page, "log", "Runs and events");
        page_print(&r->page,
                   "<p>The newest of %lld runs (lives of a runner) and of %lld events.</p>\n",
                   n_runs, n_events);
        page_print_table(&r->page, runs, COUNT(runs), run_rows);
        page_print_table(&r->page, events, COUNT(events), event_rows);
        page_end_section(&r->page);
    }
    return code;
}
