/* SPDX-License-Identifier: Apache-2.0 */
/* gemmctl: rows of answers and of the database, of one daemon or of all. */
#ifndef GEMMD_CLIENT_CTL_ROWS_H
#define GEMMD_CLIENT_CTL_ROWS_H

#include "client/ctl/subject.h"
#include "client/ctl/table.h"

/* ---- notation.c ----------------------------------------------------------------------------- */

/* A config in the short notation, "160x256 df s4", for the row's problem and target, else as
 * "BLOCK_SIZE_M=160 ..."; malloc'ed. */
char *notation_of_config(const json_t *row, const json_t *config);
/* Adds the row's config in the short notation as the field "short", for tables. */
void notation_add(json_t *row);
/* Adds the exactness of the row's config as the object "exactness": {runs, batches, order}. */
void exactness_add(json_t *row);
char *show_exactness(const json_t *v);
/* The configs that a person gave for a problem, without short notation: a new array. NULL and *code
 * after the error message that names a mistake. */
json_t *notation_expand(const struct search *search, const json_t *problem, int *code);

/* Replaces configs that are text by maps, in rows that a person wrote. 0, or FAILED after the error
 * message. */
int notation_expand_rows(json_t *rows);

/* ---- results.c ------------------------------------------------------------------------------ */

/* The row of an answer, or of an error, with the columns of result_derive(). */
json_t *result_of_answer(const json_t *problem, const struct gemmd_answer *a);
json_t *result_of_error(const json_t *problem, const struct gemmd_error *e);
/* The row's problem with its op, as methods take it: a new object. NULL: the row has no problem. */
json_t *result_problem(const json_t *row);
/* Adds the columns shape, flags, percentage of the floor, speedup, target to a row. */
void result_derive(json_t *row);
/* True for an op custom:<name>, which gemmd cannot tune. */
bool result_is_custom(const char *op);
/* True when the problem is a matrix product: one of gemmd's ops (NULL: the default op) with N. */
bool result_is_product(const char *op, const json_t *problem);
/* Adds the target in the row's stamp as a column. */
void result_target(json_t *row);
void results_print(const struct ctl *c, const json_t *rows);

/* ---- listing.c ------------------------------------------------------------------------------ */

extern const struct argp filter_argp; /* --where, --sort ... */
/* Connects. For a named problem: restricts the filter to its key, sets `shown` and `unsaved`. */
int listing_find_key(struct subject *s);
/* The daemon's `status`, owned. When the user named a key, `unsaved` counts only that key's answer,
 * because the listing shows no other key. NULL and *code on failure. */
json_t *listing_status(struct subject *s, int *code);

/* Shows the list `what` of the daemon, or of all daemons. Returns an exit code. */
int listing_show_rows(struct subject *s, const char *what);
/* The name of the list that the command shows. */
const char *listing_name(const struct subject *s);
/* The rows of the list `what` that the options select, of the connected daemon. NULL and *code on
 * failure; the caller always owns *baselines, which only trials have. */
json_t *listing_rows(struct subject *s, const char *what, json_t **baselines, int *code);

/* ---- every.c -------------------------------------------------------------------------------- */

/* Lists the sockets of this host's daemons that this user can see, each socket once: [{"device",
 * "socket"}]. */
json_t *every_list_sockets(void);
/* Says that every_list_sockets() is empty, also when the system's folder is closed to this user.
 * Returns the exit code. */
int every_say_none(void);

/* The rows of each database: [{"device", "socket", "database", "rows", "others"}]. `others` are the
 * further daemons of the database. */
json_t *every_rows(struct subject *s, int *code);
int every_show_status(struct subject *s);
int every_show_rows(struct subject *s);

/* ---- watch.c -------------------------------------------------------------------------------- */

/* --watch: calls `show` again and again until a signal arrives. */
int watch_repeat(struct subject *s, int (*show)(struct subject *s));

/* ---- known.c -------------------------------------------------------------------------------- */

/* The best rows of the daemon's device class, the newest first; `stale`: only rows of other stamps
 * than today's, with the reason in "why". NULL and *code on failure. */
json_t *known_rows(struct ctl *c, const json_t *filter, bool stale, int *code);
/* tune --known names its problems itself, with the tolerances of their rows. A restricted search
 * would leave the keys with their rows. 0, or USAGE after the error message. */
int known_check(const struct subject *s);
/* Puts the known problems of the device into problems.all, for tune --known. 0, or an exit code. */
int known_problems(struct subject *s);
/* Sets the query of an element of problems.all. Returns true when the problem is to be tuned, false
 * for a pin, which a `get` verifies. */
bool known_set_query(struct subject *s, const json_t *item);

/* ---- baselines.c ----------------------------------------------------------------------------- */

/* A baseline is the time of a vendor's library for a key. *baselines: {key: {"name", "ratio" (of
 * its time to the reference kernel's)}}. */
/* Lists trials and fetches the baselines of their keys. The filter's "sort": "-speedup" sorts by
 * the speedup over the baselines; `failed`: only failed trials. NULL as in ctl_list; the caller
 * always owns *baselines. */
json_t *baselines_list(struct ctl *c, json_t *filter, bool failed, json_t **baselines, int *code);
/* Adds to a trial its baseline, and unless it failed its speedup over the baseline. */
void baselines_apply(const json_t *baselines, json_t *row);
void baselines_say(const json_t *rows);

/* ---- rows.c --------------------------------------------------------------------------------- */

bool rows_known(const char *what);
/* Chooses the columns that the list of --columns names. 0, or USAGE after an error message that
 * lists all columns. */
int columns_choose(const char *list, const struct column all[], size_t n_all,
                   struct column chosen[CELLS_COLUMNS_MAX], size_t *n);
/* 0, or USAGE after the error message: --json stands beside options of tables. */
int view_check_json(const struct ctl *c);
/* 0, or USAGE after the error message: --columns names a column that the list lacks, or --json
 * stands beside options of tables. */
int rows_check_view(const struct ctl *c, const char *what);
/* Prints the table of the list `what`, or of "answers", with the columns of --columns or --wide, or
 * those that fit. */
void rows_print(const struct ctl *c, const char *what, const json_t *rows);
/* Adds the derived columns, and baselines (may be NULL) to trials; shows the rows of the list
 * `what` and takes them over. */
int rows_show(struct ctl *c, const char *what, const json_t *baselines, json_t *rows);
/* The parts of rows_show: adds derived columns; adds what only tables have, by the connection;
 * prints the table. */
void rows_derive(const char *what, const json_t *baselines, json_t *rows);
void rows_complete(struct ctl *c, const char *what, json_t *rows);
void rows_print_table(const struct ctl *c, const char *what, const json_t *rows);
void rows_derive_best(json_t *row);

/* ---- why.c, jobs.c --------------------------------------------------------------------------- */

/* A problem (with "op") as a user would type it: without default values; malloc'ed. */
char *why_shorten_problem(const json_t *problem);
/* why --job. Returns an exit code. */
int jobs_explain_job(struct subject *s);

/* ---- unsaved.c ------------------------------------------------------------------------------ */

/* The daemon's `status`, owned; NULL when the call fails: callers then go on without a warning. */
json_t *unsaved_status(struct ctl *c);
/* True when the daemon has unsaved answers; unsaved_at_all: or unsaved rows of quarantine.
 * unsaved_say warns that `where` ("this export") lacks the answers, and says what to do. */
bool unsaved_there(const json_t *status);
bool unsaved_at_all(const json_t *status);
void unsaved_say(const json_t *status, const char *where);
/* `there` tells whether unsaved answers exist. If so, prints that the copy at path `where` lacks
 * these answers and that the command `again` must be repeated later; returns FAILED. Otherwise
 * returns DONE. */
int unsaved_fail(const json_t *status, bool there, const char *where, const char *again);
/* Warns when some of the answers in `rows` are unsaved. */
void unsaved_remark(struct ctl *c, const json_t *rows);

#endif
