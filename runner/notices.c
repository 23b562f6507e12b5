/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of a job on the socket. Formats: proto/message.h, with "job" beside the fields. */
#include <math.h>
#include <stdio.h>

#include "runner/job_inner.h"

/* Sends the notification [2, method, {"job": id of the job, the fields of `object`}]. */
static void notify_of_job(struct job *j, const char *method, const struct schema *s,
                          const void *object)
{
    struct wire_buf *b = &j->runner->channel.out;
    rpc_put_notify(b, method);
    wire_put_map(b, s->n + 1);
    wire_put_kv_int(b, "job", j->order->job);
    schema_encode_fields(b, s, object);
    channel_send(&j->runner->channel);
}

void runner_announce(struct runner *r, const char *stage, const struct candidate *c,
                     int64_t limit_ms)
{
    struct attempt a = {.job = r->job, .limit_ms = limit_ms};
    snprintf(a.stage, sizeof(a.stage), "%s", stage);
    if (c) {
        record_copy(&a.config, &c->config);
        snprintf(a.variant, sizeof(a.variant), "%s", c->hash);
        if (c->build && c->build->state == BUILD_READY) {
            snprintf(a.module, sizeof(a.module), "%s", c->build->image.meta.id);
        }
    }
    channel_notify(&r->channel, "attempt", &attempt_schema, &a);
}

void notice_trial(struct job *j, const struct trial *t)
{
    notify_of_job(j, "trial", &trial_schema, t);
}

void notice_progress(struct job *j, const char *phase, const struct record *config)
{
    double elapsed = runner_now_ms(j->runner) - j->began_ms;
    uint32_t total = j->total > j->done
                         ? j->total
                         : j->done; /* failures cost no budget: done may exceed total */
    struct progress p = {
        .done = j->done,
        .total = total,
        .failed = j->failed,
        .best_us = j->best_us,
        .reference_us = j->reference_us,
        .elapsed_ms = elapsed,
        .device_ms = j->device_ms,
        .compile_ms = j->compile_ms,
        .eta_ms = j->done ? elapsed / j->done * (total - j->done) : NAN,
    };
    snprintf(p.phase, sizeof(p.phase), "%s", phase);
    if (config) {
        record_format(config, p.config, sizeof(p.config));
    }
    notify_of_job(j, "progress", &progress_schema, &p);
}
