/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values of a config of the target "hopper", looked up once: the rules read each of them, some
 * often, and are asked for tens of thousands of configs before a search begins.
 */
#ifndef GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_HOPPER_HOST_VALUES_H
#define GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_HOPPER_HOST_VALUES_H

#include "proto/record.h"

/* What a config may say, as it is spelt there, in the order of a record's fields. */
#define HOPPER_FIELDS(X)                                                                           \
    X(BLOCK_SIZE_K)                                                                                \
    X(BLOCK_SIZE_M)                                                                                \
    X(BLOCK_SIZE_N)                                                                                \
    X(GROUP_SIZE_M)                                                                                \
    X(NUM_KSPLIT)                                                                                  \
    X(cluster_shape_mn)                                                                            \
    X(dynamic_rounds)                                                                              \
    X(expert_order)                                                                                \
    X(in_flight)                                                                                   \
    X(l2_ahead)                                                                                    \
    X(load_warps)                                                                                  \
    X(num_stages)                                                                                  \
    X(num_warps)                                                                                   \
    X(permute_copy)                                                                                \
    X(raster)                                                                                      \
    X(schedule)                                                                                    \
    X(skip_rows)                                                                                   \
    X(stage_rows)                                                                                  \
    X(staging_buffers)                                                                             \
    X(store_evict_first)                                                                           \
    X(store_slabs)                                                                                 \
    X(swap_ab)                                                                                     \
    X(tile_rows)                                                                                   \
    X(tile_scheduler)                                                                              \
    X(use_tma_load_dy)                                                                             \
    X(use_tma_load_w)                                                                              \
    X(use_tma_load_x)                                                                              \
    X(use_tma_store)                                                                               \
    X(w_eviction)

#define HOPPER_FIELD(name) FIELD_##name,
enum hopper_field { HOPPER_FIELDS(HOPPER_FIELD) FIELDS };
#undef HOPPER_FIELD

extern const char *const hopper_field_names[FIELDS + 1]; /* the last is NULL */

struct hopper_values {
    struct value of[FIELDS]; /* VALUE_NONE: it does not say. Texts are the config's */
};

/* Fields of other names, which the problem's flags may have, are passed over. */
void hopper_values_read(const struct record *config, struct hopper_values *out);

/* With a fallback for "absent or of another type", as record_int(). */
static inline int hopper_int(const struct hopper_values *v, enum hopper_field f, int fallback)
{
    return v->of[f].type == VALUE_INT ? (int)v->of[f].integer : fallback;
}

static inline bool hopper_bool(const struct hopper_values *v, enum hopper_field f, bool fallback)
{
    return v->of[f].type == VALUE_BOOL ? v->of[f].flag : fallback;
}

/* Whether it says this word. */
bool hopper_says(const struct hopper_values *v, enum hopper_field f, const char *word);

#endif
