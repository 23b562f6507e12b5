/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands share that show rows of the database. */
#ifndef GEMMD_CLIENT_CTL_LISTING_H
#define GEMMD_CLIENT_CTL_LISTING_H

#include "client/ctl/ctl.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

struct listing {
    struct ctl ctl;
    struct problems problems;
    const char *what;  /* borrowed: the list's name */
    json_t *filter;    /* owned */
    bool failed;       /* trials: only those */
    const char *clear; /* quarantine: this variant */
    json_t *baselines; /* owned; trials: what they are compared with */
};

/* ---- listing.c ------------------------------------------------------------------------------ */

extern const struct argp filter_argp; /* --where, --sort ...; input: struct listing */
/* As --sort does: what is better when larger comes from the best down. */
void listing_sort(struct listing *l, const char *column);
/* Connects, and restricts the filter to the key of the problem that was named, if one was. */
int listing_find_key(struct listing *l); /* evidence.c */
/* Frees what it owns, and returns code. */
int listing_end(struct listing *l, int code);

/* ---- baselines.c ------------------------------------------------------------------------------ */

/* {key: {"name", "ratio"}} of keys that have one; *code as ctl_list's. */
json_t *baselines_fetch(struct listing *l, int *code);
void baselines_apply(const json_t *baselines, json_t *rows);
/* What the rows are compared with, to stderr. */
void baselines_say(const json_t *rows);

/* ---- rows.c --------------------------------------------------------------------------------- */

bool rows_known(const char *what);
/* Adds the derived columns, shows the rows, and takes them over. */
int rows_show(const struct listing *l, json_t *rows);
void rows_derive_best(json_t *row);

#endif
