/* SPDX-License-Identifier: Apache-2.0 */
/* The compiler's result for each variant, in a file with one line per variant. A stopped run
 * continues from that file. */
#ifndef GEMMD_TESTS_COMPILE_RESULTS_H
#define GEMMD_TESTS_COMPILE_RESULTS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/device.h"

enum outcome {
    OUTCOME_OK,
    OUTCOME_REFUSED, /* compiled, but the runner would not launch the kernel */
    OUTCOME_FAILED,  /* did not compile */
    OUTCOMES
};

struct result {
    char hash[HASH_HEX]; /* variant_hash: sources, options and compiler */
    enum outcome outcome;
    char reason[48]; /* "-", "C7510,C7514", "spills", "compile" */
    double seconds;
    int64_t registers, spills, cubin; /* registers -1: unknown */
};

struct results {
    uint32_t n, room;
    struct result *all; /* owned; sorted by hash between results_init and the first results_add */
    uint32_t sorted;
    int fd; /* descriptor of the file; -1: results are not written to a file */
};

/* Reads the results in the file `path`, and drops an incomplete last line. With `path` NULL results
 * are only in memory. */
int results_init(struct results *r, const char *path, struct error *err);
void results_deinit(struct results *r);
/* Returns NULL for a variant without a result, or whose result was added since the last sort. */
const struct result *results_find(const struct results *r, const char *hash);
/* `kind`, `config` and `text` (the error) are only for readers of the file. */
int results_add(struct results *r, const struct result *result, const char *kind,
                const char *config, const char *text, struct error *err);
void results_sort(struct results *r); /* results_find sees added results */

/* Fills all but hash and seconds from the compiler's status, image and error text. */
void result_judge(struct result *r, int code, const struct image *image, const char *text);

#endif
