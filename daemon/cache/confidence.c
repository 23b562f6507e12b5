/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of confidence.h, one sentence each. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/cache/confidence.h"

enum { SAMPLES_FEW = 5, CONFIGS_FEW = 8, OLD_DAYS = 180, DAY_S = 86400 };
static const double SPREAD_WIDE = 0.05;

__attribute__((format(printf, 2, 3))) static void doubt(struct confidence *c, const char *format,
                                                        ...)
{
    va_list args;
    if (c->n < DOUBTS_MAX) {
        va_start(args, format);
        vsnprintf(c->doubts[c->n++], DOUBT_MAX, format, args);
        va_end(args);
    }
}

static void judge_best(struct confidence *c, const struct evidence *e)
{
    const struct best *b = e->best;
    int64_t days = (e->now_s - b->created_s) / DAY_S;
    if (strcmp(b->source, "tuned") == 0 && b->measured < CONFIGS_FEW) {
        doubt(c, "only %lld configs were measured for this key", (long long)b->measured);
    }
    if (b->spread > SPREAD_WIDE) {
        doubt(c, "its samples spread by %.1f %%: something disturbed the device", 100 * b->spread);
    }
    if (b->reference_us > 0 && b->time_us > b->reference_us) {
        doubt(c, "in its own run the analytic default was faster: %.4g us against %.4g us",
              b->reference_us, b->time_us);
    }
    if (b->doubt[0]) {
        doubt(c, "%s", b->doubt);
    }
    if (b->created_s > 0 && days > OLD_DAYS) {
        doubt(c, "it is %lld days old", (long long)days);
    }
}

static void judge_trial(struct confidence *c, const struct evidence *e)
{
    if (!e->trial) {
        doubt(c, "the trial behind it is no longer kept");
        return;
    }
    if (e->trial->samples_us.n < SAMPLES_FEW) {
        doubt(c, "it was timed %u times only", e->trial->samples_us.n);
    }
    if (e->run && e->run->driver[0] && strcmp(e->run->driver, e->device->driver) != 0) {
        doubt(c, "it was measured under driver %s, and this is %s", e->run->driver,
              e->device->driver);
    }
}

void confidence_judge(struct confidence *c, const struct evidence *e)
{
    *c = (struct confidence){.level = "none"};
    if (!e->answer->tier[0]) {
        return; /* there is no answer to doubt */
    }
    if (strcmp(e->answer->tier, "default") == 0) {
        doubt(c, "nothing is measured: it is what the analytic model expects to be best");
        return;
    }
    c->level = "low";
    bool exact = strcmp(e->answer->tier, "exact") == 0;
    if (!exact && isnan(e->answer->time_us)) {
        doubt(c, "it is not measured for this problem: what it takes here is not known");
        return;
    }
    if (!exact) {
        doubt(c, "it was verified less tightly than this query asks");
    }
    if (e->barred) {
        doubt(c, "its kernel has crashed or hung the runner at another key (gemmctl quarantine)");
    }
    if (!e->answer->saved && strcmp(e->answer->source, "partial") == 0) {
        doubt(c, "it is in memory only: the key keeps an answer of its own, or the database could "
                 "not be written");
    } else if (!e->answer->saved) {
        doubt(c, "it is in memory only: the database could not be written yet");
    }
    if (e->best) {
        judge_best(c, e);
    }
    if (e->kept_only) {
        doubt(c, "gemmd did not measure it: whoever put it is the witness");
    } else if (e->trial || e->answer->saved) { /* else it was in no row yet */
        judge_trial(c, e);
    }
    c->level = c->n == 0 ? "high" : c->n == 1 ? "medium" : "low";
}
