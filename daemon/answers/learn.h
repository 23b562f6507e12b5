/* SPDX-License-Identifier: Apache-2.0 */
/* From the ledger's rows to the hot cache, and back. */
#ifndef GEMMD_DAEMON_ANSWERS_LEARN_H
#define GEMMD_DAEMON_ANSWERS_LEARN_H

#include "daemon/daemon.h"

/* A best that the ledger has published, or had: into the cache when it is this class's, and then
 * daemon.learned is told; among the hints (daemon.alike) when it is of a class that is alike. */
void learn_best(struct daemon *d, const struct best *b, bool saved);

/* Whether a row is what a whole search found, and not just the key's known answer (its entry, or
 * NULL) verified again, more tightly. Uses scratch->hint. */
bool learned_is_search(struct daemon *d, const struct cache_entry *known, const struct best *b);

enum { UID_UNKNOWN = -1 };

/* The row that an answer of the cache was made of, but for what is not known any more: its trial,
 * who asked for it (UID_UNKNOWN), the module of what was imported. Uses scratch->answer and
 * other. */
int learned_row(struct daemon *d, const struct cache_entry *e, struct best *out, struct error *err);
/* Whether a key's row (its id) serves by what is in quarantine now. Uses scratch->answer and
 * other. */
void learned_judge(struct daemon *d, const char *key);
/* Whether the key's answer is only in memory; then the newest row of the database, `row` (NULL:
 * there is none), is another. */
bool learned_only(const struct cache_entry *e, const struct best *row);

#endif
