/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemmctl: what its files share. It sees libgemmd through gemmd.h only, like any other user.
 *
 * main.c has the list of commands; ask.c, pin.c, listing.c, space.c, transfer.c, verify.c,
 * runner.c, why.c and daemon.c have the commands, by theme; formats.h is about files of other
 * tuners.
 *
 * Every command makes JSON first; a table is a view of it. Results go to stdout, everything else to
 * stderr. What fails ends in one sentence, "gemmctl: ...".
 */
#ifndef GEMMD_CLIENT_CTL_CTL_H
#define GEMMD_CLIENT_CTL_CTL_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "client/gemmd.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

enum exit_code { DONE = 0, FAILED = 1, USAGE = 2, UNREACHABLE = 3, BUSY = 75 };

/* ---- ctl.c ---------------------------------------------------------------------------------- */

/* What every command takes. */
struct ctl {
    const char *socket, *device; /* borrowed from argv or the environment */
    const char *named_device;    /* borrowed: --device of argv, not the environment's; NULL: none */
    const char *generation;      /* borrowed from argv; NULL: none given */
    bool pinned;                 /* to it, or to the environment's; else to none */
    bool json, quiet;
    struct gemmd *g; /* owned */
    int patience_ms; /* with a daemon that does not answer; 0: the library's */
    int step_ms;     /* gemmd_options.step_ms: set before connecting by commands that catch stops */
    int failed;      /* enum gemmd_error_code of the last ctl_call that failed */
};
/* The input of every argp here is a struct subject. Of a pinned connection only the answers to
 * `get` are of its generation, so only commands that ask for those may be pinned. The others would
 * show what is known now all the same, and those that see to the daemon would fail where it has no
 * such generation. output_argp: --json and --quiet, for commands that ask no daemon. */
extern const struct argp output_argp, ctl_argp, pinned_ctl_argp;

/* Whose daemon, and which generation. */
struct gemmd_options ctl_options(const struct ctl *c);
/* 0, or an exit code after the sentence. */
int ctl_connect(struct ctl *c);
/* Of who is connected: the path of a socket says nothing of the device, so when both are named the
 * daemon must be of that device; and it is one for all numbers of the CPU's threads. 0, or USAGE
 * after the sentence. */
int ctl_check_device(struct ctl *c);
/* gemmd_connect of it, for who has words of his own when nobody answers. */
int ctl_try(struct ctl *c, struct gemmd_error *e);

/* Prints "gemmctl: <sentence>" and returns the exit code. */
int ctl_fail(const struct gemmd_error *e);
/* The same of what was waited for: without a deadline of the user's own, one that passed says that
 * the daemon hangs. */
int ctl_fail_waiting(const struct gemmd_error *e, int deadline_ms);
int ctl_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));  /* USAGE */
int ctl_failed(const char *format, ...) __attribute__((format(printf, 1, 2))); /* FAILED */

/* A call whose params and result are JSON; takes over params. NULL and *code on failure. */
json_t *ctl_call(struct ctl *c, const char *method, json_t *params, int *code);
/* The same without a sentence: e->code is what failed, or GEMMD_WAITING. */
json_t *ctl_try_call(struct ctl *c, const char *method, json_t *params, struct gemmd_error *e);
/* The outcome of a library call that returned `r`: waits step by step until the call is over.
 * GEMMD_WAITING: a signal came first, and the call was given up. */
int ctl_finish(struct ctl *c, int r, struct gemmd_error *e);
json_t *ctl_list(struct ctl *c, const char *what, json_t *filter, int *code);
/* Prints a document and takes it over. */
int ctl_print_json(json_t *j);
/* With --json stdout has one document, also of a command that failed: its own, or {"error":
 * {"name", "message"}} of the first sentence that was said. At the beginning; a document is there;
 * at the end. */
void ctl_want_error(int argc, char **argv);
void ctl_printed(void);
void ctl_print_error(int code);
/* That error for a document of one's own; NULL: nothing failed. */
json_t *ctl_error(void);
/* The name of the failure whose sentence comes next; without it "usage" or "failed". */
void ctl_name_error(const char *name);
double ctl_now_ms(void);

/* ---- text.c --------------------------------------------------------------------------------- */

enum { NUMBER_TEXT_MAX = 40 };
/* Whether the text is a whole number from min to max. */
bool text_read_number(const char *text, int64_t min, int64_t max, int64_t *out);
/* The shortest text that reads back as the same number. */
void number_text(double v, char out[NUMBER_TEXT_MAX]);
/* "A=1 B=true" to {"A": 1, "B": true}. NULL and a sentence when it does not read. */
json_t *text_to_json(const char *text, struct gemmd_error *err);
/* And back; malloc'ed. `op` objects begin with the op: "grouped_gemm M=1 ...". */
char *text_of_json(const json_t *object);
/* Takes over malloc'ed text and returns it with control characters written out (\x1b), so that what
 * others put into the database cannot steer the terminal. NULL stays NULL. */
char *text_visible(char *text);
/* printf of text that is not ours, visible: to stdout, or as a line to stderr. */
void text_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
void text_remark(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* malloc'ed; NULL: no memory. text_append takes over `text`, which may be NULL, and adds to it. */
char *text_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *text_append(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "grouped_gemm M=1 ..." or "M=1 ...": {"op": ..., ...}. */
json_t *text_to_problem(const char *text, struct gemmd_error *err);
/* A whole file ("-": stdin); NULL and a sentence. malloc'ed. */
char *text_read_file(const char *path, struct gemmd_error *err);
json_t *text_read_json(const char *path, struct gemmd_error *err);

/* ---- fields.c ------------------------------------------------------------------------------- */

/* Of a JSON object; dots go into objects. NULL: it is not there. */
const json_t *field_value(const json_t *row, const char *path);
/* The value there, or 0, false, NULL or "" where there is none of that type. */
long long field_int(const json_t *row, const char *path);
double field_number(const json_t *row, const char *path);
bool field_is_true(const json_t *row, const char *path);
const char *field_string(const json_t *row, const char *path);
const char *field_text(const json_t *row, const char *path);

/* Whether a comma list names the word; a NULL list names all. */
bool list_has(const char *list, const char *word);
/* Splits a line of CSV at its commas, in place, and takes blanks off. Returns how many fields there
 * are; those behind the most are not in `out`. */
enum { CSV_FIELDS_MAX = 256 };
int csv_split(char *line, char *out[CSV_FIELDS_MAX]);

/* ---- problems.c, shapes.c, moe.c, routing.c -------------------------------------------------- */

/* Options that say which problem. The first take lists, of which the first varies slowest. */
enum problem_option {
    PROBLEM_MODE,
    PROBLEM_DTYPE,
    PROBLEM_OUT_DTYPE,
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
    PROBLEM_SHAPES,
    PROBLEM_MOE,
    PROBLEM_MODEL,
    PROBLEM_LAYER,
    PROBLEM_PERMUTES,
    PROBLEM_OPTIONS
};

struct problems {
    const char *given[PROBLEM_OPTIONS]; /* borrowed from argv; "": without a value; NULL: not */
    char *profile;                      /* owned: "rows:..." of --rows-per-expert */
    char sum[24], experts[24];          /* what M and experts are by it */
    bool key_will_do;                   /* the command takes a key instead */
    char *words;                        /* owned: the arguments that are no options */
    json_t *all; /* owned: [{"problem": {...}, "name": "..."}], by problems_make */
};
extern const struct argp problems_argp;

/* Fills in `all`. 0, or USAGE after the sentence. */
int problems_make(struct problems *p);
/* Exactly one, for commands that take one. NULL after the sentence. Borrowed. */
const json_t *problems_one(struct problems *p);
/* {"key": ...} or {"problem": ...} for methods that take either; a key is the only word. */
json_t *problems_key_or_one(struct problems *p, int *code);
/* Whether --shapes or --moe does. */
bool problems_has_table(const struct problems *p);
/* Whether anything says which problem. */
bool problems_given(const struct problems *p);
/* The list of --mode ("": none is given). NULL: something else says which problem, too. */
const char *problems_only_modes(const struct problems *p);
void problems_deinit(struct problems *p);

/* --permutes, of tables. */
bool problems_has_own_permutes(const struct problems *p);
/* Rows of the file of --shapes that the options choose, in the form of `all`; NULL after the
 * sentence. */
json_t *shapes_read(const struct problems *p);
/* The products of the layer of --moe, "experts=128,topk=8,hidden=2048,inter=768" or a known model's
 * name, in the same form. */
json_t *moe_problems(const struct problems *p);
/* "rows:5,0,3" (malloc'ed) from a list of numbers or a file of them; how many, and their sum. 0, or
 * USAGE after the sentence. */
int routing_of_rows(const char *arg, char **profile, long long *experts, long long *sum);

/* ---- search.c ------------------------------------------------------------------------------- */

/* The value of an option, from 0 to max; else it ends with a sentence that names the option. */
int64_t option_int(const char *name, const char *arg, int64_t max, struct argp_state *state);
/* The same from min to max of an option of the command's own; NULL: it was not given, and *out
 * stays. 0, or USAGE after the sentence. */
int option_number(const char *name, const char *arg, int64_t min, int64_t max, int64_t *out);
/* A device that need not be here, of `--arch`: "cuda:sm_90a" of sm_90a; others as they are; NULL:
 * out stays. 0, or USAGE after the sentence where it can be none. */
enum { ARCH_MAX = 256 };
int option_arch(const char *arg, char out[ARCH_MAX]);

struct search {
    struct gemmd_query query;           /* its JSON texts are filled in by search_finish */
    json_t *restrict_;                  /* owned: {"BLOCK_SIZE_M": [64, 128]} */
    json_t *configs;                    /* owned: ["BLOCK_SIZE_M=64 ..."] */
    char *restrict_text, *configs_text; /* owned */
};
/* measuring: how, and for how long; search: of which configs in which order; wait: of a question,
 * or of a tuning; space: restrictions; given: configs; target: which kernels. */
extern const struct argp measuring_argp, search_argp, deadline_argp, wait_argp, tune_wait_argp,
    space_argp, given_argp, tolerance_argp, target_argp;
void search_options_init(struct search *s);
void search_finish(struct search *s);
void search_options_deinit(struct search *s);

/* ---- subject.c ------------------------------------------------------------------------------ */

/* The options that only some commands have, by their places in subject.given. */
enum own_option {
    OWN_ALL,
    OWN_ARCH,
    OWN_BUCKET,
    OWN_CACHE_DIR,
    OWN_CACHE_MAX,
    OWN_CLEAR,
    OWN_COMPAT,
    OWN_DEVICE,
    OWN_DRY_RUN,
    OWN_EXACT,
    OWN_FAILED,
    OWN_FINALS,
    OWN_FORMAT,
    OWN_JOBS,
    OWN_NOTE,
    OWN_NOT_HERE, /* of other commands: without it --budget would be taken for --budget-ms */
    OWN_SAMPLES,
    OWN_SECONDS,
    OWN_SETTINGS,
    OWN_TO,
    OWN_TRUST,
    OWN_VARIANTS,
    OWN_WHAT,
    OWN_OPTIONS
};
enum { OWN_KEY = 0x9000 }; /* + place: the key of argp */

/* What a command is about: whose daemon, which problems, how to search, which rows. */
struct subject {
    const struct command *command; /* borrowed */
    struct ctl ctl;
    struct problems problems;
    struct search search;
    json_t *filter;                 /* owned: of rows, by filter_argp */
    bool unsaved;                   /* the named key's own answer, by listing_find_key */
    const char *given[OWN_OPTIONS]; /* borrowed from argv; "": without a value; NULL: not given */
    char **paths;                   /* borrowed from argv, by files_argp */
    size_t n_paths;
};
extern const struct argp files_argp;

struct command {
    const char *name, *help; /* one line */
    const char *former;      /* name, which still works; or NULL */
    int (*run)(struct subject *s);
    const char *args_doc, *doc;
    const struct argp_option *options; /* of its own */
    const struct argp *parts[12];      /* up to NULL: those that it shares with others */
};
int subject_run(const struct command *command, int argc, char **argv);

/* --target, --atol and --rtol into params of a call, where they were given. */
void subject_put_query(const struct subject *s, json_t *params);
/* Connects and calls a method that takes {key or problem}; NULL and *code on failure. */
json_t *subject_call_key(struct subject *s, const char *method, int *code);

/* ---- table.c -------------------------------------------------------------------------------- */

struct column {
    const char *title;
    const char *key;                    /* of the row; dots go into objects */
    char *(*show)(const json_t *value); /* malloc'ed text; NULL: as it is */
    bool right;
    bool optional; /* left out when no row has a value */
};
void table_print(const struct column *columns, size_t n, const json_t *rows);
/* One value, behind its title. */
void table_print_line(const struct column *column, const json_t *row);
/* Ways to show a value; all give "-" for null. */
char *show_plain(const json_t *v);
int show_decimals(double v);      /* how many make four digits: 5.332, 19238 */
char *show_time(const json_t *v); /* microseconds, or a rate: four digits */
char *show_percent(const json_t *v);
char *show_ratio(const json_t *v);  /* "1.32x" */
char *show_age(const json_t *v);    /* from Unix seconds: "3m" */
char *show_id(const json_t *v);     /* the first 8 digits */
char *show_bytes(const json_t *v);  /* "1.2 MiB" */
char *show_config(const json_t *v); /* one line */
char *show_values(const json_t *v); /* of an array: "64,128" */
char *show_known(const json_t *v);  /* -1 says that it is not */

/* ---- results.c ------------------------------------------------------------------------------ */

/* A row for an answer, or for why there is none; the derived columns are in it. */
json_t *result_of_answer(const json_t *problem, const struct gemmd_answer *a);
json_t *result_of_error(const json_t *problem, const struct gemmd_error *e);
/* Derived columns (shape, flags, percentage of the floor, speedup, target) into a row that has
 * "problem". */
void result_derive(json_t *row);
/* Whether it is a matrix product (NULL: the op that is meant without one), which has mode, M, N and
 * K; of any other op gemmctl knows no field. */
bool result_is_product(const char *op);
/* The target that a row's stamp names, as a column of its own. */
void result_target(json_t *row);
void results_print(const json_t *rows);

/* ---- listing.c ------------------------------------------------------------------------------ */

extern const struct argp filter_argp; /* --where, --sort ... */
/* Connects, and restricts the filter to the key of the problem that was named, if one was; then
 * `unsaved` is known. */
int listing_find_key(struct subject *s);
/* The daemon's `status`, owned. When a key was named, only its own answer counts as unsaved there:
 * that others are is no fault of this listing. NULL and *code on failure. */
json_t *listing_status(struct subject *s, int *code);

/* ---- baselines.c ----------------------------------------------------------------------------- */

/* Baselines: {key: {"name", "ratio"}}, what trials are compared with. */
/* Trials, and the baselines of their keys: with `sort` "-speedup" by what they are compared with
 * here; `failed`: only such. NULL as ctl_list's; *baselines is the caller's in any case. */
json_t *baselines_list(struct ctl *c, json_t *filter, bool failed, json_t **baselines, int *code);
/* Adds what the trial is compared with. */
void baselines_apply(const json_t *baselines, json_t *row);
/* What the rows are compared with, to stderr. */
void baselines_say(const json_t *rows);

/* ---- rows.c --------------------------------------------------------------------------------- */

bool rows_known(const char *what);
/* Adds the derived columns, and of trials what they are compared with (may be NULL), shows the rows
 * of the list `what`, and takes them over. */
int rows_show(const struct ctl *c, const char *what, const json_t *baselines, json_t *rows);
void rows_derive_best(json_t *row);

/* ---- unsaved.c ------------------------------------------------------------------------------ */

/* The daemon's `status`, owned; NULL: it was not to be had, which is no reason to do without what
 * it is asked for. */
json_t *unsaved_status(struct ctl *c);
/* Of it: whether the daemon has answers that are only in its memory, or anything; and says that
 * `where` ("this export") lacks them, with what to do. */
bool unsaved_there(const json_t *status);
bool unsaved_at_all(const json_t *status);
void unsaved_say(const json_t *status, const char *where);
/* Where `there` is something: FAILED after the sentence that somebody's copy, `where`, lacks it,
 * and `again` what to do then; else DONE. */
int unsaved_fail(const json_t *status, bool there, const char *where, const char *again);
/* Says it of rows that are answers, when some of them are such. */
void unsaved_remark(struct ctl *c, const json_t *rows);

/* ---- progress.c ----------------------------------------------------------------------------- */

struct progress_line {
    char label[96]; /* which problem */
    bool quiet, terminal;
    bool seen;      /* the daemon reported something: it was tuned */
    int64_t failed; /* configs so far, by the last report */
    bool drawn;     /* a line stands on the terminal */
    double last_ms;
};
void progress_begin(struct progress_line *p, bool quiet, const char *label);
void progress_show(void *ctx, const struct gemmd_progress *report); /* ctx: struct progress_line */
void progress_end(struct progress_line *p);

/* ask.c: gemmd_tune or gemmd_get with the line, which then ends; as ctl_finish. */
int ask_for_answer(struct subject *s, const json_t *problem, struct gemmd_query q, bool tune,
                   struct progress_line *line, struct gemmd_answer *out, struct gemmd_error *e);

/* Commands that work long catch the signals that stop them, show their finished rows, and end by
 * the same signal. A second signal ends them at once; ignored signals stay ignored. */
enum { STOPS_STEP_MS = 100 };
void stops_catch(void);
bool stops_came(void);
/* After a stop: says how many of all keys are in the database, and does not return. */
void stops_end(size_t kept, size_t all);

/* ---- commands ------------------------------------------------------------------------------- */

extern const struct command command_get, command_tune, command_bench, command_pin, command_unpin,
    command_promote, command_evict, command_cancel, command_list, command_show, command_why,
    command_verify, command_trials, command_modules, command_quarantine, command_devices,
    command_space, command_check, command_precompile, command_landscape, command_export,
    command_import, command_backup, command_status, command_start, command_stop, command_version;

#endif
