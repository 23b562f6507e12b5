/* SPDX-License-Identifier: Apache-2.0 */
/* The family quantise: bf16 to block-scaled fp8, row-wise, column-wise, both, and weights. */
#include "kernels/families/quantise/quantise.h"

static void quantise_fill_context(const void *args, struct launch_context *out)
{
    const struct quantise_args *a = args;
    *out = (struct launch_context){a->stream, a->workspace, a->workspace_bytes};
}

static const struct family_target *const targets[] = {&quantise_cuda, &quantise_cpu, NULL};

const struct family quantise_family = {
    .name = "quantise",
    .op = &quantise_op,
    .targets = targets,
    .work = quantise_work,
    .workload_init = quantise_workload_init,
    .workload_bytes = quantise_workload_bytes,
    .workload_deinit = quantise_workload_deinit,
    .bind = quantise_bind,
    .context = quantise_fill_context,
    .place = quantise_write_place,
};
