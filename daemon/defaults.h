/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Analytic defaults, remembered. A family's choose() is a pure function of problem and device, but it
 * goes through a good part of its space: some hundred microseconds in which nobody else is answered.
 * Training jobs ask for the same problems on every rank, so most misses find their default here.
 */
#ifndef GEMMD_DAEMON_DEFAULTS_H
#define GEMMD_DAEMON_DEFAULTS_H

#include "kernels/family.h"

enum { DEFAULTS_SLOTS = 1024 };

struct defaults_slot {
    char key[HASH_HEX];
    uint32_t len;
    uint8_t *config; /* owned: packed */
};

struct defaults {
    struct defaults_slot *slots; /* owned; made with the first */
};

void defaults_deinit(struct defaults *x);

struct daemon;
/* As target->choose. */
int defaults_choose(struct daemon *d, const struct family_target *t, const struct problem *p,
                    struct record *config, struct error *err);

#endif
