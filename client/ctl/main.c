/* SPDX-License-Identifier: Apache-2.0 */
/* gemmctl: the list of commands, and the choice of a command. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/ctl.h"
#include "proto/std_files.h"
#include "proto/text.h"

static const struct command *const commands[] = {
    &command_get,     &command_tune,       &command_bench,      &command_pin,    &command_unpin,
    &command_promote, &command_list,       &command_show,       &command_why,    &command_trials,
    &command_verify,  &command_modules,    &command_quarantine, &command_evict,  &command_cancel,
    &command_space,   &command_precompile, &command_landscape,  &command_check,  &command_export,
    &command_import,  &command_bundle,     &command_lock,       &command_backup, &command_restore,
    &command_fleet,   &command_events,     &command_jobs,       &command_models, &command_report,
    &command_status,  &command_metrics,    &command_devices,    &command_start,  &command_stop,
    &command_version,
};

static int main_print_help(void)
{
    printf("Usage: gemmctl COMMAND [OPTION...]\n"
           "Gets the best kernel configurations from gemmd, and shows its results.\n\n");
    for (size_t i = 0; i < COUNT(commands); i++) {
        printf("  %-12s %s\n", commands[i]->name, commands[i]->help);
    }
    printf("  %-12s this list; `gemmctl COMMAND --help` has the options\n\n", "help");
    printf(
        "The daemon is the one of --socket or $GEMMD_SOCKET, else of --device or $GEMMD_DEVICE,\n"
        "else the only one that runs.\n"
        "Exit status: 0 done, 1 failed, 2 wrong usage, 3 no daemon, 75 busy.\n");
    return DONE;
}

static const struct command *main_find_command(const char *name)
{
    for (size_t i = 0; i < COUNT(commands); i++) {
        const char *former = commands[i]->former;
        if (strcmp(commands[i]->name, name) == 0 || (former && strcmp(former, name) == 0)) {
            return commands[i];
        }
    }
    return NULL;
}

static int no_such_command(const char *name)
{
    struct nearest t;
    if (name[0] == '-' && name[1]) {
        return ctl_usage("options come behind the command: gemmctl COMMAND %s ...; `gemmctl help` "
                         "lists the commands",
                         name);
    }
    nearest_begin(&t, name, strlen(name));
    for (size_t i = 0; i < COUNT(commands); i++) {
        nearest_offer(&t, commands[i]->name);
    }
    const char *near = nearest_end(&t);
    return ctl_usage("there is no command \"%s\"; %s%s%s`gemmctl help` lists them", name,
                     near ? "did you mean `gemmctl " : "", near ? near : "", near ? "`? " : "");
}

static bool is_help(const char *word)
{
    return list_has("help,--help,-h,-?", word);
}

/* Refuses arguments that are not UTF-8: gemmctl puts arguments into JSON, which would silently drop
 * them. */
static int check_words(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!text_utf8(argv[i], strlen(argv[i]))) {
            return ctl_usage("\"%s\" is not UTF-8", argv[i]);
        }
    }
    return DONE;
}

/* Ends the process with an error when stdout could not be written. Runs at every exit, because argp
 * prints its help and exits itself. */
static void check_written(int code, void *ignored)
{
    ctl_print_error(code);
    bool lost = fflush(stdout) != 0 || ferror(stdout);
    if (lost && code == DONE) {
        _exit(ctl_failed("cannot write the result: %s", strerror(errno)));
    }
}

int main(int argc, char **argv)
{
    static char help_option[] = "--help";
    static char name[64];
    std_files_open();
    ctl_want_error(argc, argv);
    on_exit(check_written, NULL);
    signal(SIGXFSZ, SIG_IGN); /* a file size limit then fails as EFBIG, with an error message */
    if (argc < 2) {
        return ctl_usage("no command given; `gemmctl help` lists them");
    }
    if (check_words(argc, argv)) {
        return USAGE;
    }
    if (is_help(argv[1])) {
        if (argc < 3 || is_help(argv[2])) {
            return main_print_help();
        }
        argv[1] = argv[2]; /* help COMMAND: COMMAND --help */
        argv[2] = help_option;
        argc = 3;
    }
    const struct command *c =
        main_find_command(strcmp(argv[1], "--version") == 0 ? "version" : argv[1]);
    if (!c) {
        return no_such_command(argv[1]);
    }
    snprintf(name, sizeof(name), "gemmctl %s", c->name);
    argv[1] = name; /* argp's name of the program */
    argp_err_exit_status = USAGE;
    return subject_run(c, argc - 1, argv + 1);
}
