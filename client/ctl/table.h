/* SPDX-License-Identifier: Apache-2.0 */
/* gemmctl: tables, whose columns fit the terminal. */
#ifndef GEMMD_CLIENT_CTL_TABLE_H
#define GEMMD_CLIENT_CTL_TABLE_H

#include "client/ctl/base.h"

/* ---- table.c -------------------------------------------------------------------------------- */

struct column {
    const char *title;
    const char *key;                    /* field of the row; dots descend into objects */
    char *(*show)(const json_t *value); /* malloc'ed text; NULL: show_plain */
    bool right;
    bool optional; /* left out when no row has a value, or all have "" */
    bool prose;    /* sentences, which may be folded */
    size_t most;   /* a fitted table shows longer values as "..."; 0: shows every value */
};
/* Prints all columns, and every value whole on one line. */
void table_print(const struct column *columns, size_t n, const json_t *rows);
/* Prints the columns of `order`, titles or keys from the most important on, as long as they fit the
 * terminal. True: some value was too long, and is "...". */
bool table_print_fitted(const struct column *columns, size_t n, const char *order,
                        const json_t *rows);
/* A row's value as its column shows it; malloc'ed. */
char *table_show_value(const struct column *column, const json_t *row);
/* False for an optional column without a value in any row. */
bool table_needs_column(const struct column *column, const json_t *rows);
/* Prints "title value"; folded: in lines that fit the terminal. */
void table_print_line(const struct column *column, const json_t *row);
void table_print_folded(const struct column *column, const json_t *row);
/* Functions that show a value; all return "-" for null. */
char *show_plain(const json_t *v);
int show_decimals(double v);      /* number of decimals that gives four digits: 5.332 */
char *show_time(const json_t *v); /* a time in us, or a rate: four digits */
char *show_percent(const json_t *v);
char *show_floor(const json_t *v);  /* per cent of the floor; ">100": the floor is too long */
char *show_ratio(const json_t *v);  /* "1.32x" */
char *show_age(const json_t *v);    /* from Unix seconds: "3m" */
char *show_id(const json_t *v);     /* a number, or a text's first 8 digits */
char *show_bytes(const json_t *v);  /* "1.2 MiB" */
char *show_config(const json_t *v); /* one line */
char *show_values(const json_t *v); /* an array: "64,128" */
char *show_known(const json_t *v);  /* -1 means unknown: "-" */

/* ---- fit.c ---------------------------------------------------------------------------------- */

enum { CELLS_COLUMNS_MAX = 80 };
/* The texts of a table. */
struct cells {
    const struct column *columns; /* borrowed */
    size_t n, n_rows;
    char **texts; /* owned, with each text: [row * n + column] */
    bool hidden[CELLS_COLUMNS_MAX];
    bool is_shortened; /* some value is "..." */
    bool is_folded;    /* line ends in sentences are where fit_cells folded them */
};
/* The terminal's columns: $COLUMNS, else of the terminal behind fd; without a terminal 100. */
int fit_width(int fd);
/* Puts line ends in place of blanks, so that no line is longer unless it is one word, or a text in
 * quotes. */
void fit_fold(char *text, size_t width);
/* Hides the columns that have no room, shortens long values, and folds sentences. */
void fit_cells(struct cells *t, const char *order, int width);

#endif
