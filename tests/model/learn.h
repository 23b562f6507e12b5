/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Learning from recorded landscapes what the analytic model errs by (hopper/model/model.h):
 * ridge regression of the logarithm of measured over predicted times on the traits of configs, each
 * times the aspects of its problem. Configs count by how near the best they are; of a landscape
 * only what differs between its configs, not how fast the device was. Deterministic.
 */
#ifndef GEMMD_TESTS_MODEL_LEARN_H
#define GEMMD_TESTS_MODEL_LEARN_H

#include "kernels/families/grouped_gemm/hopper/model/model.h"

struct lecture {   /* a landscape */
    char name[96]; /* of its file, which begins with the weights it is of */
    struct problem problem;
    struct device_info info; /* of the device that it was recorded on */
    struct hopper_facts facts;
    uint32_t n;
    struct hopper_tile *tiles; /* owned, [n] */
    double *us;                /* owned, [n] */
};

struct lectures {
    uint32_t n;
    struct lecture *all; /* owned */
};

/* Adds the landscapes of a folder, in the order of their names. False: one cannot be read, said on
 * stderr. */
bool lectures_add(struct lectures *l, const char *folder);
void lectures_close(struct lectures *l);

/* What all teach but those of the weights `without` (NULL: all), where the model has the constants
 * hopper_fitted. False: no memory. */
bool learn(const struct lectures *l, const char *without, struct hopper_corrections *out);

#endif
