/* SPDX-License-Identifier: Apache-2.0 */
/* show, trials: one answer, and the evidence behind it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"

/* ---- show ----------------------------------------------------------------------------------- */

/* In the place of the answer, of a key whose newest row is none. */
static json_t *no_answer(json_t *best)
{
    return json_pack("{sO*, sO*, ss}", "source", json_object_get(best, "source"), "config",
                     json_object_get(best, "config"), "note",
                     "no answer: it is of a restricted search, of other kernels, or not measured "
                     "here; `gemmctl why` says more");
}

static int evidence_run_show(struct subject *s)
{
    static const struct column columns[] = {
        {"key", "key"},
        {"problem", "problem", show_config},
        {"tier", "answer.tier"},
        {"source", "answer.source"},
        {"target", "best.target"},
        {"config", "answer.config", show_config},
        {"time us", "best.time_us", show_time},
        {"spread", "best.spread"},
        {"disturbed", "best.doubt"},
        {"reference us", "best.reference_us", show_time},
        {"vs reference", "best.speedup", show_ratio},
        {"TFLOP/s", "best.tflops", show_rate},
        {"GB/s", "best.gbps", show_rate},
        {"floor us", "best.floor_us", show_time},
        {"% of floor", "best.floor_percent", show_percent},
        {"tolerance", "best.atol"},
        {"measured", "best.measured"},
        {"trials", "trials"},
        {"failed", "failed"},
        {"module", "best.module"},
        {"generation", "best.generation"},
        {"age", "best.created_s", show_age},
        {"asked by uid", "best.uid", show_known},
        {"stamp", "best.stamp"},
        {"device class", "best.class"},
        {"note", "answer.note"},
    };
    int code = DONE;
    json_t *result = subject_call_key(s, "show", &code);
    json_t *best = json_object_get(result, "best");
    if (json_is_object(best)) {
        rows_derive_best(best);
    }
    if (!result || s->ctl.json) {
        return result ? ctl_print_json(result) : code;
    }
    if (json_is_object(best) && !json_is_object(json_object_get(result, "answer"))) {
        json_object_set_new(result, "answer", no_answer(best));
    }
    for (size_t i = 0; i < COUNT(columns); i++) {
        table_print_line(&columns[i], result);
    }
    json_decref(result);
    return DONE;
}

const struct command command_show = {
    .name = "show",
    .help = "all about one problem's answer",
    .run = evidence_run_show,
    .args_doc = "KEY|PROBLEM",
    .doc = "Shows all about one problem's answer. KEY is an id, or its first 6 digits or more.",
    .parts = {&problems_argp, &ctl_argp},
};

/* ---- trials --------------------------------------------------------------------------------- */

/* Whether what `show` says of a key is in the daemon's memory only. */
static bool is_unsaved(const json_t *shown)
{
    const json_t *uid = field_value(shown, "best.uid"); /* -1: of a row that is in no database */
    return json_is_false(field_value(shown, "answer.saved")) ||
           (json_is_integer(uid) && json_integer_value(uid) == -1);
}

int listing_find_key(struct subject *s)
{
    if (!problems_given(&s->problems)) {
        return ctl_connect(&s->ctl);
    }
    if (json_object_get(s->filter, "key")) {
        return ctl_usage(
            "--where key=... stands beside a problem, which has its own key: use one or "
            "the other");
    }
    int code = DONE;
    json_t *shown = subject_call_key(s, "show", &code);
    if (!shown) {
        return code;
    }
    int failed = json_object_set(s->filter, "key", json_object_get(shown, "key"));
    s->unsaved = is_unsaved(shown);
    json_decref(shown);
    return failed ? ctl_failed("the daemon does not say which key that is: it is of an older gemmd")
                  : DONE;
}

json_t *listing_status(struct subject *s, int *code)
{
    json_t *status = ctl_call(&s->ctl, "status", NULL, code);
    json_t *store = json_object_get(status, "store");
    if (store && problems_given(&s->problems)) {
        json_object_set_new(store, "unsaved", json_integer(s->unsaved));
    }
    return status;
}

static int evidence_run_trials(struct subject *s)
{
    int code = listing_find_key(s);
    if (code) {
        return code;
    }
    const bool failed = s->given[OWN_FAILED];
    if (!failed && !json_object_get(s->filter, "sort")) {
        listing_sort(s, "speedup");
    }
    json_t *baselines, *rows = baselines_list(&s->ctl, s->filter, failed, &baselines, &code);
    code = rows ? rows_show(&s->ctl, "trials", baselines, rows) : code;
    json_decref(baselines);
    return code;
}

static const struct argp_option trials_options[] = {
    {"failed", OWN_KEY + OWN_FAILED, 0, 0, "only those that failed, with the reason", 2},
    {0},
};

const struct command command_trials = {
    .name = "trials",
    .help = "what was measured, and what failed and why",
    .run = evidence_run_trials,
    .args_doc = "[KEY|PROBLEM]",
    .doc = "Lists what was measured, of one problem or of all, from the best speedup down. The "
           "baseline is cuBLAS over the experts, where it was measured, else the reference kernel "
           "(the analytic default) of the same run.",
    .options = trials_options,
    .parts = {&problems_argp, &filter_argp, &ctl_argp},
};
