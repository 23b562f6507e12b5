/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/runner.h"

/* ---- what such commands take ---------------------------------------------------------------- */

enum { KEY_JOBS = 0x7000, KEY_CACHE, KEY_JSON };

static error_t runner_parse_option(int key, char *arg, struct argp_state *state)
{
    struct runner_task *t = state->input;
    switch (key) {
    case KEY_JOBS: /* the runner's option has another name, and so would its sentence */
        option_int("jobs", arg, JOBS_MAX, state);
        t->jobs = arg;
        return 0;
    case KEY_CACHE:
        t->cache_dir = arg;
        return 0;
    case KEY_JSON:
        t->json = true;
        return 0;
    case 'q':
        t->quiet = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"jobs", KEY_JOBS, "N", 0, "compile so many at once; default: by the number of processors", 3},
    {"cache-dir", KEY_CACHE, "DIR", 0, "the daemon's --cache-dir, when it has another one", 0},
    {"json", KEY_JSON, 0, 0, "the outcome as JSON", 0},
    {"quiet", 'q', 0, 0, "no progress", 0},
    {0}};

static const struct argp task_argp = {.options = options, .parser = runner_parse_option};
const struct argp_child runner_children[] = {
    {&task_argp, 0, NULL, 0}, {&problems_argp, 0, NULL, 0}, {&target_argp, 0, NULL, 0}, {0}};

void runner_task_children(struct argp_state *state)
{
    subject_children(state);
    state->child_inputs[0] = state->input;
}

/* ---- its arguments -------------------------------------------------------------------------- */

void runner_begin(struct runner_call *r, const char *mode)
{
    *r = (struct runner_call){.argc = 0};
    runner_add(r, "gemmd-runner");
    runner_add(r, mode);
}

void runner_add(struct runner_call *r, const char *word)
{
    if (r->argc < RUNNER_ARGS_MAX - 1) {
        r->argv[r->argc++] = strdup(word);
    }
}

void runner_add_option(struct runner_call *r, const char *name, const char *value)
{
    if (value) {
        runner_add(r, name);
        runner_add(r, value);
    }
}

void runner_add_task(struct runner_call *r, const struct runner_task *t)
{
    runner_add_option(r, "--target", t->subject.search.query.target);
    runner_add_option(r, "--compile-threads", t->jobs);
    runner_add_option(r, "--cache-dir", t->cache_dir);
    if (t->quiet) {
        runner_add(r, "--quiet");
    }
    if (t->json) {
        runner_add(r, "--json");
    }
}

void runner_end(struct runner_call *r)
{
    for (int i = 0; i < r->argc; i++) {
        free(r->argv[i]);
    }
    r->argc = 0;
}

/* ---- the program ---------------------------------------------------------------------------- */

/* Beside us, as it is installed, or as the build tree has it. */
static bool find_near(char out[PATH_MAX])
{
    static const char *const places[] = {"gemmd-runner", "../libexec/gemmd/gemmd-runner",
                                         "../runner/gemmd-runner"};
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self, '/');
    int length = slash ? (int)(slash - self) : 0;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        if (snprintf(out, PATH_MAX, "%.*s/%s", length, self, places[i]) < PATH_MAX &&
            access(out, X_OK) == 0) {
            return true;
        }
    }
    return false;
}

static int runner_find_program(char out[PATH_MAX])
{
    const char *named = getenv("GEMMD_RUNNER");
    if (named && *named) {
        snprintf(out, PATH_MAX, "%s", named);
        return access(named, X_OK) == 0
                   ? DONE
                   : ctl_failed("GEMMD_RUNNER=%s is not a program that can be run", named);
    }
    if (!find_near(out)) {
        strcpy(out, "gemmd-runner"); /* execvp looks in PATH */
    }
    return DONE;
}

int runner_become(struct runner_call *r)
{
    char program[PATH_MAX];
    int code = runner_find_program(program);
    if (code) {
        return code;
    }
    fflush(NULL);
    execvp(program, r->argv);
    return ctl_failed("cannot run %s: %s; set GEMMD_RUNNER to gemmd-runner's path", program,
                      strerror(errno));
}
