/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the store would not take and must not be lost, on the writer thread: tried again every
 * RETRY_MS and at the end. Bests get their generation when they are saved; rows of quarantine are
 * kept, since a kernel that hung the device is not to do it again after a restart.
 */
#ifndef GEMMD_DAEMON_LEDGER_UNSAVED_H
#define GEMMD_DAEMON_LEDGER_UNSAVED_H

#include "daemon/ledger/local.h"

void unsaved_keep(struct local *l, struct request *r);
/* Of a key, the last that was offered; NULL: there is none. Borrowed. */
const struct unsaved *unsaved_newest(const struct local *l, const char *key);
int unsaved_read(struct local *l, const struct unsaved *u, struct best *out, struct error *err);
/* Forgets those of a key, or (NULL) the first. Returns how many. */
int64_t unsaved_drop(struct local *l, const char *key);
/* Takes the row of a request. */
void unsaved_keep_quarantine(struct local *l, struct request *r);
/* Forgets the rows of a variant, or (NULL) all. Returns how many. */
int64_t unsaved_drop_quarantine(struct local *l, const char *variant);
int64_t unsaved_count_quarantine(const struct local *l); /* how many there are */
bool unsaved_any(const struct local *l);
int unsaved_save(struct local *l, struct error *err); /* all of them, or a fault */

#endif
