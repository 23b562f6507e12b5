/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings. One table of keys serves the configuration file (unit-file syntax, section [gemmd]),
 * the command line (--key) and --print-config, which shows the source of each value. The command
 * line wins over the file, the file over the default. An unknown key or an invalid value is refused
 * with file and line: a daemon that silently ignores a setting is worse than a daemon that does not
 * start.
 */
#ifndef GEMMD_DAEMON_BASE_CONFIG_H
#define GEMMD_DAEMON_BASE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/paths.h"

#define CONFIG_FILE_DEFAULT "/etc/gemmd/gemmd.conf"

/* The help of config_keys says how an empty text is read. */
struct config {
    char device[PATHS_MAX];
    char socket[PATHS_MAX];
    char database[PATHS_MAX];
    char cache_dir[PATHS_MAX];
    char runner[PATHS_MAX];
    char group[64];
    char bucket[16];
    char log_level[16];
    int64_t linger_ms;
    int64_t runner_nice;
    int64_t compile_ahead;
    int64_t hang_limit_ms;
    int64_t memory_percent;
    int64_t lock_clocks;
    int64_t retry_ms;
    int64_t budget;
    int64_t budget_ms;
    double min_gain; /* per cent */
    int64_t max_connections;
    int64_t message_ms;
    int64_t answer_ms;
    int64_t user_connections;
    int64_t user_jobs;
    int64_t user_mib;
    int64_t max_keys;
    int64_t user_keys;
    int64_t remeasure_s;
    int64_t trials_per_key;
    int64_t cache_max_mib;
    int64_t idle_exit_s;
    bool offline;
    bool force_network_fs;
    bool no_baseline;
};

enum config_kind { CONFIG_TEXT, CONFIG_INT, CONFIG_REAL, CONFIG_FLAG };

struct config_key {
    const char *name; /* name of the key, as in the file; on the command line it is "--linger-ms" */
    enum config_kind kind;
    size_t offset, size;
    const char *fallback;
    int64_t min, max; /* CONFIG_INT, CONFIG_REAL */
    const char *arg;  /* the value's name in --help; NULL: a flag */
    const char *help;
    int (*check)(const char *value, struct error *err); /* CONFIG_TEXT; NULL: any text */
};

enum { CONFIG_KEYS = 33 };
extern const struct config_key config_keys[CONFIG_KEYS];

enum { CONFIG_SOURCE_MAX = PATHS_MAX + 16 };
struct config_sources {
    char of[CONFIG_KEYS][CONFIG_SOURCE_MAX]; /* "default" | "<file>:<line>" | "command line" */
};

void config_init(struct config *c, struct config_sources *from);
/* Sets one key from text. ERROR_UNKNOWN_FIELD, ERROR_INVALID. */
int config_set(struct config *c, struct config_sources *from, const char *name, const char *value,
               const char *source, struct error *err);
/* Reads a file. A missing file is an error only when `required`. */
int config_read(struct config *c, struct config_sources *from, const char *path, bool required,
                struct error *err);
/* Prints lines of "key = value ; source" on stdout, a file that can be read back. */
void config_print(const struct config *c, const struct config_sources *from);

#endif
