/* SPDX-License-Identifier: Apache-2.0 */
/* Generations of the database: which one a handle is pinned to, and hearing of newer answers. */
#include <stdlib.h>

#include "client/answer.h"
#include "client/clock.h"
#include "client/handle.h"

static int generation_ask_daemon(struct gemmd *g, int64_t *newest, int64_t *pinned,
                                 struct error *err)
{
    int64_t deadline = handle_deadline(g, 0, false);
    const struct session_request q = {.method = "hello", .deadline = deadline, .repeatable = true};
    const struct wire_obj *result;
    int r = handle_enter(g, deadline, err);
    if (r) {
        return r;
    }
    r = session_call(&g->session, &q, &result, err);
    if (r == 0 && newest && !wire_get_int(wire_find(result, "generation"), newest)) {
        r = error_set(err, ERROR_MALFORMED, "gemmd's `hello` has no generation");
    }
    if (r == 0 && pinned) {
        *pinned = g->session.wants_generation ? g->session.generation : -1;
    }
    handle_leave(g);
    return r;
}

int gemmd_generation(struct gemmd *g, int64_t *newest, int64_t *pinned, struct gemmd_error *err)
{
    struct error e;
    int r = generation_ask_daemon(g, newest, pinned, &e);
    return handle_result(r, &e, err);
}

/* ---- improvements --------------------------------------------------------------------------- */

struct hearing {
    void (*improved)(void *ctx, const char *problem_json, const struct gemmd_answer *answer);
    void *ctx;
};

/* What cannot be read, of a newer gemmd perhaps, is no reason not to hear the rest. */
static void generation_read_news(void *ctx, const struct wire_obj *params)
{
    const struct hearing *h = ctx;
    struct gemmd_answer answer;
    struct error ignored;
    char *problem = NULL;
    if (answer_unpack(wire_find(params, "answer"), &answer, &ignored) == 0 &&
        wire_to_json(wire_find(params, "problem"), &problem, &ignored) == 0) {
        h->improved(h->ctx, problem, &answer);
    }
    free(problem);
}

int gemmd_improvements(struct gemmd *g, int timeout_ms,
                       void (*improved)(void *ctx, const char *problem_json,
                                        const struct gemmd_answer *answer),
                       void *ctx, int *n, struct gemmd_error *err)
{
    struct error e;
    struct hearing h = {improved, ctx};
    int heard = 0;
    int64_t deadline = clock_after_ms(timeout_ms > 0 ? timeout_ms : 0);
    int r =
        !improved || timeout_ms < 0
            ? error_set(&e, ERROR_INVALID, "improvements need a function, and a timeout_ms from 0")
            : handle_enter(g, clock_after_ms(g ? g->session.default_ms : 0), &e);
    if (r == 0) {
        r = session_await_news(&g->session, deadline, generation_read_news, &h, &heard, &e);
        handle_leave(g);
    }
    if (n) {
        *n = heard;
    }
    return handle_result(r, &e, err);
}
