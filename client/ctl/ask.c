/* SPDX-License-Identifier: Apache-2.0 */
/* get, tune, bench: query problems one after the other, and show the answers. */
#include <math.h>
#include <stdio.h>

#include "client/ctl/ctl.h"

struct asking {
    struct subject *s; /* borrowed */
    bool tune;         /* gemmd_tune; else gemmd_get */
    bool each;         /* bench: a query for each given config */
    json_t *rows;      /* owned */
    size_t n, done;
    double began_ms;
    int code; /* the exit code of the first failure */
};

/* ---- a query --------------------------------------------------------------------------------- */

static void make_label(const struct asking *a, const json_t *problem, char *out, size_t size)
{
    const char *mode = field_string(problem, "mode");
    char count[48] = "";
    if (a->n > 1) {
        snprintf(count, sizeof(count), "[%zu/%zu] ", a->done + 1, a->n);
    }
    snprintf(out, size, "%s%s %lldx%lldx%lld", count, mode ? mode : field_string(problem, "op"),
             field_int(problem, "M"), field_int(problem, "N"), field_int(problem, "K"));
}

/* Prints an answer when it arrives, because the table appears only at the end. */
static void asking_print_remark(const struct asking *a, const char *label,
                                const struct gemmd_answer *answer, double ms)
{
    if (a->s->ctl.quiet || a->n < 2) {
        return;
    }
    fprintf(stderr, "%s: ", label);
    if (answer->time_us > 0) {
        fprintf(stderr, "%.1f us, ", answer->time_us);
    }
    fprintf(stderr, "%s %s, in %.*f s\n", answer->tier, answer->source, ms < 100 ? 3 : 1, ms / 1e3);
}

/* Prints which of the configs that the user gave have failed: the answer shows only the winner. */
static void remark_failed(const struct asking *a, const struct progress_line *line, const char *key)
{
    const size_t n = json_array_size(a->s->search.configs);
    if (n > 0 && line->failed > 0 && !a->s->ctl.quiet) {
        text_remark("%lld of the %zu given configs failed: `gemmctl trials --failed %.8s` says why",
                    (long long)line->failed, n, key);
    }
}

int ask_for_answer(struct subject *s, const json_t *problem, struct gemmd_query q, bool tune,
                   struct progress_line *line, struct gemmd_answer *out, struct gemmd_error *e)
{
    struct gemmd_problem p = GEMMD_PROBLEM_INIT;
    TEXT_AUTO *text = text_of_json(problem);
    p.text = text;
    q.flags |= GEMMD_NO_TABLE;
    q.progress = progress_show;
    q.ctx = line;
    *out = (struct gemmd_answer)GEMMD_ANSWER_INIT;
    int r = ctl_finish(&s->ctl, (tune ? gemmd_tune : gemmd_get)(s->ctl.g, &p, &q, out, e), e);
    progress_end(line);
    return r;
}

/* Gets or tunes the answer of a problem, and returns its row. NULL: a signal arrived first. */
static json_t *ask_one(struct asking *a, const json_t *problem)
{
    struct gemmd_answer answer;
    struct gemmd_error e;
    struct gemmd_query *q = &a->s->search.query;
    struct progress_line line;
    char label[96];
    make_label(a, problem, label, sizeof(label));
    progress_begin(&line, a->s->ctl.quiet, label);
    if (q->deadline_ms > 0 && !a->tune) { /* whoever sets a deadline accepts a default after it */
        q->flags |= GEMMD_FALLBACK;
    }
    double began = ctl_now_ms();
    int r = ask_for_answer(a->s, problem, *q, a->tune, &line, &answer, &e);
    double ms = ctl_now_ms() - began;
    if (r == GEMMD_WAITING) {
        return NULL;
    }
    if (r) {
        if (a->n > 1 && r != GEMMD_UNREACHABLE) {
            fprintf(stderr, "%s: ", label);
        }
        int code = ctl_fail_waiting(&e, q->deadline_ms);
        a->code = a->code ? a->code : code;
        return result_of_error(problem, &e);
    }
    asking_print_remark(a, label, &answer, ms);
    remark_failed(a, &line, answer.key);
    json_t *row = result_of_answer(problem, &answer);
    bool hit = !a->tune && !line.seen; /* false: the elapsed time includes a tuning */
    json_object_set_new(row, hit ? "round_trip_us" : "elapsed_ms", json_real(hit ? ms * 1e3 : ms));
    return row;
}

/* Queries a problem of the batch and adds its row. config: the only config to measure, or NULL. */
static void ask_named(struct asking *a, const json_t *item, json_t *config)
{
    json_t *row = ask_one(a, json_object_get(item, "problem"));
    if (!row) {
        return;
    }
    if (config && !json_object_get(row, "config")) {
        json_object_set(row, "config", config);
    }
    json_t *name = json_object_get(item, "name");
    if (name) {
        json_object_set(row, "name", name);
    }
    json_array_append_new(a->rows, row);
    a->done++;
}

/* ---- a batch --------------------------------------------------------------------------------- */

/* False when no daemon answers, since every further problem would fail the same way, or when a
 * signal has come. */
static bool goes_on(const struct asking *a)
{
    return a->code != UNREACHABLE && !stops_came();
}

/* Asks with these configs only. `only`: the config as given, when it is alone; or NULL. */
static void ask_with(struct asking *a, const json_t *item, const json_t *configs, json_t *only)
{
    TEXT_AUTO *text = text_dump(configs, JSON_REAL_PRECISION(17));
    a->s->search.query.configs_json = text;
    if (goes_on(a)) {
        ask_named(a, item, only);
    }
    a->s->search.query.configs_json = NULL;
}

/* Asks for a problem with the given configs: with each, or with all at once. */
static void ask_configs(struct asking *a, const json_t *item)
{
    json_auto_t *configs =
        notation_expand(&a->s->search, json_object_get(item, "problem"), &a->code);
    if (!a->each) {
        ask_with(a, item, configs, NULL);
    }
    ARRAY_EACH_AT(i, config, a->each ? configs : NULL) {
        json_auto_t *alone = json_pack("[O]", config);
        ask_with(a, item, alone, json_array_get(a->s->search.configs, i));
    }
}

/* 0, or USAGE after the error message: a given config has a mistake for one of the problems. */
static int asking_check_configs(const struct asking *a)
{
    int code = DONE;
    ARRAY_EACH(item, a->s->problems.all) {
        const json_t *problem = json_object_get(item, "problem");
        json_decref(code ? NULL : notation_expand(&a->s->search, problem, &code));
    }
    return code;
}

static void remark_hit(const struct asking *a)
{
    const json_t *row = json_array_get(a->rows, 0);
    const json_t *trip = json_object_get(row, "round_trip_us");
    const char *note = field_text(row, "note");
    if (a->s->ctl.quiet || json_array_size(a->rows) != 1) {
        return;
    }
    if (trip) {
        fprintf(stderr, "answered in %.0f us, tier %s\n", json_number_value(trip),
                field_string(row, "tier"));
    }
    if (*note) {
        text_remark("%s", note);
    }
}

/* Prints the summary after the last problem of a batch. */
static void remark_batch(const struct asking *a)
{
    json_auto_t *keys = json_object();
    size_t n = 0, failed = 0;
    double logs = 0;
    char mean[80] = "no time beside a reference";
    ARRAY_EACH(row, a->rows) {
        const char *key = field_string(row, "key");
        const double speedup = field_number(row, "speedup");
        failed += json_object_get(row, "error") != NULL;
        if (key) {
            json_object_set_new(keys, key, json_true());
        }
        if (speedup > 0) {
            logs += log(speedup);
            n++;
        }
    }
    if (n > 0) {
        snprintf(mean, sizeof(mean), "%.2fx the reference (geometric mean of %zu)",
                 exp(logs / (double)n), n);
    }
    fprintf(stderr, "%zu keys in %.1f s, %s, %zu failed\n", json_object_size(keys),
            (ctl_now_ms() - a->began_ms) / 1e3, mean, failed);
}

static int asking_show_rows(struct asking *a)
{
    const struct ctl *c = &a->s->ctl;
    size_t good = 0;
    int r = DONE;
    ARRAY_EACH(row, a->rows) {
        bool failed = json_object_get(row, "error");
        good += !failed;
        if (failed && !c->json) { /* the error's name goes into the column TIER */
            json_object_set(row, "tier", json_object_get(json_object_get(row, "error"), "name"));
        }
    }
    if (c->json) {
        r = ctl_print_json(json_incref(a->rows));
    } else if (good > 0) {
        results_print(&a->s->ctl, a->rows);
        remark_hit(a);
        if (!c->quiet) {
            unsaved_remark(&a->s->ctl, a->rows);
        }
    }
    if (a->n > 1 && !c->quiet) {
        remark_batch(a);
    }
    stops_end(good, a->n);
    return a->code ? a->code : r;
}

/* A working daemon answers `hello` within this time, also on a busy machine. */
enum { GREETING_MS = 1000 };

static int asking_answer_all(struct asking *a)
{
    const struct gemmd_query *q = &a->s->search.query;
    const bool known = a->s->given[OWN_KNOWN];
    int code = rows_check_view(&a->s->ctl, "answers");
    code = code ? code : known ? known_check(a->s) : problems_make(&a->s->problems);
    if (code == DONE && a->each && json_array_size(a->s->search.configs) == 0) {
        code = ctl_usage("which config? give --config 'BLOCK_SIZE_M=64 ...' or --configs FILE");
    }
    if (code == DONE && a->tune && q->wait == GEMMD_WAIT_CACHED) {
        code = ctl_usage("--wait cached never tunes: ask with `gemmctl get --wait cached`");
    }
    if (code == DONE && !a->tune && q->flags & GEMMD_AGAIN && q->wait == GEMMD_WAIT_CACHED) {
        code = ctl_usage("--again tunes and --wait cached never does: leave one of them out");
    }
    code = code ? code : asking_check_configs(a);
    if (!a->tune) { /* the deadline holds for a daemon that hangs, too */
        a->s->ctl.patience_ms =
            q->deadline_ms > 0 && q->deadline_ms < GREETING_MS ? GREETING_MS : q->deadline_ms;
    }
    a->s->ctl.step_ms = STOPS_STEP_MS;
    code = code ? code : ctl_connect(&a->s->ctl);
    code = code == DONE && known ? known_problems(a->s) : code;
    if (code) {
        return code;
    }
    stops_catch();
    a->began_ms = ctl_now_ms();
    search_finish(&a->s->search);
    a->rows = json_array();
    a->n = json_array_size(a->s->problems.all);
    a->n *= a->each ? json_array_size(a->s->search.configs) : 1;
    ARRAY_EACH(item, a->s->problems.all) {
        if (known) {
            a->tune = known_set_query(a->s, item);
        }
        if (json_array_size(a->s->search.configs) > 0) {
            ask_configs(a, item);
        } else if (goes_on(a)) {
            ask_named(a, item, NULL);
        }
    }
    return asking_show_rows(a);
}

/* ---- commands ------------------------------------------------------------------------------- */

static int ask_run_command(struct subject *s)
{
    struct asking a = {
        .s = s, .tune = s->command != &command_get, .each = s->command == &command_bench};
    int code = asking_answer_all(&a);
    json_decref(a.rows);
    return code;
}

const struct command command_get = {
    .name = "get",
    .help = "get the best config of problems; unknown problems are tuned",
    .run = ask_run_command,
    .args_doc = "[PROBLEM]",
    .doc = "Gets the best config of each problem. Unknown problems are tuned, with progress on "
           "stderr, unless --wait says otherwise.",
    .parts = {&problems_argp, &measuring_argp, &deadline_argp, &given_argp, &tolerance_argp,
              &target_argp, &view_argp, &pin_argp, &ctl_argp, &search_argp, &wait_argp,
              &space_argp},
};

static int ask_run_tune(struct subject *s)
{
    if (s->given[OWN_STALE] && !s->given[OWN_KNOWN]) {
        return ctl_usage("--stale selects known keys: say --known, too");
    }
    return ask_run_command(s);
}

static const struct argp_option tune_options[] = {
    {"known", OWN_KEY + OWN_KNOWN, 0, 0,
     "tune all known keys of the device again, the newest first; pins are verified", 1},
    {"stale", OWN_KEY + OWN_STALE, 0, 0,
     "with --known: only keys whose row was measured by other kernels than today's", 1},
    {0},
};

const struct command command_tune = {
    .name = "tune",
    .help = "tune problems, whether known or not",
    .run = ask_run_tune,
    .args_doc = "[PROBLEM]",
    .doc = "Tunes each problem, whether known or not, and shows the winners.\v"
           "A search under --restrict, --space, --config or --target has a winner of source "
           "\"partial\": it answers the clients that wait for that search, and no later query.",
    .options = tune_options,
    .parts = {&problems_argp, &measuring_argp, &deadline_argp, &given_argp, &tolerance_argp,
              &target_argp, &view_argp, &ctl_argp, &search_argp, &tune_wait_argp, &space_argp},
};

static int ask_run_bench(struct subject *s)
{
    if (s->given[OWN_NOT_HERE]) {
        return ctl_usage("--wait, --budget, --strategy and --again are not for bench: it measures "
                         "each of the given configs, known or not, and waits for that");
    }
    return ask_run_command(s);
}

static const struct argp_option bench_options[] = {
    {"wait", OWN_KEY + OWN_NOT_HERE, "HOW", OPTION_HIDDEN, 0, 0},
    {"budget", OWN_KEY + OWN_NOT_HERE, "N", OPTION_HIDDEN, 0, 0},
    {"strategy", OWN_KEY + OWN_NOT_HERE, "NAME", OPTION_HIDDEN, 0, 0},
    {"again", OWN_KEY + OWN_NOT_HERE, 0, OPTION_HIDDEN, 0, 0},
    {0},
};

const struct command command_bench = {
    .name = "bench",
    .help = "measure given configs",
    .run = ask_run_bench,
    .args_doc = "[PROBLEM]",
    .doc = "Verifies and measures given configs, each by itself.\v"
           "All configs of a restricted space are measured by `gemmctl tune --strategy exhaustive "
           "--restrict ...`; `gemmctl trials` shows them.",
    .options = bench_options,
    .parts = {&problems_argp, &measuring_argp, &deadline_argp, &given_argp, &tolerance_argp,
              &target_argp, &view_argp, &ctl_argp},
};
