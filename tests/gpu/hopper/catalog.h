/* SPDX-License-Identifier: Apache-2.0 */
/* All compile-time variants of the Hopper target's space, each once, as tests/compile enumerates
 * them: in an order whose beginning is a fair sample. */
#ifndef GEMMD_TESTS_GPU_HOPPER_CATALOG_H
#define GEMMD_TESTS_GPU_HOPPER_CATALOG_H

#include "kernels/family.h"

struct catalog_entry {
    const char *hash;   /* as cubin_hash */
    const char *kind;   /* "forward-px.bf16" */
    const char *config; /* as text; run-time tunables have their first values */
};

/* How many; seconds of work the first time, nothing later. Exits when it cannot be made. */
int catalog_open(void);
struct catalog_entry catalog_at(int i);
int catalog_variant(int i, struct variant *out); /* 0, or ERROR_* */
/* Some problem of its kind, in whose space it is. */
int catalog_problem(int i, struct problem *out);

#endif
