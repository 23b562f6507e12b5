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

enum { PROBLEMS_MAX = 100000 };

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
    for (size_t i = 0; i < COUNT(flags); i++) {
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

/* The field of a list, of which element `at` is meant, if the list was given. */
static int set_field(const struct problems *p, size_t list, size_t at, json_t *problem)
{
    const struct dimension *d = &problems_dimensions[list];
    if (!p->lists[list]) {
        return DONE;
    }
    json_t *v = list_element(p->lists[list], at, d);
    return v && json_object_set_new(problem, d->field, v) == 0 ? DONE : USAGE;
}

static int add_combination(struct problems *p, const size_t at[PROBLEM_LISTS])
{
    json_t *problem = common_fields(p);
    int code = DONE;
    for (size_t i = 0; i < PROBLEM_LISTS && code == DONE; i++) {
        code = set_field(p, i, at[i], problem);
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
    bool custom = p->op && strncmp(p->op, "custom:", 7) == 0;
    if (!custom && ((!p->lists[DIMENSION_M] && !p->lists[DIMENSION_TOKENS]) ||
                    !p->lists[DIMENSION_N] || !p->lists[DIMENSION_K])) {
        return ctl_usage(
            "which problem? give %s--m (or --tokens), --n and --k, or --shapes FILE, or --moe, or "
            "the problem's text",
            p->key_will_do ? "its key (`gemmctl list` shows them), or " : "");
    }
    static char forward[] = "forward";
    if (!custom && !p->lists[DIMENSION_MODE]) {
        p->lists[DIMENSION_MODE] = forward;
    }
    return DONE;
}

/* ---- the other two ways --------------------------------------------------------------------- */

enum { KEY_LEAST = 6, KEY_DIGITS = 32 };

static bool is_hex(const char *words)
{
    return words && *words && words[strspn(words, "0123456789abcdef")] == '\0';
}

static int add_text(struct problems *p)
{
    struct gemmd_error e;
    if (is_hex(p->words) && strlen(p->words) >= KEY_LEAST) {
        return ctl_usage(
            "this command takes a problem, and %s is a key: `gemmctl show` says of which",
            p->words);
    }
    json_t *problem = text_to_problem(p->words, &e);
    if (!problem) {
        return ctl_usage("%s", e.text);
    }
    json_array_append_new(p->all, json_pack("{so}", "problem", problem));
    return DONE;
}

/* A row of a table, once for each of the types, with what the options say of all rows. */
static void problems_add_row(struct problems *p, const json_t *row)
{
    for (size_t in = 0; in < list_length(p->lists[DIMENSION_DTYPE]); in++) {
        for (size_t out = 0; out < list_length(p->lists[DIMENSION_OUT_DTYPE]); out++) {
            json_t *one = json_deep_copy(row), *problem = json_object_get(one, "problem");
            json_t *common = common_fields(p);
            json_object_update(problem, common);
            json_decref(common);
            set_field(p, DIMENSION_DTYPE, in, problem);
            set_field(p, DIMENSION_OUT_DTYPE, out, problem);
            json_array_append_new(p->all, one);
        }
    }
}

static int add_table(struct problems *p)
{
    const struct shapes_filter f = {.model = p->model,
                                    .layer = p->layer,
                                    .modes = p->lists[DIMENSION_MODE],
                                    .tokens = p->lists[DIMENSION_TOKENS],
                                    .own_permutes =
                                        !p->permutes || strcmp(p->permutes, "own") == 0};
    json_t *rows = p->moe ? moe_problems(p->moe, &f) : shapes_read(p->shapes, &f);
    if (!rows) {
        return USAGE;
    }
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row) {
        problems_add_row(p, row);
    }
    json_decref(rows);
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
        p->lists[DIMENSION_EXPERTS] =
            p->lists[DIMENSION_EXPERTS] ? p->lists[DIMENSION_EXPERTS] : p->experts;
        p->lists[DIMENSION_M] =
            p->lists[DIMENSION_M] || p->lists[DIMENSION_TOKENS] ? p->lists[DIMENSION_M] : p->sum;
    }
    return code;
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
        ctl_usage("these options name %zu problems, and this command is about one: %s",
                  json_array_size(p->all),
                  p->shapes || p->moe ? "choose it by --mode, --layer and --tokens"
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
        *code = ctl_usage("\"%s\" is no key: %d to %d of its digits are wanted, as `gemmctl list` "
                          "shows them",
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
