/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log: lines on stderr. When stderr is systemd's journal, each line begins with "<n>", else
 * with the time. n is the level as syslog numbers it. Lines above a rate limit are counted and not
 * written, so that a flood of bad clients cannot fill a disk. Lines that the reader of stderr does
 * not take are also counted: logging never waits.
 *
 * Only the loop's thread may call these functions.
 */
#ifndef GEMMD_DAEMON_BASE_LOG_H
#define GEMMD_DAEMON_BASE_LOG_H

#include "proto/error.h"

enum log_level {
    LEVEL_ERROR = 3,
    LEVEL_WARNING = 4,
    LEVEL_NOTICE = 5,
    LEVEL_INFO = 6,
    LEVEL_DEBUG = 7,
};

void log_open(enum log_level level);
/* When stderr is a file that a user has renamed, opens the path again that it had at the start.
 * ERROR_INVALID: stderr is no file. ERROR_IO: the log goes on in the renamed file. */
int log_reopen(struct error *err);
/* Reads a level: "error" | "warning" | "notice" | "info" | "debug". The message of ERROR_INVALID
 * lists the levels. */
int log_level_parse(const char *name, enum log_level *out, struct error *err);
bool log_wants(enum log_level level);
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...)   log_line(LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LEVEL_WARNING, __VA_ARGS__)
#define log_notice(...)  log_line(LEVEL_NOTICE, __VA_ARGS__)
#define log_info(...)    log_line(LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)   (log_wants(LEVEL_DEBUG) ? log_line(LEVEL_DEBUG, __VA_ARGS__) : (void)0)

#endif
