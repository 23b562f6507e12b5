/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache of analytic defaults. A target's choose() is a pure function of problem and device. It
 * searches a good part of the space: some hundred microseconds in which the loop answers no client.
 * All ranks of a training job ask for the same problems, so most misses find their default here.
 */
#ifndef GEMMD_DAEMON_CACHE_DEFAULTS_H
#define GEMMD_DAEMON_CACHE_DEFAULTS_H

#include "daemon/cache/quarantine_set.h"
#include "kernels/family.h"
#include "proto/problem.h"
#include "proto/wire.h"

enum { DEFAULTS_SLOTS = 1024 };

struct defaults_slot {
    char key[HASH_HEX];
    uint32_t len;
    uint8_t *config; /* owned: packed */
    double us;       /* time that the model predicts; 0: the model was not asked yet */
};

struct defaults {
    const struct device_info *device;            /* borrowed */
    const struct quarantine_set *quarantine_set; /* borrowed */
    struct wire_doc *doc;                        /* borrowed: decodes the slots' configs */
    struct defaults_slot *slots;                 /* owned; made at the first use */
    struct key key; /* scratch: the key of a problem that is looked up */
};

void defaults_init(struct defaults *x, const struct device_info *device,
                   const struct quarantine_set *quarantine_set, struct wire_doc *doc);
/* Forgets all defaults and frees the slots. Call when the quarantine changes, since a change may
 * lead to other choices. */
void defaults_forget(struct defaults *x);
/* As target->choose; *us receives the time that the model predicts for the config (us NULL: not
 * wanted). A choice in quarantine is replaced: among the configs that differ from it in one
 * parameter and are not in quarantine, the model's fastest is taken. When there is none, the choice
 * stays. */
int defaults_choose(struct defaults *x, const struct family_target *t, const struct problem *p,
                    struct record *config, double *us, struct error *err);

#endif
