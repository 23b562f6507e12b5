/* SPDX-License-Identifier: Apache-2.0 */
/* The tunables of a target as params, and the checks of a config that follow from them. */
#include <stdio.h>
#include <string.h>

#include "kernels/families/quantise/quantise.h"

static const int *quantise_values(const struct quantise_tunable *t, const struct quantise *v)
{
    return !v->column_side && t->rows_values[0] ? t->rows_values : t->values;
}

uint32_t quantise_list_params(const struct quantise_tunable t[], size_t n, const struct quantise *v,
                              struct param out[PARAMS_MAX])
{
    for (size_t i = 0; i < n; i++) {
        out[i] = (struct param){.name = t[i].name, .run_time = t[i].run_time, .help = t[i].help};
        for (const int *value = quantise_values(&t[i], v); *value >= 0; value++) {
            out[i].values[out[i].n++] =
                t[i].is_bool ? VALUE_OF_BOOL(*value != 0) : VALUE_OF_INT(*value);
        }
    }
    return (uint32_t)n;
}

static int quantise_check_names(const struct quantise_tunable t[], size_t n,
                                const struct record *config, struct rejection *why)
{
    char known[160] = "";
    for (size_t i = 0; i < n; i++) {
        snprintf(known + strlen(known), sizeof(known) - strlen(known), " %s", t[i].name);
    }
    for (uint32_t f = 0; f < config->n; f++) {
        size_t i = 0;
        while (i < n && strcmp(config->fields[f].name, t[i].name) != 0) {
            i++;
        }
        if (i == n) {
            return rejection_set(why, ERROR_INVALID, "unknown_parameter",
                                 "unknown parameter \"%s\"; known:%s", config->fields[f].name,
                                 known);
        }
    }
    return 0;
}

static bool quantise_takes(const struct quantise_tunable *t, const struct quantise *v,
                           int64_t value)
{
    const int *listed = quantise_values(t, v);
    while (*listed >= 0 && *listed != value) {
        listed++;
    }
    return *listed >= 0 || (t->run_time && value >= 1 && value <= 1024);
}

static int quantise_check_value(const struct quantise_tunable *t, const struct quantise *v,
                                const struct record *config, const char *target,
                                struct rejection *why)
{
    struct value value = {0};
    if (!record_get(config, t->name, &value)) {
        return rejection_set(why, ERROR_INVALID, "missing_parameter",
                             "%s is missing: the %s kernel needs it, %s", t->name, target, t->help);
    }
    if (t->is_bool ? value.type == VALUE_BOOL
                   : value.type == VALUE_INT && quantise_takes(t, v, value.integer)) {
        return 0;
    }
    char text[64], list[96] = "";
    value_format(&value, text, sizeof(text));
    for (const int *x = quantise_values(t, v); *x >= 0 && !t->is_bool; x++) {
        snprintf(list + strlen(list), sizeof(list) - strlen(list), " %d", *x);
    }
    return rejection_set(why, ERROR_INVALID, "parameter_value", "%s=%s: the %s kernel takes%s",
                         t->name, text, target, t->is_bool ? " true or false" : list);
}

int quantise_check_config(const struct quantise_tunable t[], size_t n, const struct quantise *v,
                          const struct record *config, const char *target, struct rejection *why)
{
    int r = quantise_check_names(t, n, config, why);
    for (size_t i = 0; i < n && r == 0; i++) {
        r = quantise_check_value(&t[i], v, config, target, why);
    }
    return r;
}
