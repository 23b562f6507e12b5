/* SPDX-License-Identifier: Apache-2.0 */
/* The common parts of --precompile and --landscape, modes of gemmd-runner that people start by
 * hand: options, the cache directory, the progress line, errors and signals. */
#ifndef GEMMD_RUNNER_BASE_MODE_H
#define GEMMD_RUNNER_BASE_MODE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/paths.h"

/* Options of both modes. A runner that serves gemmd uses device, cache_dir and threads. Borrowed.
 */
struct mode_order {
    const char *device;    /* device spec: "cuda:0", "cuda:sm_90a", "cpu" ... */
    const char *target;    /* NULL: the device's choice for each problem */
    const char *cache_dir; /* of modules; NULL: the user's (paths_cache_dir) */
    int64_t threads;       /* compiler threads; 0: one per core */
    int64_t seconds;       /* time after which no compile begins; -1: not given */
    bool quiet, json;
};

/* Finds and creates the module cache directory. `given` NULL: the user's (paths_cache_dir).
 * ERROR_INVALID, ERROR_IO. */
int mode_find_cache(const char *given, char out[PATHS_MAX], struct error *err);
/* Compiler threads: `asked`, or one per core for 0; from 1 to 256. */
unsigned mode_count_threads(int64_t asked);

/* The progress line on stderr: on a terminal a single line that each call draws again, in a log a
 * new line every ten seconds. */
struct line {
    bool quiet, terminal;
    double last_ms;
};

void mode_begin_line(struct line *l, bool quiet, double now_ms);
/* True when the next progress line is due. */
bool mode_is_line_due(struct line *l, double now_ms);
void mode_put_line(const struct line *l, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Clears the terminal's line. */
void mode_end_line(const struct line *l);

/* Prints the error on stderr, and with `json` also on stdout: {"error": {"name", "message"}}. */
void mode_print_error(const struct error *err, bool json);
/* Flushes stdout. False: the output could not be written; an error is on stderr. */
bool mode_flush_output(void);

/* For handlers of signals that end the process: removes the scrap file, ends the progress line, so
 * that the shell's prompt gets its own line, and raises the signal with its default action. */
void mode_die(int signal);
/* Names a half-written file (scrap) that mode_die and mode_remove_scrap remove. `path` must live as
 * long as the process; NULL: no file. */
void mode_scrap_file(const char *path);
void mode_remove_scrap(void);
/* Installs mode_die for SIGINT, SIGTERM and SIGHUP, unless the signal is ignored. */
void mode_watch_signals(void);

#endif
