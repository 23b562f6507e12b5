/* SPDX-License-Identifier: Apache-2.0 */
/* The timed rows of the Hopper bench: rows of moe.csv, or shapes of the command line. */
#ifndef GEMMD_TESTS_GPU_HOPPER_LAYERS_H
#define GEMMD_TESTS_GPU_HOPPER_LAYERS_H

#include "tests/gpu/hopper/cases.h"

enum { LAYERS_MAX = 256 };

struct layer {
    char model[32], name[32], mode[12];
    int tokens, experts, topk;
    long m, n, k;
    bool free; /* true: the shape comes from --shape, without recorded times of peers */
    double floor_us, dense_us, torch_us, torch_permute_us, deepgemm_us, unsloth_us; /* 0: none */
};

/* Reads the layers that --shape, or else --shapes and --tokens, select. Returns the number of
 * layers; prints an error and returns a negative number if there are no layers. */
int layers_read(struct layer out[LAYERS_MAX]);
enum gemm_mode layer_mode(const struct layer *l);
int layer_problem(const struct layer *l, const struct kind *k, struct problem *p);
double layer_flops(const struct layer *l);

#endif
