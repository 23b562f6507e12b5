/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bests that the store would not take, on the writer thread: kept in memory under the generation
 * that the store has reserved for them, and tried again every RETRY_MS and at the end.
 */
#ifndef GEMMD_DAEMON_LEDGER_UNSAVED_H
#define GEMMD_DAEMON_LEDGER_UNSAVED_H

#include "daemon/ledger_home.h"

void unsaved_keep(struct local *l, struct request *r);
bool unsaved_has(const struct local *l, int64_t generation);
/* Of a key; NULL: there is none. Borrowed. */
const struct unsaved *unsaved_newest(const struct local *l, const char *key);
int unsaved_read(struct local *l, const struct unsaved *u, struct best *out, struct error *err);
/* Forgets those of a key, or (NULL) the first. Returns how many. */
int64_t unsaved_drop(struct local *l, const char *key);
int unsaved_save(struct local *l, struct error *err); /* all of them, or a fault */

#endif
