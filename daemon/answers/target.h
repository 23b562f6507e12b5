/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which target does what, as the daemon sees it (kernels/family.h has the rule), and what rows of
 * which target and stamp are worth here.
 */
#ifndef GEMMD_DAEMON_ANSWERS_TARGET_H
#define GEMMD_DAEMON_ANSWERS_TARGET_H

#include "daemon/daemon.h"
#include "proto/request.h"

/* The target that does a problem here: `label`, or when it is NULL or "" the device's own choice
 * (family_target_choose). ERROR_NO_CONFIG, ERROR_INVALID. */
int target_choose(const struct daemon *d, const struct problem *p, const char *label,
                  const struct family_target **out, struct error *err);
/* family_stamp of this device, remembered: it hashes the whole source. Borrowed. */
const char *target_stamp(struct daemon *d, const struct family *f, const struct family_target *t);
/* Whether an answer is of this target, as far as its stamp says (of others' results it says
 * nothing); any is of "". */
bool target_is_of(const struct answer *a, const char *label);
/* Whether a row with this stamp was measured with today's kernels. */
bool target_is_of_today(struct daemon *d, const struct problem *p, const char *stamp);
/* What a query's `target` comes to: checked, filled in when only given configs say it, and cleared
 * when it is the device's own choice anyway, so that such a query is no other than one without.
 * Not cleared while the key is pinned to a config of another target: that is not what was asked
 * for. r->problem may be the true problem; e: the key's entry, or NULL. */
int target_settle(struct daemon *d, struct request *r, const struct cache_entry *e,
                  struct error *err);
/* Whether a row answers, or is only worth trying first: one whose kernel went into quarantine at
 * its own key does not. */
enum cache_rank target_rank(struct daemon *d, const struct answer *a, const struct problem *bucket);
/* Whether an answer's variant is in quarantine, for what it did at that key (NULL: at any). */
bool target_is_quarantined(const struct daemon *d, const char *key, const struct answer *a,
                           const struct problem *p);

/* ---- precheck.c ------------------------------------------------------------------------------ */

/* What can be known to fail before a runner is troubled with it. */

/* ERROR_NO_CONFIG: nobody tunes this op here, or no config is valid; ERROR_NO_COMPILER; what is
 * wrong with the given configs when all are; ERROR_UNKNOWN_FIELD: a restriction on no tunable;
 * ERROR_INVALID: one to values of another type. */
int precheck_request(struct daemon *d, const struct request *r /* problem = bucket */,
                     struct error *err);
/* The dear part of it: whether any config is valid at all. For background jobs, of which hundreds
 * may be asked for at once, it is enough to know when they begin. */
int precheck_space(struct daemon *d, const struct request *r, struct error *err);

/* ---- scheme.c -------------------------------------------------------------------------------- */

/*
 * The bucket scheme belongs to the database: keys made under one scheme mean nothing under another.
 * It is written down as the database's first event (kind "bucket_scheme"), and what is asked for
 * must agree with it.
 */

/* Sets daemon.scheme, then calls back: 0, or ERROR_INVALID (the setting is not what the database
 * has) and others. */
int scheme_settle(struct daemon *d,
                  void (*done)(struct daemon *d, int status, const struct error *err),
                  struct error *err);

#endif
