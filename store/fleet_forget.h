/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that become void with another server, and hosts of which rows failed.
 */
#ifndef GEMMD_STORE_FLEET_FORGET_H
#define GEMMD_STORE_FLEET_FORGET_H

#include "store/store.h"

/* Forgets numbers of the fleet: all numbers (another fleet), or the numbers of this host's
 * rows (the server may have lost rows). This host's rows then count as not published. */
int store_fleet_forget(struct store *s, bool own_only, struct error *err);
/* Reads the hosts of which at least `least` rows failed here. */
int store_fleet_list_wrong(struct store *s, int64_t least, char (*out)[64], uint32_t max,
                           uint32_t *n, struct error *err);

#endif
