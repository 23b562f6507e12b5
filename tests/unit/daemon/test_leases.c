/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that wait for leases get turns: in slices of the loop, never nested, a few at a time.
 * There are no clients: the test plays their turns. The ledger is absent, or answers when the test
 * says so. */
#include "common.h"
#include "daemon/daemon.h"
#include "daemon/methods/leases.h"
#include "store/store.h"

enum { KEYS = 3 * LEASES_TURNING };

struct fixture {
    struct daemon d;
    struct leases leases;
    unsigned n_turns, depth, deepest;
    bool passes; /* true: a turn ends as soon as it begins */
    struct lease *turning[KEYS];
    unsigned n_turning;
    char ledger; /* its address stands for a ledger: the linker brings all calls here (--wrap) */
    ledger_done_cb asked; /* NULL: the ledger has answered */
    void *asked_ctx;
    unsigned n_given_back;
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

static struct wanter *want_until(struct fixture *f, unsigned key, uint64_t deadline_ms)
{
    struct error err = ERROR_NULL;
    struct wanter *w = calloc(1, sizeof(*w));
    *w = (struct wanter){.turn = on_turn, .other = on_other, .deadline_ms = deadline_ms};
    snprintf(w->key, sizeof(w->key), "%03x%029x", key % 4096, key);
    assert_ok(leases_want(&f->leases, w, &err), &err);
    return w;
}

static void want(struct fixture *f, unsigned key)
{
    want_until(f, key, 0);
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
    assert_int_equal(f->n_turns, 1); /* the first request has its turn and holds the lease */
    f->passes = true;
    pass_all(f);
    assert_int_equal(f->n_turns, 1); /* no turn before pass_all returns */
    for (unsigned before = 1; f->n_turns <= WAIT; before = f->n_turns, rounds++) {
        uv_run(&f->d.loop, UV_RUN_NOWAIT);
        assert_true(f->n_turns - before <= LEASE_TURNS);
    }
    assert_true(rounds >= WAIT / LEASE_TURNS);
    assert_int_equal(f->deepest, 1);
    uv_run(&f->d.loop, UV_RUN_NOWAIT);
    assert_int_equal(f->leases.n, 0); /* no request wants the key any more */
}

/* Each turn may look up keys: the ledger must not get all look-ups at once. */
static void of_many_keys_some_have_turns_at_a_time(void **state)
{
    struct fixture *f = *state;
    for (unsigned i = 0; i < KEYS; i++) {
        want(f, i);
        want(f, i);
    }
    assert_int_equal(f->n_turns, KEYS);
    pass_all(f); /* ends the running turns at once */
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

static void a_stop_ends_waiting_turns(void **state)
{
    struct fixture *f = *state;
    want(f, 1);
    want(f, 1);
    want(f, 2);
    lease_pass(f->turning[0]);
    leases_stop(&f->leases);
    assert_int_equal(f->leases.n, 1); /* the lease whose turn has not ended */
    lease_pass(f->turning[1]);
    assert_int_equal(f->leases.n, 0);
    assert_int_equal(f->n_turns, 2);
    uv_run(&f->d.loop, UV_RUN_NOWAIT);
    leases_init(&f->leases, &f->d); /* the teardown closes them */
}

/* ---- with a ledger --------------------------------------------------------------------------- */

int __wrap_ledger_lease(struct ledger *l, const char *key, int64_t ttl_ms, ledger_done_cb cb,
                        void *ctx);
int __wrap_ledger_unlease(struct ledger *l, const char *key);

int __wrap_ledger_lease(struct ledger *l, const char *key, int64_t ttl_ms, ledger_done_cb cb,
                        void *ctx)
{
    (void)l, (void)key, (void)ttl_ms;
    assert_null(fixture->asked);
    fixture->asked = cb;
    fixture->asked_ctx = ctx;
    return 0;
}

int __wrap_ledger_unlease(struct ledger *l, const char *key)
{
    (void)l, (void)key;
    fixture->n_given_back++;
    return 0;
}

static void answer(struct fixture *f, int status)
{
    ledger_done_cb cb = f->asked;
    f->asked = NULL;
    cb(f->asked_ctx, status, NULL);
}

static int setup_with_ledger(void **state)
{
    setup(state);
    fixture->d.ledger = (struct ledger *)&fixture->ledger;
    return 0;
}

/* Another daemon held the key's lease. This request asks the ledger again, and will get the lease.
 */
static struct wanter *ask_again(struct fixture *f, uint64_t deadline_ms)
{
    struct wanter *w = want_until(f, 7, deadline_ms);
    answer(f, STORE_HELD);
    leases_freed(&f->leases, "");
    assert_non_null(f->asked);
    return w;
}

/* If the lease were not given back, this daemon would hold the key until the lease ends. */
static void a_client_that_leaves_before_the_ledger_answers_gives_the_key_back(void **state)
{
    struct fixture *f = *state;
    struct wanter *w = ask_again(f, 0);
    leases_drop(w);
    free(w);
    assert_int_equal(f->leases.n, 0);
    assert_int_equal(f->n_given_back, 1); /* at once: the ledger will grant, and then return */
    answer(f, 0);
    assert_int_equal(f->n_given_back, 1);
}

static void a_client_past_its_deadline_gives_the_key_back(void **state)
{
    struct fixture *f = *state;
    ask_again(f, uv_now(&f->d.loop) + 1);
    while (f->leases.n) {
        uv_run(&f->d.loop, UV_RUN_ONCE);
    }
    assert_int_equal(f->n_given_back, 1);
    answer(f, 0);
}

static void what_another_daemon_holds_is_not_given_back(void **state)
{
    struct fixture *f = *state;
    struct wanter *w = want_until(f, 7, 0);
    answer(f, STORE_HELD);
    leases_drop(w);
    free(w);
    assert_int_equal(f->leases.n, 0);
    assert_int_equal(f->n_given_back, 0);
}

#define WITH_LEDGER(test) cmocka_unit_test_setup_teardown(test, setup_with_ledger, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_key_goes_from_one_to_the_next_in_slices, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(of_many_keys_some_have_turns_at_a_time, setup, teardown),
        cmocka_unit_test_setup_teardown(a_stop_ends_waiting_turns, setup, teardown),
        WITH_LEDGER(a_client_that_leaves_before_the_ledger_answers_gives_the_key_back),
        WITH_LEDGER(a_client_past_its_deadline_gives_the_key_back),
        WITH_LEDGER(what_another_daemon_holds_is_not_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
