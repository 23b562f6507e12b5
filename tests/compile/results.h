/* SPDX-License-Identifier: Apache-2.0 */
/* What the compiler made of each variant, kept in a file of one line per variant, so that a run
 * that was stopped goes on where it was. */
#ifndef GEMMD_TESTS_COMPILE_RESULTS_H
#define GEMMD_TESTS_COMPILE_RESULTS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/device.h"

enum outcome {
    OUTCOME_OK,
    OUTCOME_REFUSED, /* compiled, but not well: what the runner does not launch */
    OUTCOME_FAILED,  /* did not compile */
    OUTCOMES
};

struct result {
    char hash[HASH_HEX]; /* variant_hash: sources, options and compiler */
    enum outcome outcome;
    char reason[48]; /* "-", "C7510,C7514", "spills", "compile" */
    double seconds;
    int64_t registers, spills, cubin; /* registers -1: not said */
};

struct results {
    uint32_t n, room;
    struct result *all; /* owned; sorted by hash between results_init and the first results_add */
    uint32_t sorted;
    int fd; /* of the file, or -1 */
};

/* `path` NULL: nothing is kept. A last line that was cut is dropped. */
int results_init(struct results *r, const char *path, struct error *err);
void results_deinit(struct results *r);
/* NULL: not compiled yet. */
const struct result *results_find(const struct results *r, const char *hash);
/* `kind`, `config` and `text` (one line, why it is not ok) are for people. */
int results_add(struct results *r, const struct result *result, const char *kind,
                const char *config, const char *text, struct error *err);
void results_sort(struct results *r); /* what was added can be found from here on */

/* From the compiler's answer. */
void result_judge(struct result *r, int code, const struct image *image, const char *text);

#endif
