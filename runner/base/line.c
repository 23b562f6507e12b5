/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/base/line.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "proto/wire.h"

enum { REDRAW_MS = 200, LOG_MS = 10000, LINE_BYTES = 512, COLUMNS = 80 };

static volatile sig_atomic_t stands;
static const char *volatile scrap; /* borrowed */

/* ---- the line ------------------------------------------------------------------------------- */

void line_begin(struct line *l, bool quiet, double now_ms)
{
    *l = (struct line){.quiet = quiet, .terminal = isatty(STDERR_FILENO), .last_ms = now_ms};
}

bool line_due(struct line *l, double now_ms)
{
    if (l->quiet || now_ms - l->last_ms < (l->terminal ? REDRAW_MS : LOG_MS)) {
        return false;
    }
    l->last_ms = now_ms;
    return true;
}

/* One column less than the terminal: a wrapped line cannot be drawn again. */
static int line_count_columns(void)
{
    struct winsize w;
    return (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 1 ? w.ws_col : COLUMNS) - 1;
}

void line_put(const struct line *l, const char *format, ...)
{
    char text[LINE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (l->terminal) {
        stands = 1;
        fprintf(stderr, "\r\033[K%.*s", line_count_columns(), text);
        fflush(stderr);
    } else {
        fprintf(stderr, "%s\n", text);
    }
}

void line_end(const struct line *l)
{
    if (l->terminal && stands) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
        stands = 0;
    }
}

void line_fail(const struct error *err, bool json)
{
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    const struct wire_obj *map;
    struct wire_doc *doc = json ? wire_doc_new() : NULL;
    char *text = NULL;
    fprintf(stderr, "gemmd-runner: %s\n", err->text);
    wire_put_map(&b, 1);
    wire_put_str(&b, "error");
    wire_put_map(&b, 2);
    wire_put_kv_str(&b, "name", error_name(err->code));
    wire_put_kv_str(&b, "message", err->text);
    if (doc && !b.failed && wire_decode(doc, b.data, b.len, &map, NULL) == 0 &&
        wire_to_json(map, &text, NULL) == 0) {
        printf("%s\n", text);
    }
    free(text);
    wire_doc_free(doc);
}

bool line_said(void)
{
    bool said = fflush(stdout) == 0 && !ferror(stdout);
    if (!said) {
        fprintf(stderr, "gemmd-runner: cannot write the result: %s\n", strerror(errno));
    }
    fflush(stderr);
    return said;
}

/* ---- being stopped -------------------------------------------------------------------------- */

void line_scrap(const char *path)
{
    scrap = path;
}

void line_die(int number)
{
    if (scrap) {
        unlink(scrap);
    }
    if (stands && write(STDERR_FILENO, "\n", 1) < 0) {
        stands = 0; /* a failed write is ignored: the process ends anyway */
    }
    signal(number, SIG_DFL);
    raise(number);
}

void line_watch(void)
{
    static const int stops[] = {SIGINT, SIGTERM, SIGHUP};
    const struct sigaction action = {.sa_handler = line_die};
    for (size_t i = 0; i < sizeof(stops) / sizeof(stops[0]); i++) {
        struct sigaction old;
        if (sigaction(stops[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL) {
            sigaction(stops[i], &action, NULL);
        }
    }
}
