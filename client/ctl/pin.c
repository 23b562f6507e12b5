/* SPDX-License-Identifier: Apache-2.0 */
/* pin, unpin, promote, cancel: commands that change the answer of one problem. */
#include <stdio.h>

#include "client/ctl/ctl.h"

/* Adds the problem to an answer: the problem that the user named. When the user named a key, or for
 * `promote`, whose answer belongs to another key: the problem that the daemon shows, if any. */
static void pin_derive_answer(struct subject *s, json_t *answer)
{
    struct gemmd_error e;
    const json_t *item = json_array_get(s->problems.all, 0);
    json_t *problem = json_object_get(item, "problem");
    json_auto_t *shown = NULL;
    if (!problem || s->command == &command_promote) {
        shown = ctl_try_call(&s->ctl, "show",
                             json_pack("{sO*}", "key", json_object_get(answer, "key")), &e);
        problem = json_object_get(shown, "problem");
    }
    if (problem) {
        json_object_set(answer, "problem", problem);
    }
    result_derive(answer);
}

/* Shows the daemon's answer map as `get` does. */
static void pin_show_answer(struct subject *s, json_t *answer)
{
    json_auto_t *rows = json_pack("[O]", answer);
    const char *note = field_text(answer, "note");
    if (json_is_null(answer)) {
        printf("nothing is left for this problem: the next `get` tunes it\n");
    } else {
        results_print(&s->ctl, rows);
    }
    if (*note && !s->ctl.quiet) {
        text_remark("%s", note);
    }
    if (!s->ctl.quiet) {
        unsaved_remark(&s->ctl, rows);
    }
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
    int code = DONE;
    json_auto_t *configs = notation_expand(&s->search, problem, &code);
    code = configs ? ctl_connect(&s->ctl) : code;
    if (code) {
        return code;
    }
    json_t *params =
        json_pack("{sO, sO}", "problem", problem, "config", json_array_get(configs, 0));
    subject_put_query(s, params);
    json_t *answer = ctl_call(&s->ctl, "pin", params, &code);
    return subject_show(s, answer, code);
}

const struct command command_pin = {
    .name = "pin",
    .help = "make a config the answer of a problem, once verified",
    .run = pin_run_command,
    .derive = pin_derive_answer,
    .show = pin_show_answer,
    .args_doc = "[PROBLEM]",
    .doc = "Makes one --config the answer of a problem (source \"manual\"). The config is verified "
           "and measured first, and refused when its results are wrong.",
    .parts = {&problems_argp, &given_argp, &tolerance_argp, &target_argp, &ctl_argp},
};

/* ---- by key or problem ---------------------------------------------------------------------- */

const struct command command_unpin = {
    .name = "unpin",
    .help = "go back to the newest tuned answer",
    .derive = pin_derive_answer,
    .show = pin_show_answer,
    .args_doc = "KEY|PROBLEM",
    .doc = "Removes a pin: the newest tuned answer serves again. KEY is an id, or its first 6 "
           "digits or more.",
    .parts = {&problems_argp, &ctl_argp},
};

const struct command command_promote = {
    .name = "promote",
    .help = "let a user's own row answer all users",
    .derive = pin_derive_answer,
    .show = pin_show_answer,
    .args_doc = "KEY|PROBLEM",
    .doc = "Lets a user's own row of a custom op answer all users. KEY is an id, or its first 6 "
           "digits or more (`gemmctl list` shows them); a PROBLEM names the user by the field "
           "user=UID.",
    .parts = {&problems_argp, &ctl_argp},
};

static void pin_show_cancelled(struct subject *s, json_t *result)
{
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
