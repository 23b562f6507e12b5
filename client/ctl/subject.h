/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a command is about: whose daemon, which problems, how to search. The struct of such a
 * command begins with a struct subject, and its one frame is here: arguments, the work, the end.
 */
#ifndef GEMMD_CLIENT_CTL_SUBJECT_H
#define GEMMD_CLIENT_CTL_SUBJECT_H

#include "client/ctl/ctl.h"

struct subject {
    struct ctl ctl;
    struct problems problems;
    struct search search;
    const struct argp_child *children; /* borrowed: of the command's argp */
};

/* For parsers of commands with options of their own: what ARGP_KEY_INIT is to do. Every child of
 * the command's argp gets its part of the subject that `state->input` begins with. */
void subject_children(struct argp_state *state);
/* The parser of commands without options of their own. */
error_t subject_parse(int key, char *arg, struct argp_state *state);

/* Fills in *command by the arguments, runs, and frees its subject. An exit code. */
int subject_run(void *command, const struct argp *argp, int (*run)(void *command), int argc,
                char **argv);

/* --target, --atol and --rtol into params of a call, where they were given. */
void subject_put_query(const struct subject *s, json_t *params);

#endif
