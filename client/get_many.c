/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemmd_get_many: many problems at once, as at the start of a job. The table answers known
 * problems; the other problems are sent in chunks that keep within the protocol's limits.
 *
 * The caller was compiled with any release's gemmd.h, so the array elements have the size that the
 * first element states.
 */
#include <stdio.h>
#include <stdlib.h>

#include "client/answer.h"
#include "client/clock.h"
#include "client/handle.h"

enum { CHUNK_BYTES_MAX = REQUEST_BYTES_MAX - 4 * 1024 };

struct get_many {
    struct gemmd *g;
    const char *problems; /* the caller's */
    size_t n, problem_size;
    char *answers; /* the caller's */
    size_t answer_size;
    int *statuses; /* the caller's */
    struct gemmd_query query;
    int64_t deadline;
    bool unreached; /* no connection to the daemon could be made */
    size_t at;      /* index of the next problem to look up in the table */
    size_t kept;    /* number of answers that this call put into the table */
    struct answer_order order;
};

/* A problem's status while neither the table nor the daemon has answered it. */
enum { MANY_OPEN = 1 };

static const struct gemmd_problem *problem_at(const struct get_many *m, size_t i)
{
    return (const struct gemmd_problem *)(const void *)(m->problems + i * m->problem_size);
}

static struct gemmd_answer *answer_at(const struct get_many *m, size_t i)
{
    return (struct gemmd_answer *)(void *)(m->answers + i * m->answer_size);
}

static void fail_one(struct get_many *m, size_t i, const struct error *why)
{
    struct gemmd_answer none = answer_none();
    snprintf(none.note, sizeof(none.note), "%.159s", why->text);
    answer_give(&none, answer_at(m, i));
    m->statuses[i] = why->code;
}

/* Gives problem i the analytic default when the caller allows that; otherwise the fault `why` as
 * its status. */
static void get_many_settle_ask(struct get_many *m, size_t i, const struct ask *a,
                                const struct error *why)
{
    struct error e = *why;
    m->statuses[i] = get_or_default(m->g, a, m->unreached, answer_at(m, i), &e);
    if (m->statuses[i]) {
        fail_one(m, i, &e);
    }
}

/* ---- without a daemon ----------------------------------------------------------------------- */

static int get_many_read_ask(const struct get_many *m, size_t i, struct ask *a, struct error *err)
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

/* Looks a problem with status MANY_OPEN up in the table. The status becomes final (an answer, or an
 * error), or stays MANY_OPEN with *a filled in. */
static void get_many_look_up(struct get_many *m, size_t i, struct ask *a)
{
    struct error e;
    if (get_many_read_ask(m, i, a, &e)) {
        answer_at(m, i)->size = m->answer_size;
        fail_one(m, i, &e);
    } else if (get_look_up(m->g, &a->problem, &m->query, answer_at(m, i))) {
        m->statuses[i] = 0;
    } else if (m->g->joblock) {
        m->statuses[i] = get_locked(m->g, a, answer_at(m, i), &e);
        if (m->statuses[i]) {
            fail_one(m, i, &e);
        }
    }
}

/* ---- chunks --------------------------------------------------------------------------------- */

struct chunk {
    size_t n;
    size_t index[MANY_MAX]; /* the caller's index of each problem of the chunk */
    struct wire_buf problems, params;
    struct session_request request;
};

/* Adds the caller's problem i to the chunk, a request for some of the problems. False: the chunk is
 * full. */
static bool chunk_add(struct get_many *m, struct chunk *c, size_t i, const struct ask *a)
{
    struct error e;
    size_t before = c->problems.len;
    int r = ask_pack_problem(&c->problems, &a->problem, &e);
    if (r == 0 && c->problems.len - before > CHUNK_BYTES_MAX) {
        r = error_set(&e, ERROR_INVALID, "the problem has %zu bytes: at most %d are possible",
                      c->problems.len - before, CHUNK_BYTES_MAX);
    }
    if (r) {
        c->problems.len = before;
        fail_one(m, i, &e);
    } else if (c->problems.len > CHUNK_BYTES_MAX) {
        c->problems.len = before;
        return false;
    } else {
        c->index[c->n++] = i;
    }
    return true;
}

/* Fills the chunk with the next problems that the table lacks. */
static void chunk_fill(struct get_many *m, struct chunk *c)
{
    c->n = 0;
    wire_buf_clear(&c->problems);
    for (; m->at < m->n && c->n < MANY_MAX; m->at++) {
        struct ask a;
        get_many_look_up(m, m->at, &a);
        if (m->statuses[m->at] == MANY_OPEN && !chunk_add(m, c, m->at, &a)) {
            return;
        }
    }
}

/* Reads the next answer, to problem i: directly into the caller's struct when that has the size of
 * this library's struct. */
static void take_one(struct get_many *m, size_t i, struct pull *p)
{
    struct gemmd_answer own, *to = m->answer_size == sizeof(own) ? answer_at(m, i) : &own;
    struct error e;
    if (to == &own) {
        own = answer_none();
    }
    if (answer_read(p, m->g->session.doc, to, &m->order, &e)) {
        struct ask a;
        struct error ignored;
        get_many_read_ask(m, i, &a, &ignored); /* cannot fail: it succeeded for the request */
        get_many_settle_ask(m, i, &a, &e);
        return;
    }
    if (m->kept < TABLE_MAX) { /* else the table is full of answers of this call */
        m->kept += get_keep(m->g, &m->query, problem_at(m, i), to);
    }
    if (to == &own) {
        answer_give(to, answer_at(m, i));
    }
    m->statuses[i] = 0;
}

static int take_answers(struct get_many *m, const struct chunk *c, struct error *err)
{
    struct pull p = c->request.result;
    size_t n = 0;
    if (!pull_find(&p, "answers") || !pull_array(&p, &n) || n != c->n) {
        return error_set(err, ERROR_MALFORMED, "gemmd gave %zu answers to %zu problems", n, c->n);
    }
    for (size_t i = 0; i < c->n; i++) {
        take_one(m, c->index[i], &p);
    }
    return 0;
}

static int chunk_send(struct get_many *m, struct chunk *c, struct error *err)
{
    struct wire_buf *b = &c->params;
    int r = get_may_ask(m->g, &m->query, err);
    if (r) {
        return r;
    }
    wire_buf_clear(b);
    wire_put_map(b, m->query.target ? 3 : 2);
    if (m->query.target) {
        wire_put_kv_str(b, "target", m->query.target);
    }
    wire_put_kv_str(
        b, "wait",
        ask_wait_name(m->query.wait == GEMMD_WAIT_TUNED ? GEMMD_WAIT_NOW : m->query.wait));
    wire_put_str(b, "problems");
    wire_put_array(b, c->n);
    wire_put_raw(b, c->problems.data, c->problems.len);
    b->failed = b->failed || c->problems.failed; /* session_start checks */
    c->request =
        (struct session_request){.method = "get_many", .params = b, .deadline = m->deadline};
    session_start(&m->g->session, &c->request);
    return 0;
}

/* ---- the way of chunks ---------------------------------------------------------------------- */

/* Sends all chunks: the daemon works on a chunk while this thread reads the answers of the chunk
 * before. both[0] is the first chunk, already filled. */
static int ask_chunks(struct get_many *m, struct chunk both[2], struct error *err)
{
    struct chunk *c = &both[0], *next = &both[1];
    int r = chunk_send(m, c, err);
    while (r == 0 && c->n > 0) {
        struct error e;
        chunk_fill(m, next);
        r = session_finish(&m->g->session, &c->request, err);
        m->unreached = c->request.unreached;
        if (r == 0) {
            int sent = next->n > 0 ? chunk_send(m, next, &e) : 0;
            r = take_answers(m, c, err);
            *err = r == 0 && sent ? e : *err;
            r = r ? r : sent;
        }
        struct chunk *taken = c;
        c = next;
        next = taken;
    }
    return r;
}

/* Asks the daemon for the answers that the table lacks. Enters the handle only when the table lacks
 * an answer. */
static int get_many_ask_daemon(struct get_many *m, struct error *err)
{
    struct chunk *both = calloc(2, sizeof(*both));
    if (!both) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a request");
    }
    chunk_fill(m, &both[0]);
    int r = both[0].n > 0 ? handle_enter(m->g, m->deadline, err) : 0;
    if (r == 0 && both[0].n > 0) {
        r = ask_chunks(m, both, err);
        handle_leave(m->g);
    }
    for (int i = 0; i < 2; i++) {
        wire_buf_deinit(&both[i].problems);
        wire_buf_deinit(&both[i].params);
    }
    free(both);
    return r;
}

/* Gives a fault of the whole call (no daemon, a deadline) to every problem with status MANY_OPEN,
 * or the analytic default. Returns 0 when every one of these has an answer. */
static int settle_rest(struct get_many *m, const struct error *why)
{
    bool all_good = true;
    for (size_t i = 0; i < m->n; i++) {
        struct ask a;
        if (m->statuses[i] == MANY_OPEN) {
            get_many_look_up(m, i, &a);
        }
        if (m->statuses[i] == MANY_OPEN) {
            get_many_settle_ask(m, i, &a, why);
            all_good = all_good && m->statuses[i] == 0;
        }
    }
    return all_good ? 0 : why->code;
}

static int get_many_check_pointers(const struct get_many *m, struct error *err)
{
    if (!m->g) {
        return handle_enter(NULL, 0, err);
    }
    return m->n == 0 || (m->problems && m->answers && m->statuses)
               ? 0
               : error_set(err, ERROR_INVALID, "problems, answers and statuses may not be NULL");
}

/* Reads the element sizes from the first problem and the first answer. Other faults of the first
 * problem concern only that problem, and are reported later. */
static int find_sizes(struct get_many *m, struct error *err)
{
    const struct gemmd_problem *problem = problem_at(m, 0);
    int r = answer_check_size(answer_at(m, 0), err);
    if (r == 0) {
        m->answer_size = answer_at(m, 0)->size;
        r = ask_check_size(problem->size, ASK_PROBLEM_SIZE_MIN, "problem", err);
    }
    m->problem_size = r ? 0 : problem->size;
    return r;
}

/* Gives every problem the fault as status, and as note when the size of an answer is known. */
static void fail_all(struct get_many *m, const struct error *why)
{
    for (size_t i = 0; i < m->n; i++) {
        m->statuses[i] = why->code;
        if (m->answer_size) {
            answer_at(m, i)->size = m->answer_size;
            fail_one(m, i, why);
        }
    }
}

int gemmd_get_many(struct gemmd *g, const struct gemmd_problem *problems, size_t n,
                   const struct gemmd_query *query, struct gemmd_answer *answers, int *statuses,
                   struct gemmd_error *err)
{
    struct ask a = {.query = GEMMD_QUERY_INIT};
    struct error e;
    struct get_many m = {.g = g,
                         .problems = (const char *)problems,
                         .n = n,
                         .answers = (char *)answers,
                         .statuses = statuses};
    answer_order_init(&m.order);
    int r = get_many_check_pointers(&m, &e);
    if (r) {
        return handle_result(r, &e, err);
    }
    r = n > 0 ? find_sizes(&m, &e) : 0;
    r = r ? r : ask_query(&a, query, &e);
    r = r ? r : ask_check_bare(&a.query, &e);
    m.query = a.query;
    m.deadline = handle_deadline(g, a.query.deadline_ms, false);
    if (r) {
        fail_all(&m, &e);
    } else if (n > 0) {
        for (size_t i = 0; i < n; i++) {
            statuses[i] = MANY_OPEN;
        }
        r = get_many_ask_daemon(&m, &e) ? settle_rest(&m, &e) : 0;
    }
    return handle_result(r, &e, err);
}
