/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands that become gemmd-runner, since all that compiles and measures is there: Ctrl-C,
 * priorities and the exit status are then its own, and no daemon is asked.
 */
#ifndef GEMMD_CLIENT_CTL_RUNNER_H
#define GEMMD_CLIENT_CTL_RUNNER_H

#include "client/ctl/ctl.h"

enum { RUNNER_ARGS_MAX = 32 };

struct runner_call {
    char *argv[RUNNER_ARGS_MAX]; /* owned; NULL behind the last */
    int argc;
};

/* "gemmd-runner" and its mode: "--warm". */
void runner_begin(struct runner_call *r, const char *mode);
void runner_add(struct runner_call *r, const char *word);
/* NULL: the option was not given. */
void runner_add_option(struct runner_call *r, const char *name, const char *value);
/* Returns only when it failed, with an exit code after the sentence. The program is $GEMMD_RUNNER,
 * else the one beside us, else the one in PATH. */
int runner_become(struct runner_call *r);
void runner_end(struct runner_call *r);

#endif
