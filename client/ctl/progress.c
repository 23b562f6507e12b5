/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The progress of a tuning on stderr: one line that is drawn again on a terminal that can, else a
 * line every ten seconds, for logs. No colours, so NO_COLOR has nothing to switch off.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "client/ctl/ctl.h"

enum { REDRAW_MS = 100, LOG_MS = 10 * 1000, BAR = 20, LINE_BYTES = 256 };

static bool is_smart_terminal(void)
{
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && term && *term && strcmp(term, "dumb") != 0;
}

/* ---- being stopped -------------------------------------------------------------------------- */

static volatile sig_atomic_t stop; /* the signal's number; 0: none came */

static void on_stop(int number)
{
    stop = number;
}

void stops_catch(void)
{
    static const int stops[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < COUNT(stops); i++) {
        struct sigaction old,
            action = {.sa_handler = on_stop, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
        if (sigaction(stops[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL) {
            sigaction(stops[i], &action, NULL);
        }
    }
}

bool stops_came(void)
{
    return stop != 0;
}

void stops_end(size_t kept, size_t all)
{
    if (stop) {
        fprintf(stderr, "interrupted, %zu of %zu kept\n", kept, all);
        fflush(stdout);
        signal(stop, SIG_DFL);
        raise(stop);
    }
}

/* ---- the line ------------------------------------------------------------------------------- */

void progress_begin(struct progress_line *p, bool quiet, const char *label)
{
    *p = (struct progress_line){.quiet = quiet, .terminal = is_smart_terminal()};
    snprintf(p->label, sizeof(p->label), "%s", label);
    p->last_ms = p->terminal ? 0 : ctl_now_ms();
}

static void progress_append_text(char *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void progress_append_text(char *line, const char *format, ...)
{
    size_t n = strlen(line);
    va_list args;
    va_start(args, format);
    vsnprintf(line + n, LINE_BYTES - n, format, args);
    va_end(args);
}

static void progress_compose_line(char line[LINE_BYTES], const struct progress_line *p,
                                  const struct gemmd_progress *r)
{
    snprintf(line, LINE_BYTES, "%s %s", p->label, r->phase);
    if (r->total > 0) {
        progress_append_text(line, " %lld/%lld", (long long)r->done, (long long)r->total);
    }
    if (r->best_us > 0) { /* false for NaN */
        progress_append_text(line, ", best %.*f us", r->best_us < 100 ? 2 : 1, r->best_us);
        if (r->reference_us > 0) {
            progress_append_text(line, " (%.2fx)", r->reference_us / r->best_us);
        }
    }
    if (r->eta_ms >= 0) {
        progress_append_text(line, ", %.0f s left", ceil(r->eta_ms / 1000));
    }
    if (r->failed > 0) {
        progress_append_text(line, ", %lld failed", (long long)r->failed);
    }
}

/* Behind the words, when there is room. */
static void put_bar(char *line, int columns, const struct gemmd_progress *r)
{
    if (r->total <= 0 || (int)strlen(line) + BAR + 3 > columns) {
        return;
    }
    int full = (int)(r->done * BAR / r->total);
    progress_append_text(line, " [");
    for (int i = 0; i < BAR; i++) {
        progress_append_text(line, "%c", i < full ? '#' : '.');
    }
    progress_append_text(line, "]");
}

/* Never wider than the terminal: a line that wraps cannot be drawn again. */
static void progress_draw_line(char *line, const struct gemmd_progress *r)
{
    struct winsize w;
    int columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 1 ? w.ws_col - 1 : 79;
    put_bar(line, columns, r);
    fprintf(stderr, "\r\033[K%.*s", columns, line);
    fflush(stderr);
}

void progress_show(void *ctx, const struct gemmd_progress *report)
{
    struct progress_line *p = ctx;
    p->seen = true;
    p->failed = report->failed;
    double now = ctl_now_ms();
    if (p->quiet || now - p->last_ms < (p->terminal ? REDRAW_MS : LOG_MS)) {
        return;
    }
    p->last_ms = now;
    char line[LINE_BYTES];
    progress_compose_line(line, p, report);
    if (p->terminal) {
        p->drawn = true;
        progress_draw_line(line, report);
    } else {
        fprintf(stderr, "%s\n", line);
    }
}

void progress_end(struct progress_line *p)
{
    if (p->drawn) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    p->drawn = false;
}
