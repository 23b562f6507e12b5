/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the hosts of a link's conninfo, also from a service file. gemmd-fleet resolves their names
 * by itself, because libpq would block while it resolves a name.
 */
#ifndef GEMMD_FLEET_TARGET_H
#define GEMMD_FLEET_TARGET_H

#include "fleet/link.h"

/* Fills hosts and server. ERROR_INVALID: no conninfo, an unknown service, or a password in the
 * conninfo. */
int target_read(struct link *l, struct error *err);

#endif
