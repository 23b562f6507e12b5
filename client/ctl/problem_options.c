/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options that say which problem, and what was given of them. An option that a text, a key or a
 * table has no use for is refused: without it another problem would be answered, or forgotten.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"

enum {
    KEY_LIST = 0x2000, /* + index of the dimension */
    KEY_OP = 0x2100,
    KEY_PERMUTE_X,
    KEY_PERMUTE_Y,
    KEY_FUSE,
    KEY_ACCUMULATE,
    KEY_ROUTING,
    KEY_ROWS,
    KEY_SHAPES,
    KEY_MOE,
    KEY_MODEL,
    KEY_LAYER,
    KEY_PERMUTES
};

enum { WORDS_MAX = 16 * 1024 };

const struct dimension problems_dimensions[PROBLEM_LISTS] = {
    [DIMENSION_MODE] = {"mode", "mode", false},
    [DIMENSION_DTYPE] = {"dtype", "dtype_in", false},
    [DIMENSION_OUT_DTYPE] = {"out-dtype", "dtype_out", false},
    [DIMENSION_EXPERTS] = {"experts", "experts", true},
    [DIMENSION_TOPK] = {"topk", "topk", true},
    [DIMENSION_TOKENS] = {"tokens", "tokens", true},
    [DIMENSION_M] = {"m", "M", true},
    [DIMENSION_N] = {"n", "N", true},
    [DIMENSION_K] = {"k", "K", true},
};

static const struct argp_option options[] = {
    {0, 0, 0, 0,
     "Which problems (LIST: 16,32,64; every combination is meant). Instead of options, a "
     "problem's text can be given: grouped_gemm mode=forward M=32768 N=1536 K=2048 ...",
     1},
    {"mode", KEY_LIST + DIMENSION_MODE, "LIST", 0, "forward (default), dX, dW", 0},
    {"m", KEY_LIST + DIMENSION_M, "LIST", 0, "routed rows, tokens * topk", 0},
    {"n", KEY_LIST + DIMENSION_N, "LIST", 0, "rows of W [experts, N, K], in every mode", 0},
    {"k", KEY_LIST + DIMENSION_K, "LIST", 0, "columns of W", 0},
    {"tokens", KEY_LIST + DIMENSION_TOKENS, "LIST", 0, "instead of --m: M is tokens * topk", 0},
    {"experts", KEY_LIST + DIMENSION_EXPERTS, "LIST", 0, "default 1: a dense GEMM", 0},
    {"topk", KEY_LIST + DIMENSION_TOPK, "LIST", 0, "experts per token, default 1", 0},
    {"permute-x", KEY_PERMUTE_X, 0, 0, "X is in token order: first GEMM of an MoE layer", 0},
    {"permute-y", KEY_PERMUTE_Y, 0, 0, "Y is in token order: second GEMM of an MoE layer", 0},
    {"fuse-mul-post", KEY_FUSE, 0, 0, "multiply by the routing weights (needs --permute-y)", 0},
    {"accumulate", KEY_ACCUMULATE, 0, 0, "dW is added to the output", 0},
    {"dtype", KEY_LIST + DIMENSION_DTYPE, "LIST", 0, "bf16 (default), fp16, fp32", 0},
    {"out-dtype", KEY_LIST + DIMENSION_OUT_DTYPE, "LIST", 0, "default: as --dtype", 0},
    {"routing", KEY_ROUTING, "PROFILE", 0, "uniform (default), zipf:<s>, rows:<a>,<b>,...", 0},
    {"rows-per-expert", KEY_ROWS, "LIST|FILE", 0,
     "routing as it was measured: rows of each expert, 5,0,3 or a file of numbers; --m and "
     "--experts "
     "follow from it",
     0},
    {"op", KEY_OP, "OP", 0, "grouped_gemm (default), gemm, custom:<name>", 0},
    {"shapes", KEY_SHAPES, "FILE", 0,
     "a CSV file with columns model,layer,tokens,mode,experts,topk,M,N,K; --model, --layer, "
     "--tokens "
     "and --mode then choose rows",
     0},
    {"moe", KEY_MOE, "MODEL", 0,
     "all products of an MoE layer: experts=128,topk=8,hidden=2048,inter=768, or a known model's "
     "name; "
     "--tokens says of how many tokens, --mode and --layer choose",
     0},
    {"model", KEY_MODEL, "LIST", 0, "of --shapes: these models", 0},
    {"layer", KEY_LAYER, "LIST", 0, "of --shapes and --moe: gate_up, down", 0},
    {"permutes", KEY_PERMUTES, "own|none", 0,
     "of --shapes and --moe: the layer's own permutes (default; gate_up: X, down: Y), or none", 0},
    {0},
};

static void add_word(struct problems *p, const char *word, struct argp_state *state)
{
    size_t have = p->words ? strlen(p->words) : 0;
    if (have + strlen(word) + 2 > WORDS_MAX) {
        argp_error(state, "the problem's text is too long");
    }
    char *words = realloc(p->words, have + strlen(word) + 2);
    if (words) {
        sprintf(words + have, "%s%s", have ? " " : "", word);
        p->words = words;
    }
}

static error_t problems_parse_option(int key, char *arg, struct argp_state *state)
{
    struct problems *p = &((struct subject *)state->input)->problems;
    if (key >= KEY_LIST && key < KEY_LIST + PROBLEM_LISTS) {
        p->lists[key - KEY_LIST] = arg;
        return 0;
    }
    switch (key) {
    case KEY_OP:
        p->op = arg;
        break;
    case KEY_PERMUTE_X:
        p->permute_x = true;
        break;
    case KEY_PERMUTE_Y:
        p->permute_y = true;
        break;
    case KEY_FUSE:
        p->fuse_mul_post = true;
        break;
    case KEY_ACCUMULATE:
        p->accumulate = true;
        break;
    case KEY_ROUTING:
        p->routing = arg;
        break;
    case KEY_ROWS:
        p->rows_per_expert = arg;
        break;
    case KEY_SHAPES:
        p->shapes = arg;
        break;
    case KEY_MOE:
        p->moe = arg;
        break;
    case KEY_MODEL:
        p->model = arg;
        break;
    case KEY_LAYER:
        p->layer = arg;
        break;
    case KEY_PERMUTES:
        p->permutes = arg;
        if (strcmp(arg, "own") != 0 && strcmp(arg, "none") != 0) {
            argp_error(state, "--permutes takes own or none, not \"%s\"", arg);
        }
        break;
    case ARGP_KEY_ARG:
        if (!*arg) { /* a shell's variable, mostly: it is not to stand for all there is */
            argp_error(state, "the key, or problem, that was given is empty");
        }
        add_word(p, arg, state);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

const struct argp problems_argp = {.options = options, .parser = problems_parse_option};

/* ---- what was given ------------------------------------------------------------------------- */

static char **list_at(struct problems *p, const char *option)
{
    size_t i = 0;
    while (strcmp(problems_dimensions[i].option, option) != 0) {
        i++;
    }
    return &p->lists[i];
}

const char *problems_list(const struct problems *p, const char *option)
{
    return *list_at((struct problems *)(uintptr_t)p, option);
}

void problems_set(struct problems *p, const char *option, char *list)
{
    *list_at(p, option) = list;
}

/* Places in a mask of options, behind those of the lists. */
enum {
    OP = PROBLEM_LISTS,
    ROUTING,
    ROWS,
    PERMUTE_X,
    PERMUTE_Y,
    FUSE,
    ACCUMULATE,
    SHAPES,
    MOE,
    MODEL,
    LAYER,
    PERMUTES,
    WORDS
};
#define BIT(place) (1u << (place))

/* The first option that was given and is not in the mask; NULL: there is none. */
static const char *given_but(const struct problems *p, unsigned mask)
{
    const struct {
        const char *option;
        bool given;
    } others[] = {[OP] = {"op", p->op},
                  [ROUTING] = {"routing", p->routing},
                  [ROWS] = {"rows-per-expert", p->rows_per_expert},
                  [PERMUTE_X] = {"permute-x", p->permute_x},
                  [PERMUTE_Y] = {"permute-y", p->permute_y},
                  [FUSE] = {"fuse-mul-post", p->fuse_mul_post},
                  [ACCUMULATE] = {"accumulate", p->accumulate},
                  [SHAPES] = {"shapes", p->shapes},
                  [MOE] = {"moe", p->moe},
                  [MODEL] = {"model", p->model},
                  [LAYER] = {"layer", p->layer},
                  [PERMUTES] = {"permutes", p->permutes},
                  [WORDS] = {"problem", p->words}};
    for (size_t i = 0; i < COUNT(others); i++) {
        bool list = i < PROBLEM_LISTS;
        bool given = list ? p->lists[i] != NULL : others[i].given;
        if (given && !(mask & BIT(i))) {
            return list ? problems_dimensions[i].option : others[i].option;
        }
    }
    return NULL;
}

bool problems_given(const struct problems *p)
{
    return given_but(p, 0) != NULL;
}

const char *problems_only_modes(const struct problems *p)
{
    return given_but(p, BIT(DIMENSION_MODE)) ? NULL
           : p->lists[DIMENSION_MODE]        ? p->lists[DIMENSION_MODE]
                                             : "";
}

/* ---- what stands beside what ---------------------------------------------------------------- */

/* What each row of a table takes as a problem of options does, and what chooses among rows. */
#define CHANGES                                                                                    \
    (BIT(DIMENSION_DTYPE) | BIT(DIMENSION_OUT_DTYPE) | BIT(OP) | BIT(ROUTING) | BIT(ROWS) |        \
     BIT(PERMUTE_X) | BIT(PERMUTE_Y) | BIT(FUSE) | BIT(ACCUMULATE))
#define CHOICES (BIT(DIMENSION_MODE) | BIT(DIMENSION_TOKENS) | BIT(LAYER) | BIT(PERMUTES))

int problems_check_words(const struct problems *p)
{
    const char *other = given_but(p, BIT(WORDS));
    return other ? ctl_usage("\"%s\" says which problem, and --%s stands beside it: use one or the "
                             "other",
                             p->words, other)
                 : DONE;
}

static int check_moe(const struct problems *p)
{
    const char *other = given_but(p, BIT(MOE) | CHANGES | CHOICES);
    return other ? ctl_usage("--%s cannot stand beside --moe, which has the sizes: of those only "
                             "--tokens can",
                             other)
                 : DONE;
}

static int check_shapes(const struct problems *p)
{
    const char *other = given_but(p, BIT(SHAPES) | BIT(MODEL) | CHANGES | CHOICES);
    return other ? ctl_usage("--%s cannot stand beside --shapes, which has the sizes", other)
                 : DONE;
}

static int problems_check_sizes(const struct problems *p)
{
    if (p->model || p->layer || p->permutes) {
        return ctl_usage(
            "--model, --layer and --permutes are about --shapes or --moe: give one of these");
    }
    if (p->lists[DIMENSION_M] && p->lists[DIMENSION_TOKENS]) {
        return ctl_usage(
            "--m and --tokens are both given: M is tokens * topk, so one of them says it");
    }
    return DONE;
}

int problems_check(const struct problems *p)
{
    return p->words    ? problems_check_words(p)
           : p->moe    ? check_moe(p)
           : p->shapes ? check_shapes(p)
                       : problems_check_sizes(p);
}
