/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One write() per line, so that lines of several processes on one stderr do not mix. The rate limit
 * is a bucket of LINES_BURST tokens, one for each line, that refills by LINES_PER_S. Errors always
 * pass: they are rare, and people look for them first.
 *
 * The log never waits. When the process that reads stderr's pipe or terminal stops reading (Ctrl-S,
 * a stopped logger), lines that do not fit are dropped and counted. The first line after the pause
 * tells their number.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "proto/paths.h"
#include "proto/std_files.h"
#include "proto/trust.h"

enum { LINES_BURST = 200, LINES_PER_S = 20, LINE_MAX_BYTES = 2048 };

static struct {
    enum log_level level;
    int fd; /* stderr, or our own non-blocking descriptor for the same file */
    bool journal;
    double tokens;
    double at_s; /* when `tokens` (lines that may be written) last grew, monotonic clock */
    unsigned long suppressed, untaken;
    char path[PATHS_MAX]; /* path of stderr, when stderr is a file */
} state = {.level = LEVEL_INFO, .fd = STDERR_FILENO, .tokens = LINES_BURST};

/* True when stderr is systemd's journal: $JOURNAL_STREAM has "<device>:<inode>" of the journal's
 * stream. */
static bool stderr_is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long device, inode;
    struct stat st;
    return stream && sscanf(stream, "%lu:%lu", &device, &inode) == 2 &&
           fstat(STDERR_FILENO, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

static void log_record_trace(int code, const char *text)
{
    log_debug("%s: %s", error_name(code), text);
}

/* Finds the path of stderr's file when gemmd starts. After a user has renamed the file,
 * /proc/self/fd/2 has only its new name. */
static void find_path(void)
{
    struct stat st;
    const bool file = fstat(STDERR_FILENO, &st) == 0 && S_ISREG(st.st_mode);
    const ssize_t n = file ? readlink("/proc/self/fd/2", state.path, sizeof(state.path) - 1) : -1;
    state.path[n > 0 ? n : 0] = '\0';
}

void log_open(enum log_level level)
{
    find_path();
    state.level = level;
    state.journal = stderr_is_journal();
    if (state.fd != STDERR_FILENO) {
        close(state.fd);
    }
    int own = std_files_impatient();
    state.fd = own >= 0 ? own : STDERR_FILENO;
    /* At level debug the log has every error that is set, also errors that a caller handles. */
    error_trace_hook = level >= LEVEL_DEBUG ? log_record_trace : NULL;
}

static bool is_same_file(int fd, const struct stat *st)
{
    struct stat its;
    return fstat(fd, &its) == 0 && its.st_dev == st->st_dev && its.st_ino == st->st_ino;
}

/* Makes stderr a copy of `fd`, and stdout too when both were the same file. */
static int move_to(int fd, const struct stat *old)
{
    const bool both = is_same_file(STDOUT_FILENO, old);
    return dup2(fd, STDERR_FILENO) < 0 || (both && dup2(fd, STDOUT_FILENO) < 0) ? -1 : 0;
}

int log_reopen(struct error *err)
{
    struct stat old;
    int fd;
    if (!state.path[0] || fstat(STDERR_FILENO, &old) < 0) {
        return error_set(err, ERROR_INVALID, "the log goes to no file that could be reopened");
    }
    int r = trust_open(state.path, O_WRONLY | O_APPEND | O_CREAT, old.st_mode & 0777, &fd, err);
    if (r) {
        return error_prefix(err, "cannot reopen the log");
    }
    if (move_to(fd, &old)) {
        r = error_set(err, ERROR_IO, "cannot reopen the log %s: %s", state.path, strerror(errno));
    }
    close(fd);
    return r;
}

static const char *const names[] = {[LEVEL_ERROR] = "error",
                                    [LEVEL_WARNING] = "warning",
                                    [LEVEL_NOTICE] = "notice",
                                    [LEVEL_INFO] = "info",
                                    [LEVEL_DEBUG] = "debug"};

int log_level_parse(const char *name, enum log_level *out, struct error *err)
{
    for (int i = LEVEL_ERROR; i <= LEVEL_DEBUG; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (enum log_level)i;
            return 0;
        }
    }
    return error_set(err, ERROR_INVALID,
                     "log level \"%s\" is not known: use error, warning, notice, info or debug",
                     name);
}

bool log_wants(enum log_level level)
{
    return level <= state.level;
}

static bool take_token(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    double now_s = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    state.tokens += (now_s - state.at_s) * LINES_PER_S;
    state.at_s = now_s;
    if (state.tokens > LINES_BURST) {
        state.tokens = LINES_BURST;
    }
    if (state.tokens < 1) {
        state.suppressed++;
        return false;
    }
    state.tokens -= 1;
    return true;
}

static size_t log_put_prefix(enum log_level level, char *out, size_t size)
{
    if (state.journal) {
        return (size_t)snprintf(out, size, "<%d>", (int)level);
    }
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &tm);
    size_t n = strftime(out, size, "%F %T", &tm);
    return n +
           (size_t)snprintf(out + n, size - n, ".%03ld %-7s ", now.tv_nsec / 1000000, names[level]);
}

/* True when a write to stderr does not block. For a stderr that gemmd could not open again as
 * non-blocking: a pipe that poll calls ready has room for PIPE_BUF bytes, which is more than a
 * line. */
static bool may_write(void)
{
    struct pollfd p = {.fd = state.fd, .events = POLLOUT};
    return poll(&p, 1, 0) > 0;
}

/* Writes a line. False: stderr has no room for the line now. */
static bool log_emit_line(enum log_level level, const char *text)
{
    char line[LINE_MAX_BYTES];
    size_t n = log_put_prefix(level, line, sizeof(line));
    n += (size_t)snprintf(line + n, sizeof(line) - n, "%s", text);
    if (n > sizeof(line) - 2) {
        n = sizeof(line) - 2;
    }
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)line[i] < 0x20) {
            line[i] = ' '; /* a client's text must not forge a second line */
        }
    }
    line[n++] = '\n';
    /* An error other than EAGAIN cannot be reported anywhere, so the line counts as written. */
    return may_write() && (write(state.fd, line, n) >= 0 || errno != EAGAIN);
}

/* Logs the number of dropped lines, if any, and sets it to 0. False: stderr has no room. */
static bool say_left_out(unsigned long *n, const char *why)
{
    char text[80];
    snprintf(text, sizeof(text), "%lu lines were left out: %s", *n, why);
    if (*n && !log_emit_line(LEVEL_WARNING, text)) {
        return false;
    }
    *n = 0;
    return true;
}

void log_line(enum log_level level, const char *format, ...)
{
    if (level > state.level || (level > LEVEL_ERROR && !take_token())) {
        return;
    }
    char text[LINE_MAX_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    bool open = say_left_out(&state.untaken, "nobody took them") &&
                say_left_out(&state.suppressed, "they came too fast");
    if (!open || !log_emit_line(level, text)) {
        state.untaken++;
    }
}
