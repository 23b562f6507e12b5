/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target "hopper" inside: how a config maps onto the template in hopper/.
 *
 *   target.c               the tunables;
 *   tile.c                 a config as the template sees it
 *   validity.c             legal configs
 *   space.c                legal configs that are in the space;
 *   ../model/              predicted time, and the analytic default
 *   launch.c               compile-time options, launch geometry and arguments
 *   tensor_maps.c          tensor maps.
 */
#ifndef GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_HOPPER_HOST_HOPPER_H
#define GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_HOPPER_HOST_HOPPER_H

#include "kernels/families/grouped_gemm/hopper/host/tile.h"

/* The values of tunables that are words; each list ends with NULL. */
extern const char *const hopper_schedules[],
    *const hopper_clusters[], *const hopper_rasters[], *const hopper_orders[],
                                                           *const hopper_evictions[],
                                                               *const hopper_schedulers[];

/* True if `ksplit` parts of each sum can help tiles of r x c: half as many parts leave SMs without
 * work. */
bool hopper_split_pays(const struct grouped_gemm_problem *v, const struct device_info *info, int r,
                       int c, int ksplit);
/* True if experts have enough rows for schedule=staggered. */
bool hopper_stagger_pays(const struct grouped_gemm_problem *v);
/* True if experts have enough rows for schedule=deferred, and not too many. */
bool hopper_defer_pays(const struct grouped_gemm_problem *v);
/* True if experts have enough rows for two thread blocks to share weights. */
bool hopper_pair_pays(const struct grouped_gemm_problem *v);

bool hopper_supports(const struct device_info *info);
int hopper_takes(const struct problem *p, const struct device_info *info, struct rejection *why);
uint32_t hopper_tunables(const struct problem *p, const struct device_info *info,
                         struct param out[PARAMS_MAX]);
int hopper_check(const struct problem *p, const struct record *config,
                 const struct device_info *info, struct rejection *why);
int hopper_worth(const struct problem *p, const struct record *config,
                 const struct device_info *info, struct rejection *why);
double hopper_effort(const struct problem *p, const struct record *config);
int hopper_choose(const struct problem *p, const struct device_info *info, struct record *config,
                  struct error *err);
double hopper_predict(const struct problem *p, const struct record *config,
                      const struct device_info *info, const struct workload *w);
bool hopper_variation(const struct problem *p, const struct record *config, uint32_t i,
                      struct record *out);
int hopper_variant(const struct problem *p, const struct record *config, const char *arch,
                   struct variant *out, struct error *err);
int hopper_plan(const struct problem *p, const struct record *config,
                const struct device_info *info, const void *args, struct launch_plan *out,
                struct error *err);

#endif
