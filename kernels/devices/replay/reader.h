/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading landscapes, inside:
 *
 *   file.c       files, their lines, those of format 1
 *   table.c      lines of format 2
 *   drift.c      its times, corrected
 *   entries.c    what all of these make
 *   landscape.c  the whole, in order
 */
#ifndef GEMMD_KERNELS_DEVICES_REPLAY_READER_H
#define GEMMD_KERNELS_DEVICES_REPLAY_READER_H

#include "kernels/devices/replay/replay.h"

/* A problem of format 2 while its lines are read. */
enum { SETTINGS_MAX = 4096 };

struct tunable {
    char name[RECORD_NAME_MAX];
    bool run_time;
    uint32_t n;
    struct value values[PARAM_VALUES_MAX]; /* texts are owned */
};

struct table {
    uint32_t n, n_settings; /* tunables; products of those at run time, which are last */
    struct tunable tunables[PARAMS_MAX];
    uint32_t first_entry;    /* of this problem in the landscape */
    struct record reference; /* empty: not said */
    double reference_us;
    double walked_ms; /* when the last variant was measured */
};

struct reader {
    struct landscape *l;
    struct table *table;  /* owned; of the last problem; NULL: it has none */
    struct wire_doc *doc; /* owned */
    struct wire_buf buf;
    const char *path;
    unsigned line;
    bool faults_only; /* an overlay */
};

/* entries.c: room for one more element of an array. */
int reader_grow(void *array, uint32_t n, uint32_t *room, size_t size, struct error *err);
double reader_median(double *v, uint32_t n); /* sorts v; n is small, not 0 */
/* Status, reason, resource of a line: what a config or a variant failed with. */
int reader_failure(struct rejection *why, const struct wire_obj *line, struct error *err);
/* The hash of a config's variant; 0: this build has no kernels for the recorded device. */
uint64_t reader_variant(const struct landscape *l, const struct problem *p,
                        const struct record *config);
/* A new entry of the last problem, which is returned; NULL: no memory. */
struct landscape_entry *reader_entry(struct landscape *l, const struct record *config,
                                     struct error *err);
/* The entry of a config, from the first-th on; NULL: none. */
struct landscape_entry *reader_find(struct landscape *l, uint32_t first,
                                    const struct record *config);
int reader_sample(struct landscape *l, double us, struct error *err);

/* table.c: the lines of format 2 below a problem. */
int table_begin(struct reader *r, const struct wire_obj *line, struct error *err);
/* TABLE_NONE: it is none of these. */
enum { TABLE_NONE = 1 };
int table_read(struct reader *r, const struct wire_obj *line, struct error *err);
int table_end(struct reader *r, struct error *err); /* after the last line of its problem */

/* drift.c: corrects the times of the last problem by what the reference did meanwhile. */
int drift_correct(struct reader *r, struct error *err);

/* landscape.c: all has been read: sorts, and lists what is looked up often. */
int landscape_settle(struct landscape *l, struct error *err);

#endif
