/* SPDX-License-Identifier: Apache-2.0 */
/*
 * warm: compiles ahead. gemmd-runner does it (its --warm), since all that compiles is there; this
 * turns the problems into text on its standard input and becomes it, so that Ctrl-C, priorities and
 * the exit status are its own. No daemon is asked.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/ctl/ctl.h"

enum { KEY_ARCH = 0x7100, KEY_JOBS, KEY_SECONDS, KEY_ALL, KEY_CACHE, KEY_MAX, KEY_JSON };
enum { ARGV_MAX = 32 };

struct warming {
    struct problems problems;
    struct search search; /* its target */
    const char *arch, *jobs, *seconds, *cache_dir, *max_mib; /* borrowed from argv */
    bool all, quiet, json;
    char runner[PATH_MAX];
    char *argv[ARGV_MAX]; /* owned */
    int argc;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct warming *w = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &w->problems;
        state->child_inputs[1] = &w->search;
        return 0;
    case KEY_ARCH:
        w->arch = arg;
        return 0;
    case KEY_JOBS:
        w->jobs = arg;
        return 0;
    case KEY_SECONDS:
        w->seconds = arg;
        return 0;
    case KEY_CACHE:
        w->cache_dir = arg;
        return 0;
    case KEY_MAX:
        w->max_mib = arg;
        return 0;
    case KEY_ALL:
        w->all = true;
        return 0;
    case KEY_JSON:
        w->json = true;
        return 0;
    case 'q':
        w->quiet = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- the program ---------------------------------------------------------------------------- */

/* Beside us, as it is installed, or as the build tree has it. */
static bool find_near(char out[PATH_MAX])
{
    static const char *const places[] = {"gemmd-runner", "../libexec/gemmd/gemmd-runner",
                                         "../daemon/runner/gemmd-runner"};
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

static int find_runner(struct warming *w)
{
    const char *named = getenv("GEMMD_RUNNER");
    if (named && *named) {
        snprintf(w->runner, sizeof(w->runner), "%s", named);
        return access(named, X_OK) == 0
                   ? DONE
                   : ctl_failed("GEMMD_RUNNER=%s is not a program that can be run", named);
    }
    if (!find_near(w->runner)) {
        strcpy(w->runner, "gemmd-runner"); /* execvp looks in PATH */
    }
    return DONE;
}

/* ---- its arguments -------------------------------------------------------------------------- */

static void add(struct warming *w, const char *text)
{
    if (w->argc < ARGV_MAX - 1) {
        w->argv[w->argc++] = strdup(text);
    }
}

static void add_option(struct warming *w, const char *name, const char *value)
{
    if (value) {
        add(w, name);
        add(w, value);
    }
}

static void add_device(struct warming *w)
{
    char spec[256];
    const char *arch = w->arch ? w->arch : "cuda";
    snprintf(spec, sizeof(spec), "%s%s", strncmp(arch, "sm_", 3) == 0 ? "cuda:" : "", arch);
    add_option(w, "--device", spec);
}

static void add_all(struct warming *w)
{
    add(w, "gemmd-runner");
    add(w, "--warm");
    add_device(w);
    add_option(w, "--target", w->search.query.target);
    add_option(w, "--compile-threads", w->jobs);
    add_option(w, "--seconds", w->seconds);
    add_option(w, "--cache-dir", w->cache_dir);
    add_option(w, "--cache-max-mib", w->max_mib);
    if (w->all) {
        add(w, "--all");
    }
    if (w->quiet) {
        add(w, "--quiet");
    }
    if (w->json) {
        add(w, "--json");
    }
}

/* One text a line. */
static int write_problems(const struct warming *w, FILE *f)
{
    size_t i;
    const json_t *row;
    json_array_foreach (w->problems.all, i, row) {
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
static int give_problems(const struct warming *w)
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

static int prepare(struct warming *w)
{
    const char *modes = problems_only_modes(&w->problems);
    int code = find_runner(w);
    add_all(w);
    if (code || modes) { /* no problem is named: the usual ones */
        add_option(w, "--mode", modes && *modes ? modes : NULL);
        return code;
    }
    if (w->all) {
        return ctl_usage("--all is about the usual problems: it cannot stand beside options that "
                         "say which problems, but for --mode");
    }
    code = problems_make(&w->problems);
    add(w, "--problems");
    return code ? code : give_problems(w);
}

static int become_runner(struct warming *w)
{
    fflush(NULL);
    execvp(w->runner, w->argv);
    return ctl_failed("cannot run %s: %s; set GEMMD_RUNNER to gemmd-runner's path", w->runner,
                      strerror(errno));
}

int cmd_warm(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {0, 0, 0, 0, "How to compile", 3},
        {"arch", KEY_ARCH, "ARCH", 0,
         "for an architecture (sm_80, sm_90a, ...) that need not be here, or cpu; default: that of "
         "the first GPU",
         0},
        {"jobs", KEY_JOBS, "N", 0, "compile so many at once; default: one for each processor", 0},
        {"seconds", KEY_SECONDS, "S", 0, "begin nothing after so long", 0},
        {"all", KEY_ALL, 0, 0, "of the usual problems also those of fp16, fp32 and fused ones", 0},
        {"cache-dir", KEY_CACHE, "DIR", 0, "the daemon's --cache-dir, when it has another one", 0},
        {"cache-max-mib", KEY_MAX, "MIB", 0,
         "stop when the cache directory holds so much (4096; 0: no limit)", 0},
        {"json", KEY_JSON, 0, 0, "the outcome as JSON", 0},
        {"quiet", 'q', 0, 0, "no progress", 0},
        {0}};
    static const struct argp_child children[] = {
        {&problems_argp, 0, NULL, 0}, {&target_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "[PROBLEM]",
        .children = children,
        .doc = "Compiles the kernels of problems into the daemon's cache directory, the most "
               "promising first, so that no tuning waits for the compiler. Without problems: those "
               "that bf16 layers need, of all modes or of --mode. Needs neither a GPU, nor its "
               "driver, nor a daemon; runs at the lowest priority, and goes on where it was "
               "stopped."};
    struct warming w = {.arch = NULL};
    search_init(&w.search);
    argp_parse(&argp, argc, argv, 0, NULL, &w);
    int code = prepare(&w);
    code = code ? code : become_runner(&w);
    for (int i = 0; i < w.argc; i++) {
        free(w.argv[i]);
    }
    search_deinit(&w.search);
    problems_deinit(&w.problems);
    return code;
}
