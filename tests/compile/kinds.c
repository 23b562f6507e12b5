/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kind is the user's choice of mode, permutes, fusion and types. The kind's variants are the
 * distinct compile-time parts of the configs in the spaces of several problem sizes. Sizes change
 * the legality rules a little: tables for many experts leave less shared memory.
 */
#include "kernels/space.h"
#include "tests/compile/kinds.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *fields;
} modes[] = {
    {"forward", "mode=forward"},
    {"forward-px", "mode=forward permute_x=true"},
    {"forward-py", "mode=forward permute_y=true"},
    {"forward-py-mul", "mode=forward permute_y=true fuse_mul_post=true"},
    {"dX", "mode=dX"},
    {"dX-px", "mode=dX permute_x=true"},
    {"dX-py", "mode=dX permute_y=true"},
    {"dW", "mode=dW"},
    {"dW-px", "mode=dW permute_x=true"},
    {"dW-py", "mode=dW permute_y=true"},
};
/* types of the operands, or quantisations */
static const char *const types_in[] = {"bf16", "fp16", "fp32", "fp8_block", "fp8_row"};
static const char *const types_out[] = {"same", "fp32"};
static const char *const sizes[] = {
    "M=65536 N=8192 K=8192 experts=8 topk=2",
    "M=65536 N=8192 K=8192 experts=128 topk=8",
    "M=65536 N=2048 K=2048 experts=1024 topk=8",
    "M=64 N=2048 K=2048 experts=8 topk=2",
    "M=64 N=1024 K=1024 experts=2 topk=2",
    "M=4096 N=2048 K=2048",
    "M=64 N=1024 K=1024",
};
enum {
    N_MODES = sizeof(modes) / sizeof(modes[0]),
    N_IN = sizeof(types_in) / sizeof(types_in[0]),
    N_OUT = sizeof(types_out) / sizeof(types_out[0]),
    N_SIZES = sizeof(sizes) / sizeof(sizes[0]),
};

static int make_problem(const struct kind *k, uint32_t size, struct problem *p, struct error *err)
{
    char text[512];
    const char *field = strncmp(k->in, "fp8", 3) == 0 ? "quant" : "dtype_in";
    snprintf(text, sizeof(text), "grouped_gemm %s %s=%s dtype_out=%s %s", k->mode, field, k->in,
             k->out, sizes[size]);
    return problem_parse(p, text, err);
}

/* ---- the variants of a kind ----------------------------------------------------------------- */

static const struct family_target *whole; /* the target for compiled_params() */

/* Keeps only the first value of run-time tunables: the compiler does not see their values. */
static uint32_t compiled_params(const struct problem *p, const struct device_info *info,
                                struct param out[PARAMS_MAX])
{
    const uint32_t n = whole->params(p, info, out);
    for (uint32_t i = 0; i < n; i++) {
        out[i].n = out[i].run_time ? 1 : out[i].n;
    }
    return n;
}

static int add_entry(struct kinds *k, const struct entry *e, struct error *err)
{
    if (k->n == k->room) {
        uint32_t room = k->room ? k->room * 2 : 4096;
        struct entry *more = realloc(k->entries, room * sizeof(*more));
        if (!more) {
            return error_set(err, ERROR_NO_MEMORY, "no memory for %u variants", room);
        }
        k->entries = more;
        k->room = room;
    }
    k->entries[k->n++] = *e;
    return 0;
}

/* Sets the fields of --with in a config. False: it is then not legal, or *status is ERROR_*. */
static bool add_fields(const struct kinds *k, const struct problem *p, struct record *config,
                       int *status, struct error *err)
{
    struct record with;
    struct rejection why;
    if (!k->setup.with) {
        return true;
    }
    *status = record_parse(&with, k->setup.with, err);
    for (uint32_t i = 0; i < with.n && *status == 0; i++) {
        *status = record_set(config, with.fields[i].name, record_at(&with, i), err);
    }
    return *status == 0 && k->target->check(p, config, &k->info, &why) == 0;
}

static int add_point(struct kinds *k, const struct problem *p, struct record *config, uint32_t size,
                     struct error *err)
{
    int status = 0;
    if (!add_fields(k, p, config, &status, err)) {
        return status;
    }
    struct variant v;
    char text[1024];
    record_format(config, text, sizeof(text));
    if (k->setup.config && fnmatch(k->setup.config, text, 0) != 0) {
        return 0;
    }
    int r = k->target->variant(p, config, k->info.arch, &v, err);
    if (r) {
        return r;
    }
    struct entry e = {.size = (uint8_t)size, .kind = (uint16_t)k->n_kinds};
    variant_hash(&v, k->setup.compiler, e.hash);
    e.config = strdup(text);
    if (!e.config) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a config");
    }
    r = add_entry(k, &e, err);
    if (r) {
        free(e.config);
    }
    return r;
}

static int add_space(struct kinds *k, const struct problem *p, uint32_t size, struct error *err)
{
    struct space s;
    struct family_target compiled = *k->target;
    whole = k->target;
    compiled.params = compiled_params;
    int r = space_build(&s, &compiled, p, &k->info, NULL, err);
    for (uint32_t i = 0; i < s.n && r == 0; i++) {
        struct record config;
        space_config(&s, i, &config);
        r = add_point(k, p, &config, size, err);
    }
    space_deinit(&s);
    return r;
}

static int by_hash(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int order = strcmp(x->hash, y->hash);
    return order ? order : (x->size > y->size) - (x->size < y->size);
}

static void keep_distinct(struct kinds *k, uint32_t first)
{
    uint32_t n = first;
    if (k->n > first) {
        qsort(k->entries + first, k->n - first, sizeof(*k->entries), by_hash);
    }
    for (uint32_t i = first; i < k->n; i++) {
        if (n > first && strcmp(k->entries[n - 1].hash, k->entries[i].hash) == 0) {
            free(k->entries[i].config);
        } else {
            k->entries[n++] = k->entries[i];
        }
    }
    k->n = n;
}

static void draw(struct kinds *k, const struct kind *kind)
{
    uint64_t state = k->setup.seed ^ hash64(kind->name, strlen(kind->name));
    for (uint32_t i = 0; i < kind->n; i++) {
        k->entries[kind->first + i].random = random_next(&state);
    }
}

/* Drops a kind without variants. */
static int add_kind(struct kinds *k, struct kind kind, struct error *err)
{
    int r = 0;
    kind.first = k->n;
    for (uint32_t size = 0; size < N_SIZES && r == 0; size++) {
        struct problem p;
        struct rejection why;
        r = make_problem(&kind, size, &p, err);
        if (r == 0 && k->target->takes && k->target->takes(&p, &k->info, &why)) {
            continue;
        }
        r = r ? r : add_space(k, &p, size, err);
    }
    keep_distinct(k, kind.first);
    kind.n = k->n - kind.first;
    draw(k, &kind);
    if (kind.n > 0) {
        k->kinds[k->n_kinds++] = kind;
    }
    return r;
}

/* ---- all kinds ------------------------------------------------------------------------------ */

static struct kind kind_of(uint32_t mode, uint32_t in, uint32_t out)
{
    struct kind kind = {.mode = modes[mode].fields, .in = types_in[in], .out = types_out[out]};
    snprintf(kind.name, sizeof(kind.name), "%s.%s%s", modes[mode].name, kind.in,
             out ? ".fp32" : "");
    return kind;
}

/* False for a kind whose problem the op refuses, and for fp32 to fp32, which duplicates fp32 to
 * "same". */
static bool exists(const struct kind *kind)
{
    struct problem p;
    bool twice = strcmp(kind->in, "fp32") == 0 && strcmp(kind->out, "fp32") == 0;
    return !twice && make_problem(kind, 0, &p, NULL) == 0;
}

static int add_kinds(struct kinds *k, struct error *err)
{
    const char *pattern = k->setup.kind;
    int r = 0;
    for (uint32_t i = 0; i < N_MODES * N_IN * N_OUT && r == 0; i++) {
        struct kind kind = kind_of(i / (N_IN * N_OUT), i / N_OUT % N_IN, i % N_OUT);
        if (exists(&kind) && (!pattern || fnmatch(pattern, kind.name, 0) == 0)) {
            r = add_kind(k, kind, err);
        }
    }
    if (r == 0 && k->n_kinds == 0) {
        return error_set(err, ERROR_INVALID, "nothing of %s matches --kind \"%s\" --config \"%s\"",
                         k->target->label, pattern ? pattern : "*",
                         k->setup.config ? k->setup.config : "*");
    }
    return r;
}

static int by_hash_and_place(const void *a, const void *b)
{
    const struct entry *x = *(struct entry *const *)a, *y = *(struct entry *const *)b;
    int order = strcmp(x->hash, y->hash);
    return order ? order : (x > y) - (x < y);
}

static int mark_again(struct kinds *k, struct error *err)
{
    struct entry **all = calloc(k->n, sizeof(struct entry *));
    if (!all) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for %u variants", k->n);
    }
    for (uint32_t i = 0; i < k->n; i++) {
        all[i] = &k->entries[i];
    }
    qsort(all, k->n, sizeof(struct entry *), by_hash_and_place);
    for (uint32_t i = 1; i < k->n; i++) {
        all[i]->again = strcmp(all[i - 1]->hash, all[i]->hash) == 0;
    }
    free(all);
    return 0;
}

int kinds_init(struct kinds *k, const struct kinds_setup *setup, struct error *err)
{
    char spec[32];
    *k = (struct kinds){.setup = *setup};
    snprintf(spec, sizeof(spec), "cuda:%.20s", setup->arch);
    int r = device_probe(spec, &k->info, err);
    if (r) {
        return r;
    }
    k->target = family_target_find(family_find("grouped_gemm"), &k->info, setup->target);
    if (!k->target) {
        return error_set(err, ERROR_INVALID, "grouped_gemm has no target \"%s\" for %s",
                         setup->target, setup->arch);
    }
    r = add_kinds(k, err);
    r = r ? r : mark_again(k, err);
    if (r) {
        kinds_deinit(k);
    }
    return r;
}

void kinds_deinit(struct kinds *k)
{
    for (uint32_t i = 0; i < k->n; i++) {
        free(k->entries[i].config);
    }
    free(k->entries);
    k->entries = NULL;
    k->n = k->room = 0;
}

int kinds_problem(const struct kinds *k, const struct entry *e, struct problem *out,
                  struct error *err)
{
    return make_problem(&k->kinds[e->kind], e->size, out, err);
}

int kinds_variant(const struct kinds *k, const struct entry *e, struct variant *out,
                  struct error *err)
{
    struct problem p;
    struct record config;
    int r = kinds_problem(k, e, &p, err);
    r = r ? r : record_parse(&config, e->config, err);
    return r ? r : k->target->variant(&p, &config, k->info.arch, out, err);
}

/* ---- the order ------------------------------------------------------------------------------ */

struct turn {
    uint32_t entry;
    uint32_t at; /* place in the kind */
};

static int by_turn(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;
    if (x->at != y->at) {
        return x->at < y->at ? -1 : 1;
    }
    return x->entry < y->entry ? -1 : 1;
}

static int by_random(const void *a, const void *b, void *entries)
{
    const struct entry *x = (const struct entry *)entries + *(const uint32_t *)a;
    const struct entry *y = (const struct entry *)entries + *(const uint32_t *)b;
    return (x->random > y->random) - (x->random < y->random);
}

/* Writes the kind's variants that no earlier kind has to `order`. Returns their number. */
static uint32_t order_kind(const struct kinds *k, const struct kind *kind, uint32_t *order,
                           struct turn *turns)
{
    uint32_t n = 0;
    for (uint32_t i = kind->first; i < kind->first + kind->n; i++) {
        if (!k->entries[i].again) {
            order[n++] = i;
        }
    }
    qsort_r(order, n, sizeof(*order), by_random, k->entries);
    for (uint32_t i = 0; i < n; i++) {
        turns[i] = (struct turn){order[i], i};
    }
    return n;
}

uint32_t *kinds_order(const struct kinds *k, uint32_t *n)
{
    uint32_t *order = calloc(k->n, sizeof(*order));
    struct turn *turns = calloc(k->n, sizeof(*turns));
    *n = 0;
    if (order && turns) {
        for (uint32_t i = 0; i < k->n_kinds; i++) {
            *n += order_kind(k, &k->kinds[i], order + *n, turns + *n);
        }
        qsort(turns, *n, sizeof(*turns), by_turn);
        for (uint32_t i = 0; i < *n; i++) {
            order[i] = turns[i].entry;
        }
    } else {
        free(order);
        order = NULL;
    }
    free(turns);
    return order;
}
