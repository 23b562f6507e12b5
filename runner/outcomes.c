/* SPDX-License-Identifier: Apache-2.0 */
/* The outcome of each config's trial, in this run or an earlier run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/conditions.h"
#include "runner/job_inner.h"

double job_score(const struct job *j, const struct outcome *o)
{
    if (o->here && isfinite(j->reference_us)) {
        return o->time_us / j->reference_us;
    }
    return isfinite(o->ratio) ? o->ratio : o->time_us;
}

void job_count_failure(struct job *j, const struct trial *t)
{
    uint32_t i = 0;
    while (i < j->n_tally && strcmp(j->tally[i].status, t->status) != 0) {
        i++;
    }
    if (i == TALLY_MAX) {
        return;
    }
    struct tally *y = &j->tally[i];
    if (i == j->n_tally) {
        j->n_tally++;
        snprintf(y->status, sizeof(y->status), "%s", t->status);
        snprintf(y->reason, sizeof(y->reason), "%s", t->reason);
    }
    y->n++;
}

void job_book(struct job *j, uint32_t id, const struct trial *t, bool here)
{
    struct outcome *o = &j->outcomes[id];
    bool ok = strcmp(t->status, "ok") == 0;
    if (o->ok && !ok && !here) {
        /* earlier runs may have several trials of the config: once a trial was ok, a later failure
         * does not count */
        return;
    }
    struct record config;
    plan_config(&j->plan, id, &config);
    /* A variant that an earlier run measured may have come into quarantine since. */
    bool eligible =
        allowed_config(&j->order->request, &config) && !plan_avoids(&j->plan, t->variant);
    *o = (struct outcome){
        .known = true,
        .ok = ok,
        .here = here,
        .eligible = eligible,
        .measured = ok || strcmp(t->status, "aborted") == 0,
        .out_of_race = !ok || !eligible,
        .time_us = t->time_us,
        .ratio = t->ratio,
        .spread = (t->q75_us - t->q25_us) / t->time_us,
        .samples = t->samples_us.n,
        .max_error = t->max_error,
        .rel_norm = t->rel_norm,
    };
    snprintf(o->module, sizeof(o->module), "%s", t->module);
    if (!o->measured) {
        job_count_failure(j, t);
    }
}

/* True while the reference has no trial in this run. The reference is often among the slowest
 * kernels to compile, so candidates that are ready are measured before it. Their trials have no
 * ratio yet: j->held keeps them until the reference has a time or has failed. A runner that dies
 * meanwhile loses these few trials. */
static bool outcomes_awaits_reference(const struct job *j)
{
    return isnan(j->reference_us) && j->reference != PLAN_NONE && !j->outcomes[j->reference].here;
}

static void outcomes_become_reference(struct job *j, uint32_t id, struct trial *t)
{
    t->reference = true;
    t->ratio = 1;
    j->reference = id;
    j->reference_us = t->time_us;
}

/* Keeps a copy of a trial until the reference's trial has come. False: no memory. */
static bool outcomes_keep_trial(struct job *j, uint32_t id, const struct trial *t)
{
    struct held_trial **at = &j->held, *h = malloc(sizeof(*h));
    if (!h) {
        return false;
    }
    *h = (struct held_trial){.id = id, .trial = *t};
    while (*at) {
        at = &(*at)->next;
    }
    *at = h;
    return true;
}

static void outcomes_send_held(struct job *j)
{
    for (struct held_trial *h; (h = j->held);) {
        if (strcmp(h->trial.status, "ok") == 0 && isnan(j->reference_us)) {
            outcomes_become_reference(j, h->id, &h->trial);
        }
        h->trial.ratio = h->trial.time_us / j->reference_us;
        j->outcomes[h->id].ratio = h->trial.ratio;
        notice_trial(j, &h->trial);
        j->held = h->next;
        free(h);
    }
}

void job_without_reference(struct job *j)
{
    if (outcomes_awaits_reference(j)) {
        j->reference = PLAN_NONE;
    }
    outcomes_send_held(j);
}

void job_record(struct job *j, const struct candidate *c, struct trial *t)
{
    bool final = strcmp(t->stage, "final") == 0;
    bool early = outcomes_awaits_reference(j) && c->id != j->reference;
    if (strcmp(t->status, "ok") == 0 && isnan(j->reference_us) && !early) {
        /* the reference has failed, and this trial's config becomes the reference */
        outcomes_become_reference(j, c->id, t);
    }
    conditions_note(j->runner->device, t);
    conditions_after(t, j->doubt);
    job_book(j, c->id, t, true);
    struct outcome *o = &j->outcomes[c->id];
    if (!o->out_of_race && !(j->best_us <= o->time_us)) {
        j->best_us = o->time_us;
    }
    if (!final && strcmp(t->stage, "reference") != 0) {
        j->done++;
        j->failed += !o->measured;
    }
    if (!early || !outcomes_keep_trial(j, c->id, t)) {
        notice_trial(j, t);
    }
    if (!outcomes_awaits_reference(j)) {
        outcomes_send_held(j);
    }
    notice_progress(j, final ? "final" : "measure", &c->config);
}

uint32_t job_best_but(const struct job *j, const uint32_t ids[], uint32_t n)
{
    uint32_t best = PLAN_NONE;
    for (uint32_t i = 0; i < j->n_outcomes; i++) {
        const struct outcome *o = &j->outcomes[i];
        bool taken = !o->known || o->out_of_race;
        for (uint32_t k = 0; k < n; k++) {
            taken = taken || ids[k] == i;
        }
        if (!taken && (best == PLAN_NONE || job_score(j, o) < job_score(j, &j->outcomes[best]))) {
            best = i;
        }
    }
    return best;
}

int job_nothing_works(const struct job *j, struct error *err)
{
    const struct tally *most = NULL;
    char counts[160] = "";
    for (uint32_t i = 0, at = 0; i < j->n_tally && at < sizeof(counts); i++) {
        const struct tally *y = &j->tally[i];
        most = !most || y->n > most->n ? y : most;
        at += (uint32_t)snprintf(counts + at, sizeof(counts) - at, "%s%u %s", i ? ", " : "", y->n,
                                 y->status);
    }
    if (!most) {
        char why[80] = "";
        if (j->plan.avoided) {
            snprintf(why, sizeof(why), " (%u of %u in the space are in quarantine)",
                     j->plan.avoided, j->plan.legal);
        }
        return error_set(err, ERROR_NO_CONFIG, "no config was left to measure%s", why);
    }
    return error_set(err, ERROR_NO_CONFIG, "no config works (%s); most common: %s", counts,
                     most->reason);
}
