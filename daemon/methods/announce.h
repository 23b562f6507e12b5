/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Announcements: sessions that asked by `subscribe` are told when a key gets an answer, or a newer
 * one, whichever daemon of the database found it. Each hears of what it could be answered: others'
 * rows of custom ops it does not. Who does not read is told nothing more, until he does.
 */
#ifndef GEMMD_DAEMON_METHODS_ANNOUNCE_H
#define GEMMD_DAEMON_METHODS_ANNOUNCE_H

#include <stdbool.h>

struct best;
struct daemon;
struct list;

void announce(struct daemon *d, struct list *subscribers, const struct best *b, bool saved);
void announce_stop(struct list *subscribers); /* nobody is told anything any more */

#endif
