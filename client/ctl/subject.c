/* SPDX-License-Identifier: Apache-2.0 */
#include "client/ctl/ctl.h"

void subject_children(struct argp_state *state)
{
    struct subject *s = state->input;
    for (size_t i = 0; s->children[i].argp; i++) {
        const struct argp *child = s->children[i].argp;
        const bool ctl = child == &ctl_argp || child == &pinned_ctl_argp;
        state->child_inputs[i] = ctl                       ? (void *)&s->ctl
                                 : child == &problems_argp ? (void *)&s->problems
                                                           : (void *)&s->search;
    }
}

error_t subject_parse(int key, char *arg, struct argp_state *state)
{
    (void)arg;
    if (key != ARGP_KEY_INIT) {
        return ARGP_ERR_UNKNOWN;
    }
    subject_children(state);
    return 0;
}

int subject_run(void *command, const struct argp *argp, int (*run)(void *command), int argc,
                char **argv)
{
    struct subject *s = command;
    search_options_init(&s->search);
    s->children = argp->children;
    argp_parse(argp, argc, argv, 0, NULL, command);
    int code = run(command);
    search_options_deinit(&s->search);
    problems_deinit(&s->problems);
    ctl_deinit(&s->ctl);
    return code;
}

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
