/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands share that show rows of the database. */
#ifndef GEMMD_CLIENT_CTL_LISTING_H
#define GEMMD_CLIENT_CTL_LISTING_H

#include "client/ctl/ctl.h"

struct listing {
    struct ctl ctl;
    struct problems problems;
    const char *what;  /* borrowed: the list's name */
    json_t *filter;    /* owned */
    bool failed;       /* trials: only those */
    const char *clear; /* quarantine: this variant */
    bool unsaved;      /* the named key's own answer, when it was looked for */
};

/* ---- listing.c ------------------------------------------------------------------------------ */

extern const struct argp filter_argp; /* --where, --sort ...; input: struct listing */
/* As --sort does: what is better when larger comes from the best down. */
void listing_sort(struct listing *l, const char *column);
/* Connects, and restricts the filter to the key of the problem that was named, if one was; then
 * `unsaved` is known. */
int listing_find_key(struct listing *l); /* evidence.c */
/* The daemon's `status`, owned. When a key was named, only its own answer counts as unsaved there:
 * that others are is no fault of this listing. NULL and *code on failure. */
json_t *listing_status(struct listing *l, int *code);
/* Frees what it owns, and returns code. */
int listing_end(struct listing *l, int code);

#endif
