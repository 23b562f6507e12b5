/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the target (a family's kernels for a kind of device) for a problem, by the rule of
 * kernels/family.h, and ranks rows by their target and stamp.
 */
#ifndef GEMMD_DAEMON_ANSWERS_TARGET_H
#define GEMMD_DAEMON_ANSWERS_TARGET_H

#include "daemon/daemon.h"
#include "proto/request.h"

/* Chooses the target for a problem: `label`, or the device's own choice (family_target_choose) when
 * `label` is NULL or "". ERROR_NO_CONFIG, ERROR_INVALID. */
int target_choose(const struct daemon *d, const struct problem *p, const char *label,
                  const struct family_target **out, struct error *err);
/* Returns the stamp of this target's kernels on this device. It is computed once, since it hashes
 * the whole source. Borrowed. */
const char *target_stamp(struct daemon *d, const struct family *f, const struct family_target *t);
/* Returns the stamp of the kernels that a request's search measures; "": there are none. */
const char *target_stamp_of(struct daemon *d, const struct request *r);
/* True when the answer's stamp names the target `label`, or no target. Also true for label "". */
bool target_is_of(const struct answer *a, const char *label);
/* True when the stamp is the stamp of the kernels and the compiler that this daemon has. */
bool target_is_of_today(struct daemon *d, const struct problem *p, const char *stamp);
/* True when the stamp is of the source, launch ABI and target of the problem's kernels today. */
bool target_has_kernels(struct daemon *d, const struct problem *p, const char *stamp);
/* Settles a query's `target`: checks the name, or fills in the target of given configs. Clears the
 * target when the device chooses the same, so that the query equals a query without a target. A
 * forced target stays when the key is pinned to a config of another target. r->problem may be the
 * unrounded problem; e: the key's entry, or NULL. */
int target_settle(struct daemon *d, struct request *r, const struct cache_entry *e,
                  struct error *err);
/* Ranks an answer's row: whether it serves its key or is only a hint. A row is a hint when its
 * variant is quarantined for a fault at the row's own key. */
enum cache_rank target_rank(struct daemon *d, const struct answer *a, const struct problem *bucket);
/* True when the answer's variant is quarantined for a fault at `key` (NULL: at any key). */
bool target_is_quarantined(const struct daemon *d, const char *key, const struct answer *a,
                           const struct problem *p);
/* True when another host of the fleet has the answer's variant in quarantine, and this host has
 * not. */
bool target_is_doubted(const struct daemon *d, const struct answer *a, const struct problem *p);

/* Checks a request without a runner. ERROR_NO_CONFIG: the op has no kernels, or no config is valid.
 * ERROR_NO_COMPILER. When all configs that the request gives are invalid: the error of the first.
 * ERROR_UNKNOWN_FIELD: a restriction of an unknown tunable. ERROR_INVALID: a restriction to values
 * of another type. */
int precheck_request(struct daemon *d, const struct request *r /* r->problem is the bucket */,
                     struct error *err);
/* The expensive check, that at least one config is valid. Hundreds of background jobs may be queued
 * at once, so they run this check only when they begin. */
int precheck_space(struct daemon *d, const struct request *r, struct error *err);

/* ---- scheme.c -------------------------------------------------------------------------------- */

/*
 * The bucket scheme belongs to the database, since keys of different schemes do not compare. The
 * database's first event (kind "bucket_scheme") records the scheme, and the setting `bucket` of
 * each daemon must agree.
 */

/* Sets daemon.scheme, then calls back with 0 or an error. ERROR_INVALID: the setting differs from
 * the database's scheme. */
int scheme_settle(struct daemon *d,
                  void (*done)(struct daemon *d, int status, const struct error *err),
                  struct error *err);

#endif
