/* SPDX-License-Identifier: Apache-2.0 */
/* A landscape after reading: sorted, with lookup by the hashes of configs and variants. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/devices/replay/reader.h"
#include "proto/hash.h"

enum { TEXT_MAX = 4096 };

uint64_t replay_config_hash(const struct record *config)
{
    char text[TEXT_MAX];
    size_t n = record_format(config, text, sizeof(text));
    return hash64(text, n < sizeof(text) ? n : sizeof(text) - 1);
}

uint64_t replay_variant_hash(const struct variant *v)
{
    char text[OPTIONS_MAX + 128];
    int n = snprintf(text, sizeof(text), "%s %s %s %s", v->family, v->entry, v->arch, v->options);
    uint64_t hash = hash64(text, (size_t)n);
    return hash ? hash : 1;
}

/* ---- making and freeing ---------------------------------------------------------------------- */

static int landscape_compare_entries(const void *a, const void *b)
{
    const struct landscape_entry *x = a, *y = b;
    if (x->problem != y->problem) {
        return x->problem < y->problem ? -1 : 1;
    }
    return (x->config > y->config) - (x->config < y->config);
}

static int compare_variants(const void *a, const void *b)
{
    const struct landscape_variant *x = a, *y = b;
    return (x->hash > y->hash) - (x->hash < y->hash);
}

int landscape_settle(struct landscape *l, struct error *err)
{
    if (l->n_entries > 0) {
        qsort(l->entries, l->n_entries, sizeof(*l->entries), landscape_compare_entries);
    }
    if (l->n_variants > 0) {
        qsort(l->variants, l->n_variants, sizeof(*l->variants), compare_variants);
    }
    l->often = malloc((l->n_entries + 1) * sizeof(*l->often));
    if (!l->often) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a landscape");
    }
    for (uint32_t i = 0; i < l->n_entries; i++) {
        if (l->entries[i].each && l->entries[i].n) {
            l->often[l->n_often++] = i;
        }
    }
    return 0;
}

struct landscape *landscape_free(struct landscape *l)
{
    if (l) {
        free(l->problems);
        free(l->entries);
        free(l->often);
        free(l->samples);
        free(l->variants);
        free(l->turns);
        free(l->faults);
        free(l);
    }
    return NULL;
}

void landscape_sleep(const struct landscape *l, double ms)
{
    if (l->speed > 0) {
        device_sleep_ms(ms / l->speed);
    }
}

/* ---- missing problems ------------------------------------------------------------------------ */

/* Distance of one field in two problems: 0 when equal; from 1 to 2 by the ratio of sizes. */
static double field_distance(const struct record *a, const struct record *b, const char *name)
{
    struct value x = {0}, y = {0};
    record_get(a, name, &x);
    record_get(b, name, &y);
    if (value_equal(&x, &y)) {
        return 0;
    }
    if (x.type != VALUE_INT || y.type != VALUE_INT || x.integer <= 0 || y.integer <= 0) {
        return 2;
    }
    return 2 - 1 / (1 + fabs(log2((double)x.integer / (double)y.integer)));
}

static double landscape_problem_distance(const struct problem *a, const struct problem *b)
{
    double sum = a->op == b->op ? 0 : RECORD_FIELDS_MAX;
    for (uint32_t i = 0; i < a->fields.n; i++) {
        sum += field_distance(&a->fields, &b->fields, a->fields.fields[i].name);
    }
    return sum;
}

/* Writes the fields of p whose value differs in `other`, as "M=4096 topk=1"; ignores fields that p
 * lacks. */
static void landscape_problem_differences(const struct problem *p, const struct problem *other,
                                          char *out, size_t size)
{
    size_t have = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < p->fields.n && have < size; i++) {
        const char *name = p->fields.fields[i].name;
        const struct value v = record_at(&p->fields, i);
        char text[64];
        if (field_distance(&p->fields, &other->fields, name) > 0) {
            value_format(&v, text, sizeof(text));
            have +=
                (size_t)snprintf(out + have, size - have, "%s%s=%s", have ? " " : "", name, text);
        }
    }
}

/* Lists only the fields in which the nearest problem differs: with both problems written out, the
 * error text would be cut off before these fields. */
static int landscape_explain_missing(const struct landscape *l, const struct problem *p,
                                     struct error *err)
{
    char asked[200], there[200];
    if (l->n_problems == 0) {
        return error_set(err, ERROR_NOT_FOUND, "the landscape has no problem at all");
    }
    const struct problem *nearest = &l->problems[0].problem;
    for (uint32_t i = 1; i < l->n_problems; i++) {
        const struct problem *other = &l->problems[i].problem;
        if (landscape_problem_distance(p, other) < landscape_problem_distance(p, nearest)) {
            nearest = other;
        }
    }
    if (strcmp(nearest->op_name, p->op_name) != 0) {
        return error_set(err, ERROR_NOT_FOUND, "the landscape has no problem of op %s; it has %s",
                         p->op_name, nearest->op_name);
    }
    landscape_problem_differences(p, nearest, asked, sizeof(asked));
    landscape_problem_differences(nearest, p, there, sizeof(there));
    return error_set(err, ERROR_NOT_FOUND,
                     "the landscape has no problem with %s: the nearest that it has is the same "
                     "but for %s",
                     asked, there);
}

/* ---- looking up ------------------------------------------------------------------------------ */

static bool landscape_find_problem(const struct landscape *l, const struct problem *p,
                                   uint32_t *out)
{
    for (*out = 0; *out < l->n_problems; ++*out) {
        const struct problem *known = &l->problems[*out].problem;
        if (strcmp(known->op_name, p->op_name) == 0 && record_equal(&known->fields, &p->fields)) {
            return true;
        }
    }
    return false;
}

int landscape_problem(const struct landscape *l, const struct problem *p, uint32_t *out,
                      struct error *err)
{
    struct problem all; /* a recording of all configs also serves where fewer are legal */
    if (landscape_find_problem(l, p, out)) {
        return 0;
    }
    problem_unrestrict(p, &all);
    if (landscape_find_problem(l, &all, out)) {
        return 0;
    }
    return l->synthetic ? 0 : landscape_explain_missing(l, p, err);
}

struct landscape_turn *landscape_turns(const struct landscape *l, uint32_t problem, uint32_t *n)
{
    *n = problem < l->n_problems ? l->problems[problem].n_turns : 0;
    return *n ? l->turns + l->problems[problem].first_turn : NULL;
}

const struct landscape_entry *landscape_entry(const struct landscape *l, uint32_t problem,
                                              const struct record *config)
{
    struct landscape_entry key = {.problem = problem, .config = replay_config_hash(config)};
    return l->n_entries ? bsearch(&key, l->entries, l->n_entries, sizeof(*l->entries),
                                  landscape_compare_entries)
                        : NULL;
}

const struct landscape_entry *landscape_failure(const struct landscape *l, uint64_t variant,
                                                int status)
{
    for (uint32_t i = 0; i < l->n_entries; i++) {
        const struct landscape_entry *e = &l->entries[i];
        if (e->variant == variant && e->status == status) {
            return e;
        }
    }
    return NULL;
}

double landscape_compile_ms(const struct landscape *l, uint64_t variant)
{
    const struct landscape_variant key = {.hash = variant};
    const struct landscape_variant *v =
        l->n_variants ? bsearch(&key, l->variants, l->n_variants, sizeof(key), compare_variants)
                      : NULL;
    if (v || l->compile_ms > 0 || l->n_variants == 0) {
        return v ? v->compile_ms : l->compile_ms;
    }
    /* an unrecorded variant gets the average compile time of the recorded variants */
    double sum = 0;
    for (uint32_t i = 0; i < l->n_variants; i++) {
        sum += l->variants[i].compile_ms;
    }
    return sum / l->n_variants;
}
