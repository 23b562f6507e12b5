/* SPDX-License-Identifier: Apache-2.0 */
/* The log: a line per message, prefixes, levels. Lines beyond the log's rate, or that no reader
 * takes, are dropped and counted. */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include "common.h"
#include "daemon/base/log.h"

static char text[1 << 20];

/* Returns the text that run() writes to stderr. */
static const char *caught(void (*run)(void), bool journal)
{
    char path[] = "/tmp/gemmd-log-XXXXXX", stream[64];
    int file = mkstemp(path), old = dup(2);
    struct stat st;
    fstat(file, &st);
    snprintf(stream, sizeof(stream), "%lu:%lu", (unsigned long)st.st_dev, (unsigned long)st.st_ino);
    setenv("JOURNAL_STREAM", journal ? stream : "0:0", 1);
    dup2(file, 2);
    run();
    dup2(old, 2);
    close(old);
    ssize_t n = pread(file, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = 0;
    close(file);
    unlink(path);
    return text;
}

static void say(void)
{
    log_open(LEVEL_INFO);
    log_error("bad %d", 7);
    log_debug("not asked for");
    log_info("two\nlines are one");
}

static void lines(void **state)
{
    (void)state;
    const char *plain = caught(say, false);
    assert_non_null(strstr(plain, " error   bad 7\n"));
    assert_non_null(strstr(plain, "two lines are one\n"));
    assert_null(strstr(plain, "not asked"));
    assert_non_null(strstr(plain, "20")); /* a year */
    assert_non_null(strstr(caught(say, true), "<3>bad 7\n<6>two lines are one\n"));
}

static void flood(void)
{
    log_open(LEVEL_INFO);
    for (int i = 0; i < 5000; i++) {
        log_info("again");
    }
    log_error("an error passes");
}

static void what_comes_too_fast_is_counted(void **state)
{
    (void)state;
    const char *out = caught(flood, true);
    size_t n = 0;
    for (const char *at = out; (at = strstr(at, "again")); at++) {
        n++;
    }
    assert_in_range(n, 100, 400);
    assert_non_null(strstr(out, "lines were left out"));
    assert_non_null(strstr(out, "<3>an error passes\n"));
}

enum { UNREAD_LINES = 1000, HANG_S = 20 };

/* Fills the pipe of a reader that is late, then logs another line. Returns the text that the reader
 * gets. */
static const char *unread(int reader, int writer)
{
    int old = dup(2);
    setenv("JOURNAL_STREAM", "0:0", 1);
    dup2(writer, 2);
    log_open(LEVEL_INFO);
    alarm(HANG_S); /* if a write waits for the reader, this alarm ends the program */
    for (int i = 0; i < UNREAD_LINES; i++) {
        log_error("line %d of many", i);
    }
    size_t have = 0;
    for (int more = 0; more < 2; more++) {
        ssize_t n;
        while (have < sizeof(text) - 1 &&
               (n = read(reader, text + have, sizeof(text) - 1 - have)) > 0) {
            have += (size_t)n;
        }
        if (!more) {
            log_error("somebody reads");
        }
    }
    alarm(0);
    dup2(old, 2);
    close(old);
    text[have] = 0;
    return text;
}

static void lines_that_the_reader_does_not_take_are_counted(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    fcntl(fds[1], F_SETPIPE_SZ, 8192);
    const char *out = unread(fds[0], fds[1]);
    const char *last = strstr(out, "somebody reads\n"),
               *left_out = strstr(out, "lines were left out: nobody");
    assert_non_null(last);
    assert_non_null(left_out);
    assert_true(left_out < last);
    size_t whole = 0;
    unsigned long n = 0;
    for (const char *at = out; (at = strstr(at, " of many\n")); at++) {
        whole++;
    }
    while (left_out > out && left_out[-1] != '\n') {
        left_out--;
    }
    assert_int_equal(sscanf(strstr(left_out, "warning"), "warning %lu lines", &n), 1);
    assert_int_equal(whole + n, UNREAD_LINES);
    /* stderr is shared: its flags stay as they were */
    assert_int_equal(fcntl(fds[1], F_GETFL) & O_NONBLOCK, 0);
    close(fds[0]);
    close(fds[1]);
}

static void a_stopped_terminal_does_not_block_the_log(void **state)
{
    (void)state;
    int reader = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (reader < 0 || grantpt(reader) || unlockpt(reader)) {
        skip();
    }
    int writer = open(ptsname(reader), O_WRONLY | O_NOCTTY | O_CLOEXEC);
    assert_true(writer >= 0);
    fcntl(reader, F_SETFL, O_NONBLOCK);
    const char *out = unread(reader, writer);
    assert_non_null(strstr(out, "lines were left out: nobody"));
    assert_non_null(strstr(out, "somebody reads"));
    close(reader);
    close(writer);
}

static void levels_by_name(void **state)
{
    (void)state;
    enum log_level level;
    struct error err = ERROR_NULL;
    assert_ok(log_level_parse("warning", &level, &err), &err);
    assert_int_equal(level, LEVEL_WARNING);
    assert_int_equal(log_level_parse("loud", &level, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "debug"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines),
        cmocka_unit_test(what_comes_too_fast_is_counted),
        cmocka_unit_test(lines_that_the_reader_does_not_take_are_counted),
        cmocka_unit_test(a_stopped_terminal_does_not_block_the_log),
        cmocka_unit_test(levels_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
