/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the caller's own: acquire, put, record, release. A lease ends with its connection.
 * After a lost connection the caller calls gemmd_acquire again, and learns whether another
 * connection has taken the lease. */
#include <stdio.h>
#include <string.h>

#include "client/answer.h"
#include "client/clock.h"
#include "client/handle.h"

static int lease_read_options(const struct gemmd_acquire *given, struct gemmd_acquire *out,
                              struct error *err)
{
    *out = (struct gemmd_acquire)GEMMD_ACQUIRE_INIT;
    if (!given) {
        return 0;
    }
    int r = ask_read_struct(out, sizeof(*out), given, given->size,
                            offsetof(struct gemmd_acquire, now), "acquire", err);
    if (r == 0 && out->deadline_ms < 0) {
        r = error_set(err, ERROR_INVALID, "deadline_ms is %d: use 0 (as long as it takes) or more",
                      out->deadline_ms);
    }
    return r;
}

static int lease_put_json(struct wire_buf *b, const char *name, const char *json, struct error *err)
{
    wire_put_str(b, name);
    int r = wire_from_json(b, json, err);
    return r ? error_prefix(err, "%s", name) : 0;
}

static int pack_acquire(void *ctx, struct error *err)
{
    struct gemmd *g = ctx;
    struct wire_buf *b = &g->steps.params;
    const struct gemmd_acquire *o = &g->steps.acquire;
    wire_buf_clear(b);
    wire_put_map(b, 4 + (o->configs_json != NULL));
    wire_put_str(b, "problem");
    int r = ask_pack_problem(b, &g->steps.ask.problem, err);
    wire_put_kv_int(b, "deadline_ms", get_told_ms(o->deadline_ms, g->steps.request.deadline));
    wire_put_kv_int(b, "lease_ms", o->lease_ms);
    wire_put_kv_str(b, "wait", o->now ? "now" : "tuned");
    return r || !o->configs_json ? r : lease_put_json(b, "configs", o->configs_json, err);
}

static int unpack_outcome(const struct wire_obj *result, enum gemmd_outcome *out, struct error *err)
{
    static const char *const names[] = {"hit", "lease", "held"};
    const struct wire_obj *word = wire_find(result, "outcome");
    for (int i = 0; i < 3; i++) {
        if (wire_is_str(word, names[i])) {
            *out = (enum gemmd_outcome)i;
            return 0;
        }
    }
    return error_set(err, ERROR_MALFORMED, "gemmd answered `acquire` with an unknown outcome");
}

/* *json: the recorded results of the caller's configs as a JSON array, empty when gemmd sent none.
 */
static int lease_unpack_known(const struct wire_obj *known, char **json, struct error *err)
{
    if (wire_type_of(known) == WIRE_ARRAY) {
        return wire_to_json(known, json, err);
    }
    *json = strdup("[]");
    return *json ? 0 : error_set(err, ERROR_NO_MEMORY, "no memory for an answer");
}

static int unpack_acquired(const struct wire_obj *result, enum gemmd_outcome *outcome,
                           struct gemmd_answer *answer, char **known_json, struct error *err)
{
    struct gemmd_answer got = answer_none();
    const struct wire_obj *map = wire_find(result, "answer");
    int64_t pid = 0;
    int r = unpack_outcome(result, outcome, err);
    if (r) {
        return r;
    }
    if (wire_type_of(map) != WIRE_NIL) {
        r = answer_unpack(map, &got, err);
    }
    if (*outcome == GEMMD_HELD &&
        wire_get_int(wire_find(wire_find(result, "holder"), "pid"), &pid)) {
        snprintf(got.note, sizeof(got.note), "process %lld works on this key", (long long)pid);
    }
    if (r == 0 && known_json) {
        r = lease_unpack_known(wire_find(result, "known"), known_json, err);
    }
    if (r == 0) {
        answer_give(&got, answer);
    }
    return r;
}

static int end_acquire(struct gemmd *g, int r, struct error *err)
{
    struct steps *s = &g->steps;
    const struct wire_obj *result;
    r = r ? r : session_decode(&g->session, &s->request, &result, err);
    return r ? r : unpack_acquired(result, s->outcome, s->answer, s->json, err);
}

static int lease_acquire_key(struct gemmd *g, const struct gemmd_problem *problem,
                             const struct gemmd_acquire *options, enum gemmd_outcome *outcome,
                             struct gemmd_answer *answer, char **known_json, struct error *err)
{
    struct steps *s = &g->steps;
    struct ask a;
    struct gemmd_acquire o;
    int r = answer_check_size(answer, err);
    r = r ? r : lease_read_options(options, &o, err);
    r = r ? r : ask_problem(&a, problem, err);
    if (r) {
        return r;
    }
    int64_t deadline = handle_deadline(g, o.deadline_ms, !o.now);
    r = steps_begin(g, "acquire", deadline, end_acquire, err);
    if (r) {
        return r;
    }
    s->request.pack = pack_acquire;
    s->request.patience = deadline;
    s->ask.problem = a.problem;
    s->acquire = o;
    s->outcome = outcome;
    s->answer = answer;
    s->json = known_json;
    return steps_run(g, pack_acquire(g, err), err);
}

int gemmd_acquire(struct gemmd *g, const struct gemmd_problem *problem,
                  const struct gemmd_acquire *options, enum gemmd_outcome *outcome,
                  struct gemmd_answer *answer, char **known_json, struct gemmd_error *err)
{
    struct error e;
    if (known_json) {
        *known_json = NULL;
    }
    int r =
        outcome && answer ? 0 : error_set(&e, ERROR_INVALID, "outcome and answer may not be NULL");
    r = r ? r : lease_acquire_key(g, problem, options, outcome, answer, known_json, &e);
    return handle_result(r, &e, err);
}

/* Calls a method with a problem and `n` further params, packed in `more`; ignores the result. */
static int lease_call_method(struct gemmd *g, const char *method,
                             const struct gemmd_problem *problem, size_t n,
                             const struct wire_buf *more, struct error *err)
{
    WIRE_BUF_AUTO params = WIRE_BUF_NULL;
    struct ask a;
    int r = ask_problem(&a, problem, err);
    if (r) {
        return r;
    }
    wire_put_map(&params, 1 + n);
    wire_put_str(&params, "problem");
    r = ask_pack_problem(&params, &a.problem, err);
    wire_put_raw(&params, more->data, more->len);
    params.failed = params.failed || more->failed;
    return r ? r : handle_call(g, method, &params, 0, NULL, NULL, err);
}

int gemmd_put(struct gemmd *g, const struct gemmd_problem *problem, const char *config,
              double time_us, struct gemmd_error *err)
{
    struct error e;
    WIRE_BUF_AUTO more = WIRE_BUF_NULL;
    int r = config ? 0 : error_set(&e, ERROR_INVALID, "there is no config to put (NULL)");
    wire_put_kv_str(&more, "config", config);
    wire_put_kv_real(&more, "time_us", time_us);
    r = r ? r : lease_call_method(g, "put", problem, 2, &more, &e);
    return handle_result(r, &e, err);
}

int gemmd_record(struct gemmd *g, const struct gemmd_problem *problem, const char *trials_json,
                 struct gemmd_error *err)
{
    struct error e;
    WIRE_BUF_AUTO more = WIRE_BUF_NULL;
    int r = trials_json ? lease_put_json(&more, "trials", trials_json, &e)
                        : error_set(&e, ERROR_INVALID, "there are no trials to record (NULL)");
    r = r ? r : lease_call_method(g, "record", problem, 1, &more, &e);
    return handle_result(r, &e, err);
}

int gemmd_release(struct gemmd *g, const struct gemmd_problem *problem, struct gemmd_error *err)
{
    struct error e;
    int r = lease_call_method(g, "release", problem, 0, &WIRE_BUF_NULL, &e);
    return handle_result(r, &e, err);
}
