/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The variants in quarantine for this device class and driver, in memory. A variant that crashed or
 * hung a runner serves no problem for which it was not measured, and never the key where the fault
 * happened. Other keys where the variant was verified and measured still serve it, with a doubt.
 * Else a single failing device, on which every variant crashes, would take correct answers from all
 * daemons. The ledger has the rows; answers/quarantine.c keeps this set up to date.
 */
#ifndef GEMMD_DAEMON_CACHE_QUARANTINE_SET_H
#define GEMMD_DAEMON_CACHE_QUARANTINE_SET_H

#include "kernels/family.h"
#include "proto/hash.h"

struct quarantined {
    char variant[HASH_HEX];
    char key[HASH_HEX]; /* key at which the variant crashed or hung; "": unknown */
    bool saved;         /* the ledger has a row of it; false: the row is not written yet */
};
struct quarantine_set {
    struct quarantined *all; /* owned: one element for each variant and key */
    uint32_t n;
};

void quarantine_set_deinit(struct quarantine_set *x);
/* True: the set has the variant for this key (NULL: any key). */
bool quarantine_set_has(const struct quarantine_set *x, const char *variant, const char *key);
/* Adds a variant with the key of its fault. Returns true when the set changed; without memory it
 * stays as it was. With key "" (unknown) a variant that the set has already is not added again. */
bool quarantine_set_add(struct quarantine_set *x, const char *variant, const char *key, bool saved);
/* Removes one element of the variant, and copies its key to `key`. False: the set has none. */
bool quarantine_set_take(struct quarantine_set *x, const char *variant, char key[HASH_HEX]);
/* True when this config's variant is in the set for a fault at `key` (an id; NULL: at any key).
 * Takes some microseconds, but no time while the set is empty. */
bool quarantine_set_has_config(const struct quarantine_set *x, const char *key,
                               const struct family_target *t, const struct problem *p,
                               const struct record *config, const struct device_info *info);

#endif
