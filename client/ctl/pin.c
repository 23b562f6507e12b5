/* SPDX-License-Identifier: Apache-2.0 */
/* pin, unpin, promote, evict, cancel: what a person decides about one problem's answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"

static const struct argp_child with_search[] = {
    {&problems_argp, 0, NULL, 0}, {&given_argp, 0, NULL, 0}, {&tolerance_argp, 0, NULL, 0},
    {&target_argp, 0, NULL, 0},   {&ctl_argp, 0, NULL, 0},   {0}};
static const struct argp_child without_search[] = {
    {&problems_argp, 0, NULL, 0}, {&ctl_argp, 0, NULL, 0}, {0}};

/* Of an answer that was asked for by its key, or is of another key than what was asked for. NULL:
 * the daemon does not say, which is no reason not to show the answer. */
static json_t *fetch_problem(struct ctl *c, const json_t *answer)
{
    struct gemmd_error e;
    char *text = NULL;
    json_t *which = json_pack("{sO*}", "key", json_object_get(answer, "key"));
    char *params = which ? json_dumps(which, 0) : NULL;
    json_decref(which);
    int r = params ? gemmd_call(c->g, "show", params, 0, &text, NULL, NULL, &e) : GEMMD_NO_MEMORY;
    free(params);
    json_t *shown = r ? NULL : json_loads(text, JSON_ALLOW_NUL, NULL);
    gemmd_free(text);
    json_t *problem = json_incref(json_object_get(shown, "problem"));
    json_decref(shown);
    return problem;
}

/* The daemon's answer map in the same form as `get` shows it; `problem` NULL: it is asked for. */
static int show_answer(struct subject *d, const json_t *problem, json_t *answer)
{
    json_t *whose =
        problem ? json_incref((json_t *)(uintptr_t)problem) : fetch_problem(&d->ctl, answer);
    if (whose) {
        json_object_set_new(answer, "problem", whose);
    }
    result_derive(answer);
    if (d->ctl.json) {
        return ctl_print_json(answer);
    }
    json_t *rows = json_pack("[o]", answer);
    const char *note = json_string_value(json_object_get(answer, "note"));
    results_print(rows);
    if (note && *note && !d->ctl.quiet) {
        char *text = text_visible(strdup(note));
        fprintf(stderr, "%s\n", text ? text : "");
        free(text);
    }
    if (!d->ctl.quiet) {
        unsaved_remark(&d->ctl, rows);
    }
    json_decref(rows);
    return DONE;
}

/* ---- pin ------------------------------------------------------------------------------------ */

static json_t *pin_params(struct subject *d, const json_t *problem)
{
    json_t *params =
        json_pack("{sO, sO}", "problem", problem, "config", json_array_get(d->search.configs, 0));
    subject_put_query(d, params);
    return params;
}

static int pin_run_command(void *command)
{
    struct subject *d = command;
    const json_t *problem = problems_one(&d->problems);
    if (!problem) {
        return USAGE;
    }
    if (json_array_size(d->search.configs) != 1) {
        return ctl_usage("which config? give one --config 'BLOCK_SIZE_M=64 ...'");
    }
    int code = ctl_connect(&d->ctl);
    json_t *answer = code ? NULL : ctl_call(&d->ctl, "pin", pin_params(d, problem), &code);
    return answer ? show_answer(d, problem, answer) : code;
}

int cmd_pin(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = subject_parse,
        .args_doc = "[PROBLEM]",
        .children = with_search,
        .doc = "Makes one --config the answer of a problem (source \"manual\"). It is verified and "
               "measured first; a wrong one is refused."};
    struct subject d = {.ctl = {0}};
    return subject_run(&d, &argp, pin_run_command, argc, argv);
}

/* ---- unpin, evict --------------------------------------------------------------------------- */

/* method {key or problem}: its result, or NULL. */
static json_t *pin_call_method(struct subject *d, const char *method, int *code)
{
    json_t *which = problems_key_or_one(&d->problems, code);
    if (which) {
        *code = ctl_connect(&d->ctl);
    }
    if (*code) {
        json_decref(which);
        return NULL;
    }
    return ctl_call(&d->ctl, method, which, code);
}

static int show_unpinned(struct subject *d, json_t *answer)
{
    if (json_is_object(answer)) {
        const json_t *item = json_array_get(d->problems.all, 0);
        return show_answer(d, json_object_get(item, "problem"), answer);
    }
    if (d->ctl.json) {
        return ctl_print_json(answer);
    }
    json_decref(answer);
    printf("nothing is left for this problem: the next `get` tunes it\n");
    return DONE;
}

static int show_removed(struct subject *d, json_t *result)
{
    if (d->ctl.json) {
        return ctl_print_json(result);
    }
    printf("%lld rows removed\n",
           (long long)json_integer_value(json_object_get(result, "removed")));
    json_decref(result);
    return DONE;
}

/* A method that takes {key or problem}, and how its result is shown. */
struct deciding {
    struct subject subject; /* first */
    const char *method;
    int (*show)(struct subject *d, json_t *result);
};

static int run_decision(void *command)
{
    struct deciding *d = command;
    int code = DONE;
    json_t *result = pin_call_method(&d->subject, d->method, &code);
    return result ? d->show(&d->subject, result) : code;
}

static int run_key(const char *method, int (*show)(struct subject *d, json_t *result),
                   const char *doc, int argc, char **argv)
{
    const struct argp argp = {
        .parser = subject_parse, .args_doc = "KEY|PROBLEM", .children = without_search, .doc = doc};
    struct deciding d = {.method = method, .show = show};
    return subject_run(&d, &argp, run_decision, argc, argv);
}

int cmd_unpin(int argc, char **argv)
{
    return run_key(
        "unpin", show_unpinned,
        "Takes back a pin: the newest answer that was tuned serves again. KEY is an id, or "
        "its first 6 digits or more.",
        argc, argv);
}

static int show_promoted(struct subject *d, json_t *answer)
{
    return show_answer(d, NULL, answer);
}

int cmd_promote(int argc, char **argv)
{
    return run_key("promote", show_promoted,
                   "Lets a user's own row of a custom op answer everybody. KEY is an id, or its "
                   "first 6 digits or more (`gemmctl list` shows them); a PROBLEM names whose row "
                   "by the field user=UID.",
                   argc, argv);
}

int cmd_evict(int argc, char **argv)
{
    return run_key("evict", show_removed,
                   "Forgets a problem's answer and all its trials. KEY is an id, or its first 6 "
                   "digits or more.",
                   argc, argv);
}

static int show_cancelled(struct subject *d, json_t *result)
{
    if (d->ctl.json) {
        return ctl_print_json(result);
    }
    bool cancelled = json_is_true(json_object_get(result, "cancelled"));
    json_decref(result);
    printf(cancelled ? "its tuning was cancelled\n" : "no tuning of this problem runs or waits\n");
    return DONE;
}

int cmd_cancel(int argc, char **argv)
{
    return run_key("cancel", show_cancelled,
                   "Cancels a problem's tuning, whoever waits for it. KEY is an id, or its first 6 "
                   "digits or more (`gemmctl status` shows the one that runs).",
                   argc, argv);
}
