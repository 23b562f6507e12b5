/* SPDX-License-Identifier: Apache-2.0 */
/* Times the ledger on the loop: loading N bests (default 100,000), and a publish until its durable
 * answer. A benchmark that prints: `meson test --benchmark` runs it. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "daemon/ledger/inner.h"
#include "tests/unit/store/fixture.h"

enum { PUBLISHES = 1000 };

static struct {
    uv_loop_t loop;
    struct ledger *l;
    int rows;
    bool done;
    uint64_t began;
} b;

static void on_load(void *ctx, int status, const struct best *bests, size_t n,
                    const struct error *err)
{
    (void)ctx;
    (void)bests;
    (void)err;
    b.rows += (int)n;
    b.done = n == 0;
    if (status || (n > 0 && ledger_load(b.l, false, on_load, NULL))) {
        abort();
    }
}

static void on_best(void *ctx, int status, const struct best *best, bool saved,
                    const struct error *err)
{
    (void)ctx;
    (void)best;
    (void)err;
    b.done = status == 0 && saved;
}

static void on_stopped(void *ctx)
{
    (void)ctx;
}

static double thread_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Runs the loop to the end. *busy: CPU time of all turns, *longest: of the longest turn, in ms. */
static void run_until_done(double *busy, double *longest)
{
    double began = thread_ms();
    *longest = 0;
    for (b.done = false; !b.done;) {
        double turn = thread_ms();
        uv_run(&b.loop, UV_RUN_ONCE);
        turn = thread_ms() - turn;
        *longest = turn > *longest ? turn : *longest;
    }
    *busy = thread_ms() - began;
}

static void fill(struct fixture *f, int n)
{
    struct store_options o = {.path = f->path};
    struct store *s;
    struct best *best = calloc(1, sizeof(*best));
    if (store_open(&o, &s, NULL) || store_begin(s, NULL)) {
        abort();
    }
    for (int i = 0; i < n; i++) {
        fixture_best(best, i, i);
        if (store_publish(s, best, NULL)) {
            abort();
        }
    }
    if (store_commit(s, NULL)) {
        abort();
    }
    store_close(s);
    free(best);
}

static int by_size(const void *x, const void *y)
{
    double d = *(const double *)x - *(const double *)y;
    return (d > 0) - (d < 0);
}

int main(int argc, char **argv)
{
    static double us[PUBLISHES];
    int n = argc > 1 ? atoi(argv[1]) : 100000;
    void *state;
    double busy, longest;
    if (fixture_setup(&state)) {
        return 1;
    }
    struct fixture *f = state;
    fill(f, n);
    struct ledger_config c = {.path = f->path};
    uv_loop_init(&b.loop);
    if (ledger_start(&b.l, &b.loop, &c, NULL)) {
        return 1;
    }
    b.began = uv_hrtime();
    ledger_load(b.l, true, on_load, NULL);
    run_until_done(&busy, &longest);
    printf("load of %d bests: %.0f ms, of which the loop worked %.1f ms, longest turn %.2f ms\n",
           b.rows, (double)(uv_hrtime() - b.began) / 1e6, busy, longest);
    struct best *best = calloc(1, sizeof(*best));
    for (int i = 0; i < PUBLISHES; i++) {
        fixture_best(best, n + i, i);
        b.began = uv_hrtime();
        ledger_publish(b.l, best, on_best, NULL);
        run_until_done(&busy, &longest);
        us[i] = (double)(uv_hrtime() - b.began) / 1e3;
    }
    qsort(us, PUBLISHES, sizeof(us[0]), by_size);
    printf("publish to durable answer: p50 %.0f us, p99 %.0f us\n", us[PUBLISHES / 2],
           us[PUBLISHES * 99 / 100]);
    free(best);
    ledger_stop(b.l, on_stopped, NULL);
    uv_run(&b.loop, UV_RUN_DEFAULT);
    return uv_loop_close(&b.loop) || fixture_teardown(&state);
}
