/* SPDX-License-Identifier: Apache-2.0 */
/* The pool and the table of builds, with a compiler that counts. Under TSan too. */
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

#include "runner/compile/builds.h"

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* ---- tasks ----------------------------------------------------------------------------------- */

struct count_task {
    struct task task;
    atomic_int *started, *release; /* NULL: ends at once */
    int ran;
    atomic_bool lost;
};

static void run_count(struct task *t)
{
    struct count_task *c = (struct count_task *)t;
    if (c->started) {
        atomic_fetch_add(c->started, 1);
    }
    while (c->release && !atomic_load(c->release)) {
        sleep_ms(1);
    }
    c->ran++;
}

static void lose_count(struct task *t)
{
    ((struct count_task *)t)->lost = true;
}

static struct task *collect(struct tasks *p)
{
    struct task *t;
    while (!(t = tasks_collect(p))) {
        struct pollfd f = {.fd = tasks_fd(p), .events = POLLIN};
        assert_int_equal(poll(&f, 1, 30000), 1);
    }
    return t;
}

static struct tasks *open_tasks(unsigned threads)
{
    struct tasks *p;
    struct error err;
    assert_int_equal(tasks_new(threads, 10, &p, &err), 0);
    return p;
}

static void test_many_tasks_run_once(void **state)
{
    (void)state;
    enum { N = 500 };
    static struct count_task t[N];
    struct tasks *p = open_tasks(4);
    for (int i = 0; i < N; i++) {
        t[i] = (struct count_task){.task.run = run_count};
        tasks_submit(p, &t[i].task);
    }
    for (int i = 0; i < N; i++) {
        collect(p);
    }
    assert_null(tasks_collect(p));
    for (int i = 0; i < N; i++) {
        assert_int_equal(t[i].ran, 1);
    }
    tasks_free(p);
}

static void test_withdraw(void **state)
{
    (void)state;
    atomic_int started = 0, release = 0;
    struct count_task t[3];
    struct tasks *p = open_tasks(1);
    for (int i = 0; i < 3; i++) {
        t[i] = (struct count_task){.task.run = run_count, .started = &started, .release = &release};
        tasks_submit(p, &t[i].task);
    }
    while (!atomic_load(&started)) {
        sleep_ms(1);
    }
    assert_true(tasks_withdraw(p, &t[2].task));  /* the last of the queue */
    assert_false(tasks_withdraw(p, &t[2].task)); /* no more there */
    assert_false(tasks_withdraw(p, &t[0].task)); /* it runs */
    tasks_submit(p, &t[2].task);
    assert_true(tasks_withdraw(p, &t[1].task));
    atomic_store(&release, 1);
    assert_ptr_equal(collect(p), &t[0].task);
    assert_ptr_equal(collect(p), &t[2].task);
    tasks_free(p);
    assert_int_equal(t[1].ran, 0);
}

static void test_abandon(void **state)
{
    (void)state;
    static atomic_int started, release;
    static struct count_task stuck, fine;
    stuck = (struct count_task){
        .task = {.run = run_count, .lost = lose_count}, .started = &started, .release = &release};
    fine = (struct count_task){.task.run = run_count};
    struct tasks *p = open_tasks(1);
    struct task *longest;
    assert_int_equal(tasks_longest(p, &longest), -1);
    tasks_submit(p, &stuck.task);
    while (!atomic_load(&started)) {
        sleep_ms(1);
    }
    sleep_ms(20);
    assert_true(tasks_longest(p, &longest) >= 15);
    assert_ptr_equal(longest, &stuck.task);
    assert_true(tasks_abandon(p, longest));
    assert_false(tasks_abandon(p, longest));
    tasks_submit(p, &fine.task); /* another thread has taken its place */
    assert_ptr_equal(collect(p), &fine.task);
    assert_false(tasks_abandon(p, &fine.task));
    atomic_store(&release, 1); /* it comes back, and nobody collects it */
    while (!atomic_load(&stuck.lost)) {
        sleep_ms(1);
    }
    assert_null(tasks_collect(p));
    tasks_free(p);
}

static void test_free_leaves_the_queue_alone(void **state)
{
    (void)state;
    atomic_int started = 0, release = 0;
    struct count_task t[2];
    struct tasks *p = open_tasks(1);
    for (int i = 0; i < 2; i++) {
        t[i] = (struct count_task){.task.run = run_count, .started = &started, .release = &release};
        tasks_submit(p, &t[i].task);
    }
    while (!atomic_load(&started)) {
        sleep_ms(1);
    }
    atomic_store(&release, 1);
    tasks_free(p);
    assert_int_equal(t[0].ran, 1);
}

/* ---- builds ---------------------------------------------------------------------------------- */

struct counting {
    struct compiler base;
    atomic_int compiled;
    atomic_bool stuck;   /* compiles wait until it is false */
    bool fails, refuses; /* refuses: it is the variant's fault */
    const char *tally;   /* a file that grows by a byte for each compile; NULL: none */
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
    atomic_fetch_add(&c->compiled, 1);
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
    .kind = "counting",
    .suffix = "txt",
    .version = counting_version,
    .compile = counting_compile,
};

static struct builds *open_builds(struct counting *c, const char *cache)
{
    struct builds *b;
    struct error err;
    struct builds_setup setup = {
        .compiler = &c->base, .cache_dir = cache, .threads = 3, .note_fd = -1};
    assert_int_equal(builds_new(&setup, &b, &err), 0);
    return b;
}

static struct build *want(struct builds *b, const char *options)
{
    struct variant v = {.family = "f", .kind = "cpu", .arch = "x", .entry = "e", .source = ""};
    char hash[HASH_HEX];
    struct build *w;
    struct error err;
    snprintf(v.options, sizeof(v.options), "%s", options);
    variant_hash(&v, "counting 1", hash);
    assert_int_equal(builds_want(b, &v, hash, NULL, 0, &w, &err), 0);
    return w;
}

static void settle(struct builds *b, const struct build *w)
{
    while (w->state == BUILD_PENDING) {
        struct pollfd f = {.fd = builds_fd(b), .events = POLLIN};
        assert_int_equal(poll(&f, 1, 30000), 1);
        builds_collect(b);
    }
}

static void test_one_compile_for_all_who_want_it(void **state)
{
    (void)state;
    char *cache = folder_make();
    struct counting c = {.base.ops = &counting_ops};
    struct builds *b = open_builds(&c, cache);
    struct build *first = want(b, "-DA=1"), *second = want(b, "-DA=1");
    assert_ptr_equal(first, second);
    settle(b, first);
    assert_int_equal(first->state, BUILD_READY);
    assert_int_equal(first->image.size, 5);
    assert_false(first->found);
    builds_release(b, first);
    assert_int_equal(second->image.size, 5); /* still held */
    builds_release(b, second);
    struct build *again = want(b, "-DA=1"); /* from the disk */
    settle(b, again);
    assert_true(again->found);
    assert_string_equal(again->image.meta.flags, "-DA=1");
    builds_release(b, again);
    builds_free(b);
    b = open_builds(&c, cache); /* another job, another runner */
    again = want(b, "-DA=1");
    settle(b, again);
    builds_release(b, again);
    builds_free(b);
    assert_int_equal(atomic_load(&c.compiled), 1);
    folder_remove(cache);
}

static void test_failures_are_remembered(void **state)
{
    (void)state;
    char *cache = folder_make();
    struct counting c = {.base.ops = &counting_ops, .fails = true};
    struct builds *b = open_builds(&c, cache);
    for (int i = 0; i < 3; i++) {
        struct build *w = want(b, "-DA=1");
        settle(b, w);
        assert_int_equal(w->state, BUILD_FAILED);
        assert_int_equal(w->error.code, ERROR_COMPILE);
        assert_string_equal(w->error.text, "line 1: no");
        builds_release(b, w);
    }
    assert_int_equal(atomic_load(&c.compiled), 1);
    builds_free(b);
    folder_remove(cache);
}

static void test_refusals_outlive_the_runner(void **state)
{
    (void)state;
    char *cache = folder_make();
    struct counting c = {.base.ops = &counting_ops, .refuses = true};
    for (int i = 0; i < 3; i++) {
        struct builds *b = open_builds(&c, cache);
        struct build *w = want(b, "-DA=1");
        settle(b, w);
        assert_int_equal(w->state, BUILD_FAILED);
        assert_int_equal(w->error.code, ERROR_COMPILE);
        assert_string_equal(w->error.text, "line 1: no");
        assert_int_equal(w->found, i > 0);
        builds_release(b, w);
        builds_free(b);
    }
    assert_int_equal(atomic_load(&c.compiled), 1);
    c.refuses = false; /* what fails otherwise is tried again by the next runner */
    c.fails = true;
    for (int i = 0; i < 2; i++) {
        struct builds *b = open_builds(&c, cache);
        struct build *w = want(b, "-DA=2");
        settle(b, w);
        builds_release(b, w);
        builds_free(b);
    }
    assert_int_equal(atomic_load(&c.compiled), 3);
    folder_remove(cache);
}

/* In a child: a runner of its own that wants all of them. */
static void be_a_runner(const char *cache, const char *tally, int n)
{
    static struct counting c = {.base.ops = &counting_ops};
    struct build *w[32];
    char text[32];
    c.tally = tally;
    struct builds *b = open_builds(&c, cache);
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

/* Who does not wait is told; and a lock whose owner is gone is none. */
static void test_impatient(void **state)
{
    (void)state;
    char *cache = folder_make();
    struct counting c = {.base.ops = &counting_ops};
    atomic_store(&c.stuck, true);
    struct builds *patient = open_builds(&c, cache), *b;
    struct build *first = want(patient, "-DA=1");
    while (!atomic_load(&c.compiled)) {
        sleep_ms(1);
    }
    struct error err;
    struct builds_setup setup = {
        .compiler = &c.base, .cache_dir = cache, .threads = 1, .note_fd = -1, .impatient = true};
    assert_int_equal(builds_new(&setup, &b, &err), 0);
    struct build *w = want(b, "-DA=1");
    settle(b, w);
    assert_int_equal(w->state, BUILD_FAILED);
    assert_int_equal(w->error.code, ERROR_BUSY);
    builds_release(b, w);
    atomic_store(&c.stuck, false);
    settle(patient, first);
    builds_release(patient, first);
    builds_free(patient);
    w = want(b, "-DA=1"); /* not remembered */
    settle(b, w);
    assert_int_equal(w->state, BUILD_READY);
    assert_true(w->found);
    builds_release(b, w);
    builds_free(b);
    assert_int_equal(atomic_load(&c.compiled), 1);
    folder_remove(cache);
}

static void test_no_cache_folder(void **state)
{
    (void)state;
    struct counting c = {.base.ops = &counting_ops};
    struct builds *b = open_builds(&c, "/dev/null/folder");
    for (int i = 0; i < 2; i++) { /* kept in memory instead: it cannot be found again */
        struct build *w = want(b, "-DA=2");
        settle(b, w);
        assert_int_equal(w->state, BUILD_READY);
        assert_int_equal(strlen(w->image.meta.id), HASH_HEX - 1);
        builds_release(b, w);
    }
    assert_int_equal(atomic_load(&c.compiled), 1);
    builds_free(b);
}

/* Where there was no room it is kept in memory, and on the disk when there is. */
static void test_room_again(void **state)
{
    (void)state;
    char *cache = folder_make(), path[256];
    snprintf(path, sizeof(path), "%s/modules", cache);
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)); /* no folder can be there */
    struct counting c = {.base.ops = &counting_ops};
    struct builds *b = open_builds(&c, cache);
    for (int i = 0; i < 3; i++) {
        struct build *w = want(b, "-DA=3");
        settle(b, w);
        assert_int_equal(w->state, BUILD_READY);
        assert_int_equal(w->unsaved, i == 0 || access(path, X_OK) < 0);
        assert_int_equal(modules_has(cache, w->hash), !w->unsaved);
        builds_release(b, w);
        unlink(path);
    }
    assert_int_equal(atomic_load(&c.compiled), 1);
    builds_free(b);
    folder_remove(cache);
}

/* What is in the cache is there at once, though all threads compile. */
static void test_known_waits_for_no_thread(void **state)
{
    (void)state;
    char *cache = folder_make(), text[32];
    struct counting c = {.base.ops = &counting_ops};
    struct builds *b = open_builds(&c, cache);
    struct build *known = want(b, "-DA=1"), *slow[4];
    settle(b, known);
    builds_release(b, known);
    c.refuses = true;
    known = want(b, "-DA=2");
    settle(b, known);
    builds_release(b, known);
    builds_free(b);
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
    builds_release(b, known);
    known = want(b, "-DA=2");
    assert_int_equal(known->state, BUILD_FAILED);
    assert_int_equal(known->error.code, ERROR_COMPILE);
    builds_release(b, known);
    atomic_store(&c.stuck, false);
    for (int i = 0; i < 4; i++) {
        settle(b, slow[i]);
        assert_int_equal(slow[i]->state, BUILD_READY);
        builds_release(b, slow[i]);
    }
    builds_free(b);
    assert_int_equal(atomic_load(&c.compiled), 6);
    folder_remove(cache);
}

static void test_released_before_it_began(void **state)
{
    (void)state;
    char *cache = folder_make(), text[32];
    struct counting c = {.base.ops = &counting_ops};
    atomic_store(&c.stuck, true);
    struct builds *b = open_builds(&c, cache);
    struct build *w[20];
    for (int i = 0; i < 20; i++) {
        snprintf(text, sizeof(text), "-DA=%d", i);
        w[i] = want(b, text);
    }
    for (int i = 0; i < 20; i++) {
        builds_release(b, w[i]);
    }
    atomic_store(&c.stuck, false);
    builds_free(b);
    assert_true(atomic_load(&c.compiled) <= 3);
    folder_remove(cache);
}

static void test_give_up(void **state)
{
    (void)state;
    char *cache = folder_make();
    static struct counting c = {.base.ops = &counting_ops};
    atomic_store(&c.stuck, true);
    struct builds *b = open_builds(&c, cache);
    struct build *w = want(b, "-DA=1"), *longest = NULL;
    while (builds_longest(b, &longest) < 10) {
        sleep_ms(1);
    }
    assert_ptr_equal(longest, w);
    builds_give_up(b, w, 10);
    assert_int_equal(w->state, BUILD_FAILED);
    assert_int_equal(w->error.code, ERROR_HUNG);
    assert_string_equal(w->error.text, "the compiler did not end within 10 ms");
    assert_int_equal(builds_lost(b), 1);
    builds_release(b, w);
    atomic_store(&c.stuck, false);
    struct build *other = want(b, "-DA=2");
    settle(b, other);
    assert_int_equal(other->state, BUILD_READY);
    builds_release(b, other);
    sleep_ms(50); /* the lost one comes back */
    assert_int_equal(builds_collect(b), 0);
    builds_free(b);
    folder_remove(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_tasks_run_once),
        cmocka_unit_test(test_withdraw),
        cmocka_unit_test(test_abandon),
        cmocka_unit_test(test_free_leaves_the_queue_alone),
        cmocka_unit_test(test_one_compile_for_all_who_want_it),
        cmocka_unit_test(test_failures_are_remembered),
        cmocka_unit_test(test_refusals_outlive_the_runner),
        cmocka_unit_test(test_runners_at_once),
        cmocka_unit_test(test_impatient),
        cmocka_unit_test(test_no_cache_folder),
        cmocka_unit_test(test_room_again),
        cmocka_unit_test(test_known_waits_for_no_thread),
        cmocka_unit_test(test_released_before_it_began),
        cmocka_unit_test(test_give_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
