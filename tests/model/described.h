/* SPDX-License-Identifier: Apache-2.0 */
/* A problem and its configs as the analytic model sees them, for 16-bit operands and for fp8. */
#ifndef GEMMD_TESTS_MODEL_DESCRIBED_H
#define GEMMD_TESTS_MODEL_DESCRIBED_H

#include "kernels/families/grouped_gemm/hopper/fp8/fp8.h"
#include "kernels/families/grouped_gemm/hopper/model/model.h"

static inline bool described_is_fp8(const struct problem *p)
{
    struct gemm v;
    gemm_view(p, &v);
    return v.quant->is_scaled;
}

static inline const struct family_target *described_target(const struct problem *p)
{
    return described_is_fp8(p) ? &grouped_gemm_hopper_fp8 : &grouped_gemm_hopper;
}

static inline void described_facts(struct hopper_facts *f, const struct problem *p,
                                   const struct device_info *info, const struct workload *w)
{
    (described_is_fp8(p) ? fp8_facts_init : hopper_facts_init)(f, p, info, w);
}

static inline void described_tile(const struct problem *p, const struct record *config,
                                  struct hopper_tile *t)
{
    struct gemm v;
    gemm_view(p, &v);
    (v.quant->is_scaled ? fp8_tile_make : hopper_tile_make)(&v, config, t);
}

#endif
