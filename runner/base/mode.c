/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/base/mode.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "kernels/modules.h"
#include "proto/wire.h"

enum { THREADS_MAX = 256, REDRAW_MS = 200, LOG_MS = 10000, LINE_BYTES = 512, COLUMNS = 80 };

static volatile sig_atomic_t stands; /* the terminal shows a progress line */
static const char *volatile scrap;   /* borrowed; mode_scrap_file() */

int mode_find_cache(const char *given, char out[PATHS_MAX], struct error *err)
{
    int r = 0;
    if (given) {
        r = snprintf(out, PATHS_MAX, "%s", given) < PATHS_MAX
                ? 0
                : error_set(err, ERROR_INVALID, "--cache-dir is too long");
    } else {
        r = paths_cache_dir(out, err);
    }
    r = r ? r : paths_make_dir(out, 0750, err);
    return r ? r : modules_check(out, err);
}

unsigned mode_count_threads(int64_t asked)
{
    int64_t n = asked > 0 ? asked : sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > THREADS_MAX ? THREADS_MAX : (unsigned)n;
}

/* ---- the line ------------------------------------------------------------------------------- */

void mode_begin_line(struct line *l, bool quiet, double now_ms)
{
    *l = (struct line){.quiet = quiet, .terminal = isatty(STDERR_FILENO), .last_ms = now_ms};
}

bool mode_is_line_due(struct line *l, double now_ms)
{
    if (l->quiet || now_ms - l->last_ms < (l->terminal ? REDRAW_MS : LOG_MS)) {
        return false;
    }
    l->last_ms = now_ms;
    return true;
}

/* Columns of a progress line: one less than the terminal has, since a wrapped line cannot be drawn
 * again. */
static int mode_count_columns(void)
{
    struct winsize w;
    return (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 1 ? w.ws_col : COLUMNS) - 1;
}

void mode_put_line(const struct line *l, const char *format, ...)
{
    char text[LINE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (l->terminal) {
        stands = 1;
        fprintf(stderr, "\r\033[K%.*s", mode_count_columns(), text);
        fflush(stderr);
    } else {
        fprintf(stderr, "%s\n", text);
    }
}

void mode_end_line(const struct line *l)
{
    if (l->terminal && stands) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
        stands = 0;
    }
}

void mode_print_error(const struct error *err, bool json)
{
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    char *text = NULL;
    fprintf(stderr, "gemmd-runner: %s\n", err->text);
    wire_put_map(&b, 1);
    wire_put_str(&b, "error");
    wire_put_map(&b, 2);
    wire_put_kv_str(&b, "name", error_name(err->code));
    wire_put_kv_str(&b, "message", err->text);
    if (json && wire_buf_to_json(&b, &text, NULL) == 0) {
        printf("%s\n", text);
    }
    free(text);
}

bool mode_flush_output(void)
{
    bool said = fflush(stdout) == 0 && !ferror(stdout);
    if (!said) {
        fprintf(stderr, "gemmd-runner: cannot write the result: %s\n", strerror(errno));
    }
    fflush(stderr);
    return said;
}

/* ---- being stopped -------------------------------------------------------------------------- */

void mode_scrap_file(const char *path)
{
    scrap = path;
}

void mode_remove_scrap(void)
{
    if (scrap) {
        unlink(scrap);
    }
}

void mode_die(int number)
{
    mode_remove_scrap();
    if (stands && write(STDERR_FILENO, "\n", 1) < 0) {
        stands = 0; /* a failed write is ignored: the process ends anyway */
    }
    signal(number, SIG_DFL);
    raise(number);
}

void mode_watch_signals(void)
{
    static const int stops[] = {SIGINT, SIGTERM, SIGHUP};
    const struct sigaction action = {.sa_handler = mode_die};
    for (size_t i = 0; i < sizeof(stops) / sizeof(stops[0]); i++) {
        struct sigaction old;
        if (sigaction(stops[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL) {
            sigaction(stops[i], &action, NULL);
        }
    }
}
