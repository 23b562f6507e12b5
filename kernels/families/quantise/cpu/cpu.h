/* SPDX-License-Identifier: Apache-2.0 */
/* The target "cpu" of quantise inside. */
#ifndef GEMMD_KERNELS_FAMILIES_QUANTISE_CPU_H
#define GEMMD_KERNELS_FAMILIES_QUANTISE_CPU_H

#include "kernels/families/quantise/quantise.h"

int quantise_cpu_reference(const struct workload *w, void *const buffers[], const int64_t *check_at,
                           double *out, struct launch *launch, struct error *err);

#endif
