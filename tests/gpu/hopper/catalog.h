/* SPDX-License-Identifier: Apache-2.0 */
/* All compile-time variants of the Hopper target's space, each once, listed by
 * tests/compile/kinds.c. The order is shuffled: its beginning is a fair sample. */
#ifndef GEMMD_TESTS_GPU_HOPPER_CATALOG_H
#define GEMMD_TESTS_GPU_HOPPER_CATALOG_H

#include "kernels/family.h"

struct catalog_entry {
    const char *hash;   /* cubin_hash's of the variant */
    const char *kind;   /* "forward-px.bf16" */
    const char *config; /* the config as text; run-time tunables have their first values */
};

/* Returns the number of variants. The first call takes seconds. Exits on failure. */
int catalog_open(void);
struct catalog_entry catalog_at(int i);
int catalog_variant(int i, struct variant *out); /* 0, or ERROR_* */
/* Makes a problem of the variant's kind, with a space that includes the variant. */
int catalog_problem(int i, struct problem *out);

#endif
