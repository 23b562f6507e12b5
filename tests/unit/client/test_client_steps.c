/* SPDX-License-Identifier: Apache-2.0 */
/* Calls in steps: the caller has its thread while the daemon works, and goes on or gives up. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/client/fixture.h"

enum { STEP_MS = 20 };

/* The fake's behaviour, and the requests it saw. */
struct plan {
    int tells;           /* number of progress reports, sent at once */
    int losses;          /* number of requests at which the fake closes the connection */
    atomic_bool answers; /* false: the request stays unanswered until `hello` or `cancel` */
    atomic_uint asked;   /* id of the last request */
    atomic_int cancelled, wants_progress;
};

static void tell(int fd, uint32_t id, int64_t done)
{
    struct wire_buf b = WIRE_BUF_NULL;
    rpc_put_notify(&b, "progress");
    wire_put_map(&b, 4);
    wire_put_kv_int(&b, "request", id);
    wire_put_kv_str(&b, "phase", "measure");
    wire_put_kv_int(&b, "done", done);
    wire_put_kv_str(&b, "config", "BLOCK_SIZE_M=64");
    fake_send(fd, &b);
}

static void ask(struct fake *f, int fd, const struct rpc_message *m)
{
    struct plan *p = f->ctx;
    bool progress = false;
    wire_get_bool(wire_find(m->params, "progress"), &progress);
    atomic_store(&p->wants_progress, progress);
    p->asked = m->id;
    if (p->losses > 0) {
        p->losses--;
        shutdown(fd, SHUT_RDWR);
        return;
    }
    for (int i = 1; i <= p->tells; i++) {
        tell(fd, m->id, i);
        tell(fd, m->id + 1, 99); /* another request's */
    }
    if (p->answers) {
        fake_answer(fd, m->id, &script.answer);
    }
}

static void do_as_planned(struct fake *f, int fd, const struct rpc_message *m)
{
    struct plan *p = f->ctx;
    int64_t id = 0;
    if (strcmp(m->method, "cancel") == 0) {
        wire_get_int(wire_find(m->params, "request"), &id);
        atomic_store(&p->cancelled, (int)id);
        fake_error(fd, (uint32_t)id, GEMMD_CANCELLED, "cancelled by request");
        fake_result_int(fd, m->id, "cancelled", 1);
    } else if (strcmp(m->method, "hello") == 0) { /* the client probes a fake that is mute */
        atomic_fetch_add(&f->hellos, 1);
        fake_welcome(fd, m->id, PROTOCOL_VERSION);
        if (p->asked && atomic_load(&f->hellos) >= 3) {
            fake_answer(fd, p->asked, &script.answer);
        }
    } else if (strcmp(m->method, "status") == 0) {
        fake_result_int(fd, m->id, "seven", 7);
    } else {
        ask(f, fd, m);
    }
}

static struct gemmd *open_steps(struct fake *f, struct plan *p, int deadline_ms, bool lazy)
{
    struct gemmd_options o = options_for(f, deadline_ms);
    struct gemmd *g = NULL;
    struct gemmd_error e;
    f->ctx = p;
    f->handler = do_as_planned;
    fake_start(f);
    o.step_ms = STEP_MS;
    assert_int_equal(lazy ? gemmd_open_lazy(&g, &o, &e) : gemmd_connect(&g, &o, &e), 0);
    return g;
}

static void close_steps(struct fake *f, struct gemmd *g)
{
    gemmd_close(g);
    fake_stop(f);
}

/* On a busy machine even a prompt answer may take a step or two. */
static int to_its_end(struct gemmd *g, int r, struct gemmd_error *e)
{
    while (r == GEMMD_WAITING) {
        r = gemmd_wait(g, NULL, e);
    }
    return r;
}

static int status(struct gemmd *g, struct gemmd_error *e)
{
    char *json = NULL;
    int r = to_its_end(g, gemmd_call(g, "status", NULL, 5000, &json, NULL, NULL, e), e);
    gemmd_free(json);
    return r;
}

static const struct gemmd_problem *problem(void)
{
    static const struct gemmd_problem p = {
        .size = sizeof(p), .mode = "forward", .m = 64, .n = 128, .k = 256};
    return &p;
}

/* ---- going on ------------------------------------------------------------------------------- */

static void test_an_answer_in_many_steps(void **state)
{
    struct fake *f = *state;
    struct plan p = {0};
    f->mute = true;
    struct gemmd *g = open_steps(f, &p, 100, false);
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e = {.code = 5};
    double began = fake_ms(), longest = 0;
    int steps = 0, r = gemmd_tune(g, problem(), NULL, &a, &e);
    for (; r == GEMMD_WAITING; steps++) {
        const struct gemmd_progress *progress;
        double from = fake_ms();
        assert_int_equal(e.code, GEMMD_WAITING);
        assert_string_equal(e.text, "");
        assert_string_equal(a.tier, "");
        r = gemmd_wait(g, &progress, &e);
        assert_null(progress);
        longest = fake_ms() - from > longest ? fake_ms() - from : longest;
    }
    assert_int_equal(r, 0);
    assert_string_equal(a.tier, "exact");
    /* the client probes a silent daemon, as in a long call */
    assert_true(fake_ms() - began >= 195);
    assert_int_equal(f->hellos, 3);
    assert_true(steps >= 5 && longest < STEP_MS + SLACK_MS);
    assert_int_equal(gemmd_get(g, problem(), NULL, &a, &e), 0); /* kept in the table */
    assert_int_equal(f->hellos, 3);
    close_steps(f, g);
}

static void test_nothing_waits_when_the_answer_is_there(void **state)
{
    struct fake *f = *state;
    struct plan p = {.answers = true};
    struct gemmd *g = open_steps(f, &p, 0, false);
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    assert_int_equal(to_its_end(g, gemmd_get(g, problem(), NULL, &a, &e), &e), 0);
    assert_string_equal(a.tier, "exact");
    assert_int_equal(gemmd_get(g, problem(), NULL, &a, &e), 0); /* now from the table */
    assert_int_equal(f->requests, 1);
    assert_int_equal(gemmd_wait(g, NULL, &e), GEMMD_INVALID);
    assert_non_null(strstr(e.text, "gemmd_wait"));
    gemmd_cancel(g);
    gemmd_cancel(NULL);
    assert_int_equal(gemmd_wait(NULL, NULL, &e), GEMMD_INVALID);
    assert_int_equal(p.cancelled, 0);
    close_steps(f, g);
}

/* A thread's second call fails with busy while its first call waits, also with a fallback: no
 * default takes the place of the answer that the daemon may have. */
static void test_another_call_of_the_thread_is_busy(void **state)
{
    struct fake *f = *state;
    struct plan p = {.answers = false};
    struct gemmd *g = open_steps(f, &p, 0, false);
    struct gemmd_query fall_back = GEMMD_QUERY_INIT;
    struct gemmd_answer a = GEMMD_ANSWER_INIT, other = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    int status = 0;
    fall_back.flags = GEMMD_FALLBACK;
    assert_int_equal(gemmd_get(g, problem(), NULL, &a, &e), GEMMD_WAITING);
    assert_int_equal(gemmd_get(g, problem(), &fall_back, &other, &e), GEMMD_BUSY);
    assert_non_null(strstr(e.text, "its call still waits"));
    assert_int_equal(gemmd_get_many(g, problem(), 1, &fall_back, &other, &status, &e), GEMMD_BUSY);
    assert_int_equal(status, GEMMD_BUSY);
    gemmd_cancel(g);
    close_steps(f, g);
}

static void test_progress_comes_by_the_steps(void **state)
{
    struct fake *f = *state;
    struct plan p = {.tells = 3, .answers = true};
    struct gemmd *g = open_steps(f, &p, 0, false);
    struct gemmd_query q = GEMMD_QUERY_INIT;
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    q.flags = GEMMD_PROGRESS;
    int r = gemmd_tune(g, problem(), &q, &a, &e);
    int done = 0;
    while (r == GEMMD_WAITING) {
        const struct gemmd_progress *progress;
        r = gemmd_wait(g, &progress, &e);
        if (progress) {
            assert_int_equal(r, GEMMD_WAITING);
            assert_int_equal(progress->done, ++done);
            assert_string_equal(progress->phase, "measure");
            assert_string_equal(progress->config, "BLOCK_SIZE_M=64");
        }
    }
    assert_int_equal(r, 0);
    assert_int_equal(done, 3);
    assert_int_equal(p.wants_progress, 1);
    assert_string_equal(a.tier, "exact");
    r = to_its_end(g, gemmd_tune(g, problem(), NULL, &a, &e), &e);
    assert_int_equal(r, 0);
    assert_int_equal(p.wants_progress, 0); /* no progress wanted */
    close_steps(f, g);
}

static void test_a_deadline_is_of_all_steps(void **state)
{
    struct fake *f = *state;
    struct plan p = {0};
    struct gemmd *g = open_steps(f, &p, 0, false);
    struct gemmd_query q = GEMMD_QUERY_INIT;
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    q.deadline_ms = 150;
    double began = fake_ms();
    int r = to_its_end(g, gemmd_tune(g, problem(), &q, &a, &e), &e);
    assert_int_equal(r, GEMMD_DEADLINE);
    assert_late(&e, "tune", 150);
    double took = fake_ms() - began;
    assert_true(took >= 149 && took < 150 + SLACK_MS);
    close_steps(f, g);
}

/* libgemmd repeats a call once on a new connection, also when the caller waits for the answer in
 * many calls of gemmd_wait. */
static void test_a_lost_connection(void **state)
{
    struct fake *f = *state;
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    for (int losses = 1; losses <= 2; losses++) {
        struct plan p = {.losses = losses, .answers = true};
        struct gemmd *g = open_steps(f, &p, 0, false);
        int r = to_its_end(g, gemmd_get(g, problem(), NULL, &a, &e), &e);
        assert_int_equal(r, losses == 1 ? 0 : GEMMD_DISCONNECTED);
        assert_int_equal(f->connections, 2);
        close_steps(f, g);
    }
}

static void test_the_default_after_steps(void **state)
{
    struct fake *f = *state;
    struct plan p = {0};
    struct gemmd *g = open_steps(f, &p, 100, false);
    struct gemmd_query q = GEMMD_QUERY_INIT;
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    q.flags = GEMMD_FALLBACK;
    assert_int_equal(gemmd_get(g, problem(), &q, &a, &e), GEMMD_WAITING);
    fake_stop(f);
    assert_int_equal(to_its_end(g, GEMMD_WAITING, &e), 0);
    check_default(&a);
    gemmd_close(g);
}

/* ---- no room --------------------------------------------------------------------------------- */

/* The fake refuses `refuses` requests with `busy`, then answers. told_ms: the deadline that each
 * request names. */
struct crowd {
    atomic_int refuses, asked;
    int told_ms[16];
};

static void refuse_some(struct fake *f, int fd, const struct rpc_message *m)
{
    struct crowd *c = f->ctx;
    int64_t told = 0;
    wire_get_int(wire_find(m->params, "deadline_ms"), &told);
    c->told_ms[atomic_load(&c->asked) % 16] = (int)told;
    atomic_fetch_add(&c->asked, 1);
    if (atomic_fetch_sub(&c->refuses, 1) > 0) {
        fake_error(fd, m->id, GEMMD_BUSY, "too many tunings of yours are queued");
    } else if (strcmp(m->method, "acquire") == 0) {
        struct wire_buf b = WIRE_BUF_NULL;
        rpc_put_result(&b, m->id);
        wire_put_map(&b, 1);
        wire_put_kv_str(&b, "outcome", "lease");
        fake_send(fd, &b);
    } else {
        fake_answer(fd, m->id, &script.answer);
    }
}

static struct gemmd *open_crowd(struct fake *f, struct crowd *c, int step_ms)
{
    struct gemmd_options o = options_for(f, 0);
    struct gemmd *g = NULL;
    f->ctx = c;
    f->handler = refuse_some;
    fake_start(f);
    o.step_ms = step_ms;
    assert_int_equal(gemmd_connect(&g, &o, NULL), 0);
    return g;
}

static void test_busy_is_asked_again(void **state)
{
    struct fake *f = *state;
    struct gemmd_problem mine = GEMMD_PROBLEM_INIT;
    mine.text = "custom:mine n=1";
    for (int step_ms = 0; step_ms <= STEP_MS; step_ms += STEP_MS) {
        struct crowd c = {.refuses = 4};
        struct gemmd *g = open_crowd(f, &c, step_ms);
        struct gemmd_query q = GEMMD_QUERY_INIT;
        struct gemmd_answer a = GEMMD_ANSWER_INIT;
        struct gemmd_error e;
        enum gemmd_outcome outcome = GEMMD_HELD;
        q.flags = GEMMD_FALLBACK;
        q.deadline_ms = 20000;
        assert_int_equal(to_its_end(g, gemmd_get(g, problem(), &q, &a, &e), &e), 0);
        assert_string_equal(a.tier, "exact");
        assert_int_equal(c.asked, 5);
        /* a repeated request names only the rest of the caller's deadline */
        assert_true(c.told_ms[4] < c.told_ms[0]);
        c.refuses = 4;
        assert_int_equal(to_its_end(g, gemmd_tune(g, problem(), NULL, &a, &e), &e), 0);
        c.refuses = 4;
        assert_int_equal(to_its_end(g, gemmd_acquire(g, &mine, NULL, &outcome, &a, NULL, &e), &e),
                         0);
        assert_int_equal(outcome, GEMMD_LEASE);
        assert_int_equal(c.asked, 15);
        assert_int_equal(f->connections, 1);
        close_steps(f, g);
    }
}

static void test_busy_until_the_deadline(void **state)
{
    struct fake *f = *state;
    for (int step_ms = 0; step_ms <= STEP_MS; step_ms += STEP_MS) {
        struct crowd c = {.refuses = 1000};
        struct gemmd *g = open_crowd(f, &c, step_ms);
        struct gemmd_query q = GEMMD_QUERY_INIT;
        struct gemmd_answer a = GEMMD_ANSWER_INIT;
        struct gemmd_error e;
        q.deadline_ms = 200;
        double began = fake_ms();
        assert_int_equal(to_its_end(g, gemmd_tune(g, problem(), &q, &a, &e), &e), GEMMD_BUSY);
        double took = fake_ms() - began;
        assert_non_null(strstr(e.text, "queued"));
        assert_true(took > 50 && took < 200 + SLACK_MS);
        q.flags = GEMMD_FALLBACK;
        assert_int_equal(to_its_end(g, gemmd_get(g, problem(), &q, &a, &e), &e), 0);
        check_default(&a);
        assert_non_null(strstr(a.note, "queued"));
        close_steps(f, g);
    }
}

/* The client pauses before it repeats a busy request. A pause is longer than a step; a caller
 * that gives up in a pause has no request under way. */
static void test_a_pause_in_steps(void **state)
{
    struct fake *f = *state;
    struct crowd c = {.refuses = 1000};
    struct gemmd *g = open_crowd(f, &c, STEP_MS);
    struct gemmd_problem mine = GEMMD_PROBLEM_INIT;
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    enum gemmd_outcome outcome;
    mine.text = "custom:mine n=1";
    int r = gemmd_acquire(g, &mine, NULL, &outcome, &a, NULL, &e);
    double began = fake_ms(), longest = 0;
    while (r == GEMMD_WAITING && fake_ms() - began < 400) {
        double from = fake_ms();
        r = gemmd_wait(g, NULL, &e);
        longest = fake_ms() - from > longest ? fake_ms() - from : longest;
    }
    assert_int_equal(r, GEMMD_WAITING);
    assert_true(longest < STEP_MS + 100);
    gemmd_cancel(g);
    c.refuses = 0;
    assert_int_equal(to_its_end(g, gemmd_tune(g, problem(), NULL, &a, &e), &e), 0);
    assert_int_equal(f->connections, 1);
    close_steps(f, g);
}

/* ---- steps before the connection is open ---------------------------------------------------- */

/* Takes steps until the call ends, or for `ms`; *longest becomes the longest step. */
static int step_for(struct gemmd *g, int r, int ms, double *longest, struct gemmd_error *e)
{
    double began = fake_ms();
    *longest = 0;
    while (r == GEMMD_WAITING && fake_ms() - began < ms) {
        double from = fake_ms();
        r = gemmd_wait(g, NULL, e);
        *longest = fake_ms() - from > *longest ? fake_ms() - from : *longest;
    }
    return r;
}

/* shut: the fake does not answer `hello`. full: it answers `busy`. */
struct door {
    atomic_bool shut, full;
    atomic_uint hello; /* id of the waiting `hello` */
    atomic_int fd;     /* descriptor of the connection with this `hello` */
};

static void guard(struct fake *f, int fd, const struct rpc_message *m)
{
    struct door *d = f->ctx;
    if (strcmp(m->method, "hello") != 0) {
        fake_answer(fd, m->id, &script.answer);
    } else if (atomic_load(&d->full)) {
        fake_error(fd, m->id, GEMMD_BUSY, "all connections are in use");
    } else if (atomic_load(&d->shut)) {
        atomic_store(&d->fd, fd);
        atomic_store(&d->hello, m->id);
    } else {
        fake_welcome(fd, m->id, PROTOCOL_VERSION);
    }
}

static struct gemmd *open_door(struct fake *f, struct door *d, int deadline_ms)
{
    struct gemmd_options o = options_for(f, deadline_ms);
    struct gemmd *g = NULL;
    f->ctx = d;
    f->handler = guard;
    f->mute = true;
    fake_start(f);
    o.step_ms = STEP_MS;
    assert_int_equal(gemmd_open_lazy(&g, &o, NULL), 0);
    return g;
}

static void test_a_greeting_in_steps(void **state)
{
    struct fake *f = *state;
    struct door d = {.shut = true};
    struct gemmd *g = open_door(f, &d, 0);
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    double longest, began = fake_ms();
    int r = gemmd_tune(g, problem(), NULL, &a, &e);
    assert_true(fake_ms() - began < STEP_MS + 100);
    assert_int_equal(step_for(g, r, 150, &longest, &e), GEMMD_WAITING);
    assert_true(longest < STEP_MS + 100);
    fake_welcome(atomic_load(&d.fd), atomic_load(&d.hello), PROTOCOL_VERSION);
    assert_int_equal(step_for(g, r, 2000, &longest, &e), 0);
    assert_string_equal(a.tier, "exact");
    assert_int_equal(f->connections, 1);
    assert_int_equal(f->requests, 2);
    close_steps(f, g);
}

static void test_giving_up_during_the_greeting(void **state)
{
    struct fake *f = *state;
    struct door d = {.shut = true};
    struct gemmd *g = open_door(f, &d, 0);
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    assert_int_equal(gemmd_tune(g, problem(), NULL, &a, &e), GEMMD_WAITING);
    gemmd_cancel(g);
    atomic_store(&d.shut, false);
    assert_int_equal(to_its_end(g, gemmd_tune(g, problem(), NULL, &a, &e), &e), 0);
    assert_string_equal(a.tier, "exact");
    assert_int_equal(f->connections, 2);
    atomic_store(&d.shut, true);
    fake_stop(f);
    fake_start(f);
    assert_int_equal(gemmd_tune(g, problem(), NULL, &a, &e), GEMMD_WAITING); /* g reconnects */
    close_steps(f, g);
}

static void test_a_greeting_ends_by_its_deadline(void **state)
{
    struct fake *f = *state;
    struct door d = {.shut = true};
    struct gemmd *g = open_door(f, &d, 150);
    struct gemmd_query q = GEMMD_QUERY_INIT;
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    double began = fake_ms();
    assert_int_equal(to_its_end(g, gemmd_tune(g, problem(), &q, &a, &e), &e), GEMMD_DEADLINE);
    double took = fake_ms() - began;
    assert_true(took >= 149 && took < 150 + SLACK_MS);
    assert_non_null(strstr(e.text, "hello"));
    close_steps(f, g);
}

static void test_no_room_for_a_connection_in_steps(void **state)
{
    struct fake *f = *state;
    struct door d = {.full = true};
    struct gemmd *g = open_door(f, &d, 0);
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    double longest;
    int r = gemmd_tune(g, problem(), NULL, &a, &e);
    r = step_for(g, r, 400, &longest, &e);
    assert_int_equal(r, GEMMD_WAITING);
    assert_true(longest < STEP_MS + 100);
    assert_in_range(f->requests, 4, 12);
    atomic_store(&d.full, false);
    assert_int_equal(step_for(g, r, 2000, &longest, &e), 0);
    close_steps(f, g);
}

/* The daemon is stopped and accepts no connection. */
static void test_a_full_queue_in_steps(void **state)
{
    struct fake *f = *state;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct gemmd_options o = options_for(f, 250);
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    struct gemmd *g = NULL;
    double longest, began = fake_ms();
    snprintf(at.sun_path, sizeof(at.sun_path), "%s", f->path);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), fillers[8];
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(listener, 1), 0);
    for (int i = 0; i < 8; i++) {
        fillers[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)!connect(fillers[i], (struct sockaddr *)&at, sizeof(at));
    }
    o.step_ms = STEP_MS;
    assert_int_equal(gemmd_open_lazy(&g, &o, NULL), 0);
    int r = gemmd_tune(g, problem(), NULL, &a, &e);
    assert_int_equal(r, GEMMD_WAITING);
    assert_int_equal(step_for(g, r, 2000, &longest, &e), GEMMD_DEADLINE);
    double took = fake_ms() - began;
    assert_true(longest < STEP_MS + 100);
    assert_true(took >= 249 && took < 250 + SLACK_MS);
    assert_non_null(strstr(e.text, "full"));
    gemmd_close(g);
    for (int i = 0; i < 8; i++) {
        close(fillers[i]);
    }
    close(listener);
}

/* The program that libgemmd starts takes a while until it listens. */
static void test_a_start_in_steps(void **state)
{
    struct fake *f = *state;
    struct gemmd_options o = options_for(f, 1000);
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    struct gemmd *g = NULL;
    char dir[108], program[128], command[320];
    double longest;
    snprintf(dir, sizeof(dir), "%s", f->path);
    *strrchr(dir, '/') = '\0';
    snprintf(program, sizeof(program), "%s/slow-gemmd", dir);
    FILE *file = fopen(program, "w");
    fputs("#!/bin/sh\nexec sleep 2\n", file);
    fclose(file);
    assert_int_equal(chmod(program, 0700), 0);
    setenv("GEMMD_DAEMON", program, 1);
    setenv("XDG_STATE_HOME", dir, 1);
    f->ctx = &(struct door){.shut = false};
    f->handler = guard;
    f->mute = true;
    o.autostart = true;
    o.step_ms = STEP_MS;
    assert_int_equal(gemmd_open_lazy(&g, &o, NULL), 0);
    int r = gemmd_tune(g, problem(), NULL, &a, &e);
    r = step_for(g, r, 200, &longest, &e);
    assert_int_equal(r, GEMMD_WAITING);
    assert_true(longest < STEP_MS + 100);
    gemmd_cancel(g); /* the next call starts gemmd again */
    r = gemmd_tune(g, problem(), NULL, &a, &e);
    assert_int_equal(step_for(g, r, 100, &longest, &e), GEMMD_WAITING);
    fake_start(f); /* the started gemmd listens */
    assert_int_equal(step_for(g, r, 2000, &longest, &e), 0);
    assert_string_equal(a.tier, "exact");
    unsetenv("GEMMD_DAEMON");
    unsetenv("XDG_STATE_HOME");
    snprintf(command, sizeof(command), "rm -rf '%.100s'/slow-gemmd '%.100s'/gemmd", dir, dir);
    assert_int_equal(system(command), 0);
    close_steps(f, g);
}

/* ---- giving up ------------------------------------------------------------------------------ */

static void test_a_cancelled_call_leaves_nothing(void **state)
{
    struct fake *f = *state;
    struct plan p = {0};
    struct gemmd *g = open_steps(f, &p, 0, false);
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    assert_int_equal(gemmd_tune(g, problem(), NULL, &a, &e), GEMMD_WAITING);
    assert_int_equal(call(g, "status", 0, &e), GEMMD_BUSY); /* fails, and does not wait for ever */
    assert_non_null(strstr(e.text, "gemmd_cancel"));
    gemmd_cancel(g);
    assert_int_equal(gemmd_wait(g, NULL, &e), GEMMD_INVALID);
    assert_int_equal(status(g, &e), 0); /* the answers to both cancelled requests come first */
    assert_int_equal(p.cancelled, p.asked);
    p.answers = true;
    assert_int_equal(to_its_end(g, gemmd_tune(g, problem(), NULL, &a, &e), &e), 0);
    assert_string_equal(a.tier, "exact");
    assert_int_equal(f->connections, 1);
    close_steps(f, g);
}

/* A lease may be under way: only the end of the connection returns it for sure. */
static void test_other_waiting_requests_end_with_their_connection(void **state)
{
    struct fake *f = *state;
    struct plan p = {0};
    struct gemmd *g = open_steps(f, &p, 0, false);
    struct gemmd_problem mine = GEMMD_PROBLEM_INIT;
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    enum gemmd_outcome outcome;
    char *json = NULL;
    mine.text = "custom:mine n=1";
    assert_int_equal(gemmd_acquire(g, &mine, NULL, &outcome, &a, NULL, &e), GEMMD_WAITING);
    gemmd_cancel(g);
    assert_int_equal(status(g, &e), 0);
    assert_int_equal(f->connections, 2);
    assert_int_equal(gemmd_call(g, "pin", NULL, 0, &json, NULL, NULL, &e), GEMMD_WAITING);
    gemmd_cancel(g);
    assert_int_equal(gemmd_call(g, "tune", "{\"again\":true}", 0, &json, NULL, NULL, &e),
                     GEMMD_WAITING);
    gemmd_cancel(g);
    assert_int_equal(status(g, &e), 0);
    assert_int_equal(f->connections, 3);
    assert_int_equal(p.cancelled, p.asked);
    close_steps(f, g);
}

static void test_a_handle_is_closed_while_it_waits(void **state)
{
    struct fake *f = *state;
    struct plan p = {0};
    struct gemmd *g = open_steps(f, &p, 0, true);
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    struct gemmd_options o = options_for(f, 0);
    assert_int_equal(gemmd_tune(g, problem(), NULL, &a, &e), GEMMD_WAITING);
    close_steps(f, g);
    o.step_ms = -1;
    assert_int_equal(gemmd_open_lazy(&g, &o, &e), GEMMD_INVALID);
    assert_non_null(strstr(e.text, "step_ms"));
}

/* ---- other handles -------------------------------------------------------------------------- */

struct other {
    struct gemmd *g;
    int waited, asked;
};

static void *ask_from_another_thread(void *arg)
{
    struct other *o = arg;
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    o->waited = gemmd_wait(o->g, NULL, &e);
    gemmd_cancel(o->g); /* not this handle's call */
    o->asked = to_its_end(o->g, gemmd_tune(o->g, problem(), NULL, &a, &e), &e);
    return NULL;
}

static void test_another_thread_waits_for_the_end(void **state)
{
    struct fake *f = *state;
    struct plan p = {0};
    struct gemmd *g = open_steps(f, &p, 0, false);
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    struct other o = {.g = g, .asked = 1};
    pthread_t t;
    assert_int_equal(gemmd_tune(g, problem(), NULL, &a, &e), GEMMD_WAITING);
    assert_int_equal(pthread_create(&t, NULL, ask_from_another_thread, &o), 0);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(gemmd_wait(g, NULL, &e), GEMMD_WAITING);
    }
    p.answers = true; /* from now on the fake answers */
    gemmd_cancel(g);
    pthread_join(t, NULL);
    assert_int_equal(o.waited, GEMMD_INVALID);
    assert_int_equal(o.asked, 0);
    close_steps(f, g);
}

static void test_a_child_of_fork_begins_anew(void **state)
{
    struct fake *f = *state;
    struct plan p = {.tells = 1};
    struct gemmd *g = open_steps(f, &p, 0, false);
    struct gemmd_query q = GEMMD_QUERY_INIT;
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    int ended;
    q.flags = GEMMD_PROGRESS;
    assert_int_equal(gemmd_tune(g, problem(), &q, &a, &e), GEMMD_WAITING);
    pid_t child = fork();
    if (child == 0) {
        gemmd_cancel(g); /* the call is the parent's */
        _exit(gemmd_wait(g, NULL, &e) == GEMMD_INVALID && status(g, &e) == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
    assert_int_equal(gemmd_wait(g, NULL, &e), GEMMD_WAITING);
    assert_int_equal(p.cancelled, 0);
    close_steps(f, g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(test_an_answer_in_many_steps),
        FIXTURE_TEST(test_nothing_waits_when_the_answer_is_there),
        FIXTURE_TEST(test_another_call_of_the_thread_is_busy),
        FIXTURE_TEST(test_progress_comes_by_the_steps),
        FIXTURE_TEST(test_a_deadline_is_of_all_steps),
        FIXTURE_TEST(test_a_lost_connection),
        FIXTURE_TEST(test_the_default_after_steps),
        FIXTURE_TEST(test_busy_is_asked_again),
        FIXTURE_TEST(test_busy_until_the_deadline),
        FIXTURE_TEST(test_a_pause_in_steps),
        FIXTURE_TEST(test_a_greeting_in_steps),
        FIXTURE_TEST(test_giving_up_during_the_greeting),
        FIXTURE_TEST(test_a_greeting_ends_by_its_deadline),
        FIXTURE_TEST(test_no_room_for_a_connection_in_steps),
        FIXTURE_TEST(test_a_full_queue_in_steps),
        FIXTURE_TEST(test_a_start_in_steps),
        FIXTURE_TEST(test_a_cancelled_call_leaves_nothing),
        FIXTURE_TEST(test_other_waiting_requests_end_with_their_connection),
        FIXTURE_TEST(test_a_handle_is_closed_while_it_waits),
        FIXTURE_TEST(test_another_thread_waits_for_the_end),
        FIXTURE_TEST(test_a_child_of_fork_begins_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
