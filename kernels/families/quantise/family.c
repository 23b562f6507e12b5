/* SPDX-License-Identifier: Apache-2.0 */
/* The family quantise: bf16 to block-scaled fp8, row-wise, column-wise, both, and weights. */
#include <stdio.h>

#include "kernels/families/quantise/quantise.h"

static void quantise_fill_context(const void *args, struct launch_context *out)
{
    const struct quantise_args *a = args;
    *out = (struct launch_context){a->stream, a->workspace, a->workspace_bytes};
}

/* Every mode, gathered or not, for both scales. */
static bool quantise_write_usual(uint32_t i, char *text, size_t size, bool *is_rare)
{
    static const char *const modes[] = {"rows", "columns", "both", "weights", "whole_rows"};
    enum { MODES = sizeof(modes) / sizeof(modes[0]) };
    const uint32_t gathered = i / MODES % 2, pow2 = i / MODES / 2;
    *is_rare = true; /* only jobs in fp8 quantise */
    snprintf(text, size,
             "quantise mode=%s M=65536 K=8192 experts=64 topk=8 permute_x=%s scale_type=%s",
             modes[i % MODES], gathered ? "true" : "false", pow2 ? "pow2" : "fp32");
    return pow2 < 2;
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
    .usual = quantise_write_usual,
};
