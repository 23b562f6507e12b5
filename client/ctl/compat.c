/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spaces as other tuners enumerate them, so that users can compare counts.
 *
 * Unsloth's space: three blocks, warps, stages, one switch for both TMA loads of the mode, and one
 * switch for both permutes: 432 configs a mode. Unsloth's rules, in Unsloth's order, then drop each
 * config that permutes: the one switch permutes both X and Y, which no config may do. The 216
 * configs left contain none for an MoE layer's own GEMMs. gemmd's spaces treat each switch
 * separately, so --compat is a separate option.
 */
#include <stdio.h>
#include <string.h>

#include "client/ctl/formats.h"

enum { PARAMS = 7, BLOCK_M = 0, BLOCK_N, BLOCK_K, WARPS, STAGES, LOADS, PERMUTES };

static const struct {
    const char *name;
    int values[3], n;
    bool flag;
    const char *help;
} params[PARAMS] = {
    [BLOCK_M] = {"BLOCK_SIZE_M", {64, 128}, 2, false, "tile of the routed rows"},
    [BLOCK_N] = {"BLOCK_SIZE_N", {64, 128, 256}, 3, false, "tile of N"},
    [BLOCK_K] = {"BLOCK_SIZE_K", {64, 128, 256}, 3, false, "tile of K"},
    [WARPS] = {"num_warps", {4, 8}, 2, false, "warps of a block of threads"},
    [STAGES] = {"num_stages", {3, 4, 5}, 3, false, "tiles in flight in shared memory"},
    [LOADS] = {"use_tma_load", {0, 1}, 2, true, "both TMA loads of the mode, together"},
    [PERMUTES] = {"permute", {0, 1}, 2, true, "permute_x and permute_y, together"},
};

struct compat_rule {
    const char *mode, *first, *second;
};

/* In the order of evaluation: the first rule that holds drops the config. */
static const struct compat_rule rules[] = {
    {"forward", "use_tma_load_x", "permute_x"}, {"forward", "permute_x", "permute_y"},
    {"forward", "use_tma_store", "permute_y"},  {"dX", "use_tma_load_dy", "permute_y"},
    {"dX", "permute_x", "permute_y"},           {"dX", "use_tma_store", "permute_x"},
    {"dW", "use_tma_load_dy", "permute_y"},     {"dW", "use_tma_load_x", "permute_x"},
    {"dW", "permute_x", "permute_y"},
};

/* ---- configs --------------------------------------------------------------------------------- */

static json_t *make_config(const struct unsloth_mode *mode, const int at[PARAMS])
{
    json_t *config = json_object();
    for (int i = BLOCK_M; i <= STAGES; i++) {
        json_object_set_new(config, params[i].name, json_integer(params[i].values[at[i]]));
    }
    json_auto_t *flags =
        json_pack("{sb, sb, sb, sb, sb, sb, sb}", "flatten", 1, "fuse_mul_post", 0, "use_tma_store",
                  0, "permute_x", at[PERMUTES], "permute_y", at[PERMUTES], mode->loads[0],
                  at[LOADS], mode->loads[1], at[LOADS]);
    json_object_update(config, flags);
    return config;
}

static const struct compat_rule *dropped_by(const char *mode, const json_t *config)
{
    for (size_t i = 0; i < COUNT(rules); i++) {
        if (strcmp(rules[i].mode, mode) == 0 && field_is_true(config, rules[i].first) &&
            field_is_true(config, rules[i].second)) {
            return &rules[i];
        }
    }
    return NULL;
}

/* ---- the space ------------------------------------------------------------------------------ */

static json_t *param_rows(void)
{
    json_t *rows = json_array();
    for (int i = 0; i < PARAMS; i++) {
        json_t *values = json_array();
        for (int k = 0; k < params[i].n; k++) {
            int v = params[i].values[k];
            json_array_append_new(values, params[i].flag ? json_boolean(v) : json_integer(v));
        }
        json_array_append_new(rows,
                              json_pack("{ss, sb, so, ss}", "name", params[i].name, "run_time", 0,
                                        "values", values, "help", params[i].help));
    }
    return rows;
}

static void count_drop(json_t *space, const struct compat_rule *rule, const json_t *config)
{
    json_t *dropped = json_object_get(space, "dropped");
    char name[64];
    snprintf(name, sizeof(name), "%s_excludes_%s", rule->first, rule->second);
    if (notice_count(dropped, name, 1) == 1) {
        TEXT_AUTO *text = show_config(config);
        json_object_set_new(
            json_object_get(space, "reasons"), name,
            json_sprintf("%s and %s are both true: %s", rule->first, rule->second, text));
    }
}

static json_t *compat_make_space(const struct unsloth_mode *mode)
{
    json_t *space = json_pack("{ss, ss, s[], si, so, s{}, s{}, s{}}", "compat", "unsloth", "mode",
                              mode->name, "configs", "settings", 1, "params", param_rows(),
                              "dropped", "unpromising", "reasons");
    int at[PARAMS], raw = 1;
    json_t *configs = json_object_get(space, "configs");
    for (int i = 0; i < PARAMS; i++) {
        raw *= params[i].n;
    }
    for (int n = 0; n < raw; n++) {
        for (int i = PARAMS - 1, rest = n; i >= 0; i--) { /* the last parameter varies fastest */
            at[i] = rest % params[i].n;
            rest /= params[i].n;
        }
        json_auto_t *config = make_config(mode, at);
        const struct compat_rule *rule = dropped_by(mode->name, config);
        if (rule) {
            count_drop(space, rule, config);
        } else {
            json_array_append(configs, config);
        }
    }
    json_int_t legal = (json_int_t)json_array_size(configs);
    json_object_set_new(space, "raw", json_integer(raw));
    /* Sets three equal counts: the other tuner searches every legal config, and compiles each
     * config separately. */
    json_object_set_new(space, "legal", json_integer(legal));
    json_object_set_new(space, "searched", json_integer(legal));
    json_object_set_new(space, "variants", json_integer(legal));
    return space;
}

/* ---- the command ---------------------------------------------------------------------------- */

static int compat_check_modes(const char *modes)
{
    for (const char *at = modes; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char word[16];
        snprintf(word, sizeof(word), "%.*s", (int)strcspn(at, ","), at);
        if (!list_has("forward,dX,dW", word)) {
            return ctl_usage("mode is \"%s\"; it can be forward, dX, dW", word);
        }
    }
    return DONE;
}

int compat_space(const char *name, const char *modes, bool json, void (*print)(const json_t *space))
{
    if (strcmp(name, "unsloth") != 0) {
        return ctl_usage("--compat takes unsloth, not \"%s\"", name);
    }
    if (compat_check_modes(modes)) {
        return USAGE;
    }
    json_auto_t *all = json_array();
    for (size_t i = 0; i < UNSLOTH_MODES; i++) {
        const struct unsloth_mode *mode = &unsloth_modes[i];
        if (!list_has(modes, mode->name)) {
            continue;
        }
        json_t *space = compat_make_space(mode);
        if (!json) {
            printf("%sthe space of unsloth, mode %s\n", json_array_size(all) ? "\n" : "",
                   mode->name);
            print(space);
        }
        json_array_append_new(all, space);
    }
    return json ? ctl_print_json(json_incref(all)) : DONE;
}
