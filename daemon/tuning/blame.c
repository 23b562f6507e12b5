/* SPDX-License-Identifier: Apache-2.0 */
/* Blames a candidate for the death of its runner (tuning.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/answers/learn.h"
#include "daemon/base/log.h"
#include "daemon/cache/answer.h"
#include "daemon/tuning/tuning.h"

enum {
    /* deaths of the runner in a job, after which the job tries no new candidate */
    DEATHS_MAX = 24,
    /* further deaths that are allowed while the best config is measured again */
    CLOSING_DEATHS_MAX = 4,
    UNNAMED_DEATHS_MAX = 3, /* deaths without a candidate to blame; a hang counts twice */
};

static void blame_quarantine_variant(struct daemon *d, const struct job *j, const struct death *why,
                                     const struct attempt *a)
{
    struct quarantine *q = calloc(1, sizeof(*q));
    if (q) {
        memcpy(q->variant, a->variant, sizeof(q->variant));
        memcpy(q->module, a->module, sizeof(q->module));
        snprintf(q->family, sizeof(q->family), "%s", family_of_problem(&j->request->problem)->name);
        record_copy(&q->config, &a->config);
        memcpy(q->key, j->key, sizeof(q->key));
        memcpy(q->class, d->device.class, sizeof(q->class));
        memcpy(q->driver, d->device.driver, sizeof(q->driver));
        snprintf(q->status, sizeof(q->status), "%s", error_name(why->code));
        snprintf(q->reason, sizeof(q->reason), "%s", why->reason);
        q->deaths = 1;
        q->created_s = time(NULL);
        quarantine_add(d, q);
        free(q);
    }
}

/* Keeps the reason when the runner died of the first config that the request gives. The next runner
 * can only report the config's quarantine; the client gets this reason when no other config of the
 * list works. */
static void keep_for_asker(struct job *j, const struct death *why, const struct attempt *a)
{
    const struct request *q = j->request;
    if (q->n_configs == 0 || !record_equal(&a->config, &q->configs[0])) {
        return;
    }
    j->died = j->died ? j->died : calloc(1, sizeof(*j->died));
    if (j->died) {
        error_set(j->died, why->code, "%s; this variant is in quarantine now (gemmctl quarantine)",
                  why->reason);
    }
}

void tuning_blame(struct tuning *x, struct job *j, const struct death *why, const struct attempt *a)
{
    struct daemon *d = x->daemon;
    struct trial *t = &d->scratch->trial;
    if (strcmp(j->failed_variant, a->variant) != 0) {
        /* when equal, the job's last recorded trial is this variant's failure already */
        memset(t, 0, sizeof(*t));
        t->run = x->supervisor.run.id;
        record_copy(&t->config, &a->config);
        memcpy(t->variant, a->variant, sizeof(t->variant));
        memcpy(t->module, a->module, sizeof(t->module));
        const struct family *f = family_of_problem(&j->request->problem);
        snprintf(t->family, sizeof(t->family), "%s", f->name);
        snprintf(t->stage, sizeof(t->stage), "%s", j->pin ? "pin" : "measure");
        snprintf(t->status, sizeof(t->status), "%s", error_name(why->code));
        snprintf(t->reason, sizeof(t->reason), "%s", why->reason);
        trial_times_unknown(t);
        tuning_record(x, j, t);
    }
    blame_quarantine_variant(d, j, why, a);
    tuning_avoid(j, a->variant);
    keep_for_asker(j, why, a);
}

bool tuning_too_many(struct job *j, const struct death *why, struct error *err)
{
    if (j->unnamed_deaths >= UNNAMED_DEATHS_MAX) {
        error_set(err, ERROR_CRASHED,
                  "the runner died %u times with no candidate to blame; last: %s", j->deaths,
                  why->reason);
        return true;
    }
    if (j->deaths < DEATHS_MAX) {
        return false;
    }
    if (j->n_ok == 0 || j->deaths >= DEATHS_MAX + CLOSING_DEATHS_MAX) {
        error_set(err, ERROR_CRASHED, "the runner died %u times in this tuning; last: %s",
                  j->deaths, why->reason);
        return true;
    }
    if (!j->closing) {
        log_warning(
            "job %lld: the runner died %u times: the best of %u that worked ends the search",
            (long long)j->id, j->deaths, j->n_ok);
        j->closing = true;
    }
    return false;
}
