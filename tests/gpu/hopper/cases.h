/* SPDX-License-Identifier: Apache-2.0 */
/* The cases of the Hopper bench: tiles (configs), kinds (modes with their flags and types), shapes.
 * The "first set" is every tile in every kind; the stage "variants" launches the whole space. */
#ifndef GEMMD_TESTS_GPU_HOPPER_CASES_H
#define GEMMD_TESTS_GPU_HOPPER_CASES_H

#include "kernels/families/grouped_gemm/hopper/host/hopper.h"

struct tile {
    const char *name;
    int r, c, warps; /* a tile has r rows and c columns of the output, also with swap_ab */
    bool pingpong;
    int stages, staging, in_flight;
    bool skip_rows;
    int ksplit;   /* number of parts that each sum is split into; 0 means 1 */
    bool dynamic; /* tile_scheduler */
    bool swap;    /* swap_ab; dW ignores it */
    int ahead;    /* value of l2_ahead; forward and dX leave it out where x or dy is gathered */
    int loaders;  /* value of load_warps; 0: the config leaves it out */
    const char *cluster;      /* value of cluster_shape_mn; NULL: the config leaves it out */
    int slabs;                /* value of store_slabs in dW; 0: the config leaves it out */
    int stage_rows;           /* value of stage_rows in dW; 0: the config leaves it out */
    bool staggered, deferred; /* schedule */
};
extern const struct tile tiles[];
extern const int n_tiles;
int tile_named(const char *name); /* -1: none */

struct kind {
    const char *name;
    enum gemm_mode mode;
    bool permute_x, permute_y, fuse;
    bool copy; /* permute_copy */
    bool fp16, out_fp32, accumulate, no_tma_store;
    bool soak; /* the stage "check" also repeats launches of this kind (a short soak) */
};
extern const struct kind kinds[];
extern const int n_kinds;
int kind_named(const char *name); /* -1: none */
/* Returns the index of the kind that has the fields of v, has permute_copy off, and may store by
 * TMA; -1: no kind. */
int kind_of_problem(const struct gemm *v);
bool kind_gathers(const struct kind *kind); /* by the producer's threads */
/* True if the kernel's threads copy operands or its consumers take turns: a missing wait then shows
 * in only some launches, so the case is launched more often. */
bool case_is_delicate(const struct kind *kind, const struct tile *tile);

enum indices {
    INDICES_32,
    INDICES_64,
    INDICES_MIXED /* m_sizes has 64-bit integers, gather_indices 32-bit integers */
};

struct shape {
    int experts, n, k, topk;
    const int *rows; /* rows per expert: n_rows numbers, repeated for further experts */
    int n_rows;
    bool strided; /* operands have gaps between rows and between experts */
    enum indices indices;
    bool weights_in; /* routing weights have the operands' type, not fp32 */
    bool no_sizes;   /* one expert: m_sizes is NULL */
    bool nothing;    /* the launch has no rows at all */
    int nan;         /* number of the expert whose data are all NaN; 0: no expert */
    bool soak;
    bool shared_dy; /* permute_y in dX and dW: dy has a row per token, shared by its topk rows */
};
extern const struct shape shapes[];
extern const int n_shapes;
/* The soak's shapes by [which][mode]: 0 has many short tiles per thread block, of any size; 1 has
 * few tiles with long sums, for configs that are illegal for 0; 2 has multiples of 64, for
 * clusters. */
enum { SOAK_SHAPES = 3 };
extern const struct shape soak_shapes[SOAK_SHAPES + 1][3]; /* the last row's shapes have one expert;
                                                              it has no shape for dW */
/* Each variant of the space runs once, on one of two shapes, so that run-time types differ.
 * Variants that are not legal on the drawn shape run on a larger shape. */
enum { VARIANT_SHAPES = 3 };
extern const struct shape variant_shapes[VARIANT_SHAPES + 1]; /* the last shape has one expert */
extern const struct shape sample_shape;

/* Makes the problem of a kind and a shape. Returns 0, or -1 after printing the reason. */
int case_problem(const struct kind *kind, const struct shape *shape, struct problem *p);
void case_config(const struct gemm *v, const struct kind *kind, const struct tile *tile,
                 struct record *config);
/* True for a kernel for one expert (ONE_EXPERT in hopper/params.cu). */
bool case_of_one_expert(const struct variant *v);
/* Makes the config, and the variant of the config for the problem. Returns false with *why if the
 * config is not legal. */
bool case_variant(const struct kind *kind, const struct tile *tile, const struct problem *p,
                  const struct device_info *info, struct record *config, struct variant *out,
                  struct rejection *why);

extern const struct device_info h200; /* device facts for legality, without a GPU */

#endif
