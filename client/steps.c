/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "client/clock.h"
#include "client/handle.h"

int steps_begin(struct gemmd *g, int64_t deadline, struct error *err)
{
    int r = handle_enter(g, deadline, err);
    if (r == 0) {
        g->steps.reported = false;
        wire_buf_clear(&g->steps.params);
    }
    return r;
}

/* Told, the caller is to be back at once: before the next one comes. */
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

static int finish(struct gemmd *g, int r, const struct wire_obj *result, struct error *err)
{
    r = g->steps.end(g, r, result, err);
    handle_leave(g);
    return r;
}

static int go_on(struct gemmd *g, struct error *err)
{
    struct steps *s = &g->steps;
    const struct wire_obj *result = NULL;
    s->waiting = false;
    s->request.until = g->step_ms ? clock_after_ms(g->step_ms) : 0;
    int r = session_finish(&g->session, &s->request, &s->sent, NULL, &result, err);
    s->waiting = r == SESSION_WAITING;
    return s->waiting ? GEMMD_WAITING : finish(g, r, result, err);
}

int steps_run(struct gemmd *g, int r, struct error *err)
{
    if (r) {
        return finish(g, r, NULL, err);
    }
    session_start(&g->session, &g->steps.request, &g->steps.sent);
    return go_on(g, err);
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
        r = go_on(g, &e);
    }
    if (r == GEMMD_WAITING && g->steps.reported) {
        g->steps.reported = false;
        if (progress) {
            *progress = &g->steps.report;
        }
    }
    return handle_result(r, &e, err);
}
