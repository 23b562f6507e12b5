/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of the client: a fake gemmd, which answers by a script unless the test sets
 * another handler, and handles to the fake. */
#ifndef GEMMD_TESTS_CLIENT_FIXTURE_H
#define GEMMD_TESTS_CLIENT_FIXTURE_H

#include "client/gemmd.h"
#include "tests/unit/client/fake.h"

enum { SLACK_MS = 3000 }; /* a deadline may be missed by this much on a loaded machine */

/* The script: the fake's answer, given after `delay_ms`. `seen`: params of the last request. */
struct script {
    struct fake_answer answer;
    char *seen; /* owned: JSON */
    int delay_ms;
    int sizes[16], n_sizes; /* number of problems in each get_many request */
};
extern struct script script;

/* Makes *state: the struct fake with a path and the script's handler, not started. */
int fixture_setup(void **state);
int fixture_teardown(void **state);
#define FIXTURE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

/* Starts the fake and connects; the teardown closes the handle and stops the fake. */
struct gemmd *fixture_open(struct fake *f, int deadline_ms);
/* The test closes the returned handles. fixture_connect: the daemon must run; fixture_open_lazy:
 * a daemon may be absent. */
struct gemmd *fixture_connect(const struct fake *f, int deadline_ms);
struct gemmd *fixture_open_lazy(const struct fake *f);
struct gemmd_options options_for(const struct fake *f, int deadline_ms);

struct gemmd_problem small_problem(void);
/* Calls gemmd_call without params, and frees the result. */
int call(struct gemmd *g, const char *method, int deadline_ms, struct gemmd_error *e);
/* The text of a late answer names the time from the beginning of the wait to the deadline: on a
 * loaded machine less than was given. */
void assert_late(const struct gemmd_error *e, const char *method, int given_ms);
/* Asserts that the answer is the default of the analytic model. */
void check_default(const struct gemmd_answer *a);

/* Structs as a later gemmd.h may define them: old fields, then new fields. */
struct newer_problem {
    struct gemmd_problem old;
    int64_t more;
};
struct newer_answer {
    struct gemmd_answer old;
    int64_t more;
};

/* Handlers of a fake. fixture_setup chooses script_answer, which answers by the script. */
void script_answer(struct fake *f, int fd, const struct rpc_message *m);
void answer_seven(struct fake *f, int fd, const struct rpc_message *m);
void say_nothing(struct fake *f, int fd, const struct rpc_message *m);

#endif
