/* SPDX-License-Identifier: Apache-2.0 */
/* The log: one line per message, prefixes, levels, the limit. */
#include <fcntl.h>
#include <sys/stat.h>

#include "common.h"
#include "daemon/log.h"

static char text[1 << 20];

/* What `write` puts on stderr. */
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
        cmocka_unit_test(levels_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
