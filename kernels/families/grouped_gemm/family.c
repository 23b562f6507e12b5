/* SPDX-License-Identifier: Apache-2.0 */
/* The family grouped_gemm: MoE grouped GEMM in three modes. Dense GEMM is the case of one
 * expert. */
#include <stdio.h>

#include "kernels/families/grouped_gemm/grouped_gemm.h"

static void gemm_fill_context(const void *args, struct launch_context *out)
{
    const struct grouped_gemm_args *a = args;
    *out = (struct launch_context){a->stream, a->workspace, a->workspace_bytes};
}

static void gemm_write_check_place(const struct workload *w, uint32_t check, char *out, size_t size)
{
    const struct gemm_state *s = w->state;
    int32_t expert = s->check_expert[check];
    int64_t first = s->view.mode == GEMM_DW ? expert * s->view.n : s->start[expert];
    snprintf(out, size, "expert %d, row %lld of it", (int)expert,
             (long long)(s->check_row[check] - first));
}

/* The best first (family_target_choose): the Hopper template was faster than the portable kernel
 * wherever both were measured on an H200. hopper_fp8 takes fp8 operands only. The portable kernel
 * takes problems that both refuse. */
static const struct family_target *const targets[] = {
    &grouped_gemm_hopper, &grouped_gemm_hopper_fp8, &grouped_gemm_cuda, &grouped_gemm_cpu, NULL,
};

const struct family grouped_gemm_family = {
    .name = "grouped_gemm",
    .op = &grouped_gemm_op,
    .targets = targets,
    .work = gemm_work,
    .rate = gemm_rate,
    .workload_init = gemm_workload_init,
    .workload_bytes = gemm_workload_bytes,
    .wary_seed = gemm_wary_seed,
    .workload_deinit = gemm_workload_deinit,
    .bind = gemm_bind,
    .context = gemm_fill_context,
    .place = gemm_write_check_place,
    .products = gemm_products,
    .usual = gemm_write_usual,
};
