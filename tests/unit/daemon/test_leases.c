/* SPDX-License-Identifier: Apache-2.0 */
/* Turns of those who wait for leases: in slices of the loop, not one within the other, some at a
 * time. No ledger, no clients: what a turn says is the test's. */
#include "common.h"
#include "daemon/daemon.h"
#include "daemon/leases.h"

enum { KEYS = 3 * LEASES_TURNING };

struct fixture {
    struct daemon d;
    struct leases leases;
    unsigned n_turns, depth, deepest;
    bool passes; /* a turn is over at once */
    struct lease *turning[KEYS];
    unsigned n_turning;
};

static struct fixture *fixture; /* of the running test */

static int setup(void **state)
{
    struct fixture *f = fixture = calloc(1, sizeof(*f));
    assert_int_equal(uv_loop_init(&f->d.loop), 0);
    turns_init(&f->d.turns, &f->d.loop);
    leases_init(&f->leases, &f->d);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    leases_stop(&f->leases);
    turns_close(&f->d.turns);
    uv_run(&f->d.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->d.loop), 0);
    free(f);
    return 0;
}

static void on_turn(struct wanter *w, struct lease *l)
{
    struct fixture *f = fixture;
    free(w);
    f->n_turns++;
    f->depth++;
    f->deepest = f->depth > f->deepest ? f->depth : f->deepest;
    if (f->passes) {
        lease_pass(l);
    } else {
        f->turning[f->n_turning++] = l;
    }
    f->depth--;
}

static void on_other(struct wanter *w, int64_t uid, int64_t pid, const struct error *e)
{
    (void)uid;
    (void)pid;
    (void)e;
    free(w);
}

static void want(struct fixture *f, unsigned key)
{
    struct error err = ERROR_NULL;
    struct wanter *w = calloc(1, sizeof(*w));
    *w = (struct wanter){.d = &f->d, .turn = on_turn, .other = on_other};
    snprintf(w->key, sizeof(w->key), "%03x%029x", key % 4096, key);
    assert_ok(leases_want(&f->leases, w, &err), &err);
}

static void pass_all(struct fixture *f)
{
    while (f->n_turning) {
        lease_pass(f->turning[--f->n_turning]);
    }
}

static void one_key_goes_from_one_to_the_next_in_slices(void **state)
{
    enum { WAIT = 20 * LEASE_TURNS };
    struct fixture *f = *state;
    unsigned rounds = 0;
    for (unsigned i = 0; i <= WAIT; i++) {
        want(f, 7);
    }
    assert_int_equal(f->n_turns, 1); /* who came first, who is at it */
    f->passes = true;
    pass_all(f);
    assert_int_equal(f->n_turns, 1); /* not before it returns */
    for (unsigned before = 1; f->n_turns <= WAIT; before = f->n_turns, rounds++) {
        uv_run(&f->d.loop, UV_RUN_NOWAIT);
        assert_true(f->n_turns - before <= LEASE_TURNS);
    }
    assert_true(rounds >= WAIT / LEASE_TURNS);
    assert_int_equal(f->deepest, 1);
    uv_run(&f->d.loop, UV_RUN_NOWAIT);
    assert_int_equal(f->leases.n, 0); /* nobody wants it any more */
}

/* Each may have to look up what is known: the ledger is not to be filled with all of it at once. */
static void of_many_keys_some_have_turns_at_a_time(void **state)
{
    struct fixture *f = *state;
    for (unsigned i = 0; i < KEYS; i++) {
        want(f, i);
        want(f, i);
    }
    assert_int_equal(f->n_turns, KEYS);
    pass_all(f); /* all of these end at once */
    for (unsigned done = KEYS; done < 2 * KEYS; done = f->n_turns) {
        for (int i = 0; i < 5; i++) {
            uv_run(&f->d.loop, UV_RUN_NOWAIT);
        }
        assert_true(f->n_turns > done);
        assert_true(f->n_turning <= LEASES_TURNING);
        pass_all(f);
    }
    for (int i = 0; i < 5; i++) {
        uv_run(&f->d.loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(f->leases.n, 0);
}

static void a_stop_ends_those_whose_turn_would_come(void **state)
{
    struct fixture *f = *state;
    want(f, 1);
    want(f, 1);
    want(f, 2);
    lease_pass(f->turning[0]);
    leases_stop(&f->leases);
    assert_int_equal(f->leases.n, 1); /* of the one who is at it */
    lease_pass(f->turning[1]);
    assert_int_equal(f->leases.n, 0);
    assert_int_equal(f->n_turns, 2);
    uv_run(&f->d.loop, UV_RUN_NOWAIT);
    leases_init(&f->leases, &f->d); /* for the teardown */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_key_goes_from_one_to_the_next_in_slices, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(of_many_keys_some_have_turns_at_a_time, setup, teardown),
        cmocka_unit_test_setup_teardown(a_stop_ends_those_whose_turn_would_come, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
