/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemmctl: declarations that its files share. gemmctl uses libgemmd through gemmd.h only, like any
 * other program. proto/ is linked into gemmctl itself.
 *
 * main.c has the list of commands; ask.c, pin.c, evict.c, listing.c, space.c, transfer.c, verify.c,
 * runner.c, why.c, moe.c and daemon.c have the commands, by theme; formats.h declares the files of
 * other tuners.
 *
 * Every command makes JSON first; a table is a view of the JSON. Results go to stdout, everything
 * else to stderr. A failure ends in one error message, "gemmctl: ..."; "after the error message"
 * below means that the function printed the message.
 */
#ifndef GEMMD_CLIENT_CTL_CTL_H
#define GEMMD_CLIENT_CTL_CTL_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "client/gemmd.h"
#include "proto/error.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

enum exit_code { DONE = 0, FAILED = 1, USAGE = 2, UNREACHABLE = 3, BUSY = 75 };

/* ---- ctl.c ---------------------------------------------------------------------------------- */

/* Options of every command. */
struct ctl {
    const char *socket, *device; /* borrowed from argv or the environment */
    const char *named_device; /* borrowed: --device of argv, never $GEMMD_DEVICE; NULL: not given */
    const char *generation;   /* borrowed from argv; NULL: not given */
    bool pinned;              /* the connection is pinned, to `generation` or $GEMMD_GENERATION */
    bool json, quiet;
    bool wide;           /* tables show all columns, and values in full */
    const char *columns; /* borrowed from argv: the columns that tables show; NULL: not given */
    struct gemmd *g;     /* owned */
    int patience_ms;     /* time limit for a daemon that does not answer; 0: libgemmd's default */
    int step_ms; /* gemmd_options.step_ms: set before connecting by commands with stops_catch */
    int failed;  /* enum gemmd_error_code of the last ctl_call that failed */
};
/* The input of every argp here is a struct subject. Only commands that ask for answers of `get`
 * take pin_argp, before ctl_argp: on a pinned connection only answers of `get` come from the pinned
 * generation. Other commands would show the newest rows regardless, or fail when the daemon lacks
 * the generation. output_argp: --json and --quiet, for commands that need no daemon. */
/* view_argp: --wide and --columns, for commands that show rows. */
extern const struct argp output_argp, ctl_argp, pin_argp, view_argp;

struct gemmd_options ctl_options(const struct ctl *c);
/* Connects, unless that has been done. 0, or an exit code after the error message. */
int ctl_connect(struct ctl *c);
/* Checks that the connected daemon has the device of --device: the path of --socket does not tell
 * the device, and the path for the device cpu does not tell the number of its threads. 0, or USAGE
 * after the error message. */
int ctl_check_device(struct ctl *c);
/* Connects, but prints nothing on failure: for commands that print an error message of their own.
 */
int ctl_try(struct ctl *c, struct gemmd_error *e);

/* Prints "gemmctl: <error message>" and returns the exit code. */
int ctl_fail(const struct gemmd_error *e);
/* ctl_fail for a call that waited. A deadline that passed although the user set none (deadline_ms
 * 0) means that the daemon hangs: the exit code is UNREACHABLE. */
int ctl_fail_waiting(const struct gemmd_error *e, int deadline_ms);
int ctl_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));  /* returns USAGE */
int ctl_failed(const char *format, ...) __attribute__((format(printf, 1, 2))); /* returns FAILED */

/* A call whose params and result are JSON; takes over params. NULL and *code on failure. */
json_t *ctl_call(struct ctl *c, const char *method, json_t *params, int *code);
/* ctl_call without an error message: e->code is the failure, or GEMMD_WAITING. */
json_t *ctl_try_call(struct ctl *c, const char *method, json_t *params, struct gemmd_error *e);
/* The outcome of a library call that returned `r`: waits step by step until the call ends.
 * GEMMD_WAITING: a signal arrived first, and the call was cancelled. */
int ctl_finish(struct ctl *c, int r, struct gemmd_error *e);
json_t *ctl_list(struct ctl *c, const char *what, json_t *filter, int *code);
/* Prints a JSON document to stdout, and frees it. */
int ctl_print_json(json_t *j);
/* With --json stdout has one document, also when the command failed: the command's own document, or
 * {"error": {"name", "message"}} of the first error message. Call ctl_want_error at the start,
 * ctl_printed after printing a document, and ctl_print_error at the end. */
void ctl_want_error(int argc, char **argv);
void ctl_printed(void);
void ctl_print_error(int code);
/* The error, for a command's own document; NULL: nothing failed. */
json_t *ctl_error(void);
/* Takes the error, so that the next error message counts as the first. */
json_t *ctl_take_error(void);
/* Begins the next error messages with a daemon's name, borrowed; NULL: ends that. */
void ctl_set_label(const char *label);
/* Sets the error name of the next error message; the default is "usage" or "failed". */
void ctl_name_error(const char *name);
double ctl_now_ms(void);

/* ---- text.c --------------------------------------------------------------------------------- */

enum { NUMBER_TEXT_MAX = 40 };
bool text_read_number(const char *text, int64_t min, int64_t max, int64_t *out);
/* The shortest text that reads back as the same number. */
void number_text(double v, char out[NUMBER_TEXT_MAX]);
/* "A=1 B=true" to {"A": 1, "B": true}. NULL and `err` when the text is malformed. */
json_t *text_to_json(const char *text, struct error *err);
/* The inverse of text_to_json, malloc'ed. The text of an object with the member "op" begins with
 * the op: "gemm M=1 ...". */
char *text_of_json(const json_t *object);
/* Takes over malloc'ed text and returns the text with control characters written as \x1b, so that
 * rows of other users cannot steer the terminal. NULL stays NULL. */
char *text_visible(char *text);
/* printf for text that the daemon or other users wrote: control characters become visible. To
 * stdout, or as a line to stderr, which is folded between words to the width of a terminal. */
void text_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
void text_remark(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* malloc'ed; NULL: no memory. text_append takes over `text`, which may be NULL, and appends. */
char *text_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *text_append(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Reads a problem's text, "grouped_gemm M=1 ..." or "M=1 ...", into {"op": ..., "M": 1, ...}. */
json_t *text_to_problem(const char *text, struct error *err);
/* A whole file ("-": stdin), malloc'ed; NULL and `err` on failure. */
char *text_read_file(const char *path, struct error *err);
json_t *text_read_json(const char *path, struct error *err);

/* ---- fields.c ------------------------------------------------------------------------------- */

/* The value in a JSON object; dots in `path` descend into objects. NULL: no such field. */
const json_t *field_value(const json_t *row, const char *path);
/* The field's value; 0, false, NULL or "" when the object has no field of that type. */
long long field_int(const json_t *row, const char *path);
double field_number(const json_t *row, const char *path);
bool field_is_true(const json_t *row, const char *path);
const char *field_string(const json_t *row, const char *path);
const char *field_text(const json_t *row, const char *path);

/* Compares rows by fields, "-name" from the largest down: numbers, of which an absent field is 0,
 * and texts. `order` ends with NULL. Below 0: a comes first. rows_sort keeps the order of equal
 * rows. */
int row_compare(const json_t *a, const json_t *b, const char *const order[]);
void rows_sort(json_t *rows, const char *const order[]);

/* True when a comma list names the word; a NULL list names all. */
bool list_has(const char *list, const char *word);
/* Splits a line of CSV at its commas, in place, and strips blanks. Returns the number of fields;
 * `out` holds at most CSV_FIELDS_MAX of them. */
enum { CSV_FIELDS_MAX = 256 };
int csv_split(char *line, char *out[CSV_FIELDS_MAX]);

/* A CSV file whose first line names the columns, line by line. */
struct csv {
    const char *path; /* borrowed */
    char *text, *at;  /* owned: the file; the lines that are still unread */
    int line, n;      /* number of the current line, and of its fields */
    int n_names;
    char *names[CSV_FIELDS_MAX], *fields[CSV_FIELDS_MAX];
};
bool csv_open(struct csv *csv, const char *path, struct error *err);
bool csv_next(struct csv *csv); /* skips blank lines; false at the end */
/* The index of a column, the first of equal names; -1: absent. */
int csv_find(const struct csv *csv, const char *name);
/* The current line's field; NULL when the file has no such column, or the line ends before. */
const char *csv_field(const struct csv *csv, const char *name);
void csv_close(struct csv *csv);

/* ---- problems.c, shapes.c, moe.c, routing.c -------------------------------------------------- */

/* Options that name problems. Options before PROBLEM_LISTS take lists; the first varies slowest. */
enum problem_option {
    PROBLEM_MODE,
    PROBLEM_DTYPE,
    PROBLEM_OUT_DTYPE,
    PROBLEM_QUANT,
    PROBLEM_EXPERTS,
    PROBLEM_TOPK,
    PROBLEM_TOKENS,
    PROBLEM_M,
    PROBLEM_N,
    PROBLEM_K,
    PROBLEM_LISTS,
    PROBLEM_OP = PROBLEM_LISTS,
    PROBLEM_ROUTING,
    PROBLEM_ROWS,
    PROBLEM_PERMUTE_X,
    PROBLEM_PERMUTE_Y,
    PROBLEM_FUSE,
    PROBLEM_ACCUMULATE,
    PROBLEM_BATCH_INVARIANT,
    PROBLEM_SHAPES,
    PROBLEM_MOE,
    PROBLEM_MODEL,
    PROBLEM_LAYER,
    PROBLEM_PERMUTES,
    PROBLEM_OPTIONS
};

struct problems {
    const char
        *given[PROBLEM_OPTIONS]; /* borrowed from argv; "": without a value; NULL: not given */
    char *profile;               /* owned: "rows:..." of --rows-per-expert */
    char sum[24], experts[24];   /* M and experts that follow from `profile`, as text */
    bool key_will_do;            /* the command also accepts a key in place of a problem */
    char *words;                 /* owned: the arguments that are not options */
    json_t *all;                 /* owned: [{"problem": {...}, "name": "..."}], by problems_make */
};
extern const struct argp problems_argp;

/* Fills in `all`. 0, or USAGE after the error message. */
int problems_make(struct problems *p);
/* The only problem, for commands that take one. NULL after the error message. Borrowed. */
const json_t *problems_one(struct problems *p);
/* {"key": ...} or {"problem": ...} for methods that take either; a key is the only argument. */
json_t *problems_key_or_one(struct problems *p, int *code);
/* True when --shapes or --moe was given. */
bool problems_has_table(const struct problems *p);
/* True when any option or argument names a problem. */
bool problems_given(const struct problems *p);
/* The list of --mode ("": not given). NULL: another option names a problem, too. */
const char *problems_only_modes(const struct problems *p);
void problems_deinit(struct problems *p);

/* True when --permutes is "own", the default: each row of a table keeps its own permutes. */
bool problems_has_own_permutes(const struct problems *p);
/* Reads the rows of --shapes that the options select, in the form of problems.all; NULL after the
 * error message. */
json_t *shapes_read(const struct problems *p);
/* The products of the layer of --moe, "experts=128,topk=8,hidden=2048,inter=768" or a known model's
 * name, in the form of `all`; NULL after the error message. */
json_t *moe_problems(const struct problems *p);
/* {"experts/topk/N/K": "MODEL LAYER, ..."} of the known models; empty when their table cannot be
 * read. */
json_t *moe_list_layers(void);
/* "rows:5,0,3" (malloc'ed) from a list or a file of numbers, their count and their sum. 0, or USAGE
 * after the error message. */
int routing_of_rows(const char *arg, char **profile, long long *experts, long long *sum);

/* ---- search.c ------------------------------------------------------------------------------- */

/* An option's value from 0 to max; else exits after an error message that names the option. */
int64_t option_int(const char *name, const char *arg, int64_t max, struct argp_state *state);
/* A command's own option, min to max; NULL: not given. 0, or USAGE after the error message. */
int option_number(const char *name, const char *arg, int64_t min, int64_t max, int64_t *out);
/* The device of `--arch`, which may be absent: "cuda:sm_90a" for sm_90a, other names unchanged; arg
 * NULL: leaves `out` unchanged. 0, or USAGE after the error message for an impossible name. */
enum { ARCH_MAX = 256 };
int option_arch(const char *arg, char out[ARCH_MAX]);

struct search {
    struct gemmd_query query; /* search_finish sets its JSON texts */
    json_t *restrict_;        /* owned: {"BLOCK_SIZE_M": [64, 128]} */
    json_t *configs;     /* owned: ["BLOCK_SIZE_M=64 ...", {...}, "64x64x256 v16 ..."] as given */
    char *restrict_text; /* owned */
};
/* Groups of options. measuring: how, and for how long; search: the number and order of configs;
 * wait: get's or tune's waiting; space: restrictions; given: configs; target: kernels. */
extern const struct argp measuring_argp, search_argp, deadline_argp, wait_argp, tune_wait_argp,
    space_argp, given_argp, tolerance_argp, target_argp;
void search_options_init(struct search *s);
void search_finish(struct search *s);
void search_options_deinit(struct search *s);

/* ---- subject.c ------------------------------------------------------------------------------ */

/* Options that only some commands have: places in subject.given. */
enum own_option {
    OWN_ALL,
    OWN_ARCH,
    OWN_BUCKET,
    OWN_CACHE_DIR,
    OWN_CACHE_MAX,
    OWN_CLEAR,
    OWN_COMPAT,
    OWN_DATABASE,
    OWN_DEVICE,
    OWN_DRY_RUN,
    OWN_EXACT,
    OWN_FAILED,
    OWN_FIELDS,
    OWN_FINALS,
    OWN_FOLLOW,
    OWN_FORCE,
    OWN_FORMAT,
    OWN_FROM_GENERATION,
    OWN_HTML,
    OWN_JOB,
    OWN_JOBS,
    OWN_KEY_FILE,
    OWN_KNOWN,
    OWN_MODULES,
    OWN_NOTE,
    OWN_OLDER,
    OWN_PROBLEM,
    OWN_PUBLIC_KEY,
    OWN_NOT_HERE, /* an option to refuse: undeclared, argp would take --budget as --budget-ms */
    OWN_SAMPLES,
    OWN_SECONDS,
    OWN_SETTINGS,
    OWN_STALE,
    OWN_TO,
    OWN_TO_GENERATION,
    OWN_TRUST,
    OWN_VARIANTS,
    OWN_WATCH,
    OWN_WHAT,
    OWN_YES,
    OWN_OPTIONS
};
enum { OWN_KEY = 0x9000 }; /* argp's key: OWN_KEY + place */

/* A command's input: the daemon, the problems, the search, the rows. */
struct subject {
    const struct command *command; /* borrowed */
    struct ctl ctl;
    struct problems problems;
    struct search search;
    json_t *filter;                 /* owned: selects rows, by filter_argp */
    json_t *shown;                  /* owned: the named problem, by listing_find_key; else NULL */
    bool unsaved;                   /* set by listing_find_key: the named key's answer is unsaved */
    const char *given[OWN_OPTIONS]; /* borrowed from argv; "": without a value; NULL: not given */
    char **paths;                   /* borrowed from argv, by files_argp */
    size_t n_paths;
};
extern const struct argp files_argp;

struct command {
    const char *name, *help; /* one line */
    const char *former;      /* former name, which still works; or NULL */
    int (*run)(struct subject *s);
    /* Without `run`: a call of the method of the command's name, about a key or problem when the
     * command takes one. --json prints the result, else `show` does; `derive` (or NULL) adds fields
     * to the result before. */
    void (*derive)(struct subject *s, json_t *result);
    void (*show)(struct subject *s, json_t *result);
    const char *args_doc, *doc;
    const struct argp_option *options; /* the command's own */
    const struct argp *parts[14];      /* shared groups of options, up to NULL */
};
int subject_run(const struct command *command, int argc, char **argv);
/* Runs a command that has no `run` of its own. */
int subject_run_method(struct subject *s);

/* Puts --target, --atol and --rtol into a call's params when they were given. */
void subject_put_query(const struct subject *s, json_t *params);
/* Shows the result of a call as the command says, and takes the result over. NULL: the call failed;
 * returns `code`. */
int subject_show(struct subject *s, json_t *result, int code);
/* Connects and calls a method that takes {key or problem}; NULL and *code on failure. */
json_t *subject_call_key(struct subject *s, const char *method, int *code);

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
/* Prints "title value"; folded: in lines that fit the terminal. */
void table_print_line(const struct column *column, const json_t *row);
void table_print_folded(const struct column *column, const json_t *row);
/* Functions that show a value; all return "-" for null. */
char *show_plain(const json_t *v);
int show_decimals(double v);      /* number of decimals that gives four digits: 5.332 */
char *show_time(const json_t *v); /* a time in us, or a rate: four digits */
char *show_percent(const json_t *v);
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

/* ---- notation.c ----------------------------------------------------------------------------- */

/* A config in the short notation, "160x256 df s4", for the row's problem and target, else as
 * "BLOCK_SIZE_M=160 ..."; malloc'ed. */
char *notation_of_config(const json_t *row, const json_t *config);
/* Adds the row's config in the short notation as the field "short", for tables. */
void notation_add(json_t *row);
/* Adds the exactness of the row's config as the object "exact": {runs, batches, order}. */
void exactness_add(json_t *row);
char *show_exactness(const json_t *v);
/* The configs that a person gave for a problem, without short notation: a new array. NULL and *code
 * after the error message that names a mistake. */
json_t *notation_expand(const json_t *configs, const json_t *problem, const char *target,
                        int *code);

/* Replaces configs that are text by maps, in rows that a person wrote. 0, or FAILED after the error
 * message. */
int notation_expand_rows(json_t *rows);

/* ---- results.c ------------------------------------------------------------------------------ */

/* The row of an answer, or of an error, with the columns of result_derive(). */
json_t *result_of_answer(const json_t *problem, const struct gemmd_answer *a);
json_t *result_of_error(const json_t *problem, const struct gemmd_error *e);
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
 * "socket"}]. NULL and *code after the error message. */
json_t *every_list_sockets(int *code);
/* --all. Connects to every daemon of the host and calls `ask` (or NULL), which adds to `daemon`, an
 * element of `all`: [{"device", "socket", "status"}], or "error" in place of "status" after the
 * error message. *code is of the first failure. NULL: no daemon was asked. */
json_t *every_ask(struct subject *s, int (*ask)(struct subject *s, json_t *all, json_t *daemon),
                  int *code);
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

/* ---- progress.c ----------------------------------------------------------------------------- */

struct progress_line {
    char label[96]; /* names the problem */
    bool quiet, terminal;
    bool seen;      /* the daemon reported progress, so it tuned the problem */
    int64_t failed; /* configs that failed so far, by the last report */
    bool drawn;     /* the terminal shows an unfinished progress line */
    double last_ms;
};
void progress_begin(struct progress_line *p, bool quiet, const char *label);
void progress_show(void *ctx, const struct gemmd_progress *report); /* ctx: struct progress_line */
void progress_end(struct progress_line *p);

/* ask.c: calls gemmd_tune or gemmd_get, shows its progress in the line, and ends the line. Returns
 * as ctl_finish. */
int ask_for_answer(struct subject *s, const json_t *problem, struct gemmd_query q, bool tune,
                   struct progress_line *line, struct gemmd_answer *out, struct gemmd_error *e);

/* Long commands catch the signals that stop them (Ctrl-C, SIGTERM ...), show their finished rows,
 * and end by the same signal. A second signal ends them at once; ignored signals stay ignored. */
enum { STOPS_STEP_MS = 100 };
void stops_catch(void);
bool stops_came(void);
/* After a stop: prints that `kept` of `all` keys are in the database, and ends the process. */
void stops_end(size_t kept, size_t all);

/* ---- commands ------------------------------------------------------------------------------- */

extern const struct command command_get, command_tune, command_bench, command_pin, command_unpin,
    command_promote, command_evict, command_cancel, command_list, command_show, command_why,
    command_verify, command_trials, command_modules, command_quarantine, command_devices,
    command_space, command_check, command_precompile, command_landscape, command_export,
    command_import, command_backup, command_bundle, command_lock, command_events, command_models,
    command_jobs, command_metrics, command_status, command_start, command_stop, command_report,
    command_version, command_restore;

#endif
