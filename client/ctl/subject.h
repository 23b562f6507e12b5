/* SPDX-License-Identifier: Apache-2.0 */
/* gemmctl: a command, its input, and the progress of a long command. */
#ifndef GEMMD_CLIENT_CTL_SUBJECT_H
#define GEMMD_CLIENT_CTL_SUBJECT_H

#include "client/ctl/problems.h"

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
    char **paths;                   /* borrowed from argv, by words_argp and files_argp */
    size_t n_paths;
};
extern const struct argp words_argp, files_argp; /* files_argp: at least one */

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
/* After a stop: ends the process by the same signal. stops_end first prints that `kept` of `all`
 * keys are in the database. */
void stops_raise(void);
void stops_end(size_t kept, size_t all);

/* ---- commands ------------------------------------------------------------------------------- */

extern const struct command command_get, command_tune, command_bench, command_pin, command_unpin,
    command_promote, command_evict, command_cancel, command_list, command_show, command_why,
    command_verify, command_trials, command_modules, command_quarantine, command_devices,
    command_space, command_check, command_precompile, command_landscape, command_export,
    command_import, command_backup, command_bundle, command_lock, command_events, command_models,
    command_jobs, command_metrics, command_status, command_start, command_stop, command_report,
    command_version, command_restore, command_fleet;

#endif
