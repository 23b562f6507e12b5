/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The problems of a command: options with lists, in every combination (--m 16,32 --n 1024,2048:
 * four problems); or one problem's text; or the rows of a table of layers. gemmctl refuses an
 * option that a text, a key or a table cannot use. If gemmctl ignored the option, the command would
 * act on another problem than the user means.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"

enum { PROBLEMS_MAX = 100000, WORDS_MAX = 16 * 1024, KEY_FIRST = 0x2000 /* + place */ };

/* ---- options -------------------------------------------------------------------------------- */

/* Options that may be given together with a table: fields for each row of the table, and options
 * that select rows. */
enum { BESIDE_NONE = 0, BESIDE_MOE = 1, BESIDE_SHAPES = 2, BESIDE_TABLES = 3, BESIDE_MODE = 4 };

static const struct {
    const char *option, *field; /* field NULL: not a field of the problem */
    enum { WORDS, NUMBERS, FLAG, WORD } kind;
    unsigned beside;
} places[PROBLEM_OPTIONS] = {
    [PROBLEM_MODE] = {"mode", "mode", WORDS, BESIDE_TABLES | BESIDE_MODE},
    [PROBLEM_DTYPE] = {"dtype", "dtype_in", WORDS, BESIDE_TABLES},
    [PROBLEM_OUT_DTYPE] = {"out-dtype", "dtype_out", WORDS, BESIDE_TABLES},
    [PROBLEM_QUANT] = {"quant", "quant", WORDS, BESIDE_TABLES},
    [PROBLEM_EXPERTS] = {"experts", "experts", NUMBERS, BESIDE_NONE},
    [PROBLEM_TOPK] = {"topk", "topk", NUMBERS, BESIDE_NONE},
    [PROBLEM_TOKENS] = {"tokens", "tokens", NUMBERS, BESIDE_TABLES},
    [PROBLEM_M] = {"m", "M", NUMBERS, BESIDE_NONE},
    [PROBLEM_N] = {"n", "N", NUMBERS, BESIDE_NONE},
    [PROBLEM_K] = {"k", "K", NUMBERS, BESIDE_NONE},
    [PROBLEM_OP] = {"op", NULL, WORD, BESIDE_TABLES},
    [PROBLEM_ROUTING] = {"routing", "routing", WORD, BESIDE_TABLES},
    [PROBLEM_ROWS] = {"rows-per-expert", NULL, WORD, BESIDE_TABLES},
    [PROBLEM_PERMUTE_X] = {"permute-x", "permute_x", FLAG, BESIDE_TABLES},
    [PROBLEM_PERMUTE_Y] = {"permute-y", "permute_y", FLAG, BESIDE_TABLES},
    [PROBLEM_FUSE] = {"fuse-mul-post", "fuse_mul_post", FLAG, BESIDE_TABLES},
    [PROBLEM_ACCUMULATE] = {"accumulate", "accumulate", FLAG, BESIDE_TABLES},
    [PROBLEM_BATCH_INVARIANT] = {"batch-invariant", "batch_invariant", FLAG, BESIDE_TABLES},
    [PROBLEM_SHAPES] = {"shapes", NULL, WORD, BESIDE_SHAPES},
    [PROBLEM_MOE] = {"moe", NULL, WORD, BESIDE_MOE},
    [PROBLEM_MODEL] = {"model", NULL, WORD, BESIDE_SHAPES},
    [PROBLEM_LAYER] = {"layer", NULL, WORD, BESIDE_TABLES},
    [PROBLEM_PERMUTES] = {"permutes", NULL, WORD, BESIDE_TABLES},
};

static const struct argp_option options[] = {
    {0, 0, 0, 0,
     "Which problems (LIST: 16,32,64; all combinations). Instead of options, a problem's text can "
     "be given: grouped_gemm mode=forward M=32768 N=1536 K=2048 ...",
     1},
    {"mode", KEY_FIRST + PROBLEM_MODE, "LIST", 0, "forward (default), dX, dW", 0},
    {"m", KEY_FIRST + PROBLEM_M, "LIST", 0, "routed rows, tokens * topk", 0},
    {"n", KEY_FIRST + PROBLEM_N, "LIST", 0, "rows of W [experts, N, K], in every mode", 0},
    {"k", KEY_FIRST + PROBLEM_K, "LIST", 0, "columns of W", 0},
    {"tokens", KEY_FIRST + PROBLEM_TOKENS, "LIST", 0, "instead of --m: M is tokens * topk", 0},
    {"experts", KEY_FIRST + PROBLEM_EXPERTS, "LIST", 0, "default 1: a dense GEMM", 0},
    {"topk", KEY_FIRST + PROBLEM_TOPK, "LIST", 0, "experts per token, default 1", 0},
    {"permute-x", KEY_FIRST + PROBLEM_PERMUTE_X, 0, 0,
     "X is in token order: first GEMM of an MoE layer", 0},
    {"permute-y", KEY_FIRST + PROBLEM_PERMUTE_Y, 0, 0,
     "Y is in token order: second GEMM of an MoE layer", 0},
    {"fuse-mul-post", KEY_FIRST + PROBLEM_FUSE, 0, 0,
     "multiply by the routing weights (needs --permute-y)", 0},
    {"accumulate", KEY_FIRST + PROBLEM_ACCUMULATE, 0, 0, "dW is added to the output", 0},
    {"batch-invariant", KEY_FIRST + PROBLEM_BATCH_INVARIANT, 0, 0,
     "a row has the same bits for every M: forward and dX; of a table not dW, which sums over the "
     "batch",
     0},
    {"dtype", KEY_FIRST + PROBLEM_DTYPE, "LIST", 0, "bf16 (default), fp16, fp32", 0},
    {"out-dtype", KEY_FIRST + PROBLEM_OUT_DTYPE, "LIST", 0, "default: as --dtype", 0},
    {"quant", KEY_FIRST + PROBLEM_QUANT, "LIST", 0,
     "none (default), fp8_block, fp8_row: fp8 operands with scales", 0},
    {"routing", KEY_FIRST + PROBLEM_ROUTING, "PROFILE", 0,
     "uniform (default), zipf:<s>, rows:<a>,<b>,...", 0},
    {"rows-per-expert", KEY_FIRST + PROBLEM_ROWS, "LIST|FILE", 0,
     "a measured routing: rows of each expert, 5,0,3 or a file of numbers; gives --m and "
     "--experts",
     0},
    {"op", KEY_FIRST + PROBLEM_OP, "OP", 0,
     "grouped_gemm (default), another op or alias (the message about an unknown op lists all), or "
     "custom:<name>",
     0},
    {"shapes", KEY_FIRST + PROBLEM_SHAPES, "FILE", 0,
     "a CSV file with columns model,layer,tokens,mode,experts,topk,M,N,K; --model, --layer, "
     "--tokens and --mode then choose rows; or a list of shapes of TunableOp or aiter",
     0},
    {"moe", KEY_FIRST + PROBLEM_MOE, "MODEL", 0,
     "all products of an MoE layer: experts=128,topk=8,hidden=2048,inter=768, or a known model's "
     "name; --tokens gives the token counts, --mode and --layer select",
     0},
    {"model", KEY_FIRST + PROBLEM_MODEL, "LIST", 0, "of --shapes: these models", 0},
    {"layer", KEY_FIRST + PROBLEM_LAYER, "LIST", 0, "of --shapes and --moe: gate_up, down", 0},
    {"permutes", KEY_FIRST + PROBLEM_PERMUTES, "own|none", 0,
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
    if (key == ARGP_KEY_ARG) {
        if (!*arg) { /* often an unset variable of a shell, which must not select everything */
            argp_error(state, "the key, or problem, that was given is empty");
        }
        add_word(p, arg, state);
        return 0;
    }
    if (key < KEY_FIRST || key >= KEY_FIRST + PROBLEM_OPTIONS) {
        return ARGP_ERR_UNKNOWN;
    }
    if (key == KEY_FIRST + PROBLEM_PERMUTES && strcmp(arg, "own") != 0 &&
        strcmp(arg, "none") != 0) {
        argp_error(state, "--permutes takes own or none, not \"%s\"", arg);
    }
    p->given[key - KEY_FIRST] = arg ? arg : "";
    return 0;
}

const struct argp problems_argp = {.options = options, .parser = problems_parse_option};

/* ---- allowed combinations -------------------------------------------------------------------- */

/* The first option that was given and is not allowed together with a table (`beside`: which
 * tables); NULL: all given options are allowed. */
static const char *problems_find_other(const struct problems *p, unsigned beside)
{
    for (size_t i = 0; i < PROBLEM_OPTIONS; i++) {
        if (p->given[i] && !(places[i].beside & beside)) {
            return places[i].option;
        }
    }
    return NULL;
}

bool problems_has_table(const struct problems *p)
{
    return p->given[PROBLEM_SHAPES] || p->given[PROBLEM_MOE];
}

bool problems_has_own_permutes(const struct problems *p)
{
    const char *permutes = p->given[PROBLEM_PERMUTES];
    return !permutes || strcmp(permutes, "own") == 0;
}

bool problems_given(const struct problems *p)
{
    return p->words || problems_find_other(p, BESIDE_NONE);
}

const char *problems_only_modes(const struct problems *p)
{
    const char *modes = p->given[PROBLEM_MODE];
    return p->words || problems_find_other(p, BESIDE_MODE) ? NULL : modes ? modes : "";
}

static int problems_check_words(const struct problems *p)
{
    const char *other = problems_find_other(p, BESIDE_NONE);
    return other ? ctl_usage(
                       "\"%s\" says which problem, and --%s stands beside it: use one or the other",
                       p->words, other)
                 : DONE;
}

/* Checks that the given options agree. 0, or USAGE after the error message. */
static int problems_check(const struct problems *p)
{
    const char *const *given = p->given, *other;
    if (p->words) {
        return problems_check_words(p);
    }
    if (given[PROBLEM_MOE]) {
        other = problems_find_other(p, BESIDE_MOE);
        return other ? ctl_usage("--%s cannot stand beside --moe, which has the sizes: of those "
                                 "only --tokens can",
                                 other)
                     : DONE;
    }
    if (given[PROBLEM_SHAPES]) {
        other = problems_find_other(p, BESIDE_SHAPES);
        return other ? ctl_usage("--%s cannot stand beside --shapes, which has the sizes", other)
                     : DONE;
    }
    if (given[PROBLEM_MODEL] || given[PROBLEM_LAYER] || given[PROBLEM_PERMUTES]) {
        return ctl_usage(
            "--model, --layer and --permutes are about --shapes or --moe: give one of these");
    }
    if (given[PROBLEM_M] && given[PROBLEM_TOKENS]) {
        return ctl_usage(
            "--m and --tokens are both given: M is tokens * topk, so one of them says it");
    }
    return DONE;
}

/* ---- lists ---------------------------------------------------------------------------------- */

static size_t list_length(const char *list)
{
    size_t n = 1;
    for (const char *c = list; c && *c; c++) {
        n += *c == ',';
    }
    return n;
}

static int problems_set_field(json_t *problem, enum problem_option place, const char *word)
{
    int64_t n = 0;
    const bool number = places[place].kind == NUMBERS;
    if (number && !text_read_number(word, INT64_MIN, INT64_MAX, &n)) {
        return ctl_usage("--%s takes whole numbers, as in 16,32,64; not \"%s\"",
                         places[place].option, word);
    }
    json_object_set_new(problem, places[place].field, number ? json_integer(n) : json_string(word));
    return DONE;
}

/* ---- combinations --------------------------------------------------------------------------- */

static json_t *common_fields(const struct problems *p)
{
    const char *op = p->given[PROBLEM_OP];
    const char *routing = p->profile ? p->profile : p->given[PROBLEM_ROUTING];
    json_t *j = json_pack("{ss, ss*}", "op", op ? op : "grouped_gemm", "routing", routing);
    for (size_t i = 0; i < PROBLEM_OPTIONS; i++) {
        if (places[i].kind == FLAG && p->given[i]) {
            json_object_set_new(j, places[i].field, json_true());
        }
    }
    return j;
}

/* Replaces the member "tokens", which is no field of a problem, by M = tokens * topk. */
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

/* A table has the products of all modes, and no dW is batch-invariant. */
static void problems_exempt_dw(json_t *problem)
{
    if (field_is(problem, "mode", "dW")) {
        json_object_del(problem, places[PROBLEM_BATCH_INVARIANT].field);
    }
}

/* Adds the row to p->all once for each combination of values of the options from `list` up to, but
 * not including, `end`. */
static int problems_combine(struct problems *p, const json_t *row, enum problem_option list,
                            enum problem_option end)
{
    if (list == end) {
        json_t *one = json_deep_copy(row);
        json_array_append_new(p->all, one);
        return tokens_to_rows(json_object_get(one, "problem"));
    }
    if (!p->given[list]) {
        return problems_combine(p, row, list + 1, end);
    }
    TEXT_AUTO *words = text_copy(p->given[list]);
    char *at = words;
    int code = DONE;
    for (char *word; code == DONE && (word = strsep(&at, ","));) {
        json_auto_t *one = json_deep_copy(row);
        code = problems_set_field(json_object_get(one, "problem"), list, word);
        code = code ? code : problems_combine(p, one, list + 1, end);
    }
    return code;
}

static int add_combinations(struct problems *p)
{
    size_t total = 1;
    for (size_t i = 0; i < PROBLEM_LISTS; i++) {
        total *= list_length(p->given[i]);
        if (total > PROBLEMS_MAX) {
            return ctl_usage("these lists make more than %d problems", PROBLEMS_MAX);
        }
    }
    json_auto_t *row = json_pack("{so}", "problem", common_fields(p));
    return problems_combine(p, row, PROBLEM_MODE, PROBLEM_LISTS);
}

/* Matrix products need M, N and K, and have a default mode. The fields of other ops are for gemmd
 * to check. */
static int check_lists(struct problems *p)
{
    const char **given = p->given;
    const bool custom = result_is_custom(given[PROBLEM_OP]);
    const bool product = !custom && (!given[PROBLEM_OP] || given[PROBLEM_N]);
    if (product &&
        ((!given[PROBLEM_M] && !given[PROBLEM_TOKENS]) || !given[PROBLEM_N] || !given[PROBLEM_K])) {
        return ctl_usage("which problem? give %s--m (or --tokens), --n and --k, or --shapes FILE, "
                         "or --moe, or the problem's text",
                         p->key_will_do ? "its key (`gemmctl list` shows them), or " : "");
    }
    if (product && !given[PROBLEM_MODE]) {
        given[PROBLEM_MODE] = "forward";
    }
    return DONE;
}

/* ---- texts and tables ------------------------------------------------------------------------ */

enum { KEY_LEAST = 6, KEY_DIGITS = 32 };

static bool is_hex(const char *words)
{
    return words && *words && words[strspn(words, "0123456789abcdef")] == '\0';
}

static int add_text(struct problems *p)
{
    struct error e;
    if (is_hex(p->words) && strlen(p->words) >= KEY_LEAST) {
        return ctl_usage(
            "this command takes a problem, and %s is a key: `gemmctl why` shows its problem",
            p->words);
    }
    json_t *problem = text_to_problem(p->words, &e);
    if (!problem) {
        return ctl_usage("%s", e.text);
    }
    json_array_append_new(p->all, json_pack("{so}", "problem", problem));
    return DONE;
}

/* Adds each row of a table for each combination of types, with the fields that the options set. */
static int add_table(struct problems *p)
{
    json_auto_t *rows = json_array(), *common = common_fields(p);
    int code = p->given[PROBLEM_MOE] ? moe_problems(p, rows) : shapes_read(p, rows);
    ARRAY_EACH(row, rows) {
        json_object_update(json_object_get(row, "problem"), common);
        problems_exempt_dw(json_object_get(row, "problem"));
        code = code ? code : problems_combine(p, row, PROBLEM_DTYPE, PROBLEM_TYPES_END);
    }
    return code;
}

/* Sets M and experts from the rows of --rows-per-expert, when no other option gives them. */
static int take_rows(struct problems *p)
{
    const char **given = p->given;
    long long experts, sum;
    if (!given[PROBLEM_ROWS]) {
        return DONE;
    }
    if (given[PROBLEM_ROUTING]) {
        return ctl_usage("--routing and --rows-per-expert are both given: one of them says it");
    }
    int code = routing_of_rows(given[PROBLEM_ROWS], &p->profile, &experts, &sum);
    if (code || p->words || problems_has_table(p)) {
        return code;
    }
    snprintf(p->experts, sizeof(p->experts), "%lld", experts);
    snprintf(p->sum, sizeof(p->sum), "%lld", sum);
    if (!given[PROBLEM_EXPERTS]) {
        given[PROBLEM_EXPERTS] = p->experts;
    }
    if (!given[PROBLEM_M] && !given[PROBLEM_TOKENS]) {
        given[PROBLEM_M] = p->sum;
    }
    return DONE;
}

int problems_make(struct problems *p)
{
    p->all = json_array();
    int code = problems_check(p);
    code = code ? code : take_rows(p);
    if (code) {
        return code;
    }
    if (p->words) {
        return add_text(p);
    }
    if (problems_has_table(p)) {
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
        ctl_usage("these options name %zu problems, and this command is about one: %s",
                  json_array_size(p->all),
                  problems_has_table(p) ? "choose it by --mode, --layer and --tokens"
                                        : "give one value to each");
        return NULL;
    }
    return json_object_get(json_array_get(p->all, 0), "problem");
}

json_t *problems_key_or_one(struct problems *p, int *code)
{
    const size_t digits = is_hex(p->words) ? strlen(p->words) : 0;
    if (digits >= KEY_LEAST && digits <= KEY_DIGITS) {
        *code = problems_check_words(p);
        return *code ? NULL : json_pack("{ss}", "key", p->words);
    }
    if (digits) {
        *code = ctl_usage(
            "\"%s\" is no key: %d to %d of its digits are wanted, as `gemmctl list` shows them",
            p->words, KEY_LEAST, KEY_DIGITS);
        return NULL;
    }
    p->key_will_do = true;
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
