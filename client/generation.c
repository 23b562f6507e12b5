/* SPDX-License-Identifier: Apache-2.0 */
/* The newest generation and the handle's pin (gemmd_generation), and notifications of newer answers
 * (gemmd_improvements). */
#include <stdlib.h>
#include <string.h>

#include "client/answer.h"
#include "client/clock.h"
#include "client/handle.h"

struct generations {
    struct gemmd *g;
    int64_t *newest, *pinned; /* may be NULL */
};

static int generation_read_hello(void *ctx, const struct wire_obj *result, struct error *err)
{
    const struct generations *out = ctx;
    if (out->newest && !wire_get_int(wire_find(result, "generation"), out->newest)) {
        return error_set(err, ERROR_MALFORMED, "gemmd's `hello` has no generation");
    }
    if (out->pinned) {
        const struct session *s = &out->g->session;
        *out->pinned = s->wants_generation && !s->at_number ? s->generation : -1;
    }
    return 0;
}

int gemmd_generation(struct gemmd *g, int64_t *newest, int64_t *pinned, struct gemmd_error *err)
{
    struct error e;
    struct generations out = {g, newest, pinned};
    int r = handle_call(g, "hello", NULL, 0, generation_read_hello, &out, &e);
    return handle_result(r, &e, err);
}

/* ---- improvements --------------------------------------------------------------------------- */

struct hearing {
    void (*improved)(void *ctx, const char *problem_json, const struct gemmd_answer *answer);
    void *ctx;
    int n; /* notifications so far */
};

static int generation_subscribe(struct session *s, struct error *err)
{
    struct session_request q = {.method = "subscribe", .deadline = clock_after_ms(s->default_ms)};
    int r = session_connect(s, q.deadline, err);
    if (r == 0 && !s->subscribed) {
        r = session_call(s, &q, err);
        s->subscribed = r == 0;
    }
    return r;
}

/* Skips an unreadable notification, perhaps from a newer gemmd. */
static void generation_read_news(struct hearing *h, const struct wire_obj *params)
{
    struct gemmd_answer answer;
    struct error ignored;
    char *problem = NULL;
    if (answer_unpack(wire_find(params, "answer"), &answer, &ignored) == 0 &&
        wire_to_json(wire_find(params, "problem"), &problem, &ignored) == 0) {
        h->improved(h->ctx, problem, &answer);
    }
    free(problem);
    h->n++;
}

/* Waits for the first `improved` notifications, or until the deadline. */
static int generation_await_news(struct session *s, int64_t deadline, struct hearing *h,
                                 struct error *err)
{
    enum { AT_ONCE = 256 };
    unsigned taken = 0;
    int r = generation_subscribe(s, err);
    while (r == 0) {
        struct pull packed;
        struct rpc_message m;
        r = link_recv_packed(&s->link, &packed, h->n > 0 ? clock_ns() : deadline, err);
        r = r ? r : link_decode(&s->link, s->doc, &packed, &m, err);
        if (r == 0 && m.type == RPC_NOTIFY && strcmp(m.method, "improved") == 0) {
            generation_read_news(h, m.params);
        }
        /* ends the call also when messages come faster than they are read */
        if (r == 0 && ++taken >= AT_ONCE && clock_ns() >= deadline) {
            r = CLOCK_PASSED;
        }
    }
    return r == CLOCK_PASSED ? 0 : r;
}

int gemmd_improvements(struct gemmd *g, int timeout_ms,
                       void (*improved)(void *ctx, const char *problem_json,
                                        const struct gemmd_answer *answer),
                       void *ctx, int *n, struct gemmd_error *err)
{
    struct error e;
    struct hearing h = {improved, ctx, 0};
    int64_t deadline = clock_after_ms(timeout_ms > 0 ? timeout_ms : 0);
    int r =
        !improved || timeout_ms < 0
            ? error_set(&e, ERROR_INVALID, "improvements need a function, and a timeout_ms from 0")
            : handle_enter(g, handle_deadline(g, 0, false), &e);
    if (r == 0) {
        r = generation_await_news(&g->session, deadline, &h, &e);
        handle_leave(g);
    }
    if (n) {
        *n = h.n;
    }
    return handle_result(r, &e, err);
}
