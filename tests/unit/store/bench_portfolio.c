/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a portfolio occupies the writer thread: 2,000 keys with 50 trials each.
 *
 *   bench_portfolio [KEYS [TRIALS]]
 */
#include <stdio.h>
#include <time.h>

#include "tests/unit/store/fixture.h"

static struct error err;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Some configs are good for many keys, no config for all. */
static void fill(struct store *s, int keys, int trials)
{
    static struct trial t;
    static struct best b;
    for (int key = 0; key < keys; key++) {
        assert_ok(store_begin(s, &err));
        fixture_best(&b, key, 0);
        assert_ok(store_publish(s, &b, &err));
        for (int i = 0; i < trials; i++) {
            fixture_trial(&t, 0, key, (key * 7 + i * 13) % 400);
            t.ratio = 0.5 + (key * 31 + i * 17) % 101 / 200.0;
            assert_ok(store_add_trial(s, &t, &err));
        }
        assert_ok(store_commit(s, &err));
    }
}

static void list(struct store *s, double bound)
{
    static struct record filter;
    WIRE_BUF_AUTO out = WIRE_BUF_NULL;
    int64_t total;
    record_init(&filter);
    assert_ok(record_set(&filter, "bound", VALUE_OF_REAL(bound), &err));
    double began = now_s();
    assert_ok(store_list(s, "portfolio", &filter, 1 << 20, &out, &total, &err));
    printf("bound %g %%: %lld shapes in %.3f s\n", bound, (long long)total, now_s() - began);
}

int main(int argc, char **argv)
{
    void *state;
    fixture_setup(&state);
    struct store *s = fixture_open(state);
    int keys = argc > 1 ? atoi(argv[1]) : 2000, trials = argc > 2 ? atoi(argv[2]) : 50;
    fill(s, keys, trials);
    printf("%d keys, %d trials each\n", keys, trials);
    for (double bound = 1; bound <= 25; bound *= 5) {
        list(s, bound);
        list(s, bound); /* the next page */
    }
    store_close(s);
    fixture_teardown(&state);
    return 0;
}
