/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of a query: first the table (no syscall, no lock shared with slow work), then the
 * daemon, and when the caller allows a fallback, the daemon's lower tiers, and last the analytic
 * model.
 */
#include <stdio.h>
#include <string.h>

#include "client/answer.h"
#include "client/clock.h"
#include "client/handle.h"
#include "kernels/device.h"
#include "kernels/space.h"

enum { ANSWER_MARGIN_MS = 20 }; /* the daemon must answer this long before the deadline */

bool get_look_up(struct gemmd *g, const struct gemmd_problem *p, const struct gemmd_query *q,
                 struct gemmd_answer *out)
{
    struct question question;
    if (q && (q->flags & (GEMMD_NO_TABLE | GEMMD_AGAIN) || !ask_is_plain(q))) {
        return false;
    }
    question_of(p, &question);
    return table_get(&g->table, &question, out);
}

bool get_keep(struct gemmd *g, const struct gemmd_query *query, const struct gemmd_problem *problem,
              const struct gemmd_answer *answer)
{
    struct question q;
    if (!ask_is_bare(query) || !answer_is_final(answer)) {
        return false;
    }
    question_of(problem, &q);
    table_put(&g->table, &q, answer);
    return true;
}

int get_locked(struct gemmd *g, const struct ask *a, struct gemmd_answer *out, struct error *err)
{
    struct device_info info;
    struct gemmd_answer answer;
    struct question q;
    int r = a->query.flags & GEMMD_AGAIN
                ? joblock_refuse(g->joblock, "the query asks for a new search", err)
                : session_device(&g->session, &info, err);
    r = r ? r : joblock_answer(g->joblock, a, &info, &answer, err);
    if (r == 0) {
        question_of(&a->problem, &q);
        table_put(&g->table, &q, &answer);
        answer_give(&answer, out);
    }
    return r;
}

static bool get_may_fall_back(const struct gemmd *g, const struct gemmd_query *q)
{
    return g->lazy || (q->flags & (GEMMD_FALLBACK | GEMMD_OFFLINE));
}

int get_may_ask(const struct gemmd *g, const struct gemmd_query *q, struct error *err)
{
    if (q->flags & GEMMD_OFFLINE) {
        return error_set(err, ERROR_UNREACHABLE, "gemmd was not asked");
    }
    if (get_may_fall_back(g, q) && session_is_cold(&g->session)) {
        return error_set(err, ERROR_UNREACHABLE, "no gemmd answered a moment ago");
    }
    return 0;
}

/* ---- the model's answer --------------------------------------------------------------------- */

/* Changes the config to one that the query's `restrict` and `configs` allow. *ok: the config is now
 * allowed; false: no allowed config was found. */
static int model_keep_within(const struct ask *a, const struct problem *p,
                             const struct family_target *target, const struct device_info *info,
                             struct record *config, bool *ok, struct error *err)
{
    *ok = true;
    if (!a->query.restrict_json && !a->query.configs_json) {
        return 0;
    }
    struct request request = {0};
    int r = ask_to_request(a, &request, err);
    const struct allowed_place at = {.problem = p, .target = target, .info = info};
    *ok = r || allowed_within(&request, &at, config);
    request_deinit(&request);
    return r;
}

/* Writes the note: "analytic default for <device>, <limits>: <why>". Leaves the device's name out
 * when the note would otherwise cut `why`, which says how to act. ok false: the config is not one
 * that the query allows. */
static void model_write_note(struct gemmd_answer *out, const struct device_info *info, bool ok,
                             const char *why)
{
    char device[48];
    const char *limits = ok ? "" : ", which is not what is allowed";
    snprintf(device, sizeof(device), " for %.40s", info->name);
    const size_t all = strlen("analytic default: ") + strlen(device) + strlen(limits) + strlen(why);
    snprintf(out->note, sizeof(out->note), "analytic default%s%s: %s",
             all < sizeof(out->note) ? device : "", limits, why);
}

/*
 * The answer without a daemon: the analytic default of the family, for the device that would be
 * used. The answer is marked as not measured (tier "default", source "model", local). Its config
 * keeps to the query's target, `restrict` and `configs`; when no such config is found, the note
 * says so. `why`: the reason why the daemon did not answer, for the note. ERROR_NO_CONFIG: no
 * family of this library has kernels for the problem.
 */
static int model_answer(const struct ask *a, const struct device_info *info, const char *why,
                        struct gemmd_answer *out, struct error *err)
{
    struct problem problem;
    struct record config;
    const struct family_target *target;
    bool ok;
    int r = ask_to_problem(&a->problem, &problem, err);
    if (r) {
        return r;
    }
    const struct family *family = family_of_problem(&problem);
    *out = answer_none();
    r = family_target_choose(family, &problem, info, a->query.target, &target, err);
    r = r ? r : target->choose(&problem, info, &config, err);
    r = r ? r : model_keep_within(a, &problem, target, info, &config, &ok, err);
    r = r ? r : answer_set_config(out, &config, err);
    if (r) {
        return r;
    }
    snprintf(out->family, sizeof(out->family), "%s", family->name);
    snprintf(out->target, sizeof(out->target), "%s", target->label);
    if (info->peak_tflops > 0 && info->peak_gbps > 0) {
        out->floor_us = family_floor_us(family, &problem, info);
    }
    snprintf(out->tier, sizeof(out->tier), "default");
    snprintf(out->source, sizeof(out->source), "model");
    out->local = true;
    model_write_note(out, info, ok, why);
    return 0;
}

/* True when a fault of the daemon's answer is a reason for the fallback. A bad socket and a refused
 * `hello` have the same error codes as a caller's mistakes, so `unreached` (no connection) decides
 * first. A finding about configs (crashed, compile, ...) forbids the fallback when the model could
 * return such a config: with restrict or configs, and with `quarantined`, which concerns the
 * default. */
static bool get_is_reason(int code, bool unreached, const struct gemmd_query *q)
{
    if (unreached) {
        return true;
    }
    switch (code) {
    case ERROR_NO_CONFIG:
    case ERROR_COMPILE:
    case ERROR_RESOURCE:
    case ERROR_WRONG_RESULT:
    case ERROR_HUNG:
    case ERROR_CRASHED:
        return !q->restrict_json && !q->configs_json;
    case ERROR_QUARANTINED:
    case ERROR_INVALID:
    case ERROR_UNKNOWN_OP:
    case ERROR_UNKNOWN_FIELD:
    case ERROR_CONFLICT:
        return false;
    default:
        return code < 0;
    }
}

int get_or_default(struct gemmd *g, const struct ask *a, bool unreached, struct gemmd_answer *out,
                   struct error *err)
{
    const struct error why = *err;
    struct device_info info;
    struct gemmd_answer answer;
    if (!get_is_reason(why.code, unreached, &a->query) || !get_may_fall_back(g, &a->query) ||
        handle_is_own_call(&why)) {
        return why.code;
    }
    int r = session_device(&g->session, &info, err);
    r = r ? r : model_answer(a, &info, why.text, &answer, err);
    if (r == ERROR_UNKNOWN_OP || r == ERROR_NO_CONFIG) { /* the daemon's fault `why` says more */
        *err = why;
        return why.code;
    }
    if (r == 0) {
        answer_give(&answer, out);
    }
    return r;
}

/* ---- asking the daemon ---------------------------------------------------------------------- */

int64_t get_told_ms(int deadline_ms, int64_t deadline)
{
    if (deadline_ms <= 0) {
        return 0;
    }
    int64_t left = (deadline - clock_ns()) / CLOCK_MS;
    int64_t margin = left / 10 + 1;
    left -= margin < ANSWER_MARGIN_MS ? margin : ANSWER_MARGIN_MS;
    return left > 1 ? left : 1;
}

static int end_tune(struct gemmd *g, int r, struct error *err)
{
    struct steps *s = &g->steps;
    struct gemmd_answer answer = answer_none();
    struct answer_order order;
    answer_order_init(&order);
    r = r ? r : answer_read(&s->request.result, g->session.doc, &answer, &order, err);
    if (r == 0) {
        get_keep(g, &s->ask.query, &s->ask.problem, &answer);
        if (s->why.code) {
            const size_t n = strlen(answer.note);
            snprintf(answer.note + n, sizeof(answer.note) - n, "; %s", s->why.text);
        }
        answer_give(&answer, s->answer);
    }
    return r;
}

static int pack_ask(void *ctx, struct error *err)
{
    struct gemmd *g = ctx;
    struct steps *s = &g->steps;
    wire_buf_clear(&s->params);
    return ask_pack(&s->params, &s->ask, get_told_ms(s->ask.query.deadline_ms, s->request.deadline),
                    err);
}

/* True when the daemon could not tune, and time is left to ask for a lower tier of its rows. */
static bool get_may_ask_lower(struct gemmd *g, int code)
{
    const struct steps *s = &g->steps;
    const struct gemmd_query *q = &s->ask.query;
    struct error ignored;
    return q->wait == GEMMD_WAIT_TUNED && !s->why.code && !s->request.unreached &&
           get_may_fall_back(g, q) && get_is_reason(code, false, q) &&
           s->request.deadline > clock_ns() && get_may_ask(g, q, &ignored) == 0;
}

static int end_get(struct gemmd *g, int r, struct error *err)
{
    struct steps *s = &g->steps;
    r = end_tune(g, r, err);
    if (r < 0 && get_may_ask_lower(g, r)) {
        const int64_t soon = handle_deadline(g, 0, false), deadline = s->request.deadline;
        s->why = *err;
        s->ask.query.wait = GEMMD_WAIT_CACHED;
        s->request = (struct session_request){.method = "get",
                                              .params = &s->params,
                                              .deadline = soon < deadline ? soon : deadline,
                                              .pack_ctx = g};
        r = pack_ask(g, err);
        return r ? r : STEPS_MORE;
    }
    if (r < 0 && s->why.code) {
        *err = s->why;
        r = err->code;
    }
    return r ? get_or_default(g, &s->ask, s->request.unreached, s->answer, err) : 0;
}

/* Asks the daemon for an answer, after steps_begin. */
static int get_ask_daemon(struct gemmd *g, bool is_get, const struct ask *a,
                          struct gemmd_answer *out, struct error *err)
{
    struct steps *s = &g->steps;
    s->ask = *a;
    s->answer = out;
    s->request.progress = a->query.progress;
    s->request.ctx = a->query.ctx;
    s->request.pack = pack_ask;
    /* A caller with a fallback and no deadline waits for a running tuning as long as it takes, but
     * only the handle's default deadline for a place in gemmd's queue of tunings. */
    bool bounded = is_get && s->request.deadline == CLOCK_NEVER && get_may_fall_back(g, &a->query);
    s->request.patience = bounded ? handle_deadline(g, 0, false) : s->request.deadline;
    if (a->query.flags & GEMMD_PROGRESS) {
        steps_report(g);
    }
    int r = pack_ask(g, err);
    r = r ? r : get_may_ask(g, &a->query, err);
    return steps_run(g, r, err);
}

static int get_read_ask(struct gemmd *g, struct ask *a, const struct gemmd_problem *problem,
                        const struct gemmd_query *query, const struct gemmd_answer *out,
                        struct error *err)
{
    if (!g) {
        return handle_enter(g, 0, err); /* sets the error for a NULL handle */
    }
    int r = answer_check_size(out, err);
    r = r ? r : ask_problem(a, problem, err);
    return r ? r : ask_query(a, query, err);
}

/* The path of an answer that the table has: copies no struct of the caller. False: the table lacks
 * the answer, or an argument is unusual; get_answer() goes on. */
static bool get_without_copy(struct gemmd *g, const struct gemmd_problem *p,
                             const struct gemmd_query *q, struct gemmd_answer *out)
{
    if (!g || !p || !out || p->size < ASK_PROBLEM_SIZE_MIN || p->size > sizeof(*p) ||
        out->size < ANSWER_SIZE_MIN || p->experts > GEMM_EXPERTS_MAX) {
        return false;
    }
    if (q &&
        (q->size != sizeof(*q) || (unsigned)q->wait > GEMMD_WAIT_BOUNDARY || q->deadline_ms < 0)) {
        return false;
    }
    return get_look_up(g, p, q, out);
}

/* `method`: get or tune. Not inlined: an answer from the table (get_without_copy) must not pay for
 * this function's stack and registers. */
__attribute__((noinline)) static int get_answer(struct gemmd *g, const char *method,
                                                const struct gemmd_problem *problem,
                                                const struct gemmd_query *query,
                                                struct gemmd_answer *out, struct gemmd_error *err)
{
    struct ask a;
    struct error e;
    bool is_get = strcmp(method, "get") == 0;
    int r = get_read_ask(g, &a, problem, query, out, &e);
    if (r || (is_get && get_look_up(g, &a.problem, &a.query, out))) {
        return handle_result(r, &e, err);
    }
    if (g->joblock) {
        r = is_get ? get_locked(g, &a, out, &e)
                   : joblock_refuse(g->joblock, "gemmd_tune searches", &e);
        return handle_result(r, &e, err);
    }
    int64_t deadline = handle_deadline(g, a.query.deadline_ms, a.query.wait == GEMMD_WAIT_TUNED);
    r = steps_begin(g, method, deadline, is_get ? end_get : end_tune, &e);
    if (r == 0) {
        r = get_ask_daemon(g, is_get, &a, out, &e);
    } else if (is_get) {
        r = get_or_default(g, &a, false, out, &e);
    }
    return handle_result(r, &e, err);
}

int gemmd_get(struct gemmd *g, const struct gemmd_problem *problem, const struct gemmd_query *query,
              struct gemmd_answer *out, struct gemmd_error *err)
{
    return get_without_copy(g, problem, query, out)
               ? handle_result(0, NULL, err)
               : get_answer(g, "get", problem, query, out, err);
}

int gemmd_tune(struct gemmd *g, const struct gemmd_problem *problem,
               const struct gemmd_query *query, struct gemmd_answer *out, struct gemmd_error *err)
{
    return get_answer(g, "tune", problem, query, out, err);
}
