/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the target "cpu" of grouped_gemm: its tunables as numbers, and its model. */
#ifndef GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_CPU_TARGET_H
#define GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_CPU_TARGET_H

#include "kernels/families/grouped_gemm/grouped_gemm.h"

/* Names and meaning: cpu/kernel.c.in. */
struct cpu_tunables {
    int64_t block_m, block_n, block_k;
    int64_t vector_width, unroll_rows, unroll_cols;
    int64_t group_m;
    bool transpose_w;
    /* Derived: the tile, rows by columns, and the step of the reduction. */
    int64_t tile_r, tile_c, tile_l;
    bool lanes_on_cols;
};

/* Reads a config for a problem; absent parameters get their defaults. Values are not checked. */
void cpu_tunables_read(const struct grouped_gemm_problem *v, const struct record *config,
                       struct cpu_tunables *t);
/* Bytes of the tile buffers of a block. */
int64_t cpu_tunables_bytes(const struct cpu_tunables *t);

double grouped_gemm_cpu_predict(const struct problem *p, const struct record *config,
                                const struct device_info *info, const struct workload *w);
int grouped_gemm_cpu_reference(const struct workload *w, void *const buffers[],
                               const int64_t *check_at, double *out, struct launch *launch,
                               struct error *err);

#endif
