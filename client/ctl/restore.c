/* SPDX-License-Identifier: Apache-2.0 */
/*
 * restore: puts a backup in the place of the database. gemmd itself does the work (gemmd
 * --restore), because only gemmd knows SQLite and its own settings. gemmctl runs gemmd and reads
 * the two lines, or the error message, that gemmd prints.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/ctl/ctl.h"
#include "proto/paths.h"

enum { WORDS_MAX = 16 * 1024 };

/* Finds gemmd as `start` does: $GEMMD_DAEMON, beside gemmctl, or in PATH. NULL after the error
 * message. */
static const char *restore_find_gemmd(char near[PATHS_MAX])
{
    const char *named = getenv("GEMMD_DAEMON");
    if (named && *named && !paths_is_program(named)) {
        ctl_failed("GEMMD_DAEMON=%s is not a program that can be run", named);
        return NULL;
    }
    return named && *named ? named : paths_find_near("gemmd", near) ? near : "gemmd";
}

/* Runs gemmd with both its outputs in `words`. Returns the exit status, or -1 after the error
 * message. */
static int restore_run_gemmd(const char *program, const char *const argv[], char words[WORDS_MAX])
{
    int ends[2], status = -1;
    pid_t pid;
    posix_spawn_file_actions_t files;
    if (pipe2(ends, O_CLOEXEC)) {
        ctl_failed("cannot make a pipe: %s", strerror(errno));
        return -1;
    }
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, ends[1], STDERR_FILENO);
    int r = posix_spawnp(&pid, program, &files, NULL, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&files);
    close(ends[1]);
    FILE *f = fdopen(ends[0], "re");
    size_t n = r == 0 && f ? fread(words, 1, WORDS_MAX - 1, f) : 0;
    words[n] = '\0';
    if (f) {
        fclose(f);
    }
    if (r) {
        ctl_failed("cannot run %s: %s; set GEMMD_DAEMON to gemmd's path", program, strerror(r));
        return -1;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : FAILED;
}

/* The rest of the line of `words` that begins with `name`; "" when the line has no more. Cuts the
 * line off in place: ask for the last line first. */
static const char *restore_read_line(char *words, const char *name)
{
    char *line = strstr(words, name);
    if (!line) {
        return "";
    }
    line += strlen(name);
    line[strcspn(line, "\n")] = '\0';
    return *line == ' ' ? line + 1 : line;
}

static int restore_say(const struct ctl *c, char *words)
{
    const char *replaced = restore_read_line(words, "\nreplaced");
    const char *database = restore_read_line(words, "database");
    if (c->json) {
        return ctl_print_json(
            json_pack("{ss, ss?}", "database", database, "replaced", *replaced ? replaced : NULL));
    }
    printf("%s\n", database);
    if (*replaced && !c->quiet) {
        text_remark("the database before is kept: %s", replaced);
    }
    return DONE;
}

static int restore_fail(char *words, int status)
{
    static const char prefix[] = "gemmd: ";
    words[strcspn(words, "\n")] = '\0';
    const char *text = strncmp(words, prefix, strlen(prefix)) ? words : words + strlen(prefix);
    if (status == BUSY) {
        ctl_name_error("busy");
    }
    ctl_failed("%s", *text ? text : "gemmd ended without a word");
    return status == BUSY || status == USAGE ? status : FAILED;
}

static int restore_run(struct subject *s)
{
    char near[PATHS_MAX], words[WORDS_MAX];
    const char *database = s->given[OWN_DATABASE];
    if (s->n_paths > 1) {
        return ctl_usage("\"%s\" is too much", s->paths[1]);
    }
    if (database && !*database) { /* gemmd would restore the default database */
        return ctl_usage("--database takes a path, not \"\"");
    }
    const char *argv[] = {"gemmd",  "--restore", s->paths[0], database ? "--database" : NULL,
                          database, NULL};
    const char *program = restore_find_gemmd(near);
    int status = program ? restore_run_gemmd(program, argv, words) : -1;
    if (status < 0) {
        return FAILED;
    }
    return status == 0 ? restore_say(&s->ctl, words) : restore_fail(words, status);
}

static const struct argp_option restore_options[] = {
    {"database", OWN_KEY + OWN_DATABASE, "PATH", 0,
     "the database (default: that of gemmd's settings)", 0},
    {0},
};

const struct command command_restore = {
    .name = "restore",
    .help = "put a backup in the place of the database",
    .run = restore_run,
    .args_doc = "FILE",
    .doc = "Puts a copy that `gemmctl backup` made in the place of the database. No daemon of the "
           "database may run. The replaced file is kept beside the database, as "
           "PATH.replaced-<time>. For the database's owner and root.",
    .options = restore_options,
    .parts = {&files_argp, &output_argp},
};
