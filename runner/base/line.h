/* SPDX-License-Identifier: Apache-2.0 */
/* The progress line on stderr for --precompile and --landscape: on a terminal a line that is drawn
 * again and again, in a log a new line every ten seconds. */
#ifndef GEMMD_RUNNER_BASE_LINE_H
#define GEMMD_RUNNER_BASE_LINE_H

#include <stdbool.h>

#include "proto/error.h"

struct line {
    bool quiet, terminal;
    double last_ms;
};

void line_begin(struct line *l, bool quiet, double now_ms);
/* True when the next progress line is due. */
bool line_due(struct line *l, double now_ms);
void line_put(const struct line *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Clears the terminal's line. */
void line_end(const struct line *l);

/* Prints the error on stderr, and with `json` also on stdout: {"error": {"name", "message"}}. */
void line_fail(const struct error *err, bool json);
/* Flushes stdout. False: the output could not be written; an error is on stderr. */
bool line_said(void);

/* For handlers of signals that end the process: ends the progress line, so that the shell's prompt
 * gets its own line, and raises the signal with its default action. */
void line_die(int signal);
/* A half-written file that line_die removes. Borrowed, static; NULL: no file. */
void line_scrap(const char *path);
/* Installs line_die for SIGINT, SIGTERM and SIGHUP, unless the signal is ignored. */
void line_watch(void);

#endif
