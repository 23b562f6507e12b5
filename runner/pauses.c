/* SPDX-License-Identifier: Apache-2.0 */
/* Device work only while a training job's GPU pauses (runner.h). */
#include "kernels/device.h"
#include "runner/job_inner.h"

static double pauses_clock_ms(void)
{
    return device_clock_ms(NULL); /* real time also on a replay device: the pauses are real */
}

/* Tells gemmd that the device is quiet until the next pause. wants: work for the device is ready.
 */
static void pauses_say_quiet(struct runner *r, bool wants)
{
    struct wire_buf *b = &r->channel.out;
    rpc_put_notify(b, "quiet");
    wire_put_map(b, 2);
    wire_put_kv_int(b, "job", r->job);
    wire_put_kv_bool(b, "wants", wants);
    channel_send(&r->channel);
}

void pauses_begin(struct runner *r, bool bound)
{
    r->pauses = (struct pauses){.bound = bound};
}

void pauses_open(struct runner *r, int64_t ms)
{
    struct pauses *p = &r->pauses;
    p->bound = p->bound && ms >= 0;
    p->open = p->bound;
    p->until_ms = pauses_clock_ms() + (double)ms;
}

void pauses_give_back(struct runner *r)
{
    if (r->pauses.open) {
        r->pauses.open = false;
        pauses_say_quiet(r, false);
    }
}

int pauses_wait_to_prepare(struct job *j, struct error *err)
{
    struct runner *r = j->runner;
    int status = 0;
    if (r->pauses.bound) {
        runner_announce(r, "prepare", NULL, runner_limit(r, PREPARE_LIMIT_MS));
        status = helpers_wait(&r->helpers, j->target, err);
    }
    return status ? status : pauses_wait(j, err);
}

static bool pauses_allow(const struct pauses *p)
{
    return !p->bound || (p->open && pauses_clock_ms() < p->until_ms);
}

/* Ends the open pause, if there is one, and asks for the next. */
static void pauses_end(struct job *j)
{
    struct runner *r = j->runner;
    r->pauses.open = false;
    runner_announce(r, "pause", NULL, 0);
    notice_progress(j, "pause", NULL);
    pauses_say_quiet(r, true);
}

int pauses_wait(struct job *j, struct error *err)
{
    struct runner *r = j->runner;
    struct pauses *p = &r->pauses;
    if (pauses_allow(p)) {
        return 0;
    }
    enum phase before = timeline_enter(&r->timeline, PHASE_PAUSE);
    const double began_ms = runner_now_ms(r);
    pauses_end(j);
    int status = job_poll(j, err);
    while (status == 0 && !pauses_allow(p)) {
        if (p->open) {
            pauses_end(j); /* the pause was over before its first step */
        } else {
            channel_wait(&r->channel, -1, -1);
        }
        status = job_poll(j, err);
    }
    timeline_enter(&r->timeline, before);
    /* the job's limits of time do not count the wait */
    const double waited_ms = runner_now_ms(r) - began_ms;
    j->began_ms += waited_ms;
    j->order_began_ms += waited_ms;
    j->turn_began_ms += waited_ms;
    return status;
}
