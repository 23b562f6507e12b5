/* SPDX-License-Identifier: Apache-2.0 */
/* Every kind of problem that a target of grouped_gemm accepts, with the kind's variants. */
#ifndef GEMMD_TESTS_COMPILE_KINDS_H
#define GEMMD_TESTS_COMPILE_KINDS_H

#include "kernels/device.h"

enum { KINDS_MAX = 64, KIND_NAME_MAX = 48 };

/* Selects kinds and configs. Patterns are fnmatch's; NULL matches all. */
struct kinds_setup {
    const char *target, *arch;
    const char *compiler; /* version of the compiler, which the hashes include */
    const char *kind;     /* pattern of kind names */
    const char *config;   /* pattern of config texts */
    const char *with;     /* fields added to each config, where legal; NULL: no fields */
    uint64_t seed;        /* draws entry.random */
};

struct entry { /* a variant */
    char hash[HASH_HEX];
    uint8_t size;    /* index of the problem size */
    bool again;      /* true: an earlier kind has this variant, too */
    uint16_t kind;   /* index into kinds */
    uint64_t random; /* sort key of the sample */
    char *config;    /* owned */
};

struct kind {
    char name[KIND_NAME_MAX]; /* "forward-px.bf16", "dW.fp16.fp32" */
    const char *mode;         /* fields of a problem */
    const char *in, *out;
    uint32_t first, n; /* range in entries */
};

struct kinds {
    struct kinds_setup setup; /* borrowed */
    const struct family_target *target;
    struct device_info info;
    uint32_t n_kinds;
    struct kind kinds[KINDS_MAX];
    uint32_t n, room;
    struct entry *entries; /* owned; kind by kind, sorted by hash, each hash once in a kind */
};

/* Returns 0 or ERROR_*. */
int kinds_init(struct kinds *k, const struct kinds_setup *setup, struct error *err);
void kinds_deinit(struct kinds *k);
/* Returns the compile order: malloc'ed indices into entries, each variant once; NULL without
 * memory. Kinds take turns in the order of their random numbers, so that the first n entries are a
 * fair sample. */
uint32_t *kinds_order(const struct kinds *k, uint32_t *n);
/* Makes a problem that has the entry's variant in its space. */
int kinds_problem(const struct kinds *k, const struct entry *e, struct problem *out,
                  struct error *err);
int kinds_variant(const struct kinds *k, const struct entry *e, struct variant *out,
                  struct error *err);

#endif
