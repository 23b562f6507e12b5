/* SPDX-License-Identifier: Apache-2.0 */
/* Trials that came before the reference's. The reference is often among the slowest kernels to
 * compile, so ready candidates are measured before it. Their trials have no ratio yet: they are
 * held until the reference has a time, or will not get a time. A process that dies meanwhile loses
 * these few trials. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runner/job_inner.h"

bool job_awaits_reference(const struct job *j)
{
    return isnan(j->reference_us) && j->reference != PLAN_NONE && !j->outcomes[j->reference].here;
}

void job_become_reference(struct job *j, uint32_t id, struct trial *t)
{
    t->reference = true;
    t->ratio = 1;
    j->reference = id;
    j->reference_us = t->time_us;
}

bool job_hold(struct job *j, uint32_t id, const struct trial *t)
{
    if (j->n_held == j->room_held) {
        uint32_t room = j->room_held ? 2 * j->room_held : 16;
        struct held_trial *held = realloc(j->held, room * sizeof(*held));
        if (!held) {
            return false;
        }
        j->held = held;
        j->room_held = room;
    }
    j->held[j->n_held++] = (struct held_trial){id, *t};
    return true;
}

void job_send_held(struct job *j)
{
    for (uint32_t i = 0; i < j->n_held; i++) {
        struct held_trial *h = &j->held[i];
        if (strcmp(h->trial.status, "ok") == 0 && isnan(j->reference_us)) {
            job_become_reference(j, h->id, &h->trial);
        }
        h->trial.ratio = h->trial.time_us / j->reference_us;
        j->outcomes[h->id].ratio = h->trial.ratio;
        notice_trial(j, &h->trial);
    }
    j->n_held = 0;
}

void job_without_reference(struct job *j)
{
    if (job_awaits_reference(j)) {
        j->reference = PLAN_NONE;
    }
    job_send_held(j);
}
