/* SPDX-License-Identifier: Apache-2.0 */
/* A job's request, its stamp, and the cache's answer for its key (tuning.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/answers/target.h"
#include "daemon/tuning/tuning.h"

static const double USUAL_TOLERANCE = 1e-2;

int tuning_stamp(struct daemon *d, struct job *j, const char *target, struct error *err)
{
    const struct query *q = &j->request->query;
    const struct problem *p = &j->request->problem;
    const struct family_target *t;
    int status = target_choose(d, p, target, &t, err);
    if (status < 0) {
        return status;
    }
    snprintf(j->stamp, sizeof(j->stamp), "%s", target_stamp(d, family_of_problem(p), t));
    memcpy(j->trial_stamp, j->stamp, sizeof(j->stamp));
    if (q->atol != USUAL_TOLERANCE || q->rtol != USUAL_TOLERANCE) {
        size_t n = strlen(j->stamp);
        snprintf(j->trial_stamp + n, sizeof(j->trial_stamp) - n, " atol=%g rtol=%g", q->atol,
                 q->rtol);
    }
    return 0;
}

int tuning_unpack(struct daemon *d, struct job *j, struct error *err)
{
    const struct wire_obj *map;
    j->request = calloc(1, sizeof(*j->request));
    if (!j->request) {
        return error_set(err, ERROR_NO_MEMORY, "no memory to tune");
    }
    int status = wire_decode(d->doc, j->search.data, j->search.len, &map, err);
    status = status ? status : request_unpack(j->request, map, err);
    if (status) {
        return status;
    }
    struct query *q = &j->request->query;
    q->budget = q->budget ? q->budget : d->config->budget;
    q->budget_ms = q->budget_ms ? q->budget_ms : d->config->budget_ms;
    j->atol = q->atol;
    j->rtol = q->rtol;
    confirm_begin(j);
    status = tuning_stamp(d, j, j->target, err);
    return status ? status : precheck_space(d, j->request, err);
}

/* Prepares the job to verify only the config of the key's row `e`, with the tighter of the
 * request's and the row's tolerances. */
static void look_again(struct daemon *d, struct job *j, const struct cache_entry *e)
{
    struct answer *a = &d->scratch->answer;
    struct query *q = &j->request->query;
    j->known = j->known ? j->known : malloc(sizeof(*j->known));
    if (!j->known || cache_answer(&d->cache, e, a, NULL) < 0) {
        return;
    }
    family_stamp_target(a->stamp, j->known_target);
    if (!e->candidate) {
        q->atol = fmin(q->atol, e->atol);
        q->rtol = fmin(q->rtol, e->rtol);
    }
    if (tuning_stamp(d, j, j->known_target, NULL) < 0) {
        /* this build or device lacks the target of the known config: search instead */
        q->atol = j->atol;
        q->rtol = j->rtol;
        return;
    }
    record_copy(j->known, &a->config);
    j->reverify = true;
    j->manual = e->manual;
    j->stale = e->manual && e->rank < CACHE_SERVES;
    confirm_prepare(j, e, a);
}

/* The entry that may answer the key, now or after a new verification; NULL: no such entry. */
static const struct cache_entry *job_find_known(struct daemon *d, const struct job *j)
{
    if (j->again || j->pin || j->restricted) {
        return NULL;
    }
    const struct cache_entry *e = cache_find_id(&d->cache, j->key, NULL);
    return e && (e->rank >= CACHE_SERVES || e->manual ||
                 confirm_is_due(d, j->key, &j->request->problem, e))
               ? e
               : NULL;
}

bool tuning_known(struct daemon *d, struct job *j, struct wire_buf *answer)
{
    const struct query *q = &j->request->query;
    const struct cache_entry *e = job_find_known(d, j);
    if (e && e->rank >= CACHE_SERVES && cache_verified(e, q->atol, q->rtol)) {
        cache_reply(e, answer);
        return true;
    }
    if (e && !j->set_aside) {
        look_again(d, j, e);
    }
    return false;
}
