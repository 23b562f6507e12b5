/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/client/fixture.h"

/* The fake is the first member, so *state points to the fixture and to its fake. */
struct fixture {
    struct fake fake;
    struct gemmd *g; /* owned: by fixture_open */
};

struct script script;

/* ---- answers by the script ------------------------------------------------------------------ */

static void remember(struct script *s, const struct rpc_message *m)
{
    struct error e;
    free(s->seen);
    s->seen = NULL;
    assert_int_equal(wire_to_json(m->params, &s->seen, &e), 0);
}

/* Gives each problem an answer whose generation is the problem's M; refuses M = 13. */
static void answer_many(struct script *s, int fd, const struct rpc_message *m)
{
    const struct wire_obj *problems = wire_find(m->params, "problems");
    size_t n = wire_count(problems);
    s->sizes[s->n_sizes++] = (int)n;
    struct wire_buf b = WIRE_BUF_NULL;
    rpc_put_result(&b, m->id);
    wire_put_map(&b, 1);
    wire_put_str(&b, "answers");
    wire_put_array(&b, n);
    for (size_t i = 0; i < n; i++) {
        int64_t rows = 0;
        wire_get_int(wire_find(wire_at(problems, i), "M"), &rows);
        struct fake_answer a = s->answer;
        a.generation = rows;
        if (rows == 13) {
            wire_put_map(&b, 3);
            wire_put_kv_str(&b, "name", "conflict");
            wire_put_kv_str(&b, "message", "thirteen");
            wire_put_kv_bool(&b, "survives", true);
        } else {
            fake_put_answer(&b, &a);
        }
    }
    fake_send(fd, &b);
}

void script_answer(struct fake *f, int fd, const struct rpc_message *m)
{
    struct script *s = f->ctx;
    remember(s, m);
    fake_sleep_ms(s->delay_ms);
    if (strcmp(m->method, "get_many") == 0) {
        answer_many(s, fd, m);
    } else {
        fake_answer(fd, m->id, &s->answer);
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

int fixture_setup(void **state)
{
    struct fixture *x = calloc(1, sizeof(*x));
    assert_non_null(x);
    fake_path(x->fake.path);
    script = (struct script){.answer = {.tier = "exact", .source = "tuned", .generation = 5}};
    x->fake.ctx = &script;
    x->fake.handler = script_answer;
    *state = x;
    return 0;
}

int fixture_teardown(void **state)
{
    struct fixture *x = *state;
    if (x->g) {
        gemmd_close(x->g);
        fake_stop(&x->fake);
    }
    fake_path_remove(x->fake.path);
    free(x);
    free(script.seen);
    return 0;
}

struct gemmd *fixture_open(struct fake *f, int deadline_ms)
{
    fake_start(f);
    return ((struct fixture *)(void *)f)->g = fixture_connect(f, deadline_ms);
}

struct gemmd_options options_for(const struct fake *f, int deadline_ms)
{
    struct gemmd_options o = GEMMD_OPTIONS_INIT;
    o.socket = f->path;
    o.device = "cpu";
    o.deadline_ms = deadline_ms;
    return o;
}

struct gemmd *fixture_connect(const struct fake *f, int deadline_ms)
{
    struct gemmd_options o = options_for(f, deadline_ms);
    struct gemmd_error e;
    struct gemmd *g = NULL;
    if (gemmd_connect(&g, &o, &e)) {
        fail_msg("%s", e.text);
    }
    return g;
}

struct gemmd *fixture_open_lazy(const struct fake *f)
{
    struct gemmd_options o = options_for(f, 0);
    struct gemmd_error e;
    struct gemmd *g = NULL;
    if (gemmd_open_lazy(&g, &o, &e)) {
        fail_msg("%s", e.text);
    }
    return g;
}

/* ---- asking ---------------------------------------------------------------------------------- */

struct gemmd_problem small_problem(void)
{
    struct gemmd_problem p = GEMMD_PROBLEM_INIT;
    p.m = 64;
    p.n = 128;
    p.k = 256;
    return p;
}

int call(struct gemmd *g, const char *method, int deadline_ms, struct gemmd_error *e)
{
    char *json = NULL;
    int r = gemmd_call(g, method, NULL, deadline_ms, &json, NULL, NULL, e);
    gemmd_free(json);
    return r;
}

void assert_late(const struct gemmd_error *e, const char *method, int given_ms)
{
    char of[32] = "";
    int ms = -1;
    if (sscanf(e->text, "gemmd did not answer `%31[a-z]` within %d ms", of, &ms) != 2 ||
        strcmp(of, method) != 0 || ms < 0 || ms > given_ms) {
        fail_msg("\"%s\" names no time of at most %d ms", e->text, given_ms);
    }
}

void check_default(const struct gemmd_answer *a)
{
    assert_string_equal(a->tier, "default");
    assert_string_equal(a->source, "model");
    assert_string_equal(a->family, "grouped_gemm");
    assert_true(a->local);
    assert_non_null(strstr(a->config, "BLOCK_SIZE_M="));
    assert_true(isnan(a->time_us));
    assert_string_equal(a->module, "");
    assert_non_null(strstr(a->note, "analytic default"));
}

/* ---- handlers -------------------------------------------------------------------------------- */

void answer_seven(struct fake *f, int fd, const struct rpc_message *m)
{
    (void)f;
    fake_result_int(fd, m->id, "seven", 7);
}

void say_nothing(struct fake *f, int fd, const struct rpc_message *m)
{
    (void)f;
    (void)fd;
    (void)m;
}
