/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Learns the errors of the analytic model from recorded landscapes (hopper/model/model.h). Ridge
 * regression of the logarithm of measured over predicted times on the traits of configs, each times
 * the aspects of its problem. Configs near the best weigh most. Only differences between a
 * landscape's configs count, not the device's speed. Deterministic.
 */
#ifndef GEMMD_TESTS_MODEL_LEARN_H
#define GEMMD_TESTS_MODEL_LEARN_H

#include "kernels/families/grouped_gemm/hopper/model/model.h"

struct lecture {   /* a landscape */
    char name[96]; /* name of the landscape's file, which begins with the language model's name */
    struct problem problem;
    struct device_info info; /* of the recorded device */
    struct hopper_facts facts;
    uint32_t n;
    struct hopper_tile *tiles; /* owned, [n] */
    double *us;                /* owned, [n] */
};

struct lectures {
    uint32_t n;
    struct lecture *all; /* owned */
};

/* Adds the landscapes of a folder, in the order of their names. Returns false, after an error on
 * stderr, if one is unreadable. */
bool lectures_add(struct lectures *l, const char *folder);
void lectures_close(struct lectures *l);

/* Learns from all landscapes, except landscapes of the language model `without` (NULL: none), for
 * the constants hopper_fitted. False: no memory. */
bool learn(const struct lectures *l, const char *without, struct hopper_corrections *out);

#endif
