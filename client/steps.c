/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "client/clock.h"
#include "client/handle.h"

int steps_begin(struct gemmd *g, int64_t deadline, struct error *err)
{
    int r = handle_enter(g, deadline, err);
    if (r == 0) {
        g->steps.reported = false;
        g->steps.pack = NULL;
        g->steps.pause = (struct pause){.ms = 0};
        g->steps.sent.unreached = false;
        wire_buf_clear(&g->steps.params);
    }
    return r;
}

/* Ends the step at once, so that the caller gets this report before the next report arrives. */
static void keep_report(void *ctx, const struct gemmd_progress *p)
{
    struct steps *s = ctx;
    s->report = *p;
    snprintf(s->phase, sizeof(s->phase), "%s", p->phase);
    snprintf(s->config, sizeof(s->config), "%s", p->config);
    s->report.phase = s->phase;
    s->report.config = s->config;
    s->reported = true;
    s->request.until = clock_ns();
}

void steps_report(struct gemmd *g)
{
    if (g->step_ms) {
        g->steps.request.progress = keep_report;
        g->steps.request.ctx = &g->steps;
    }
}

/* ---- from step to step ---------------------------------------------------------------------- */

static int steps_finish_request(struct gemmd *g, int r, const struct wire_obj *result,
                                struct error *err)
{
    r = g->steps.end(g, r, result, err);
    handle_leave(g);
    return r;
}

/* Finishes the current pause, repeats the request after a pause, and receives the answer. */
static int steps_attempt_answer(struct gemmd *g, int64_t until, const struct wire_obj **result,
                                struct error *err)
{
    struct steps *s = &g->steps;
    if (s->pause.end) {
        if (!pause_sleep(&s->pause, until)) {
            return SESSION_WAITING;
        }
        int r = s->pack(g, err);
        if (r) {
            return r;
        }
        session_start(&g->session, &s->request, &s->sent);
    }
    return session_finish(&g->session, &s->request, &s->sent, result, err);
}

/* True when gemmd answered `busy`, because its queue has no room for the request: the request will
 * be sent again after a pause. (session.c retries when gemmd has no room for the connection.) */
static bool comes_again(struct steps *s, int r)
{
    if (r != ERROR_BUSY || !s->pack || !s->sent.under_way || !pause_begin(&s->pause, s->patience)) {
        return false;
    }
    s->sent.under_way = false;
    return true;
}

static int steps_advance_request(struct gemmd *g, struct error *err)
{
    struct steps *s = &g->steps;
    const struct wire_obj *result = NULL;
    int64_t until = g->step_ms ? clock_after_ms(g->step_ms) : CLOCK_NEVER;
    int r;
    s->waiting = false;
    s->request.until = g->step_ms ? until : 0;
    do {
        r = steps_attempt_answer(g, until, &result, err);
    } while (comes_again(s, r));
    s->waiting = r == SESSION_WAITING;
    return s->waiting ? GEMMD_WAITING : steps_finish_request(g, r, result, err);
}

int steps_run(struct gemmd *g, int r, struct error *err)
{
    if (r) {
        return steps_finish_request(g, r, NULL, err);
    }
    session_start(&g->session, &g->steps.request, &g->steps.sent);
    return steps_advance_request(g, err);
}

int gemmd_wait(struct gemmd *g, const struct gemmd_progress **progress, struct gemmd_error *err)
{
    struct error e;
    int r = GEMMD_WAITING;
    if (progress) {
        *progress = NULL;
    }
    if (!handle_waits(g)) {
        r = error_set(&e, ERROR_INVALID,
                      "no call of this thread waits on this handle: gemmd_wait goes on with one "
                      "that returned GEMMD_WAITING");
    } else if (!g->steps.reported) {
        r = steps_advance_request(g, &e);
    }
    if (r == GEMMD_WAITING && g->steps.reported) {
        g->steps.reported = false;
        if (progress) {
            *progress = &g->steps.report;
        }
    }
    return handle_result(r, &e, err);
}
