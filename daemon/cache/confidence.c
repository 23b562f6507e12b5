/* SPDX-License-Identifier: Apache-2.0 */
/* Judges the evidence by the rules of answer.h: each doubt adds a clause to the text for people. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/cache/answer.h"

enum { SAMPLES_FEW = 5, CONFIGS_FEW = 8, OLD_DAYS = 180, DAY_S = 86400 };
static const double SPREAD_WIDE = 0.05, SPREAD_DISTURBED = 0.25;

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

static const char *confidence_pick_grade(const struct confidence *c)
{
    return c->n == 0 ? "high" : c->n == 1 && !c->grave ? "medium" : "low";
}

/* True when the row's `doubt` begins with CONFIDENCE_LOW. */
static bool says_low(const struct best *b)
{
    return strncmp(b->doubt, CONFIDENCE_LOW, strlen(CONFIDENCE_LOW)) == 0;
}

static void judge_measurement(struct confidence *c, const struct best *b)
{
    if (says_low(b)) {
        c->grave = true;
        doubt(c, "%s", b->doubt + strlen(CONFIDENCE_LOW));
        return;
    }
    if (b->doubt[0]) {
        doubt(c, "%s", b->doubt);
    }
    if (strcmp(b->source, "tuned") == 0 && b->measured < CONFIGS_FEW) {
        doubt(c, "only %lld config%s measured for this key", (long long)b->measured,
              b->measured == 1 ? " was" : "s were");
    }
    if (b->spread > SPREAD_WIDE) {
        doubt(c, "its samples spread by %.1f %%: something disturbed the device", 100 * b->spread);
        c->grave = b->spread > SPREAD_DISTURBED;
    }
    if (b->reference_us > 0 && b->time_us > b->reference_us) {
        doubt(c, "in its own run the analytic default was faster: %.4g us against %.4g us",
              b->reference_us, b->time_us);
    }
}

bool confidence_is_low(const struct best *b, char says[DOUBT_MAX])
{
    struct confidence c = {0};
    judge_measurement(&c, b);
    bool is_low = strcmp(confidence_pick_grade(&c), "low") == 0;
    snprintf(says, DOUBT_MAX, "%s", b->doubt);
    if (is_low && !says_low(b)) {
        size_t n = (size_t)snprintf(says, DOUBT_MAX, "%s", CONFIDENCE_LOW);
        for (unsigned i = 0; i < c.n && n + strlen("; ") + strlen(c.doubts[i]) < DOUBT_MAX; i++) {
            n += (size_t)snprintf(says + n, DOUBT_MAX - n, "%s%s", i ? "; " : "", c.doubts[i]);
        }
    }
    return is_low;
}

static void judge_best(struct confidence *c, const struct evidence *e)
{
    const struct best *b = e->best;
    int64_t days = (e->now_s - b->created_s) / DAY_S;
    judge_measurement(c, b);
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
        return; /* no answer to judge */
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
    if (e->quarantined) {
        doubt(c, "its kernel has crashed or hung the runner at another key (gemmctl quarantine)");
    }
    if (e->doubted) {
        doubt(c, "another host of the fleet has its kernel in quarantine (gemmctl quarantine)");
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
    } else if (!(e->best && (best_is_brought(e->best) || best_is_candidate(e->best))) &&
               (e->trial || e->answer->saved)) {
        /* An unsaved answer has no row yet that could name a trial, so a missing trial is no
         * doubt. */
        judge_trial(c, e);
    }
    c->level = confidence_pick_grade(c);
}
