/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "client/ctl/ctl.h"

/* ---- arguments ------------------------------------------------------------------------------ */

static error_t subject_parse_option(int key, char *arg, struct argp_state *state)
{
    struct subject *s = state->input;
    if (key == ARGP_KEY_INIT) {
        for (size_t i = 0; s->command->parts[i]; i++) {
            state->child_inputs[i] = s;
        }
        return 0;
    }
    if (key < OWN_KEY || key >= OWN_KEY + OWN_OPTIONS) {
        return ARGP_ERR_UNKNOWN;
    }
    s->given[key - OWN_KEY] = arg ? arg : "";
    return 0;
}

static error_t subject_parse_words(int key, char *arg, struct argp_state *state)
{
    struct subject *s = state->input;
    if (key != ARGP_KEY_ARGS) {
        return ARGP_ERR_UNKNOWN;
    }
    s->paths = state->argv + state->next;
    s->n_paths = (size_t)(state->argc - state->next);
    return 0;
}

static error_t subject_parse_files(int key, char *arg, struct argp_state *state)
{
    if (key == ARGP_KEY_NO_ARGS) {
        argp_error(state, "which file?");
    }
    return subject_parse_words(key, arg, state);
}

const struct argp words_argp = {.parser = subject_parse_words};
const struct argp files_argp = {.parser = subject_parse_files};

int subject_show(struct subject *s, json_t *result, int code)
{
    if (json_is_object(result) && s->command->derive) {
        s->command->derive(s, result);
    }
    if (!result || s->ctl.json) {
        return result ? ctl_print_json(result) : code;
    }
    s->command->show(s, result);
    json_decref(result);
    return DONE;
}

int subject_run_method(struct subject *s)
{
    const char *method = s->command->name;
    const bool has_key = s->command->parts[0] == &problems_argp;
    int code = has_key ? DONE : ctl_connect(&s->ctl);
    json_t *result = code      ? NULL
                     : has_key ? subject_call_key(s, method, &code)
                               : ctl_call(&s->ctl, method, NULL, &code);
    return subject_show(s, result, code);
}

int subject_run(const struct command *command, int argc, char **argv)
{
    struct argp_child children[COUNT(command->parts)] = {{0}};
    bool pinned = false;
    for (size_t i = 0; command->parts[i]; i++) {
        children[i].argp = command->parts[i];
        pinned = pinned || command->parts[i] == &pin_argp;
    }
    const struct argp argp = {.options = command->options,
                              .parser = subject_parse_option,
                              .args_doc = command->args_doc,
                              .doc = command->doc,
                              .children = children};
    const char *device = getenv("GEMMD_DEVICE");
    struct subject s = {.command = command,
                        .ctl = {.device = device && *device ? device : NULL, .pinned = pinned},
                        .filter = json_object()};
    search_options_init(&s.search);
    argp_parse(&argp, argc, argv, 0, NULL, &s);
    if (!pinned) { /* an unpinned command is about the daemon's present answers */
        unsetenv("GEMMD_LOCK");
    }
    int code = command->run ? command->run(&s) : subject_run_method(&s);
    search_options_deinit(&s.search);
    problems_deinit(&s.problems);
    json_decref(s.filter);
    json_decref(s.shown);
    gemmd_close(s.ctl.g);
    return code;
}

/* ---- calls ---------------------------------------------------------------------------------- */

void subject_put_query(const struct subject *s, json_t *params)
{
    const struct gemmd_query *q = &s->search.query;
    if (q->target) {
        json_object_set_new(params, "target", json_string(q->target));
    }
    if (q->atol > 0) {
        json_object_set_new(params, "atol", json_real(q->atol));
    }
    if (q->rtol > 0) {
        json_object_set_new(params, "rtol", json_real(q->rtol));
    }
}

json_t *subject_call_key(struct subject *s, const char *method, int *code)
{
    json_auto_t *which = problems_key_or_one(&s->problems, code);
    if (which) {
        *code = ctl_connect(&s->ctl);
    }
    subject_put_query(s, which);
    return *code ? NULL : ctl_call(&s->ctl, method, json_incref(which), code);
}
