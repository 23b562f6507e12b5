/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands that become gemmd-runner, since all that compiles and measures is there: Ctrl-C,
 * priorities and the exit status are then its own, and no daemon is asked.
 */
#ifndef GEMMD_CLIENT_CTL_RUNNER_H
#define GEMMD_CLIENT_CTL_RUNNER_H

#include "client/ctl/ctl.h"

/* Such a command's struct begins with one. Its ctl is not used. */
struct runner_task {
    struct subject subject;       /* first: subject_run is the frame of these commands too */
    const char *jobs, *cache_dir; /* borrowed from argv; NULL: not given */
    bool quiet, json;
};
/* The options of these fields, --target, and those that say which problems. */
extern const struct argp_child runner_children[];
/* What the command's parser does at ARGP_KEY_INIT. */
void runner_task_children(struct argp_state *state);

/* ---- its arguments -------------------------------------------------------------------------- */

enum { RUNNER_ARGS_MAX = 32 };

struct runner_call {
    char *argv[RUNNER_ARGS_MAX]; /* owned; NULL behind the last */
    int argc;
};

/* "gemmd-runner" and its mode: "--precompile". */
void runner_begin(struct runner_call *r, const char *mode);
void runner_add(struct runner_call *r, const char *word);
/* NULL: the option was not given. */
void runner_add_option(struct runner_call *r, const char *name, const char *value);
/* What runner_task holds. */
void runner_add_task(struct runner_call *r, const struct runner_task *t);
/* Returns only when it failed, with an exit code after the sentence. The program is $GEMMD_RUNNER,
 * else the one beside us, else the one in PATH. */
int runner_become(struct runner_call *r);
void runner_end(struct runner_call *r);

#endif
