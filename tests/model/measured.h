/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measured times of configs, as collect.py writes them: the analytic model is judged by them and
 * fitted to them. Each problem has the rows per expert of its measurement: hopper_bench draws them
 * with a fixed seed.
 */
#ifndef GEMMD_TESTS_MODEL_MEASURED_H
#define GEMMD_TESTS_MODEL_MEASURED_H

#include "kernels/families/grouped_gemm/hopper/model/model.h"

enum { MEASURED_SEED = 12345 }; /* as in tests/gpu/hopper/data.c */

struct measured_time {
    struct record *config; /* borrowed from measured.configs; NULL: of a landscape */
    struct hopper_tile tile;
    double us, least;
};

struct measured_problem {
    char model[32], layer[16];
    int tokens;
    struct problem problem;
    struct workload workload;    /* not of a landscape */
    struct hopper_facts facts;   /* of the rows as drawn */
    struct hopper_facts typical; /* facts of the expected rows per expert, which choose() gets */
    uint32_t n;
    struct measured_time *times; /* owned, [n] */
    double best;                 /* the least of times[].us */
    double weight;               /* weight of the problem in a fit */
};

struct measured {
    uint32_t n, n_configs;
    struct measured_problem *problems; /* owned, [n] */
    struct record *configs;            /* owned, [n_configs] */
};

/* The device on which the times were measured. */
extern const struct device_info measured_h200;

/* Opens a file of collect.py, or a folder of landscapes. Returns false if it cannot be read, after
 * an error on stderr. */
bool measured_open(struct measured *m, const char *path);
void measured_close(struct measured *m);

#endif
