/* SPDX-License-Identifier: Apache-2.0 */
/* Users take turns in the queue, and each user's jobs keep their order. */
#include "common.h"
#include "daemon/tuning/tuning.h"

enum { USERS = 4, JOBS = 64 };

struct fixture {
    struct accounts accounts;
    struct account *users[USERS]; /* 'a' to 'd' */
    struct list queue;
    struct job *running;
    struct job jobs[JOBS];
    char names[JOBS][4];
    unsigned n;
};

static const struct account_limits limits;

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    accounts_init(&f->accounts, &limits);
    for (int i = 0; i < USERS; i++) {
        f->users[i] = account_of(&f->accounts, (uid_t)(1000 + i));
    }
    list_init(&f->queue);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < USERS; i++) {
        account_drop(f->users[i]);
    }
    free(f);
    return 0;
}

/* "b1": queues user b's job, with "b1" as key. A client waits for the job unless it is in the
 * background. */
static struct job *come(struct fixture *f, const char *name, bool background)
{
    struct job *j = &f->jobs[f->n];
    strcpy(f->names[f->n++], name);
    list_init(&j->link);
    list_init(&j->waiters);
    strcpy(j->key, name);
    j->n_waiters = !background;
    j->turn = f->users[name[0] - 'a'];
    list_append(rounds_place(&f->queue, f->running, j, j->turn), &j->link);
    return j;
}

static void all_come(struct fixture *f, const char *names)
{
    char name[4];
    for (int n; sscanf(names, "%3s%n", name, &n) == 1; names += n) {
        come(f, name, false);
    }
}

static const char *order(const struct fixture *f)
{
    static char text[4 * JOBS];
    text[0] = '\0';
    LIST_EACH(const struct job, j, &f->queue, link) {
        strcat(strcat(text, text[0] ? " " : ""), f->names[j - f->jobs]);
    }
    return text;
}

static void run_next(struct fixture *f)
{
    f->running = LIST_OF(f->queue.next, struct job, link);
    list_remove(&f->running->link);
}

static void one_user_is_served_in_order(void **state)
{
    struct fixture *f = *state;
    all_come(f, "a1 a2 a3");
    assert_string_equal(order(f), "a1 a2 a3");
}

static void who_comes_late_waits_for_one_round(void **state)
{
    struct fixture *f = *state;
    all_come(f, "a1 a2 a3 a4");
    run_next(f);
    all_come(f, "b1");
    assert_string_equal(order(f), "b1 a2 a3 a4");
    all_come(f, "b2 b3 c1 a5 b4 b5 b6");
    assert_string_equal(order(f), "b1 c1 a2 b2 a3 b3 a4 b4 a5 b5 b6");
    run_next(f);
    all_come(f, "d1 c2 b7");
    assert_string_equal(order(f), "c1 a2 d1 b2 a3 c2 b3 a4 b4 a5 b5 b6 b7");
}

/* User c sends the next query after each answer. */
static void a_user_who_comes_again_gets_no_extra_turns(void **state)
{
    struct fixture *f = *state;
    char served[64] = "";
    bool waits = false;
    all_come(f, "a1 b1 a2 b2 a3 b3");
    run_next(f);
    for (int i = 0; i < 8; i++) {
        if (!waits && f->running->turn != f->users[2]) {
            all_come(f, "c");
        }
        run_next(f);
        waits = strstr(order(f), "c") != NULL;
        strcat(strcat(served, served[0] ? " " : ""), f->running->key);
    }
    assert_string_equal(served, "b1 c a2 b2 c a3 b3 c");
}

static void background_work_counts_apart(void **state)
{
    struct fixture *f = *state;
    all_come(f, "a1 a2");
    for (int i = 0; i < 3; i++) {
        come(f, (const char *[]){"b7", "b8", "b9"}[i], true);
    }
    all_come(f, "b1");
    come(f, "a9", true);
    assert_string_equal(order(f), "a1 b1 a2 b7 a9 b8 b9");
}

static void a_shared_job_belongs_to_the_user_with_the_first_turn(void **state)
{
    struct fixture *f = *state;
    all_come(f, "a1 a2 a3 a4");
    struct job *shared = come(f, "a5", false);
    all_come(f, "b1");
    assert_string_equal(order(f), "a1 b1 a2 a3 a4 a5");
    struct list *place = rounds_place(&f->queue, NULL, shared, f->users[1]);
    list_remove(&shared->link);
    list_append(place, &shared->link); /* user b waits for this job, too */
    shared->turn = f->users[1];
    assert_string_equal(order(f), "a1 b1 a2 a5 a3 a4");
    assert_ptr_equal(rounds_place(&f->queue, NULL, shared, f->users[0]), shared->link.next);
    all_come(f, "b2 a6");
    assert_string_equal(order(f), "a1 b1 a2 a5 a3 b2 a4 a6");
}

/* A job that was set aside goes on later, and answers its key: no other search of that key goes
 * before it. */
static void no_search_goes_before_the_job_that_answers_its_key(void **state)
{
    struct fixture *f = *state;
    all_come(f, "a1 a2 a3");
    struct job *aside = come(f, "a4", false);
    aside->set_aside = true;
    strcpy(aside->key, "b1");
    all_come(f, "b1 c1");
    assert_string_equal(order(f), "a1 c1 a2 a3 a4 b1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_user_is_served_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(who_comes_late_waits_for_one_round, setup, teardown),
        cmocka_unit_test_setup_teardown(a_user_who_comes_again_gets_no_extra_turns, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(background_work_counts_apart, setup, teardown),
        cmocka_unit_test_setup_teardown(a_shared_job_belongs_to_the_user_with_the_first_turn, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(no_search_goes_before_the_job_that_answers_its_key, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
