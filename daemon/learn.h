/* SPDX-License-Identifier: Apache-2.0 */
/* From the ledger's rows to the hot cache. */
#ifndef GEMMD_DAEMON_LEARN_H
#define GEMMD_DAEMON_LEARN_H

#include "daemon/daemon.h"

/* A best that the ledger has published, or had: into the cache when it is this class's. Then
 * daemon.learned is told. */
void learn_best(struct daemon *d, const struct best *b, bool saved);

#endif
