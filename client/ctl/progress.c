/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The progress of a tuning on stderr: on a terminal one line that is redrawn, otherwise a line
 * every ten seconds, for logs. No colours, so NO_COLOR has no effect.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "client/ctl/ctl.h"

enum { REDRAW_MS = 100, LOG_MS = 10 * 1000 };

static bool is_smart_terminal(void)
{
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && term && *term && strcmp(term, "dumb") != 0;
}

/* ---- being stopped -------------------------------------------------------------------------- */

static volatile sig_atomic_t stop; /* the signal's number; 0: no signal */

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

void stops_raise(void)
{
    if (stop) {
        fflush(stdout);
        signal(stop, SIG_DFL);
        raise(stop);
    }
}

void stops_end(size_t kept, size_t all)
{
    if (stop) {
        fprintf(stderr, "interrupted, %zu of %zu kept\n", kept, all);
    }
    stops_raise();
}

/* ---- the line ------------------------------------------------------------------------------- */

void progress_begin(struct progress_line *p, bool quiet, const char *label)
{
    *p = (struct progress_line){.quiet = quiet, .terminal = is_smart_terminal()};
    snprintf(p->label, sizeof(p->label), "%s", label);
    p->last_ms = p->terminal ? 0 : ctl_now_ms();
}

/* malloc'ed */
static char *progress_compose_line(const struct progress_line *p, const struct gemmd_progress *r)
{
    char *line = text_format("%s %s", p->label, r->phase);
    if (r->total > 0) {
        line = text_append(line, " %lld/%lld", (long long)r->done, (long long)r->total);
    }
    if (r->best_us > 0) { /* false for NaN */
        line = text_append(line, ", best %.*f us", r->best_us < 100 ? 2 : 1, r->best_us);
        if (r->reference_us > 0) {
            line = text_append(line, " (%.2fx)", r->reference_us / r->best_us);
        }
    }
    if (r->eta_ms >= 0) {
        line = text_append(line, ", %.0f s left", ceil(r->eta_ms / 1000));
    }
    if (r->failed > 0) {
        line = text_append(line, ", %lld failed", (long long)r->failed);
    }
    return line;
}

/* Never wider than the terminal: a line that wraps cannot be redrawn. A bar follows the words when
 * the terminal has room. */
static void progress_draw_line(const char *line, const struct gemmd_progress *r)
{
    static const char full[] = "####################", empty[] = "....................";
    const int width = (int)sizeof(full) - 1;
    struct winsize w;
    int columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 1 ? w.ws_col - 1 : 79;
    fprintf(stderr, "\r\033[K%.*s", columns, line);
    if (r->total > 0 && (int)strlen(line) + width + 3 <= columns) {
        const int n = (int)(r->done * width / r->total);
        fprintf(stderr, " [%.*s%.*s]", n, full, width - n, empty);
    }
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
    TEXT_AUTO *line = progress_compose_line(p, report);
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
