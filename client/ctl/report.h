/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `gemmctl report`: the daemon's results as one HTML file with drawings, for a browser without a
 * network and without scripts.
 *
 *   report.c          the command: options, and the order of the sections
 *   report_sections.c sections that are tables
 *   report_rows.c     reads the answers page by page, and sums them up
 *   report_layers.c   sums of the answers of each layer of a model
 *   report_history.c  what changed between two generations
 *   report_keys.c     the trials of single keys
 *   report_page.c     the HTML: escaping, tables, style
 *   report_svg.c      the drawings
 *
 * A database may have 100,000 keys. The report holds sums of all rows, and only those rows that it
 * shows.
 */
#ifndef GEMMD_CLIENT_CTL_REPORT_H
#define GEMMD_CLIENT_CTL_REPORT_H

#include <stdio.h>

#include "client/ctl/ctl.h"

/* ---- report_page.c --------------------------------------------------------------------------- */

struct page {
    FILE *out; /* owned, as are the text that it writes and its length */
    char *text;
    size_t length;
};
/* 0, or FAILED after the error message. */
int page_open(struct page *p, const char *title);
/* Ends the document. The whole text, malloc'ed; NULL when there was no memory for it. */
char *page_close(struct page *p);

/* The only way into the file. printf with %s, %d, %lld, %zu, %f and %.*f. The format is markup;
 * every %s is escaped, so texts of other users cannot become markup. */
void page_print(struct page *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints `before`, then "2 tuned, 1 manual" of {name: count}; nothing without counts. */
void page_print_counts(struct page *p, const char *before, const json_t *counts);
void page_begin_section(struct page *p, const char *id, const char *title);
void page_end_section(struct page *p);
/* A table of JSON rows, with table.c's columns: optional columns without a value are left out. The
 * column with the key "floor_percent" has bars. Without rows nothing is printed. */
void page_print_table(struct page *p, const struct column *columns, size_t n, const json_t *rows);

/* ---- report_svg.c ---------------------------------------------------------------------------- */

/* A bar from 0 to 100 per cent. */
void svg_print_bar(struct page *p, double percent);
/* Columns with their counts; `labels` stand below. */
void svg_print_histogram(struct page *p, const char *title, const char *const labels[],
                         const size_t counts[], size_t n);

/* A trial in a drawing. */
struct dot {
    double us; /* 0: the trial has no time */
    int tile;  /* index of its tile; -1: the config has no tile */
    bool is_ok, is_final, is_winner;
    bool begins_run;     /* the trial before is of another run */
    const char *config;  /* borrowed: one line */
    const char *failure; /* borrowed: status and reason */
};
struct drawing {
    const struct dot *dots; /* borrowed: in the order of the search */
    size_t n;
    const char *const *tiles; /* borrowed: names of the tiles */
    size_t n_tiles;
    double reference_us, floor_us; /* 0: not known */
};
/* Time against tile, and time against the order of the search. */
void svg_print_landscape(struct page *p, const struct drawing *d);
void svg_print_path(struct page *p, const struct drawing *d);

/* ---- report_layers.c ------------------------------------------------------------------------- */

/* Sums over answers. A time without a floor, or without a reference, is left out of that sum. */
struct sums {
    size_t keys, doubted;
    size_t with_speedup, with_floor;
    double log_speedup;
    double time_us, floor_us; /* sums over keys with a floor */
    double loss_us;           /* time above the floor; a key below its floor adds nothing */
};
void sums_add_row(struct sums *s, const json_t *row);
/* Per cent of the floor of all keys together, and the geometric mean of the speedups; 0: not known.
 */
double sums_floor_percent(const struct sums *s);
double sums_speedup(const struct sums *s);

/* A layer is what a model's code calls a layer in a mode: all answers that differ in M only. */
struct layer {
    const char *class, *op, *mode, *flags; /* borrowed from struct layers */
    long long experts, topk, N, K;
    long long least_m, most_m;
    size_t layers; /* 1, or the number of layers that are summed up here */
    struct sums sums;
};
struct layers {
    struct layer *all; /* owned */
    size_t n, room;
    json_t *index, *texts; /* owned: places in `all`, and the texts of its layers */
};
void layers_init(struct layers *l);
void layers_deinit(struct layers *l);
/* Adds the row to its layer's sums. The row has rows_derive_best's columns. False: no memory. */
bool layers_add_row(struct layers *l, const json_t *row);
/* JSON rows of the layers that lose most time, at most `most`, in the order of the table; then the
 * sums of all others by experts and mode. `models`: the table of moe_list_layers(). */
json_t *layers_list(const struct layers *l, size_t most, const json_t *models);
/* Adds the column "name" to a row: the model and layer of its sizes by the table of models, else
 * the sizes, or the op. */
void layers_name_row(const json_t *models, json_t *row);

/* ---- the whole ------------------------------------------------------------------------------- */

enum {
    LAYERS_SHOWN = 150,
    KEYS_SHOWN = 200,
    ROWS_SHOWN = 100,
    KEYS_DRAWN = 8,
    TRIALS_DRAWN = 2000
};

struct report {
    struct subject *s; /* borrowed: connected */
    struct page page;
    json_t *status; /* owned */
    json_t *models; /* owned: moe_list_layers */

    /* filled in by report_rows.c: */
    struct layers layers;
    struct sums sums;
    json_t *lossy;   /* owned: the rows that lose most time against their floor */
    json_t *tried;   /* owned: as `lossy`, but only rows that may have trials, for the drawings */
    json_t *doubted; /* owned: the first rows with a doubt */
    json_t *missing; /* owned: [{"name", "problem"}] of named problems without an answer here */
    json_t *classes, *sources; /* owned: {name: number of keys} */
    json_t *newest;            /* owned: {family, class, target: the row with the newest stamp} */
    json_t *stamps;            /* owned: {...: {"stamp", "keys", ...}} */
    size_t low, stale;
    size_t floors[11], speedups[7]; /* counts of the histograms */
};

/* report_rows.c. A page of a list, newest or by `sort` (NULL: the list's order): at most `limit`
 * rows; *total: of the whole list. NULL and *code after the error message. */
json_t *report_fetch(struct report *r, const char *what, const char *sort, int limit,
                     long long *total, int *code);
/* Reads a list page by page in its order, behind `after` (taken over; NULL: from the beginning),
 * with these columns (NULL: all), and gives each row to add(), which may take a reference, until
 * add() returns false. */
int report_read_list(struct report *r, const char *what, const char *order, json_t *after,
                     const char *columns, bool (*add)(struct report *r, void *ctx, json_t *row),
                     void *ctx);
/* Reads the answers: of the named problems, else of all keys. */
int report_read_rows(struct report *r);
/* Adds to a row, which the report shows, the columns that the sums did not need. A row whose key
 * has got another row since stays as it is. */
int report_complete_row(struct report *r, json_t *row);
/* [{"family", "class", "target", "stamp", "newest", "keys"}] of stamps that are not the newest. */
json_t *report_list_stale(struct report *r);

/* Sections: report_sections.c, report_keys.c, report_history.c. `quarantine` and `stale` are lists
 * of rows, `total` is the number of rows in quarantine. */
void report_print_head(struct report *r, long long quarantined);
void report_print_layers(struct report *r);
void report_print_rows(struct report *r);
void report_print_trust(struct report *r, const json_t *stale);
void report_print_quarantine(struct report *r, const json_t *rows, long long total);
int report_print_log(struct report *r);
int report_print_keys(struct report *r);
int report_print_changes(struct report *r, int64_t from, int64_t to);

#endif
