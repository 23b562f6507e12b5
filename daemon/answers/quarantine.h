/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the daemon's list of what is in quarantine (cache/quarantine_set.h) as the ledger has it:
 * read at the start, before each search, and when it was changed here or by another daemon of the
 * database.
 */
#ifndef GEMMD_DAEMON_ANSWERS_QUARANTINE_H
#define GEMMD_DAEMON_ANSWERS_QUARANTINE_H

#include "daemon/daemon.h"

/* Asks the ledger; what it says comes later. At the start nothing is known to be in quarantine
 * until then; and after news may have been missed, what was a row and is none any more is taken
 * out. */
void quarantine_read(struct daemon *d);
/* These are, wherever that happened. */
void quarantine_known(struct daemon *d, char (*variants)[HASH_HEX], uint32_t n);
/* Here at once; at other daemons of the database when it is saved. */
void quarantine_add(struct daemon *d, const struct quarantine *q);
/* Whatever device it was of. False: it was not known here. */
bool quarantine_remove(struct daemon *d, const char *variant);

#endif
