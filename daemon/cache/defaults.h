/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Analytic defaults, remembered. A family's choose() is a pure function of problem and device, but
 * it goes through a good part of its space: some hundred microseconds in which nobody else is
 * answered. Training jobs ask for the same problems on every rank, so most misses find their
 * default here.
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
    double us;       /* as the model predicts; 0: it was not asked */
};

struct defaults {
    const struct device_info *device;            /* borrowed */
    const struct quarantine_set *quarantine_set; /* borrowed */
    struct wire_doc *doc;                        /* borrowed: for reading slots back */
    struct defaults_slot *slots;                 /* owned; made with the first */
    struct key key;                              /* scratch */
};

void defaults_init(struct defaults *x, const struct device_info *device,
                   const struct quarantine_set *quarantine_set, struct wire_doc *doc);
/* Nothing is remembered any more, or kept: another default is to be chosen, where one's variant is
 * in quarantine now. */
void defaults_forget(struct defaults *x);
/* As target->choose, and with the time that the model predicts for it (us NULL: not wanted); where
 * that is in quarantine, the fastest by the model of those configs that differ from it in one
 * parameter and are not. When there is none it stays what it is. */
int defaults_choose(struct defaults *x, const struct family_target *t, const struct problem *p,
                    struct record *config, double *us, struct error *err);

#endif
