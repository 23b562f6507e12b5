/* SPDX-License-Identifier: Apache-2.0 */
/* The compile pool, with a compiler that counts. Under TSan too. */
#include "harness.h"

#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runner/compile/pool.h"

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

struct counting {
    struct compiler base;
    atomic_int compiled;
    atomic_bool stuck;   /* compiles wait while it is true */
    bool fails, refuses; /* refuses: the compiler says that the variant itself is wrong */
    const char *tally;   /* a file that grows by a byte per compile; NULL: no file */
    char order[64];      /* of each compile, the last character of its options; for one thread */
};

static const char *counting_version(const struct compiler *c)
{
    (void)c;
    return "counting 1";
}

static int counting_compile(struct compiler *base, const struct variant *v, struct image *out,
                            struct error *err)
{
    struct counting *c = (struct counting *)base;
    int n = atomic_fetch_add(&c->compiled, 1);
    if (n < (int)sizeof(c->order) - 1) {
        c->order[n] = v->options[strlen(v->options) - 1];
    }
    while (atomic_load(&c->stuck)) {
        sleep_ms(1);
    }
    *out = (struct image){0};
    if (c->tally) {
        int fd = open(c->tally, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        assert_int_equal(write(fd, "x", 1), 1);
        close(fd);
        sleep_ms(100);
    }
    if (c->fails || c->refuses) {
        out->refused = c->refuses;
        return error_set(err, ERROR_COMPILE, "line 1: no");
    }
    out->data = strdup(v->options);
    out->size = strlen(v->options);
    return 0;
}

static const struct compiler_ops counting_ops = {
    .suffix = "txt",
    .version = counting_version,
    .compile = counting_compile,
};

static struct compile_pool *open_pool(struct counting *c, const char *cache, unsigned threads)
{
    struct compile_pool *b;
    struct error err;
    struct compile_pool_setup setup = {
        .compiler = &c->base, .cache_dir = cache, .threads = threads};
    assert_int_equal(compile_pool_new(&setup, &b, &err), 0);
    return b;
}

static struct compile_pool *open_builds(struct counting *c, const char *cache)
{
    return open_pool(c, cache, 3);
}

static void want_as(struct compile_pool *b, const char *options, enum rank rank, uint32_t turn,
                    struct build **out)
{
    struct variant v = {.family = "f", .kind = "cpu", .arch = "x", .entry = "e", .source = ""};
    char hash[HASH_HEX];
    struct error err;
    snprintf(v.options, sizeof(v.options), "%s", options);
    variant_hash(&v, "counting 1", hash);
    const struct compile_pool_want w = {.variant = &v, .hash = hash, .rank = rank, .turn = turn};
    assert_int_equal(compile_pool_want(b, &w, out, &err), 0);
}

static struct build *want(struct compile_pool *b, const char *options)
{
    struct build *w;
    want_as(b, options, RANK_CANDIDATE, 0, &w);
    return w;
}

static void settle(struct compile_pool *b, const struct build *w)
{
    while (w->state == BUILD_PENDING) {
        struct pollfd f = {.fd = compile_pool_fd(b), .events = POLLIN};
        assert_int_equal(poll(&f, 1, 30000), 1);
        compile_pool_collect(b);
    }
}

static void test_requests_of_a_variant_share_a_compile(void **state)
{
    (void)state;
    char *cache = folder_make();
    struct counting c = {.base.ops = &counting_ops};
    struct compile_pool *b = open_builds(&c, cache);
    struct build *first = want(b, "-DA=1"), *second = want(b, "-DA=1");
    assert_ptr_equal(first, second);
    settle(b, first);
    assert_int_equal(first->state, BUILD_READY);
    assert_int_equal(first->image.size, 5);
    assert_false(first->found);
    compile_pool_release(b, first);
    assert_int_equal(second->image.size, 5); /* still held */
    compile_pool_release(b, second);
    struct build *again = want(b, "-DA=1"); /* the cache on disk has it */
    settle(b, again);
    assert_true(again->found);
    assert_string_equal(again->image.meta.flags, "-DA=1");
    compile_pool_release(b, again);
    compile_pool_free(b);
    b = open_builds(&c, cache); /* another job, another runner */
    again = want(b, "-DA=1");
    settle(b, again);
    compile_pool_release(b, again);
    compile_pool_free(b);
    assert_int_equal(atomic_load(&c.compiled), 1);
    folder_remove(cache);
}

static void test_failures_are_remembered(void **state)
{
    (void)state;
    char *cache = folder_make();
    struct counting c = {.base.ops = &counting_ops, .fails = true};
    struct compile_pool *b = open_builds(&c, cache);
    for (int i = 0; i < 3; i++) {
        struct build *w = want(b, "-DA=1");
        settle(b, w);
        assert_int_equal(w->state, BUILD_FAILED);
        assert_int_equal(w->error.code, ERROR_COMPILE);
        assert_string_equal(w->error.text, "line 1: no");
        compile_pool_release(b, w);
    }
    assert_int_equal(atomic_load(&c.compiled), 1);
    compile_pool_free(b);
    folder_remove(cache);
}

static void test_refusals_outlive_the_runner(void **state)
{
    (void)state;
    char *cache = folder_make();
    struct counting c = {.base.ops = &counting_ops, .refuses = true};
    for (int i = 0; i < 3; i++) {
        struct compile_pool *b = open_builds(&c, cache);
        struct build *w = want(b, "-DA=1");
        settle(b, w);
        assert_int_equal(w->state, BUILD_FAILED);
        assert_int_equal(w->error.code, ERROR_COMPILE);
        assert_string_equal(w->error.text, "line 1: no");
        assert_int_equal(w->found, i > 0);
        compile_pool_release(b, w);
        compile_pool_free(b);
    }
    assert_int_equal(atomic_load(&c.compiled), 1);
    c.refuses = false; /* other failures are tried again by the next runner */
    c.fails = true;
    for (int i = 0; i < 2; i++) {
        struct compile_pool *b = open_builds(&c, cache);
        struct build *w = want(b, "-DA=2");
        settle(b, w);
        compile_pool_release(b, w);
        compile_pool_free(b);
    }
    assert_int_equal(atomic_load(&c.compiled), 3);
    folder_remove(cache);
}

/* Acts, in a forked child, as another runner that compiles the same n variants. */
static void be_a_runner(const char *cache, const char *tally, int n)
{
    static struct counting c = {.base.ops = &counting_ops};
    struct build *w[32];
    char text[32];
    c.tally = tally;
    struct compile_pool *b = open_builds(&c, cache);
    for (int i = 0; i < n; i++) {
        snprintf(text, sizeof(text), "-DA=%d", i);
        w[i] = want(b, text);
    }
    for (int i = 0; i < n; i++) {
        settle(b, w[i]);
        snprintf(text, sizeof(text), "-DA=%d", i);
        if (w[i]->state != BUILD_READY || memcmp(w[i]->image.data, text, strlen(text)) != 0) {
            _exit(1);
        }
    }
    _exit(0);
}

static void test_runners_at_once(void **state)
{
    (void)state;
    enum { RUNNERS = 4, N = 12 };
    char *cache = folder_make(), tally[256];
    pid_t pids[RUNNERS];
    snprintf(tally, sizeof(tally), "%s/tally", cache);
    for (int i = 0; i < RUNNERS; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            be_a_runner(cache, tally, N);
        }
    }
    for (int i = 0; i < RUNNERS; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    int fd = open(tally, O_RDONLY);
    assert_int_equal(lseek(fd, 0, SEEK_END), N); /* each variant once */
    close(fd);
    folder_remove(cache);
}

static void wait_until(atomic_int *n, int least)
{
    while (atomic_load(n) < least) {
        sleep_ms(1);
    }
}

static void finish_all(struct compile_pool *b)
{
    while (compile_pool_pending(b) > 0) {
        compile_pool_wait(b, 30000, 60000);
        compile_pool_collect(b);
    }
}

/* The pool compiles the lowest rank first; within a rank, the lowest turn; then the oldest
 * request. */
static void test_ranks(void **state)
{
    (void)state;
    char *cache = folder_make();
    struct counting c = {.base.ops = &counting_ops};
    atomic_store(&c.stuck, true);
    struct compile_pool *b = open_pool(&c, cache, 1);
    struct build *held[3];
    held[0] = want(b, "a"); /* keeps the pool's only thread */
    wait_until(&c.compiled, 1);
    want_as(b, "g", RANK_SPACE, 2, NULL);
    want_as(b, "f", RANK_SPACE, 1, NULL);
    want_as(b, "h", RANK_SPACE, 2, NULL);
    want_as(b, "e", RANK_OPENING, 0, NULL);
    want_as(b, "c", RANK_SPACE, 0, NULL); /* raised below */
    held[1] = want(b, "d");
    want_as(b, "b", RANK_HELPER, 9, NULL);
    held[2] = want(b, "c");
    want_as(b, "c", RANK_SPACE, 0, NULL); /* lowers no rank */
    atomic_store(&c.stuck, false);
    finish_all(b);
    assert_string_equal(c.order, "abcdefgh");
    want_as(b, "e", RANK_CANDIDATE, 0, NULL);
    assert_int_equal(compile_pool_pending(b), 0); /* the opening has built it already */
    compile_pool_drop_unheld(b);
    for (int i = 0; i < 3; i++) {
        compile_pool_release(b, held[i]);
    }
    compile_pool_free(b);
    folder_remove(cache);
}

static void count_done(void *ctx, const struct build *b)
{
    *(int *)ctx += b->state == BUILD_READY;
}

/* A paused pool begins no compile. A caller may drop unused requests. The pool reports the end of
 * each compile. */
static void test_many_without_a_holder(void **state)
{
    (void)state;
    enum { N = 500 };
    char *cache = folder_make(), text[32];
    struct counting c = {.base.ops = &counting_ops};
    struct compile_pool *b;
    struct error err;
    int done = 0;
    const struct compile_pool_setup setup = {.compiler = &c.base,
                                             .cache_dir = cache,
                                             .threads = 4,
                                             .paused = true,
                                             .done = count_done,
                                             .ctx = &done};
    assert_int_equal(compile_pool_new(&setup, &b, &err), 0);
    for (int i = 0; i < 2 * N; i++) {
        snprintf(text, sizeof(text), "-DA=%d", i % N);
        want_as(b, text, RANK_SPACE, (uint32_t)(7 * i % N), NULL);
    }
    struct build *one = want(b, "-DA=3");
    assert_int_equal(compile_pool_pending(b), N);
    sleep_ms(5);
    assert_int_equal(compile_pool_collect(b) + atomic_load(&c.compiled), 0);
    compile_pool_resume(b);
    finish_all(b);
    assert_int_equal(done, N);
    assert_int_equal(atomic_load(&c.compiled), N);
    atomic_store(&c.stuck, true);
    for (int i = 0; i < N; i++) {
        snprintf(text, sizeof(text), "-DB=%d", i);
        want_as(b, text, RANK_SPACE, 0, NULL);
    }
    wait_until(&c.compiled, N + 4);
    compile_pool_drop_unheld(b);
    assert_int_equal(compile_pool_pending(b), 4);
    atomic_store(&c.stuck, false);
    finish_all(b);
    assert_int_equal(done, N + 4);
    assert_memory_equal(one->image.data, "-DA=3", 5);
    compile_pool_release(b, one);
    compile_pool_free(b);
    folder_remove(cache);
}

/* The pool defers a variant that another process compiles, and at the end waits for that process.
 * It ignores locks of dead processes. */
static void test_put_off(void **state)
{
    (void)state;
    char *cache = folder_make();
    struct counting c = {.base.ops = &counting_ops}, other = {.base.ops = &counting_ops};
    atomic_store(&c.stuck, true);
    struct compile_pool *patient = open_builds(&c, cache), *b = open_pool(&other, cache, 1);
    struct build *first = want(patient, "-DA=1"), *w;
    wait_until(&c.compiled, 1);
    want_as(b, "-DA=1", RANK_SPACE, 0, &w);
    want_as(b, "-DA=2", RANK_SPACE, 1, NULL);
    while (compile_pool_pending(b) > 1) {
        compile_pool_wait(b, 30000, 60000);
        compile_pool_collect(b);
    }
    assert_int_equal(w->state, BUILD_PENDING);
    assert_string_equal(other.order, "2");
    atomic_store(&c.stuck, false);
    settle(patient, first);
    compile_pool_release(patient, first);
    compile_pool_free(patient);
    settle(b, w);
    assert_int_equal(w->state, BUILD_READY);
    assert_true(w->found);
    compile_pool_release(b, w);
    compile_pool_free(b);
    assert_int_equal(atomic_load(&c.compiled), 1);
    folder_remove(cache);
}

static void test_no_cache_folder(void **state)
{
    (void)state;
    struct counting c = {.base.ops = &counting_ops};
    struct compile_pool *b = open_builds(&c, "/dev/null/folder");
    /* the image is kept in memory, and the second request does not compile */
    for (int i = 0; i < 2; i++) {
        struct build *w = want(b, "-DA=2");
        settle(b, w);
        assert_int_equal(w->state, BUILD_READY);
        assert_int_equal(strlen(w->image.meta.id), HASH_HEX - 1);
        compile_pool_release(b, w);
    }
    assert_int_equal(atomic_load(&c.compiled), 1);
    compile_pool_free(b);
}

/* Without disk space an image is kept in memory, and later on the disk. */
static void test_room_again(void **state)
{
    (void)state;
    char *cache = folder_make(), path[256];
    snprintf(path, sizeof(path), "%s/modules", cache);
    /* this file prevents a folder of the same name */
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    struct counting c = {.base.ops = &counting_ops};
    struct compile_pool *b = open_builds(&c, cache);
    for (int i = 0; i < 3; i++) {
        struct build *w = want(b, "-DA=3");
        settle(b, w);
        assert_int_equal(w->state, BUILD_READY);
        assert_int_equal(w->unsaved, i == 0 || access(path, X_OK) < 0);
        assert_int_equal(modules_has(cache, w->hash), !w->unsaved);
        compile_pool_release(b, w);
        unlink(path);
    }
    assert_int_equal(atomic_load(&c.compiled), 1);
    compile_pool_free(b);
    folder_remove(cache);
}

/* A cached module is available at once, even while all threads compile. */
static void test_known_waits_for_no_thread(void **state)
{
    (void)state;
    char *cache = folder_make(), text[32];
    struct counting c = {.base.ops = &counting_ops};
    struct compile_pool *b = open_builds(&c, cache);
    struct build *known = want(b, "-DA=1"), *slow[4];
    settle(b, known);
    compile_pool_release(b, known);
    c.refuses = true;
    known = want(b, "-DA=2");
    settle(b, known);
    compile_pool_release(b, known);
    compile_pool_free(b);
    b = open_builds(&c, cache);
    c.refuses = false;
    atomic_store(&c.stuck, true);
    for (int i = 0; i < 4; i++) {
        snprintf(text, sizeof(text), "-DB=%d", i);
        slow[i] = want(b, text);
    }
    known = want(b, "-DA=1");
    assert_int_equal(known->state, BUILD_READY);
    assert_true(known->found);
    assert_memory_equal(known->image.data, "-DA=1", 5);
    compile_pool_release(b, known);
    known = want(b, "-DA=2");
    assert_int_equal(known->state, BUILD_FAILED);
    assert_int_equal(known->error.code, ERROR_COMPILE);
    compile_pool_release(b, known);
    atomic_store(&c.stuck, false);
    for (int i = 0; i < 4; i++) {
        settle(b, slow[i]);
        assert_int_equal(slow[i]->state, BUILD_READY);
        compile_pool_release(b, slow[i]);
    }
    compile_pool_free(b);
    assert_int_equal(atomic_load(&c.compiled), 6);
    folder_remove(cache);
}

static void test_released_before_it_began(void **state)
{
    (void)state;
    char *cache = folder_make(), text[32];
    struct counting c = {.base.ops = &counting_ops};
    atomic_store(&c.stuck, true);
    struct compile_pool *b = open_builds(&c, cache);
    struct build *w[20];
    for (int i = 0; i < 20; i++) {
        snprintf(text, sizeof(text), "-DA=%d", i);
        w[i] = want(b, text);
    }
    for (int i = 0; i < 20; i++) {
        compile_pool_release(b, w[i]);
    }
    atomic_store(&c.stuck, false);
    compile_pool_free(b);
    assert_true(atomic_load(&c.compiled) <= 3);
    folder_remove(cache);
}

static void test_give_up(void **state)
{
    (void)state;
    char *cache = folder_make();
    static struct counting c = {.base.ops = &counting_ops};
    atomic_store(&c.stuck, true);
    struct compile_pool *b = open_builds(&c, cache);
    struct build *w = want(b, "-DA=1"), *longest = NULL;
    while (compile_pool_longest(b, &longest) < 10) {
        sleep_ms(1);
    }
    assert_ptr_equal(longest, w);
    compile_pool_give_up(b, w, 10);
    assert_int_equal(w->state, BUILD_FAILED);
    assert_int_equal(w->error.code, ERROR_HUNG);
    assert_string_equal(w->error.text, "the compiler did not end within 10 ms");
    assert_int_equal(compile_pool_lost(b), 1);
    compile_pool_release(b, w);
    atomic_store(&c.stuck, false);
    struct build *other = want(b, "-DA=2");
    settle(b, other);
    assert_int_equal(other->state, BUILD_READY);
    compile_pool_release(b, other);
    sleep_ms(50); /* the lost compiler comes back */
    assert_int_equal(compile_pool_collect(b), 0);
    compile_pool_free(b);
    folder_remove(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_many_without_a_holder),
        cmocka_unit_test(test_requests_of_a_variant_share_a_compile),
        cmocka_unit_test(test_failures_are_remembered),
        cmocka_unit_test(test_refusals_outlive_the_runner),
        cmocka_unit_test(test_runners_at_once),
        cmocka_unit_test(test_put_off),
        cmocka_unit_test(test_no_cache_folder),
        cmocka_unit_test(test_room_again),
        cmocka_unit_test(test_known_waits_for_no_thread),
        cmocka_unit_test(test_released_before_it_began),
        cmocka_unit_test(test_give_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
