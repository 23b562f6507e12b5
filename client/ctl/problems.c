/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which problems a command is about: options with lists, of which every combination is meant
 * (--m 16,32 --n 1024,2048: four problems); or one problem's text; or the rows of a table of
 * layers.
 */
#include <errno.h>
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

enum { WORDS_MAX = 16 * 1024, PROBLEMS_MAX = 100000 };

/* The options that take lists. The first varies slowest. */
enum { MODE, DTYPE, OUT_DTYPE, EXPERTS, TOPK, TOKENS, M, N, K };
static const struct dimension {
    const char *option, *field;
    bool number;
} dimensions[PROBLEM_LISTS] = {
    [MODE] = {"mode", "mode", false},
    [DTYPE] = {"dtype", "dtype_in", false},
    [OUT_DTYPE] = {"out-dtype", "dtype_out", false},
    [EXPERTS] = {"experts", "experts", true},
    [TOPK] = {"topk", "topk", true},
    [TOKENS] = {"tokens", "tokens", true},
    [M] = {"m", "M", true},
    [N] = {"n", "N", true},
    [K] = {"k", "K", true},
};

static const struct argp_option options[] = {
    {0, 0, 0, 0,
     "Which problems (LIST: 16,32,64; every combination is meant). Instead of options, a "
     "problem's text can be given: grouped_gemm mode=forward M=32768 N=1536 K=2048 ...",
     1},
    {"mode", KEY_LIST + MODE, "LIST", 0, "forward (default), dX, dW", 0},
    {"m", KEY_LIST + M, "LIST", 0, "routed rows, tokens * topk", 0},
    {"n", KEY_LIST + N, "LIST", 0, "rows of W [experts, N, K], in every mode", 0},
    {"k", KEY_LIST + K, "LIST", 0, "columns of W", 0},
    {"tokens", KEY_LIST + TOKENS, "LIST", 0, "instead of --m: M is tokens * topk", 0},
    {"experts", KEY_LIST + EXPERTS, "LIST", 0, "default 1: a dense GEMM", 0},
    {"topk", KEY_LIST + TOPK, "LIST", 0, "experts per token, default 1", 0},
    {"permute-x", KEY_PERMUTE_X, 0, 0, "X is in token order: first GEMM of an MoE layer", 0},
    {"permute-y", KEY_PERMUTE_Y, 0, 0, "Y is in token order: second GEMM of an MoE layer", 0},
    {"fuse-mul-post", KEY_FUSE, 0, 0, "multiply by the routing weights (needs --permute-y)", 0},
    {"accumulate", KEY_ACCUMULATE, 0, 0, "dW is added to the output", 0},
    {"dtype", KEY_LIST + DTYPE, "LIST", 0, "bf16 (default), fp16, fp32", 0},
    {"out-dtype", KEY_LIST + OUT_DTYPE, "LIST", 0, "default: as --dtype", 0},
    {"routing", KEY_ROUTING, "PROFILE", 0, "uniform (default), zipf:<s>, rows:<a>,<b>,...", 0},
    {"rows-per-expert", KEY_ROWS, "LIST|FILE", 0,
     "routing as it was measured: rows of each expert, 5,0,3 or a file of numbers; --m and --experts "
     "follow from it",
     0},
    {"op", KEY_OP, "OP", 0, "grouped_gemm (default), gemm, custom:<name>", 0},
    {"shapes", KEY_SHAPES, "FILE", 0,
     "a CSV file with columns model,layer,tokens,mode,experts,topk,M,N,K; --model, --layer, "
     "--tokens "
     "and --mode then choose rows",
     0},
    {"moe", KEY_MOE, "MODEL", 0,
     "all products of an MoE layer: experts=128,topk=8,hidden=2048,inter=768, or a known model's name; "
     "--tokens says of how many tokens, --mode and --layer choose",
     0},
    {"model", KEY_MODEL, "LIST", 0, "of --shapes: these models", 0},
    {"layer", KEY_LAYER, "LIST", 0, "of --shapes and --moe: gate_up, down", 0},
    {"permutes", KEY_PERMUTES, "own|none", 0,
     "of --shapes and --moe: the layer's own permutes (default; gate_up: X, down: Y), or none", 0},
    {0},
};

/* ---- options -------------------------------------------------------------------------------- */

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

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct problems *p = state->input;
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
        add_word(p, arg, state);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

const struct argp problems_argp = {.options = options, .parser = parse};

/* ---- lists ---------------------------------------------------------------------------------- */

static size_t list_length(const char *list)
{
    size_t n = 1;
    for (const char *c = list; c && *c; c++) {
        n += *c == ',';
    }
    return n;
}

/* Element i as JSON; NULL after the sentence. */
static json_t *list_element(const char *list, size_t i, const struct dimension *d)
{
    const char *at = list;
    for (; i > 0; i--) {
        at = strchr(at, ',') + 1;
    }
    size_t n = strcspn(at, ",");
    if (!d->number) {
        return json_stringn(at, n);
    }
    char *end;
    errno = 0;
    long long v = strtoll(at, &end, 10);
    if (n == 0 || end != at + n || errno) {
        ctl_usage("--%s takes whole numbers, as in 16,32,64; not \"%.*s\"", d->option, (int)n, at);
        return NULL;
    }
    return json_integer(v);
}

/* ---- combinations --------------------------------------------------------------------------- */

static json_t *common_fields(const struct problems *p)
{
    json_t *j = json_object();
    json_object_set_new(j, "op", json_string(p->op ? p->op : "grouped_gemm"));
    const struct {
        const char *name;
        bool set;
    } flags[] = {{"permute_x", p->permute_x},
                 {"permute_y", p->permute_y},
                 {"fuse_mul_post", p->fuse_mul_post},
                 {"accumulate", p->accumulate}};
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        if (flags[i].set) {
            json_object_set_new(j, flags[i].name, json_true());
        }
    }
    if (p->routing || p->profile) {
        json_object_set_new(j, "routing", json_string(p->profile ? p->profile : p->routing));
    }
    return j;
}

/* tokens are not a field of the problem: M is. */
static int tokens_to_rows(json_t *problem)
{
    const json_t *tokens = json_object_get(problem, "tokens");
    if (!tokens) {
        return DONE;
    }
    const json_t *topk = json_object_get(problem, "topk");
    json_int_t rows;
    if (__builtin_mul_overflow(json_integer_value(tokens), topk ? json_integer_value(topk) : 1,
                               &rows)) {
        return ctl_usage("--tokens %lld is too large", (long long)json_integer_value(tokens));
    }
    json_object_set_new(problem, "M", json_integer(rows));
    json_object_del(problem, "tokens");
    return DONE;
}

static int add_combination(struct problems *p, const size_t at[PROBLEM_LISTS])
{
    json_t *problem = common_fields(p);
    int code = DONE;
    for (size_t i = 0; i < PROBLEM_LISTS && code == DONE; i++) {
        if (p->lists[i]) {
            json_t *v = list_element(p->lists[i], at[i], &dimensions[i]);
            code = v ? DONE : USAGE;
            json_object_set_new(problem, dimensions[i].field, v);
        }
    }
    code = code ? code : tokens_to_rows(problem);
    json_array_append_new(p->all, json_pack("{so}", "problem", problem));
    return code;
}

static int add_combinations(struct problems *p)
{
    size_t length[PROBLEM_LISTS], at[PROBLEM_LISTS] = {0}, total = 1;
    for (size_t i = 0; i < PROBLEM_LISTS; i++) {
        length[i] = list_length(p->lists[i]);
        total *= length[i];
        if (total > PROBLEMS_MAX) {
            return ctl_usage("these lists make more than %d problems", PROBLEMS_MAX);
        }
    }
    int code = DONE;
    for (size_t n = 0; n < total && code == DONE; n++) {
        code = add_combination(p, at);
        for (size_t i = PROBLEM_LISTS; i-- > 0 && ++at[i] == length[i];) {
            at[i] = 0;
        }
    }
    return code;
}

static int check_lists(struct problems *p)
{
    if (p->lists[M] && p->lists[TOKENS]) {
        return ctl_usage(
            "--m and --tokens are both given: M is tokens * topk, so one of them says it");
    }
    bool custom = p->op && strncmp(p->op, "custom:", 7) == 0;
    if (!custom && ((!p->lists[M] && !p->lists[TOKENS]) || !p->lists[N] || !p->lists[K])) {
        return ctl_usage(
            "which problem? give --m (or --tokens), --n and --k, or --shapes FILE, or --moe, or "
            "the problem's text");
    }
    static char forward[] = "forward";
    if (!custom && !p->lists[MODE]) {
        p->lists[MODE] = forward;
    }
    return DONE;
}

/* ---- the other two ways --------------------------------------------------------------------- */

static int add_text(struct problems *p)
{
    struct gemmd_error e;
    json_t *problem = text_to_problem(p->words, &e);
    if (!problem) {
        return ctl_usage("%s", e.text);
    }
    json_array_append_new(p->all, json_pack("{so}", "problem", problem));
    return DONE;
}

static int add_table(struct problems *p)
{
    const struct shapes_filter f = {.model = p->model,
                                    .layer = p->layer,
                                    .modes = p->lists[MODE],
                                    .tokens = p->lists[TOKENS],
                                    .own_permutes =
                                        !p->permutes || strcmp(p->permutes, "own") == 0};
    json_t *rows = p->moe ? moe_problems(p->moe, &f) : shapes_read(p->shapes, &f);
    if (!rows) {
        return USAGE;
    }
    json_decref(p->all);
    p->all = rows;
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) {
        json_t *problem = json_object_get(row, "problem");
        json_t *common = common_fields(p);
        for (size_t d = DTYPE; d <= OUT_DTYPE; d++) {
            if (p->lists[d]) {
                json_object_set_new(common, dimensions[d].field, json_string(p->lists[d]));
            }
        }
        json_object_update(problem, common);
        json_decref(common);
    }
    return DONE;
}

/* What --rows-per-expert says of the sizes, where no other option does. */
static int take_rows(struct problems *p)
{
    long long experts, sum;
    if (!p->rows_per_expert) {
        return DONE;
    }
    if (p->routing) {
        return ctl_usage("--routing and --rows-per-expert are both given: one of them says it");
    }
    int code = routing_of_rows(p->rows_per_expert, &p->profile, &experts, &sum);
    if (code == DONE && !p->shapes && !p->moe && !p->words) {
        snprintf(p->experts, sizeof(p->experts), "%lld", experts);
        snprintf(p->sum, sizeof(p->sum), "%lld", sum);
        p->lists[EXPERTS] = p->lists[EXPERTS] ? p->lists[EXPERTS] : p->experts;
        p->lists[M] = p->lists[M] || p->lists[TOKENS] ? p->lists[M] : p->sum;
    }
    return code;
}

int problems_make(struct problems *p)
{
    p->all = json_array();
    int code = take_rows(p);
    if (code) {
        return code;
    }
    bool lists = p->rows_per_expert != NULL;
    for (size_t i = 0; i < PROBLEM_LISTS; i++) {
        lists = lists || p->lists[i];
    }
    if (p->words && (lists || p->shapes || p->moe)) {
        return ctl_usage(
            "\"%s\" stands beside options that say which problem: use one or the other", p->words);
    }
    if (p->shapes && (p->lists[M] || p->lists[N] || p->lists[K])) {
        return ctl_usage("--shapes has the sizes: --m, --n and --k cannot stand beside it");
    }
    if (p->moe && (p->shapes || p->lists[M] || p->lists[N] || p->lists[K] || p->lists[EXPERTS] ||
                   p->lists[TOPK])) {
        return ctl_usage("--moe has the sizes: of those only --tokens can stand beside it");
    }
    if (!p->shapes && !p->moe && (p->model || p->layer || p->permutes)) {
        return ctl_usage(
            "--model, --layer and --permutes are about --shapes or --moe: give one of these");
    }
    if (p->words) {
        return add_text(p);
    }
    if (p->shapes || p->moe) {
        return add_table(p);
    }
    code = check_lists(p);
    return code ? code : add_combinations(p);
}

const json_t *problems_one(struct problems *p)
{
    if (problems_make(p)) {
        return NULL;
    }
    if (json_array_size(p->all) != 1) {
        ctl_usage("these options name %zu problems, and this command is about one",
                  json_array_size(p->all));
        return NULL;
    }
    return json_object_get(json_array_get(p->all, 0), "problem");
}

static char **list_at(struct problems *p, const char *option)
{
    size_t i = 0;
    while (strcmp(dimensions[i].option, option) != 0) {
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

const char *problems_only_modes(const struct problems *p)
{
    bool other = p->op || p->routing || p->rows_per_expert || p->shapes || p->moe || p->model || p->layer || p->permutes ||
                 p->permute_x || p->permute_y || p->fuse_mul_post || p->accumulate || p->words;
    for (size_t i = 0; i < PROBLEM_LISTS; i++) {
        other = other || (i != MODE && p->lists[i]);
    }
    return other ? NULL : p->lists[MODE] ? p->lists[MODE] : "";
}

enum { KEY_LEAST = 6, KEY_DIGITS = 32 };

static bool is_hex(const char *words)
{
    return words && *words && words[strspn(words, "0123456789abcdef")] == '\0';
}

json_t *problems_key_or_one(struct problems *p, int *code)
{
    const size_t digits = is_hex(p->words) ? strlen(p->words) : 0;
    if (digits >= KEY_LEAST && digits <= KEY_DIGITS) {
        return json_pack("{ss}", "key", p->words);
    }
    if (digits) {
        *code = ctl_usage("\"%s\" is no key: %d to %d of its digits are wanted, as `gemmctl list` "
                          "shows them",
                          p->words, KEY_LEAST, KEY_DIGITS);
        return NULL;
    }
    const json_t *problem = problems_one(p);
    if (!problem) {
        *code = USAGE;
        return NULL;
    }
    return json_pack("{sO}", "problem", problem);
}

void problems_deinit(struct problems *p)
{
    free(p->words);
    free(p->profile);
    json_decref(p->all);
}
