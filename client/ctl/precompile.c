/* SPDX-License-Identifier: Apache-2.0 */
/*
 * precompile: gemmd-runner does it (its --precompile); this turns the problems into text on its
 * standard input and becomes it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/ctl/runner.h"

enum { KEY_ARCH = 0x7100, KEY_SECONDS, KEY_ALL, KEY_MAX };

struct precompiling {
    struct runner_task task; /* first */
    char device[ARCH_MAX];
    const char *seconds, *max_mib; /* borrowed from argv */
    bool all;
    struct runner_call runner;
};

static error_t precompile_parse_option(int key, char *arg, struct argp_state *state)
{
    struct precompiling *w = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        runner_task_children(state);
        return 0;
    case KEY_ARCH:
        option_arch(arg, w->device, state);
        return 0;
    case KEY_SECONDS:
        w->seconds = arg;
        return 0;
    case KEY_MAX:
        w->max_mib = arg;
        return 0;
    case KEY_ALL:
        w->all = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- its arguments -------------------------------------------------------------------------- */

static void precompile_add_options(struct precompiling *w)
{
    runner_begin(&w->runner, "--precompile");
    runner_add_option(&w->runner, "--device", w->device);
    runner_add_task(&w->runner, &w->task);
    runner_add_option(&w->runner, "--seconds", w->seconds);
    runner_add_option(&w->runner, "--cache-max-mib", w->max_mib);
    if (w->all) {
        runner_add(&w->runner, "--all");
    }
}

/* One text a line. */
static int write_problems(const struct precompiling *w, FILE *f)
{
    size_t i;
    const json_t *row;
    json_array_foreach(w->task.subject.problems.all, i, row) {
        char *text = text_of_json(json_object_get(row, "problem"));
        if (!text || fprintf(f, "%s\n", text) < 0) {
            free(text);
            return ctl_failed("no memory for the problems");
        }
        free(text);
    }
    return fflush(f) == 0 ? DONE : ctl_failed("cannot hand on the problems: %s", strerror(errno));
}

/* A file in memory becomes the standard input. */
static int give_problems(const struct precompiling *w)
{
    int fd = memfd_create("problems", MFD_CLOEXEC);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (!f) {
        return ctl_failed("cannot hand on the problems: %s", strerror(errno));
    }
    int code = write_problems(w, f);
    if (code == DONE && (lseek(fd, 0, SEEK_SET) < 0 || dup2(fd, STDIN_FILENO) < 0)) {
        code = ctl_failed("cannot hand on the problems: %s", strerror(errno));
    }
    fclose(f);
    return code;
}

static int precompile_prepare_input(struct precompiling *w)
{
    struct problems *problems = &w->task.subject.problems;
    const char *modes = problems_only_modes(problems);
    precompile_add_options(w);
    if (modes) { /* no problem is named: the usual ones */
        runner_add_option(&w->runner, "--mode", *modes ? modes : NULL);
        return DONE;
    }
    if (w->all) {
        return ctl_usage("--all is about the usual problems: it cannot stand beside options that "
                         "say which problems, but for --mode");
    }
    int code = problems_make(problems);
    runner_add(&w->runner, "--problems");
    return code ? code : give_problems(w);
}

static int precompile_run_command(void *command)
{
    struct precompiling *w = command;
    int code = precompile_prepare_input(w);
    code = code ? code : runner_become(&w->runner);
    runner_end(&w->runner);
    return code;
}

int cmd_precompile(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {0, 0, 0, 0, "How to compile", 3},
        {"arch", KEY_ARCH, "ARCH", 0,
         "for an architecture (sm_80, sm_90a, ...) that need not be here, or cpu; default: that of "
         "the first GPU",
         0},
        {"seconds", KEY_SECONDS, "S", 0, "begin nothing after so long (0: no limit)", 0},
        {"all", KEY_ALL, 0, 0, "of the usual problems also those of fp16, fp32 and fused ones", 0},
        {"cache-max-mib", KEY_MAX, "MIB", 0,
         "stop when the cache directory holds so much (4096; 0: no limit)", 0},
        {0}};
    static const struct argp argp = {
        .options = options,
        .parser = precompile_parse_option,
        .args_doc = "[PROBLEM]",
        .children = runner_children,
        .doc = "Compiles the kernels of problems into the daemon's cache directory, the most "
               "promising first, so that no tuning waits for the compiler. Without problems: those "
               "that bf16 layers need, of all modes or of --mode. Needs neither a GPU, nor its "
               "driver, nor a daemon; runs at the lowest priority, and goes on where it was "
               "stopped."};
    struct precompiling w = {.device = "cuda"};
    return subject_run(&w, &argp, precompile_run_command, argc, argv);
}
