/* SPDX-License-Identifier: Apache-2.0 */
/* Why an answer is what it is: one method, its result handed on as JSON. */
#include "client/ask.h"
#include "client/clock.h"
#include "client/handle.h"

static int why_pack_params(struct wire_buf *b, const struct ask *a, struct error *err)
{
    const struct gemmd_query *q = &a->query;
    wire_put_map(b, 1 + (q->target != NULL) + (q->atol > 0) + (q->rtol > 0));
    wire_put_str(b, "problem");
    int r = ask_pack_problem(b, &a->problem, err);
    if (q->target) {
        wire_put_kv_str(b, "target", q->target);
    }
    if (q->atol > 0) {
        wire_put_kv_real(b, "atol", q->atol);
    }
    if (q->rtol > 0) {
        wire_put_kv_real(b, "rtol", q->rtol);
    }
    return r;
}

static int why_take_result(void *json, const struct wire_obj *result, struct error *err)
{
    return wire_to_json(result, json, err);
}

int gemmd_why(struct gemmd *g, const struct gemmd_problem *problem, const struct gemmd_query *query,
              char **result_json, struct gemmd_error *err)
{
    struct ask a;
    struct error e;
    WIRE_BUF_AUTO params = WIRE_BUF_NULL;
    int r = g ? 0 : handle_enter(NULL, 0, &e);
    if (r == 0 && !result_json) {
        r = error_set(&e, ERROR_INVALID, "result_json may not be NULL");
    }
    if (r == 0) {
        *result_json = NULL;
    }
    r = r ? r : ask_problem(&a, problem, &e);
    r = r ? r : ask_query(&a, query, &e);
    r = r ? r : why_pack_params(&params, &a, &e);
    if (r == 0) {
        const struct session_request q = {.method = "why",
                                          .params = &params,
                                          .deadline =
                                              handle_deadline(g, a.query.deadline_ms, false),
                                          .repeatable = true};
        r = handle_call(g, &q, why_take_result, result_json, &e);
    }
    return handle_result(r, &e, err);
}
