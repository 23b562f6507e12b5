/* SPDX-License-Identifier: Apache-2.0 */
/* Every kind of problem that a target of grouped_gemm takes, with its compile-time variants. */
#ifndef GEMMD_TESTS_COMPILE_KINDS_H
#define GEMMD_TESTS_COMPILE_KINDS_H

#include "kernels/device.h"

enum { KINDS_MAX = 64, KIND_NAME_MAX = 48 };

/* What to take; patterns are fnmatch's, NULL takes all. */
struct kinds_setup {
    const char *target, *arch;
    const char *compiler; /* its version: part of the hashes */
    const char *kind;     /* pattern of kinds' names */
    const char *config;   /* pattern of configs, as text */
    const char *with;     /* fields that each config has besides, where that is legal; NULL: none */
    uint64_t seed;        /* draws the samples */
};

struct entry { /* a variant */
    char hash[HASH_HEX];
    uint8_t size;    /* index of the problem whose space it is from */
    bool again;      /* an earlier kind has the same variant */
    uint16_t kind;   /* index */
    uint64_t random; /* its place in a sample */
    char *config;    /* owned */
};

struct kind {
    char name[KIND_NAME_MAX]; /* "forward-px.bf16", "dW.fp16.fp32" */
    const char *mode;         /* its fields of a problem */
    const char *in, *out;
    uint32_t first, n; /* its entries */
};

struct kinds {
    struct kinds_setup setup; /* borrowed */
    const struct family_target *target;
    struct device_info info;
    uint32_t n_kinds;
    struct kind kinds[KINDS_MAX];
    uint32_t n, room;
    struct entry *entries; /* owned; of a kind together, sorted by hash, each once */
};

/* 0 or ERROR_*. */
int kinds_init(struct kinds *k, const struct kinds_setup *setup, struct error *err);
void kinds_deinit(struct kinds *k);
/* The order to compile in, each variant once: kinds take turns, each in the order of its random
 * numbers, so that the first n are a fair sample whatever n is. Indices into entries, to be
 * freed. */
uint32_t *kinds_order(const struct kinds *k, uint32_t *n);
/* A problem that has the entry's variant in its space. */
int kinds_problem(const struct kinds *k, const struct entry *e, struct problem *out,
                  struct error *err);
int kinds_variant(const struct kinds *k, const struct entry *e, struct variant *out,
                  struct error *err);

#endif
