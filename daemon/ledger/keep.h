/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of the shared ledger as the keeper (follow.h): its own home does them, and what
 * it has changed is told before it is answered. */
#ifndef GEMMD_DAEMON_LEDGER_KEEP_H
#define GEMMD_DAEMON_LEDGER_KEEP_H

#include "daemon/ledger/follow.h"

extern const struct ledger_ops ledger_keep_ops; /* without start and stop */

#endif
