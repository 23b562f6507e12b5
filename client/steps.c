/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "client/clock.h"
#include "client/handle.h"

int steps_begin(struct gemmd *g, const char *method, int64_t deadline, steps_end end,
                struct error *err)
{
    int r = handle_enter(g, deadline, err);
    if (r == 0) {
        struct steps *s = &g->steps;
        s->reported = false;
        s->end = end;
        s->request = (struct session_request){
            .method = method, .params = &s->params, .deadline = deadline, .pack_ctx = g};
        wire_buf_clear(&s->params);
    }
    return r;
}

/* Ends the step at once, so that the caller gets this report before the next report arrives. */
static void keep_report(void *ctx, const struct gemmd_progress *p)
{
    struct gemmd *g = ctx;
    struct steps *s = &g->steps;
    s->report = *p;
    snprintf(s->phase, sizeof(s->phase), "%s", p->phase);
    snprintf(s->config, sizeof(s->config), "%s", p->config);
    s->report.phase = s->phase;
    s->report.config = s->config;
    s->reported = true;
    g->session.until = clock_ns();
}

void steps_report(struct gemmd *g)
{
    if (g->step_ms) {
        g->steps.request.progress = keep_report;
        g->steps.request.ctx = g;
    }
}

/* ---- from step to step ---------------------------------------------------------------------- */

static int steps_finish_request(struct gemmd *g, int r, struct error *err)
{
    r = g->steps.end(g, r, err);
    handle_leave(g);
    return r;
}

static int steps_advance_request(struct gemmd *g, struct error *err)
{
    g->session.until = g->step_ms ? clock_after_ms(g->step_ms) : CLOCK_NEVER;
    g->steps.waiting = false;
    int r = session_finish(&g->session, &g->steps.request, err);
    g->steps.waiting = r == SESSION_WAITING;
    return g->steps.waiting ? GEMMD_WAITING : steps_finish_request(g, r, err);
}

int steps_run(struct gemmd *g, int r, struct error *err)
{
    if (r) {
        return steps_finish_request(g, r, err);
    }
    session_start(&g->session, &g->steps.request);
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
