/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the landscape reader:
 *
 *   file.c       files, lines, format 1
 *   table.c      format 2
 *   drift.c      corrects the times of format 2
 *   entries.c    entries, from both formats
 *   landscape.c  the complete landscape, sorted
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
    /* n: tunables, the run-time ones last; n_settings: combinations of the run-time ones' values */
    uint32_t n, n_settings;
    struct tunable tunables[PARAMS_MAX];
    uint32_t first_entry;    /* this problem's start in l->entries */
    struct record reference; /* empty: not given */
    double reference_us;
    double walked_ms; /* at_ms of the last variant; only the best configs are measured later */
};

struct reader {
    struct landscape *l;
    struct table *table;  /* owned; of the last problem; NULL: none */
    struct wire_doc *doc; /* owned */
    struct wire_buf buf;
    const char *path;
    unsigned line;
    bool faults_only; /* the file is $GEMMD_REPLAY_FAULTS */
};

/* entries.c: makes room for one more element of an array. */
int reader_grow(void *array, uint32_t n, size_t size, struct error *err);
/* The midmean: the mean of v without its (n + 1) / 4 least and as many greatest values; n is not 0.
 * Sorts v. Launches of 8 us take one of a few times (H200): a median jumps between two of these by
 * 4 %. */
double reader_midmean(double *v, uint32_t n);
/* Reads status, reason and resource: the failure of a config or a variant. */
int reader_failure(struct rejection *why, const struct wire_obj *line, struct error *err);
/* The hash of a config's variant; 0: this build has no kernels for the recorded device. */
uint64_t reader_variant(const struct landscape *l, const struct problem *p,
                        const struct record *config);
/* Appends an entry to the last problem. NULL: no memory. */
struct landscape_entry *reader_entry(struct landscape *l, const struct record *config,
                                     struct error *err);
/* The config's entry, from index `first` on; NULL: not found. */
struct landscape_entry *reader_find(struct landscape *l, uint32_t first,
                                    const struct record *config);
int reader_sample(struct landscape *l, double us, struct error *err);

/* table.c: the lines of format 2 below a problem. */
int table_begin(struct reader *r, const struct wire_obj *line, struct error *err);
/* TABLE_NONE: the line is not of format 2. */
enum { TABLE_NONE = 1 };
int table_read(struct reader *r, const struct wire_obj *line, struct error *err);
/* to be called after the last line of the table's problem */
int table_end(struct reader *r, struct error *err);

/* drift.c: divides the last problem's times by the reference's slowness at that time. */
int drift_correct(struct reader *r, struct error *err);

/* landscape.c: after the last line: sorts, and builds the lists for lookups. */
int landscape_settle(struct landscape *l, struct error *err);

#endif
