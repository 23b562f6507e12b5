/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the daemon's list of what is in quarantine (cache/barred.h) as the ledger has it: read at
 * the start, before each search and after news may have been missed; told to the other daemons of
 * the database when it changes.
 */
#ifndef GEMMD_DAEMON_ANSWERS_QUARANTINE_H
#define GEMMD_DAEMON_ANSWERS_QUARANTINE_H

#include "daemon/answers/daemon.h"

/* Asks the ledger; what it says comes later. At the start nothing is known to be in quarantine
 * until then; and after news may have been missed, what was a row and is none any more is taken
 * out. */
void quarantine_read(struct daemon *d);
/* These are, wherever that happened. */
void quarantine_known(struct daemon *d, char (*variants)[HASH_HEX], uint32_t n);
/* Here, and at all daemons of the database that have such a device and driver. */
void quarantine_add(struct daemon *d, const struct quarantine *q);
/* Whatever device it was of. False: it was not known here. */
bool quarantine_remove(struct daemon *d, const char *variant);
/* The keeper's, when another daemon follows it: tells what nobody has written yet, and he could
 * read nowhere. */
void quarantine_tell_unsaved(struct daemon *d);
/* What a daemon said (ledger/ledger.h: tell). */
void quarantine_heard(struct daemon *d, const struct wire_obj *said);

#endif
