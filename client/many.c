/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many asks at once, as a job has them at its start: what the table knows is answered from it, the
 * rest goes out in chunks that keep within the protocol's limits.
 *
 * The caller's arrays were laid out by the gemmd.h that it was compiled with, so elements are found
 * by the size that the first of them states.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/answer.h"
#include "client/clock.h"
#include "client/get.h"
#include "client/model.h"

enum { CHUNK_BYTES_MAX = REQUEST_BYTES_MAX - 4 * 1024 };

struct many {
    struct gemmd *g;
    const char *problems; /* the caller's */
    size_t n, problem_size;
    char *answers; /* the caller's */
    size_t answer_size;
    int *statuses; /* the caller's; MANY_OPEN: not answered yet */
    struct gemmd_query query;
    int64_t deadline;
};

enum { MANY_OPEN = 1 };

static const struct gemmd_problem *problem_at(const struct many *m, size_t i)
{
    return (const struct gemmd_problem *)(const void *)(m->problems + i * m->problem_size);
}

static struct gemmd_answer *answer_at(const struct many *m, size_t i)
{
    return (struct gemmd_answer *)(void *)(m->answers + i * m->answer_size);
}

static void fail_one(struct many *m, size_t i, const struct error *why)
{
    struct gemmd_answer none = answer_none();
    snprintf(none.note, sizeof(none.note), "%.159s", why->text);
    answer_give(&none, answer_at(m, i));
    m->statuses[i] = why->code;
}

/* By the model where that is allowed, else the fault is its status. */
static void settle(struct many *m, size_t i, const struct ask *a, const struct error *why)
{
    struct error e;
    if (!get_may_fall_back(m->g, &m->query) || !get_is_reason(why->code)) {
        fail_one(m, i, why);
    } else if (get_fall_back(m->g, a, why, answer_at(m, i), &e) == 0) {
        m->statuses[i] = 0;
    } else {
        fail_one(m, i, &e);
    }
}

/* ---- what needs no daemon ------------------------------------------------------------------- */

static int read_ask(const struct many *m, size_t i, struct ask *a, struct error *err)
{
    a->query = m->query;
    if (problem_at(m, i)->size != m->problem_size || answer_at(m, i)->size != m->answer_size) {
        return error_set(err, ERROR_INVALID,
                         "element %zu has another size than the first: give each "
                         "its _INIT macro",
                         i);
    }
    return ask_problem(a, problem_at(m, i), err);
}

static void answer_known(struct many *m)
{
    for (size_t i = 0; i < m->n; i++) {
        struct ask a;
        struct error e;
        m->statuses[i] = MANY_OPEN;
        if (read_ask(m, i, &a, &e)) {
            answer_at(m, i)->size = m->answer_size;
            fail_one(m, i, &e);
        } else if (get_from_table(m->g, &a, answer_at(m, i))) {
            m->statuses[i] = 0;
        }
    }
}

/* ---- chunks --------------------------------------------------------------------------------- */

struct chunk {
    size_t n;
    size_t index[MANY_MAX]; /* of its problems in the caller's array */
    struct wire_buf problems, params;
    struct session_request request;
    struct session_sent sent;
};

static void chunk_add(struct many *m, struct chunk *c, size_t i)
{
    struct ask a;
    struct error e;
    size_t before = c->problems.len;
    int r = read_ask(m, i, &a, &e);
    r = r ? r : ask_pack_problem(&c->problems, &a.problem, &e);
    if (r == 0 && c->problems.len - before > CHUNK_BYTES_MAX) {
        r = error_set(&e, ERROR_INVALID, "the problem has %zu bytes: at most %d are possible",
                      c->problems.len - before, CHUNK_BYTES_MAX);
    }
    if (r) {
        c->problems.len = before;
        fail_one(m, i, &e);
    } else if (c->problems.len > CHUNK_BYTES_MAX) {
        c->problems.len = before; /* the next chunk's */
    } else {
        c->index[c->n++] = i;
    }
}

/* The next open problems, from *at on. */
static void chunk_fill(struct many *m, struct chunk *c, size_t *at)
{
    c->n = 0;
    wire_buf_clear(&c->problems);
    for (; *at < m->n && c->n < MANY_MAX; (*at)++) {
        size_t before = c->n;
        if (m->statuses[*at] == MANY_OPEN) {
            chunk_add(m, c, *at);
            if (c->n == before && m->statuses[*at] == MANY_OPEN) {
                return; /* full */
            }
        }
    }
}

static void take_one(struct many *m, size_t i, const struct wire_obj *o)
{
    struct ask a;
    struct gemmd_answer answer;
    struct error e;
    bool is_fault = !wire_find(o, "tier") && wire_find(o, "name");
    int r = read_ask(m, i, &a, &e);
    r = r ? r : is_fault ? rpc_get_error(o, &e) : answer_unpack(o, &answer, &e);
    if (r) {
        settle(m, i, &a, &e);
        return;
    }
    get_keep(m->g, &a, &answer);
    answer_give(&answer, answer_at(m, i));
    m->statuses[i] = 0;
}

static int take_answers(struct many *m, const struct chunk *c, const struct wire_obj *result,
                        struct error *err)
{
    const struct wire_obj *list = wire_find(result, "answers");
    if (wire_type_of(list) != WIRE_ARRAY || wire_count(list) != c->n) {
        return error_set(err, ERROR_MALFORMED, "gemmd gave %zu answers to %zu problems",
                         wire_count(list), c->n);
    }
    for (size_t i = 0; i < c->n; i++) {
        take_one(m, c->index[i], wire_at(list, i));
    }
    return 0;
}

static int pack(const struct many *m, struct chunk *c, struct error *err)
{
    struct wire_buf *b = &c->params;
    wire_buf_clear(b);
    wire_put_map(b, m->query.target ? 3 : 2);
    if (m->query.target) {
        wire_put_kv_str(b, "target", m->query.target);
    }
    wire_put_kv_str(b, "wait", m->query.wait == GEMMD_WAIT_CACHED ? "cached" : "now");
    wire_put_str(b, "problems");
    wire_put_array(b, c->n);
    wire_put_raw(b, c->problems.data, c->problems.len);
    return b->failed || c->problems.failed
               ? error_set(err, ERROR_NO_MEMORY, "no memory for a request")
               : 0;
}

/* Fills it with the next problems, from *at on, and sends them; n 0: there are none. */
static int chunk_start(struct many *m, struct chunk *c, size_t *at, struct error *err)
{
    do {
        chunk_fill(m, c, at);
    } while (c->n == 0 && *at < m->n);
    if (c->n == 0) {
        return 0;
    }
    int r = get_may_ask(m->g, &m->query, err);
    r = r ? r : pack(m, c, err);
    if (r == 0) {
        c->request = (struct session_request){.method = "get_many",
                                              .params = &c->params,
                                              .deadline = m->deadline,
                                              .repeatable = true};
        session_start(&m->g->session, &c->request, &c->sent);
    }
    return r;
}

/* The daemon works on a chunk while the answers to the one before are taken. */
static int ask_chunks(struct many *m, struct chunk chunks[2], struct error *err)
{
    size_t at = 0;
    int r = chunk_start(m, &chunks[0], &at, err);
    for (int i = 0; r == 0 && chunks[i].n > 0; i = !i) {
        struct chunk *c = &chunks[i], *next = &chunks[!i];
        const struct wire_obj *result;
        struct error e;
        r = session_finish(&m->g->session, &c->request, &c->sent, &result, err);
        if (r == 0) {
            int started = chunk_start(m, next, &at, &e);
            r = take_answers(m, c, result, err);
            *err = r == 0 && started ? e : *err;
            r = r ? r : started;
        }
    }
    return r;
}

static int ask_rest(struct many *m, struct error *err)
{
    struct chunk *chunks = calloc(2, sizeof(*chunks));
    if (!chunks) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a request");
    }
    int r = ask_chunks(m, chunks, err);
    for (int i = 0; i < 2; i++) {
        wire_buf_deinit(&chunks[i].problems);
        wire_buf_deinit(&chunks[i].params);
    }
    free(chunks);
    return r;
}

/* Faults of the call as a whole fall on what is still open. */
static int settle_rest(struct many *m, const struct error *why)
{
    bool all_good = true;
    for (size_t i = 0; i < m->n; i++) {
        struct ask a;
        struct error e;
        if (m->statuses[i] == MANY_OPEN && read_ask(m, i, &a, &e) == 0) {
            settle(m, i, &a, why);
            all_good = all_good && m->statuses[i] == 0;
        }
    }
    return all_good ? 0 : why->code;
}

static int run(struct many *m, struct error *err)
{
    answer_known(m);
    bool open = false;
    for (size_t i = 0; i < m->n; i++) {
        open = open || m->statuses[i] == MANY_OPEN;
    }
    if (!open) {
        return 0;
    }
    struct error e;
    int r = handle_enter(m->g, m->deadline, &e);
    if (r == 0) {
        r = ask_rest(m, &e);
        handle_leave(m->g);
    }
    if (r) {
        r = settle_rest(m, &e);
        *err = e;
    }
    return r;
}

static int check(struct many *m, struct error *err)
{
    if (!m->g) {
        return handle_enter(NULL, 0, err);
    }
    if (m->n > 0 && (!m->problems || !m->answers || !m->statuses)) {
        return error_set(err, ERROR_INVALID, "problems, answers and statuses may not be NULL");
    }
    return m->n > 0 ? answer_check_size(answer_at(m, 0), err) : 0;
}

int gemmd_get_many(struct gemmd *g, const struct gemmd_problem *problems, size_t n,
                   const struct gemmd_query *query, struct gemmd_answer *answers, int *statuses,
                   struct gemmd_error *err)
{
    struct error e;
    struct ask a;
    struct many m = {.g = g,
                     .problems = (const char *)problems,
                     .n = n,
                     .answers = (char *)answers,
                     .statuses = statuses};
    int r = check(&m, &e);
    r = r || n == 0 ? r : ask_problem(&a, problems, &e);
    r = r ? r : ask_query(&a, query, &e);
    if (r == 0 && n > 0) {
        m.problem_size = problems->size;
        m.answer_size = answers->size;
        m.query = a.query;
        m.deadline = handle_deadline(g, a.query.deadline_ms, false);
        r = run(&m, &e);
    }
    return handle_result(r, &e, err);
}
