/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target "portable" inside: how a config maps onto the template in portable/.
 *
 *   target.c   the tunables, and legal configs
 *   model.c    predicted time, and the analytic default
 *   launch.c   compile-time options, launch geometry and arguments, the reference's launch
 */
#ifndef GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_PORTABLE_PORTABLE_H
#define GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_PORTABLE_PORTABLE_H

#include "kernels/families/grouped_gemm/grouped_gemm.h"

enum {
    PORTABLE_ROW_BYTES = 16,  /* alignment of rows and pointers */
    PORTABLE_TABLE_BYTES = 4, /* bytes of each entry of start[experts + 1] and ends[experts] */
    PORTABLE_REGISTERS_MAX = 255,
    PORTABLE_PROMOTE = 128, /* terms of a sum of fp8 products before they are added in fp32 */
};

struct portable_tile {
    int r, c, d;
    int element;    /* bytes of an element of the operands */
    bool is_scaled; /* fp8 operands, and a second set of sums */
    int warps, warps_r, warps_c;
    int stages;
    int group; /* GROUP_SIZE_M, at run time: tiles along r before the next column of tiles */
    int threads;
    int accumulators; /* registers of a thread for the output tile */
    int registers;    /* estimated registers of a thread; no measured variant needed more */
    int blocks;       /* thread blocks per SM that the registers allow, for __launch_bounds__ */
    int64_t smem;     /* bytes of dynamic shared memory */
};

/* Makes the tile of a config in which each value by itself is legal. Returns false if no
 * arrangement of the warps gives each warp a multiple of 16 x 32. */
bool portable_tile_make(const struct gemm *v, const struct record *config, struct portable_tile *t);

/* Number of a kernel's thread blocks that an SM holds at once. */
int portable_resident(const struct portable_tile *t, const struct device_info *info);

uint32_t portable_params(const struct problem *p, const struct device_info *info,
                         struct param out[PARAMS_MAX]);
int portable_check(const struct problem *p, const struct record *config,
                   const struct device_info *info, struct rejection *why);
int portable_choose(const struct problem *p, const struct device_info *info, struct record *config,
                    struct error *err);
double portable_predict(const struct problem *p, const struct record *config,
                        const struct device_info *info, const struct workload *w);
int portable_variant(const struct problem *p, const struct record *config, const char *arch,
                     struct variant *out, struct error *err);
int portable_plan(const struct problem *p, const struct record *config,
                  const struct device_info *info, const void *args, struct launch_plan *out,
                  struct error *err);
int portable_reference(const struct workload *w, void *const buffers[], const int64_t *check_at,
                       double *out, struct launch *launch, struct error *err);

/* ---- how all cuda targets read a launch's args -------------------------------------------------
 */

/* The low bits of params.flags, as in portable/params.cu and hopper/scheduler.cu. */
enum cuda_flags {
    CUDA_M_SIZES_64 = 1,
    CUDA_GATHER_64 = 2,
    CUDA_WEIGHTS_FP32 = 4,
    CUDA_ACCUMULATE = 8,
    CUDA_ENDS = 16,
    CUDA_FLAGS_NEXT = 32, /* a target's own flags begin with this bit */
};
uint32_t cuda_flags_of(const struct grouped_gemm_args *a);

/* The SMs that a launch counts on: the GPU's, or the fewer that the caller grants. */
int64_t cuda_sms_of(const struct grouped_gemm_args *a, const struct device_info *info);

/* True if nothing is to launch: no rows, and no output to zero. */
bool cuda_args_idle(const struct gemm *v, const struct grouped_gemm_args *a);
/* Upper bound of tiles of height x width of the output. Only the device knows the rows of each
 * expert. So in forward and dX each expert that can have rows counts a tile for a single row, and
 * the further rows fill further tiles. */
int64_t cuda_tiles_most(const struct gemm *v, int64_t rows, int64_t height, int64_t width);

#endif
