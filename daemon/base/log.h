/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log: lines on stderr. Under systemd (JOURNAL_STREAM names our stderr) each line begins with
 * "<level>", else with the time. Levels are syslog's numbers. Lines above a rate limit are counted
 * and not written, so that a flood of bad clients cannot fill a disk. Lines that the reader of
 * stderr does not take are also counted: logging never waits.
 *
 * Loop thread only.
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
/* Opens the log's path again after a user renamed the file, when stderr is a file. ERROR_INVALID:
 * stderr is no file. ERROR_IO: the log goes on in the old file. */
int log_reopen(struct error *err);
/* "error" | "warning" | "notice" | "info" | "debug". ERROR_INVALID lists them. */
int log_level_parse(const char *name, enum log_level *out, struct error *err);
bool log_wants(enum log_level level);
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...)   log_line(LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LEVEL_WARNING, __VA_ARGS__)
#define log_notice(...)  log_line(LEVEL_NOTICE, __VA_ARGS__)
#define log_info(...)    log_line(LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)   (log_wants(LEVEL_DEBUG) ? log_line(LEVEL_DEBUG, __VA_ARGS__) : (void)0)

#endif
