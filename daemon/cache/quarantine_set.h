/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The variants in quarantine here (this class of device, this driver), in memory. What has crashed
 * or hung a runner is given to nobody for whose problem it was not measured; and a key where it did
 * so has no answer in it any more. Where it was verified and measured it goes on answering, with a
 * doubt: a device that is failing puts into quarantine whatever is tried on it, and all its daemons
 * would lose what they know to be right. The ledger has the list; answers/quarantine.c keeps this
 * one up to date.
 */
#ifndef GEMMD_DAEMON_CACHE_QUARANTINE_SET_H
#define GEMMD_DAEMON_CACHE_QUARANTINE_SET_H

#include "kernels/family.h"
#include "proto/hash.h"

struct quarantined {
    char variant[HASH_HEX];
    char key[HASH_HEX]; /* where it happened; "": not known */
    bool saved;         /* a row of the ledger: else only news */
};
struct quarantine_set {
    struct quarantined *all; /* owned; a variant may be there for several keys */
    uint32_t n;
};

void quarantine_set_deinit(struct quarantine_set *x);
/* Whether a variant is there, for this key (NULL: any). */
bool quarantine_set_has(const struct quarantine_set *x, const char *variant, const char *key);
/* Whether the list is another one now. Without memory it stays as it was. A key that is not known
 * adds nothing to a variant that is there. */
bool quarantine_set_add(struct quarantine_set *x, const char *variant, const char *key, bool saved);
/* Takes a variant out for one key; false: it is there for none. */
bool quarantine_set_take(struct quarantine_set *x, const char *variant, char key[HASH_HEX]);
/* Whether this config's variant is among them; or is so for a key (its id; NULL: any). Some
 * microseconds, and nothing while there are none. */
bool quarantine_set_has_config(const struct quarantine_set *x, const char *key,
                               const struct family_target *t, const struct problem *p,
                               const struct record *config, const struct device_info *info);

#endif
