/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of a device with a hanging driver. */
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "common.h"
#include "daemon/base/probe.h"

enum { LIMIT_MS = 300, HANG_S = 20 };

static char runner[] = "/tmp/gemmd-probe-XXXXXX";
static bool kill_works;
static pid_t killed;

/* Replaces the C library's kill. Without kill_works a signal has no effect, as on a process that
 * hangs in a driver. */
int kill(pid_t pid, int signal)
{
    killed = pid;
    return kill_works ? (int)syscall(SYS_kill, pid, signal) : 0;
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Probes with a runner that is this shell script. */
static int64_t look(const char *script, struct error *err)
{
    struct device_info device;
    FILE *f = fopen(runner, "we");
    assert_true(f && fprintf(f, "#!/bin/sh\n%s\n", script) > 0 && fclose(f) == 0);
    assert_int_equal(chmod(runner, 0755), 0);
    alarm(HANG_S);
    int64_t began = now_ms();
    assert_int_equal(probe_device(runner, "cuda:0", LIMIT_MS, &device, err), ERROR_NO_DEVICE);
    alarm(0);
    return now_ms() - began;
}

static void one_that_says_nothing_is_killed(void **state)
{
    (void)state;
    struct error err = ERROR_NULL;
    kill_works = true;
    assert_in_range(look("exec sleep 1000", &err), LIMIT_MS, 5000);
    assert_non_null(strstr(err.text, "did not answer within 300 ms"));
    /* the probe has waited for the killed process */
    assert_int_equal(waitpid(killed, NULL, WNOHANG), -1);
}

static void one_that_does_not_end_is_killed(void **state)
{
    (void)state;
    struct error err = ERROR_NULL;
    kill_works = true;
    assert_in_range(look("exec sleep 1000 >&-", &err), LIMIT_MS, 5000);
    assert_non_null(strstr(err.text, "did not answer"));
}

static void one_that_cannot_be_killed_is_left_behind(void **state)
{
    (void)state;
    struct error err = ERROR_NULL;
    kill_works = false;
    assert_in_range(look("exec sleep 1000", &err), LIMIT_MS, 5000);
    assert_non_null(strstr(err.text, "does not end"));
    kill_works = true;
    kill(killed, SIGKILL);
    assert_int_equal(waitpid(killed, NULL, 0), killed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_says_nothing_is_killed),
        cmocka_unit_test(one_that_does_not_end_is_killed),
        cmocka_unit_test(one_that_cannot_be_killed_is_left_behind),
    };
    int fd = mkstemp(runner);
    close(fd);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(runner);
    return failed;
}
