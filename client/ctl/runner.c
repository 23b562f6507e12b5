/* SPDX-License-Identifier: Apache-2.0 */
/*
 * precompile, landscape: commands that exec gemmd-runner, because only the runner compiles and
 * measures. Ctrl-C, priorities and the exit status are then the runner's, and no daemon is
 * involved. A landscape (recording) needs the device alone for minutes; a landscape is evidence
 * about searches, not an answer.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/ctl/ctl.h"
#include "proto/paths.h"

enum { JOBS_MAX = 256, RUNNER_ARGS_MAX = 32 };

/* ---- arguments ------------------------------------------------------------------------------- */

struct runner_call {
    const char *argv[RUNNER_ARGS_MAX]; /* borrowed; NULL after the last */
    int argc;
};

static void runner_add(struct runner_call *r, const char *word)
{
    if (r->argc < RUNNER_ARGS_MAX - 1) {
        r->argv[r->argc++] = word;
    }
}

/* Adds an option with its value to the runner's arguments, unless the value is NULL: not given. */
static void runner_add_option(struct runner_call *r, const char *name, const char *value)
{
    if (value) {
        runner_add(r, name);
        runner_add(r, value);
    }
}

static int runner_add_given(struct runner_call *r, const struct subject *s)
{
    static const struct {
        enum own_option place;
        const char *option;
    } handed[] = {{OWN_JOBS, "--compile-threads"},    {OWN_CACHE_DIR, "--cache-dir"},
                  {OWN_CACHE_MAX, "--cache-max-mib"}, {OWN_SECONDS, "--seconds"},
                  {OWN_VARIANTS, "--variants"},       {OWN_SETTINGS, "--settings"},
                  {OWN_FINALS, "--finals"},           {OWN_NOTE, "--note"}};
    int64_t jobs; /* checked here: the runner's error message would name --compile-threads */
    if (option_number("jobs", s->given[OWN_JOBS], 0, JOBS_MAX, &jobs)) {
        return USAGE;
    }
    runner_add_option(r, "--target", s->search.query.target);
    for (size_t i = 0; i < COUNT(handed); i++) {
        runner_add_option(r, handed[i].option, s->given[handed[i].place]);
    }
    if (s->ctl.quiet) {
        runner_add(r, "--quiet");
    }
    if (s->ctl.json) {
        runner_add(r, "--json");
    }
    return DONE;
}

/* ---- the program ---------------------------------------------------------------------------- */

/* Returns only on failure, with an exit code after the error message. The program is $GEMMD_RUNNER,
 * else found near gemmctl, else in PATH. */
static int runner_become(struct runner_call *r)
{
    const char *named = getenv("GEMMD_RUNNER");
    char near[PATHS_MAX];
    if (named && *named && !paths_is_program(named)) {
        return ctl_failed("GEMMD_RUNNER=%s is not a program that can be run", named);
    }
    const char *program = named && *named           ? named
                          : paths_find_runner(near) ? near
                                                    : "gemmd-runner"; /* execvp searches PATH */
    fflush(NULL);
    execvp(program, (char *const *)(uintptr_t)r->argv);
    return ctl_failed("cannot run %s: %s; set GEMMD_RUNNER to gemmd-runner's path", program,
                      strerror(errno));
}

/* ---- precompile ----------------------------------------------------------------------------- */

static int cannot_hand_on(void)
{
    return ctl_failed("cannot hand on the problems: %s", strerror(errno));
}

/* Writes each problem's text as a line into a file in memory, which becomes the standard input of
 * the runner. */
static int give_problems(const json_t *problems)
{
    int fd = memfd_create("problems", MFD_CLOEXEC);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (!f) {
        return cannot_hand_on();
    }
    ARRAY_EACH(row, problems) {
        TEXT_AUTO *text = text_of_json(json_object_get(row, "problem"));
        fprintf(f, "%s\n", text);
    }
    bool failed =
        fflush(f) || ferror(f) || lseek(fd, 0, SEEK_SET) < 0 || dup2(fd, STDIN_FILENO) < 0;
    int code = failed ? cannot_hand_on() : DONE;
    fclose(f);
    return code;
}

static int runner_run_precompile(struct subject *s)
{
    struct runner_call call = {.argv = {"gemmd-runner", "--precompile"}, .argc = 2};
    const char *modes = problems_only_modes(&s->problems);
    char device[ARCH_MAX] = "cuda";
    if (option_arch(s->given[OWN_ARCH], device) || runner_add_given(&call, s)) {
        return USAGE;
    }
    runner_add_option(&call, "--device", device);
    if (s->given[OWN_ALL]) {
        runner_add(&call, "--all");
    }
    if (modes) { /* no problem was named: the usual problems */
        runner_add_option(&call, "--mode", *modes ? modes : NULL);
        return runner_become(&call);
    }
    if (s->given[OWN_ALL]) {
        return ctl_usage("--all is about the usual problems: it cannot stand beside options that "
                         "say which problems, but for --mode");
    }
    runner_add(&call, "--problems");
    int code = problems_make(&s->problems);
    code = code ? code : give_problems(s->problems.all);
    return code ? code : runner_become(&call);
}

static const struct argp_option precompile_options[] = {
    {0, 0, 0, 0, "How to compile", 3},
    {"arch", OWN_KEY + OWN_ARCH, "ARCH", 0,
     "for an architecture (sm_80, sm_90a, ...) that may be absent, or cpu (default: the first GPU)",
     0},
    {"seconds", OWN_KEY + OWN_SECONDS, "S", 0, "begin no kernel after S seconds (0: no limit)", 0},
    {"all", OWN_KEY + OWN_ALL, 0, 0, "the usual problems also in fp16 and fp32, and fused", 0},
    {"jobs", OWN_KEY + OWN_JOBS, "N", 0,
     "compile so many at once; default: by the number of processors", 0},
    {"cache-dir", OWN_KEY + OWN_CACHE_DIR, "DIR", 0,
     "the daemon's --cache-dir, when it has another one", 0},
    {"cache-max-mib", OWN_KEY + OWN_CACHE_MAX, "MIB", 0,
     "stop when the cache directory has this size (4096; 0: no limit)", 0},
    {0},
};

const struct command command_precompile = {
    .name = "precompile",
    .help = "compile kernels before a tuning needs them",
    .former = "warm",
    .run = runner_run_precompile,
    .args_doc = "[PROBLEM]",
    .doc = "Compiles the kernels of problems into the daemon's cache directory, the most promising "
           "first, so that no tuning waits for the compiler. Without problems: those that bf16 "
           "layers need, of all modes or of --mode. Needs neither a GPU, nor its driver, nor a "
           "daemon; runs at the lowest priority, and goes on where it was stopped.",
    .options = precompile_options,
    .parts = {&problems_argp, &target_argp, &output_argp},
};

/* ---- landscape ------------------------------------------------------------------------------ */

static int runner_run_landscape(struct subject *s)
{
    struct runner_call call = {.argv = {"gemmd-runner", "--landscape", s->given[OWN_TO]},
                               .argc = 3};
    const char *path = s->given[OWN_TO], *device = s->given[OWN_DEVICE];
    if (!path) {
        return ctl_usage("where to? give --to FILE; the device `replay:FILE` plays it then");
    }
    if (!*path || strcmp(path, "-") == 0) { /* the finished recording is renamed to the file */
        return ctl_usage("--to takes a file, not \"%s\"", path);
    }
    const json_t *problem = problems_one(&s->problems);
    if (!problem || runner_add_given(&call, s)) {
        return USAGE;
    }
    TEXT_AUTO *text = text_of_json(problem);
    device = device ? device : s->ctl.device;
    runner_add_option(&call, "--device", device ? device : "cuda:0");
    runner_add(&call,
               "--"); /* the problem's text is not an option, even if its first character is - */
    runner_add(&call, text);
    return runner_become(&call);
}

static const struct argp_option landscape_options[] = {
    {0, 0, 0, 0, "How to record", 3},
    {"to", OWN_KEY + OWN_TO, "FILE", 0,
     "the landscape; a half-made one has \".part\" behind its name", 0},
    {"device", OWN_KEY + OWN_DEVICE, "DEVICE", 0,
     "cuda:0, cuda:GPU-<uuid>, cpu (default: $GEMMD_DEVICE, else cuda:0)", 0},
    {"seconds", OWN_KEY + OWN_SECONDS, "S", 0,
     "begin no more kernels after S seconds, once --variants are recorded", 0},
    {"variants", OWN_KEY + OWN_VARIANTS, "N", 0, "record at least N kernels (250)", 0},
    {"settings", OWN_KEY + OWN_SETTINGS, "N", 0, "run-time settings of each, at most (all)", 0},
    {"finals", OWN_KEY + OWN_FINALS, "N", 0, "measure the best N again, in turn (50)", 0},
    {"note", OWN_KEY + OWN_NOTE, "TEXT", 0, "text for the first line", 0},
    {"jobs", OWN_KEY + OWN_JOBS, "N", 0,
     "compile so many at once; default: by the number of processors", 0},
    {"cache-dir", OWN_KEY + OWN_CACHE_DIR, "DIR", 0,
     "the daemon's --cache-dir, when it has another one", 0},
    {0},
};

const struct command command_landscape = {
    .name = "landscape",
    .help = "record a problem's whole space, for the replay device",
    .run = runner_run_landscape,
    .args_doc = "[PROBLEM]",
    .doc = "Measures every config of a problem's space on a device and writes them to a file, "
           "which the device replay:FILE plays. Asks no daemon; stop the device's own, or what "
           "both measure is disturbed. Minutes, by what the compiler takes.",
    .options = landscape_options,
    .parts = {&problems_argp, &target_argp, &output_argp},
};
