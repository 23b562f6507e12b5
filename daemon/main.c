/* SPDX-License-Identifier: Apache-2.0 */
/* gemmd: reads its settings and runs. methods/daemon_parts.h lists the parts. */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/config.h"
#include "daemon/base/log.h"
#include "daemon/life.h"
#include "kernels/device.h"
#include "proto/build.h"
#include "proto/std_files.h"

enum { KEY_CONFIG = 1000, KEY_PRINT, KEY_RESTORE, KEY_FOREGROUND, KEY_FIRST };
enum { EXIT_BUSY = 75 };

__attribute__((visibility("default"))) const char *argp_program_version = "gemmd " GEMMD_VERSION;

struct arguments {
    struct config config;
    struct config_sources from;
    const char *file, *restore; /* borrowed */
    bool print;
    struct {
        const char *key, *value;
    } given[64]; /* borrowed: settings of the command line, applied after the file's */
    int n_given;
};

static error_t main_take_option(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;
    if (key >= KEY_FIRST && key < KEY_FIRST + CONFIG_KEYS) {
        if (a->n_given == (int)(sizeof(a->given) / sizeof(a->given[0]))) {
            argp_error(state, "too many options");
        }
        a->given[a->n_given].key = config_keys[key - KEY_FIRST].name;
        a->given[a->n_given++].value = arg ? arg : "true";
        return 0;
    }
    switch (key) {
    case KEY_CONFIG:
        a->file = arg;
        return 0;
    case KEY_PRINT:
        a->print = true;
        return 0;
    case KEY_RESTORE:
        a->restore = arg;
        return 0;
    case KEY_FOREGROUND:
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument '%s'", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void main_parse_arguments(struct arguments *a, int argc, char **argv)
{
    struct argp_option options[CONFIG_KEYS + 5] = {
        {"config", KEY_CONFIG, "FILE", 0, "Configuration (default: " CONFIG_FILE_DEFAULT ")", 1},
        {"print-config", KEY_PRINT, NULL, 0, "Show each setting and where it comes from, and exit",
         1},
        {"restore", KEY_RESTORE, "FILE", 0,
         "Put this backup in the place of the database, while no daemon runs, and exit", 1},
        {"foreground", KEY_FOREGROUND, NULL, 0, "Stay in the foreground: always the case", 1},
    };
    for (int i = 0; i < CONFIG_KEYS; i++) {
        const struct config_key *k = &config_keys[i];
        options[4 + i] = (struct argp_option){k->name, KEY_FIRST + i, k->arg, 0, k->help, 0};
    }
    const struct argp argp = {
        options,
        main_take_option,
        NULL,
        "Serves tuned GPU kernel configurations for one device on a Unix socket.\v"
        "Settings come from the command line, else from the configuration file (section [gemmd], "
        "the same names), else from defaults. Exit codes: 0 stopped, 1 failure, 2 usage, 75 "
        "another gemmd serves this device or database.",
        NULL,
        NULL,
        NULL};
    argp_err_exit_status = 2;
    argp_parse(&argp, argc, argv, 0, NULL, a);
}

static int main_configure_daemon(struct arguments *a, struct error *err)
{
    config_init(&a->config, &a->from);
    int status = config_read(&a->config, &a->from, a->file ? a->file : CONFIG_FILE_DEFAULT,
                             a->file != NULL, err);
    for (int i = 0; status == 0 && i < a->n_given; i++) {
        status = config_set(&a->config, &a->from, a->given[i].key, a->given[i].value,
                            "command line", err);
        if (status) {
            error_prefix(err, "--%s", a->given[i].key);
        }
    }
    if (status == 0 && a->config.memory_percent == 0) {
        status = device_memory_share_check(err);
    }
    return status;
}

static int main_restore(struct arguments *a)
{
    struct error err = ERROR_NULL;
    int r = restore_run(&a->config, &a->from, a->restore, &err);
    if (r < 0) {
        fprintf(stderr, "gemmd: %s\n", err.text);
    }
    return r == 0 ? EXIT_SUCCESS : r == ERROR_BUSY ? EXIT_BUSY : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    static struct arguments a;
    struct error err = ERROR_NULL;
    enum log_level level = LEVEL_INFO;
    std_files_open();
    main_parse_arguments(&a, argc, argv);
    int status = main_configure_daemon(&a, &err);
    status = status ? status : log_level_parse(a.config.log_level, &level, &err);
    if (status < 0) {
        fprintf(stderr, "gemmd: %s\n", err.text);
        return 2;
    }
    if (a.restore) {
        return main_restore(&a);
    }
    if (a.print) {
        static struct device_info device;
        if (start_settle(&a.config, &a.from, &device, &err) < 0) {
            fprintf(stderr, "gemmd: what depends on this is not known: %s\n", err.text);
        }
        config_print(&a.config, &a.from);
        if (fflush(stdout) || ferror(stdout)) {
            fprintf(stderr, "gemmd: the settings cannot be written: %s\n", strerror(errno));
            return EXIT_FAILURE;
        }
        return EXIT_SUCCESS;
    }
    log_open(level);
    return daemon_run(&a.config, &a.from);
}
