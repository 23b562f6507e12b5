/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target "hopper_fp8" inside: fp8 operands on the template of the target "hopper".
 *
 *   tile.c     the twin of a problem, and a config as the template sees it.
 *   check.c    legal configs, and legal configs that are in the space.
 *   target.c   the tunables, the variant and the launch.
 *   model.c    predicted time, and the analytic default.
 *
 * The template counts two fp8 elements as one of 16 bits (hopper/fp8.cu). So a problem has a
 * "twin": the 16-bit problem with the same bytes in memory, whose tile, tensor maps, arguments and
 * predicted time the target "hopper" computes. The twin of dX is a forward problem, because W lies
 * transposed.
 */
#ifndef GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_HOPPER_FP8_FP8_H
#define GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_HOPPER_FP8_FP8_H

#include "kernels/families/grouped_gemm/hopper/host/hopper.h"

struct hopper_facts;

enum {
    FP8_DEPTH = 128,        /* length of a block of the reduction, in elements */
    FP8_UNIT = 2,           /* elements that the template counts as one */
    FP8_NARROW = 32,        /* columns of the narrowest tiles, of one expert */
    FP8_SWAPPED_MOST = 176, /* most routed rows of a scattered or paired tile with swap_ab */
    /* registers of a consumer's thread for sums and a set of temporary sums; a second set is taken
     * only where SUMS_FIT (hopper/params.cu) allows */
    FP8_SUMS_MOST = 192,
    FP8_GATHERED_SUMS_MOST = 168, /* the same in dynamic tiles, of gathered rows or swapped pairs */
    FP8_SPLIT_SUMS_MOST = 128,    /* the same with NUM_KSPLIT */
    FP8_STAGING_USUAL = 2,        /* usual staging buffers of each consumer, except as follows */
    /* dW with fp32 loads its output through them (hopper/output.cu), and took 3430 us with 2
     * buffers, 2530 with 4 */
    FP8_STAGING_LOADED = 4,
};

void fp8_twin(const struct gemm *v, struct gemm *twin);

/* The usual staging buffers of each consumer where TMA stores. A sender (hopper/sender.cu) stores a
 * consumer's whole part of a tile at once; parts of a single piece have two buffers, which take
 * turns. `v`: the twin. */
static inline int fp8_usual_staging(const struct gemm *v, const struct hopper_tile *t)
{
    const int whole = t->rows_each / 64 * t->c / 64;
    return v->mode == GEMM_DW && v->out == DTYPE_FP32        ? FP8_STAGING_LOADED
           : hopper_sends(v, t) && whole > FP8_STAGING_USUAL ? whole
                                                             : FP8_STAGING_USUAL;
}

/* Registers of a thread for its sums, and for the temporary sums of 64 rows. */
int fp8_count_sums(const struct hopper_tile *t);

/* True if tiles of FP8_NARROW columns are legal: in forward and dX of one expert whose input rows
 * are not gathered. */
bool fp8_takes_narrow(const struct gemm *v);

/* The tile of a config whose values are legal one by one; as the template sees it. */
void fp8_tile_of(const struct gemm *v, const struct hopper_values *h, struct hopper_tile *t);
void fp8_tile_make(const struct gemm *v, const struct record *config, struct hopper_tile *t);

/* The rows of dW's experts as the template counts them: tokens by two, filled up to blocks. */
int64_t fp8_token_units(int64_t rows);

int fp8_takes(const struct problem *p, const struct device_info *info, struct rejection *why);
int fp8_check(const struct problem *p, const struct record *config, const struct device_info *info,
              struct rejection *why);
int fp8_worth(const struct problem *p, const struct record *config, const struct device_info *info,
              struct rejection *why);
int fp8_choose(const struct problem *p, const struct device_info *info, struct record *config,
               struct error *err);
double fp8_predict(const struct problem *p, const struct record *config,
                   const struct device_info *info, const struct workload *w);
void fp8_predict_space(const struct problem *p, const struct device_info *info,
                       const struct workload *w, const struct space *s, double us[]);
double fp8_effort(const struct problem *p, const struct record *config);
/* The facts of a problem's twin, as hopper_facts_init() (hopper/model/model.h). */
void fp8_facts_init(struct hopper_facts *f, const struct problem *p, const struct device_info *info,
                    const struct workload *w);

#endif
