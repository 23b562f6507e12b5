/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of a config that all targets share. A config may come from a person, from another tool's
 * file or from a space. It may hold flags that belong to the problem, and TMA switches for which a
 * target has no kernel. The mode rules reject combinations that no kernel can run: TMA moves whole
 * boxes, so it can neither gather loads nor scatter stores.
 */
#include <stdio.h>
#include <string.h>

#include "kernels/families/grouped_gemm/grouped_gemm.h"

enum common {
    PERMUTE_X,
    PERMUTE_Y,
    FUSE_MUL_POST,
    TMA_LOAD_X,
    TMA_LOAD_W,
    TMA_LOAD_DY,
    TMA_STORE,
    FLATTEN,
    COMMON
};
static const char *const common[COMMON + 1] = {
    "permute_x",      "permute_y",       "fuse_mul_post", "use_tma_load_x",
    "use_tma_load_w", "use_tma_load_dy", "use_tma_store", "flatten",
};

const enum gemm_role gemm_roles[][GEMM_ROLES] = {
    [GEMM_FORWARD] = {GEMM_ROWS, GEMM_COLS, GEMM_SUM},
    [GEMM_DX] = {GEMM_ROWS, GEMM_SUM, GEMM_COLS},
    [GEMM_DW] = {GEMM_SUM, GEMM_ROWS, GEMM_COLS},
};
const char *const gemm_block_names[GEMM_ROLES] = {"BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"};
const char *const gemm_block_help[GEMM_ROLES] = {"tile of the routed rows", "tile of N",
                                                 "tile of K"};

void gemm_rules_name_tile(const struct problem *p, const char *names[3])
{
    struct gemm v;
    gemm_view(p, &v);
    for (int i = 0; i < GEMM_ROLES; i++) {
        names[gemm_roles[v.mode][i]] = gemm_block_names[i];
    }
}

struct flags {
    bool said[COMMON], value[COMMON];
};

/* Called for each name of each config of a space; the test of the first byte mostly saves the call.
 * -1: not in the list. */
static int rules_find_name(const char *const list[], const char *name)
{
    for (int i = 0; list[i]; i++) {
        if (list[i][0] == name[0] && strcmp(list[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

/* Appends the names of a list, separated by blanks. A target's list may repeat common names; these
 * appear only in the list `common`. */
static size_t append_names(char *out, size_t size, size_t n, const char *const list[])
{
    for (; *list && n < size; list++) {
        if (list == common || rules_find_name(common, *list) < 0) {
            n += (size_t)snprintf(out + n, size - n, "%s%s", n ? " " : "", *list);
        }
    }
    return n < size ? n : size - 1;
}

static int rules_read_flags(const struct record *config, const char *const known[],
                            struct flags *out, struct rejection *why)
{
    for (uint32_t i = 0; i < config->n; i++) {
        const struct record_field *f = &config->fields[i];
        const int flag = rules_find_name(common, f->name);
        if (flag >= 0) {
            if (f->v.type != VALUE_BOOL) {
                return rejection_set(why, ERROR_INVALID, "flag_type", "%s must be true or false",
                                     f->name);
            }
            out->said[flag] = true;
            out->value[flag] = record_at(config, i).flag;
        } else if (rules_find_name(known, f->name) < 0) {
            char names[256];
            size_t n = append_names(names, sizeof(names), 0, known);
            append_names(names, sizeof(names), n, common);
            return rejection_set(why, ERROR_INVALID, "unknown_parameter",
                                 "unknown parameter \"%s\"; known: %s", f->name, names);
        }
    }
    return 0;
}

/* Both permutes in a config are wrong for every problem, so this error comes before the
 * error of a flag that disagrees with the problem. */
static int rules_check_flags(const struct gemm *v, const struct flags *f, struct rejection *why)
{
    const bool of_problem[] = {v->permute_x, v->permute_y, v->fuse_mul_post};
    if (f->value[PERMUTE_X] && f->value[PERMUTE_Y]) {
        return rejection_set(why, ERROR_CONFLICT, "both_permutes",
                             "permute_x and permute_y are both true: the first GEMM of a layer "
                             "permutes X, the second Y, none both");
    }
    for (int i = PERMUTE_X; i <= FUSE_MUL_POST; i++) {
        if (f->said[i] && f->value[i] != of_problem[i]) {
            return rejection_set(why, ERROR_CONFLICT, "flags_agree",
                                 "the config says %s=%s, but the problem has %s=%s: leave it out "
                                 "of the config, or ask for the other problem",
                                 common[i], f->value[i] ? "true" : "false", common[i],
                                 of_problem[i] ? "true" : "false");
        }
    }
    return 0;
}

/* The manual prune table: which TMA loads and stores each mode excludes. */
static int rules_check_mode(const struct gemm *v, const struct flags *f, struct rejection *why)
{
    const struct {
        enum common tma;
        bool excluded;
        const char *permute, *cannot;
    } pairs[] = {
        {TMA_LOAD_X, v->gather_x, "permute_x", "gather"},
        {TMA_LOAD_DY, v->gather_dy, "permute_y", "gather"},
        {TMA_STORE, v->scatter, v->mode == GEMM_FORWARD ? "permute_y" : "permute_x", "scatter"},
    };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        if (f->value[pairs[i].tma] && pairs[i].excluded) {
            const char *tma = common[pairs[i].tma], *permute = pairs[i].permute;
            char rule[64];
            snprintf(rule, sizeof(rule), "%s_excludes_%s", tma + strlen("use_"), permute);
            return rejection_set(why, ERROR_CONFLICT, rule,
                                 "%s and %s exclude each other in mode %s: TMA moves whole boxes "
                                 "and cannot %s rows",
                                 tma, permute, gemm_mode_name(v->mode), pairs[i].cannot);
        }
    }
    return 0;
}

static int rules_check_no_tma(const struct flags *f, const char *target, struct rejection *why)
{
    for (int i = TMA_LOAD_X; i <= TMA_STORE; i++) {
        if (f->value[i]) {
            return rejection_set(
                why, ERROR_INVALID, "no_tma",
                "%s=true: the %s kernel has no TMA; leave it out or set it to false", common[i],
                target);
        }
    }
    return 0;
}

int gemm_rules_check(const struct gemm *v, const struct record *config, const char *const known[],
                     const char *without_tma, struct rejection *why)
{
    struct flags f = {0};
    int r = rules_read_flags(config, known, &f, why);
    r = r ? r : rules_check_flags(v, &f, why);
    r = r ? r : rules_check_mode(v, &f, why);
    return r || !without_tma ? r : rules_check_no_tma(&f, without_tma, why);
}

struct param *gemm_add_param(struct param out[], uint32_t *n, const char *name, bool run_time,
                             const char *help)
{
    struct param *p = &out[(*n)++];
    *p = (struct param){.name = name, .run_time = run_time, .help = help};
    return p;
}

void gemm_add_ints(struct param out[], uint32_t *n, const char *name, bool run_time,
                   const int values[], const char *help)
{
    struct param *p = gemm_add_param(out, n, name, run_time, help);
    for (const int *v = values; *v >= 0; v++) {
        p->values[p->n++] = VALUE_OF_INT(*v);
    }
}

int gemm_rules_missing(const char *name, const char *target, const char *use, struct rejection *why)
{
    return rejection_set(why, ERROR_INVALID, "missing_parameter",
                         "%s is missing: the %s kernel needs it, %s", name, target, use);
}

int gemm_rules_refuse(const char *name, const struct value *value, const char *target,
                      const char *use, struct rejection *why)
{
    char text[64];
    value_format(value, text, sizeof(text));
    return rejection_set(why, ERROR_INVALID, "parameter_value", "%s=%s: the %s kernel takes %s",
                         name, text, target, use);
}

int gemm_rules_int(const struct int_rule *rule, const char *name, const struct value *value,
                   const char *target, struct rejection *why)
{
    if (value->type == VALUE_NONE) {
        return rule->required ? gemm_rules_missing(name, target, rule->use, why) : 0;
    }
    const int64_t v = value->type == VALUE_INT ? value->integer : -1;
    const bool fits = rule->multiple == POWER_OF_TWO ? (v & (v - 1)) == 0
                                                     : !rule->multiple || v % rule->multiple == 0;
    return v >= rule->least && v <= rule->most && fits
               ? 0
               : gemm_rules_refuse(name, value, target, rule->use, why);
}

int gemm_rules_reject(const struct rule rules[], size_t n, struct rejection *why)
{
    const struct rule *r = rules;
    while (r < rules + n && !r->broken) {
        r++;
    }
    if (r == rules + n) {
        return 0;
    }
    const int64_t numbers[] = {r->first, r->second, r->third, r->fourth, r->fifth, r->sixth};
    const int64_t *number = numbers;
    char text[sizeof(why->text)];
    size_t at = 0;
    for (const char *from = r->text; *from && at < sizeof(text) - 24; from++) {
        if (*from == '#') {
            at += (size_t)snprintf(text + at, sizeof(text) - at, "%lld", (long long)*number++);
        } else {
            text[at++] = *from;
        }
    }
    text[at] = '\0';
    return r->limit ? rejection_resource(why, r->name, r->required, r->limit, "%s", text)
                    : rejection_set(why, ERROR_INVALID, r->name, "%s", text);
}

void gemm_rules_exactness(const struct gemm *v, const char *order, struct exactness *out)
{
    *out = (struct exactness){.runs = *order, .batches = *order && v->mode != GEMM_DW};
    snprintf(out->order, sizeof(out->order), "%s", out->batches ? order : "");
}

int gemm_rules_order(const struct gemm *v, const char *order, const char *shared,
                     const char *target, const char *fix, struct rejection *why)
{
    if (!v->batch_invariant || strcmp(order, shared) == 0) {
        return 0;
    }
    return rejection_set(why, ERROR_INVALID, "batch_invariant",
                         *order ? "the problem is batch_invariant, and this config of the %s "
                                  "kernel sums in another order than its configs for other M: %s"
                                : "the problem is batch_invariant, and this config of the %s "
                                  "kernel sums in no known order: leave one of them out, or %s",
                         target, fix);
}

int gemm_rules_rows_16(const struct gemm *v, struct rejection *why)
{
    if (v->quant->is_scaled) {
        return 0; /* the op has checked the sizes of scaled operands */
    }
    int64_t multiple = 16 / (int64_t)dtype_size(v->in);
    const char *name = v->n % multiple ? "N" : v->k % multiple ? "K" : NULL;
    if (!name) {
        return 0;
    }
    return rejection_set(why, ERROR_INVALID, "rows_16_bytes",
                         "%s is %lld, not a multiple of %lld: this kernel reads rows of 16-byte "
                         "pieces (%lld elements of %s); pad %s",
                         name, (long long)(*name == 'N' ? v->n : v->k), (long long)multiple,
                         (long long)multiple, dtype_name(v->in), name);
}
