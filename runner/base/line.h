/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The progress line on stderr of the modes that people watch, --precompile and --landscape: on a
 * terminal one line that is drawn again, else a line every ten seconds, for logs.
 */
#ifndef GEMMD_RUNNER_BASE_LINE_H
#define GEMMD_RUNNER_BASE_LINE_H

#include <stdbool.h>

#include "proto/error.h"

struct line {
    bool quiet, terminal;
    double last_ms;
};

void line_begin(struct line *l, bool quiet, double now_ms);
/* Whether it is time to put the next one. */
bool line_due(struct line *l, double now_ms);
void line_put(const struct line *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The terminal's line is empty again. */
void line_end(const struct line *l);

/* Says the error on stderr, and with `json` also on stdout: {"error": {"name", "message"}}. */
void line_fail(const struct error *err, bool json);
/* Whether what was printed has been written; else says so on stderr. */
bool line_said(void);

/* For handlers of signals that end the process: a line that stands becomes a whole one, so that the
 * shell's prompt does not stand behind it, and the signal does what it does by default. */
void line_die(int signal);
/* A file that line_die removes: what is half written is of no use. Borrowed, static; NULL: none. */
void line_scrap(const char *path);
/* line_die handles SIGINT, SIGTERM and SIGHUP, those that are not ignored. */
void line_watch(void);

#endif
