/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands share that show rows of the database: which rows, their columns, and what is
 * read off them beside. */
#ifndef GEMMD_CLIENT_CTL_LISTING_H
#define GEMMD_CLIENT_CTL_LISTING_H

#include "client/ctl/ctl.h"

/* ---- listing.c ------------------------------------------------------------------------------ */

extern const struct argp filter_argp; /* --where, --sort ... */
/* As --sort does: what is better when larger comes from the best down. */
void listing_sort(struct subject *s, const char *column);
/* Connects, and restricts the filter to the key of the problem that was named, if one was; then
 * `unsaved` is known. */
int listing_find_key(struct subject *s); /* evidence.c */
/* The daemon's `status`, owned. When a key was named, only its own answer counts as unsaved there:
 * that others are is no fault of this listing. NULL and *code on failure. */
json_t *listing_status(struct subject *s, int *code);

/* ---- baselines.c ----------------------------------------------------------------------------- */

/* {key: {"name", "ratio"}} of keys that have one, or of the one `key` (may be NULL); *code as
 * ctl_list's. */
json_t *baselines_fetch(struct ctl *c, const json_t *key, int *code);
/* Trials, and the baselines of their keys: with `sort` "-speedup" by what they are compared with
 * here. NULL as ctl_list's; *baselines is the caller's in any case. */
json_t *baselines_list(struct ctl *c, const json_t *filter, json_t **baselines, int *code);
void baselines_apply(const json_t *baselines, json_t *rows);
/* What the rows are compared with, to stderr. */
void baselines_say(const json_t *rows);

/* ---- rows.c --------------------------------------------------------------------------------- */

bool rows_known(const char *what);
/* Adds the derived columns, and of trials what they are compared with (may be NULL), shows the rows
 * of the list `what`, and takes them over. */
int rows_show(const struct ctl *c, const char *what, const json_t *baselines, json_t *rows);
void rows_derive_best(json_t *row);

#endif
