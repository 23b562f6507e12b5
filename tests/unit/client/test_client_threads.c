/* SPDX-License-Identifier: Apache-2.0 */
/* A handle shared by several threads, and over fork(). */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/gemmd.h"
#include "client/table.h"
#include "tests/unit/client/fake.h"

enum { THREADS = 8, ASKS = 200, TUNING_MS = 400 };

#ifdef __SANITIZE_THREAD__
/* Replaces the function by which calls on a handle take turns: ThreadSanitizer does not know it and
 * would report races. It knows pthread_mutex_timedlock. */
int pthread_mutex_clocklock(pthread_mutex_t *m, clockid_t clock, const struct timespec *until)
{
    struct timespec now, wall;
    clock_gettime(clock, &now);
    clock_gettime(CLOCK_REALTIME, &wall);
    int64_t ns = (until->tv_sec - now.tv_sec + wall.tv_sec) * INT64_C(1000000000) + until->tv_nsec -
                 now.tv_nsec + wall.tv_nsec;
    struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    return pthread_mutex_timedlock(m, &t);
}
#endif

static struct gemmd_problem problem(int m)
{
    struct gemmd_problem p = GEMMD_PROBLEM_INIT;
    p.m = m;
    p.n = p.k = 128;
    return p;
}

/* The answer's generation is the problem's M; a `tune` is slow. */
static void answer_by_m(struct fake *f, int fd, const struct rpc_message *m)
{
    struct fake_answer a = {.tier = "exact", .source = "tuned"};
    (void)f;
    if (strcmp(m->method, "tune") == 0) {
        fake_sleep_ms(TUNING_MS);
    }
    wire_get_int(wire_find(wire_find(m->params, "problem"), "M"), &a.generation);
    fake_answer(fd, m->id, &a);
}

static int setup(void **state)
{
    struct fake *f = calloc(1, sizeof(*f));
    fake_path(f->path);
    f->handler = answer_by_m;
    fake_start(f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fake *f = *state;
    fake_stop(f);
    fake_path_remove(f->path);
    free(f);
    return 0;
}

static struct gemmd *open_to(const struct fake *f)
{
    struct gemmd_options o = GEMMD_OPTIONS_INIT;
    struct gemmd *g = NULL;
    o.socket = f->path;
    assert_int_equal(gemmd_connect(&g, &o, NULL), 0);
    return g;
}

/* ---- threads -------------------------------------------------------------------------------- */

struct work {
    struct gemmd *g;
    int first, wrong;
};

static void *ask_often(void *arg)
{
    struct work *w = arg;
    for (int i = 0; i < ASKS; i++) {
        struct gemmd_problem p = problem(1 + (w->first + i) % 97);
        struct gemmd_query q = GEMMD_QUERY_INIT;
        struct gemmd_answer a = GEMMD_ANSWER_INIT;
        q.flags = i % 3 == 0 ? GEMMD_NO_TABLE : 0;
        w->wrong += gemmd_get(w->g, &p, &q, &a, NULL) != 0 || a.generation != p.m;
    }
    return NULL;
}

static void test_threads_share_a_handle(void **state)
{
    struct fake *f = *state;
    struct work work[THREADS];
    pthread_t threads[THREADS];
    struct gemmd *g = open_to(f);
    for (int i = 0; i < THREADS; i++) {
        work[i] = (struct work){.g = g, .first = i * 11};
        assert_int_equal(pthread_create(&threads[i], NULL, ask_often, &work[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(work[i].wrong, 0);
    }
    assert_int_equal(f->connections, 1);
    gemmd_close(g);
}

/* ---- a changing device ----------------------------------------------------------------------- */

enum { FALLING_MS = 300, DEVICES = 10 };

/* Each connection ends after the greeting, and names another device: a single digit, repeated. */
static void greet_and_leave(struct fake *f, int fd, const struct rpc_message *m)
{
    struct wire_buf b = WIRE_BUF_NULL;
    char name[64];
    memset(name, '0' + atomic_load(&f->connections) % DEVICES, sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    rpc_put_result(&b, m->id);
    wire_put_map(&b, 2);
    wire_put_kv_int(&b, "version", PROTOCOL_VERSION);
    wire_put_str(&b, "device");
    wire_put_map(&b, 6);
    wire_put_kv_str(&b, "kind", "cpu");
    wire_put_kv_str(&b, "name", name);
    wire_put_kv_str(&b, "arch", "x86_64");
    wire_put_kv_str(&b, "uuid", "cpu");
    wire_put_kv_int(&b, "sm_count", 2);
    wire_put_kv_int(&b, "smem_optin", 1 << 20);
    fake_send(fd, &b);
    shutdown(fd, SHUT_RDWR);
}

struct falling {
    struct gemmd *g;
    atomic_bool *over;
    bool many;
    int asked, wrong; /* number of calls; number of calls that failed, or whose note names a mix of
                         two devices because the handle changed its device in the call */
};

static bool is_of_one(const char *note)
{
    const char *name = strstr(note, "default for ");
    name = name ? name + strlen("default for ") : "";
    return name[0] >= '0' && name[0] <= '9'
               ? strspn(name, (char[]){name[0], 0}) == 40
               : true; /* before the first greeting the default is for this machine */
}

static void *fall_back_often(void *arg)
{
    struct falling *w = arg;
    struct gemmd_query q = GEMMD_QUERY_INIT;
    q.flags = GEMMD_FALLBACK;
    q.deadline_ms = 1;
    for (; !atomic_load(w->over); w->asked++) {
        struct gemmd_problem p = problem(64 + w->asked % 1000);
        struct gemmd_answer a = GEMMD_ANSWER_INIT;
        int status = 0, r = w->many ? gemmd_get_many(w->g, &p, 1, &q, &a, &status, NULL)
                                    : gemmd_get(w->g, &p, &q, &a, NULL);
        w->wrong += r != 0 || status != 0 || !is_of_one(a.note);
    }
    return NULL;
}

static void *connect_often(void *arg)
{
    struct falling *w = arg;
    for (; !atomic_load(w->over); w->asked++) {
        gemmd_generation(w->g, NULL, NULL, NULL);
    }
    return NULL;
}

static void test_fallbacks_see_a_single_device(void **state)
{
    struct fake *f = *state;
    atomic_bool over = false;
    struct gemmd_options o = GEMMD_OPTIONS_INIT;
    struct gemmd *g = NULL;
    pthread_t threads[4];
    f->handler = greet_and_leave;
    f->mute = true; /* `hello` goes to the handler */
    o.socket = f->path;
    assert_int_equal(gemmd_open_lazy(&g, &o, NULL), 0);
    struct falling work[4] = {{g, &over, false, 0, 0},
                              {g, &over, false, 0, 0},
                              {g, &over, true, 0, 0},
                              {g, &over, true, 0, 0}};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(
            pthread_create(&threads[i], NULL, i ? fall_back_often : connect_often, &work[i]), 0);
    }
    fake_sleep_ms(FALLING_MS);
    atomic_store(&over, true);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(work[i].wrong, 0);
        assert_true(work[i].asked > 0);
    }
    assert_true(f->connections > 10);
    gemmd_close(g);
}

/* ---- a changing table ----------------------------------------------------------------------- */

enum { CHANGES = 20000, CHANGING = 16 };

struct readers {
    struct table table;
    atomic_bool over;
    atomic_int wrong, found;
};

/* Each field follows from i and version, so that a mix of two answers is noticed (is_whole). */
static struct gemmd_answer answer_of(int i, int version)
{
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    a.generation = a.measured = a.created_s = 1000 * i + version;
    memset(a.config, 'a' + version % 26, (size_t)(8 + version % 400));
    memset(a.note, 'a' + version % 26, (size_t)(version % 150));
    return a;
}

static bool is_whole(const struct gemmd_answer *a, int i)
{
    int version = (int)(a->generation - 1000 * i);
    struct gemmd_answer whole = answer_of(i, version);
    return version >= 0 && version < 1000 && a->created_s == a->generation &&
           a->measured == a->generation && strcmp(a->config, whole.config) == 0 &&
           strcmp(a->note, whole.note) == 0;
}

/* Every second question has a routing longer than the 8 bytes that a word of the table holds. */
static struct question changing_question(int i)
{
    struct gemmd_problem p = problem(i);
    struct question q;
    p.routing = i % 2 ? "zipf:1.125" : NULL;
    question_of(&p, &q);
    return q;
}

static void *read_often(void *arg)
{
    struct readers *r = arg;
    for (int i = 0; !atomic_load(&r->over); i = (i + 1) % CHANGING) {
        const struct question q = changing_question(i);
        struct gemmd_answer a = GEMMD_ANSWER_INIT;
        if (table_get(&r->table, &q, &a)) {
            atomic_fetch_add(&r->found, 1);
            atomic_fetch_add(&r->wrong, !is_whole(&a, i));
        }
    }
    return NULL;
}

static void test_answers_are_whole_while_they_change(void **state)
{
    struct readers r = {.over = false};
    pthread_t threads[2];
    (void)state;
    table_init(&r.table);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, read_often, &r), 0);
    }
    for (int n = 0; n < CHANGES || (atomic_load(&r.found) < 1000 && n < 100 * CHANGES); n++) {
        const struct question q = changing_question(n % CHANGING);
        struct gemmd_answer a = answer_of(n % CHANGING, n % 1000);
        table_put(&r.table, &q, &a);
    }
    atomic_store(&r.over, true);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(atomic_load(&r.wrong), 0);
    assert_true(atomic_load(&r.found) > 0);
    table_deinit(&r.table);
}

static void *tune_once(void *arg)
{
    struct work *w = arg;
    struct gemmd_problem p = problem(1000);
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    w->wrong = gemmd_tune(w->g, &p, NULL, &a, NULL) != 0 || a.generation != 1000;
    return NULL;
}

static void test_other_threads_go_on_during_a_tune(void **state)
{
    struct fake *f = *state;
    struct gemmd *g = open_to(f);
    struct work w = {.g = g};
    struct gemmd_problem known = problem(5), other = problem(6);
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_query q = GEMMD_QUERY_INIT;
    struct gemmd_error e;
    assert_int_equal(gemmd_get(g, &known, NULL, &a, NULL), 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, tune_once, &w), 0);
    fake_sleep_ms(100);

    double began = fake_ms();
    assert_int_equal(gemmd_get(g, &known, NULL, &a, NULL), 0); /* the table never waits */
    assert_true(a.local);
    q.deadline_ms = 50;
    assert_int_equal(gemmd_get(g, &other, &q, &a, &e), GEMMD_BUSY);
    q.flags = GEMMD_FALLBACK;
    assert_int_equal(gemmd_get(g, &other, &q, &a, &e), 0);
    assert_string_equal(a.tier, "default");
    assert_true(fake_ms() - began < 250);
    assert_int_equal(gemmd_get(g, &other, NULL, &a, &e), 0); /* no flag: waits for the daemon */
    assert_int_equal(a.generation, 6);
    pthread_join(thread, NULL);
    assert_int_equal(w.wrong, 0);
    gemmd_close(g);
}

/* ---- fork ----------------------------------------------------------------------------------- */

static bool asks_well(struct gemmd *g, int m, bool local)
{
    struct gemmd_problem p = problem(m);
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    return gemmd_get(g, &p, NULL, &a, NULL) == 0 && a.generation == m && a.local == local;
}

static int run_child(struct gemmd *g)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bool well = asks_well(g, 1, true) && asks_well(g, 2, false) && asks_well(g, 2, true);
        gemmd_close(g);
        _exit(well ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_fork(void **state)
{
    struct fake *f = *state;
    struct gemmd *g = open_to(f);
    assert_true(asks_well(g, 1, false));
    assert_int_equal(run_child(g), 0);
    assert_int_equal(f->connections, 2); /* the child made a connection of its own */
    assert_true(asks_well(g, 3, false)); /* the parent's still works */
    assert_int_equal(f->connections, 2);
    gemmd_close(g);
}

/* The process forks while another thread is in a call on the handle. */
static void test_fork_in_the_middle_of_a_call(void **state)
{
    struct fake *f = *state;
    struct gemmd *g = open_to(f);
    struct work w = {.g = g};
    assert_true(asks_well(g, 1, false));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, tune_once, &w), 0);
    fake_sleep_ms(100);
    assert_int_equal(run_child(g), 0);
    pthread_join(thread, NULL);
    assert_int_equal(w.wrong, 0);
    gemmd_close(g);
}

/* ---- fork, while a library is looked for ------------------------------------------------------
 */

static atomic_bool slowly, looking, forking;

/* Forks while a library loads, as libcuda does when it makes its device files. */
static void fork_within(void)
{
    pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

/* Replaces dlopen of the C library: finding a loaded library becomes slow. */
void *dlopen(const char *file, int flags)
{
    static _Atomic(void *(*)(const char *, int)) next;
    if (!next) {
        void *symbol = dlsym(RTLD_NEXT, "dlopen");
        next = (void *(*)(const char *, int))(uintptr_t)symbol;
    }
    if ((flags & RTLD_NOLOAD) && atomic_load(&slowly)) {
        atomic_store(&looking, true);
        fake_sleep_ms(300);
        if (atomic_load(&forking)) {
            fork_within();
        }
        atomic_store(&looking, false);
    }
    return next(file, flags);
}

static bool falls_back(struct gemmd *g)
{
    struct gemmd_problem p = problem(1);
    struct gemmd_query q = GEMMD_QUERY_INIT;
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    q.flags = GEMMD_FALLBACK;
    return gemmd_get(g, &p, &q, &a, NULL) == 0 && strcmp(a.tier, "default") == 0;
}

static void *fall_back(void *arg)
{
    struct work *w = arg;
    w->wrong = !falls_back(w->g);
    return NULL;
}

/* No daemon listens, so libgemmd looks for the device in the job's loaded libraries. The fork must
 * wait for the look, and a library that forks while it loads must not wait for the look either. */
static void fork_while_a_library_is_looked_for(struct fake *f)
{
    struct gemmd_options o = GEMMD_OPTIONS_INIT;
    struct gemmd *g = NULL;
    char nobody[sizeof(f->path) + 8];
    snprintf(nobody, sizeof(nobody), "%s.nobody", f->path);
    o.socket = nobody;
    assert_int_equal(gemmd_open_lazy(&g, &o, NULL), 0);
    struct work w = {.g = g};
    atomic_store(&slowly, true);
    alarm(60);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fall_back, &w), 0);
    while (!atomic_load(&looking)) {
        fake_sleep_ms(1);
    }
    pid_t child = fork();
    if (child == 0) {
        bool whole = !atomic_load(&looking);
        atomic_store(&slowly, false);
        alarm(20); /* a lock whose holder is not in this process would block for ever */
        _exit(whole && falls_back(g) ? 0 : 1);
    }
    assert_true(child > 0);
    pthread_join(thread, NULL);
    alarm(0);
    atomic_store(&slowly, false);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(w.wrong, 0);
    gemmd_close(g);
}

static void test_fork_while_a_library_is_looked_for(void **state)
{
    fork_while_a_library_is_looked_for(*state);
}

static void test_fork_while_a_loading_library_forks(void **state)
{
    atomic_store(&forking, true);
    fork_while_a_library_is_looked_for(*state);
    atomic_store(&forking, false);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_threads_share_a_handle),
        cmocka_unit_test(test_answers_are_whole_while_they_change),
        TEST(test_other_threads_go_on_during_a_tune),
        TEST(test_fallbacks_see_a_single_device),
        TEST(test_fork),
        TEST(test_fork_in_the_middle_of_a_call),
        TEST(test_fork_while_a_library_is_looked_for),
        TEST(test_fork_while_a_loading_library_forks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
