/* SPDX-License-Identifier: Apache-2.0 */
/* pin, unpin, promote, evict, cancel: commands that change the answer of one problem. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"

/* The problem of an answer that was found by key, or that belongs to another key than the query's.
 * NULL when the daemon does not tell the problem; the caller shows the answer without a problem. */
static json_t *fetch_problem(struct ctl *c, const json_t *answer)
{
    struct gemmd_error e;
    json_t *shown =
        ctl_try_call(c, "show", json_pack("{sO*}", "key", json_object_get(answer, "key")), &e);
    json_t *problem = json_incref(json_object_get(shown, "problem"));
    json_decref(shown);
    return problem;
}

/* Shows the daemon's answer map as `get` does. `problem` NULL: fetches the problem. */
static int show_answer(struct subject *s, const json_t *problem, json_t *answer)
{
    json_t *whose =
        problem ? json_incref((json_t *)(uintptr_t)problem) : fetch_problem(&s->ctl, answer);
    if (whose) {
        json_object_set_new(answer, "problem", whose);
    }
    result_derive(answer);
    if (s->ctl.json) {
        return ctl_print_json(answer);
    }
    json_t *rows = json_pack("[o]", answer);
    const char *note = field_text(answer, "note");
    results_print(rows);
    if (*note && !s->ctl.quiet) {
        text_remark("%s", note);
    }
    if (!s->ctl.quiet) {
        unsaved_remark(&s->ctl, rows);
    }
    json_decref(rows);
    return DONE;
}

/* ---- pin ------------------------------------------------------------------------------------ */

static int pin_run_command(struct subject *s)
{
    const json_t *problem = problems_one(&s->problems);
    if (!problem) {
        return USAGE;
    }
    if (json_array_size(s->search.configs) != 1) {
        return ctl_usage("which config? give one --config 'BLOCK_SIZE_M=64 ...'");
    }
    int code = ctl_connect(&s->ctl);
    if (code) {
        return code;
    }
    json_t *params =
        json_pack("{sO, sO}", "problem", problem, "config", json_array_get(s->search.configs, 0));
    subject_put_query(s, params);
    json_t *answer = ctl_call(&s->ctl, "pin", params, &code);
    return answer ? show_answer(s, problem, answer) : code;
}

const struct command command_pin = {
    .name = "pin",
    .help = "make a config the answer of a problem, once verified",
    .run = pin_run_command,
    .args_doc = "[PROBLEM]",
    .doc = "Makes one --config the answer of a problem (source \"manual\"). The config is verified "
           "and measured first, and refused when its results are wrong.",
    .parts = {&problems_argp, &given_argp, &tolerance_argp, &target_argp, &ctl_argp},
};

/* ---- by key or problem ---------------------------------------------------------------------- */

static int pin_run_unpin(struct subject *s)
{
    int code = DONE;
    json_t *answer = subject_call_key(s, "unpin", &code);
    if (json_is_object(answer)) {
        const json_t *item = json_array_get(s->problems.all, 0);
        return show_answer(s, json_object_get(item, "problem"), answer);
    }
    if (!answer || s->ctl.json) {
        return answer ? ctl_print_json(answer) : code;
    }
    json_decref(answer);
    printf("nothing is left for this problem: the next `get` tunes it\n");
    return DONE;
}

const struct command command_unpin = {
    .name = "unpin",
    .help = "go back to the newest tuned answer",
    .run = pin_run_unpin,
    .args_doc = "KEY|PROBLEM",
    .doc = "Removes a pin: the newest tuned answer serves again. KEY is an id, or its first 6 "
           "digits or more.",
    .parts = {&problems_argp, &ctl_argp},
};

static int pin_run_promote(struct subject *s)
{
    int code = DONE;
    json_t *answer = subject_call_key(s, "promote", &code);
    return answer ? show_answer(s, NULL, answer) : code;
}

const struct command command_promote = {
    .name = "promote",
    .help = "let a user's own row answer all users",
    .run = pin_run_promote,
    .args_doc = "KEY|PROBLEM",
    .doc = "Lets a user's own row of a custom op answer all users. KEY is an id, or its first 6 "
           "digits or more (`gemmctl list` shows them); a PROBLEM names the user by the field "
           "user=UID.",
    .parts = {&problems_argp, &ctl_argp},
};

static void pin_show_evicted(const struct subject *s, json_t *result)
{
    (void)s;
    printf("%lld rows removed\n", field_int(result, "removed"));
}

const struct command command_evict = {
    .name = "evict",
    .help = "forget a problem's answer and its trials",
    .show = pin_show_evicted,
    .args_doc = "KEY|PROBLEM",
    .doc = "Forgets a problem's answer and all its trials. KEY is an id, or its first 6 digits or "
           "more.",
    .parts = {&problems_argp, &ctl_argp},
};

static void pin_show_cancelled(const struct subject *s, json_t *result)
{
    (void)s;
    puts(field_is_true(result, "cancelled") ? "its tuning was cancelled"
                                            : "no tuning of this problem runs or waits");
}

const struct command command_cancel = {
    .name = "cancel",
    .help = "end a problem's tuning for all clients",
    .show = pin_show_cancelled,
    .args_doc = "KEY|PROBLEM",
    .doc = "Cancels a problem's tuning for all clients that wait. KEY is an id, or its first 6 "
           "digits or more (`gemmctl status` shows the key of the running tuning).",
    .parts = {&problems_argp, &ctl_argp},
};
