/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that link.c and query.c share. */
#ifndef GEMMD_FLEET_LINK_INNER_H
#define GEMMD_FLEET_LINK_INNER_H

#include "fleet/link.h"

/* Ends the connection and starts the pause before the next attempt. `slowly`: the longest pause,
 * for a refusal that will not change soon. */
void link_fail(struct link *l, const char *why, bool slowly);
void link_unwatch(struct link *l);
bool link_watch(struct link *l, int events);
void link_go_on_query(struct link *l); /* the socket is readable or writable */

#endif
