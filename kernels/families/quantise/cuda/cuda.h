/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target "portable" of quantise inside: how a config maps onto the template in cuda/.
 *
 *   target.c   the tunables, legal configs, predicted time
 *   launch.c   compile-time options, launch geometry and arguments, the reference's launch
 */
#ifndef GEMMD_KERNELS_FAMILIES_QUANTISE_CUDA_H
#define GEMMD_KERNELS_FAMILIES_QUANTISE_CUDA_H

#include "kernels/families/quantise/quantise.h"

enum {
    QUANTISE_LANES = 16, /* lanes that hold a row's 128 columns */
};

struct quantise_tile {
    int rows, rows_per_thread, min_blocks, group;
    int lanes, pieces; /* threads of a row; whole rows: pieces of 16 bytes that a thread keeps */
    bool stream, prefetch;
    int threads;
    int registers; /* estimate for a thread */
    int blocks;    /* estimate of thread blocks that an SM holds at once */
    int smem;      /* bytes of dynamic shared memory */
};
void quantise_tile_make(const struct quantise *v, const struct record *config,
                        const struct device_info *info, struct quantise_tile *t);

int quantise_cuda_variant(const struct problem *p, const struct record *config, const char *arch,
                          struct variant *out, struct error *err);
int quantise_cuda_plan(const struct problem *p, const struct record *config,
                       const struct device_info *info, const void *args, struct launch_plan *out,
                       struct error *err);
int quantise_cuda_reference(const struct workload *w, void *const buffers[],
                            const int64_t *check_at, double *out, struct launch *launch,
                            struct error *err);

#endif
