/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "client/ctl/formats.h"
#include "client/ctl/report.h"

/* ---- the command ----------------------------------------------------------------------------- */

static int report_print(struct report *r, int64_t from, int64_t to)
{
    int code = DONE;
    long long total = 0;
    TEXT_AUTO *title = text_format("gemmd on %s", field_text(r->status, "device.name"));
    json_auto_t *quarantine = report_fetch(r, "quarantine", "-id", ROWS_SHOWN, &total, &code),
                *stale = report_list_stale(r);
    code = code ? code : page_open(&r->page, title);
    if (code) {
        return code;
    }
    report_print_head(r, total);
    report_print_layers(r);
    if (r->sums.keys > 0) {
        report_print_rows(r);
        code = report_print_keys(r);
        if (code) {
            return code;
        }
        report_print_trust(r, stale);
    }
    report_print_quarantine(r, quarantine, total);
    code = code || r->sums.keys == 0 ? code : report_print_changes(r, from, to);
    return code ? code : report_print_log(r);
}

static int report_save(struct report *r, const char *path)
{
    TEXT_AUTO *text = page_close(&r->page);
    int code = text ? writing_save(path, text) : ctl_failed("no memory for the report");
    if (code == DONE && r->s->ctl.json) {
        code = ctl_print_json(json_pack("{ss, sI, sI, sI, sI}", "path", path, "bytes",
                                        (json_int_t)r->page.length, "keys",
                                        (json_int_t)r->sums.keys, "layers", (json_int_t)r->layers.n,
                                        "missing", (json_int_t)json_array_size(r->missing)));
    } else if (code == DONE && !r->s->ctl.quiet && strcmp(path, "-") != 0) {
        fprintf(stderr, "a report of %zu keys written to %s\n", r->sums.keys, path);
    }
    return code;
}

/* The generations of --from and --to; without them the last 50. 0, or USAGE after the message. */
static int report_read_generations(const struct report *r, int64_t *from, int64_t *to)
{
    enum { LAST = 50 };
    const int64_t newest = field_int(r->status, "generation");
    const char *given = r->s->given[OWN_FROM_GENERATION];
    *to = newest;
    int code = option_number("to", r->s->given[OWN_TO_GENERATION], 0, INT64_MAX, to);
    if (code == DONE && *to > newest) {
        return ctl_usage("--to is %lld, but the newest generation is %lld", (long long)*to,
                         (long long)newest);
    }
    *from = *to > LAST ? *to - LAST : 0;
    code = code ? code : option_number("from", given, 0, INT64_MAX, from);
    if (code == DONE && *from > *to) {
        return ctl_usage("--from is %lld, later than --to, which is %lld", (long long)*from,
                         (long long)*to);
    }
    return code;
}

static int report_make(struct report *r)
{
    int64_t from, to;
    int code = DONE;
    r->status = ctl_call(&r->s->ctl, "status", NULL, &code);
    code = code ? code : report_read_generations(r, &from, &to);
    code = code ? code : report_read_rows(r);
    code = code ? code : report_print(r, from, to);
    code = code ? code : report_save(r, r->s->given[OWN_HTML]);
    if (code == DONE) {
        unsaved_say(r->status, "this report");
    }
    if (r->page.out) { /* the report failed half-way */
        free(page_close(&r->page));
    }
    return code;
}

static int report_run_command(struct subject *s)
{
    const char *path = s->given[OWN_HTML];
    const char **given = s->problems.given;
    if (!path || !*path) {
        return ctl_usage("which file to write? give --html FILE, as in `gemmctl report --html "
                         "report.html`");
    }
    if (s->ctl.json && strcmp(path, "-") == 0) {
        return ctl_usage(
            "--json says what was written, and --html - writes the report to stdout, too: "
            "give --html a file");
    }
    if (given[PROBLEM_MODEL] && !problems_has_table(&s->problems)) { /* short for --moe */
        given[PROBLEM_MOE] = given[PROBLEM_MODEL];
        given[PROBLEM_MODEL] = NULL;
    }
    int code = problems_given(&s->problems) ? problems_make(&s->problems) : DONE;
    code = code ? code : ctl_connect(&s->ctl);
    if (code) {
        return code;
    }
    struct report r = {.s = s,
                       .models = moe_list_layers(s->ctl.quiet),
                       .lossy = json_array(),
                       .tried = json_array(),
                       .doubted = json_array(),
                       .missing = json_array(),
                       .classes = json_object(),
                       .sources = json_object(),
                       .newest = json_object(),
                       .stamps = json_object()};
    layers_init(&r.layers);
    code = report_make(&r);
    json_t *const owned[] = {r.status,  r.models,  r.lossy,   r.tried,  r.doubted,
                             r.missing, r.classes, r.sources, r.newest, r.stamps};
    for (size_t i = 0; i < COUNT(owned); i++) {
        json_decref(owned[i]);
    }
    layers_deinit(&r.layers);
    return code;
}

static const struct argp_option report_options[] = {
    {"html", OWN_KEY + OWN_HTML, "FILE", 0, "the report, one HTML file; -: stdout", 1},
    {"from", OWN_KEY + OWN_FROM_GENERATION, "GENERATION", 0,
     "show what changed behind this generation (default: the last 50 generations)", 1},
    {"to", OWN_KEY + OWN_TO_GENERATION, "GENERATION", 0,
     "show what changed up to this generation (default: the newest)", 1},
    {0},
};

const struct command command_report = {
    .name = "report",
    .help = "a page about all answers, for a browser",
    .run = report_run_command,
    .args_doc = "--html FILE [PROBLEM]",
    .doc =
        "Writes one HTML file, which needs no network and no scripts: the answers by model layer, "
        "their speed, drawings of the searches, doubts, stale rows, quarantine, changes and "
        "events. With --model NAME (a known model) and --tokens LIST, or other options that name "
        "problems, the report is about these problems, and lists those without an answer.",
    .options = report_options,
    .parts = {&problems_argp, &ctl_argp},
};
