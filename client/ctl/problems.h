/* SPDX-License-Identifier: Apache-2.0 */
/* gemmctl: the options that say which problems a command is about, and how to search. */
#ifndef GEMMD_CLIENT_CTL_PROBLEMS_H
#define GEMMD_CLIENT_CTL_PROBLEMS_H

#include "client/ctl/base.h"

/* ---- problems.c, shapes.c, moe.c, routing.c -------------------------------------------------- */

/* Options that name problems. Options before PROBLEM_LISTS take lists; the first varies slowest.
 * The options from PROBLEM_DTYPE up to PROBLEM_TYPES_END are types. */
enum problem_option {
    PROBLEM_MODE,
    PROBLEM_DTYPE,
    PROBLEM_OUT_DTYPE,
    PROBLEM_QUANT,
    PROBLEM_TYPES_END,
    PROBLEM_EXPERTS = PROBLEM_TYPES_END,
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
/* Adds the rows of --shapes that the options select to `rows`, in the form of problems.all. 0, or
 * USAGE after the error message. */
int shapes_read(const struct problems *p, json_t *rows);
/* Adds the products of the layer of --moe, "experts=128,topk=8,hidden=2048,inter=768" or a known
 * model's name, in the same way. */
int moe_problems(const struct problems *p, json_t *rows);
/* {"experts/topk/N/K": "MODEL LAYER, ..."} of the known models; empty when their table cannot be
 * read. Prints which line is wrong, unless is_quiet. */
json_t *moe_list_layers(bool is_quiet);
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

#endif
