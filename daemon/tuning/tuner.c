/* SPDX-License-Identifier: Apache-2.0 */
/* Trials of the running job (tuning.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/tuning/tuning.h"

bool tuning_worked(const struct trial *t)
{
    return strcmp(t->status, "ok") == 0 || strcmp(t->status, "aborted") == 0;
}

void tuning_record(struct tuner *x, struct job *j, struct trial *t)
{
    struct daemon *d = x->daemon;
    memcpy(t->key, j->key, sizeof(t->key));
    memcpy(t->stamp, j->trial_stamp, sizeof(t->stamp));
    t->created_s = time(NULL);
    d->ledger->ops->add_trial(d->ledger, t);
    if (!tuning_worked(t)) {
        memcpy(j->failed_variant, t->variant, sizeof(j->failed_variant));
    } else {
        j->failed_variant[0] = 0;
    }
    t->samples_us.n = 0;
    tuning_remember(j, t);
}

void tuning_avoid(struct job *j, const char *variant)
{
    for (uint32_t i = 0; i < j->n_avoid; i++) {
        if (strcmp(j->avoid[i], variant) == 0) {
            return;
        }
    }
    char(*grown)[HASH_HEX] = realloc(j->avoid, (j->n_avoid + 1) * sizeof(*grown));
    if (grown) {
        j->avoid = grown;
        snprintf(j->avoid[j->n_avoid++], HASH_HEX, "%s", variant);
    }
}
