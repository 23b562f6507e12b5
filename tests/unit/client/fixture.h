/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of the client have in common: a fake gemmd, which answers by a script unless the test
 * gives it another handler, and handles to it.
 */
#ifndef GEMMD_TESTS_CLIENT_FIXTURE_H
#define GEMMD_TESTS_CLIENT_FIXTURE_H

#include "client/gemmd.h"
#include "tests/unit/client/fake.h"

enum { SLACK_MS = 300 }; /* of a deadline, on a loaded machine */

/* What the fake answers, and the params that it saw last, as JSON. */
struct script {
    struct fake_answer answer;
    char *seen;
    int delay_ms;
    int sizes[16], n_sizes; /* problems of each get_many */
};
extern struct script script;

/* *state is the struct fake: it has a path and the script's handler, and is not started. */
int fixture_setup(void **state);
int fixture_teardown(void **state);
#define FIXTURE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

/* Starts it and connects; closed and stopped when the test is over. */
struct gemmd *fixture_open(struct fake *f, int deadline_ms);
/* The test's own: to one that runs, to one that need not. */
struct gemmd *fixture_connect(const struct fake *f, int deadline_ms);
struct gemmd *fixture_open_lazy(const struct fake *f);
struct gemmd_options options_for(const struct fake *f, int deadline_ms);

struct gemmd_problem small_problem(void);
/* gemmd_call without params, the result thrown away. */
int call(struct gemmd *g, const char *method, int deadline_ms, struct gemmd_error *e);
/* An answer of the analytic model. */
void check_default(const struct gemmd_answer *a);

/* Structs of a gemmd.h to come. */
struct newer_problem {
    struct gemmd_problem old;
    int64_t more;
};
struct newer_answer {
    struct gemmd_answer old;
    int64_t more;
};

/* Handlers; script_answer is the one that a fake begins with. */
void script_answer(struct fake *f, int fd, const struct rpc_message *m);
void answer_seven(struct fake *f, int fd, const struct rpc_message *m);
void say_nothing(struct fake *f, int fd, const struct rpc_message *m);

#endif
