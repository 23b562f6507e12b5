/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops that gemmd only keeps ("custom:<name>"): whose row answers whom. A row that a user puts is
 * his own: its bucket carries his uid as the field `user`, so that it has a key of its own and
 * answers nobody else, until the daemon's owner promotes it to the key without that field, which
 * answers all. And how many keys users may have kept.
 */
#ifndef GEMMD_DAEMON_ANSWERS_CUSTOM_H
#define GEMMD_DAEMON_ANSWERS_CUSTOM_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/problem.h"

struct cache_entry;
struct daemon;

#define CUSTOM_USER "user"

enum custom_use {
    CUSTOM_READ, /* the caller's own key when it is known, else the shared one when that is */
    CUSTOM_WRITE /* the caller's own key */
};

bool custom_is(const struct problem *p); /* an op that gemmd only keeps */
bool custom_is_owner(int64_t uid);       /* root or the daemon's user */
/* Whether a row that was put may answer this user: the user's own, or the owner's. */
bool custom_answers(const struct cache_entry *e, int64_t uid);
/* daemon_key for a caller: scratch->bucket and key (without id) of scratch->request.problem, which
 * for custom ops becomes the caller's own problem, or the shared one. ERROR_DENIED: it names
 * another user. */
int custom_key(struct daemon *d, int64_t uid, enum custom_use use, struct error *err);
/* Whether a user may have this key (its id) kept: it is known, counted already, or there is room
 * for one more (--max-keys), also in the user's share (--user-keys). For all ops. ERROR_DENIED. */
int custom_check_room(const struct daemon *d, const char *id, int64_t uid, struct error *err);
/* The same, before trials of the key are kept: it counts from now on (`counted`: it had to be),
 * until custom_took_room says that none was. ERROR_NO_MEMORY, too. */
int custom_take_room(struct daemon *d, const char *id, int64_t uid, bool *counted,
                     struct error *err);
void custom_took_room(struct daemon *d, const char *id, bool kept);
/* Whether a user may evict this key: it is the owner, or the key holds what the user has put or
 * recorded. `p`: the problem of that key, when it is known; else NULL. ERROR_DENIED. */
int custom_check_evict(struct daemon *d, const char *id, const struct problem *p, int64_t uid,
                       struct error *err);
/* The problem that answers all, of one of a user. False: it is that one already. */
bool custom_share(struct problem *p);

#endif
