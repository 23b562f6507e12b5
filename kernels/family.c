/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is the same for every family: finding one, naming what makes an answer valid, the identity
 * of a variant, the floor of a problem, and the small vocabulary (dtypes, rejections, random
 * numbers) that families share. Pure functions over the list that the program was linked with.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "kernels/family.h"
#include "proto/hash.h"

void families_register(void)
{
    enum { OPS_MAX = 32 };
    static const struct op *ops[OPS_MAX + 1];
    size_t n = 0;
    for (const struct family *const *f = families; *f; f++) {
        bool known = false;
        for (size_t i = 0; i < n; i++) {
            known = known || ops[i] == (*f)->op;
        }
        if (!known) {
            assert(n < OPS_MAX);
            ops[n++] = (*f)->op;
        }
    }
    ops[n] = NULL;
    ops_set(ops);
}

const struct family *family_find(const char *name)
{
    for (const struct family *const *f = families; *f; f++) {
        if (strcmp((*f)->name, name) == 0) {
            return *f;
        }
    }
    return NULL;
}

const struct family *family_of_problem(const struct problem *p)
{
    const char *name = record_text(&p->fields, "family", NULL);
    if (name) {
        return family_find(name);
    }
    for (const struct family *const *f = families; *f; f++) {
        if ((*f)->op == p->op) {
            return *f;
        }
    }
    return NULL;
}

/* ---- targets --------------------------------------------------------------------------------- */

static bool runs_on(const struct family_target *t, const struct device_info *info)
{
    return strcmp(t->kind, info->kind) == 0 && t->supports(info);
}

const struct family_target *family_target_find(const struct family *f,
                                               const struct device_info *info, const char *label)
{
    for (const struct family_target *const *t = f->targets; *t; t++) {
        if (runs_on(*t, info) && (!label || strcmp((*t)->label, label) == 0)) {
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
        if (runs_on(*t, info)) {
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
    if (label && label[0]) {
        return choose_forced(f, p, info, label, out, err);
    }
    for (const struct family_target *const *t = f->targets; *t; t++) {
        struct rejection why;
        if (!runs_on(*t, info)) {
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
        if (*t != chosen && runs_on(*t, info) && !(*t)->check(p, config, info, &other)) {
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

/* The text of the source, not our version, decides whether an old measurement still counts. */
void family_stamp(const struct family *f, const struct family_target *t,
                  const struct device_info *info, char out[STAMP_MAX])
{
    assert(t->source);
    char hash[HASH_HEX];
    struct hash_state *h = hash_new();
    hash_add_str(h, f->name);
    hash_add_str(h, t->label);
    hash_add_str(h, t->source);
    hash_end_hex(h, hash);
    snprintf(out, STAMP_MAX, "src=%.12s abi=%d target=%s compiler=%s", hash, LAUNCH_ABI_VERSION,
             t->label, info->compiler[0] ? info->compiler : "none");
}

void family_stamp_target(const char *stamp, char out[TARGET_MAX])
{
    static const char word[] = "target=";
    const char *at = strstr(stamp, word);
    at = at ? at + strlen(word) : "";
    snprintf(out, TARGET_MAX, "%.*s", (int)strcspn(at, " "), at);
}

void variant_hash(const struct variant *v, const char *compiler, char out[HASH_HEX])
{
    struct hash_state *h = hash_new();
    hash_add_str(h, v->family);
    hash_add_str(h, v->kind);
    hash_add_str(h, v->arch);
    hash_add_str(h, v->entry);
    hash_add_str(h, v->options);
    hash_add_str(h, v->source_hash);
    hash_add_str(h, compiler);
    hash_end_hex(h, out);
}

double family_floor_us(const struct family *f, const struct problem *p,
                       const struct device_info *info)
{
    double flops, bytes;
    f->work(p, &flops, &bytes);
    double compute = info->peak_tflops > 0 ? flops / (info->peak_tflops * 1e6) : 0;
    double memory = info->peak_gbps > 0 ? bytes / (info->peak_gbps * 1e3) : 0;
    return compute > memory ? compute : memory;
}

/* ---- vocabulary ------------------------------------------------------------------------------ */

static int reject(struct rejection *why, int code, const char *rule, const char *format,
                  va_list args) __attribute__((format(printf, 4, 0)));

static int reject(struct rejection *why, int code, const char *rule, const char *format,
                  va_list args)
{
    *why = (struct rejection){.code = code};
    snprintf(why->rule, sizeof(why->rule), "%s", rule);
    vsnprintf(why->text, sizeof(why->text), format, args);
    return 1;
}

int rejection_set(struct rejection *why, int code, const char *rule, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    reject(why, code, rule, format, args);
    va_end(args);
    return 1;
}

int rejection_resource(struct rejection *why, const char *resource, int64_t required, int64_t limit,
                       const char *format, ...)
{
    va_list args;
    va_start(args, format);
    reject(why, ERROR_RESOURCE, resource, format, args);
    va_end(args);
    snprintf(why->resource, sizeof(why->resource), "%s", resource);
    why->required = required;
    why->limit = limit;
    return 1;
}

double dtype_grain(enum dtype t)
{
    /* bf16 and fp32 share an exponent range in which nothing here comes near the end. */
    return t == DTYPE_FP16 ? 0x1p-25 : 0;
}

size_t dtype_size(enum dtype t)
{
    switch (t) {
    case DTYPE_BF16:
    case DTYPE_FP16:
        return 2;
    case DTYPE_FP32:
    case DTYPE_INT32:
        return 4;
    case DTYPE_INT64:
        return 8;
    case DTYPE_NONE:
        break;
    }
    return 0;
}

const char *dtype_name(enum dtype t)
{
    switch (t) {
    case DTYPE_BF16:
        return "bf16";
    case DTYPE_FP16:
        return "fp16";
    case DTYPE_FP32:
        return "fp32";
    case DTYPE_INT32:
        return "int32";
    case DTYPE_INT64:
        return "int64";
    case DTYPE_NONE:
        break;
    }
    return "none";
}

uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

double random_unit(uint64_t *state)
{
    return (double)(random_next(state) >> 11) * 0x1p-53;
}
