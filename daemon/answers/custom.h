/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Custom ops ("custom:<name>"), which gemmd only keeps: row ownership and limits. A user's `put`
 * belongs to the user: the bucket carries the uid as the field `user`, so the row has its own key
 * and answers only that user. The daemon's owner may promote the row to the shared key: the key of
 * the problem without that field, which answers all users. The number of keys that users may add is
 * limited here.
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
    CUSTOM_READ, /* a query: the caller's own key if it has an answer, else the shared key */
    CUSTOM_WRITE /* a new row: the caller's own key */
};

bool custom_is(const struct problem *p); /* true when gemmd has no kernels for the op */
bool custom_is_owner(int64_t uid);       /* true for root and the daemon's user */
/* True when a row from `put` may answer this user: the row is the user's or the owner's. */
bool custom_answers(const struct cache_entry *e, int64_t uid);
/* daemon_key for a caller: sets scratch->bucket and key (without id) from scratch->request.problem.
 * For a custom op the problem gets the caller's uid as the field `user`, or becomes the shared
 * problem, as `use` says. ERROR_DENIED: the problem names another user. */
int custom_key(struct daemon *d, int64_t uid, enum custom_use use, struct error *err);
/* Checks that a user may add this key (an id). Passes when the cache has the key, when the key
 * counts already, or when --max-keys and the user's share (--user-keys) leave room. This holds for
 * all ops, not only for custom ops. ERROR_DENIED. */
int custom_check_room(const struct daemon *d, const char *id, int64_t uid, struct error *err);
/* Calls custom_check_room, then counts the key at once, so that the next check includes it.
 * *counted true: call custom_took_room when they are written; without a written trial (`kept`
 * false) the key no longer counts. Also ERROR_NO_MEMORY. */
int custom_take_room(struct daemon *d, const char *id, int64_t uid, bool *counted,
                     struct error *err);
void custom_took_room(struct daemon *d, const char *id, bool kept);
/* Checks that a user may evict this key. The daemon's owner may evict every key; another user may
 * evict keys whose rows this user put or recorded. `p`: the key's problem if known, else NULL.
 * ERROR_DENIED. */
int custom_check_evict(struct daemon *d, const char *id, const struct problem *p, int64_t uid,
                       struct error *err);
/* Removes the field `user` from a problem, so that it is the shared problem. False: it was. */
bool custom_share(struct problem *p);

#endif
