/* SPDX-License-Identifier: Apache-2.0 */
/* kill -9. A child publishes as fast as it can, and writes each generation reported as durable to a
 * pipe. It is killed at a random moment, and every reported generation must be in the file. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "store/inner.h"
#include "tests/unit/store/fixture.h"

enum { ROUNDS = 40, MAX = 100000 };

static void publish_for_ever(const char *path, int pipe)
{
    struct store_options o = {.path = path};
    struct store *s;
    struct best *b = calloc(1, sizeof(*b));
    struct trial *t = calloc(1, sizeof(*t));
    if (store_open(&o, &s, NULL)) {
        _exit(1);
    }
    for (int i = 0;; i++) {
        int64_t said[2];
        fixture_trial(t, 0, i % 50, i);
        fixture_best(b, i % 50, i);
        bool group = i % 3 == 0;
        if ((group && store_begin(s, NULL)) || store_add_trial(s, t, NULL) ||
            store_publish(s, b, NULL) || (group && store_commit(s, NULL))) {
            _exit(1);
        }
        said[0] = b->generation;
        said[1] = i;
        if (write(pipe, said, sizeof(said)) != sizeof(said)) {
            _exit(1);
        }
    }
}

static int round_of(struct fixture *f, int64_t serial_of[MAX], int64_t *last)
{
    int fds[2], code, n = 0;
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(fds[0]);
        publish_for_ever(f->path, fds[1]);
    }
    close(fds[1]);
    usleep((useconds_t)(rand() % 30000 + 500));
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &code, 0), pid);
    assert_true(WIFSIGNALED(code));
    for (int64_t said[2]; read(fds[0], said, sizeof(said)) == sizeof(said); n++) {
        assert_in_range(said[0], *last + 1, MAX - 1); /* generations only grow, also over a crash */
        *last = said[0];
        serial_of[said[0]] = said[1] + 1;
    }
    close(fds[0]);
    return n;
}

static void killed_writers_lose_nothing(void **state)
{
    struct fixture *f = *state;
    struct error err = ERROR_NULL;
    int64_t *serial_of = calloc(MAX, sizeof(*serial_of)), last = 0, bad;
    struct best *b = calloc(1, sizeof(*b));
    int acknowledged = 0;
    srand((unsigned)time(NULL));
    for (int i = 0; i < ROUNDS; i++) {
        acknowledged += round_of(f, serial_of, &last);
        f->notices = 0;
        struct store *s = fixture_open(f);
        assert_ok(store_check(s, &bad, &err));
        /* killed between the two writes of a frame of the WAL: this row was not reported */
        assert_true(f->notices == 0 || (f->notices == 1 && strcmp(f->kind, "log_tail") == 0));
        assert_int_equal(bad, 0);
        for (int64_t g = 1; g <= last; g++) {
            if (serial_of[g]) {
                assert_ok(
                    rows_first(s, TABLE_BEST, b, &err, NULL, "WHERE generation = ?1", "i", g));
                assert_int_equal(record_int(&b->config, "serial", -1), serial_of[g] - 1);
                assert_true(b->trial > 0);
            }
        }
        store_close(s);
    }
    assert_true(acknowledged > ROUNDS);
    print_message("%d acknowledged, none lost\n", acknowledged);
    free(serial_of);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(killed_writers_lose_nothing, fixture_setup,
                                        fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
