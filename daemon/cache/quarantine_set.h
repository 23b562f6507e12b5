/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The variants in quarantine for this device class and driver, in memory. A variant that crashed or
 * hung a runner serves no problem for which it was not measured, and never the key where the fault
 * happened. Other keys where the variant was verified and measured still serve it, with a doubt. A
 * failing device quarantines every variant that it runs, and must not take correct answers from all
 * daemons. The ledger has the rows; answers/quarantine.c keeps this set up to date.
 */
#ifndef GEMMD_DAEMON_CACHE_QUARANTINE_SET_H
#define GEMMD_DAEMON_CACHE_QUARANTINE_SET_H

#include "kernels/family.h"
#include "proto/hash.h"

struct quarantined {
    char variant[HASH_HEX];
    char key[HASH_HEX]; /* where the fault happened; "": unknown */
    bool saved;         /* the ledger has the row; false: no row is written yet */
};
struct quarantine_set {
    struct quarantined *all; /* owned; one variant may have several keys */
    uint32_t n;
};

void quarantine_set_deinit(struct quarantine_set *x);
/* True: the set has the variant for this key (NULL: any key). */
bool quarantine_set_has(const struct quarantine_set *x, const char *variant, const char *key);
/* Adds a variant. Returns true when the set changed. Without memory the set stays as it was. When
 * the key is unknown, the call adds nothing to a variant that the set has. */
bool quarantine_set_add(struct quarantine_set *x, const char *variant, const char *key, bool saved);
/* Removes a row of the variant and returns the row's key; false: no row. */
bool quarantine_set_take(struct quarantine_set *x, const char *variant, char key[HASH_HEX]);
/* True: this config's variant is in the set for this key's id (NULL: any key). Takes some
 * microseconds; nothing while the set is empty. */
bool quarantine_set_has_config(const struct quarantine_set *x, const char *key,
                               const struct family_target *t, const struct problem *p,
                               const struct record *config, const struct device_info *info);

#endif
