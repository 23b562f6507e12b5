/* SPDX-License-Identifier: Apache-2.0 */
/* What the Hopper bench runs: tiles (configs), kinds (modes with their flags) and shapes. */
#ifndef GEMMD_TESTS_GPU_HOPPER_CASES_H
#define GEMMD_TESTS_GPU_HOPPER_CASES_H

#include "kernels/families/grouped_gemm/hopper.h"

struct tile {
    const char *name;
    int r, c, warps;
    bool pingpong;
    int stages, staging, in_flight;
    bool skip_rows;
};
extern const struct tile tiles[];
extern const int n_tiles;

struct kind {
    const char *name;
    enum gemm_mode mode;
    bool permute_x, permute_y, fuse;
    bool copy; /* permute_copy */
    bool fp16, out_fp32, accumulate, no_tma_store;
    int soak; /* launches, in thousands of the option --soak */
};
extern const struct kind kinds[];
extern const int n_kinds;

struct shape {
    int experts, n, k, topk;
    const int *rows; /* repeated over the experts */
    int n_rows;
    bool strided, wide; /* padded rows; 64-bit indices */
    bool soak;
};
extern const struct shape shapes[];
extern const int n_shapes;

/* 0, or -1 and the reason. */
int case_problem(const struct kind *kind, const struct shape *shape, struct problem *p);
void case_config(const struct grouped_gemm_problem *v, const struct kind *kind,
                 const struct tile *tile, struct record *config);

#endif
