/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a config must obey on every target. A config may come from a person, from another tool's
 * file or from a space; it may hold flags that belong to the problem, and TMA switches that a
 * target has no kernel for. The rules of the modes are those that make a combination impossible
 * whatever the kernel: TMA loads whole boxes, so it cannot gather, and stores whole boxes, so it
 * cannot scatter.
 */
#include <stdio.h>
#include <string.h>

#include "kernels/families/grouped_gemm/grouped_gemm.h"

static const char *const common[] = {
    "permute_x",      "permute_y",      "fuse_mul_post",
    "use_tma_load_x", "use_tma_load_w", "use_tma_load_dy",
    "use_tma_store",  "flatten",        NULL,
};

/* For each name of each config of a space: most differ in their first byte, which saves the
 * call. */
static bool rules_list_contains(const char *const list[], const char *name)
{
    for (; *list; list++) {
        if ((*list)[0] == name[0] && strcmp(*list, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Those that are not common: these come at the end. */
static size_t append_names(char *out, size_t size, size_t n, const char *const list[])
{
    for (; *list && n < size; list++) {
        if (list == common || !rules_list_contains(common, *list)) {
            n += (size_t)snprintf(out + n, size - n, "%s%s", n ? " " : "", *list);
        }
    }
    return n < size ? n : size - 1;
}

static int rules_check_names(const struct record *config, const char *const known[],
                             struct rejection *why)
{
    for (uint32_t i = 0; i < config->n; i++) {
        const struct record_field *f = &config->fields[i];
        if (rules_list_contains(common, f->name)) {
            if (f->type != VALUE_BOOL) {
                return rejection_set(why, ERROR_INVALID, "flag_type", "%s must be true or false",
                                     f->name);
            }
        } else if (!rules_list_contains(known, f->name)) {
            char names[256];
            size_t n = append_names(names, sizeof(names), 0, known);
            append_names(names, sizeof(names), n, common);
            return rejection_set(why, ERROR_INVALID, "unknown_parameter",
                                 "unknown parameter \"%s\"; known: %s", f->name, names);
        }
    }
    return 0;
}

static int check_flag(const struct record *config, const char *name, bool of_problem,
                      struct rejection *why)
{
    bool value = record_bool(config, name, of_problem);
    if (value == of_problem) {
        return 0;
    }
    return rejection_set(why, ERROR_CONFLICT, "flags_agree",
                         "the config says %s=%s, but the problem has %s=%s: leave it out of the "
                         "config, or ask for the other problem",
                         name, value ? "true" : "false", name, of_problem ? "true" : "false");
}

static int rules_exclude_pair(enum gemm_mode mode, const char *tma, const char *permute,
                              struct rejection *why)
{
    char rule[64];
    snprintf(rule, sizeof(rule), "%s_excludes_%s", tma + strlen("use_"), permute);
    return rejection_set(
        why, ERROR_CONFLICT, rule,
        "%s and %s exclude each other in mode %s: TMA moves whole boxes and cannot "
        "%s rows",
        tma, permute, gemm_mode_name(mode),
        strcmp(tma, "use_tma_store") == 0 ? "scatter" : "gather");
}

/* The manual prune table. Flags that only the config gives (a problem never has both permutes)
 * have been compared with the problem before. */
static int check_mode(const struct grouped_gemm_problem *v, const struct record *config,
                      struct rejection *why)
{
    bool load_x = record_bool(config, "use_tma_load_x", false);
    bool load_dy = record_bool(config, "use_tma_load_dy", false);
    bool store = record_bool(config, "use_tma_store", false);
    if (load_x && v->gather_x) {
        return rules_exclude_pair(v->mode, "use_tma_load_x", "permute_x", why);
    }
    if (load_dy && v->gather_dy) {
        return rules_exclude_pair(v->mode, "use_tma_load_dy", "permute_y", why);
    }
    if (store && v->scatter) {
        return rules_exclude_pair(v->mode, "use_tma_store",
                                  v->mode == GEMM_FORWARD ? "permute_y" : "permute_x", why);
    }
    return 0;
}

/* Both permutes in a config are wrong whatever the problem, and say more than a disagreement. */
static int rules_check_flags(const struct grouped_gemm_problem *v, const struct record *config,
                             struct rejection *why)
{
    if (record_bool(config, "permute_x", false) && record_bool(config, "permute_y", false)) {
        return rejection_set(why, ERROR_CONFLICT, "both_permutes",
                             "permute_x and permute_y are both true: the first GEMM of a layer "
                             "permutes X, the second Y, none both");
    }
    int r = check_flag(config, "permute_x", v->permute_x, why);
    r = r ? r : check_flag(config, "permute_y", v->permute_y, why);
    return r ? r : check_flag(config, "fuse_mul_post", v->fuse_mul_post, why);
}

int grouped_gemm_rules_check(const struct grouped_gemm_problem *v, const struct record *config,
                             const char *const known[], struct rejection *why)
{
    int r = rules_check_names(config, known, why);
    r = r ? r : rules_check_flags(v, config, why);
    return r ? r : check_mode(v, config, why);
}

int grouped_gemm_rules_no_tma(const struct record *config, const char *target,
                              struct rejection *why)
{
    for (const char *const *name = common; *name; name++) {
        if (strncmp(*name, "use_tma_", 8) == 0 && record_bool(config, *name, false)) {
            return rejection_set(
                why, ERROR_INVALID, "no_tma",
                "%s=true: the %s kernel has no TMA; leave it out or set it to false", *name,
                target);
        }
    }
    return 0;
}

int grouped_gemm_rules_rows_16(const struct grouped_gemm_problem *v, struct rejection *why)
{
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
