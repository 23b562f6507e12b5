/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of the shared ledger while another daemon is the keeper, or nobody yet
 * (follow.h): it is asked.
 *
 * When it is silent: a best is served from memory, `saved` false and of no generation yet, counted
 * as unsaved, and delivered later, as are all rows. A lease is not had, so that a key may be tuned
 * twice rather than not at all. The status is what the file and this daemon know. What a person
 * asked for (evict, unpin, unquarantine) is refused.
 */
#ifndef GEMMD_DAEMON_LEDGER_ASK_H
#define GEMMD_DAEMON_LEDGER_ASK_H

#include "daemon/ledger/follow.h"

extern const struct ledger_ops ledger_ask_ops; /* without start and stop */

#endif
