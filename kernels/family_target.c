/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses a problem's target, and finds the target of a config or a variant. */
#include <stdio.h>
#include <string.h>

#include "kernels/family.h"

bool family_target_runs_on(const struct family_target *t, const struct device_info *info)
{
    return strcmp(t->kind, info->kind) == 0 && (!t->supports || t->supports(info));
}

const struct family_target *family_target_find(const struct family *f,
                                               const struct device_info *info, const char *label)
{
    for (const struct family_target *const *t = f->targets; *t; t++) {
        if (family_target_runs_on(*t, info) && (!label || strcmp((*t)->label, label) == 0)) {
            return *t;
        }
    }
    return NULL;
}

static int no_kernels(const struct family *f, const struct device_info *info, struct error *err)
{
    return error_set(err, ERROR_NO_CONFIG, "family %s has no kernels for %s (%s)", f->name,
                     info->name, info->arch);
}

static int unknown_label(const struct family *f, const struct device_info *info, const char *label,
                         struct error *err)
{
    char known[200] = "";
    for (const struct family_target *const *t = f->targets; *t; t++) {
        size_t n = strlen(known);
        if (family_target_runs_on(*t, info)) {
            snprintf(known + n, sizeof(known) - n, "%s%s", n ? ", " : "", (*t)->label);
        }
    }
    if (!known[0]) {
        return no_kernels(f, info, err);
    }
    return error_set(err, ERROR_INVALID, "there is no target '%.32s' of %s for %s (%s); it has: %s",
                     label, f->name, info->name, info->arch, known);
}

static int choose_forced(const struct family *f, const struct problem *p,
                         const struct device_info *info, const char *label,
                         const struct family_target **out, struct error *err)
{
    struct rejection why;
    *out = family_target_find(f, info, label);
    if (!*out) {
        return unknown_label(f, info, label, err);
    }
    if ((*out)->takes && (*out)->takes(p, info, &why)) {
        *out = NULL;
        return error_set(err, ERROR_NO_CONFIG, "target %s does not do this problem: %s", label,
                         why.text);
    }
    return 0;
}

int family_target_choose(const struct family *f, const struct problem *p,
                         const struct device_info *info, const char *label,
                         const struct family_target **out, struct error *err)
{
    *out = NULL;
    if (!f) {
        return error_set(err, ERROR_NO_CONFIG, "there are no kernels for op %s", p->op_name);
    }
    if (label && label[0]) {
        return choose_forced(f, p, info, label, out, err);
    }
    for (const struct family_target *const *t = f->targets; *t; t++) {
        struct rejection why;
        if (!family_target_runs_on(*t, info)) {
            continue;
        }
        *out = *t;
        if (!(*t)->takes || !(*t)->takes(p, info, &why)) {
            return 0;
        }
    }
    return *out ? 0 : no_kernels(f, info, err);
}

const struct family_target *family_target_of_config(const struct family *f, const struct problem *p,
                                                    const struct device_info *info,
                                                    const struct record *config,
                                                    struct rejection *why)
{
    const struct family_target *chosen;
    struct rejection other;
    struct error err;
    if (family_target_choose(f, p, info, NULL, &chosen, &err)) {
        rejection_set(why, err.code, "no_target", "%.300s", err.text);
        return NULL;
    }
    if (!chosen->check(p, config, info, why)) {
        return chosen;
    }
    for (const struct family_target *const *t = f->targets; *t; t++) {
        if (*t != chosen && family_target_runs_on(*t, info) &&
            !(*t)->check(p, config, info, &other)) {
            return *t;
        }
    }
    return NULL;
}

const struct family_target *family_target_of_variant(const struct family *f,
                                                     const struct variant *v)
{
    for (const struct family_target *const *t = f->targets; *t; t++) {
        if (strcmp((*t)->kind, v->kind) == 0 &&
            ((*t)->source == v->source || strcmp((*t)->source, v->source) == 0)) {
            return *t;
        }
    }
    return NULL;
}
