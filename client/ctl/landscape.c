/* SPDX-License-Identifier: Apache-2.0 */
/*
 * landscape: records the whole space of a problem on a device, for the replay device. gemmd-runner
 * does it (its --landscape). It is no work for a daemon: a recording wants the device to itself for
 * minutes, and what it measures is evidence about searches, not an answer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/runner.h"

enum { KEY_TO = 0x7200, KEY_DEVICE, KEY_SECONDS, KEY_VARIANTS, KEY_SETTINGS, KEY_FINALS, KEY_NOTE };

/* What is handed on as it is. */
static const struct handed {
    int key;
    const char *option;
} handed[] = {{KEY_SECONDS, "--seconds"},
              {KEY_VARIANTS, "--variants"},
              {KEY_SETTINGS, "--settings"},
              {KEY_FINALS, "--finals"},
              {KEY_NOTE, "--note"}};

struct recording {
    struct runner_task task;           /* first */
    const char *path, *device;         /* borrowed from argv; path NULL: not given */
    const char *values[COUNT(handed)]; /* borrowed from argv, or NULL */
};

static error_t landscape_parse_option(int key, char *arg, struct argp_state *state)
{
    struct recording *r = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        runner_task_children(state);
        return 0;
    case KEY_TO:
        r->path = arg;
        if (!*arg || strcmp(arg, "-") == 0) { /* what is recorded takes its place in the end */
            argp_error(state, "--to takes a file, not \"%s\"", arg);
        }
        return 0;
    case KEY_DEVICE:
        r->device = arg;
        return 0;
    default:
        break;
    }
    for (size_t i = 0; i < COUNT(handed); i++) {
        if (handed[i].key == key) {
            r->values[i] = arg;
            return 0;
        }
    }
    return ARGP_ERR_UNKNOWN;
}

static void landscape_add_options(const struct recording *r, const char *problem,
                                  struct runner_call *call)
{
    const char *usual = getenv("GEMMD_DEVICE");
    runner_begin(call, "--landscape");
    runner_add(call, r->path);
    runner_add_option(call, "--device", r->device ? r->device : usual && *usual ? usual : "cuda:0");
    runner_add_task(call, &r->task);
    for (size_t i = 0; i < COUNT(handed); i++) {
        runner_add_option(call, handed[i].option, r->values[i]);
    }
    runner_add(call, "--"); /* a problem's text is no option, whatever it begins with */
    runner_add(call, problem);
}

static int landscape_run_command(void *command)
{
    struct recording *r = command;
    if (!r->path) {
        return ctl_usage("where to? give --to FILE; the device `replay:FILE` plays it then");
    }
    const json_t *problem = problems_one(&r->task.subject.problems);
    if (!problem) {
        return USAGE;
    }
    char *text = text_of_json(problem);
    if (!text) {
        return ctl_failed("no memory for the problem");
    }
    struct runner_call call;
    landscape_add_options(r, text, &call);
    free(text);
    int code = runner_become(&call);
    runner_end(&call);
    return code;
}

int cmd_landscape(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {0, 0, 0, 0, "How to record", 3},
        {"to", KEY_TO, "FILE", 0, "the landscape; a half-made one has \".part\" behind its name",
         0},
        {"device", KEY_DEVICE, "DEVICE", 0,
         "cuda:0, cuda:GPU-<uuid>, cpu (default: $GEMMD_DEVICE, else cuda:0)", 0},
        {"seconds", KEY_SECONDS, "S", 0,
         "begin no more kernels after so long, once --variants are recorded", 0},
        {"variants", KEY_VARIANTS, "N", 0, "so many kernels at least (250)", 0},
        {"settings", KEY_SETTINGS, "N", 0, "run-time settings of each, at most (all)", 0},
        {"finals", KEY_FINALS, "N", 0, "the best so many are measured again, in turn (50)", 0},
        {"note", KEY_NOTE, "TEXT", 0, "where and how, into the first line", 0},
        {0}};
    static const struct argp argp = {
        .options = options,
        .parser = landscape_parse_option,
        .args_doc = "[PROBLEM]",
        .children = runner_children,
        .doc = "Measures every config of a problem's space on a device and writes them to a file, "
               "which the device replay:FILE plays. Asks no daemon; stop the device's own, or what "
               "both measure is disturbed. Minutes, by what the compiler takes."};
    struct recording r = {.path = NULL};
    return subject_run(&r, &argp, landscape_run_command, argc, argv);
}
