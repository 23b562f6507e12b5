/* SPDX-License-Identifier: Apache-2.0 */
/* Lines on stderr: with the level as "<n>" for systemd's journal, else with the time. */
#ifndef GEMMD_FLEET_LOG_H
#define GEMMD_FLEET_LOG_H

enum log_level { LOG_ERROR_LINE = 3, LOG_WARNING_LINE = 4, LOG_INFO_LINE = 6 };

void log_write_line(enum log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
#define log_error(...)   log_write_line(LOG_ERROR_LINE, __VA_ARGS__)
#define log_warning(...) log_write_line(LOG_WARNING_LINE, __VA_ARGS__)
#define log_info(...)    log_write_line(LOG_INFO_LINE, __VA_ARGS__)

#endif
